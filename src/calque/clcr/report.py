"""Report section with the held-out scores of key-point encoders (CLCR, Tables 1 to 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from calque.report.content import in_words, run_title
from calque.report.document import Cell, Head, Line, Section, Table
from calque.report.numbers import Figure, average, figure_of
from calque.report.reading import Record, RunRecord
from calque.report.verdict import metric_name

# models in the first rows of a table; the remaining rows are sorted by name
_FIRST = ("as it stands", "labels as they are", "confident labels")
# Tables 1 to 3, keyed by task: id, caption, header of the first column, metrics and note
_TABLES: Mapping[str, tuple[str, str, str, tuple[str, ...], str]] = {
    "distance": (
        "clcr-distance",
        "Transform: distance (lower is better)",
        "encoder",
        ("distance", "relative distance"),
        "Mean squared distance per dimension from each word to the nearest word of the translation "
        "under the transform. "
        "The relative distance is divided by the mean variance of a component.",
    ),
    "key-points": (
        "clcr-key-points",
        "Extract: key points (%)",
        "trained on",
        ("accuracy", "precision", "recall", "ambiguous"),
        "Scores against the pivots of one translation, which are noisy labels. Ambiguous words "
        "have a probability "
        "that is neither low nor high.",
    ),
    "order": (
        "clcr-order",
        "Reorder: BLEU (%, higher is better)",
        "order",
        ("bleu-2", "bleu-3", "bleu-4"),
        "Fraction of the n-grams of an order that also occur in the order of the pivot language. "
        "In the row names, n is the "
        "beam size of the search.",
    ),
}

_Scores = Sequence[tuple[str, str, Record]]  # label, model, record


def key_points(
    records: Sequence[RunRecord], lines: Sequence[tuple[str, Record]] = ()
) -> Section | None:
    """Return the report section on key-point encoders, or None if there are no records of such
    encoders.

    Args:
        records: records of runs with any method.
        lines: training scores from result files (`Record.is_of_training`), each with the label of
            its run. In a study, this label is the name of the method.

    Raises:
        InputError: a score is invalid; the message names its file and position.
    """
    chosen = [run for run in records if run.plain.get("method") == "clcr"]
    runs = zip(_labels(chosen), chosen, strict=True)
    scored = [
        *lines,
        *((label, s) for label, run in runs if not (lines and run.is_step) for s in run.scores()),
    ]
    scores = [
        (label, str(score.settings["model"]), score)
        for label, score in scored
        if score["task"] in _TABLES
    ]
    if not scores:
        return None
    found = tuple(table for task in _TABLES if (table := _table(scores, task)) is not None)
    return Section(
        "key-points", "Key points", ("Scores of the key points on held-out sentences.",), found
    )


def _labels(runs: Sequence[RunRecord]) -> list[str]:
    """Return the titles of runs, extended by the settings that distinguish runs with equal
    titles.
    """
    titles, settings = (
        [run_title(run) for run in runs],
        [run.plain.get("settings", {}) for run in runs],
    )
    labels = []
    for title, own in zip(titles, settings, strict=True):
        alike = [other for other, its in zip(settings, titles, strict=True) if its == title]
        differ = [name for name in own if any(other.get(name) != own[name] for other in alike)]
        labels.append(", ".join([title, *(f"{name} {in_words(own[name])}" for name in differ)]))
    return labels


# -- Tables 1 to 3
# --------------------------------------------------------------------------------------------------
def _table(scores: _Scores, task: str) -> Table | None:
    """Return a table with one row per model, one column per metric and language, and a last row for
    the number of sentences.
    """
    rows = _rows(scores, task)
    name, caption, corner, metrics, note = _TABLES[task]
    langs = dict.fromkeys(lang for figures in rows.values() for _, lang in figures)
    columns = [
        place
        for place in product(metrics, langs)
        if any(place in figures for figures in rows.values())
    ]
    if not columns:
        return None
    heads = tuple(
        Head(metric.upper() if "bleu" in metric else metric_name(metric), lang)
        for metric, lang in columns
    )
    lines = tuple(
        Line(label, tuple(Cell(figures.get(place)) for place in columns))
        for label, figures in rows.items()
    )
    sizes = []
    for place in columns:
        known = [figures[place] for figures in rows.values() if place in figures]
        sizes.append(
            Cell(number=known[0].part("n"))
            if len({figure.n for figure in known}) == 1
            else Cell(text=("",))
        )
    return Table(
        name, caption, corner, heads, lines, (Line("n", tuple(sizes), detail="sentences"),), (note,)
    )


def _rows(scores: _Scores, task: str) -> Mapping[str, Mapping[tuple[str, str], Figure]]:
    """Return the scores of a task by row, metric and language. The distance task has one row per
    run. Other tasks have one row per model, named after the run and the model if there are several
    runs. Scores of runs with the same label are averaged."""
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
    return {
        row: {at: average(figures) for at, figures in of_row.items()}
        for row, of_row in found.items()
    }
