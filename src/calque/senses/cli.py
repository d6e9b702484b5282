"""The commands `calque pretrain`, `calque perplexity` and `calque senses`."""

from __future__ import annotations

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
from calque.runs.settings import (
    CheckpointEvery,
    Limit,
    Overwrite,
    OwnOption,
    Pretokenized,
    Quiet,
    Seed,
    file_name,
)
from calque.storage import json_text


@dataclass(frozen=True)
class SenseOptions:
    """Command-line options for senses; their names in the Multi-sense paper are in brackets."""

    senses: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of senses per word; the model then predicts senses, which are induced during training "
            "(n_context in the paper: 5, or 3 for two languages)."
        ),
    ] = None
    dictionary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LANG-LANG=FILE",
            help="With --senses: also predict senses of the translations in this dictionary, e.g. en-de=en-de.txt; repeatable. "
            "All languages are then sampled equally often, unless --alpha is given.",
        ),
    ] = None
    sense_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="With --senses: a setting of sense induction, e.g. start=fresh or axes=24; repeatable. The guide describes "
            "all settings.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any] | None:
        """Return the arguments for `Senses`, or None if --senses is not given.

        Raises:
            SettingError: an option is unknown, or is given without --senses.
        """
        from calque.runs.study.values import of
        from calque.senses.training import Senses

        if self.senses is None:
            for name in ("sense_option", "dictionary"):
                if getattr(self, name):
                    raise SettingError(
                        f"--{name.replace('_', '-')} needs --senses; set --senses to the maximum number of senses per word"
                    )
            return None
        return {
            "senses": self.senses,
            **by_name(self.sense_option or [], of(Senses, "senses"), "--sense-option"),
        }


#: options that cannot be combined with --start, because the BERT given by --start determines them
_OF_START = ("layers", "dim", "heads", "inner", "positions", "dropout", "vocabulary", "lower")


class PretrainCommand(SubjectCommand):
    """The command `calque pretrain`, whose options depend on the kind of language model."""

    asks_for = "calque pretrain --model bert --help, or --model elmo"
    spelled: ClassVar[Mapping[str, str]] = {"--lower-case": "lower", "--keep-case": "lower"}
    helps: ClassVar[Mapping[str, str]] = {
        "vocabulary": "vocabulary size of the tokenizer (ELMo: maximum number of words to predict); default: 16,000.",
        "start": "BERT model (a folder, or mini) whose training is continued; the new model has the same sizes and tokenizer.",
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
            raise SettingError(
                f"{option} does not apply to {'ELMo' if subject == 'elmo' else 'BERT'}"
            )


@grouped
def pretrain(
    context: typer.Context,
    texts: Annotated[
        list[str], typer.Argument(metavar="LANG=TEXT...", help="Plain-text files, e.g. en=en.txt.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Output folder; run the same command again to resume an interrupted run."
        ),
    ],
    found: SenseOptions,
    tracking: Tracking,
    model: Annotated[
        str, typer.Option(help="Model: bert, or elmo (a bidirectional LSTM language model).")
    ] = "bert",
    preset: Annotated[
        str | None,
        typer.Option(
            help="Preset for sizes and settings: paper (as in the Multi-sense paper; takes days on GPUs), small (an hour on "
            "two cores) or tiny (minutes). Explicit options override the preset."
        ),
    ] = None,
    held_out: Annotated[
        int,
        typer.Option(
            min=0, help="Number of sentences per language to hold out for measuring perplexity."
        ),
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

    BERT is trained by masked language modelling, and ELMo by predicting the next and the previous
    word. With --senses, the model predicts the senses of words and, with --dictionary, also the
    senses of their translations.
    """
    options = own_options(context, option)
    output_folder(
        "--out",
        out,
        [*texts, *(found.dictionary or []), *([options["start"]] if "start" in options else [])],
    )
    from calque.senses.pretrain import pretrain as run

    say = news(quiet)
    for name, called, _ in context.meta["own"] if "start" in options else ():
        if name in _OF_START:
            raise SettingError(
                f"{called} cannot be combined with --start, because the given BERT determines it"
            )
    if preset is None:
        options.setdefault("vocabulary", 16_000)
    senses, langs_and_paths = found.arguments(), list(map(language_and_path, texts))
    record = run(
        langs_and_paths,
        out=out,
        model=model,
        preset=preset,
        senses=senses,
        dictionaries=_dictionaries(found.dictionary or [], [lang for lang, _ in langs_and_paths]),
        options={"seed": seed, **options},
        held_out=held_out,
        pretokenized=pretokenized,
        limit=limit,
        overwrite=overwrite,
        checkpoint_every=checkpoint_every,
        progress=not quiet,
        say=say,
    )
    say(f"saved to {out} after {record['updates']:,} updates; loss {record['last_loss']:.3f}")
    for table in record.get("senses", {}).get("tables", []):
        say(
            f"{table['senses_per_word']:.2f} senses per word; {table['several']:.1%} of {table['words']:,} words have several"
        )
    for score in record["scores"]:
        say(f"{score['metric'].split('.')[0]} in {score['languages'][0]}: {score['value']:.1f}")


def _dictionaries(files: list[str], langs: list[str]) -> list[tuple[tuple[str, str], str]]:
    """Split each `en-de=FILE` into the language pair and the path."""
    found = []
    for name, path in map(name_and_path, files):
        pair = pair_of(name, langs) if path else None
        if pair is None:
            raise SettingError(
                f"--dictionary must name two different languages of the text ({', '.join(dict.fromkeys(langs))}) and a "
                f"file, e.g. en-de=en-de.txt, got {name}={path}"
            )
        found.append((pair, path))
    return found


pretrain.command_class = PretrainCommand


def perplexity(
    encoder: Annotated[
        str,
        typer.Argument(
            metavar="ENCODER",
            help="ELMo folder, or masked language model (hub name, folder or mini).",
        ),
    ],
    texts: Annotated[
        list[str], typer.Argument(metavar="LANG=TEXT...", help="Plain-text files, e.g. en=en.txt.")
    ],
    share: Annotated[
        float, typer.Option(max=1, callback=positive, help="Fraction of the words to mask.")
    ] = 0.15,
    pretokenized: Pretokenized = False,
    seed: Seed = 0,
    limit: Limit = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the scores as one JSON object.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Measure the perplexity of a language model.

    BERT predicts masked words, and ELMo predicts the next and the previous word. If the model has
    senses, the probability of a word is the sum over its senses.
    """
    from calque.runs.score_table import table
    from calque.senses.perplexity import perplexity as run

    scores = run(
        encoder,
        list(map(language_and_path, texts)),
        share=share,
        pretokenized=pretokenized,
        limit=limit,
        seed=seed,
        say=news(quiet),
    )
    if as_json:
        print(
            json_text(
                {**scores[0].to_dict(), "scores": [score.to_dict() for score in scores]},
                default=str,
            )
        )
    else:
        print(table(scores))


def senses(
    context: typer.Context,
    folder: Annotated[
        str,
        typer.Argument(
            metavar="ENCODER", help="ELMo, or encoder with a mask token (hub name, folder or mini)."
        ),
    ],
    word: Annotated[
        str | None, typer.Argument(metavar="WORD", help="Word whose senses are shown.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Text from which senses are induced; write de=FILE if the file name does not contain the language.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=file_name,
            metavar="PATH",
            help="Without WORD: output file; for each line of --text, it contains a line with the sense number of each word, or "
            "a hyphen for a word without senses.",
        ),
    ] = None,
    trained: Annotated[
        bool,
        typer.Option(
            "--trained",
            help="Show the senses learned by calque pretrain --senses, instead of inducing senses from --text. Then --text "
            "only determines the language of each word.",
        ),
    ] = False,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of nearest senses to show.")] = 10,
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Find the senses of words in a text.

    With WORD, the command prints the frequency of each sense, the nearest senses in all languages,
    and example sentences. Without WORD, it writes a line of sense numbers for each line of the
    text.
    """
    from calque.senses.found import senses as of_word
    from calque.senses.found import table, write_senses

    if not text:
        refuse_unused(context, dict.fromkeys(("pretokenized", "limit"), "applies only to --text"))
    how = {"pretokenized": pretokenized, "limit": limit}
    if word is not None:
        refuse_unused(context, {"out": "cannot be combined with WORD"})
        found = of_word(folder, word, text or [], k=k, trained=trained, **how)
        print(json_text(found, ensure_ascii=False) if as_json else table(found))
        return
    if out is None or not text or trained:
        raise SettingError(
            "give a word, e.g. calque senses FOLDER bank, or a text and an output file: --text FILE --out FILE"
        )
    refuse_unused(context, dict.fromkeys(("k", "as_json"), "applies only with WORD"))
    output_file("--out", out, [folder, *text])
    done = write_senses(folder, text, out, **how)
    news(quiet)(
        f"wrote {out}: {done['known']:,} of {done['words']:,} words in {done['lines']:,} lines have a sense"
    )
