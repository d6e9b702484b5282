"""Every analysis by name: its function, and which options of the command line it has.

To add a division of words or a measure of the space: one function, and one row here. Command line, runs and reports read this
table; nothing is loaded for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Attributes:
        target: its function, `package.module:function`.
        help: what it shows, in a line.
        kind: what the function takes and gives. "division": the questions → groups of links, of which accuracies are taken.
            "measure": the questions and an encoder's view → findings. "other": its own, see `calque.runs.analyze`.
        options: names of options of `calque analyze`.
        seeded: whether it takes a seed.
    """

    target: str
    help: str
    kind: Literal["division", "measure", "other"] = "other"
    options: tuple[str, ...] = ()
    seeded: bool = False


_TAGS = ("upos", "treebank")

#: in the order in which findings are told
ANALYSES = {
    "pos": Analysis("calque.analyses.groups:by_pos", "Accuracy by part of speech.", options=_TAGS),
    "rank": Analysis("calque.analyses.groups:by_rank", "Accuracy by difference in frequency.", "division"),
    "subwords": Analysis("calque.analyses.groups:by_subwords", "Accuracy by number of subwords."),
    "length": Analysis("calque.analyses.groups:by_length", "Accuracy by word length.", "division"),
    "position": Analysis("calque.analyses.groups:by_position", "Accuracy by position in the sentence.", "division"),
    "layers": Analysis("calque.analyses.curves:layer_curve", "Accuracy layer by layer."),
    "data-size": Analysis("calque.analyses.curves:size_curve", "Accuracy by amount of text.", options=("sizes", "map")),
    "correlation": Analysis(
        "calque.analyses.correlation:correlation", "Retrieval against zero-shot scores.", options=("results",), seeded=True
    ),
    "isometry": Analysis("calque.analyses.isometry:isometry", "Do both languages have the same shape?", "measure"),
    "hubness": Analysis("calque.analyses.hubness:hubness", "Are some words near to everything?", "measure"),
    "anisotropy": Analysis("calque.analyses.anisotropy:anisotropy", "Do all vectors point the same way?", "measure"),
    "language": Analysis("calque.analyses.language:language", "Can a probe tell the language?", "measure", seeded=True),
    "examples": Analysis(
        "calque.analyses.examples:examples", "Word forms before and after, with their nearest words.",
        options=(*_TAGS, "forms"),
    ),
    "points": Analysis(
        "calque.analyses.points:points", "Word pairs in the plane.", options=(*_TAGS, "pairs", "projection"), seeded=True
    ),
}  # fmt: skip


def users(option: str) -> Sequence[str]:
    """The analyses that have an option; none for what all have."""
    return [name for name, row in ANALYSES.items() if option in row.options]
