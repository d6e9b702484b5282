"""Questions as tables: methods down, test sets across, and the table at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calque.report.claims import Claims, Comparison
from calque.report.document import Cell, Head, Line, Panel, Plot, Table, Text
from calque.report.numbers import Figure, Number, difference
from calque.report.plots.charts import heat
from calque.report.questions import Column, Question, Subject
from calque.report.verdict import metric_name, task_name
from calque.runs.compare import lower_is_better

BEST: Text = (
    "Bold: clearly better than everything else in its column. ▲ and ▼: clearly better and worse than what it is "
    "compared with. All comparisons of the page are judged together.",
)
BEHIND: Text = ("Shown for reference; nothing is claimed about these figures.",)


def question_table(question: Question, claims: Claims, name: str) -> Table:
    """One question. A field's second line is the 95% interval."""
    judged = {comparison.subject: comparison.judged for comparison in claims.of(question)}
    columns: dict[Column | None, dict[Subject, Figure | None]] = {
        column: {s: question.cells.get((s, column)) for s in question.subjects} for column in question.columns
    }
    heads = _heads(question)
    if len(question.targets) > 1:
        columns[None] = {subject: question.mean(subject) for subject in question.subjects}
        without = [column.lang for column in question.columns if column not in question.targets]
        heads.append(Head("mean", f"without {', '.join(dict.fromkeys(without))}" if without else ""))
    lines = []
    for subject in question.subjects:
        cells = [
            Cell(figure, claims.best.get((question.key, column)) == subject, judged.get(subject, {}).get(column, ""))
            if (figure := figures[subject]) is not None
            else Cell()
            for column, figures in columns.items()
        ]
        lines.append(Line(subject.label, tuple(cells), subject.number, "no encoder" if subject.reference else ""))
    way = "lower is better" if lower_is_better(question.metric) else "higher is better"
    unit = "per cent" if question.cells and all(figure.percent for figure in question.cells.values()) else ""
    caption = ", ".join(part for part in (metric_name(question.metric), unit, way, question.variant) if part)
    return Table(
        name, f"{task_name(question.task).capitalize()}: {caption}", "method", tuple(heads), tuple(lines),
        _sizes(columns), BEST if question.is_main else BEHIND,
    )  # fmt: skip


def _heads(question: Question) -> list[Head]:
    return [Head(column.label, "training language" if column.is_source else "") for column in question.columns]


def _sizes(columns: Mapping[Column | None, Mapping[Subject, Figure | None]]) -> tuple[Line, ...]:
    """How many questions each column is over, where all methods were asked the same."""
    cells = []
    for column, figures in columns.items():
        known = [figure for figure in figures.values() if figure is not None]
        same = len({figure.n for figure in known}) == 1
        cells.append(Cell(text=("",)) if column is None else Cell(number=known[0].part("n") if same else None))
    return (Line("n", tuple(cells), detail="questions or texts"),) if any(cell.number for cell in cells) else ()


def glance(headlines: Sequence[Question], claims: Claims) -> Table | None:
    """The main figure of every task: by how much each method differs from what it is compared with, and in how many
    languages that may be claimed."""
    by_subject: dict[Subject, dict[int, Comparison]] = {}
    for k, question in enumerate(headlines):
        for comparison in claims.of(question):
            by_subject.setdefault(comparison.subject, {})[k] = comparison
    if not by_subject:
        return None
    lines = []
    for subject in sorted(by_subject, key=lambda s: s.number):
        comparisons = by_subject[subject]
        cells = tuple(_glance(comparisons[k]) if k in comparisons else Cell() for k in range(len(headlines)))
        base = next(iter(comparisons.values())).base
        lines.append(Line(subject.label, cells, subject.number, f"against {base.label}"))
    heads = [Head(task_name(q.task), _way(q)) for q in headlines]
    note = (
        "Mean difference in points over the target languages; then a sign for each language: ▲ clearly better, ▼ clearly "
        "worse, · no clear difference.",
    )
    return Table("glance", "Overview: difference from the base", "method", tuple(heads), tuple(lines), (), note)


def _glance(comparison: Comparison) -> Cell:
    outcome = comparison.on_average
    number: Number | None = None
    if comparison.mean is not None:
        number = difference(*comparison.mean)
    elif len(comparison.outcomes) == 1:
        column, outcome = next(iter(comparison.outcomes.items()))
        number = difference(*comparison.pairs[column])
    return Cell(number=number, outcome=outcome, marks=tuple(comparison.outcomes.values()))


def _way(question: Question) -> str:
    parts = [metric_name(question.metric), "lower is better" if lower_is_better(question.metric) else ""]
    return ", ".join(part for part in parts if part)


def heat_map(question: Question, claims: Claims, name: str) -> Plot | None:
    """Differences from the base as a heat map, where there are several to look at."""
    comparisons = claims.of(question)
    columns = list(question.columns)
    if not comparisons or len(columns) * len(comparisons) < 4:
        return None
    cells, lines, largest = {}, [], 0.0
    for r, comparison in enumerate(comparisons):
        fields = []
        for c, column in enumerate(columns):
            outcome = comparison.judged.get(column)
            if outcome is None:
                fields.append(Cell())
                continue
            one, other = comparison.pairs[column]
            number = difference(one, other)
            largest = max(largest, abs(number.value))
            tip = f"{comparison.subject.label}, {column.label}: {other} → {one}, {SAID[outcome]}"
            cells[r, c] = (number, outcome, tip)
            fields.append(Cell(number=number, outcome=outcome))
        lines.append(Line(comparison.subject.label, tuple(fields), comparison.subject.number))
    bases = dict.fromkeys(comparison.base.label for comparison in comparisons)
    title = f"{task_name(question.task).capitalize()}: difference from {', '.join(bases)}"
    points = "points of " if all(f.percent for f in question.cells.values()) else ""
    description = (
        f"A cell for each method and test set, with the difference in {points}{metric_name(question.metric)}. Coloured cells "
        "are clearly better or worse; hatched ones are neither. The figures are in the table below."
    )
    drawing = heat(
        [(c.subject.label, c.subject.number) for c in comparisons], [column.label for column in columns], cells,
        title=title, description=description, most=largest,
    )  # fmt: skip
    behind = Table(f"{name}-data", title, "method", tuple(_heads(question)), tuple(lines))
    note = (f"In {points}{_way(question)}. Hatched: no clear difference, so nothing is claimed.",)
    return Plot(name, title, note, (Panel({}, (drawing,), (behind,)),), kind="heat")


SAID = {"better": "clearly better", "worse": "clearly worse", "unclear": "no clear difference"}
