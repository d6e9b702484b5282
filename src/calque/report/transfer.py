"""Whether retrieval foretells transfer: points of both with the line that fits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from calque.report.document import Cell, Head, Line, Panel, Plot, Section, Table, Text
from calque.report.numbers import Figure, Number, figure_of, pearson
from calque.report.plots.charts import Point, scatter
from calque.report.questions import Question
from calque.report.reading import Record
from calque.report.subjects import Subjects
from calque.report.verdict import metric_name, task_name

ZERO_SHOT = ("ner", "slots", "pos", "nli", "sentiment", "parsing", "probing", "qa", "choice", "wic")
_SHARED = "Points of one language or one method depend on each other, so the interval is narrower than it should be."


def transfer(headlines: Sequence[Question], correlations: Sequence[Record], subjects: Subjects) -> Section | None:
    """A view for each zero-shot task that has languages in common with retrieval: from the lines of the analysis where
    there are any, otherwise from the scores themselves."""
    panels = _analysed(correlations, subjects) if correlations else _computed(headlines)
    if not panels:
        return None
    note = ("A point is one method in one language; the dashed line fits all points best (least squares).",)
    plot = Plot("transfer-plot", "Retrieval and transfer", note, tuple(panels), kind="wide")
    return Section("transfer", "Retrieval and transfer", (), (plot,))


def _computed(headlines: Sequence[Question]) -> list[Panel]:
    retrieval = next((question for question in headlines if question.task == "retrieval"), None)
    if retrieval is None:
        return []
    panels = []
    for question in headlines:
        points = _points(retrieval, question) if question.task in ZERO_SHOT else []
        correlation = pearson([point.x for point in points], [point.y for point in points])
        if correlation is not None:
            note = _correlation(*correlation)
            panels.append(_panel(question.task, retrieval.metric, question.metric, points, note))
    return panels


def _points(retrieval: Question, question: Question) -> list[Point]:
    points = []
    for (subject, column), y in question.cells.items():
        if column.is_source:
            continue
        for (other, test), x in retrieval.cells.items():
            if other == subject and test.lang.split("-")[-1] == column.lang and None not in (x.value, y.value):
                points.append(Point(subject.label, subject.number, column.label, x, y))
    return points


def _analysed(records: Sequence[Record], subjects: Subjects) -> list[Panel]:
    """From lines `pearson-r` and lines of single points, whose `x` is the retrieval score."""
    by_task: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        metric = record.settings.get("metric", "") if record["metric"] == "pearson-r" else record["metric"]
        by_task.setdefault((record["task"], metric), []).append(record)
    panels = []
    for (task, metric), rows in by_task.items():
        names = dict.fromkeys(str(record["encoder"]) for record in rows if record.plain.get("encoder"))
        more = len(subjects.all)  # what only the analysis knows has no other's mark
        marks = {name: (name, more + k) for k, name in enumerate(names)}
        marks |= {name: (s.label, s.number) for name, s in subjects.spoken.items() if name in names}
        points = [
            Point(*marks[str(r["encoder"])], r.plain.get("group") or r.pair[-1], _across(r), figure_of(r))
            for r in rows
            if r["metric"] != "pearson-r" and None not in (r.plain.get("x"), r["value"]) and r.plain.get("encoder")
        ]
        correlations = [(record, figure_of(record)) for record in rows if record["metric"] == "pearson-r"]
        overall = [figure for record, figure in correlations if not record.plain.get("encoder")]
        overall = overall or [figure for _, figure in correlations[:1]]
        note: Text = ("Too few points for a correlation.",)
        if overall and overall[0].value is not None:
            r, low, high = (overall[0].part(name) for name in ("value", "low", "high"))
            note = ("Pearson's r = ", r, ".") if low is None or high is None else _correlation(r, low, high)  # type: ignore[arg-type]
        retrieval = str(rows[0].settings.get("retrieval", "accuracy.all"))
        if points:
            panel = _panel(task, retrieval, metric, points, note)
            panels.append(replace(panel, tables=(*panel.tables, _correlations(task, correlations, marks))))
    return panels


def _across(record: Record) -> Figure:
    value = record.plain["x"]
    figure = figure_of(record)
    return Figure(value, None, None, str(record.settings.get("retrieval", "")), figure.sources, "place", percent=True)


def _correlation(r: Number, low: Number, high: Number) -> Text:
    claim = "the interval includes zero, so no relation is claimed"
    if low.value > 0 or high.value < 0:
        claim = "they rise together" if low.value > 0 else "one falls as the other rises"
    return ("Pearson's r over all points is ", r, " (", low, " to ", high, f"): {claim}. {_SHARED}")


def _panel(task: str, retrieval: str, metric: str, points: Sequence[Point], note: Text) -> Panel:
    across, up = f"retrieval, {metric_name(retrieval)}", f"{task_name(task)}, {metric_name(metric)}"
    title = f"Retrieval and {task_name(task)}"
    text = f"Points for methods and languages: {across} across, {up} up. The figures are in the table below."
    drawing = scatter(points, title=title, across=across, up=up, description=text)
    lines = tuple(Line(f"{p.label}, {p.lang}", (Cell(p.x), Cell(p.y)), p.number) for p in points)
    table = Table(f"transfer-{task}-{metric}", title, "method and language", (Head(across), Head(up)), lines)
    return Panel({"task": f"{task_name(task)}, {metric_name(metric)}"}, (drawing,), (table,), note)


def _correlations(
    task: str, correlations: Sequence[tuple[Record, Figure]], marks: Mapping[str, tuple[str, int]]
) -> Table:
    """Correlations of each encoder and of all points."""
    lines = []
    for record, figure in correlations:
        name = record.plain.get("encoder")
        lines.append(Line(marks[str(name)][0] if name else "all points", (Cell(figure),)))
    metric = correlations[0][0].settings.get("metric", "") if correlations else ""
    title = f"Correlation over languages, {task_name(task)}"
    return Table(f"pearson-{task}-{metric}", title, "of", (Head("Pearson's r"),), tuple(lines))
