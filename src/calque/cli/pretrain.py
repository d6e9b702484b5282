"""`calque pretrain` and `calque perplexity`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.checks import finite, output_folder, positive, refuse_unused
from calque.cli.options import Limit, Precision, Pretokenized, Quiet, Seed, news
from calque.errors import SettingError


def pretrain(
    context: typer.Context,
    texts: Annotated[list[str], typer.Argument(metavar="LANG=TEXT...", help="Plain text by language: en=en.txt.gz …")],
    out: Annotated[Path, typer.Option(help="Folder for the encoder; an interrupted run resumes there.")],
    model: Annotated[str, typer.Option(help="bert, or elmo: a bidirectional language model.")] = "bert",
    layers: Annotated[int | None, typer.Option(min=1, help="Hidden layers; default: 6 (ELMo: 2).")] = None,
    dim: Annotated[int, typer.Option(min=2, help="Hidden size (ELMo: of each direction).")] = 128,
    hidden: Annotated[
        int | None, typer.Option(min=1, help="ELMo: size of an LSTM cell; default: 8 times --dim.")
    ] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Attention heads; default: one per 64 dimensions.")] = None,
    vocabulary: Annotated[
        int,
        typer.Option(min=100, help="Vocabulary size of the tokenizer to train (ELMo: of the words to predict)."),
    ] = 16_000,
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
    length: Annotated[int, typer.Option(min=8, help="Subwords per training block (ELMo: words per sentence).")] = 128,
    batch: Annotated[int, typer.Option(min=1, help="Blocks per update (ELMo: sentences).")] = 64,
    updates: Annotated[int, typer.Option(min=1, help="Number of updates.")] = 10_000,
    learning_rate: Annotated[float | None, typer.Option(callback=positive, help="Peak learning rate.")] = None,
    alpha: Annotated[
        float,
        typer.Option(
            callback=finite,
            min=0,
            max=1,
            help="Exponent for sampling languages: 1 in proportion to their text, 0 equally.",
        ),
    ] = 0.5,
    precision: Precision = "float32",
    held_out: Annotated[
        int, typer.Option(min=0, help="ELMo: sentences of each language to hold out for measuring perplexity.")
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

    A BERT learns by masked language modelling, an ELMo by predicting the next and the previous word.
    """
    output_folder("--out", out, [*texts, tokenizer, start])
    from calque.runs.pretrain import pretrain as run

    say = news(quiet)
    options: dict[str, Any] = {
        "dim": dim, "length": length, "batch": batch, "updates": updates, "learning_rate": learning_rate, "alpha": alpha,
        "precision": precision, "seed": seed, "vocabulary": vocabulary, **({} if layers is None else {"layers": layers}),
    }  # fmt: skip
    if model == "elmo":
        others = {"--heads": heads, "--tokenizer": tokenizer, "--start": start, "--positions": positions}
        _refuse({**others, "--half": half or None}, "an ELMo")
        options |= {"hidden": hidden, "held_out": held_out}
    elif model == "bert":
        _refuse({"--hidden": hidden, "--held-out": held_out or None}, "a BERT")
        if start is not None:
            shape = ("layers", "dim", "heads", "positions", "vocabulary", "tokenizer")
            refuse_unused(context, dict.fromkeys(shape, "has no effect with --start, whose encoder has its own"))
        elif tokenizer is not None:
            refuse_unused(context, {"vocabulary": "has no effect with --tokenizer, which has its own"})
        options |= {"heads": heads, "tokenizer": tokenizer, "start": start, "half": half}
        options |= {} if positions is None else {"positions": positions}
    else:
        raise SettingError(f"--model {model}: expected bert or elmo")
    record = run(
        list(map(_with_language, texts)), out=out, model=model, options=options, pretokenized=pretokenized, limit=limit,
        overwrite=overwrite, checkpoint_every=checkpoint_every, progress=not quiet, say=say,
    )  # fmt: skip
    say(f"saved to {out} after {record['updates']:,} updates; loss {record['last_loss']:.3f}")
    for score in record.get("scores", []):
        say(f"{score['metric']} in {score['languages'][0]}: {score['value']:.1f}")


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

    A BERT predicts masked words, an ELMo the next and the previous word.
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
