"""Sections of the report: binned analyses, shape of the vector space, retrieval and transfer, word
pairs, examples.
"""

from __future__ import annotations

import re
from collections import Counter
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
    Text,
)
from calque.report.numbers import Figure, average, figure_of, mean_of, pearson
from calque.report.plots.charts import Dot, Point, bars, curve, projection, scatter
from calque.report.plots.svg import Drawing
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


# -- a score for each bin or position on an axis ---------------------------------------------------
InView = dict[Subject, dict[str, Figure]]  # scores by subject and bin
Figures = dict[Subject, dict[str, dict[str, Figure]]]  # scores by subject, language and bin


def grouped(
    analysis: str, axis: Axis, records: Sequence[Record], subjects: Subjects
) -> Section | None:
    """Plot an analysis as bars or curves, as its axis says, with a view per language, metric and
    kind of bin.
    """
    panels: list[Panel] = []
    metrics = dict.fromkeys((record["task"], record["metric"]) for record in records)
    has_several_tasks = len({task for task, _ in metrics}) > 1
    for task, metric in metrics:
        # Tags and classes of tags are separate views, because a class is the mean of its tags.
        for bins in ("tag", "class"):
            shown = [
                record
                for record in records
                if (record["task"], record["metric"]) == (task, metric)
                and bool(record.settings.get("mean_of")) == (bins == "class")
            ]
            if not shown:
                continue
            name = metric_name(metric)
            choice = {"figure": f"{task}: {name}" if has_several_tasks else name}
            if axis.bars:
                choice["bins"] = bins
            table_id = f"{analysis}-{len(panels)}"
            panels += _panels(axis, shown, subjects, choice, table_id)
    if not panels:
        return None
    plot = Plot(f"{analysis}-plot", axis.title, (axis.note,), tuple(panels), kind="wide")
    return Section(analysis, axis.title, (), (plot,))


def figures_by_bin(
    records: Iterable[Record], subjects: Subjects
) -> tuple[Figures, dict[str, float]]:
    """Average the scores of each subject, language and bin over models and test sets. Return the
    averages, and the mean x value of each bin."""
    records = list(records)
    source_langs = {record.pair[0] for record in records}
    lines: dict[tuple[Subject, str, str], list[Figure]] = {}
    xs: dict[str, list[float]] = {}  # x values of each bin
    for record in records:
        lang = record.pair[-1] if len(source_langs) == 1 else "-".join(record.pair)
        name, x = record.plain.get("group"), record.plain.get("x")
        if name is None:
            name = "" if x is None else f"{x:,g}"
        if x is not None:
            xs.setdefault(name, []).append(x)
        lines.setdefault((subjects[record], lang, name), []).append(figure_of(record))
    figures: Figures = {}
    for subject, lang, name in lines:
        by_lang = figures.setdefault(subject, {})
        by_lang.setdefault(lang, {})[name] = average(lines[subject, lang, name])
    ordered = {subject: figures[subject] for subject in sorted(figures, key=_number)}
    return ordered, {name: sum(values) / len(values) for name, values in xs.items()}


def _number(subject: Subject) -> int:
    return subject.number


def _panels(
    axis: Axis,
    records: Sequence[Record],
    subjects: Subjects,
    choice: Mapping[str, str],
    table_id: str,
) -> list[Panel]:
    """Return one panel for each language and, with several languages, one for their mean."""
    figures, positions = figures_by_bin(records, subjects)
    views, left_out = _views_by_language(figures)
    measure = metric_name(records[0]["metric"])
    panels: list[Panel] = []
    for number, (lang, view) in enumerate(views.items()):
        names = list(dict.fromkeys(name for by_bin in view.values() for name in by_bin))
        # A curve needs the x value of every bin.
        on_axis = not axis.bars and all(name in positions for name in names)
        x_values = None
        if on_axis:
            names.sort(key=positions.__getitem__)
            x_values = positions
        drawing = _drawing(axis, view, names, x_values, lang=lang, measure=measure)
        table = _bin_table(axis, view, names, f"{table_id}-{number}", f"{lang}: {measure}")
        note: Text = ()
        if lang == ALL and left_out:
            bins = ", ".join(left_out)
            note = (f"Not in the mean, because some language has no score: {bins}.",)
        panels.append(Panel({"language": lang, **choice}, (drawing,), (table,), note))
    return panels


def _views_by_language(figures: Figures) -> tuple[dict[str, InView], list[str]]:
    """Return the scores by language, after their mean if there are several languages, and the names
    of the bins that the mean leaves out.
    """
    langs = list(dict.fromkeys(lang for by_lang in figures.values() for lang in by_lang))
    views: dict[str, InView] = {}
    left_out: list[str] = []
    if len(langs) > 1:
        means, left_out = _means(figures, langs)
        if means:
            views[ALL] = means
    for lang in langs:
        views[lang] = {
            subject: by_lang[lang] for subject, by_lang in figures.items() if lang in by_lang
        }
    return views, left_out


def _bin_table(axis: Axis, view: InView, names: Sequence[str], table_id: str, shown: str) -> Table:
    """Return the values of a plot, with a row per bin and a column per subject."""
    heads = tuple(Head(subject.label) for subject in view)
    lines = []
    for name in names:
        cells = tuple(Cell(by_bin.get(name)) for by_bin in view.values())
        lines.append(Line(name, cells))
    return Table(table_id, f"{axis.title}, {shown}", axis.across, heads, tuple(lines))


def _drawing(
    axis: Axis,
    view: InView,
    names: Sequence[str],
    positions: Mapping[str, float] | None,
    *,
    lang: str,
    measure: str,
) -> Drawing:
    """Draw the scores of one view as curves, or as bars if `positions` (the x values of the bins)
    is None.
    """
    labels = ", ".join(subject.label for subject in view)
    title = f"{axis.title}: {measure}, {lang}"
    description = (
        f"{measure.capitalize()} by {axis.across}, for {labels}. The table below contains the "
        "values."
    )
    series = [(subject.label, subject.number) for subject in view]
    if positions is None:
        figures = {
            (subject.number, name): figure
            for subject, by_bin in view.items()
            for name, figure in by_bin.items()
        }
        return bars(names, series, figures, title=title, measure=measure, description=description)
    points_of = {
        subject.number: [(positions[name], figure) for name, figure in by_bin.items()]
        for subject, by_bin in view.items()
    }
    ticks = {positions[name]: name for name in names} if axis.named else None
    return curve(
        series,
        points_of,
        title=title,
        measure=measure,
        description=description,
        across=axis.across,
        log=axis.log,
        names=ticks,
    )


def _means(figures: Figures, langs: Sequence[str]) -> tuple[InView, list[str]]:
    """Return the mean over languages of each bin that all languages have, and the names of all
    other bins.
    """
    means: InView = {}
    left_out: dict[str, None] = {}
    for subject, by_lang in figures.items():
        if set(by_lang) != set(langs):
            continue
        names = dict.fromkeys(name for by_bin in by_lang.values() for name in by_bin)
        for name in names:
            in_langs = [by_lang[lang][name] for lang in langs if name in by_lang[lang]]
            mean = mean_of(in_langs) if len(in_langs) == len(langs) else None
            if mean is None:
                left_out[name] = None
            else:
                means.setdefault(subject, {})[name] = mean
    return means, list(left_out)


# -- shape of the vector space ---------------------------------------------------------------------
def shape(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Return a section with a table of means over languages and a collapsed table for each
    measure.
    """
    # The measures of `SHAPES` come first, in its order.
    by_measure: dict[tuple[str, str], list[Record]] = {key: [] for key in SHAPES}
    for record in records:
        by_measure.setdefault(_measure(record), []).append(record)
    by_measure = {key: lines for key, lines in by_measure.items() if lines}
    if not by_measure:
        return None
    cells: dict[tuple[Subject, tuple[str, str]], Figure | None] = {}
    details: list[Table] = []
    for number, (key, lines) in enumerate(by_measure.items()):
        figures, _ = figures_by_bin(lines, subjects)
        langs = list(dict.fromkeys(lang for by_lang in figures.values() for lang in by_lang))
        for subject, by_lang in figures.items():
            cells[subject, key] = _mean_over_languages(by_lang, langs)
        title = SHAPES[key][0] if key in SHAPES else key[1]
        title = title[:1].upper() + title[1:]
        details.append(_by_language(f"shape-{number}", title, figures, langs))
    more = More("Measures by language", tuple(details))
    measures = [key for key in by_measure if key in SHAPES]
    title = "Shape of the vector space"
    if not measures:
        return Section("shape", title, (), (more,))
    rows = []
    for subject in sorted({subject for subject, _ in cells}, key=_number):
        row = tuple(Cell(cells.get((subject, key))) for key in measures)
        rows.append(Line(subject.label, row, subject.number))
    table = Table(
        "shape-table",
        "Shape of the vector space, mean over languages and directions",
        "encoder",
        tuple(Head(*SHAPES[key]) for key in measures),
        tuple(rows),
        note=(
            "These measures do not show which encoder is better; compare encoders by their task "
            "scores.",
        ),
    )
    return Section("shape", title, (), (table, more))


def _mean_over_languages(
    by_lang: Mapping[str, Mapping[str, Figure]], langs: Sequence[str]
) -> Figure | None:
    """Return the mean over languages and bins; None if a language is missing and there are several
    scores.
    """
    figures: list[Figure] = []
    for lang in langs:
        figures += by_lang.get(lang, {}).values()
    if len(figures) == 1:
        return figures[0]
    return mean_of(figures) if len(by_lang) == len(langs) else None


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
    """Return a table with a column for each language and bin, and a row for each subject."""
    columns: dict[tuple[str, str], None] = {}
    for by_lang in figures.values():
        for lang in langs:
            columns |= {(lang, bin_name): None for bin_name in by_lang.get(lang, {})}
    n_bins = Counter(lang for lang, _ in columns)
    heads = [Head(lang, bin_name if n_bins[lang] > 1 else "") for lang, bin_name in columns]
    rows = []
    for subject, by_lang in figures.items():
        cells = [Cell(by_lang.get(lang, {}).get(bin_name)) for lang, bin_name in columns]
        rows.append(Line(subject.label, tuple(cells), subject.number))
    return Table(name, title, "encoder", tuple(heads), tuple(rows))


# -- retrieval and transfer ------------------------------------------------------------------------
def transfer(headlines: Sequence[Question]) -> Section | None:
    """Plot zero-shot scores against retrieval scores (Cao et al. 2020, Fig. 2), with one view for
    each pair of questions.
    """
    retrieval = [question for question in headlines if question.about.role == "retrieval"]
    zero_shot = [question for question in headlines if question.about.role == "transfer"]
    panels = []
    for number, (across, up) in enumerate(product(retrieval, zero_shot)):
        panel = _panel(across, up, name=f"transfer{number}")
        if panel is not None:
            panels.append(panel)
    if not panels:
        return None
    note = (
        "Each point is one method in one language. The dashed line is the least-squares fit to "
        "all points.",
    )
    plot = Plot("transfer-plot", "Retrieval and transfer", note, tuple(panels), kind="wide")
    return Section("transfer", "Retrieval and transfer", (), (plot,))


def _panel(retrieval: Question, question: Question, *, name: str) -> Panel | None:
    """Plot the scores of one question against retrieval scores; None if their correlation is
    undefined.
    """
    points = _common_points(retrieval, question)
    correlation = pearson([point.x for point in points], [point.y for point in points])
    if correlation is None:
        return None
    r, low, high = correlation
    if low.value > 0:
        claim = "the correlation is positive"
    elif high.value < 0:
        claim = "the correlation is negative"
    else:
        claim = "the interval includes zero, so the correlation is not significant"
    note = ("Pearson's r over all points is ", r, " (", low, " to ", high, f"): {claim}. {_SHARED}")
    across = _metric_and_variant(retrieval)
    up = f"{question.title}, {_metric_and_variant(question)}"
    title = f"Retrieval and {question.title}"
    description = (
        f"One point per method and language: retrieval, {across} (horizontal), {up} (vertical). "
        "The table below has the values."
    )
    drawing = scatter(
        points, title=title, across=f"retrieval, {across}", up=up, description=description
    )
    lines = [
        Line(f"{point.label}, {point.lang}", (Cell(point.x), Cell(point.y)), point.number)
        for point in points
    ]
    heads = (Head(f"retrieval, {across}"), Head(up))
    table = Table(name, title, "method and language", heads, tuple(lines))
    return Panel({"task": up, "retrieval": across}, (drawing,), (table,), note)


def _common_points(retrieval: Question, question: Question) -> list[Point]:
    """Return a point for each method and target language with scores on both questions."""
    points = []
    for (subject, column), y in question.cells.items():
        if column.is_source or y.value is None:
            continue
        for (other, test), x in retrieval.cells.items():
            is_same_lang = test.lang.split("-")[-1] == column.lang
            if other == subject and is_same_lang and x.value is not None:
                points.append(Point(subject.label, subject.number, column.label, x, y))
    return points


def _metric_and_variant(question: Question) -> str:
    name = metric_name(question.metric)
    return f"{name}, {question.variant}" if question.variant else name


# -- word pairs in the plane -----------------------------------------------------------------------
def points(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Plot word pairs in two dimensions: the baseline is on the left, and the encoder compared with
    it is on the right.
    """
    by_langs: dict[tuple[str, ...], dict[Subject, Record]] = {}
    for record in records:
        if record.items:
            by_langs.setdefault(record.pair, {})[subjects[record]] = record
    views: list[_View] = []
    for langs, by_subject in by_langs.items():
        views += _views(langs, by_subject, subjects)
    if not views:
        return None
    max_pairs = max(20, _MAX_DOTS // (4 * len(views)))  # a view has two encoders and two languages
    panels: list[Panel] = []
    tables: dict[str, Table] = {}
    is_any_left_out = False
    for langs, by_subject in views:
        dots = {
            subject: [_dot(item) for item in record.items] for subject, record in by_subject.items()
        }
        pairs = {subject: {dot.pair for dot in of_subject} for subject, of_subject in dots.items()}
        shown = set(_spaced(sorted(set.intersection(*pairs.values()), key=str), max_pairs))
        is_any_left_out |= any(len(of_subject) > len(shown) for of_subject in pairs.values())
        drawings = []
        for subject in dots:
            dots[subject] = [dot for dot in dots[subject] if dot.pair in shown]
            description = (
                f"{len(shown)} words in {langs[0]} and their translations in {langs[-1]}: vectors "
                f"from {subject.label}, projected to two dimensions. A line joins translations. "
                "The table below has the words and their sentences."
            )
            title = f"Word pairs, {'-'.join(langs)}: {subject.label}"
            drawings.append(
                projection(
                    dots[subject],
                    label=subject.label,
                    title=title,
                    description=description,
                    langs=langs,
                )
            )
        after = list(dots)[-1]
        if langs[-1] not in tables:
            tables[langs[-1]] = _pair_table(f"points-{len(tables)}", langs, dots[after])
        panels.append(Panel({"language": langs[-1], "after": after.label}, tuple(drawings)))
    note = (
        "Open circles are words of the first language; filled squares are words of the second. A "
        "line joins a word and its translation; short lines indicate good alignment. Directions "
        "and large distances have little meaning in a projection.",
    )
    if is_any_left_out:
        note = (*note, f" At most {max_pairs} pairs are shown.")
    title = "Word pairs before and after alignment"
    plot = Plot("points-plot", title, note, tuple(panels), tuple(tables.values()), kind="pairs")
    return Section("points", title, (), (plot,))


#: languages, and the records of the one or two encoders that are shown side by side
_View = tuple[tuple[str, ...], dict[Subject, Record]]


def _views(
    langs: tuple[str, ...], by_subject: Mapping[Subject, Record], subjects: Subjects
) -> list[_View]:
    """Return a view for each encoder beside its baseline, the last encoder first."""
    first = min(by_subject, key=_number)
    if len(by_subject) == 1:
        return [(langs, dict(by_subject))]
    views = []
    for subject in sorted(by_subject, key=_number, reverse=True):
        base = subjects.base.get(subject, first)
        if base not in by_subject:
            base = first
        if base != subject:
            views.append((langs, {base: by_subject[base], subject: by_subject[subject]}))
    return views


def _spaced(pairs: Sequence[object], n: int) -> list[object]:
    """Return at most `n` items, evenly spaced."""
    if len(pairs) <= n:
        return list(pairs)
    return [pairs[k * len(pairs) // n] for k in range(n)]


def _dot(item: Mapping[str, Any]) -> Dot:
    word, sentence, lang = (str(item.get(name, "")) for name in ("word", "sentence", "lang"))
    return Dot(item["x"], item["y"], word, sentence, lang, item["pair"])


def _pair_table(name: str, langs: tuple[str, ...], dots: Sequence[Dot]) -> Table:
    """Return a table with the two words of each pair and their sentences."""
    sides = (langs[0], langs[-1])
    by_pair: dict[int, dict[str, Dot]] = {}
    for dot in dots:
        by_pair.setdefault(dot.pair, {})[dot.lang] = dot
    lines = []
    for number, (pair, by_lang) in enumerate(by_pair.items(), 1):
        cells: list[Cell] = []
        for lang in sides:
            dot = by_lang.get(lang)
            texts = ("", "") if dot is None else (dot.word, dot.sentence)
            cells += [Cell(text=(text,) if text else (), lang=lang) for text in texts]
        lines.append(Line(str(number), tuple(cells), key=f"{langs[-1]}-{pair}"))
    heads = []
    for lang in sides:
        heads += [Head(f"word, {lang}", numeric=False), Head(f"sentence, {lang}", numeric=False)]
    caption = f"Word pairs of {langs[0]} and {langs[-1]} in their sentences"
    return Table(name, caption, "pair", tuple(heads), tuple(lines), sortable=False)


# -- word types with several senses ----------------------------------------------------------------
def examples(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """List word types that have several senses, with the nearest word that each encoder
    retrieves.
    """
    numbers = {subject.label: subject.number for subject in subjects.all}
    items = [(item, record) for record in records for item in record.items]
    forms: dict[str, list[dict[str, Any]]] = {}
    for item, record in items[:_MAX_EXAMPLES]:
        example = _example(item, record, numbers)
        forms.setdefault(example["form"].lower(), []).append(example)
    if not forms:
        return None
    note: Text = ()
    if len(items) > _MAX_EXAMPLES:
        note = (f"Only the first {_MAX_EXAMPLES} of {len(items):,} occurrences are shown.",)
    intro = (
        "Occurrences of word types with several translations, and the nearest word in the other "
        "language for each encoder."
    )
    block = Examples("examples-list", forms, note)
    return Section("examples", "Word types with several senses", (intro,), (block,))


def _example(item: Mapping[str, Any], record: Record, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Return one occurrence of a word type, see `Examples`; `numbers` are those of the subjects."""
    before, form, after = _around_form(
        str(item["sentence"]), str(item["form"]), item.get("position")
    )
    lang = str(item.get("lang", record.pair[0]))
    others = [other for other in record.pair if other != lang]
    expected = item["expected"]
    answers = [
        (
            Name(name, numbers.get(name)),
            str(answer.get("word") or ""),
            str(answer.get("sentence", "")),
            bool(answer.get("right")),
        )
        for name, answer in item["got"].items()
    ]
    return {
        "before": before,
        "form": form,
        "after": after,
        "lang": lang,
        "expected": (
            str(expected.get("word", item.get("translation", ""))),
            str(expected.get("sentence", "")),
        ),
        "target": others[-1] if others else record.pair[-1],
        "answers": answers,
    }


def _around_form(sentence: str, form: str, position: object) -> tuple[str, str, str]:
    """Split a sentence into the text before a word form, the form, and the text after; the search
    starts at word `position`.
    """
    start = 0
    if isinstance(position, int):  # each word is followed by a space
        start = sum(len(word) + 1 for word in sentence.split(" ")[:position])
    match = re.compile(re.escape(form), re.IGNORECASE).search(sentence, start)
    if match is None:
        return "", form, f" · {sentence}"
    return sentence[: match.start()], match[0], sentence[match.end() :]
