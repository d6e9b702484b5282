"""`calque pretrain` and `calque perplexity`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.checks import finite, fraction, output_folder, positive, refuse_unused
from calque.cli.options import Limit, Precision, Pretokenized, Quiet, Seed, by_name, grouped, news
from calque.cli.tracking import Tracking
from calque.errors import SettingError


@dataclass(frozen=True)
class SenseOptions:
    """Senses of words. In brackets: what the paper calls them."""

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
            "start, occurrences, rate, axes, queue, below, joint and others; see the guide.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any] | None:
        """Return options of `Senses`; None without senses.

        Raises:
            SettingError: one was given, but no number of senses; or one that is not known.
        """
        from calque.runs.study.options import of_senses

        if self.senses is None:
            for name in ("sense_option", "dictionary"):
                if getattr(self, name):
                    raise SettingError(f"--{name.replace('_', '-')} needs --senses: say how many a word has at most")
            return None
        known = {name: kind for name, kind in of_senses().items() if name != "senses"}
        return {"senses": self.senses, **by_name(self.sense_option or [], known, "--sense-option")}


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
    layers: Annotated[int | None, typer.Option(min=1, help="Hidden layers; default: 6 (ELMo: 2).")] = None,
    dim: Annotated[int | None, typer.Option(min=2, help="Hidden size (ELMo: of each direction); default: 128.")] = None,
    hidden: Annotated[
        int | None, typer.Option(min=1, help="ELMo: size of an LSTM cell; default: 8 times --dim.")
    ] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Attention heads; default: one per 64 dimensions.")] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            min=100, help="Vocabulary size of the tokenizer to train (ELMo: of the words to predict); default: 16,000."
        ),
    ] = None,
    lower_case: Annotated[
        bool | None,
        typer.Option(
            "--lower-case/--keep-case",
            help="Read all text in lower case; the encoder that is saved does so, too. Default: keep it.",
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder with a tokenizer to use instead of training one.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(help="Continue from this BERT (a folder, or mini) and its tokenizer instead of from scratch."),
    ] = None,
    positions: Annotated[
        int | None, typer.Option(min=8, help="Maximum length of a text in subwords; default: 256.")
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=8, help="Subwords per training block (ELMo: words per sentence); default: 128.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Blocks per update (ELMo: sentences); default: 64.")] = None,
    updates: Annotated[int | None, typer.Option(min=1, help="Number of updates; default: 10,000.")] = None,
    learning_rate: Annotated[float | None, typer.Option(callback=positive, help="Peak learning rate.")] = None,
    optimiser: Annotated[str | None, typer.Option(help="ELMo: adam (default), or adagrad as published.")] = None,
    negatives: Annotated[
        int | None,
        typer.Option(
            min=1, help="ELMo: words that an update tells its words from (n_negative_samples_batch); default: 8,192."
        ),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(callback=fraction, help="Share of numbers dropped in training; default: 0 (ELMo: 0.1)."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            callback=finite,
            min=0,
            max=1,
            help="Exponent for sampling languages: 1 in proportion to their text, 0 equally; default: 0.5.",
        ),
    ] = None,
    precision: Precision = "float32",
    held_out: Annotated[
        int, typer.Option(min=0, help="Sentences of each language to hold out for measuring perplexity.")
    ] = 0,
    half: Annotated[bool, typer.Option("--half", help="Save the weights in float16.")] = False,
    pretokenized: Pretokenized = False,
    checkpoint_every: Annotated[
        int, typer.Option(min=0, help="Also save a checkpoint every N updates (one is saved every minute); 0: none.")
    ] = 200,
    seed: Seed = 0,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished encoder in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train a small BERT or ELMo from scratch.

    A BERT learns by masked language modelling, an ELMo by predicting the next and the previous word. With --senses both
    predict senses of words, and with --dictionary those of translations.
    """
    output_folder("--out", out, [*texts, *(found.dictionary or []), tokenizer, start])
    from calque.runs.pretrain import pretrain as run

    say = news(quiet)
    named: dict[str, Any] = {
        "dim": dim, "length": length, "batch": batch, "updates": updates, "learning_rate": learning_rate, "alpha": alpha,
        "vocabulary": 16_000 if vocabulary is None and preset is None else vocabulary, "layers": layers, "lower": lower_case,
        "dropout": dropout,
    }  # fmt: skip
    if model == "elmo":
        others = {"--heads": heads, "--tokenizer": tokenizer, "--start": start, "--positions": positions}
        _refuse({**others, "--half": half or None}, "an ELMo")
        named |= {"hidden": hidden, "optimiser": optimiser, "negatives": negatives}
    elif model == "bert":
        _refuse({"--hidden": hidden, "--optimiser": optimiser, "--negatives": negatives}, "a BERT")
        if start is not None:
            shape = ("layers", "dim", "heads", "positions", "vocabulary", "tokenizer", "lower_case", "dropout")
            refuse_unused(context, dict.fromkeys(shape, "has no effect with --start, whose encoder has its own"))
        elif tokenizer is not None:
            refuse_unused(
                context,
                dict.fromkeys(("vocabulary", "lower_case"), "has no effect with --tokenizer, which has its own"),
            )
        named |= {"heads": heads, "tokenizer": tokenizer, "start": start, "half": half, "positions": positions}
    else:
        raise SettingError(f"--model {model}: expected bert or elmo")
    senses, langs_and_paths = found.arguments(), list(map(_with_language, texts))
    record = run(
        langs_and_paths, out=out, model=model, preset=preset, senses=senses,
        dictionaries=_dictionaries(found.dictionary or [], [lang for lang, _ in langs_and_paths]),
        options={"precision": precision, "seed": seed, "held_out": held_out, **_given(named)}, pretokenized=pretokenized,
        limit=limit, overwrite=overwrite, checkpoint_every=checkpoint_every, progress=not quiet, say=say,
    )  # fmt: skip
    say(f"saved to {out} after {record['updates']:,} updates; loss {record['last_loss']:.3f}")
    for table in record.get("senses", {}).get("tables", []):
        say(
            f"senses: {table['senses_per_word']:.2f} a word, several for {table['several']:.1%} of {table['words']:,} words"
        )
    for score in record.get("scores", []):
        say(f"{score['metric'].split('.')[0]} in {score['languages'][0]}: {score['value']:.1f}")


def _given(named: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value is not None}


def _dictionaries(files: list[str], langs: list[str]) -> list[tuple[tuple[str, str], str]]:
    """`en-de=FILE` as two languages and a path."""
    from calque.corpora.languages import name_and_path
    from calque.runs.pretrain import pair_of

    found = []
    for file in files:
        name, path = name_and_path(file)
        if not path or "-" not in name:
            raise SettingError(f"--dictionary {file}: give both languages before the file, e.g. en-de=en-de.txt")
        pair = pair_of(name, langs)
        if pair is None:
            raise SettingError(
                f"--dictionary {file}: expected two different languages of the text, which is in "
                f"{', '.join(dict.fromkeys(langs))}"
            )
        found.append((pair, path))
    return found


def _refuse(options: dict[str, Any], what: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise SettingError(f"{name} does not apply to {what}")


def _with_language(text: str) -> tuple[str, str]:
    """`LANG=FILE` as language and path."""
    from calque.corpora.languages import name_and_path

    lang, path = name_and_path(text)
    if not lang or not path:
        raise SettingError(f"{text!r}: give the language before the file, e.g. en=text.txt")
    return lang, path


def perplexity(
    encoder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="A masked language model (hub name, folder or mini), or an ELMo.")
    ],
    texts: Annotated[list[str], typer.Argument(metavar="LANG=TEXT...", help="Plain text by language: en=en.txt …")],
    share: Annotated[float, typer.Option(max=1, callback=positive, help="Share of the words to mask.")] = 0.15,
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
    from calque.runs.perplexity import perplexity as run
    from calque.runs.shown import table

    scores = run(
        encoder, list(map(_with_language, texts)), share=share, pretokenized=pretokenized, limit=limit, seed=seed,
        say=news(quiet),
    )  # fmt: skip
    if as_json:
        print(json.dumps({**scores[0].to_dict(), "scores": [score.to_dict() for score in scores]}, default=str))
    else:
        print(table(scores))
