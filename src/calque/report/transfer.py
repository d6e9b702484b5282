"""Whether retrieval foretells transfer: points of both with the line that fits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from calque.report.document import Cell, Head, Line, Panel, Plot, Section, Table, Text
from calque.report.numbers import Figure, Number, figure_of, pearson
from calque.report.plots.scatter import Point, scatter
from calque.report.questions import Question
from calque.report.reading import Record
from calque.report.subjects import Subjects
from calque.report.verdict import metric_name, task_name

ZERO_SHOT = ("ner", "slots", "pos", "nli", "sentiment", "parsing")
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
        found = pearson([point.x for point in points], [point.y for point in points])
        if found is not None:
            panels.append(_panel(question.task, retrieval.metric, question.metric, points, _said(found)))
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
    for (task, metric), own in by_task.items():
        names = list(dict.fromkeys(str(record.plain.get("encoder")) for record in own if record.plain.get("encoder")))
        more = len(subjects.all)  # what only the analysis knows has no other's mark
        numbers = {n: subjects.spoken[n].number if n in subjects.spoken else more + k for k, n in enumerate(names)}
        labels = {name: subjects.spoken[name].label if name in subjects.spoken else name for name in names}
        points = [
            Point(
                labels[str(r["encoder"])],
                numbers[str(r["encoder"])],
                r.plain.get("group") or r.pair[-1],
                _across(r),
                figure_of(r),
            )
            for r in own
            if r["metric"] != "pearson-r" and None not in (r.plain.get("x"), r["value"]) and r.plain.get("encoder")
        ]
        found = [(record, figure_of(record)) for record in own if record["metric"] == "pearson-r"]
        overall = [figure for record, figure in found if not record.plain.get("encoder")] or [f for _, f in found[:1]]
        note: Text = ("Too few points for a correlation.",)
        if overall and overall[0].value is not None:
            parts = overall[0].parts
            ends = (parts["low"], parts["high"])
            note = _said((parts["value"], *ends)) if None not in ends else ("Pearson's r = ", parts["value"], ".")  # type: ignore
        retrieval = str(own[0].settings.get("retrieval", "accuracy.all"))
        if points:
            panel = _panel(task, retrieval, metric, points, note)
            panels.append(replace(panel, tables=(*panel.tables, _each(task, found, labels))))
    return panels


def _across(record: Record) -> Figure:
    value = record.plain["x"]
    figure = figure_of(record)
    return Figure(value, None, None, str(record.settings.get("retrieval", "")), figure.sources, "place", percent=True)


def _said(found: tuple[Number, Number, Number]) -> Text:
    r, low, high = found
    rises = "they rise together" if low.value > 0 else "one falls as the other rises" if high.value < 0 else None
    said = rises or "the interval includes zero, so no relation is claimed"
    return ("Pearson's r over all points is ", r, " (", low, " to ", high, f"): {said}. {_SHARED}")


def _panel(task: str, retrieval: str, metric: str, points: Sequence[Point], note: Text) -> Panel:
    across, up = f"retrieval, {metric_name(retrieval)}", f"{task_name(task)}, {metric_name(metric)}"
    title = f"Retrieval and {task_name(task)}"
    text = f"Points for methods and languages: {across} across, {up} up. The figures are in the table below."
    drawing = scatter(points, title=title, across=across, up=up, description=text, fit=True)
    lines = tuple(Line(f"{p.label}, {p.lang}", (Cell(p.x), Cell(p.y)), p.number) for p in points)
    table = Table(f"transfer-{task}-{metric}", title, "method and language", (Head(across), Head(up)), lines)
    return Panel({"task": f"{task_name(task)}, {metric_name(metric)}"}, (drawing,), (table,), note)


def _each(task: str, found: Sequence[tuple[Record, Figure]], labels: Mapping[str, str]) -> Table:
    lines = []
    for record, figure in found:
        name = record.plain.get("encoder")
        lines.append(Line(labels.get(str(name), str(name)) if name else "all points", (Cell(figure),)))
    title = f"Correlation over languages, {task_name(task)}"
    return Table(
        f"pearson-{task}-{found[0][0].settings.get('metric', '') if found else ''}",
        title,
        "of",
        (Head("Pearson's r"),),
        tuple(lines),
    )
