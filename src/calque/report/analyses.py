"""Lines of analyses as sections: bars, curves, points in the plane, the shape of the space, and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calque.report.document import (
    Answer,
    Cell,
    Examples,
    Head,
    Line,
    More,
    Name,
    Occurrence,
    Panel,
    Plot,
    Section,
    Table,
    Text,
)  # fmt: skip
from calque.report.numbers import Figure, average, figure_of, mean_of
from calque.report.plots.bars import bars
from calque.report.plots.curve import curve
from calque.report.plots.projection import Word, projection
from calque.report.plots.svg import Drawing
from calque.report.reading import Record
from calque.report.subjects import Subject, Subjects
from calque.report.verdict import metric_name

ALL = "mean over languages"
_MOST_DOTS = 8_000  # in all projections together, so that the page stays small
_MOST_EXAMPLES = 60


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
SHAPES = {  # what each measure of the space's shape is called, and how to read it
    ("isometry", "eigenvalue-similarity"): ("eigenvalue similarity", "0: same shape"),
    ("isometry", "gromov-hausdorff"): ("Gromov–Hausdorff bound", "0: same shape"),
    ("isometry", "relational-similarity"): ("relational similarity", "1: same shape"),
    ("hubness", "skewness.csls"): ("hubness by CSLS", "0: no hubs"),
    ("hubness", "skewness.cosine"): ("hubness by cosine", "0: no hubs"),
    ("anisotropy", "mean-cosine"): ("cosine of random words", "0: all directions"),
    ("anisotropy", "mean-cosine linked"): ("cosine of translations", "1: the same vector"),
    ("language", "probe-accuracy"): ("language identified by a probe, per cent", "50: chance"),
}


# -- figures over bins and axes ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Place:
    """Where a figure stands in its plot."""

    group: str | None
    x: float | None


Grid = dict[Subject, dict[str, dict[Place, Figure]]]  # by subject, language and place


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
            grid = _grid(own, subjects, by_group=analysis == "data-size")
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


def _grid(records: Iterable[Record], subjects: Subjects, *, by_group: bool = False) -> Grid:
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
    grid: Grid = {}
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


def _panels(analysis: str, kind: Kind, grid: Grid, choice: Mapping[str, str], metric: str, key: str) -> list[Panel]:
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


def _means(grid: Grid, langs: Sequence[str]) -> tuple[dict[Subject, dict[Place, Figure]], list[str]]:
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


# -- shape of the space ------------------------------------------------------------------------------------------------
def shape(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Isometry, hubness, anisotropy and the language probe: a table of means over languages, and one for each measure."""
    by_measure: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_measure.setdefault(_measure(record), []).append(record)
    measures = [key for key in SHAPES if key in by_measure]
    if not by_measure:
        return None
    cells: dict[tuple[Subject, tuple[str, str]], Figure | None] = {}
    folded: list[Table] = []
    for number, key in enumerate([*measures, *(key for key in by_measure if key not in SHAPES)]):
        grid = {s: _by_language(by_lang) for s, by_lang in _grid(by_measure[key], subjects).items()}
        langs = list(dict.fromkeys(lang for own in grid.values() for lang in own))
        for subject, own in grid.items():
            figures = [figure for lang in langs for figure in own.get(lang, {}).values()]
            complete = set(own) == set(langs)
            cells[subject, key] = figures[0] if len(figures) == 1 else mean_of(figures) if complete else None
        folded.append(_by_language_table(f"shape-{number}", SHAPES[key][0] if key in SHAPES else key[1], grid, langs))
    rows = sorted({subject for subject, _ in cells}, key=lambda s: s.number)
    heads = tuple(Head(*SHAPES[key]) for key in measures)
    lines = tuple(Line(s.label, tuple(Cell(cells.get((s, key))) for key in measures), s.number) for s in rows)
    table = Table(
        "shape-table", "Shape of the space, mean over languages and directions", "encoder", heads, lines,
        note=("None of these measures is better or worse in itself; what counts is the tasks.",),
    )  # fmt: skip
    more = More("Each measure by language", tuple(folded))
    return Section("shape", "Shape of the space", (), (table, more) if measures else (more,))


def _measure(record: Record) -> tuple[str, str]:
    """Which column a line belongs to: one of `SHAPES`, or one that only stands in the tables behind."""
    analysis, metric, group = record.analysis or "", record["metric"], record.plain.get("group")
    if (analysis, metric) == ("anisotropy", "mean-cosine"):
        if group in record.pair:
            return analysis, "cosine of random words of one language"
        return analysis, f"{metric} linked" if group and group.endswith("linked") else metric
    if (analysis, metric) == ("anisotropy", "explained-variance") and record.plain.get("x") is not None:
        return analysis, f"variance in the first {record['x']:g} principal components, per cent"
    return analysis, metric


def _by_language(by_lang: Mapping[str, Mapping[Place, Figure]]) -> dict[str, dict[str, Figure]]:
    return {lang: {place.group or "": figure for place, figure in own.items()} for lang, own in by_lang.items()}


def _by_language_table(
    name: str, title: str, grid: Mapping[Subject, Mapping[str, Mapping[str, Figure]]], langs: Sequence[str]
) -> Table:
    columns = list(
        dict.fromkeys((lang, group) for own in grid.values() for lang in langs for group in own.get(lang, {}))
    )
    subjects = sorted(grid, key=lambda s: s.number)
    heads = tuple(Head(lang, group if sum(each == lang for each, _ in columns) > 1 else "") for lang, group in columns)
    lines = tuple(
        Line(s.label, tuple(Cell(grid[s].get(lang, {}).get(group)) for lang, group in columns), s.number)
        for s in subjects
    )
    return Table(name, title[:1].upper() + title[1:], "encoder", heads, lines)


# -- words -------------------------------------------------------------------------------------------------------------
def points(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Word pairs in the plane: what each subject is compared with at the left, itself at the right."""
    found: dict[tuple[str, ...], dict[Subject, Record]] = {}
    for record in records:
        if record.items:
            found.setdefault(record.pair, {})[subjects[record]] = record
    views = []
    for langs, by_subject in found.items():
        first = min(by_subject, key=lambda s: s.number)
        for subject in sorted(by_subject, key=lambda s: -s.number):  # what came last is what one wants to see first
            base = subjects.base.get(subject, first)
            base = base if base in by_subject else first
            if subject != base:
                views.append((langs, by_subject[base], base, by_subject[subject], subject))
        if len(by_subject) == 1:
            views.append((langs, None, None, by_subject[first], first))
    if not views:
        return None
    most = max(20, _MOST_DOTS // (4 * len(views)))
    panels, tables, left_out = [], {}, 0
    for langs, before, base, after, subject in views:
        lang, drawings = langs[-1], []
        shown = _chosen_pairs([record for record in (before, after) if record is not None], most)
        for label, record in ((base.label if base else "", before), (subject.label, after)):
            if record is None:
                continue
            words = [word for word in _words(record) if word.pair in shown]
            left_out = max(left_out, len({item["pair"] for item in record.items}) - len(shown))
            text = (
                f"{len(shown)} words of {langs[0]} and their translations in {lang} in two dimensions, with the vectors of "
                f"{label}; a line joins translations. The words and their sentences are in the table below."
            )
            drawings.append(
                projection(
                    words, label=label, title=f"Word pairs, {'-'.join(langs)}: {label}", description=text, langs=langs
                )
            )
        tables.setdefault(lang, _pair_table(f"points-{len(tables)}", langs, after, shown))
        panels.append(Panel({"language": lang, "after": subject.label}, tuple(drawings)))
    note: list[str] = [
        "Open circles: the first language; filled squares: the other; a line joins a word with its translation. Short lines "
        "mean good alignment. Directions, and distances between distant points, mean little in such a projection."
    ]
    if left_out:
        note.append(f" Of many pairs, {most} are drawn.")
    plot = Plot(
        "points-plot", "Word pairs before and after", tuple(note), tuple(panels), tuple(tables.values()), kind="pairs"
    )
    return Section("points", "Word pairs before and after", (), (plot,))


def _chosen_pairs(records: Sequence[Record], most: int) -> set[int]:
    """Pairs that all have, evenly chosen where there are more than can be drawn."""
    sets = [{item["pair"] for item in record.items} for record in records]
    both = sorted(set.intersection(*sets), key=str)
    if len(both) <= most:
        return set(both)
    return {both[k * len(both) // most] for k in range(most)}


def _words(record: Record) -> list[Word]:
    return [
        Word(item["x"], item["y"], str(item["word"]), str(item.get("sentence", "")), str(item.get("lang", "")),
             item["pair"], item.get("upos"))
        for item in record.items
    ]  # fmt: skip


def _pair_table(name: str, langs: tuple[str, ...], record: Record, shown: set[int]) -> Table:
    by_pair: dict[int, dict[str, Word]] = {}
    for word in _words(record):
        if word.pair in shown:
            by_pair.setdefault(word.pair, {})[word.lang] = word
    lines = []
    for pair, words in by_pair.items():
        cells = []
        for lang in (langs[0], langs[-1]):
            word = words.get(lang)
            cells += [
                Cell(text=(word.word,) if word else (), lang=lang),
                Cell(text=(word.sentence,) if word else (), lang=lang),
            ]
        lines.append(Line(str(len(lines) + 1), tuple(cells), key=f"{langs[-1]}-{pair}"))
    heads = tuple(
        Head(head, numeric=False) for lang in (langs[0], langs[-1]) for head in (f"word, {lang}", f"sentence, {lang}")
    )
    caption = f"Word pairs of {langs[0]} and {langs[-1]} in their sentences"
    return Table(name, caption, "pair", heads, tuple(lines), sortable=False)


def examples(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Forms in several senses, and where each encoder went."""
    numbers = {subject.label: subject.number for subject in subjects.all}
    forms: dict[tuple[str, str], list[Occurrence]] = {}
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
    block = Examples("examples-list", tuple((form, tuple(own)) for (form, _), own in forms.items()), note)
    intro = (
        "Occurrences of one word form with different translations, and the nearest word in the other language by each "
        "encoder."
    )
    return Section("examples", "One form, several senses", (intro,), (block,))


def _occurrence(item: Mapping, record: Record, numbers: Mapping[str, int]) -> Occurrence:
    before, form, after = around_form(str(item["sentence"]), str(item["form"]), item.get("position"))
    answers = tuple(
        Answer(
            Name(name, numbers.get(name)),
            str(got.get("word") or ""),
            str(got.get("sentence", "")),
            bool(got.get("right")),
        )
        for name, got in item["got"].items()
    )
    lang = str(item.get("lang", record.pair[0]))
    target = next((other for other in reversed(record.pair) if other != lang), record.pair[-1])
    return Occurrence(
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
