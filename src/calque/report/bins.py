"""Analyses that have a figure for each bin or place on an axis: bars for parts of speech, curves for everything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from calque.analyses.table import Axis
from calque.report.document import Cell, Head, Line, Panel, Plot, Section, Table, Text
from calque.report.numbers import Figure, average, figure_of, mean_of
from calque.report.plots.charts import bars, curve
from calque.report.plots.svg import Drawing
from calque.report.reading import Record
from calque.report.subjects import Subject, Subjects
from calque.report.verdict import metric_name

ALL = "mean over languages"


@dataclass(frozen=True)
class Place:
    """Where a figure stands in its plot."""

    group: str | None
    x: float | None


InView = dict[Subject, dict[Place, Figure]]  # by subject and place
Figures = dict[Subject, dict[str, dict[Place, Figure]]]  # by subject, language and place


def grouped(analysis: str, axis: Axis, records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Bars for parts of speech, curves for everything else; a view for each language, figure and kind of bin."""
    panels: list[Panel] = []
    metrics = dict.fromkeys((record["task"], record["metric"]) for record in records)
    several_tasks = len({task for task, _ in metrics}) > 1
    for (task, metric), bins in product(metrics, ("tag", "class")):
        shown = [
            record for record in records
            if (record["task"], record["metric"]) == (task, metric)
            and bool(record.settings.get("mean_of")) == (bins == "class")
        ]  # fmt: skip
        if not shown:
            continue
        figures = figures_by_place(shown, subjects, by_group=analysis == "data-size")
        choice = {"figure": f"{task}: {metric_name(metric)}" if several_tasks else metric_name(metric)}
        if analysis == "pos":
            choice["bins"] = bins
        panels += _panels(analysis, axis, figures, choice, metric, f"{len(panels)}")
    if not panels:
        return None
    plot = Plot(f"{analysis}-plot", axis.title, (axis.note,), tuple(panels), kind="wide")
    return Section(analysis, axis.title, (), (plot,))


def figures_by_place(records: Iterable[Record], subjects: Subjects, *, by_group: bool = False) -> Figures:
    """Figures by subject, language and place; lines of several models or test sets with the same place are averaged. With
    `by_group` the group is a method, and a part of the subject."""
    records = list(records)
    sources = {record.pair[0] for record in records}
    lines: dict[tuple[Subject, str, Place], list[Figure]] = {}
    for record in records:
        lang = record.pair[-1] if len(sources) == 1 else "-".join(record.pair)
        subject, place = subjects[record], Place(record.plain.get("group"), record.plain.get("x"))
        if by_group and place.group is not None:
            subject, place = _named(subject, place.group, subjects), Place(None, place.x)
        lines.setdefault((subject, lang, place), []).append(figure_of(record))
    averages: Figures = {}
    for (subject, lang, place), figures in lines.items():
        averages.setdefault(subject, {}).setdefault(lang, {})[place] = average(figures)
    return averages


def _named(subject: Subject, method: str, subjects: Subjects) -> Subject:
    """What a method makes of a subject: the subject of that name where there is one."""
    for other in subjects.all:
        if method in (other.label, other.method) and other.group == subject.group:
            return other
    number = len(subjects.all) + sum(map(ord, method)) % 7  # a mark that no subject of a few has, and always the same
    return Subject(f"{subject.label} + {method}", method, subject.group, number)


def _panels(
    analysis: str, axis: Axis, figures: Figures, choice: Mapping[str, str], metric: str, key: str
) -> list[Panel]:
    langs = list(dict.fromkeys(lang for by_lang in figures.values() for lang in by_lang))
    views = {lang: {s: by_lang[lang] for s, by_lang in figures.items() if lang in by_lang} for lang in langs}
    note: Text = ()
    if len(langs) > 1:
        means, left_out = _means(figures, langs)
        if means:
            views = {ALL: means, **views}
            if left_out:
                note = (f"Not available in every language, so not in the mean: {', '.join(left_out)}.",)
    panels = []
    for number, (lang, view) in enumerate(views.items()):
        view = _aligned(view)
        places = list(dict.fromkeys(place for by_place in view.values() for place in by_place))
        if all(place.x is not None for place in places):
            places.sort(key=lambda place: place.x or 0)
        view = {subject: view[subject] for subject in sorted(view, key=lambda s: s.number)}
        drawing = _draw(analysis, axis, view, places, metric, lang)
        lines = [
            Line(_place_name(place), tuple(Cell(by_place.get(place)) for by_place in view.values())) for place in places
        ]
        table = Table(
            f"{analysis}-{key}-{number}", f"{axis.title}, {lang}: {metric_name(metric)}", axis.across,
            tuple(Head(subject.label) for subject in view), tuple(lines),
        )  # fmt: skip
        panels.append(Panel({"language": lang, **choice}, (drawing,), (table,), note if lang == ALL else ()))
    return panels


def _means(figures: Figures, langs: Sequence[str]) -> tuple[InView, list[str]]:
    """Means over languages of what every language has; and the names of what not every one has. Bins of languages are the
    same if they have one name; where it stands on the axis may differ, and is averaged."""
    means: InView = {}
    left_out: dict[str, None] = {}
    for subject, by_lang in figures.items():
        if set(by_lang) != set(langs):
            continue
        named: dict[object, list[tuple[Place, Figure]]] = {}
        for lang in langs:
            for place, figure in by_lang[lang].items():
                named.setdefault(place.x if place.group is None else place.group, []).append((place, figure))
        for name, places in named.items():
            mean = mean_of([figure for _, figure in places]) if len(places) == len(langs) else None
            if mean is None:
                left_out[str(name)] = None
                continue
            xs = [place.x for place, _ in places if place.x is not None]
            at = sum(xs) / len(xs) if len(xs) == len(places) else None
            means.setdefault(subject, {})[Place(places[0][0].group, at)] = mean
    return means, list(left_out)


def _aligned(view: InView) -> InView:
    """The same with one place for each bin, the mean of where subjects have it: a bin without an end is where its words
    are, and these may differ a little."""
    xs: dict[str, list[float]] = {}
    for place in (place for by_place in view.values() for place in by_place):
        if place.group is not None and place.x is not None:
            xs.setdefault(place.group, []).append(place.x)
    at: dict[str | None, Place] = {group: Place(group, sum(of_bin) / len(of_bin)) for group, of_bin in xs.items()}
    return {
        subject: {place if place.x is None else at.get(place.group, place): f for place, f in by_place.items()}
        for subject, by_place in view.items()
    }


def _draw(analysis: str, axis: Axis, view: InView, places: Sequence[Place], metric: str, lang: str) -> Drawing:
    series = [(subject.label, subject.number) for subject in view]
    title = f"{axis.title}: {metric_name(metric)}, {lang}"
    text = (
        f"{metric_name(metric).capitalize()} over {axis.across}, for {', '.join(label for label, _ in series)}. "
        "The figures are in the table below."
    )
    if analysis == "pos" or any(place.x is None for place in places):
        groups = [str(place.group) for place in places]
        bar = {(s.number, str(place.group)): f for s, by_place in view.items() for place, f in by_place.items()}
        return bars(groups, series, bar, title=title, measure=metric_name(metric), description=text)
    points = {s.number: [(p.x, f) for p, f in by_place.items() if p.x is not None] for s, by_place in view.items()}
    names = {place.x: place.group for place in places if place.x is not None and place.group}
    few = names if len(names) == len(places) and analysis not in ("data-size", "layers") else None
    return curve(
        series, points, title=title, measure=metric_name(metric), across=axis.across, description=text, log=axis.log, names=few
    )  # fmt: skip


def _place_name(place: Place) -> str:
    return place.group if place.group is not None else "" if place.x is None else f"{place.x:,g}"
