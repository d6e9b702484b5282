"""Sections of the report: analyses by bins, the shape of the space, retrieval and transfer, word pairs, examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from calque.analyses.table import Axis
from calque.report import document as doc
from calque.report.document import Cell, Head, Line, Panel, Plot, Section, Table, Text
from calque.report.numbers import Figure, Number, average, figure_of, mean_of, pearson
from calque.report.plots.charts import Point, bars, curve, scatter
from calque.report.plots.svg import Drawing
from calque.report.plots.words import Dot, projection
from calque.report.questions import Question, Subject, Subjects
from calque.report.reading import Record
from calque.report.verdict import metric_name, task_name

ALL = "mean over languages"
ZERO_SHOT = ("ner", "slots", "pos", "nli", "sentiment", "parsing", "probing", "qa")
_SHARED = "Points of one language or one method depend on each other, so the interval is narrower than it should be."
_MOST_DOTS = 8_000  # in all projections together, so that the page stays small
_MOST_EXAMPLES = 60
SHAPES = {  # what each measure of the space's shape is called, and how to read it
    ("isometry", "eigenvalue-similarity"): ("eigenvalue similarity", "0: same shape"),
    ("isometry", "relational-similarity"): ("relational similarity", "1: same shape"),
    ("hubness", "skewness.csls"): ("hubness by CSLS", "0: no hubs"),
    ("hubness", "skewness.cosine"): ("hubness by cosine", "0: no hubs"),
    ("anisotropy", "mean-cosine"): ("cosine of random words", "0: all directions"),
    ("anisotropy", "mean-cosine linked"): ("cosine of translations", "1: the same vector"),
    ("language", "probe-accuracy"): ("language identified by a probe, per cent", "50: chance"),
}


# -- a figure for each bin or place on an axis --------------------------------------------------------------------------
@dataclass(frozen=True)
class Place:
    """Where a figure stands in its plot."""

    group: str | None
    x: float | None

    @property
    def name(self) -> str:
        return self.group if self.group is not None else "" if self.x is None else f"{self.x:,g}"


InView = dict[Subject, dict[Place, Figure]]  # by subject and place
Figures = dict[Subject, dict[str, dict[Place, Figure]]]  # by subject, language and place


def grouped(analysis: str, axis: Axis, records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Bars for parts of speech, curves for everything else; a view for each language, figure and kind of bin."""
    panels: list[Panel] = []
    metrics = dict.fromkeys((record["task"], record["metric"]) for record in records)
    several = len({task for task, _ in metrics}) > 1
    for (task, metric), bins in product(metrics, ("tag", "class")):
        shown = [
            record for record in records
            if (record["task"], record["metric"]) == (task, metric)
            and bool(record.settings.get("mean_of")) == (bins == "class")
        ]  # fmt: skip
        if not shown:
            continue
        figures = figures_by_place(shown, subjects, by_group=analysis == "data-size")
        choice = {"figure": f"{task}: {metric_name(metric)}" if several else metric_name(metric)}
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
            subject, place = _named(place.group, subjects), Place(None, place.x)
        lines.setdefault((subject, lang, place), []).append(figure_of(record))
    averages: Figures = {}
    for (subject, lang, place), figures in lines.items():
        averages.setdefault(subject, {}).setdefault(lang, {})[place] = average(figures)
    return averages


def _named(method: str, subjects: Subjects) -> Subject:
    """The subject of a method's name; a new one, for encoders that it aligned on several amounts of text, where none has it."""
    number = len(subjects.all) + sum(map(ord, method)) % 7  # a mark that no subject of a few has, and always the same
    known = (other for other in subjects.all if method in (other.label, other.method))
    return next(known, Subject(method, method, ("", ""), number))


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
        lines = [Line(place.name, tuple(Cell(by_place.get(place)) for by_place in view.values())) for place in places]
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


# -- the shape of the space ---------------------------------------------------------------------------------------------
def shape(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """A table of means over languages, and one for each measure."""
    by_measure: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_measure.setdefault(_measure(record), []).append(record)
    measures = [key for key in SHAPES if key in by_measure]
    if not by_measure:
        return None
    cells: dict[tuple[Subject, tuple[str, str]], Figure | None] = {}
    folded: list[Table] = []
    for number, key in enumerate([*measures, *(key for key in by_measure if key not in SHAPES)]):
        grid = figures_by_place(by_measure[key], subjects)
        langs = list(dict.fromkeys(lang for by_lang in grid.values() for lang in by_lang))
        for subject, by_lang in grid.items():
            figures = [figure for lang in langs for figure in by_lang.get(lang, {}).values()]
            complete = set(by_lang) == set(langs)
            cells[subject, key] = figures[0] if len(figures) == 1 else mean_of(figures) if complete else None
        folded.append(_by_language_table(f"shape-{number}", SHAPES[key][0] if key in SHAPES else key[1], grid, langs))
    rows = sorted({subject for subject, _ in cells}, key=lambda s: s.number)
    heads = tuple(Head(*SHAPES[key]) for key in measures)
    lines = tuple(Line(s.label, tuple(Cell(cells.get((s, key))) for key in measures), s.number) for s in rows)
    table = Table(
        "shape-table", "Shape of the space, mean over languages and directions", "encoder", heads, lines,
        note=("None of these measures is better or worse in itself; what counts is the tasks.",),
    )  # fmt: skip
    more = doc.More("Each measure by language", tuple(folded))
    return Section("shape", "Shape of the space", (), (table, more) if measures else (more,))


def _measure(record: Record) -> tuple[str, str]:
    """Which column a line belongs to: one of `SHAPES`, or one that only stands in the tables behind."""
    analysis, metric, group = record.analysis or "", record["metric"], record.plain.get("group")
    if (analysis, metric) == ("anisotropy", "mean-cosine"):
        if group in record.pair:
            return analysis, "cosine of random words of one language"
        return analysis, f"{metric} linked" if group and group.endswith("linked") else metric
    return analysis, metric


def _by_language_table(name: str, title: str, figures: Figures, langs: Sequence[str]) -> Table:
    grid = {
        s: {lang: {place.group or "": f for place, f in places.items()} for lang, places in by_lang.items()}
        for s, by_lang in figures.items()
    }
    columns = dict.fromkeys(
        (lang, group) for by_lang in grid.values() for lang in langs for group in by_lang.get(lang, {})
    )
    several = {lang for lang in langs if [other for other, _ in columns].count(lang) > 1}
    heads = tuple(Head(lang, group if lang in several else "") for lang, group in columns)
    lines = tuple(
        Line(s.label, tuple(Cell(grid[s].get(lang, {}).get(group)) for lang, group in columns), s.number)
        for s in sorted(grid, key=lambda s: s.number)
    )
    return Table(name, title[:1].upper() + title[1:], "encoder", heads, lines)


# -- retrieval and transfer --------------------------------------------------------------------------------------------
def transfer(headlines: Sequence[Question]) -> Section | None:
    """Retrieval against zero-shot scores over languages (Cao et al. 2020, Fig. 2): a view for each zero-shot task that has
    languages in common with retrieval."""
    retrieval = next((question for question in headlines if question.task == "retrieval"), None)
    panels = []
    for question in headlines:
        points = [] if retrieval is None or question.task not in ZERO_SHOT else _points(retrieval, question)
        correlation = _pearson(points)
        if retrieval is not None and correlation is not None:
            panels.append(_panel(retrieval.metric, question, points, correlation))
    if not panels:
        return None
    note = ("A point is one method in one language; the dashed line fits all points best (least squares).",)
    plot = Plot("transfer-plot", "Retrieval and transfer", note, tuple(panels), kind="wide")
    return Section("transfer", "Retrieval and transfer", (), (plot,))


def _pearson(points: Sequence[Point]) -> tuple[Number, Number, Number] | None:
    return pearson([point.x for point in points], [point.y for point in points])


def _points(retrieval: Question, question: Question) -> list[Point]:
    points = []
    for (subject, column), y in question.cells.items():
        if column.is_source:
            continue
        for (other, test), x in retrieval.cells.items():
            if other == subject and test.lang.split("-")[-1] == column.lang and None not in (x.value, y.value):
                points.append(Point(subject.label, subject.number, column.label, x, y))
    return points


def _panel(
    retrieval: str, question: Question, points: Sequence[Point], correlation: tuple[Number, Number, Number]
) -> Panel:
    r, low, high = correlation
    claim = "the interval includes zero, so no relation is claimed"
    if low.value > 0 or high.value < 0:
        claim = "they rise together" if low.value > 0 else "one falls as the other rises"
    note = ("Pearson's r over all points is ", r, " (", low, " to ", high, f"): {claim}. {_SHARED}")
    task, metric = task_name(question.task), metric_name(question.metric)
    across, up = f"retrieval, {metric_name(retrieval)}", f"{task}, {metric}"
    title = f"Retrieval and {task}"
    text = f"Points for methods and languages: {across} across, {up} up. The figures are in the table below."
    drawing = scatter(points, title=title, across=across, up=up, description=text)
    key = f"{question.task}-{question.metric}"
    lines = tuple(Line(f"{p.label}, {p.lang}", (Cell(p.x), Cell(p.y)), p.number) for p in points)
    tables = [Table(f"transfer-{key}", title, "method and language", (Head(across), Head(up)), lines)]
    of_each = []
    for label, number in dict.fromkeys((point.label, point.number) for point in points):
        alone = _pearson([point for point in points if point.number == number])
        if alone is not None:
            of_each.append(Line(label, (Cell(text=(alone[0], " (", alone[1], " to ", alone[2], ")")),), number))
    if len(of_each) > 1:
        heads = (Head("Pearson's r", numeric=False),)
        tables.append(Table(f"pearson-{key}", f"Correlation over languages, {task}", "of", heads, tuple(of_each)))
    return Panel({"task": f"{task}, {metric}"}, (drawing,), tuple(tables), note)


# -- word pairs in the plane -------------------------------------------------------------------------------------------
def points(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Word pairs in the plane: what each subject is compared with at the left, itself at the right."""
    by_langs: dict[tuple[str, ...], dict[Subject, Record]] = {}
    for record in records:
        if record.items:
            by_langs.setdefault(record.pair, {})[subjects[record]] = record
    views: list[tuple[tuple[str, ...], list[Subject]]] = []  # languages, and subjects side by side: the base, another
    for langs, by_subject in by_langs.items():
        first = min(by_subject, key=lambda s: s.number)
        for subject in sorted(by_subject, key=lambda s: -s.number):  # what came last is what one wants to see first
            base = subjects.base.get(subject, first)
            base = base if base in by_subject else first
            if subject != base or len(by_subject) == 1:
                views.append((langs, list(dict.fromkeys((base, subject)))))
    if not views:
        return None
    most = max(20, _MOST_DOTS // (4 * len(views)))
    panels, tables, left_out = [], {}, False
    for langs, sides in views:
        lang, drawings = langs[-1], []
        both = [by_langs[langs][subject] for subject in sides]
        shown = _chosen_pairs(both, most)
        for subject, record in zip(sides, both, strict=True):
            words = [word for word in _words(record) if word.pair in shown]
            left_out = left_out or len({item["pair"] for item in record.items}) > len(shown)
            text = (
                f"{len(shown)} words of {langs[0]} and their translations in {lang} in two dimensions, with the vectors of "
                f"{subject.label}; a line joins translations. The words and their sentences are in the table below."
            )
            title = f"Word pairs, {'-'.join(langs)}: {subject.label}"
            drawings.append(projection(words, label=subject.label, title=title, description=text, langs=langs))
        tables.setdefault(lang, _pair_table(f"points-{len(tables)}", langs, both[-1], shown))
        panels.append(Panel({"language": lang, "after": sides[-1].label}, tuple(drawings)))
    note = (
        "Open circles: the first language; filled squares: the other; a line joins a word with its translation. Short lines "
        "mean good alignment. Directions, and distances between distant points, mean little in such a projection.",
        *([f" Of many pairs, {most} are drawn."] if left_out else []),
    )
    title = "Word pairs before and after"
    plot = Plot("points-plot", title, note, tuple(panels), tuple(tables.values()), kind="pairs")
    return Section("points", title, (), (plot,))


def _chosen_pairs(records: Sequence[Record], most: int) -> set[int]:
    """Pairs that all have, evenly chosen where there are more than can be drawn."""
    sets = [{item["pair"] for item in record.items} for record in records]
    both = sorted(set.intersection(*sets), key=str)
    if len(both) <= most:
        return set(both)
    return {both[k * len(both) // most] for k in range(most)}


def _words(record: Record) -> list[Dot]:
    return [
        Dot(item["x"], item["y"], str(item["word"]), str(item.get("sentence", "")), str(item.get("lang", "")), item["pair"])
        for item in record.items
    ]  # fmt: skip


def _pair_table(name: str, langs: tuple[str, ...], record: Record, shown: set[int]) -> Table:
    by_pair: dict[int, dict[str, Dot]] = {}
    for word in _words(record):
        if word.pair in shown:
            by_pair.setdefault(word.pair, {})[word.lang] = word
    lines = []
    for pair, words in by_pair.items():
        cells = []
        for lang in (langs[0], langs[-1]):
            word = words.get(lang)
            texts = (word.word, word.sentence) if word else ()
            cells += [Cell(text=texts[k : k + 1], lang=lang) for k in range(2)]
        lines.append(Line(str(len(lines) + 1), tuple(cells), key=f"{langs[-1]}-{pair}"))
    heads = tuple(
        Head(head, numeric=False) for lang in (langs[0], langs[-1]) for head in (f"word, {lang}", f"sentence, {lang}")
    )
    caption = f"Word pairs of {langs[0]} and {langs[-1]} in their sentences"
    return Table(name, caption, "pair", heads, tuple(lines), sortable=False)


# -- one form in several senses ----------------------------------------------------------------------------------------
def examples(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Forms in several senses, and where each encoder went."""
    numbers = {subject.label: subject.number for subject in subjects.all}
    forms: dict[tuple[str, str], list[doc.Occurrence]] = {}
    total = 0
    for record in records:
        for item in record.items:
            total += 1
            if total <= _MOST_EXAMPLES:
                occurrence = _occurrence(item, record, numbers)
                forms.setdefault((occurrence.form.lower(), occurrence.lang), []).append(occurrence)
    if not forms:
        return None
    note: Text = ()
    if total > _MOST_EXAMPLES:
        note = (f"The first {_MOST_EXAMPLES} of {total:,} occurrences.",)
    block = doc.Examples("examples-list", tuple((form, tuple(group)) for (form, _), group in forms.items()), note)
    intro = (
        "Occurrences of one word form with different translations, and the nearest word in the other language by each "
        "encoder."
    )
    return Section("examples", "One form, several senses", (intro,), (block,))


def _occurrence(item: Mapping, record: Record, numbers: Mapping[str, int]) -> doc.Occurrence:
    before, form, after = around_form(str(item["sentence"]), str(item["form"]), item.get("position"))
    answers = tuple(
        doc.Answer(
            doc.Name(name, numbers.get(name)),
            str(got.get("word") or ""),
            str(got.get("sentence", "")),
            bool(got.get("right")),
        )
        for name, got in item["got"].items()
    )
    lang = str(item.get("lang", record.pair[0]))
    target = next((other for other in reversed(record.pair) if other != lang), record.pair[-1])
    return doc.Occurrence(
        before, form, after, lang, str(item["expected"].get("word", item.get("translation", ""))),
        str(item["expected"].get("sentence", "")), target, answers, record.source,
    )  # fmt: skip


def around_form(sentence: str, form: str, position: object) -> tuple[str, str, str]:
    """A sentence in three parts, of which the middle one is the form: the word at `position` where that is it, otherwise the
    first place where it stands."""
    words = sentence.split(" ")
    if isinstance(position, int) and 0 <= position < len(words) and words[position].lower() == form.lower():
        start = sum(len(word) + 1 for word in words[:position])
        return sentence[:start], words[position], sentence[start + len(words[position]) :]
    start = sentence.lower().find(form.lower())
    if start < 0 or sentence[start : start + len(form)].lower() != form.lower():
        return "", form, f" · {sentence}"
    return sentence[:start], sentence[start : start + len(form)], sentence[start + len(form) :]
