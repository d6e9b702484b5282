"""`calque analyze`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from calque.analyses.table import ANALYSES, users
from calque.cli.checks import output_file, refuse_unused
from calque.cli.options import Linking, Loading, SubjectCommand, grouped, news, pairs_of
from calque.runs.settings import AnalysisSettings, PairLangs, Pretokenized, Quiet
from calque.storage import append_lines
from calque.tasks.inputs import Inputs


@grouped
def analyze(
    *,
    context: typer.Context,
    loading: Loading,
    linking: Linking,
    how: AnalysisSettings,
    encoder: list[str] | None = typer.Argument(
        None,
        metavar="ENCODER...",
        help="Hub name, folder, mini (bundled) or word vectors, perhaps as NAME=PATH; the base encoder first.",
    ),
    test: str | None = typer.Option(None, metavar="FILE", help="Parallel text to test on."),
    langs: PairLangs = None,
    train: str | None = typer.Option(None, help="Text the encoders were aligned with, to tell seen from unseen pairs."),
    links: str | None = typer.Option(None, help="Word links of --test."),
    train_links: str | None = typer.Option(None, help="Word links of --train."),
    pretokenized: Pretokenized = False,
    limit: int | None = typer.Option(
        None, min=1, help="Use only the first N sentence pairs of --test; --train is read whole."
    ),
    out: Path | None = typer.Option(None, help="Append the findings to this JSON lines file."),
    quiet: Quiet = False,
) -> None:
    """Analyse where accuracy comes from.

    Accuracy by kind of word, layer and amount of data, the shape of the vector space, examples and plots.
    """
    from calque.runs.analyze import analyze as run
    from calque.runs.analyze import table

    chosen = None if how.only is None else [name.strip() for name in how.only.split(",") if name.strip()]
    _check(context, chosen, test=test, train=train)
    output_file("--out", out, [test, train, links, train_links, *(how.upos or [])], langs or [], adds=True)
    inputs = Inputs(
        "analyze", _one(test), pairs_of(langs, 1) if langs else (), _one(train), links=_one(links),
        train_links=_one(train_links), words=linking.words(pretokenized, limit), say=news(quiet),
    )  # fmt: skip
    findings = run(encoder or [], inputs, how, only=chosen, load=loading.arguments(), progress=not quiet)
    print(table(findings), flush=True)
    if out is not None:
        append_lines(out, (finding.to_json() + "\n" for finding in findings))


def _one(file: str | None) -> list[str]:
    return [] if file is None else [file]


def _check(context: typer.Context, chosen: list[str] | None, *, test, train) -> None:
    """Raise an error for options that the selected analyses do not use."""
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
    """Command with a description of each analysis in its help."""

    hides = ("pooling", "max_length", "bidirectional", "non_contextual", "forms", "pairs", "projection", "bootstrap")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Analyses"):
            formatter.write_dl([(name, row.help) for name, row in ANALYSES.items() if not row.made_by])


analyze.command_class = AnalysisCommand
