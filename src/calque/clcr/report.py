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
        "have a probability that is neither low nor high.",
    ),
    "order": (
        "clcr-order",
        "Reorder: BLEU (%, higher is better)",
        "order",
        ("bleu-2", "bleu-3", "bleu-4"),
        "Fraction of the n-grams of an order that also occur in the order of the pivot language. "
        "In the row names, n is the beam size of the search.",
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
    runs = [run for run in records if run.plain.get("method") == "clcr"]
    scored = list(lines)
    for label, run in zip(_labels(runs), runs, strict=True):
        # The scores of a study's steps are already among `lines`.
        if not (lines and run.is_step):
            scored += [(label, score) for score in run.scores()]
    scores = [
        (label, str(score.settings["model"]), score)
        for label, score in scored
        if score["task"] in _TABLES
    ]
    if not scores:
        return None
    tables = [_table(scores, task) for task in _TABLES]
    return Section(
        "key-points",
        "Key points",
        ("Scores of the key points on held-out sentences.",),
        tuple(table for table in tables if table is not None),
    )


def _labels(runs: Sequence[RunRecord]) -> list[str]:
    """Return the titles of runs, extended by the settings that distinguish runs with equal
    titles.
    """
    titles = [run_title(run) for run in runs]
    settings_of_runs = [run.plain.get("settings", {}) for run in runs]
    labels = []
    for title, settings in zip(titles, settings_of_runs, strict=True):
        alike = [
            other
            for other, other_title in zip(settings_of_runs, titles, strict=True)
            if other_title == title
        ]
        label = [title]
        for name, value in settings.items():
            if any(other.get(name) != value for other in alike):
                label.append(f"{name} {in_words(value)}")
        labels.append(", ".join(label))
    return labels


# -- Tables 1 to 3 ---------------------------------------------------------------------------------
def _table(scores: _Scores, task: str) -> Table | None:
    """Return a table with one row per model, one column per metric and language, and a last row for
    the number of sentences.
    """
    rows = _rows(scores, task)
    name, caption, corner, metrics, note = _TABLES[task]
    filled = {column for figures in rows.values() for column in figures}
    langs = dict.fromkeys(lang for figures in rows.values() for _, lang in figures)
    columns = [column for column in product(metrics, langs) if column in filled]
    if not columns:
        return None
    heads = []
    for metric, lang in columns:
        label = metric.upper() if "bleu" in metric else metric_name(metric)
        heads.append(Head(label, lang))
    lines = []
    for label, figures in rows.items():
        lines.append(Line(label, tuple(Cell(figures.get(column)) for column in columns)))
    sizes = tuple(_size(rows, column) for column in columns)
    return Table(
        name,
        caption,
        corner,
        tuple(heads),
        tuple(lines),
        foot=(Line("n", sizes, detail="sentences"),),
        note=(note,),
    )


def _size(rows: Mapping[str, Mapping[tuple[str, str], Figure]], column: tuple[str, str]) -> Cell:
    """Return the number of sentences of a column; the cell is empty if rows differ in it."""
    figures = [row[column] for row in rows.values() if column in row]
    if len({figure.n for figure in figures}) == 1:
        return Cell(number=figures[0].part("n"))
    return Cell(text=("",))


def _rows(scores: _Scores, task: str) -> Mapping[str, Mapping[tuple[str, str], Figure]]:
    """Return the scores of a task by row, metric and language. The distance task has one row per
    run. Other tasks have one row per model, named after the run and the model if there are several
    runs. Scores of runs with the same label are averaged."""
    labels = list(dict.fromkeys(label for label, _, _ in scores))
    rank = {model: number for number, model in enumerate(_FIRST)}
    task_scores = [item for item in scores if item[2]["task"] == task]
    task_scores.sort(
        key=lambda item: (labels.index(item[0]), rank.get(item[1], len(rank)), item[1])
    )
    rows: dict[str, dict[tuple[str, str], list[Figure]]] = {}
    for label, model, score in task_scores:
        if task == "distance":
            row, lang, digits = label, " → ".join(score.pair), 3
        else:
            row, lang, digits = model, score.pair[0], 2
            if len(labels) > 1:
                row = f"{label}, {model}"
        figure = replace(figure_of(score), digits=digits)
        rows.setdefault(row, {}).setdefault((score["metric"], lang), []).append(figure)
    averages = {}
    for row, columns in rows.items():
        averages[row] = {column: average(figures) for column, figures in columns.items()}
    return averages
