"""Tables with methods as rows and test sets as columns, the overview table, and heat maps of
differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calque.report.document import Block, Cell, Head, Line, More, Panel, Plot, Section, Table, Text
from calque.report.numbers import Figure, difference
from calque.report.plots.charts import bars, heat
from calque.report.questions import Column, Question, Subject
from calque.report.verdict import Claims, Comparison, metric_name

BEST: Text = (
    "Bold marks a score clearly better than all others in its column; ▲ and ▼ mark scores clearly "
    "better or worse than the "
    "base. All tests are corrected for the number of comparisons on the page.",
)
BEHIND: Text = ("Differences between these scores are not tested.",)
OUTCOMES = {"better": "clearly better", "worse": "clearly worse", "unclear": "no clear difference"}


def task(
    name: str, questions: Sequence[Question], headlines: Sequence[Question], claims: Claims
) -> Section:
    """Return the section of a task: its main questions, each with a plot if it is a headline and
    with a table, and collapsed tables.
    """
    blocks: list[Block] = []
    own = [question for question in questions if question.task == name]
    n_plots = 0
    for number, question in enumerate(question for question in own if question.is_main):
        if question in headlines:
            # The first plot has the same name in every report.
            suffix = f"{n_plots}" if n_plots else ""
            plot = heat_map(question, claims, f"{name}-heat{suffix}")
            if plot is None:
                plot = score_bars(question, claims, f"{name}-bars{suffix}")
            if plot is not None:
                blocks.append(plot)
                n_plots += 1
        blocks.append(question_table(question, claims, f"{name}-{number}"))
    rest = [question for question in own if not question.is_main]
    if rest:
        tables = tuple(question_table(q, claims, f"{name}-more-{k}") for k, q in enumerate(rest))
        blocks.append(More("Further scores, without tests", tables))
    return Section(f"task-{name}", _capitalised(own[0].title), (), tuple(blocks))


def _capitalised(title: str) -> str:
    """Return a title with a capital first letter; names that users gave keep their other
    letters.
    """
    return title[:1].upper() + title[1:]


def question_table(question: Question, claims: Claims, name: str) -> Table:
    """Build the table of one question; the second line of a cell is the 95% interval."""
    outcomes = {comparison.subject: comparison.outcomes for comparison in claims.of(question)}
    columns: dict[Column | None, dict[Subject, Figure | None]] = {
        column: {s: question.cells.get((s, column)) for s in question.subjects}
        for column in question.columns
    }
    heads = _heads(question)
    if len(question.targets) > 1:
        columns[None] = {subject: question.mean(subject) for subject in question.subjects}
        without = [column.lang for column in question.columns if column not in question.targets]
        heads.append(
            Head("mean", f"without {', '.join(dict.fromkeys(without))}" if without else "")
        )

    def cell(subject: Subject, column: Column | None) -> Cell:
        figure = columns[column][subject]
        best = claims.best.get((question.key, column)) == subject
        return (
            Cell()
            if figure is None
            else Cell(figure, best, outcomes.get(subject, {}).get(column, ""))
        )

    lines = tuple(
        Line(s.label, tuple(cell(s, column) for column in columns), s.number, _kind_of(s))
        for s in question.subjects
    )
    unit = (
        "per cent"
        if question.cells and all(figure.percent for figure in question.cells.values())
        else ""
    )
    parts = (
        metric_name(question.metric),
        unit,
        _way(question) or "higher is better",
        question.variant,
    )
    caption = f"{_capitalised(question.title)}: {', '.join(part for part in parts if part)}"
    note = BEST if question.is_main else BEHIND
    return Table(name, caption, "method", tuple(heads), lines, _sizes(columns), note)


def _kind_of(subject: Subject) -> str:
    """Return a note that is shown after the name of a subject."""
    if subject.reference:
        return "no encoder"
    return f"{subject.runs} training runs" if subject.runs else ""


def _heads(question: Question) -> list[Head]:
    return [
        Head(column.label, "training language" if column.is_source else "")
        for column in question.columns
    ]


def _way(question: Question) -> str:
    return "lower is better" if question.lower_is_better else ""


def _sizes(columns: Mapping[Column | None, Mapping[Subject, Figure | None]]) -> tuple[Line, ...]:
    """Return the number of test items in each column if it is equal for all methods."""
    cells = []
    for column, figures in columns.items():
        known = [figure for figure in figures.values() if figure is not None]
        same = len({figure.n for figure in known}) == 1
        cells.append(
            Cell(text=("",))
            if column is None
            else Cell(number=known[0].part("n") if same else None)
        )
    return (
        (Line("n", tuple(cells), detail="test items"),)
        if any(cell.number for cell in cells)
        else ()
    )


def glance(headlines: Sequence[Question], claims: Claims) -> Table | None:
    """Build the overview table: the difference between each method and its baseline in the main
    metric of each task.
    """
    by_subject: dict[Subject, dict[object, Comparison]] = {}
    for question in headlines:
        for comparison in claims.of(question):
            by_subject.setdefault(comparison.subject, {})[question.key] = comparison
    if not by_subject:
        return None
    lines = []
    for subject in sorted(by_subject, key=lambda s: s.number):
        own = by_subject[subject]
        cells = tuple(_glance(own[q.key]) if q.key in own else Cell() for q in headlines)
        lines.append(
            Line(
                subject.label,
                cells,
                subject.number,
                f"against {next(iter(own.values())).base.label}",
            )
        )
    heads = [
        Head(q.title, ", ".join(filter(None, (metric_name(q.metric), _way(q), q.variant))))
        for q in headlines
    ]
    note = (
        "Mean difference over the target languages in points, followed by a sign for each "
        "language: ▲ clearly better, ▼ clearly worse, · no clear difference.",
    )
    return Table(
        "glance",
        "Overview: difference from the base",
        "method",
        tuple(heads),
        tuple(lines),
        (),
        note,
    )


def short_reason(reason: str) -> str:
    """Return the first part of a reason why a score is not compared, such as "not converged"."""
    return reason.partition(":")[0]


def _glance(comparison: Comparison) -> Cell:
    if not comparison.outcomes:
        reason = next(iter(comparison.warnings))
        return Cell(text=(short_reason(reason),))
    outcomes = comparison.on_targets
    column = next(iter(outcomes)) if None not in comparison.pairs and len(outcomes) == 1 else None
    number = difference(*comparison.pairs[column]) if column in comparison.pairs else None
    return Cell(
        number=number,
        outcome=comparison.outcomes.get(column, "unclear"),
        marks=tuple(outcomes.values()),
    )


def score_bars(question: Question, claims: Claims, name: str) -> Plot | None:
    """Build a bar chart of the scores of all methods by test set; return None if no methods are
    compared.

    It replaces the heat map of differences where that would have only a few cells.
    """
    if not any(comparison.outcomes for comparison in claims.of(question)):
        return None
    series = [(subject.label, subject.number) for subject in question.subjects]
    groups = [column.label for column in question.columns]
    figures = {
        (subject.number, column.label): figure
        for (subject, column), figure in question.cells.items()
    }
    title = f"{_capitalised(question.title)}: {metric_name(question.metric)}"
    title += f", {question.variant}" if question.variant else ""
    description = (
        f"Bars of {metric_name(question.metric)} by test set, with 95% intervals. The table below "
        "contains the values."
    )
    drawing = bars(
        groups,
        series,
        figures,
        title=title,
        measure=metric_name(question.metric),
        description=description,
    )
    way = _way(question)
    note = (f"Lines are 95% intervals{f'; {way}' if way else ''}.",)
    return Plot(name, title, note, (Panel({}, (drawing,), ()),), kind="bars")


def heat_map(question: Question, claims: Claims, name: str) -> Plot | None:
    """Build a heat map of differences from the baseline; return None if there are fewer than four
    differences.
    """
    comparisons = [comparison for comparison in claims.of(question) if comparison.outcomes]
    columns = question.columns
    if not comparisons or len(columns) * len(comparisons) < 4:
        return None
    cells, lines = {}, []
    for r, comparison in enumerate(comparisons):
        subject, row = comparison.subject, [Cell()] * len(columns)
        for c, column in enumerate(columns):
            if column in comparison.outcomes:
                (one, other), outcome = comparison.pairs[column], comparison.outcomes[column]
                number = difference(one, other)
                cells[r, c] = (
                    number,
                    outcome,
                    f"{subject.label}, {column.label}: {other} → {one}, {OUTCOMES[outcome]}",
                )
                row[c] = Cell(number=number, outcome=outcome)
        lines.append(Line(subject.label, tuple(row), subject.number))
    bases = dict.fromkeys(comparison.base.label for comparison in comparisons)
    title = f"{_capitalised(question.title)}: difference from {', '.join(bases)}"
    title += f", {question.variant}" if question.variant else ""
    points = "points of " if all(f.percent for f in question.cells.values()) else ""
    metric, way = metric_name(question.metric), _way(question)
    description = (
        f"Difference in {points}{metric} for each method and test set. Coloured cells are clearly "
        "better or worse; hatched cells are neither. The table below contains the values."
    )
    rows, names = (
        [(c.subject.label, c.subject.number) for c in comparisons],
        [column.label for column in columns],
    )
    drawing = heat(rows, names, cells, title=title, description=description)
    behind = Table(f"{name}-data", title, "method", tuple(_heads(question)), tuple(lines))
    note = (
        f"Differences in {points}{metric}{f', {way}' if way else ''}. Hatched cells show no clear "
        "difference.",
    )
    return Plot(name, title, note, (Panel({}, (drawing,), (behind,)),), kind="heat")
