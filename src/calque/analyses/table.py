"""Table of all analyses, with their functions and command-line options.

To add a grouping of words, a measure of the vector space or a comparison of encoders, write one
function and add a row here. The command line, runs and reports use this table without importing any
analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Axis:
    """Axis of the plot that shows an analysis in reports.

    Attributes:
        title, note: title and note of the plot.
        across: label of the axis.
        log: whether the axis is logarithmic.
        bars: whether bins are drawn as bars, with classes of bins in a view of their own, instead
            of as points of a curve.
        named: whether the ticks are the names of the bins instead of numbers.
    """

    title: str
    across: str
    note: str
    log: bool = False
    bars: bool = False
    named: bool = True


@dataclass(frozen=True)
class Analysis:
    """Table row that describes one analysis.

    Attributes:
        target: function of the analysis, as `package.module:function`.
        help: one-line description.
        kind: signature of the function. "division": maps `Questions` to `Groups`, whose accuracies
            are computed. "measure":
            maps `Questions` and the `View` of one encoder to findings. "comparison": maps
            `Questions` and the views of all encoders to findings. "other": see
            `calque.runs.analyze`.
        options: names of the options of `calque analyze` that are passed to the function.
        seeded: whether the function has a parameter `seed`.
        lacks: message if there are no findings, with the placeholders `{data}` (test text) and
            `{encoder}`.
        axis: axis of the plot in reports; see `axis_of`.
    """

    target: str
    help: str
    kind: Literal["division", "measure", "comparison", "other"] = "other"
    options: tuple[str, ...] = ()
    seeded: bool = False
    lacks: str = "{data} has too few words"
    axis: Axis | None = None


_TAGS = ("upos",)

#: analyses by name, in the order in which reports show them
ANALYSES = {
    "pos": Analysis(
        "calque.analyses.groups:by_pos",
        "Accuracy by part of speech.",
        "division",
        _TAGS,
        lacks="no part-of-speech tags were given; pass tagged text with --upos en=FILE",
        axis=Axis(
            "By part of speech",
            "part of speech",
            "Accuracy for words of each universal part of speech.",
            bars=True,
        ),
    ),
    "rank": Analysis(
        "calque.analyses.groups:by_rank",
        "Accuracy by difference in frequency.",
        "division",
        axis=Axis(
            "By difference in frequency",
            "difference in frequency rank",
            "Left: the frequency ranks of a word and its translation are close. Right: the ranks "
            "differ widely.",
            log=True,
        ),
    ),
    "length": Analysis(
        "calque.analyses.groups:by_length",
        "Accuracy by word length.",
        "division",
        axis=Axis(
            "By word length",
            "characters in the word",
            "Accuracy by the number of characters in the query word.",
        ),
    ),
    "layers": Analysis(
        "calque.analyses.groups:layer_curve",
        "Accuracy layer by layer.",
        lacks="{encoder} has only one layer",
        axis=Axis(
            "Layer by layer",
            "layer",
            "Accuracy of each layer; the leftmost point is the embedding layer.",
            named=False,
        ),
    ),
    "isometry": Analysis(
        "calque.analyses.space:isometry",
        "Do both languages' vector spaces have the same shape?",
        "measure",
    ),
    "hubness": Analysis(
        "calque.analyses.space:hubness",
        "Are some words nearest neighbours of very many words?",
        "measure",
    ),
    "anisotropy": Analysis(
        "calque.analyses.space:anisotropy", "Do all vectors point in similar directions?", "measure"
    ),
    "language": Analysis(
        "calque.analyses.space:language",
        "Can a probe predict the language?",
        "measure",
        seeded=True,
    ),
    "examples": Analysis(
        "calque.analyses.words:examples",
        "Ambiguous words before and after alignment, with their nearest words.",
        "comparison",
        (*_TAGS, "forms"),
        lacks="at least two encoders are needed, the base encoder first",
    ),
    "points": Analysis(
        "calque.analyses.words:points",
        "Word pairs projected onto a plane.",
        "comparison",
        (*_TAGS, "pairs", "projection"),
        seeded=True,
        lacks="no linked words with different spellings",
    ),
}


def users(option: str) -> Sequence[str]:
    """Return the names of the analyses that use an option; the list is empty if the option applies
    to all analyses.
    """
    return [name for name, row in ANALYSES.items() if option in row.options]


def axis_of(name: str) -> Axis | None:
    """Return the axis of an analysis, or None if it has none. A division without an axis gets an
    axis labelled with its name.
    """
    row = ANALYSES[name]
    return row.axis or (
        Axis(row.help.rstrip("."), name, row.help) if row.kind == "division" else None
    )
