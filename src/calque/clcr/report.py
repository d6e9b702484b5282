"""Report section on key-point encoders: held-out scores, distance curves and example sentences (CLCR, Tables 1 to 3 and
Figures 1 to 3)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from calque.errors import InputError
from calque.report.content import in_words, run_title
from calque.report.document import Cell, Head, Line, Panel, Plot, Section, Table, Text
from calque.report.numbers import Figure, Number, average, escape_source, figure_of
from calque.report.plots import svg
from calque.report.plots.svg import Drawing, Frame, Scale, Series, element, group, mark, path, shortened, text, width_of
from calque.report.reading import Record, RunRecord
from calque.report.verdict import metric_name

_LABELS = ("labels as they are", "confident labels")  # models whose bars are above and below the words
_FIRST = ("as it stands", *_LABELS)  # first rows of a table; the other rows are sorted by name
_SENTENCES, _ORDERS = 40, 20  # maximum number of views of a plot, so that the page stays small
_POINTS = 30  # maximum number of points of a curve in a phase; a run has thousands of updates

_WIDTH = 760
_GAP = 18.0  # between two phases
_SIDE, _MIN_CELL, _MAX_CELL = 230.0, 13.0, 30.0  # sides of a matrix and of its cells
_NAME = 92.0  # maximum width of the name of a row or column
_DIAGONAL = math.sqrt(0.5)
_HIGH, _MIDDLE, _BETWEEN = 44.0, 24.0, 24.0  # heights of a bar of 1, of a line of words, and of the gap between lines
_LEFT, _NARROWEST, _WIDEST = 40.0, 26.0, 150.0  # width of the scale, and minimum and maximum width of a word
_BOLD = 1.1  # relative width of bold letters

# Tables 1 to 3 by task: id, caption, head of the column of names, metrics and note
_TABLES: Mapping[str, tuple[str, str, str, tuple[str, ...], str]] = {
    "distance": (
        "clcr-distance", "Transform: distance, lower is better", "encoder", ("distance", "relative distance"),
        "Mean squared distance per dimension from each word to the nearest word of the translation under the transform; "
        "relative: divided by the mean variance of a component.",
    ),
    "key-points": (
        "clcr-key-points", "Extract: key points, per cent", "trained on", ("accuracy", "precision", "recall", "ambiguous"),
        "Scores against the pivots of one translation, which are noisy labels. Ambiguous: words whose probability "
        "is neither low nor high.",
    ),
    "order": (
        "clcr-order", "Reorder: BLEU, per cent, higher is better", "order", ("bleu-2", "bleu-3", "bleu-4"),
        "Fraction of the n-grams of an order that also occur in the order of the pivot language; n: number of hypotheses of "
        "the search.",
    ),
}  # fmt: skip

_Runs = Mapping[str, RunRecord]  # record of each label
_Scores = Sequence[tuple[str, str, Record]]  # label, model, record
_Points = Sequence[tuple[tuple[int, int], Mapping[str, Figure]]]  # first and last update, and the mean of each metric


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
    scores = [(label, str(score.settings["model"]), score) for label, score in scored if score["task"] in _TABLES]
    if not runs and not scores:
        return None
    distance, extracted, ordered = (_table(scores, task) for task in _TABLES)
    found = (distance, _curves(runs), extracted, _sentences(runs), ordered, _matrices(runs))
    intro: Text = ("Scores of the training of key points on held-out sentences.",)
    return Section("key-points", "Key points", intro, tuple(block for block in found if block is not None))


def _labels(runs: Sequence[RunRecord]) -> list[str]:
    """Return the titles of runs; runs with equal titles also get the settings in which they differ."""
    titles, settings = [run_title(run) for run in runs], [run.plain.get("settings", {}) for run in runs]
    labels = []
    for title, own in zip(titles, settings, strict=True):
        alike = [other for other, its in zip(settings, titles, strict=True) if its == title]
        differ = [name for name in own if any(other.get(name) != own[name] for other in alike)]
        labels.append(", ".join([title, *(f"{name} {in_words(own[name])}" for name in differ)]))
    return labels


# -- Tables 1 to 3 -----------------------------------------------------------------------------------------------------
def _table(scores: _Scores, task: str) -> Table | None:
    """Return a table of models by metrics and languages; its last line holds the numbers of sentences."""
    rows = _rows(scores, task)
    name, caption, corner, metrics, note = _TABLES[task]
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
    return Table(name, caption, corner, heads, lines, (Line("n", tuple(sizes), detail="sentences"),), (note,))


def _rows(scores: _Scores, task: str) -> Mapping[str, Mapping[tuple[str, str], Figure]]:
    """Return the scores of a task by row, metric and language. Rows are runs for the distance, otherwise models, prefixed
    by the run if there are several; scores of several runs with one name are averaged."""
    labels = list(dict.fromkeys(label for label, *_ in scores))
    mine = [each for each in scores if each[2]["task"] == task]
    rank = {name: number for number, name in enumerate(_FIRST)}
    mine.sort(key=lambda each: (labels.index(each[0]), rank.get(each[1], len(rank)), each[1]))
    found: dict[str, dict[tuple[str, str], list[Figure]]] = {}
    for label, model, score in mine:
        row, lang = model if len(labels) == 1 else f"{label}, {model}", score.pair[0]
        if task == "distance":
            row, lang = label, " → ".join(score.pair)
        figure = replace(figure_of(score), digits=3 if task == "distance" else 2)
        found.setdefault(row, {}).setdefault((score["metric"], lang), []).append(figure)
    return {row: {at: average(figures) for at, figures in of_row.items()} for row, of_row in found.items()}


# -- Figure 1 ----------------------------------------------------------------------------------------------------------
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
    note = (
        "Mean distance of the sentences of an update, in units of the variance of a component where the training scales the "
        "vectors, and at the temperature of the update. Each phase has its own annealing, so its curve starts again: first the "
        "transforms are trained, then the encoder of the other language, then the encoder of the pivot language. The refinement "
        "uses only mutual best pairs of words, so its distances are smaller.",
    )
    plot = Plot("key-points-phases-plot", "Distance over the phases", note, tuple(panels), kind="wide")
    return plot if panels else None


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
    title = f"Distance over the phases, {lang}-{pivot}: {label}"
    about = (
        f"Distance of {lang} and {pivot} in both directions, over the updates of each phase: "
        f"{', '.join(phases)}. The values are in the table below."
    )
    drawing = _phases(phases, metrics, title=title, measure="distance", description=about)
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


# -- Figures 2 and 3 ---------------------------------------------------------------------------------------------------
def _examples(runs: _Runs, kind: str, max_views: int) -> tuple[list[dict[str, Any]], str]:
    """Return the first entries of each run and language that have the field `kind`, with `source`, `name`, `choice` and
    `delta`, and a note if entries are left out."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for label, run in runs.items():
        delta = run.plain.get("settings", {}).get("delta", 0.2)  # δ of the paper; older records hold another
        for number, entry in enumerate(run.plain.get("examples", [])):
            if kind in entry:
                lang, sentence = entry["lang"], entry["sentence"] + 1
                about = {"name": f"sentence {sentence} ({lang}): {label}", "delta": float(delta)}
                about["choice"] = {"encoder": label, "language": lang, "sentence": str(sentence)}
                source = escape_source(f"{run.file}:examples/{number}")
                groups.setdefault((label, lang), []).append({**entry, **about, "source": source})
    each = max(1, max_views // max(len(groups), 1))
    left_out = any(len(group) > each for group in groups.values())
    chosen = [one for group in groups.values() for one in group[:each]]
    return chosen, " Only the first sentences of each encoder and language." if left_out else ""


def _sentences(runs: _Runs) -> Plot | None:
    """Return a plot of the key-point probabilities of the words of example sentences."""
    examples, left_out = _examples(runs, "probabilities", _SENTENCES)
    two = any(len(example["probabilities"]) > 1 for example in examples)
    note = (
        "Each word of a sentence, with its probability of being a key point",
        f", trained on {_LABELS[0]} (above) and on {_LABELS[1]} (below)" if two else "",
        ". Bold: pivots, the words that have a partner in this translation. Dashed: the threshold δ, above which a word is a key "
        "point.",
        left_out,
    )
    panels = tuple(_sentence(example, f"clcr-words-{k}") for k, example in enumerate(examples))
    return Plot("key-points-words-plot", "Key points of a sentence", note, panels, kind="wide") if panels else None


def _sentence(example: Mapping[str, Any], name: str) -> Panel:
    given = example["probabilities"]
    models = sorted(given, key=lambda model: _LABELS.index(model) if model in _LABELS else len(_LABELS))[:2]
    figures = [
        [
            Figure(value, None, None, "probability", (example["source"],), "entry", percent=False)
            for value in given[model]
        ]
        for model in models
    ]
    of_word = zip(example["words"], example["pivots"], zip(*figures, strict=True), strict=True)
    words = [_Word(*each) for each in of_word]
    title = f"Key points of {example['name']}"
    about = (
        f"The words of a sentence with the probability of each to be a key point ({', '.join(models)}); pivots are set in bold. "
        "The values are in the table below."
    )
    series = [(model, number) for number, model in enumerate(models, 1)]
    drawing = _words_drawn(words, series, threshold=example["delta"], title=title, description=about)
    heads = [Head("word", numeric=False), Head("pivot", numeric=False), *(Head("probability", m) for m in models)]
    lines = []
    for k, word in enumerate(words, 1):
        cells = (Cell(text=(word.text,), lang=example["lang"]), Cell(text=("yes" if word.pivot else "no",)))
        lines.append(Line(str(k), (*cells, *map(Cell, word.figures))))
    table = Table(name, title, "number", tuple(heads), tuple(lines), sortable=False)
    return Panel(example["choice"], (drawing,), (table,))


def _matrices(runs: _Runs) -> Plot | None:
    """Return a plot of the gold and predicted orders of the key points of example sentences."""
    examples, left_out = _examples(runs, "ranks", _ORDERS)
    note = (
        "Rows: the key points of a sentence, in their own order. Places: the probability of each place in the order of the pivot "
        "language. Pairs: the probability that the key point of the row precedes the key point of the column there. Stronger "
        "colours are more probable.",
        left_out,
    )
    panels = tuple(_order(example, str(k)) for k, example in enumerate(examples))
    return Plot("key-points-order-plot", "Order of key points", note, panels) if panels else None


def _order(example: Mapping[str, Any], key: str) -> Panel:
    words, ranks = example["words"], example["ranks"]
    kinds = {
        "places": ("Places", [str(k + 1) for k in range(len(words))], [[a == k for k in range(len(ranks))] for a in ranks]),
        "before": ("Pairs", words, [[a < b for b in ranks] for a in ranks]),
    }  # fmt: skip
    drawings, tables = [], []
    for name, (title, columns, gold) in kinds.items():
        if name not in example:
            continue
        sources = ((example["source"],),)
        predicted = [
            [None if name == "before" and i == j else Number(p, "entry.value", sources) for j, p in enumerate(row)]
            for i, row in enumerate(example[name])
        ]
        for kind, cells in (("gold", gold), ("predicted", predicted)):
            about = f"{title}, {kind}: {len(words)} key points down. The values are in the table below."
            drawings.append(_matrix(
                words, columns, cells, label=f"{title}, {kind}", diagonal=name == "before",
                title=f"Order of key points of {example['name']}", description=about,
            ))  # fmt: skip
        lines = tuple(
            Line(word, tuple(Cell(number=p) if p else Cell(text=("",)) for p in row), detail=f"gold: place {rank + 1}")
            for word, row, rank in zip(words, predicted, ranks, strict=True)
        )
        heads, caption = tuple(map(Head, columns)), f"{title} of key points, {example['name']}"
        tables.append(Table(f"clcr-{name}-{key}", caption, "key point", heads, lines, sortable=False))
    return Panel(example["choice"], tuple(drawings), tuple(tables))


# -- drawings ----------------------------------------------------------------------------------------------------------
def _phases(
    phases: Mapping[str, _Points], metrics: Mapping[str, str], *, title: str, measure: str, description: str
) -> Drawing:
    """Draw the curves of training phases side by side, with one shared scale and equal widths; `metrics` holds the label of
    each curve."""
    series = [(label, number) for number, label in enumerate(metrics.values(), 1)]
    signs, top = svg.legend(series, 16, 16, _WIDTH - 16)
    whole = Frame(52, top + 26, _WIDTH - 12, 276)
    values = [figures[m].value for points in phases.values() for _, figures in points for m in metrics]
    y = Scale(*svg.around((value for value in values if value is not None), zero=True), whole.bottom, whole.top + 20)
    parts: list[str] = [signs, svg.value_axis(whole, y, y.ticks(), measure)]
    step = (whole.right - whole.left + _GAP) / len(phases)
    for k, (name, points) in enumerate(phases.items()):
        end = max(last for (_, last), _ in points)
        frame = Frame(whole.left + k * step, whole.top + 20, whole.left + (k + 1) * step - _GAP, whole.bottom)
        x = Scale(0, max(1, end), frame.left, frame.right - 6)
        parts.append(svg.base_axis(frame, x, x.ticks(3 if len(phases) > 1 else 6)[:: 1 if end > 3 else 2], "update"))
        parts.append(element("line", x1=frame.left, x2=frame.left, y1=frame.top, y2=frame.bottom, class_="axis"))
        heading = shortened(f"{k + 1}. {name}" if len(phases) > 1 else name, step - _GAP - 8)
        parts.append(text(frame.left + 8, frame.top - 8, heading, class_="label strong"))
        for number, (metric, label) in enumerate(metrics.items(), 1):
            line = [(x(last), y(figures[metric].value)) for (_, last), figures in points]  # type: ignore[arg-type]
            drawn: list[str] = []
            for ((first, last), figures), (px, py) in zip(points, line, strict=True):
                where = f"update {last:,}" if first == last else f"updates {first:,} to {last:,}"
                sign, figure = svg.shape(number, px, py, 4.5 if (px, py) == line[-1] else 2.0), figures[metric]
                drawn.append(mark(sign, tip=f"{label}, {name}, {where}: {figure}", source=figure.traced))
            if len(line) > 1:  # above the small markers, so that the curve looks continuous
                drawn.insert(-1, path(line, class_="curve", pointer_events="none"))
            parts.append(group(*drawn, class_=svg.series(number)))
    return Drawing(_WIDTH, 320, "".join(parts), title, description)


class _Word(NamedTuple):
    """A word, and one or two probabilities: for the bar above, and for the bar below."""

    text: str
    pivot: bool
    figures: Sequence[Figure]


def _words_drawn(words: Sequence[_Word], series: Series, *, threshold: float, title: str, description: str) -> Drawing:
    """Draw the words of a sentence with bars above and below them, wrapped into lines like running text.

    Args:
        series: names and numbers of the bars above and below.
        threshold: probability marked by a dashed line.
    """
    below = len(series) > 1
    signs, top = svg.legend(series, 16, 16, _WIDTH - 16)
    parts: list[str] = [signs]
    y = top + 2
    for line in _wrapped(words, _WIDTH - _LEFT - 8):
        right = _LEFT + sum(wide for _, wide in line)
        foot = y + _HIGH  # lower end of the bars above
        scales = [(foot, -_HIGH), *([(foot + _MIDDLE, _HIGH)] if below else [])]
        for zero, high in scales:
            for value, kind in ((0.0, "axis"), (1.0, "grid")):
                at = zero + value * high
                parts.append(element("line", x1=_LEFT, x2=right, y1=at, y2=at, class_=kind))
                parts.append(text(_LEFT - 6, at + 4, f"{value:g}", class_="tick end"))
            at = zero + threshold * high
            parts.append(element("line", x1=_LEFT, x2=right, y1=at, y2=at, class_="axis", stroke_dasharray="4 3"))
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
            look = "label strong middle" if word.pivot else "middle"
            shown = shortened(word.text, (wide - 6) / (_BOLD if word.pivot else 1))
            parts.append(text(x + wide / 2, foot + _MIDDLE / 2 + 4, shown, class_=look))
            x += wide
        y = foot + _MIDDLE + (_HIGH if below else 0) + _BETWEEN
    return Drawing(_WIDTH, y - _BETWEEN + 10, "".join(parts), title, description)


def _wrapped(words: Sequence[_Word], max_width: float) -> list[list[tuple[_Word, float]]]:
    """Wrap words into lines, and return each word with its width."""
    lines: list[list[tuple[_Word, float]]] = [[]]
    for word in words:
        wide = min(_WIDEST, max(_NARROWEST, width_of(word.text) * (_BOLD if word.pivot else 1) + 10))
        if lines[-1] and sum(other for _, other in lines[-1]) + wide > max_width:
            lines.append([])
        lines[-1].append((word, wide))
    return lines


def _matrix(
    rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[float | Number | None]], *, label: str,
    title: str, description: str, diagonal: bool = False,
) -> Drawing:  # fmt: skip
    """Draw a square matrix of probabilities; stronger colours are more probable.

    Args:
        cells: probabilities from 0 to 1: a `Number`, a plain float for a gold value, or None for an empty cell.
        label: heading of the matrix where several are side by side.
        diagonal: draw the column labels diagonally, which suits words.
    """
    n = len(rows)
    size = min(_MAX_CELL, max(_MIN_CELL, _SIDE / max(n, 1)))
    names = [[shortened(name, _NAME, 11) for name in side] for side in (rows, columns)]
    widest = [max((width_of(name, 11) for name in side), default=0) for side in names]
    left, top = 14 + widest[0], 12 + (_DIAGONAL * widest[1] if diagonal else 14)
    right = 8 + _DIAGONAL * max(widest)  # for both kinds of labels, so that matrices of the same rows are equally wide
    parts: list[str] = [element("rect", x=left, y=top, width=size * n, height=size * n, class_="none")]
    for k in range(n):
        at = size * (k + 0.5)
        parts.append(text(left - 7, top + at + 4, names[0][k], class_="label small end"))
        x, y = left + at + (3 if diagonal else 0), top - 6
        turn = {"transform": f"rotate(-45 {x:.1f} {y:.1f})"} if diagonal else {}
        parts.append(text(x, y, names[1][k], class_="label small" if diagonal else "label small middle", **turn))
    for r, line in enumerate(cells):
        for c, value in enumerate(line):
            if value is None or value == 0:
                continue
            opacity = round(value.value if isinstance(value, Number) else value, 2)
            box = {"x": left + size * c, "y": top + size * r, "width": size, "height": size}
            drawn = element("rect", class_="cell shade", fill_opacity=opacity, **box)
            if isinstance(value, Number):
                drawn = mark(drawn, tip=f"{rows[r]}, {columns[c]}: {value.shown}", source=value.traced)
            parts.append(drawn)
    body = group(*parts, class_=svg.series(1))
    return Drawing(left + size * n + right, top + size * n + 8, body, title, description, label)
