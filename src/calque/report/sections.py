"""Sections of the report: binned analyses, shape of the vector space, retrieval and transfer, word
pairs, examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from calque.analyses.table import Axis
from calque.report.document import (
    Cell,
    Examples,
    Head,
    Line,
    More,
    Name,
    Panel,
    Plot,
    Section,
    Table,
)
from calque.report.numbers import Figure, average, figure_of, mean_of, pearson
from calque.report.plots.charts import Dot, Point, bars, curve, projection, scatter
from calque.report.questions import Question, Subject, Subjects
from calque.report.reading import Record
from calque.report.verdict import metric_name

ALL = "mean over languages"
_SHARED = (
    "Points that share a language or a method are not independent, so the interval is too narrow."
)
_MAX_DOTS = 8_000  # maximum total number of points in all projections, which limits the page size
_MAX_EXAMPLES = 60
SHAPES = {  # name and interpretation of each measure of the vector space
    ("isometry", "eigenvalue-similarity"): ("eigenvalue similarity", "0: isometric"),
    ("isometry", "relational-similarity"): ("relational similarity", "1: isometric"),
    ("hubness", "skewness.csls"): ("hubness by CSLS", "0: no hubs"),
    ("hubness", "skewness.cosine"): ("hubness by cosine", "0: no hubs"),
    ("anisotropy", "mean-cosine"): ("cosine of random words", "0: isotropic"),
    ("anisotropy", "mean-cosine linked"): ("cosine of translations", "1: same direction"),
    ("language", "probe-accuracy"): (
        "accuracy of the language probe, per cent",
        "50: chance level",
    ),
}


# -- a score for each bin or position on an axis
# -----------------------------------------------------------------------
InView = dict[Subject, dict[str, Figure]]  # scores by subject and bin
Figures = dict[Subject, dict[str, dict[str, Figure]]]  # scores by subject, language and bin


def grouped(
    analysis: str, axis: Axis, records: Sequence[Record], subjects: Subjects
) -> Section | None:
    """Plot an analysis as bars (parts of speech) or curves (other analyses), with a view per
    language, metric and kind of bin.
    """
    panels: list[Panel] = []
    metrics = dict.fromkeys((record["task"], record["metric"]) for record in records)
    several = len({task for task, _ in metrics}) > 1
    for (task, metric), bins in product(metrics, ("tag", "class")):
        own = [
            record
            for record in records
            if (record["task"], record["metric"]) == (task, metric)
            and bool(record.settings.get("mean_of")) == (bins == "class")
        ]
        if own:
            choice = {
                "figure": f"{task}: {metric_name(metric)}" if several else metric_name(metric)
            }
            choice |= {"bins": bins} if analysis == "pos" else {}
            panels += _panels(analysis, axis, own, subjects, choice, f"{analysis}-{len(panels)}")
    plot = Plot(f"{analysis}-plot", axis.title, (axis.note,), tuple(panels), kind="wide")
    return Section(analysis, axis.title, (), (plot,)) if panels else None


def figures_by_bin(
    records: Iterable[Record], subjects: Subjects
) -> tuple[Figures, dict[str, float]]:
    """Average the scores of each subject, language and bin over models and test sets. Return the
    averages, and the mean x value of each bin."""
    records = list(records)
    sources = {record.pair[0] for record in records}
    lines: dict[tuple[Subject, str, str], list[Figure]] = {}
    places: dict[str, list[float]] = {}
    for record in records:
        lang = record.pair[-1] if len(sources) == 1 else "-".join(record.pair)
        subject, group, x = subjects[record], record.plain.get("group"), record.plain.get("x")
        name = group if group is not None else "" if x is None else f"{x:,g}"
        places.setdefault(name, []).extend([] if x is None else [x])
        lines.setdefault((subject, lang, name), []).append(figure_of(record))
    figures: Figures = {}
    for (subject, lang, name), found in lines.items():
        figures.setdefault(subject, {}).setdefault(lang, {})[name] = average(found)
    ordered = {subject: figures[subject] for subject in sorted(figures, key=lambda s: s.number)}
    return ordered, {name: sum(xs) / len(xs) for name, xs in places.items() if xs}


def _panels(
    analysis: str,
    axis: Axis,
    records: Sequence[Record],
    subjects: Subjects,
    choice: Mapping[str, str],
    key: str,
) -> list[Panel]:
    figures, at = figures_by_bin(records, subjects)
    langs = list(dict.fromkeys(lang for by_lang in figures.values() for lang in by_lang))
    views = {
        lang: {s: by_lang[lang] for s, by_lang in figures.items() if lang in by_lang}
        for lang in langs
    }
    means, left_out = _means(figures, langs) if len(langs) > 1 else ({}, [])
    measure, panels = metric_name(records[0]["metric"]), []
    for number, (lang, view) in enumerate((({ALL: means} if means else {}) | views).items()):
        names = list(dict.fromkeys(name for by_name in view.values() for name in by_name))
        placed = analysis != "pos" and all(name in at for name in names)
        names.sort(key=lambda name: at.get(name, 0) if placed else 0)
        series = [(subject.label, subject.number) for subject in view]
        description = (
            f"{measure.capitalize()} by {axis.across}, for "
            f"{', '.join(label for label, _ in series)}. "
            "The table below contains the values."
        )
        about = {
            "title": f"{axis.title}: {measure}, {lang}",
            "measure": measure,
            "description": description,
        }
        if placed:
            line = {
                s.number: [(at[name], f) for name, f in by_name.items()]
                for s, by_name in view.items()
            }
            ticks = None if analysis == "layers" else {at[name]: name for name in names}
            drawing = curve(series, line, **about, across=axis.across, log=axis.log, names=ticks)
        else:
            bar = {
                (s.number, name): f for s, by_name in view.items() for name, f in by_name.items()
            }
            drawing = bars(names, series, bar, **about)
        lines = tuple(
            Line(name, tuple(Cell(by_name.get(name)) for by_name in view.values()))
            for name in names
        )
        heads = tuple(Head(subject.label) for subject in view)
        table = Table(
            f"{key}-{number}", f"{axis.title}, {lang}: {measure}", axis.across, heads, lines
        )
        missing = lang == ALL and left_out
        note = (
            (f"Not in the mean, because some language has no score: {', '.join(left_out)}.",)
            if missing
            else ()
        )
        panels.append(Panel({"language": lang, **choice}, (drawing,), (table,), note))
    return panels


def _means(figures: Figures, langs: Sequence[str]) -> tuple[InView, list[str]]:
    """Return the mean over languages of each bin that all languages have, and the names of all
    other bins.
    """
    means: InView = {}
    left_out: dict[str, None] = {}
    for subject, by_lang in figures.items():
        names = [
            name for by_name in by_lang.values() for name in by_name if set(by_lang) == set(langs)
        ]
        for name in dict.fromkeys(names):
            found = [by_lang[lang][name] for lang in langs if name in by_lang[lang]]
            mean = mean_of(found) if len(found) == len(langs) else None
            if mean is None:
                left_out[name] = None
            else:
                means.setdefault(subject, {})[name] = mean
    return means, list(left_out)


# -- shape of the vector space
# -----------------------------------------------------------------------------------------
def shape(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Return a section with a table of means over languages and a collapsed table for each
    measure.
    """
    by_measure: dict[tuple[str, str], list[Record]] = {key: [] for key in SHAPES}
    for record in records:
        by_measure.setdefault(_measure(record), []).append(record)
    by_measure = {key: own for key, own in by_measure.items() if own}
    if not by_measure:
        return None
    cells: dict[tuple[Subject, tuple[str, str]], Figure | None] = {}
    folded: list[Table] = []
    for number, (key, own) in enumerate(by_measure.items()):
        grid, _ = figures_by_bin(own, subjects)
        langs = list(dict.fromkeys(lang for by_lang in grid.values() for lang in by_lang))
        for subject, by_lang in grid.items():
            figures = [figure for lang in langs for figure in by_lang.get(lang, {}).values()]
            mean = mean_of(figures) if len(by_lang) == len(langs) else None
            cells[subject, key] = figures[0] if len(figures) == 1 else mean
        title = SHAPES[key][0] if key in SHAPES else key[1]
        folded.append(_by_language(f"shape-{number}", title[:1].upper() + title[1:], grid, langs))
    measures = [key for key in by_measure if key in SHAPES]
    rows = sorted({subject for subject, _ in cells}, key=lambda s: s.number)
    lines = tuple(
        Line(s.label, tuple(Cell(cells.get((s, key))) for key in measures), s.number) for s in rows
    )
    table = Table(
        "shape-table",
        "Shape of the vector space, mean over languages and directions",
        "encoder",
        tuple(Head(*SHAPES[key]) for key in measures),
        lines,
        note=(
            "These measures do not show which encoder is better; compare encoders by their task "
            "scores.",
        ),
    )
    more = More("Measures by language", tuple(folded))
    return Section("shape", "Shape of the vector space", (), (table, more) if measures else (more,))


def _measure(record: Record) -> tuple[str, str]:
    """Return the measure of a line: a key of `SHAPES`, or a measure that is shown only in a
    collapsed table.
    """
    analysis, metric, group = record.analysis or "", record["metric"], record.plain.get("group")
    if (analysis, metric) == ("anisotropy", "mean-cosine"):
        if group in record.pair:
            return analysis, "cosine of random words of one language"
        return analysis, f"{metric} linked" if group and group.endswith("linked") else metric
    return analysis, metric


def _by_language(name: str, title: str, figures: Figures, langs: Sequence[str]) -> Table:
    columns = dict.fromkeys(
        (lang, group) for own in figures.values() for lang in langs for group in own.get(lang, {})
    )
    several = {lang for lang in langs if [other for other, _ in columns].count(lang) > 1}
    heads = tuple(Head(lang, group if lang in several else "") for lang, group in columns)
    lines = tuple(
        Line(
            s.label, tuple(Cell(own.get(lang, {}).get(group)) for lang, group in columns), s.number
        )
        for s, own in figures.items()
    )
    return Table(name, title, "encoder", heads, lines)


# -- retrieval and transfer
# --------------------------------------------------------------------------------------------
def transfer(headlines: Sequence[Question]) -> Section | None:
    """Plot zero-shot scores against retrieval scores (Cao et al. 2020, Fig. 2), with one view for
    each pair of questions.
    """
    retrieval = [question for question in headlines if question.about.role == "retrieval"]
    zero_shot = [question for question in headlines if question.about.role == "transfer"]
    pairs = enumerate(product(retrieval, zero_shot))
    panels = [panel for number, pair in pairs if (panel := _panel(*pair, name=f"transfer{number}"))]
    note = (
        "Each point is one method in one language. The dashed line is the least-squares fit to "
        "all points.",
    )
    plot = Plot("transfer-plot", "Retrieval and transfer", note, tuple(panels), kind="wide")
    return Section("transfer", "Retrieval and transfer", (), (plot,)) if panels else None


def _panel(retrieval: Question, question: Question, *, name: str) -> Panel | None:
    points = [
        Point(subject.label, subject.number, column.label, x, y)
        for (subject, column), y in question.cells.items()
        for (other, test), x in retrieval.cells.items()
        if other == subject
        and test.lang.split("-")[-1] == column.lang
        and not column.is_source
        and None not in (x.value, y.value)
    ]
    correlation = pearson([point.x for point in points], [point.y for point in points])
    if correlation is None:
        return None
    r, low, high = correlation
    claim = "the interval includes zero, so the correlation is not significant"
    if low.value > 0 or high.value < 0:
        claim = "the correlation is positive" if low.value > 0 else "the correlation is negative"
    note = ("Pearson's r over all points is ", r, " (", low, " to ", high, f"): {claim}. {_SHARED}")
    task = question.title
    measured, found = (
        ", ".join(filter(None, (metric_name(each.metric), each.variant)))
        for each in (question, retrieval)
    )
    across, up = f"retrieval, {found}", f"{task}, {measured}"
    title = f"Retrieval and {task}"
    text = (
        f"One point per method and language: {across} (horizontal), {up} (vertical). The table "
        "below has the values."
    )
    drawing = scatter(points, title=title, across=across, up=up, description=text)
    lines = tuple(Line(f"{p.label}, {p.lang}", (Cell(p.x), Cell(p.y)), p.number) for p in points)
    tables = (Table(name, title, "method and language", (Head(across), Head(up)), lines),)
    return Panel({"task": up, "retrieval": found}, (drawing,), tables, note)


# -- word pairs in the plane
# -------------------------------------------------------------------------------------------
def points(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Plot word pairs in two dimensions: the baseline is on the left, and the encoder compared with
    it is on the right.
    """
    by_langs: dict[tuple[str, ...], dict[Subject, Record]] = {}
    for record in records:
        if record.items:
            by_langs.setdefault(record.pair, {})[subjects[record]] = record
    views: list[
        tuple[tuple[str, ...], list[Subject]]
    ] = []  # languages, and the two encoders side by side
    for langs, own in by_langs.items():
        first = min(own, key=lambda s: s.number)
        for subject in sorted(own, key=lambda s: -s.number):  # the last subject's view comes first
            base = subjects.base.get(subject, first)
            sides = list(dict.fromkeys((base if base in own else first, subject)))
            views += [(langs, sides)] if len(sides) > 1 or len(own) == 1 else []
    most = max(20, _MAX_DOTS // (4 * max(len(views), 1)))
    panels, tables, left_out = [], {}, False
    for langs, sides in views:
        words = {
            subject: [_dot(item) for item in by_langs[langs][subject].items] for subject in sides
        }
        common = sorted(
            set.intersection(*({word.pair for word in own} for own in words.values())), key=str
        )
        drawn = set(
            common
            if len(common) <= most
            else (common[k * len(common) // most] for k in range(most))
        )
        drawings = []
        for subject, own in words.items():
            left_out = left_out or len({word.pair for word in own}) > len(drawn)
            text = (
                f"{len(drawn)} words in {langs[0]} and their translations in {langs[-1]}: vectors "
                f"from {subject.label}, "
                "projected to two dimensions. A line joins translations. The table below has the "
                "words and their sentences."
            )
            title = f"Word pairs, {'-'.join(langs)}: {subject.label}"
            own[:] = [word for word in own if word.pair in drawn]
            drawings.append(
                projection(own, label=subject.label, title=title, description=text, langs=langs)
            )
        tables.setdefault(langs[-1], _pair_table(f"points-{len(tables)}", langs, words[sides[-1]]))
        panels.append(Panel({"language": langs[-1], "after": sides[-1].label}, tuple(drawings)))
    note = (
        "Open circles are words of the first language; filled squares are words of the second. A "
        "line joins a word and its "
        "translation; short lines indicate good alignment. Directions and large distances have "
        "little meaning in a projection.",
        *([f" At most {most} pairs are shown."] if left_out else []),
    )
    title = "Word pairs before and after alignment"
    plot = Plot("points-plot", title, note, tuple(panels), tuple(tables.values()), kind="pairs")
    return Section("points", title, (), (plot,)) if panels else None


def _dot(item: Mapping[str, Any]) -> Dot:
    word, sentence, lang = (str(item.get(name, "")) for name in ("word", "sentence", "lang"))
    return Dot(item["x"], item["y"], word, sentence, lang, item["pair"])


def _pair_table(name: str, langs: tuple[str, ...], words: Sequence[Dot]) -> Table:
    by_pair: dict[int, dict[str, Dot]] = {}
    for word in words:
        by_pair.setdefault(word.pair, {})[word.lang] = word
    lines = []
    for number, (pair, own) in enumerate(by_pair.items(), 1):
        found = [(lang, own.get(lang)) for lang in (langs[0], langs[-1])]
        texts = [
            (text, lang)
            for lang, word in found
            for text in ((word.word, word.sentence) if word else ("", ""))
        ]
        cells = tuple(Cell(text=(text,) if text else (), lang=lang) for text, lang in texts)
        lines.append(Line(str(number), cells, key=f"{langs[-1]}-{pair}"))
    heads = (
        Head(f"{what}, {lang}", numeric=False)
        for lang in (langs[0], langs[-1])
        for what in ("word", "sentence")
    )
    caption = f"Word pairs of {langs[0]} and {langs[-1]} in their sentences"
    return Table(name, caption, "pair", tuple(heads), tuple(lines), sortable=False)


# -- word types with several senses
# ------------------------------------------------------------------------------------
def examples(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """List word types that have several senses, with the nearest word that each encoder
    retrieves.
    """
    numbers = {subject.label: subject.number for subject in subjects.all}
    items = [(item, record) for record in records for item in record.items]
    forms: dict[str, list[dict[str, Any]]] = {}
    for item, record in items[:_MAX_EXAMPLES]:
        before, form, after = _around_form(
            str(item["sentence"]), str(item["form"]), item.get("position")
        )
        lang = str(item.get("lang", record.pair[0]))
        expected = (
            item["expected"].get("word", item.get("translation", "")),
            item["expected"].get("sentence", ""),
        )
        answers = [
            (
                Name(name, numbers.get(name)),
                str(got.get("word") or ""),
                str(got.get("sentence", "")),
                bool(got.get("right")),
            )
            for name, got in item["got"].items()
        ]
        forms.setdefault(form.lower(), []).append(
            {
                "before": before,
                "form": form,
                "after": after,
                "lang": lang,
                "expected": tuple(map(str, expected)),
                "target": next(
                    (other for other in reversed(record.pair) if other != lang), record.pair[-1]
                ),
                "answers": answers,
            }
        )
    if not forms:
        return None
    left_out = len(items) > _MAX_EXAMPLES
    note = (
        (f"Only the first {_MAX_EXAMPLES} of {len(items):,} occurrences are shown.",)
        if left_out
        else ()
    )
    intro = (
        "Occurrences of word types with several translations, and the nearest word in the other "
        "language for each encoder."
    )
    return Section(
        "examples",
        "Word types with several senses",
        (intro,),
        (Examples("examples-list", forms, note),),
    )


def _around_form(sentence: str, form: str, position: object) -> tuple[str, str, str]:
    """Split a sentence into the text before a word form, the form, and the text after; the search
    starts at word `position`.
    """
    start = (
        sum(len(word) + 1 for word in sentence.split(" ")[:position])
        if isinstance(position, int)
        else 0
    )
    found = re.compile(re.escape(form), re.IGNORECASE).search(sentence, start)
    if found is None:
        return "", form, f" · {sentence}"
    return sentence[: found.start()], found[0], sentence[found.end() :]
