"""Commands that each call a single function."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from calque.analyses.table import ANALYSES, users
from calque.cli.checks import output_file, output_folder, refuse_unused
from calque.cli.options import (
    Linking,
    Loading,
    SubjectCommand,
    Tracking,
    grouped,
    names_of,
    news,
    own_options,
)
from calque.corpora.languages import pair_and_path
from calque.errors import MissingExtraError, SettingError
from calque.runs.settings import (
    AnalysisSettings,
    AnchorSettings,
    DistilSettings,
    EncoderArgument,
    KeepLayers,
    Limit,
    LinkSettings,
    MaxLength,
    NeighbourSettings,
    Overwrite,
    PairLangs,
    Pooling,
    Pretokenized,
    Quiet,
    Seed,
    Several,
    file_name,
    language,
    numbers,
    pairs_of,
    warn_of_languages,
)
from calque.storage import append_lines, json_text


def demo(
    *,
    encoder: str = typer.Option(
        "mini", help="Encoder to align: Hugging Face name, folder or mini (bundled)."
    ),
    out: Path = typer.Option(
        Path("calque-demo"), help="Folder for the text, the aligned encoders and the results."
    ),
    languages: str = typer.Option(
        "", help="Languages to align with English, separated by commas; default: all seven."
    ),
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Align and measure an encoder on the bundled text.

    The demo compares three methods in a few minutes and writes a report.
    """
    from calque.corpora.sample import LANGUAGES
    from calque.report import report
    from calque.runs.demo import demo as run
    from calque.runs.demo import table

    output_folder("--out", out, [encoder])
    chosen = languages.replace(",", " ").split() or list(LANGUAGES)

    def add_report(folder: Path) -> None:
        files = [folder / "results.jsonl", folder / "analyses.jsonl"]
        report(
            files,
            out=folder / "report.html",
            title=f"{Path(encoder).name}, aligned with the sample text",
        )

    say = news(quiet)
    how = {"encoder": encoder, "out": out, "langs": chosen, "seed": seed, "overwrite": overwrite}
    print(table(run(**how, progress=not quiet, say=say, then=add_report)))
    say(f"aligned encoders and results are in {out}\nreport: {out / 'report.html'}")


def study(
    *,
    plan: Path = typer.Argument(..., metavar="STUDY.toml", help="File that defines the study."),
    workers: int = typer.Option(
        1, min=1, help="Number of parallel processes, which share the CPU cores."
    ),
    data: Path | None = typer.Option(
        None, help="Folder with the texts; default: the setting in STUDY.toml."
    ),
    out: Path | None = typer.Option(
        None, help="Folder for the steps and results; default: the setting in STUDY.toml."
    ),
    quiet: Quiet = False,
) -> None:
    """Compare encoders, methods and languages on tasks.

    Finished steps are not repeated, so an interrupted study resumes.
    """
    from calque.report.study_tables import tables
    from calque.runs.study import study as run
    from calque.storage import write_text

    def show(folder: Path, records: list[dict[str, Any]]) -> None:
        text = tables(records)
        write_text(folder / "results.md", text + "\n")
        print(text)

    os.environ.setdefault(
        "PYTHONWARNINGS", "ignore:resource_tracker"
    )  # terminated workers cause this warning
    output_folder("--out", out)
    run(plan, workers=workers, data=data, out=out, say=news(quiet), then=show)


@grouped
def encode(
    *,
    encoder: EncoderArgument,
    text: str = typer.Argument(
        ..., metavar="TEXT", help="Text file, one sentence per line (may be .gz or .zst)."
    ),
    lang: str = typer.Option(..., callback=language, help="Language of the text."),
    out: Path = typer.Option(
        ...,
        metavar="PATH",
        parser=file_name,
        help="Safetensors file for the tensors data [words, dim] and offsets [sentences + 1].",
    ),
    loading: Loading,
    pretokenized: Pretokenized = False,
    precision: str | None = typer.Option(
        None,
        help=(
            "Precision of the forward pass: highest (float32) or bfloat16; default: the saved "
            "precision, or highest."
        ),
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
    adapters: str = typer.Argument(
        ..., metavar="FOLDER", help="Folder with adapters, saved by calque align --lora."
    ),
    out: Path = typer.Option(..., help="Folder for the merged encoder."),
    keep_layers: KeepLayers = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Merge LoRA adapters into the weights of their encoder.

    The result is a folder that calque and transformers can load without PEFT.
    """
    from calque.runs.align import merge as run

    output_folder("--out", out, [adapters])
    run(adapters, out=out, keep_layers=keep_layers, overwrite=overwrite)
    news(quiet)(f"saved to {out}")


@grouped
def analyze(
    *, context: typer.Context, how: AnalysisSettings, loading: Loading, linking: Linking
) -> None:
    """Analyse what the accuracy of word retrieval depends on.

    The analyses cover accuracy by kind of word and by layer, properties of the vector space,
    examples and plots.
    """
    from calque.runs.analyze import analyze as run
    from calque.runs.analyze import table

    if how.only is not None:
        _refuse(context, [name.strip() for name in how.only.split(",")])
    if how.test is None:
        refuse_unused(
            context,
            dict.fromkeys(("langs", "links", "train", "upos"), "needs --test FILE (parallel text)"),
        )
    if how.train is None:
        refuse_unused(context, {"train_links": "needs a training text; add --train FILE"})
    warn_of_languages(how.langs or ())
    if how.links is None and how.train_links is None:
        refuse_unused(context, {"one_based": "is only for files of word links; add --links FILE"})
    files = [how.test, how.train, how.links, how.train_links, *(how.upos or [])]
    output_file("--out", how.out, files, how.langs or [], adds=True)
    words = linking.words(how.pretokenized, how.limit)
    findings = run(
        how, words=words, load=loading.arguments(), progress=not how.quiet, say=news(how.quiet)
    )
    try:
        if how.out is not None:
            append_lines(how.out, (finding.to_json() + "\n" for finding in findings))
    finally:
        print(table(findings), flush=True)


def _refuse(context: typer.Context, chosen: list[str]) -> None:
    """Raise an error for options that the selected analyses do not use."""
    for name in dict.fromkeys(option for row in ANALYSES.values() for option in row.options):
        if not set(having := users(name)) & set(chosen):
            verb = "is an option of" if len(having) == 1 else "is an option of the analyses"
            refuse_unused(
                context,
                {name: f"{verb} {', '.join(having)}, but --only selects {', '.join(chosen)}"},
            )


class AnalysisCommand(SubjectCommand):
    """The command `calque analyze`, whose help describes each analysis."""

    hides = (
        "pooling",
        "max_length",
        "bidirectional",
        "one_based",
        "non_contextual",
        "forms",
        "pairs",
        "projection",
        "bootstrap",
    )

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Analyses"):
            formatter.write_dl([(name, row.help) for name, row in ANALYSES.items()])


analyze.command_class = AnalysisCommand


@grouped
def neighbours(
    *,
    context: typer.Context,
    how: NeighbourSettings,
    loading: Loading,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object instead of a table."),
) -> None:
    """Show a word's nearest words in another language.

    The word is given in a sentence, and its neighbours are shown before and after alignment.
    """
    from calque.runs.neighbours import neighbours as run
    from calque.runs.neighbours import table

    if how.text2 is None:
        refuse_unused(context, {"limit": "is only for --text2"})
    nearest = run(how, loading.arguments())
    print(json_text(nearest, ensure_ascii=False) if as_json else table(nearest))


class WordsCommand(SubjectCommand):
    hides = (
        "layer",
        "pooling",
        "max_length",
        "bidirectional",
        "prior_weight",
        "also",
        "posteriors",
        "sample",
    )


@grouped
def words(context: typer.Context, how: LinkSettings, linking: Linking, loading: Loading) -> None:
    """Link words that are translations of each other.

    By default, a statistical aligner is trained on the text; --use selects a saved aligner, and
    --encoder links words by the similarity of their vectors. --prior combines the aligner with an
    encoder; the combination makes fewer errors if the encoder was trained on these languages.
    --cross-fit first trains the encoder on the links of the aligner.
    """
    unused: dict[str, str] = {}
    if how.use is not None:
        unused["model"] = (
            "cannot be combined with --use, because the saved aligner determines the model"
        )
    if not how.prior:
        unused |= dict.fromkeys(
            ("prior_weight", "cross_fit"), "needs an encoder as a prior; add --prior"
        )
    if how.cross_fit is None:
        unused["also"] = (
            "needs --cross-fit, which aligns an encoder on this text; add --cross-fit, or leave "
            "out --also"
        )
    if how.encoder is None:
        unused |= dict.fromkeys(
            ("extract", "prior", *names_of(Loading)), "needs an encoder; add --encoder"
        )
    elif how.prior:
        unused["extract"] = (
            "applies only if words are linked by vectors; leave out this option or --prior"
        )
    else:
        why = (
            "applies to a statistical aligner, but --encoder links words by vectors; leave out "
            "this option or add --prior"
        )
        unused |= dict.fromkeys(("model", "symmetrize", "extra", "tables", "use", "sample"), why)
    refuse_unused(context, unused)
    warn_of_languages(how.langs or ())
    also = (pair_and_path(each)[1] for each in how.also or [])
    inputs = [how.train, *(how.extra or []), *also, how.use, how.encoder]
    output_file("--out", how.out, inputs, how.langs or [])
    output_file("--tables", how.tables, [*inputs, how.out], how.langs or [])
    from calque.runs.words import link_words

    linked = linking.words(how.pretokenized, how.limit)
    done = link_words(
        how, words=linked, load=loading.arguments(), progress=not how.quiet, say=news(how.quiet)
    )
    news(how.quiet)(f"{done[0]:,} links for {done[1]:,} sentence pairs in {how.out}")


words.command_class = WordsCommand


@grouped
def anchors(
    how: AnchorSettings, pooling: Pooling = None, max_length: MaxLength = None, quiet: Quiet = False
) -> None:
    """Average each word's vectors over a text.

    calque align --dictionary fits a map for each layer to these averages, which are called anchors.
    """
    from calque.runs.anchors import make_anchors

    output_folder("--out", how.out, [*how.text, how.encoder, how.vocabulary])
    load = Loading(None, pooling, max_length).arguments()
    make_anchors(how, load=load, progress=not quiet, say=news(quiet))


class DistilCommand(SubjectCommand):
    """The command `calque distil`, whose specific options are the settings of `Distillation`."""

    hides = ("layer", "max_length", "track_folder", "checkpoint_every", "vectors")

    def subjects(self) -> Mapping[str, str]:
        return {"calque distil": "distil"}

    def types_of(self, subject: str) -> Mapping[str, Any]:
        from calque.alignment.distilled import Distillation
        from calque.runs.study.values import of

        return of(Distillation, "towards", "seed")

    def described_by(self, subject: str) -> list[Any]:
        from calque.alignment.distilled import Distillation

        return [Distillation]


#: default settings for a static student, which has no network
_STATIC = {"batch": 256, "learning_rate": 0.01, "ranking": 0.3}


@grouped
def distil(context: typer.Context, how: DistilSettings, tracking: Tracking) -> None:
    """Train a sentence encoder for more languages.

    A student is trained to map a sentence and its translations to the vector that a teacher
    computes for the sentence. The result is a folder that calque and sentence-transformers can
    load. An interrupted run can be resumed.
    """
    from calque.runs.distil import distil as run

    output_folder(
        "--out", how.out, [how.teacher, how.student, *(how.train or ()), *(how.text or ())]
    )
    options = own_options(context, how.option)
    if how.static:
        why = "has no effect with --static, because a static student has no layers"
        refuse_unused(context, dict.fromkeys(("layer", "max_length", "sentence_pooling"), why))
        if of_layers := [name for name in ("freeze", "precision") if name in options]:
            raise SettingError(f"--{of_layers[0]} {why}")
        options = {**_STATIC, **options}
    warn_of_languages(how.langs or ())
    say = news(how.quiet)
    result = run(how, options=options, progress=not how.quiet, say=say)
    say(f"saved to {result.folder} ({result.record['seconds']['method']:.0f} s)")


distil.command_class = DistilCommand


def data() -> None:
    """List the test sets that have short names.

    A short name can be given instead of a file; the data are read from the Hugging Face Hub (pip
    install 'calque-align[hub]').
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
    folder: str = typer.Argument(..., metavar="FOLDER", help="Folder of the encoder to upload."),
    repo: str = typer.Argument(
        ..., metavar="REPO", help="Repository on the Hugging Face Hub, as USER/NAME."
    ),
    private: bool | None = typer.Option(
        None, "--private/--public", help="Make a new repository private or public."
    ),
    message: str = typer.Option("", help="Commit message."),
    revision: str | None = typer.Option(
        None, help="Branch to upload to; a missing branch is created; default: main."
    ),
    license: str | None = typer.Option(
        None, help="Licence of the weights, stated in the model card, e.g. mit."
    ),
    quiet: Quiet = False,
) -> None:
    """Upload an encoder to the Hugging Face Hub.

    The model card is also uploaded, but checkpoints and lock files are not. First log in with hf
    auth login, or set HF_TOKEN.
    """
    from calque.encoders.hub import check_repo
    from calque.encoders.hub import push as run

    about = {"private": private, "message": message, "revision": revision, "license": license}
    url = run(folder, check_repo(repo), **about, progress=not quiet)
    news(quiet)(f"uploaded: {url}")


def report(
    *,
    results: list[Path] = typer.Argument(
        ...,
        metavar="RESULTS...",
        help="Result files (JSON Lines), or folders that contain result files.",
    ),
    out: Path = typer.Option(
        Path("report.html"), metavar="PATH", parser=file_name, help="HTML file to write."
    ),
    title: str | None = typer.Option(
        None, help="Title of the report; default: the names of the folders."
    ),
    base: str | None = typer.Option(
        None, help="Encoder to compare with; default: the encoder before alignment."
    ),
    plots: Path | None = typer.Option(
        None, help="Folder in which each plot is also saved as SVG, e.g. for a paper."
    ),
    quiet: Quiet = False,
) -> None:
    """Write an HTML report of results, with tables and plots."""
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
        ..., metavar="DIR...", help="Demo folder, or folders of aligned encoders."
    ),
    text: Several = typer.Option(
        None, metavar="FILE...", help="Text with one sentence per line, as FILE or de=FILE."
    ),
    test: Several = typer.Option(
        None, metavar="FILE...", help="Parallel text to explore; needs --langs."
    ),
    langs: PairLangs = None,
    base: str | None = typer.Option(
        None, help="Encoder before alignment; default: the encoder recorded in DIR."
    ),
    layers: str | None = typer.Option(
        None,
        help=(
            "Layers to explore, e.g. 0,6,-1; default: the first layer, the middle layer and the "
            "output layer."
        ),
    ),
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    cache: Path | None = typer.Option(
        None, help="Folder for cached vectors; default: a folder in or next to DIR."
    ),
    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on; 0.0.0.0 lets any machine connect (no password)."
    ),
    port: int | None = typer.Option(
        None, min=0, max=65535, help="Port; default: 8472, or any free port if taken."
    ),
    no_browser: bool = typer.Option(
        False, "--no-browser", help="Print the address, but do not open a browser."
    ),
    quiet: Quiet = False,
) -> None:
    """Explore the nearest words in other languages.

    The command opens a local web page; click a word there to see its neighbours before and after
    alignment.
    """
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "explore", "the explorer")
    from calque.explore.app import listen, serve, url_of
    from calque.explore.explorer import Explorer
    from calque.explore.sources import find_encoders, find_text, place_for

    if not test:
        refuse_unused(context, {"langs": "needs parallel text; add --test FILE"})
    if not test and not text:
        refuse_unused(context, {"pretokenized": "needs a text; add --text or --test"})
    output_folder("--cache", cache, [*(text or []), *(test or [])])
    warn_of_languages(langs or ())
    say = news(quiet)
    texts = {"text": text or [], "test": test or [], "langs": pairs_of(test or [], langs or [])}
    collection = find_text(encoders, **texts, pretokenized=pretokenized, limit=limit, say=say)
    sources = find_encoders(encoders, base, say)
    say(
        "encoders: "
        + ", ".join(
            f"{each.name}{' (before alignment)' if each.before else ''}" for each in sources
        )
    )
    folder = cache or place_for(encoders[0])
    explorer = Explorer(collection, sources, folder, layers=numbers(layers), progress=not quiet)
    listening = listen(host, port)
    print(url_of(listening), flush=True)
    say("press Ctrl-C to stop")
    serve(explorer, listening, host=host, browser=not no_browser, say=say)
