"""`calque analyze`."""

from __future__ import annotations

from typing import Any

import typer

from calque.analyses.table import ANALYSES, users
from calque.cli.checks import output_file, refuse_unused
from calque.cli.options import Linking, Loading, SubjectCommand, grouped, news
from calque.runs.settings import AnalysisSettings
from calque.storage import append_lines


@grouped
def analyze(*, context: typer.Context, how: AnalysisSettings, loading: Loading, linking: Linking) -> None:
    """Analyse where accuracy comes from.

    Accuracy by kind of word, layer and amount of data, the shape of the vector space, examples and plots.
    """
    from calque.runs.analyze import analyze as run
    from calque.runs.analyze import table

    if how.only is not None:
        _refuse(context, [name.strip() for name in how.only.split(",")])
    if how.test is None:
        refuse_unused(context, dict.fromkeys(("langs", "links", "train", "upos"), "is for parallel text: --test FILE"))
    if how.train is None:
        refuse_unused(context, {"train_links": "needs --train FILE"})
    files = [how.test, how.train, how.links, how.train_links, *(how.upos or [])]
    output_file("--out", how.out, files, how.langs or [], adds=True)
    words = linking.words(how.pretokenized, how.limit)
    findings = run(how, words=words, load=loading.arguments(), progress=not how.quiet, say=news(how.quiet))
    print(table(findings), flush=True)
    if how.out is not None:
        append_lines(how.out, (finding.to_json() + "\n" for finding in findings))


def _refuse(context: typer.Context, chosen: list[str]) -> None:
    """Raise an error for options that the selected analyses do not use."""
    for name in dict.fromkeys(option for row in ANALYSES.values() for option in row.options):
        if not set(having := users(name)) & set(chosen):
            verb = "is an option of" if len(having) == 1 else "is an option of the analyses"
            refuse_unused(context, {name: f"{verb} {', '.join(having)}, and --only has {', '.join(chosen)}"})


class AnalysisCommand(SubjectCommand):
    """Command with a description of each analysis in its help."""

    hides = ("pooling", "max_length", "bidirectional", "non_contextual", "forms", "pairs", "projection", "bootstrap")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Analyses"):
            formatter.write_dl([(name, row.help) for name, row in ANALYSES.items() if not row.made_by])


analyze.command_class = AnalysisCommand
