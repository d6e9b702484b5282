"""Small commands, which call one function each."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import typer

from calque.cli.checks import output_file, output_folder, refuse_unused
from calque.cli.options import Loading, grouped, news
from calque.errors import MissingExtraError
from calque.runs.settings import (
    AnchorSettings,
    EncoderArgument,
    KeepLayers,
    Limit,
    MaxLength,
    NeighbourSettings,
    Overwrite,
    PairLangs,
    Pooling,
    Pretokenized,
    Quiet,
    Seed,
    language,
    language_pairs,
    numbers,
)


def demo(
    *,
    encoder: str = typer.Option("mini", help="Hub name, folder, or mini (bundled)."),
    out: Path = typer.Option(Path("calque-demo"), help="Folder for the text, the aligned encoders and the results."),
    languages: str = typer.Option("", help="Languages to align with English, separated by commas; default: all seven."),
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

    say = news(quiet)
    how = {"encoder": encoder, "out": out, "langs": chosen, "seed": seed, "overwrite": overwrite}
    print(table(run(**how, progress=not quiet, say=say, then=add_report)))
    say(f"aligned encoders and results are in {out}\nreport: {out / 'report.html'}")


def study(
    *,
    plan: Path = typer.Argument(
        ..., metavar="STUDY.toml", help="What to compare: encoders, methods, languages and tasks."
    ),
    workers: int = typer.Option(1, min=1, help="Number of parallel processes, which share the cores."),
    data: Path | None = typer.Option(None, help="Folder of the texts; default: as in the study."),
    out: Path | None = typer.Option(None, help="Folder for steps and results; default: as in the study."),
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

    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")  # workers may be terminated
    output_folder("--out", out)
    run(plan, workers=workers, data=data, out=out, say=news(quiet), then=show)


@grouped
def encode(
    *,
    encoder: EncoderArgument,
    text: str = typer.Argument(..., metavar="TEXT", help="Text, one sentence per line (also .gz, .zst)."),
    lang: str = typer.Option(..., callback=language, help="Language of the text."),
    out: Path = typer.Option(
        ..., metavar="PATH", help="Safetensors file: data [words, dim] and offsets [sentences + 1]."
    ),
    loading: Loading,
    pretokenized: Pretokenized = False,
    precision: str | None = typer.Option(
        None, help="highest (exact float32) or bfloat16 (all of the forward pass); default: as saved, or highest."
    ),
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
    rows = f"{embeddings.n_words:,} {loaded.rows} in {len(embeddings):,} sentences"
    news(quiet)(f"{rows}, {embeddings.dim} dimensions: {out}")


def merge(
    *,
    adapters: str = typer.Argument(..., metavar="FOLDER", help="Adapters, as calque align --lora saves them."),
    out: Path = typer.Option(..., help="Folder for the encoder."),
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
    *,
    context: typer.Context,
    how: NeighbourSettings,
    loading: Loading,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object instead."),
) -> None:
    """Show a word's nearest words in another language.

    The word is given in a sentence. Neighbours are shown before and after alignment.
    """
    from calque.runs.neighbours import neighbours as run
    from calque.runs.neighbours import table

    if how.text2 is None:
        refuse_unused(context, {"limit": "is only for --text2"})
    nearest = run(how, loading.arguments())
    print(json.dumps(nearest, ensure_ascii=False) if as_json else table(nearest))


@grouped
def anchors(how: AnchorSettings, pooling: Pooling = None, max_length: MaxLength = None, quiet: Quiet = False) -> None:
    """Average the vectors of each word over a text.

    Maps from a dictionary are fitted on these anchors, one set per layer.
    """
    from calque.runs.anchors import make_anchors

    output_folder("--out", how.out, [*how.text, how.encoder, how.vocabulary])
    load = Loading(None, pooling, max_length).arguments()
    make_anchors(how, load=load, progress=not quiet, say=news(quiet))


def data() -> None:
    """List the test sets that have short names.

    A short name can replace a file; the data are read from the Hugging Face hub (pip install 'calque-align[hub]').
    """
    from calque.corpora.by_name import NAMED
    from calque.runs.score_table import columns

    rows = [("name", "task", "write", "splits", "licence", "languages")]
    rows += [
        (name, row.task, row.usage(name), " ".join(row.splits), row.licence, " ".join(row.tags))
        for name, row in NAMED.items()
    ]
    print("\n".join(columns(rows, range(0))))


def push(
    *,
    folder: str = typer.Argument(..., metavar="FOLDER", help="Folder of an encoder."),
    repo: str = typer.Argument(..., metavar="REPO", help="Name on the Hugging Face hub: USER/NAME."),
    private: bool | None = typer.Option(
        None, "--private/--public", help="Who sees a new repository; default: as your account has it."
    ),
    message: str = typer.Option("", help="Message of the commit."),
    revision: str | None = typer.Option(None, help="Branch, made if there is none; default: main."),
    license: str | None = typer.Option(None, help="Licence of the weights, for the card, such as mit."),
    quiet: Quiet = False,
) -> None:
    """Upload an encoder to the Hugging Face hub, with its model card.

    Checkpoints and locks stay here. Log in before with hf auth login, or set HF_TOKEN.
    """
    from calque.encoders.hub import check_repo
    from calque.encoders.hub import push as run

    about = {"private": private, "message": message, "revision": revision, "license": license}
    url = run(folder, check_repo(repo), **about, progress=not quiet)
    news(quiet)(f"uploaded: {url}")


def report(
    *,
    results: list[Path] = typer.Argument(
        ..., metavar="RESULTS...", help="Result files (JSON lines), or folders that contain them."
    ),
    out: Path = typer.Option(Path("report.html"), help="The HTML file to write."),
    title: str | None = typer.Option(None, help="Title of the report; default: the names of the folders."),
    base: str | None = typer.Option(
        None, help="What to compare everything with; default: the encoder before alignment, or base."
    ),
    plots: Path | None = typer.Option(None, help="Also save each plot to this folder as SVG, e.g. for a paper."),
    quiet: Quiet = False,
) -> None:
    """Write a report on results, with tables and plots."""
    from calque.report import report as run

    output_file("--out", out, results)
    output_folder("--plots", plots)
    written = run(results, out=out, title=title, base=base, plots=plots)
    if written:
        news(quiet)(f"{len(written)} plots saved to {plots}")
    print(out)


def explore(
    *,
    context: typer.Context,
    encoders: list[str] = typer.Argument(
        ...,
        metavar="DIR...",
        help="A folder of calque demo, or aligned encoders; their base encoder is found automatically.",
    ),
    text: list[str] | None = typer.Option(
        None, metavar="FILE...", help="Text to explore, one sentence per line: de=FILE."
    ),
    test: list[str] | None = typer.Option(None, metavar="FILE...", help="Parallel text to explore, with --langs."),
    langs: PairLangs = None,
    base: str | None = typer.Option(None, help="The base encoder, if it is not found automatically."),
    layers: str | None = typer.Option(
        None, help="Layers to choose from, e.g. 0,6,-1; default: first, middle and the encoder's layer."
    ),
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    cache: Path | None = typer.Option(None, help="Folder for the vectors; default: in or beside DIR."),
    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on; any other than this lets others in without a password."
    ),
    port: int | None = typer.Option(None, min=0, max=65535, help="Port; default: 8472, or a free one."),
    no_browser: bool = typer.Option(False, "--no-browser", help="Print the address and open no browser."),
    quiet: Quiet = False,
) -> None:
    """Explore the nearest words in other languages.

    Opens a local page: click a word to see its neighbours before and after alignment.
    """
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "explore", "the explorer")
    from calque.explore.app import listen, serve, url_of
    from calque.explore.explorer import Explorer
    from calque.explore.sources import find_encoders, find_text, place_for

    if not test:
        refuse_unused(context, {"langs": "is for parallel text: --test FILE"})
    if not test and not text:
        refuse_unused(context, {"pretokenized": "is for --text and --test"})
    output_folder("--cache", cache, [*(text or []), *(test or [])])
    say = news(quiet)
    texts = {"text": text or [], "test": test or [], "langs": language_pairs(langs or [])}
    collection = find_text(encoders, **texts, pretokenized=pretokenized, limit=limit, say=say)
    sources = find_encoders(encoders, base, say)
    say("encoders: " + ", ".join(f"{each.name}{' (before alignment)' if each.before else ''}" for each in sources))
    folder = cache or place_for(encoders[0])
    explorer = Explorer(collection, sources, folder, layers=numbers(layers), progress=not quiet)
    listening = listen(host, port)
    print(url_of(listening), flush=True)
    say("press Ctrl-C to stop")
    serve(explorer, listening, host=host, browser=not no_browser, say=say)
