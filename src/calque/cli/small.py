"""Commands that take little more than a line: each calls one function."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.checks import language, output_file, output_folder, refuse_unused
from calque.cli.options import (
    EncoderArgument,
    KeepLayers,
    Limit,
    Loading,
    Overwrite,
    Pretokenized,
    Quiet,
    Seed,
    VectorPrecision,
    grouped,
    news,
)


def demo(
    encoder: Annotated[str, typer.Option(help="Hub name, folder, or mini (bundled).")] = "mini",
    out: Annotated[Path, typer.Option(help="Folder for the text, the aligned encoders and the results.")] = Path(
        "calque-demo"
    ),
    languages: Annotated[
        str, typer.Option(help="Languages to align with English, separated by commas; default: all seven.")
    ] = "",
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Align and measure an encoder on the bundled text.

    Compares three methods in a few minutes and writes a report.
    """
    from calque.corpora.sample import LANGUAGES
    from calque.report import report
    from calque.runs.demo import demo as run
    from calque.runs.demo import table

    output_folder("--out", out, [encoder])
    chosen = languages.replace(",", " ").split() or list(LANGUAGES)

    def add_report(folder: Path) -> None:
        files = [folder / "results.jsonl", folder / "analyses.jsonl"]
        report(files, out=folder / "report.html", title=f"{Path(encoder).name}, aligned with the sample text")

    rows = run(
        encoder=encoder, out=out, langs=chosen, seed=seed, overwrite=overwrite, progress=not quiet, say=news(quiet),
        then=add_report,
    )  # fmt: skip
    print(table(rows))
    news(quiet)(f"aligned encoders and results are in {out}\nreport: {out / 'report.html'}")


def study(
    plan: Annotated[
        Path, typer.Argument(metavar="STUDY.toml", help="What to compare: encoders, methods, languages and tasks.")
    ],
    workers: Annotated[int, typer.Option(min=1, help="Number of parallel processes, which share the cores.")] = 1,
    data: Annotated[Path | None, typer.Option(help="Folder of the texts; default: as in the study.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for steps and results; default: as in the study.")] = None,
    quiet: Quiet = False,
) -> None:
    """Compare encoders, methods and languages on tasks.

    Every step is done once; an interrupted study resumes.
    """
    from calque.report.study_tables import tables
    from calque.runs.study import study as run
    from calque.storage import write_text

    def show(folder: Path, records: list[dict[str, Any]]) -> None:
        text = tables(records)
        write_text(folder / "results.md", text + "\n")
        print(text)

    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")  # workers may be ended
    output_folder("--out", out)
    run(
        plan, workers=workers, data=data, out=out, say=news(quiet), then=show
    )  # fmt: skip


@grouped
def encode(
    encoder: EncoderArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text, one sentence per line (also .gz, .zst).")],
    lang: Annotated[str, typer.Option(callback=language, help="Language of the text.")],
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="Safetensors file: data [words, dim] and offsets [sentences + 1].")
    ],
    loading: Loading,
    pretokenized: Pretokenized = False,
    precision: VectorPrecision = None,
    limit: Limit = None,
    quiet: Quiet = False,
) -> None:
    """Write a vector for every word of a text."""
    from calque.corpora import read_sentences
    from calque.encoders import load_encoder
    from calque.storage import locked

    load = {**loading.arguments(), **({} if precision is None else {"precision": precision})}
    output_file("--out", out, [text, encoder])
    sentences = read_sentences(text, lang=lang, pretokenized=pretokenized, limit=limit)
    loaded = load_encoder(encoder, **load)
    with locked(out):
        embeddings = loaded.encode_to(out, sentences, progress=not quiet)
    news(quiet)(
        f"{embeddings.n_words:,} {loaded.rows} in {len(embeddings):,} sentences, {embeddings.dim} dimensions: {out}"
    )


def merge(
    adapters: Annotated[str, typer.Argument(metavar="FOLDER", help="Adapters, as calque align --lora saves them.")],
    out: Annotated[Path, typer.Option(help="Folder for the encoder.")],
    keep_layers: KeepLayers = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Put adapters (LoRA) into the weights of their encoder.

    The result is a folder that calque and transformers can load without PEFT.
    """
    from calque.runs.align import merge as run

    output_folder("--out", out, [adapters])
    run(adapters, out=out, keep_layers=keep_layers, overwrite=overwrite)
    news(quiet)(f"saved to {out}")


@grouped
def neighbours(
    context: typer.Context,
    encoder: Annotated[
        str,
        typer.Option(
            help="Hub name, folder, mini (bundled) or word vectors; an encoder with maps is shown before and after."
        ),
    ],
    lang1: Annotated[str, typer.Option(callback=language, help="Language of the word.")],
    sentence1: Annotated[str, typer.Option(help="The sentence with the word.")],
    word1: Annotated[str, typer.Option(help="The word, as written in the sentence.")],
    lang2: Annotated[str, typer.Option(callback=language, help="Language of the neighbours.")],
    loading: Loading,
    sentence2: Annotated[list[str] | None, typer.Option(help="A sentence in that language; repeatable.")] = None,
    text2: Annotated[str | None, typer.Option(help="A text in that language, one sentence per line.")] = None,
    aligned: Annotated[str | None, typer.Option(help="The aligned encoder, if --encoder is the base.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of nearest words to show.")] = 5,
    pretokenized: Pretokenized = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only the first N lines of --text2.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show a word's nearest words in another language.

    The word stands in a sentence; neighbours are shown before and after alignment.
    """
    from calque.runs.neighbours import neighbours as run
    from calque.runs.neighbours import table

    if text2 is None:
        refuse_unused(context, {"limit": "is only for --text2"})
    nearest = run(
        encoder, aligned=aligned, lang1=lang1, sentence1=sentence1, word1=word1, lang2=lang2,
        sentences2=sentence2 or [], text2=text2, k=k, pretokenized=pretokenized, limit=limit,
        load=loading.arguments(),
    )  # fmt: skip
    print(json.dumps(nearest, ensure_ascii=False) if as_json else table(nearest))


def data() -> None:
    """List the test sets that have short names.

    Each is read from the Hugging Face hub (pip install 'calque-align[hub]') where a file could stand, in the languages listed.
    """
    from calque.corpora.by_name import NAMED

    rows = [("name", "task", "write", "splits", "licence", "languages")]
    rows += [
        (name, row.task, row.usage(name), " ".join(row.splits), row.licence, " ".join(row.tags))
        for name, row in NAMED.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for each in rows:
        print("  ".join(value.ljust(width) for value, width in zip(each[:-1], widths, strict=False)) + "  " + each[-1])


def push(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of an encoder.")],
    repo: Annotated[str, typer.Argument(metavar="REPO", help="Name on the Hugging Face hub: USER/NAME.")],
    private: Annotated[
        bool | None,
        typer.Option("--private/--public", help="Who sees a new repository; default: as your account has it."),
    ] = None,
    message: Annotated[str, typer.Option(help="Message of the commit.")] = "",
    revision: Annotated[str | None, typer.Option(help="Branch, made if there is none; default: main.")] = None,
    license: Annotated[str | None, typer.Option(help="Licence of the weights, for the card, such as mit.")] = None,
    quiet: Quiet = False,
) -> None:
    """Upload an encoder to the Hugging Face hub, with its model card.

    Checkpoints and locks stay here. Log in before with hf auth login, or set HF_TOKEN.
    """
    from calque.encoders.hub import check_repo
    from calque.encoders.hub import push as run

    url = run(
        folder,
        check_repo(repo),
        private=private,
        message=message,
        revision=revision,
        license=license,
        progress=not quiet,
    )
    news(quiet)(f"uploaded: {url}")
