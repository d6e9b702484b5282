"""Analyses that have a figure for each bin or place on an axis: bars for parts of speech, curves for everything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calque.report.document import Cell, Head, Line, Panel, Plot, Section, Table, Text
from calque.report.numbers import Figure, average, figure_of, mean_of
from calque.report.plots.bars import bars
from calque.report.plots.curve import curve
from calque.report.plots.svg import Drawing
from calque.report.reading import Record
from calque.report.subjects import Subject, Subjects
from calque.report.verdict import metric_name

ALL = "mean over languages"


@dataclass(frozen=True)
class Kind:
    """How an analysis is shown."""

    title: str
    across: str
    note: str
    log: bool = False


GROUPED = {
    "pos": Kind(
        "By part of speech", "part of speech", "Which words find their translation, by universal part of speech."
    ),
    "rank": Kind(
        "By difference in frequency",
        "difference in frequency rank",
        "Left: a word and its translation are equally frequent. Right: their frequency ranks differ widely.",
        True,
    ),
    "subwords": Kind("By number of subwords", "subwords of the word", "Number of subwords of the query word."),
    "length": Kind("By word length", "characters of the word", "Length of the query word."),
    "position": Kind("By position in the sentence", "position in the sentence", "Position of the query word.", True),
    "layers": Kind("Layer by layer", "layer", "Leftmost: the embeddings, before the first layer."),
    "data-size": Kind("Amount of text", "sentence pairs", "Accuracy by amount of parallel text.", True),
}


@dataclass(frozen=True)
class Place:
    """Where a figure stands in its plot."""

    group: str | None
    x: float | None


Figures = dict[Subject, dict[str, dict[Place, Figure]]]  # by subject, language and place


def grouped(analysis: str, records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Bars for parts of speech, curves for everything else; a view for each language, figure and kind of bin."""
    kind = GROUPED[analysis]
    panels: list[Panel] = []
    bins = {False: "tag", True: "class"}
    metrics = list(dict.fromkeys((record["task"], record["metric"]) for record in records))
    for task, metric in metrics:
        for classes in (False, True):
            own = [
                record for record in records
                if (record["task"], record["metric"]) == (task, metric) and bool(record.settings.get("mean_of")) == classes
            ]  # fmt: skip
            if not own:
                continue
            grid = figures_by_place(own, subjects, by_group=analysis == "data-size")
            choice = {"figure": _figure_name(task, metric, metrics)}
            if analysis == "pos":
                choice["bins"] = bins[classes]
            panels += _panels(analysis, kind, grid, choice, metric, f"{len(panels)}")
    if not panels:
        return None
    plot = Plot(f"{analysis}-plot", kind.title, (kind.note,), tuple(panels), kind="wide")
    return Section(analysis, kind.title, (), (plot,))


def _figure_name(task: str, metric: str, metrics: Sequence[tuple[str, str]]) -> str:
    several = len({each for each, _ in metrics}) > 1
    return f"{task}: {metric_name(metric)}" if several else metric_name(metric)


def figures_by_place(records: Iterable[Record], subjects: Subjects, *, by_group: bool = False) -> Figures:
    """Figures by subject, language and place; lines of several models or test sets with the same place are averaged. With
    `by_group` the group is a method, and a part of the subject."""
    records = list(records)
    sources = {record.pair[0] for record in records}
    lines: dict[tuple[Subject, str, Place], list[Record]] = {}
    for record in records:
        lang = record.pair[-1] if len(sources) == 1 else "-".join(record.pair)
        subject, place = subjects[record], Place(record.plain.get("group"), record.plain.get("x"))
        if by_group and place.group is not None:
            subject, place = _named(subject, place.group, subjects), Place(None, place.x)
        lines.setdefault((subject, lang, place), []).append(record)
    grid: Figures = {}
    for (subject, lang, place), found in lines.items():
        figure = average([figure_of(record) for record in found])
        grid.setdefault(subject, {}).setdefault(lang, {})[place] = figure
    return grid


def _named(subject: Subject, method: str, subjects: Subjects) -> Subject:
    """What a method makes of a subject: the subject of that name where there is one."""
    same = next(
        (other for other in subjects.all if method in (other.label, other.method) and other.group == subject.group),
        None,
    )
    if same is not None:
        return same
    number = len(subjects.all) + sum(map(ord, method)) % 7  # a mark that no subject of a few has, and always the same
    return Subject(f"{subject.label} + {method}", method, subject.group, number)


def _panels(analysis: str, kind: Kind, grid: Figures, choice: Mapping[str, str], metric: str, key: str) -> list[Panel]:
    langs = list(dict.fromkeys(lang for by_lang in grid.values() for lang in by_lang))
    views: list[tuple[str, dict[Subject, dict[Place, Figure]]]] = []
    note: Text = ()
    if len(langs) > 1:
        means, left_out = _means(grid, langs)
        if means:
            views.append((ALL, means))
            if left_out:
                note = (f"Not available in every language, so not in the mean: {', '.join(left_out)}.",)
    views += [(lang, {s: by_lang[lang] for s, by_lang in grid.items() if lang in by_lang}) for lang in langs]
    panels = []
    for number, (lang, figures) in enumerate(views):
        figures = _aligned(figures)
        drawing = _draw(analysis, kind, figures, metric, lang)
        name = f"{analysis}-{key}-{number}"
        table = _behind(name, f"{kind.title}, {lang}: {metric_name(metric)}", kind.across, figures)
        panels.append(Panel({"language": lang, **choice}, (drawing,), (table,), note if lang == ALL else ()))
    return panels


def _means(grid: Figures, langs: Sequence[str]) -> tuple[dict[Subject, dict[Place, Figure]], list[str]]:
    """Means over languages of what every language has; and the names of what not every one has. Bins of languages are the
    same if they have one name; where it stands on the axis may differ, and is averaged."""
    found: dict[Subject, dict[Place, Figure]] = {}
    left_out: dict[str, None] = {}
    for subject, by_lang in grid.items():
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
            found.setdefault(subject, {})[Place(places[0][0].group, at)] = mean
    return found, list(left_out)


def _aligned(figures: Mapping[Subject, Mapping[Place, Figure]]) -> dict[Subject, dict[Place, Figure]]:
    """The same with one place for each bin, the mean of where subjects have it: a bin without an end is where its words
    are, and these may differ a little."""
    places: dict[str, list[float]] = {}
    for own in figures.values():
        for place in own:
            if place.group is not None and place.x is not None:
                places.setdefault(place.group, []).append(place.x)
    at = {name: sum(xs) / len(xs) for name, xs in places.items()}
    return {
        subject: {
            Place(p.group, at.get(p.group, p.x) if p.group is not None and p.x is not None else p.x): f
            for p, f in own.items()
        }
        for subject, own in figures.items()
    }


def _draw(
    analysis: str, kind: Kind, figures: Mapping[Subject, Mapping[Place, Figure]], metric: str, lang: str
) -> Drawing:
    subjects = sorted(figures, key=lambda s: s.number)
    series = [(subject.label, subject.number) for subject in subjects]
    title = f"{kind.title}: {metric_name(metric)}, {lang}"
    places = _places(figures)
    text = (
        f"{metric_name(metric).capitalize()} over {kind.across}, for {', '.join(label for label, _ in series)}. "
        "The figures are in the table below."
    )
    if analysis == "pos" or any(place.x is None for place in places):
        groups = [str(place.group) for place in places]
        flat = {(s.number, str(place.group)): f for s in subjects for place, f in figures[s].items()}
        return bars(groups, series, flat, title=title, measure=metric_name(metric), description=text)
    points = {s.number: [(place.x, f) for place, f in figures[s].items() if place.x is not None] for s in subjects}
    names = {place.x: place.group for place in places if place.x is not None and place.group}
    few = names if len(names) == len(places) and analysis not in ("data-size", "layers") else None
    return curve(
        series,
        points,
        title=title,
        measure=metric_name(metric),
        across=kind.across,
        description=text,
        log=kind.log,
        names=few,
    )


def _places(figures: Mapping[Subject, Mapping[Place, Figure]]) -> list[Place]:
    found = list(dict.fromkeys(place for own in figures.values() for place in own))
    if all(place.x is not None for place in found):
        found.sort(key=lambda place: place.x or 0)
    return found


def _behind(name: str, caption: str, across: str, figures: Mapping[Subject, Mapping[Place, Figure]]) -> Table:
    """Bins down, subjects across."""
    subjects = sorted(figures, key=lambda s: s.number)
    lines = [
        Line(_place_name(place), tuple(Cell(figures[subject].get(place)) for subject in subjects))
        for place in _places(figures)
    ]
    return Table(name, caption, across, tuple(Head(subject.label) for subject in subjects), tuple(lines))


def _place_name(place: Place) -> str:
    return place.group if place.group is not None else "" if place.x is None else f"{place.x:,g}"
