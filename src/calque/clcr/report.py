"""Report section on key-point encoders: held-out scores, distance curves and example sentences (CLCR, Tables 1 to 3 and
Figures 1 to 3)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from calque.errors import InputError
from calque.report.content import in_words, run_title
from calque.report.document import Block, Cell, Head, Line, Panel, Plot, Section, Table, Text
from calque.report.numbers import Figure, Number, average, escape_source, figure_of
from calque.report.plots import svg
from calque.report.plots.axes import Frame, Scale, around, base_axis, legend, shape, value_axis
from calque.report.plots.svg import Drawing, Series, element, group, mark, path, shortened, text, width_of
from calque.report.reading import Record, RunRecord
from calque.report.verdict import metric_name

_LABELS = ("labels as they are", "confident labels")  # above and below
_FIRST = ("as it stands", *_LABELS)  # rows of a table; the others by their names
_TASKS = ("distance", "key-points", "order")
_SENTENCES, _ORDERS = 40, 20  # views in a figure, so that the page stays small
_POINTS = 30  # of a curve in a phase; a run has thousands of updates, each of another batch

_WIDTH = 760
_APART = 18.0  # between two phases
_SIDE, _LEAST, _MOST = 230.0, 13.0, 30.0  # of the matrix if cells may be as they like, and of a cell
_NAME = 92.0  # longest name of a row or column
_TURNED = math.sqrt(0.5)
_HIGH, _MIDDLE, _BETWEEN = 44.0, 24.0, 24.0  # a bar of 1, the line of the words, and between two lines
_LEFT, _NARROWEST, _WIDEST = 40.0, 26.0, 150.0  # room for the scale, and for a word
_BOLD = 1.1

_Runs = Mapping[str, RunRecord]  # by label
_Trained = Sequence[tuple[str, str, Record]]  # label, model, record
_Rows = Mapping[str, Mapping[tuple[str, str], Figure]]  # by row, metric and language
_Curve = Sequence[tuple[tuple[int, int], Figure]]  # first and last update of each point


def key_points(records: Sequence[RunRecord], lines: Sequence[tuple[str, Record]] = ()) -> Section | None:
    """Return the report section on key-point encoders, or None if no record is about them.

    Args:
        records: runs of any method.
        lines: training scores from result files (`Record.is_of_training`), each with the label of its run. In a study,
            these are the scores of its runs under the names of its methods.

    Raises:
        InputError: a score is invalid, or a line of metrics is not JSON; the message names file and place.
    """
    chosen = [run for run in records if run.plain.get("method") == "clcr"]
    runs = dict(zip(_labels(chosen), chosen, strict=True))
    scored = [*lines, *((label, s) for label, run in runs.items() if not (lines and run.is_step) for s in run.scores())]
    trained = [(label, str(score.settings["model"]), score) for label, score in scored if score["task"] in _TASKS]
    if not runs and not trained:
        return None
    found = (
        _distances(trained), _curves(runs), _extracted(trained), _sentences(runs), _ordered(trained), _matrices(runs),
    )  # fmt: skip
    blocks: tuple[Block, ...] = tuple(block for block in found if block is not None)
    intro: Text = ("What the training of key points measured on sentences held out from it.",)
    return Section("key-points", "Key points", intro, blocks)


def _labels(runs: Sequence[RunRecord]) -> list[str]:
    """Return the titles of runs; runs with equal titles also get the settings in which they differ."""
    titles, settings = [run_title(run) for run in runs], [run.plain.get("settings", {}) for run in runs]
    labels = []
    for title, own in zip(titles, settings, strict=True):
        alike = [other for other, its in zip(settings, titles, strict=True) if its == title]
        differ = [name for name in own if any(other.get(name) != own[name] for other in alike)]
        labels.append(", ".join([title, *(f"{name} {in_words(own[name])}" for name in differ)]))
    return labels


# -- Tables 1 to 3 ------------------------------------------------------------------------------------------------------
def _distances(trained: _Trained) -> Table | None:
    rows = _rows(trained, "distance", lambda label, _: label, " → ".join)
    rows = {label: {at: replace(f, digits=3) for at, f in figures.items()} for label, figures in rows.items()}
    note = (
        "Mean squared distance by dimension from each word to the nearest word of the translation under the transform; "
        "relative: as a share of the mean variance of a component.",
    )
    metrics = ("distance", "relative distance")
    return _table("clcr-distance", "Transform: distance, lower is better", "encoder", rows, metrics, note)


def _extracted(trained: _Trained) -> Table | None:
    note = (
        "Against the pivots of one translation, which are noisy labels themselves. Ambiguous: neither clearly a key point nor "
        "clearly none.",
    )
    rows, metrics = _by_model(trained, "key-points"), ("accuracy", "precision", "recall", "ambiguous")
    return _table("clcr-key-points", "Extract: key points, per cent", "learnt from", rows, metrics, note)


def _ordered(trained: _Trained) -> Table | None:
    note = ("Share of the n-grams of an order that the pivot language has, too; n: hypotheses of the search.",)
    rows, metrics = _by_model(trained, "order"), ("bleu-2", "bleu-3", "bleu-4")
    return _table("clcr-order", "Reorder: BLEU, per cent, higher is better", "order", rows, metrics, note)


def _by_model(trained: _Trained, task: str) -> _Rows:
    """Return the rows of a task by model, prefixed by the run label if there are several runs."""
    several = len({label for label, *_ in trained}) > 1
    return _rows(trained, task, lambda label, model: f"{label}, {model}" if several else model, lambda pair: pair[0])


def _rows(
    trained: _Trained, task: str, named: Callable[[str, str], str], column: Callable[[tuple[str, ...]], str]
) -> _Rows:
    """Return the scores of a task by row, metric and language; scores of several runs with one name are averaged."""
    labels = list(dict.fromkeys(label for label, *_ in trained))
    mine = [(label, model, score) for label, model, score in trained if score["task"] == task]
    places = {model: _FIRST.index(model) if model in _FIRST else len(_FIRST) for _, model, _ in mine}
    mine.sort(key=lambda each: (labels.index(each[0]), places[each[1]], each[1]))
    found: dict[str, dict[tuple[str, str], list[Figure]]] = {}
    for label, model, score in mine:
        at = score["metric"], column(score.pair)
        found.setdefault(named(label, model), {}).setdefault(at, []).append(figure_of(score))
    return {row: {at: average(figures) for at, figures in of_row.items()} for row, of_row in found.items()}


def _table(name: str, caption: str, corner: str, rows: _Rows, metrics: Sequence[str], note: Text) -> Table | None:
    """Return a table of models by metrics and languages; its last line holds the numbers of sentences."""
    langs = dict.fromkeys(lang for figures in rows.values() for _, lang in figures)
    columns = [place for place in product(metrics, langs) if any(place in figures for figures in rows.values())]
    if not columns:
        return None
    heads = tuple(Head(metric.upper() if "bleu" in metric else metric_name(metric), lang) for metric, lang in columns)
    lines = tuple(Line(label, tuple(Cell(figures.get(place)) for place in columns)) for label, figures in rows.items())
    sizes = []
    for place in columns:
        known = [figures[place] for figures in rows.values() if place in figures]
        sizes.append(Cell(number=known[0].part("n")) if len({figure.n for figure in known}) == 1 else Cell(text=("",)))
    return Table(name, caption, corner, heads, lines, (Line("n", tuple(sizes), detail="sentences"),), note)


# -- Figure 1 -----------------------------------------------------------------------------------------------------------
def _curves(runs: _Runs) -> Plot | None:
    """Return a plot of the distance over the training phases, for each run and language."""
    panels = []
    for label, run in runs.items():
        pivot = str(run.plain.get("towards"))
        for lang in run.plain.get("pivots", {}):
            encoders = {f"encoder-{each}": f"encoder of {each}" for each in (lang, pivot)}
            names = {f"transform-{lang}": "transforms", **encoders, f"refine-{lang}": "refinement"}
            phases = {name: points for place, name in names.items() if (points := _points(run, place, lang, pivot))}
            if phases:
                panels.append(_curve(label, lang, pivot, phases, f"clcr-phases-{len(panels)}"))
    if not panels:
        return None
    note = (
        "Mean distance of the sentences of an update, in units of the variance of a component where the training scales the "
        "vectors, and at the temperature of the time: each phase has an annealing of its own, so its curve begins anew. First "
        "the transforms learn; then the encoder of the other language; then that of the pivot. The refinement counts mutual best "
        "pairs of words alone, so its distances are smaller.",
    )
    return Plot("key-points-phases-plot", "Distance over the phases", note, tuple(panels), kind="wide")


_Points = Sequence[tuple[tuple[int, int], Mapping[str, Figure]]]  # first and last update, and the mean of each metric


def _points(run: RunRecord, phase: str, lang: str, pivot: str) -> _Points:
    """Return the metrics of a phase's updates, averaged over windows if there are more updates than points."""
    metrics, inside = (f"{lang}-{pivot}", f"{pivot}-{lang}", "temperature"), f"training/{phase}/metrics.jsonl"
    file: Path = run.path.parent / inside
    written = file.read_text(encoding="utf-8", errors="replace").split("\n") if file.is_file() else []
    lines = []
    for number, line in enumerate(written, 1):
        if not line.strip():
            continue
        try:
            plain = json.loads(line)
        except ValueError as error:
            raise InputError(f"is not JSON ({error})", path=file, line=number) from error
        if all(math.isfinite(plain.get(key, math.nan)) for key in ("step", *metrics)):
            lines.append((number, plain))
    size = max(1, math.ceil(len(lines) / _POINTS))
    found = []
    for start in range(0, len(lines), size):
        window = lines[start : start + size]
        (first, one), (last, other) = window[0], window[-1]
        source, kind = (f"{first}", "entry") if first == last else (f"{first}-{last}", "window")
        sources = (escape_source(f"{run.name}/{inside}:{source}"),)
        means = {key: sum(plain[key] for _, plain in window) / len(window) for key in metrics}
        figures = {k: Figure(v, None, None, k, sources, kind, percent=False, digits=3) for k, v in means.items()}
        found.append(((int(one["step"]), int(other["step"])), figures))
    return found


def _curve(label: str, lang: str, pivot: str, phases: Mapping[str, _Points], name: str) -> Panel:
    metrics = {"-".join(pair): " → ".join(pair) for pair in ((lang, pivot), (pivot, lang))}
    drawn = {
        phase: {k: [(span, figures[m]) for span, figures in points] for k, m in enumerate(metrics, 1)}
        for phase, points in phases.items()
    }
    title = f"Distance over the phases, {lang}-{pivot}: {label}"
    about = (
        f"Distance of {lang} and {pivot} in both directions, over the updates of each phase: "
        f"{', '.join(phases)}. The figures are in the table below."
    )
    series = [(direction, number) for number, direction in enumerate(metrics.values(), 1)]
    drawing = _phases(drawn, series, title=title, measure="distance", description=about)
    lines = tuple(
        Line(
            f"{first:,}" if first == last else f"{first:,}–{last:,}",
            tuple(Cell(figures[metric]) for metric in (*metrics, "temperature")),
            detail=phase,
        )
        for phase, points in phases.items()
        for (first, last), figures in points
    )
    heads = (*(Head(f"distance, {direction}") for direction in metrics.values()), Head("temperature"))
    table = Table(name, title, "updates", heads, lines, sortable=False)
    return Panel({"encoder": label, "language": lang}, (drawing,), (table,))


# -- Figures 2 and 3 ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Example:
    """An entry of a record's `examples`, with the label and settings of its run and its source."""

    label: str
    settings: Mapping[str, Any]
    plain: Mapping[str, Any]
    source: str

    def __getitem__(self, name: str) -> Any:
        return self.plain[name]

    @property
    def name(self) -> str:
        return f"sentence {self['sentence'] + 1} ({self['lang']}): {self.label}"

    @property
    def choice(self) -> dict[str, str]:
        return {"encoder": self.label, "language": self["lang"], "sentence": str(self["sentence"] + 1)}


def _examples(runs: _Runs, kind: str, most: int) -> tuple[list[_Example], str]:
    """Return the first entries of each run and language that have the field `kind`, about `most` in total, and a note
    if entries are left out."""
    groups: dict[tuple[str, str], list[_Example]] = {}
    for label, run in runs.items():
        for number, entry in enumerate(run.plain.get("examples", [])):
            if kind in entry:
                source = escape_source(f"{run.file}:examples/{number}")
                example = _Example(label, run.plain.get("settings", {}), entry, source)
                groups.setdefault((label, entry["lang"]), []).append(example)
    each = max(1, most // max(len(groups), 1))
    left_out = any(len(group) > each for group in groups.values())
    shown = [one for group in groups.values() for one in group[:each]]
    return shown, " Of each encoder and language, the first ones." if left_out else ""


def _sentences(runs: _Runs) -> Plot | None:
    """Return a plot of the key-point probabilities of the words of example sentences."""
    of, left_out = _examples(runs, "probabilities", _SENTENCES)
    if not of:
        return None
    panels = tuple(_sentence(example, f"clcr-words-{k}") for k, example in enumerate(of))
    two = any(len(example["probabilities"]) > 1 for example in of)
    note = (
        "Each word of a sentence with its probability to be a key point",
        f", learnt from {_LABELS[0]} (above) and from {_LABELS[1]} (below)" if two else "",
        ". Bold: pivots, the words that have a partner in this translation. Dashed: the threshold δ, above which a word is a key "
        "point.",
        left_out,
    )
    return Plot("key-points-words-plot", "Key points of a sentence", note, panels, kind="wide")


def _sentence(example: _Example, name: str) -> Panel:
    given = example["probabilities"]
    models = sorted(given, key=lambda model: _LABELS.index(model) if model in _LABELS else len(_LABELS))[:2]
    figures = [
        [Figure(value, None, None, "probability", (example.source,), "entry", percent=False) for value in given[model]]
        for model in models
    ]
    of_word = zip(example["words"], example["pivots"], zip(*figures, strict=True), strict=True)
    words = [_Word(*each) for each in of_word]
    title = f"Key points of {example.name}"
    about = (
        f"The words of a sentence with the probability of each to be a key point ({', '.join(models)}); pivots are set in bold. "
        "The figures are in the table below."
    )
    series = [(model, number) for number, model in enumerate(models, 1)]
    threshold = float(example.settings.get("delta", 0.2))  # δ of the paper; older records have another
    drawing = _words_drawn(words, series, threshold=threshold, title=title, description=about)
    heads = [Head("word", numeric=False), Head("pivot", numeric=False), *(Head("probability", m) for m in models)]
    lines = []
    for k, word in enumerate(words, 1):
        said = (Cell(text=(word.text,), lang=example["lang"]), Cell(text=("yes" if word.marked else "no",)))
        lines.append(Line(str(k), (*said, *map(Cell, word.figures))))
    table = Table(name, title, "number", tuple(heads), tuple(lines), sortable=False)
    return Panel(example.choice, (drawing,), (table,))


def _matrices(runs: _Runs) -> Plot | None:
    """Return a plot of the gold and predicted orders of the key points of example sentences."""
    of, left_out = _examples(runs, "ranks", _ORDERS)
    if not of:
        return None
    panels = tuple(_order(example, str(k)) for k, example in enumerate(of))
    note = (
        "In rows the key points of a sentence, in their own order. Places: how probable each place in the order of the pivot "
        "language is. Pairs: how probable it is that the key point of the row stands there before that of the column. The "
        "stronger the colour, the more probable.",
        left_out,
    )
    return Plot("key-points-order-plot", "Order of key points", note, panels)


def _order(example: _Example, key: str) -> Panel:
    words, ranks = example["words"], example["ranks"]
    kinds = {
        "places": ("Places", [str(k + 1) for k in range(len(words))], [[a == k for k in range(len(ranks))] for a in ranks]),
        "before": ("Pairs", words, [[a < b for b in ranks] for a in ranks]),
    }  # fmt: skip
    drawings, tables = [], []
    for name, (called, columns, right) in kinds.items():
        if name not in example.plain:
            continue
        said = [
            [None if name == "before" and i == j else Number(p, "entry.value", ((example.source,),)) for j, p in enumerate(row)]
            for i, row in enumerate(example[name])
        ]  # fmt: skip
        for kind, cells in (("gold", right), ("predicted", said)):
            about = f"{called}, {kind}: {len(words)} key points down. The figures are in the table below."
            drawings.append(_matrix(
                words, columns, cells, label=f"{called}, {kind}", number=1, turned=name == "before",
                title=f"Order of key points of {example.name}", description=about,
            ))  # fmt: skip
        lines = tuple(
            Line(word, tuple(Cell(number=p) if p else Cell(text=("",)) for p in row), detail=f"gold: place {rank + 1}")
            for word, row, rank in zip(words, said, ranks, strict=True)
        )
        heads, caption = tuple(map(Head, columns)), f"{called} of key points, {example.name}"
        tables.append(Table(f"clcr-{name}-{key}", caption, "key point", heads, lines, sortable=False))
    return Panel(example.choice, tuple(drawings), tuple(tables))


# -- drawings -----------------------------------------------------------------------------------------------------------
def _phases(
    each: Mapping[str, Mapping[int, _Curve]], series: Series, *, title: str, measure: str, description: str
) -> Drawing:
    """Draw the curves of training phases side by side, with one shared scale and equal widths.

    Args:
        each: curves by phase name and series number.
        series: names and numbers of the curves.
    """
    signs, top = legend(series, 16, 16, _WIDTH - 16)
    whole = Frame(52, top + 26, _WIDTH - 12, 276)
    every = [points for curves in each.values() for points in curves.values()]
    known = [figure.value for points in every for _, figure in points if figure.value is not None]
    y = Scale(*around(known, zero=True), whole.bottom, whole.top + 20)
    parts: list[str] = [signs, value_axis(whole, y, y.ticks(), measure)]
    step = (whole.right - whole.left + _APART) / len(each)
    for k, (name, curves) in enumerate(each.items()):
        end = max((last for points in curves.values() for (_, last), _ in points), default=1)
        frame = Frame(whole.left + k * step, whole.top + 20, whole.left + (k + 1) * step - _APART, whole.bottom)
        x = Scale(0, max(1, end), frame.left, frame.right - 6)
        parts.append(base_axis(frame, x, x.ticks(3 if len(each) > 1 else 6)[:: 1 if end > 3 else 2], "update"))
        parts.append(element("line", x1=frame.left, x2=frame.left, y1=frame.top, y2=frame.bottom, class_="axis"))
        shown = shortened(f"{k + 1}. {name}" if len(each) > 1 else name, step - _APART - 8)
        parts.append(text(frame.left + 8, frame.top - 8, shown, class_="label strong"))
        for label, number in series:
            points = [(span, figure) for span, figure in curves.get(number, ()) if figure.value is not None]
            line = [(x(last), y(figure.value)) for (_, last), figure in points]  # type: ignore[arg-type]
            drawn: list[str] = []
            for ((first, last), figure), (px, py) in zip(points, line, strict=True):
                where = f"update {last:,}" if first == last else f"updates {first:,} to {last:,}"
                sign = shape(number, px, py, 4.5 if (px, py) == line[-1] else 2.0)
                drawn.append(mark(sign, tip=f"{label}, {name}, {where}: {figure}", source=figure.traced))
            if len(line) > 1:  # over the signs, which it would otherwise seem to be made of
                drawn.insert(-1, path(line, class_="curve", pointer_events="none"))
            parts.append(group(*drawn, class_=svg.series(number)))
    return Drawing(_WIDTH, 320, "".join(parts), title, description)


class _Word(NamedTuple):
    """A word, whether it is bold, and one or two probabilities: for the bar above, and for the bar below."""

    text: str
    marked: bool
    figures: Sequence[Figure]


def _words_drawn(words: Sequence[_Word], series: Series, *, threshold: float, title: str, description: str) -> Drawing:
    """Draw the words of a sentence with bars above and below them, wrapped into lines like running text.

    Args:
        words: words of the sentence, in order.
        series: names and numbers of the bars above and below.
        threshold: probability marked by a dashed line.
    """
    width, below = 760, len(series) > 1
    lines = _lines(words, width - _LEFT - 8)
    signs, top = legend(series, 16, 16, width - 16)
    parts: list[str] = [signs]
    y = top + 2
    for line in lines:
        right = _LEFT + sum(wide for _, wide in line)
        foot = y + _HIGH  # of the bars above
        scales = [(foot, -_HIGH), *([(foot + _MIDDLE, _HIGH)] if below else [])]
        for zero, high in scales:
            for value, kind in ((0.0, "axis"), (1.0, "grid")):
                parts.append(_across(_LEFT, right, zero + value * high, value, class_=kind))
            parts.append(_across(_LEFT, right, zero + threshold * high, None, class_="axis", stroke_dasharray="4 3"))
        x = _LEFT
        for word, wide in line:
            for figure, (zero, high), (label, number) in zip(word.figures, scales, series, strict=False):
                if figure.value is None:
                    continue
                bar = min(24.0, wide - 6)
                tall = max(1.0, abs(high) * figure.value)
                box = {"x": x + (wide - bar) / 2, "y": zero - tall if high < 0 else zero, "width": bar, "height": tall}
                tip = f"{word.text}, {label}: {figure}"
                drawn = mark(element("rect", class_="bar", **box), tip=tip, source=figure.traced)
                parts.append(group(drawn, class_=svg.series(number)))
            look = "label strong middle" if word.marked else "middle"
            shown = shortened(word.text, (wide - 6) / (_BOLD if word.marked else 1))
            parts.append(text(x + wide / 2, foot + _MIDDLE / 2 + 4, shown, class_=look))
            x += wide
        y = foot + _MIDDLE + (_HIGH if below else 0) + _BETWEEN
    return Drawing(width, y - _BETWEEN + 10, "".join(parts), title, description)


def _lines(words: Sequence[_Word], room: float) -> list[list[tuple[_Word, float]]]:
    """Wrap words into lines no wider than `room`, and return each word with its width."""
    lines: list[list[tuple[_Word, float]]] = [[]]
    used = 0.0
    for word in words:
        wide = min(_WIDEST, max(_NARROWEST, width_of(word.text) * (_BOLD if word.marked else 1) + 10))
        if lines[-1] and used + wide > room:
            lines.append([])
            used = 0.0
        lines[-1].append((word, wide))
        used += wide
    return lines


def _across(left: float, right: float, y: float, value: float | None, **attributes: str) -> str:
    """Return a horizontal line, with its value as a label on the left if given."""
    line = element("line", x1=left, x2=right, y1=y, y2=y, **attributes)
    return line if value is None else line + text(left - 6, y + 4, f"{value:g}", class_="tick end")


def _matrix(
    rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[float | Number | None]], *, label: str,
    title: str, description: str, number: int, turned: bool = False,
) -> Drawing:  # fmt: skip
    """Draw a square matrix of probabilities; stronger colours are more probable.

    Args:
        rows, columns: labels of the rows and columns.
        cells: probabilities from 0 to 1: a `Number`, a plain float for a gold value, or None for an empty cell.
        label: heading of the matrix where several are side by side.
        number: number of the series that sets the colour.
        turned: draw the column labels diagonally, which suits words.
    """
    n = len(rows)
    size = min(_MOST, max(_LEAST, _SIDE / max(n, 1)))
    names = [[shortened(name, _NAME, 11) for name in side] for side in (rows, columns)]
    widest = [max((width_of(name, 11) for name in side), default=0) for side in names]
    left, top = 14 + widest[0], 12 + (_TURNED * widest[1] if turned else 14)
    right = 8 + _TURNED * max(widest)  # whether turned or not: matrices of the same rows are equally wide
    parts: list[str] = [element("rect", x=left, y=top, width=size * n, height=size * n, class_="none")]
    for k in range(n):
        at = size * (k + 0.5)
        parts.append(text(left - 7, top + at + 4, names[0][k], class_="label small end"))
        x, y = left + at + (3 if turned else 0), top - 6
        turn = {"transform": f"rotate(-45 {x:.1f} {y:.1f})"} if turned else {}
        parts.append(text(x, y, names[1][k], class_="label small" if turned else "label small middle", **turn))
    for r, line in enumerate(cells):
        for c, value in enumerate(line):
            if value is None or value == 0:
                continue
            share = value.value if isinstance(value, Number) else value
            box = {"x": left + size * c, "y": top + size * r, "width": size, "height": size}
            drawn = element("rect", class_="cell shade", fill_opacity=round(share, 2), **box)
            if isinstance(value, Number):
                drawn = mark(drawn, tip=f"{rows[r]}, {columns[c]}: {value.shown}", source=value.traced)
            parts.append(drawn)
    body = group(*parts, class_=svg.series(number))
    return Drawing(left + size * n + right, top + size * n + 8, body, title, description, label)
