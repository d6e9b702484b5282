"""Table of all analyses: function, and options on the command line.

To add a grouping of words, a measure of the vector space or a comparison of encoders, write one function and add a row here.
The command line, runs and reports read this table without loading any analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Axis:
    """Axis of an analysis that reports show as a plot.

    Attributes:
        title, note: title and note of the plot.
        across: label of the axis.
        log: whether the axis is logarithmic.
    """

    title: str
    across: str
    note: str
    log: bool = False


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Attributes:
        target: function as `package.module:function`.
        help: one-line description.
        kind: signature of the function. "division": questions → groups of links, whose accuracies are computed. "measure":
            questions and the view of one encoder → findings. "comparison": questions and the views of all encoders →
            findings. "other": see `calque.runs.analyze`.
        options: names of options of `calque analyze` that the function receives.
        seeded: whether the function has a parameter `seed`.
        lacks: message if there are no findings; `{data}` is the test text, `{encoder}` the encoder.
        axis: axis in reports; see `axis_of`.
    """

    target: str
    help: str
    kind: Literal["division", "measure", "comparison", "other"] = "other"
    options: tuple[str, ...] = ()
    seeded: bool = False
    lacks: str = "{data} has too few words"
    axis: Axis | None = None


_TAGS = ("upos",)

#: in the order of the findings in a report
ANALYSES = {
    "pos": Analysis(
        "calque.analyses.groups:by_pos", "Accuracy by part of speech.", "division", _TAGS,
        lacks="no parts of speech: give them with --upos en=FILE",
        axis=Axis(
            "By part of speech", "part of speech", "Which words find their translation, by universal part of speech."
        ),
    ),
    "rank": Analysis(
        "calque.analyses.groups:by_rank", "Accuracy by difference in frequency.", "division",
        axis=Axis(
            "By difference in frequency", "difference in frequency rank",
            "Left: a word and its translation are equally frequent. Right: their frequency ranks differ widely.", log=True,
        ),
    ),
    "length": Analysis(
        "calque.analyses.groups:by_length", "Accuracy by word length.", "division",
        axis=Axis("By word length", "characters of the word", "Length of the query word."),
    ),
    "layers": Analysis(
        "calque.analyses.groups:layer_curve", "Accuracy layer by layer.", lacks="{encoder} has only one layer",
        axis=Axis("Layer by layer", "layer", "Leftmost: the embeddings, before the first layer."),
    ),
    "isometry": Analysis("calque.analyses.space:isometry", "Do both languages have the same shape?", "measure"),
    "hubness": Analysis("calque.analyses.space:hubness", "Are some words near to everything?", "measure"),
    "anisotropy": Analysis("calque.analyses.space:anisotropy", "Do all vectors point the same way?", "measure"),
    "language": Analysis("calque.analyses.space:language", "Can a probe tell the language?", "measure", seeded=True),
    "examples": Analysis(
        "calque.analyses.words:examples", "Word forms before and after, with their nearest words.", "comparison",
        (*_TAGS, "forms"), lacks="give two encoders, the base encoder first",
    ),
    "points": Analysis(
        "calque.analyses.words:points", "Word pairs in the plane.", "comparison", (*_TAGS, "pairs", "projection"),
        seeded=True, lacks="no linked words that are spelt differently",
    ),
}  # fmt: skip


def users(option: str) -> Sequence[str]:
    """Return the analyses that have an option; empty if all have it."""
    return [name for name, row in ANALYSES.items() if option in row.options]


def axis_of(name: str) -> Axis | None:
    """Return the axis of an analysis; the default for a division is its name."""
    row = ANALYSES[name]
    return row.axis or (Axis(row.help.rstrip("."), name, row.help) if row.kind == "division" else None)
