"""Encoders of key points: what their training measured, the curves of its phases, and sentences with what was learnt of them
(CLCR, Tables 1 to 3 and Figures 1 to 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from calque.report.document import Block, Cell, Head, Line, Panel, Plot, Section, Table, Text
from calque.report.key_point_runs import Example, KeyPointRun, Phase, key_point_runs
from calque.report.numbers import Figure, Number, figure_of
from calque.report.plots import phases as phase_plot
from calque.report.plots.matrix import matrix
from calque.report.plots.sentence import Word, sentence
from calque.report.reading import Record, RunRecord
from calque.report.verdict import metric_name

_LABELS = ("labels as they are", "confident labels")  # above and below
_FIRST = ("as it stands", *_LABELS)  # rows of a table; the others by their names


def key_points(records: Sequence[RunRecord]) -> Section | None:
    """One section for all runs that made encoders of key points."""
    runs = key_point_runs(records)
    if not runs:
        return None
    found = (_distances(runs), _curves(runs), _extracted(runs), _sentences(runs), _ordered(runs), _matrices(runs))
    blocks: tuple[Block, ...] = tuple(block for block in found if block is not None)
    intro: Text = ("What the training of key points measured on sentences held out from it.",)
    if unusable := sum(run.unusable for run in runs):
        intro = (*intro, f" Examples left out because the record has not all that is drawn of them: {unusable:,}.")
    return Section("key-points", "Key points", intro, blocks)


# -- Tables 1 to 3 ------------------------------------------------------------------------------------------------------
_Column = tuple[str, str]  # metric and language


def _distances(runs: Sequence[KeyPointRun]) -> Table | None:
    rows: dict[str, dict[_Column, Figure]] = {}
    for run in runs:
        for score in _scores(run, "distance"):
            lang = " → ".join(score.pair)
            rows.setdefault(run.label, {})[score["metric"], lang] = replace(figure_of(score), digits=3)
    note = (
        "Mean squared distance by dimension from each word to the nearest word of the translation under the transform; "
        "relative: as a share of the mean variance of a component.",
    )
    metrics = ("distance", "relative distance")
    return _table("clcr-distance", "Transform: distance, lower is better", "encoder", rows, metrics, note)


def _extracted(runs: Sequence[KeyPointRun]) -> Table | None:
    note = (
        "Against the pivots of one translation, which are noisy labels themselves. Ambiguous: neither clearly a key point nor "
        "clearly none.",
    )
    rows, metrics = _by_model(runs, "key-points"), ("accuracy", "precision", "recall", "ambiguous")
    return _table("clcr-key-points", "Extract: key points, per cent", "learnt from", rows, metrics, note)


def _ordered(runs: Sequence[KeyPointRun]) -> Table | None:
    note = ("Share of the n-grams of an order that the pivot language has, too; n: hypotheses of the search.",)
    rows, metrics = _by_model(runs, "order"), ("bleu-2", "bleu-3", "bleu-4")
    return _table("clcr-order", "Reorder: BLEU, per cent, higher is better", "order", rows, metrics, note)


def _by_model(runs: Sequence[KeyPointRun], task: str) -> dict[str, dict[_Column, Figure]]:
    """Figures by what was trained, and in which run where there are several."""
    rows: dict[str, dict[_Column, Figure]] = {}
    for run in runs:
        named = [(str(score.settings.get("model", score["data"])), score) for score in _scores(run, task)]
        named.sort(key=lambda pair: (_FIRST.index(pair[0]) if pair[0] in _FIRST else len(_FIRST), pair[0]))
        for model, score in named:
            label = f"{run.label}, {model}" if len(runs) > 1 else model
            rows.setdefault(label, {})[score["metric"], score.pair[0]] = figure_of(score)
    return rows


def _scores(run: KeyPointRun, task: str) -> list[Record]:
    return [score for score in run.scores if score["task"] == task]


def _table(
    name: str, caption: str, corner: str, rows: Mapping[str, Mapping[_Column, Figure]], metrics: Sequence[str], note: Text
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
    panels = [_phases(run, lang, phases, f"clcr-phases-{k}") for k, (run, lang, phases) in enumerate(of)]
    if not panels:
        return None
    note = (
        "Mean distance of the sentences of an update, in units of the variance of a component where the training scales the "
        "vectors, and at the temperature of the time: each phase has an annealing of its own, so its curve begins anew. First "
        "the transforms learn; then the encoder of the other language; then that of the pivot. The refinement counts mutual best "
        "pairs of words alone, so its distances are smaller.",
    )
    return Plot("key-points-phases-plot", "Distance over the phases", note, tuple(panels), kind="wide")


def _phases(run: KeyPointRun, lang: str, phases: Sequence[Phase], name: str) -> Panel:
    pairs = ((lang, run.pivot), (run.pivot, lang))
    metrics = {"-".join(pair): " → ".join(pair) for pair in pairs}
    drawn = [
        phase_plot.Phase(
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
    drawing = phase_plot.phases(drawn, series, title=title, measure="distance", description=text)
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
    of = [(run, example) for run in runs for example in run.sentences]
    panels = [_sentence(run, example, f"clcr-words-{k}") for k, (run, example) in enumerate(of)]
    if not panels:
        return None
    two = any(len(example["probabilities"]) > 1 for _, example in of)
    note = (
        "Each word of a sentence with its probability to be a key point",
        f", learnt from {_LABELS[0]} (above) and from {_LABELS[1]} (below)" if two else "",
        ". Bold: pivots, the words that have a partner in this translation. Dashed: the threshold δ, above which a word is a key "
        "point.",
    )
    return Plot("key-points-words-plot", "Key points of a sentence", note, tuple(panels), kind="wide")


def _sentence(run: KeyPointRun, example: Example, name: str) -> Panel:
    given = example["probabilities"]
    models = sorted(given, key=lambda model: _LABELS.index(model) if model in _LABELS else len(_LABELS))[:2]
    figures = list(zip(*([example.figure(value) for value in given[model]] for model in models), strict=True))
    words = [Word(*each) for each in zip(example["words"], example["pivots"], figures, strict=True)]
    title = f"Key points of {example.name}: {run.label}"
    text = (
        f"The words of a sentence with the probability of each to be a key point ({', '.join(models)}); pivots are set in bold. "
        "The figures are in the table below."
    )
    series = [(model, number) for number, model in enumerate(models, 1)]
    drawing = sentence(words, series, threshold=run.delta, title=title, description=text)
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
    of = [(run, example) for run in runs for example in run.orders]
    panels = [_order(run, example, str(k)) for k, (run, example) in enumerate(of)]
    if not panels:
        return None
    note = (
        "In rows the key points of a sentence, in their own order. Places: how probable each place in the order of the pivot "
        "language is. Pairs: how probable it is that the key point of the row stands there before that of the column. The "
        "stronger the colour, the more probable.",
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
                matrix(
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


def _probability(value: float, example: Example) -> Number:
    return Number(value, "entry.value", ((example.source,),))


def _choice(run: KeyPointRun, example: Example) -> dict[str, str]:
    return {"encoder": run.label, "language": example["lang"], "sentence": str(example["sentence"] + 1)}
