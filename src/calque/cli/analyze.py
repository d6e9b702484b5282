"""`calque analyze`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calque.analyses.table import ANALYSES, users
from calque.cli.checks import output_file, refuse_unused
from calque.cli.options import Linking, Loading, PairLangs, Pretokenized, Quiet, SubjectCommand, grouped, news, pairs_of
from calque.storage import append_lines
from calque.tasks.inputs import Inputs


@grouped
def analyze(
    context: typer.Context,
    loading: Loading,
    linking: Linking,
    encoder: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENCODER...",
            help="Hub name, folder, mini (bundled) or word vectors, perhaps as NAME=PATH; the base encoder first.",
        ),
    ] = None,
    test: Annotated[str | None, typer.Option(metavar="FILE", help="Parallel text to test on.")] = None,
    langs: PairLangs = None,
    only: Annotated[
        str | None, typer.Option(help=f"Which analyses, separated by commas: {', '.join(ANALYSES)}; default: all.")
    ] = None,
    train: Annotated[
        str | None, typer.Option(help="Text the encoders were aligned with, to tell seen from unseen pairs.")
    ] = None,
    links: Annotated[str | None, typer.Option(help="Word links of --test.")] = None,
    train_links: Annotated[str | None, typer.Option(help="Word links of --train.")] = None,
    upos: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Parts of speech of the test sentences, CoNLL-U or columns; de=FILE gives the language.",
        ),
    ] = None,
    non_contextual: Annotated[
        bool, typer.Option("--non-contextual", help="Only the first occurrence of each word form.")
    ] = False,
    forms: Annotated[int, typer.Option(min=1, help="examples: number of word forms to show.")] = 8,
    pairs: Annotated[int, typer.Option(min=2, help="points: number of word pairs in the plot.")] = 100,
    projection: Annotated[
        str, typer.Option(help="points: pca, tsne, or auto (t-SNE where scikit-learn is installed).")
    ] = "auto",
    bootstrap: Annotated[int, typer.Option(min=0, help="Bootstrap samples for the intervals.")] = 1000,
    pretokenized: Pretokenized = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only the first N sentence pairs of --test; --train is read whole.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Append the findings to this JSON lines file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Analyse where accuracy comes from.

    Accuracy by kind of word, layer and amount of data, the shape of the vector space, examples and plots.
    """
    from calque.runs.analyze import analyze as run
    from calque.runs.analyze import table

    chosen = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    _check(context, chosen, test=test, train=train)
    output_file("--out", out, [test, train, links, train_links, *(upos or [])], langs or [], adds=True)
    inputs = Inputs(
        "analyze", _one(test), pairs_of(langs, 1) if langs else (), _one(train), links=_one(links),
        train_links=_one(train_links), words=linking.words(pretokenized, limit), say=news(quiet),
    )  # fmt: skip
    findings = run(
        encoder or [], inputs, only=chosen, upos=upos or [],
        load=loading.arguments(), contextual=not non_contextual, forms=forms, pairs=pairs, projection=projection,
        bootstrap=bootstrap, progress=not quiet,
    )  # fmt: skip
    print(table(findings), flush=True)
    if out is not None:
        append_lines(out, (finding.to_json() + "\n" for finding in findings))


def _one(file: str | None) -> list[str]:
    return [] if file is None else [file]


def _check(context: typer.Context, chosen: list[str] | None, *, test, train) -> None:
    """Refuse options that these analyses do not use."""
    if chosen is not None:
        for name in dict.fromkeys(option for row in ANALYSES.values() for option in row.options):
            if not set(having := users(name)) & set(chosen):
                verb = "is an option of" if len(having) == 1 else "is an option of the analyses"
                refuse_unused(context, {name: f"{verb} {', '.join(having)}, and --only has {', '.join(chosen)}"})
    if test is None:
        refuse_unused(context, dict.fromkeys(("langs", "links", "train", "upos"), "is for parallel text: --test FILE"))
    if train is None:
        refuse_unused(context, {"train_links": "needs --train FILE"})


class AnalysisCommand(SubjectCommand):
    """A command whose help also says what each analysis shows."""

    hides = ("pooling", "max_length", "bidirectional", "non_contextual", "forms", "pairs", "projection", "bootstrap")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Analyses"):
            formatter.write_dl([(name, row.help) for name, row in ANALYSES.items() if not row.made_by])


analyze.command_class = AnalysisCommand
