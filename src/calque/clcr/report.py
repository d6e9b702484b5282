"""Encoders of key points: what their training measured, the curves of its phases, and sentences with what was learnt of them
(CLCR, Tables 1 to 3 and Figures 1 to 3)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from calque.clcr import plots
from calque.errors import InputError
from calque.report.document import Block, Cell, Head, Line, Panel, Plot, Section, Table, Text
from calque.report.numbers import Figure, Number, average, escape_source, figure_of
from calque.report.provenance import in_words, run_title
from calque.report.reading import Record, RunRecord
from calque.report.verdict import metric_name

_LABELS = ("labels as they are", "confident labels")  # above and below
_FIRST = ("as it stands", *_LABELS)  # rows of a table; the others by their names


_SENTENCES, _ORDERS = 40, 20  # views in a figure, so that the page stays small


def key_points(records: Sequence[RunRecord], lines: Sequence[tuple[str, Record]] = ()) -> Section | None:
    """One section for everything that made encoders of key points.

    Args:
        lines: what result files say of a training (`Record.is_of_training`), with the labels of whose it was.
    """
    runs = key_point_runs(records)
    trained = figures_of_training(runs, lines)
    if not runs and not trained:
        return None
    found = (
        _distances(trained), _curves(runs), _extracted(trained), _sentences(runs), _ordered(trained), _matrices(runs),
    )  # fmt: skip
    blocks: tuple[Block, ...] = tuple(block for block in found if block is not None)
    intro: Text = ("What the training of key points measured on sentences held out from it.",)
    return Section("key-points", "Key points", intro, blocks)


# -- what a training left behind ---------------------------------------------------------------------------------------
_POINTS = 30  # of a curve in a phase; a run has thousands of updates, each of another batch
_DELTA = 0.2
_TASKS = ("distance", "key-points", "order")


@dataclass(frozen=True)
class Phase:
    """A phase of the training.

    Attributes:
        name: what was trained.
        points: first and last update, and the mean of each metric over them.
    """

    name: str
    points: tuple[tuple[tuple[int, int], Mapping[str, Figure]], ...]


@dataclass(frozen=True)
class Example:
    """An entry of a record's `examples`, with its place."""

    plain: Mapping[str, Any]
    source: str

    def __getitem__(self, name: str) -> Any:
        return self.plain[name]

    @property
    def name(self) -> str:
        return f"sentence {self['sentence'] + 1} ({self['lang']})"

    def figure(self, value: float) -> Figure:
        """A probability of the entry."""
        return Figure(value, None, None, "probability", (self.source,), "entry", percent=False)


@dataclass(frozen=True)
class KeyPointRun:
    """A run.

    Attributes:
        label: its name in the report.
        pivot: the pivot language; langs: the others.
        is_step: it is a step of a study.
        delta: above which probability a word is a key point.
        scores: of its own on held-out text.
        curves: phases by language; that of the pivot's encoder all languages have in common.
        sentences: entries with the probabilities of a sentence's words.
        orders: entries with the order of a sentence's key points.
    """

    label: str
    pivot: str
    langs: tuple[str, ...]
    is_step: bool
    delta: float
    scores: tuple[Record, ...]
    curves: Mapping[str, tuple[Phase, ...]]
    sentences: tuple[Example, ...]
    orders: tuple[Example, ...]


def figures_of_training(
    runs: Sequence[KeyPointRun], lines: Sequence[tuple[str, Record]]
) -> list[tuple[str, str, Record]]:
    """Label, model and record of each figure. A study has those of its runs as lines, under the names of its methods.

    Args:
        runs: what was trained.
        lines: of result files with their labels.
    """
    alone = [run for run in runs if not (lines and run.is_step)]
    scored = [*lines, *((run.label, score) for run in alone for score in run.scores)]
    return [(label, str(score.settings["model"]), score) for label, score in scored if score["task"] in _TASKS]


def key_point_runs(runs: Sequence[RunRecord]) -> list[KeyPointRun]:
    """Those of the runs that made encoders of key points.

    Raises:
        InputError: a score is none, or a line of metrics is not JSON; with file and place.
    """
    chosen = [run for run in runs if run.plain.get("method") == "clcr"]
    return [_run(run, label) for run, label in zip(chosen, _labels(chosen), strict=True)]


def _labels(runs: Sequence[RunRecord]) -> list[str]:
    """Titles of runs; of those with one title, and the settings in which they differ."""
    titles, settings = [run_title(run) for run in runs], [run.plain.get("settings", {}) for run in runs]
    labels = []
    for title, own in zip(titles, settings, strict=True):
        alike = [other for other, its in zip(settings, titles, strict=True) if its == title]
        differ = [name for name in own if any(other.get(name) != own[name] for other in alike)]
        labels.append(", ".join([title, *(f"{name} {in_words(own[name])}" for name in differ)]))
    return labels


def _run(run: RunRecord, label: str) -> KeyPointRun:
    plain, settings = run.plain, run.plain.get("settings", {})
    pivot, langs = str(plain.get("towards")), tuple(plain.get("pivots", {}))
    examples = [
        Example(entry, escape_source(f"{run.file}:examples/{number}"))
        for number, entry in enumerate(plain.get("examples", []))
    ]
    return KeyPointRun(
        label, pivot, langs, run.is_step, float(settings.get("delta", _DELTA)), tuple(run.scores()),
        {lang: phases for lang in langs if (phases := _phases(run, lang, pivot))},
        tuple(each for each in examples if "probabilities" in each.plain),
        tuple(each for each in examples if "ranks" in each.plain),
    )  # fmt: skip


def _phases(run: RunRecord, lang: str, pivot: str) -> tuple[Phase, ...]:
    """Those in which the vectors of a language or of the pivot moved."""
    encoders = {f"encoder-{each}": f"encoder of {each}" for each in (lang, pivot)}
    names = {f"transform-{lang}": "transforms", **encoders, f"refine-{lang}": "refinement"}
    found = []
    for folder, name in names.items():
        inside = f"training/{folder}/metrics.jsonl"
        path = run.path.parent / inside
        metrics = (f"{lang}-{pivot}", f"{pivot}-{lang}", "temperature")
        if path.is_file() and (points := _points(path, f"{run.name}/{inside}", metrics)):
            found.append(Phase(name, points))
    return tuple(found)


def _points(path: Path, name: str, metrics: Sequence[str]) -> tuple[tuple[tuple[int, int], Mapping[str, Figure]], ...]:
    """The metrics of a phase's updates; means where there are more updates than points."""
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            plain = json.loads(line)
        except ValueError as error:
            raise InputError(f"is not JSON ({error})", path=path, line=number) from error
        if all(math.isfinite(plain.get(key, math.nan)) for key in ("step", *metrics)):
            lines.append((number, plain))
    size = max(1, math.ceil(len(lines) / _POINTS))
    found = []
    for start in range(0, len(lines), size):
        window = lines[start : start + size]
        (first, one), (last, other) = window[0], window[-1]
        source, kind = (f"{name}:{first}", "entry") if first == last else (f"{name}:{first}-{last}", "window")
        figures = {
            key: Figure(
                sum(plain[key] for _, plain in window) / len(window), None, None, key, (escape_source(source),), kind,
                percent=False, digits=3,
            )
            for key in metrics
        }  # fmt: skip
        found.append(((int(one["step"]), int(other["step"])), figures))
    return tuple(found)


# -- Tables 1 to 3 ------------------------------------------------------------------------------------------------------
_Trained = Sequence[tuple[str, str, Record]]  # label, model, record
_Column = tuple[str, str]  # metric and language
_Rows = Mapping[str, Mapping[_Column, Figure]]


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
    """Rows of what was trained, and in which run where there are several."""
    several = len({label for label, *_ in trained}) > 1
    return _rows(trained, task, lambda label, model: f"{label}, {model}" if several else model, lambda pair: pair[0])


def _rows(
    trained: _Trained, task: str, named: Callable[[str, str], str], column: Callable[[tuple[str, ...]], str]
) -> dict[str, dict[_Column, Figure]]:
    """Figures of a task by row, metric and language; those of several trainings of one name are averaged."""
    labels = list(dict.fromkeys(label for label, *_ in trained))
    mine = [(label, model, score) for label, model, score in trained if score["task"] == task]
    places = {model: _FIRST.index(model) if model in _FIRST else len(_FIRST) for _, model, _ in mine}
    mine.sort(key=lambda each: (labels.index(each[0]), places[each[1]], each[1]))
    found: dict[str, dict[_Column, list[Figure]]] = {}
    for label, model, score in mine:
        at = score["metric"], column(score.pair)
        found.setdefault(named(label, model), {}).setdefault(at, []).append(figure_of(score))
    return {row: {at: average(figures) for at, figures in of_row.items()} for row, of_row in found.items()}


def _table(
    name: str, caption: str, corner: str, rows: _Rows, metrics: Sequence[str], note: Text
) -> Table | None:  # fmt: skip
    """What was trained down, metrics and languages across; below, over how many sentences."""
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
def _curves(runs: Sequence[KeyPointRun]) -> Plot | None:
    """The distance over the phases."""
    of = [(run, lang, phases) for run in runs for lang, phases in run.curves.items()]
    panels = [_curve(run, lang, phases, f"clcr-phases-{k}") for k, (run, lang, phases) in enumerate(of)]
    if not panels:
        return None
    note = (
        "Mean distance of the sentences of an update, in units of the variance of a component where the training scales the "
        "vectors, and at the temperature of the time: each phase has an annealing of its own, so its curve begins anew. First "
        "the transforms learn; then the encoder of the other language; then that of the pivot. The refinement counts mutual best "
        "pairs of words alone, so its distances are smaller.",
    )
    return Plot("key-points-phases-plot", "Distance over the phases", note, tuple(panels), kind="wide")


def _curve(run: KeyPointRun, lang: str, phases: Sequence[Phase], name: str) -> Panel:
    pairs = ((lang, run.pivot), (run.pivot, lang))
    metrics = {"-".join(pair): " → ".join(pair) for pair in pairs}
    drawn = [
        plots.Phase(
            phase.name, {k: [(span, figures[m]) for span, figures in phase.points] for k, m in enumerate(metrics, 1)}
        )
        for phase in phases
    ]
    title = f"Distance over the phases, {lang}-{run.pivot}: {run.label}"
    text = (
        f"Distance of {lang} and {run.pivot} in both directions, over the updates of each phase: "
        f"{', '.join(phase.name for phase in phases)}. The figures are in the table below."
    )
    series = [(label, number) for number, label in enumerate(metrics.values(), 1)]
    drawing = plots.phases(drawn, series, title=title, measure="distance", description=text)
    lines = tuple(
        Line(
            f"{first:,}" if first == last else f"{first:,}–{last:,}",
            tuple(Cell(figures[metric]) for metric in (*metrics, "temperature")),
            detail=phase.name,
        )
        for phase in phases
        for (first, last), figures in phase.points
    )
    heads = (*(Head(f"distance, {label}") for label in metrics.values()), Head("temperature"))
    table = Table(name, title, "updates", heads, lines, sortable=False)
    return Panel({"encoder": run.label, "language": lang}, (drawing,), (table,))


# -- Figure 2 -----------------------------------------------------------------------------------------------------------
def _sentences(runs: Sequence[KeyPointRun]) -> Plot | None:
    """The probabilities of a sentence's words."""
    of, left_out = _some([(run, example) for run in runs for example in run.sentences], _SENTENCES)
    panels = [_sentence(run, example, f"clcr-words-{k}") for k, (run, example) in enumerate(of)]
    if not panels:
        return None
    two = any(len(example["probabilities"]) > 1 for _, example in of)
    note = (
        "Each word of a sentence with its probability to be a key point",
        f", learnt from {_LABELS[0]} (above) and from {_LABELS[1]} (below)" if two else "",
        ". Bold: pivots, the words that have a partner in this translation. Dashed: the threshold δ, above which a word is a key "
        "point.",
        left_out,
    )
    return Plot("key-points-words-plot", "Key points of a sentence", note, tuple(panels), kind="wide")


def _sentence(run: KeyPointRun, example: Example, name: str) -> Panel:
    given = example["probabilities"]
    models = sorted(given, key=lambda model: _LABELS.index(model) if model in _LABELS else len(_LABELS))[:2]
    figures = list(zip(*([example.figure(value) for value in given[model]] for model in models), strict=True))
    words = [plots.Word(*each) for each in zip(example["words"], example["pivots"], figures, strict=True)]
    title = f"Key points of {example.name}: {run.label}"
    text = (
        f"The words of a sentence with the probability of each to be a key point ({', '.join(models)}); pivots are set in bold. "
        "The figures are in the table below."
    )
    series = [(model, number) for number, model in enumerate(models, 1)]
    drawing = plots.sentence(words, series, threshold=run.delta, title=title, description=text)
    heads = [Head("word", numeric=False), Head("pivot", numeric=False), *(Head("probability", m) for m in models)]
    lines = []
    for k, word in enumerate(words, 1):
        said = (Cell(text=(word.text,), lang=example["lang"]), Cell(text=("yes" if word.marked else "no",)))
        lines.append(Line(str(k), (*said, *map(Cell, word.figures))))
    table = Table(name, title, "number", tuple(heads), tuple(lines), sortable=False)
    return Panel(_choice(run, example), (drawing,), (table,))


# -- Figure 3 -----------------------------------------------------------------------------------------------------------
def _matrices(runs: Sequence[KeyPointRun]) -> Plot | None:
    """The order of a sentence's key points, gold and predicted."""
    of, left_out = _some([(run, example) for run in runs for example in run.orders], _ORDERS)
    panels = [_order(run, example, str(k)) for k, (run, example) in enumerate(of)]
    if not panels:
        return None
    note = (
        "In rows the key points of a sentence, in their own order. Places: how probable each place in the order of the pivot "
        "language is. Pairs: how probable it is that the key point of the row stands there before that of the column. The "
        "stronger the colour, the more probable.",
        left_out,
    )
    return Plot("key-points-order-plot", "Order of key points", note, tuple(panels))


def _order(run: KeyPointRun, example: Example, key: str) -> Panel:
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
            [None if name == "before" and i == j else _probability(p, example) for j, p in enumerate(row)]
            for i, row in enumerate(example[name])
        ]
        for kind, cells in (("gold", right), ("predicted", said)):
            drawings.append(
                plots.matrix(
                    words, columns, cells, label=f"{called}, {kind}", number=1, turned=name == "before",
                    title=f"Order of key points of {example.name}: {run.label}",
                    description=f"{called}, {kind}: {len(words)} key points down. The figures are in the table below.",
                )
            )  # fmt: skip
        lines = tuple(
            Line(word, tuple(Cell(number=p) if p else Cell(text=("",)) for p in row), detail=f"gold: place {rank + 1}")
            for word, row, rank in zip(words, said, ranks, strict=True)
        )
        caption = f"{called} of key points, {example.name}: {run.label}"
        heads = tuple(Head(column) for column in columns)
        tables.append(Table(f"clcr-{name}-{key}", caption, "key point", heads, lines, sortable=False))
    return Panel(_choice(run, example), tuple(drawings), tuple(tables))


def _some(of: Sequence[tuple[KeyPointRun, Example]], most: int) -> tuple[list[tuple[KeyPointRun, Example]], str]:
    """The first examples of each run and language, as many of each as fit; and what is to be said of those left out."""
    groups: dict[tuple[str, str], list[tuple[KeyPointRun, Example]]] = {}
    for run, example in of:
        groups.setdefault((run.label, example["lang"]), []).append((run, example))
    each = max(1, most // max(len(groups), 1))
    shown = [one for group in groups.values() for one in group[:each]]
    return shown, " Of each encoder and language, the first ones." if len(shown) < len(of) else ""


def _probability(value: float, example: Example) -> Number:
    return Number(value, "entry.value", ((example.source,),))


def _choice(run: KeyPointRun, example: Example) -> dict[str, str]:
    return {"encoder": run.label, "language": example["lang"], "sentence": str(example["sentence"] + 1)}
