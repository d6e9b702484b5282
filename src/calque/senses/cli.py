"""`calque pretrain`, `calque perplexity` and `calque senses`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from calque.cli.checks import output_file, output_folder, positive, refuse_unused
from calque.cli.options import SubjectCommand, Tracking, by_name, grouped, news, own_options
from calque.corpora.languages import language_and_path, name_and_path, pair_of
from calque.errors import SettingError
from calque.runs.settings import CheckpointEvery, Limit, Overwrite, OwnOption, Pretokenized, Quiet, Seed


@dataclass(frozen=True)
class SenseOptions:
    """Options of senses. In brackets: names in the paper."""

    senses: Annotated[
        int | None,
        typer.Option(
            help="Predict senses: up to N output vectors for each word, found while training (n_context; as published 5, with "
            "two languages 3)."
        ),
    ] = None
    dictionary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LANG-LANG=FILE",
            help="Senses: also predict the sense of a word's translation, e.g. en-de=en-de.txt; repeatable. The languages "
            "are then seen equally, unless --alpha is given.",
        ),
    ] = None
    sense_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Senses: a setting of how they are found, e.g. start=fresh or axes=24; repeatable. The names are warmup, "
            "start, occurrences, rate, axes, queue, below and others; see the guide.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any] | None:
        """Return options of `Senses`; None without senses.

        Raises:
            SettingError: an option is unknown, or given without the number of senses.
        """
        from calque.runs.study.values import of
        from calque.senses.training import Senses

        if self.senses is None:
            for name in ("sense_option", "dictionary"):
                if getattr(self, name):
                    raise SettingError(
                        f"--{name.replace('_', '-')} needs --senses; give the maximum number of senses of a word"
                    )
            return None
        return {"senses": self.senses, **by_name(self.sense_option or [], of(Senses, "senses"), "--sense-option")}


#: options that a BERT to continue from determines
_OF_START = ("layers", "dim", "heads", "inner", "positions", "dropout", "vocabulary", "lower")


class PretrainCommand(SubjectCommand):
    """A command whose subject is a kind of language model."""

    asks_for = "calque pretrain --model bert --help, or --model elmo"
    spelled: ClassVar[Mapping[str, str]] = {"--lower-case": "lower", "--keep-case": "lower"}
    helps: ClassVar[Mapping[str, str]] = {
        "vocabulary": "Size of the tokenizer to train (ELMo: number of words to predict); default: 16,000.",
        "start": "Continue from this BERT (a folder, or mini) and its tokenizer instead of from scratch.",
    }

    def find_subject(self, words: Sequence[str]) -> str | None:
        given = " ".join(words).replace("=", " ").split()
        named = dict(pairwise(given)).get("--model")
        return None if "--help" in given and named is None else named or "bert"

    def subjects(self) -> Mapping[str, str]:
        return {f"calque pretrain --model {name}": name for name in ("bert", "elmo")}

    def types_of(self, subject: str) -> Mapping[str, Any]:
        from calque.runs.study.values import of

        known = of(self.described_by(subject)[0], "senses", "seed")
        return known if subject == "elmo" else {**known, "start": str}

    def described_by(self, subject: str) -> list[Any]:
        from calque.senses.pretrain import model_class

        return [model_class(subject)]

    def refuse(self, name: str, option: str, subject: str) -> None:
        if any(name in self.types_of(each) for each in ("bert", "elmo")):
            raise SettingError(f"{option} does not apply to {'an ELMo' if subject == 'elmo' else 'a BERT'}")


@grouped
def pretrain(
    context: typer.Context,
    texts: Annotated[list[str], typer.Argument(metavar="LANG=TEXT...", help="Plain text by language: en=en.txt.gz …")],
    out: Annotated[Path, typer.Option(help="Folder for the encoder; an interrupted run resumes there.")],
    found: SenseOptions,
    tracking: Tracking,
    model: Annotated[str, typer.Option(help="bert, or elmo: a bidirectional language model.")] = "bert",
    preset: Annotated[
        str | None,
        typer.Option(
            help="Sizes and settings together: paper (the Multi-sense paper's; a machine of its size), small (an hour on two "
            "cores) or tiny (minutes); options that are given count instead of the preset's."
        ),
    ] = None,
    held_out: Annotated[
        int, typer.Option(min=0, help="Sentences of each language to hold out for measuring perplexity.")
    ] = 0,
    option: OwnOption = None,
    pretokenized: Pretokenized = False,
    checkpoint_every: CheckpointEvery = 200,
    seed: Seed = 0,
    limit: Limit = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Train a small BERT or ELMo from scratch.

    A BERT learns by masked language modelling, an ELMo by predicting the next and the previous word. With --senses both
    predict senses of words, and with --dictionary those of translations.
    """
    options = own_options(context, option)
    output_folder(
        "--out", out, [*texts, *(found.dictionary or []), *([options["start"]] if "start" in options else [])]
    )
    from calque.senses.pretrain import pretrain as run

    say = news(quiet)
    for name, called, _ in context.meta["own"] if "start" in options else ():
        if name in _OF_START:
            raise SettingError(f"{called} has no effect with --start, which has its own")
    if preset is None:
        options.setdefault("vocabulary", 16_000)
    senses, langs_and_paths = found.arguments(), list(map(language_and_path, texts))
    record = run(
        langs_and_paths, out=out, model=model, preset=preset, senses=senses,
        dictionaries=_dictionaries(found.dictionary or [], [lang for lang, _ in langs_and_paths]),
        options={"seed": seed, **options}, held_out=held_out, pretokenized=pretokenized,
        limit=limit, overwrite=overwrite, checkpoint_every=checkpoint_every, progress=not quiet, say=say,
    )  # fmt: skip
    say(f"saved to {out} after {record['updates']:,} updates; loss {record['last_loss']:.3f}")
    for table in record.get("senses", {}).get("tables", []):
        say(
            f"senses: {table['senses_per_word']:.2f} a word, several for {table['several']:.1%} of {table['words']:,} words"
        )
    for score in record["scores"]:
        say(f"{score['metric'].split('.')[0]} in {score['languages'][0]}: {score['value']:.1f}")


def _dictionaries(files: list[str], langs: list[str]) -> list[tuple[tuple[str, str], str]]:
    """Split `en-de=FILE` into languages of the text and path."""
    found = []
    for name, path in map(name_and_path, files):
        pair = pair_of(name, langs) if path else None
        if pair is None:
            raise SettingError(
                f"--dictionary {name}={path}: expected two different languages of the text, which is in "
                f"{', '.join(dict.fromkeys(langs))}, and a file, e.g. en-de=en-de.txt"
            )
        found.append((pair, path))
    return found


pretrain.command_class = PretrainCommand


def perplexity(
    encoder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="A masked language model (hub name, folder or mini), or an ELMo.")
    ],
    texts: Annotated[list[str], typer.Argument(metavar="LANG=TEXT...", help="Plain text by language: en=en.txt …")],
    share: Annotated[float, typer.Option(max=1, callback=positive, help="Fraction of the words to mask.")] = 0.15,
    pretokenized: Pretokenized = False,
    seed: Seed = 0,
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure the perplexity of a language model.

    A BERT predicts masked words, an ELMo the next and the previous word. Where a model has senses, a word's probability is
    the sum over them.
    """
    from calque.runs.score_table import table
    from calque.senses.perplexity import perplexity as run

    scores = run(
        encoder, list(map(language_and_path, texts)), share=share, pretokenized=pretokenized, limit=limit, seed=seed,
        say=news(quiet),
    )  # fmt: skip
    if as_json:
        print(json.dumps({**scores[0].to_dict(), "scores": [score.to_dict() for score in scores]}, default=str))
    else:
        print(table(scores))


def senses(
    context: typer.Context,
    folder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="An ELMo, or an encoder with a mask (folder, hub name or mini).")
    ],
    word: Annotated[str | None, typer.Argument(metavar="WORD", help="The word whose senses to show.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Text to find the senses in, one sentence per line; de=FILE if its name does not say the language.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Without WORD: file for the number of the sense of each word, a line for each line of --text; - for a word "
            "without senses."
        ),
    ] = None,
    trained: Annotated[
        bool,
        typer.Option(
            "--trained",
            help="Show the senses of calque pretrain --senses instead of inducing them from --text, which then gives the "
            "languages of words.",
        ),
    ] = False,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of nearest senses to show.")] = 10,
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    quiet: Quiet = False,
) -> None:
    """Find the senses of words in a text.

    For a word: each sense with its share, the nearest senses of all languages, and sentences. Without one: a line of numbers
    for each line of the text.
    """
    from calque.senses.found import senses as of_word
    from calque.senses.found import table, write_senses

    if not text:
        refuse_unused(context, dict.fromkeys(("pretokenized", "limit"), "is only for --text"))
    how = {"pretokenized": pretokenized, "limit": limit}
    if word is not None:
        refuse_unused(context, {"out": "is only for a whole text, without a word"})
        found = of_word(folder, word, text or [], k=k, trained=trained, **how)
        print(json.dumps(found, ensure_ascii=False) if as_json else table(found))
        return
    if out is None or not text or trained:
        raise SettingError(
            "name a word, as in calque senses FOLDER bank, or give a text and an output file: --text FILE --out FILE"
        )
    refuse_unused(context, dict.fromkeys(("k", "as_json"), "is only for the senses of a word"))
    output_file("--out", out, [folder, *text])
    done = write_senses(folder, text, out, **how)
    news(quiet)(f"{done['known']:,} of {done['words']:,} words in {done['lines']:,} lines have a sense: {out}")
