"""Alignment: methods that learn from parallel text or dictionaries. METHODS names them all, and loads none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calque.named import Table, is_path


@dataclass(frozen=True)
class MethodRow:
    """A method by its name.

    Attributes:
        target: where its class stands, `package.module:Class`; a `Method`.
        help: what it does, in a line.
        settings: arguments that make the class this method.
        learns_from: what it can use: "parallel" (text with word links), "dictionary", "text" (of each language alone).
        trains: whether it changes the encoder's weights, and so has a seed, a schedule and checkpoints.
        of_each: whether it takes an encoder of each language, which may differ in size.
        symmetrize: how the links that it learns from are joined where nobody says.
        report: what makes a section of a report of its runs, `package.module:function`; "" for no section.
    """

    target: str
    help: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    learns_from: tuple[str, ...] = ("parallel",)
    trains: bool = False
    of_each: bool = False
    symmetrize: str = "one-to-one"
    report: str = ""

    @property
    def needs_links(self) -> bool:
        """Whether the words of parallel text must be linked for it; to what learns from text, two sides are two texts."""
        return "text" not in self.learns_from


def _maps(name: str, text: str, *learns_from: str) -> MethodRow:
    """Maps are fitted on linked words by one class; `DictionaryMaps` fits on dictionaries whatever can be."""
    target = "calque.alignment.maps:LinkedMaps"
    if "parallel" not in learns_from:
        target = "calque.alignment.dictionary:DictionaryMaps"
    return MethodRow(target, text, {"method": name}, learns_from)


def _row_of(name: str, cls: type) -> MethodRow:
    return MethodRow(name, (cls.__doc__ or "").partition("\n")[0], trains=getattr(cls, "trains", False))


METHODS: Table[MethodRow] = Table(
    "method",
    {
        "rotation": _maps("rotation", "orthogonal map of word vectors", "parallel", "dictionary"),
        "normalized-rotation": _maps(
            "normalized-rotation", "rotation of vectors that are centred first", "parallel", "dictionary"
        ),
        "sentence-rotation": _maps("sentence-rotation", "rotation fitted on means of sentences", "parallel"),
        "linear": _maps("linear", "map by least squares", "parallel", "dictionary"),
        "means": MethodRow(
            "calque.alignment.text_maps:LanguageMeans",
            "moves the mean of each language onto that of --towards; needs no translations",
            learns_from=("parallel", "text"),
        ),
        "standardize": MethodRow(
            "calque.alignment.text_maps:Standardize",
            "gives each dimension mean 0 and variance 1; moves no language",
            learns_from=("parallel", "text"),
        ),
        "finetune": MethodRow(
            "calque.alignment.finetune:FineTune", "trains the encoder to bring linked words together", trains=True
        ),
        "contrastive": MethodRow(
            "calque.alignment.contrastive:Contrastive", "the same, and apart from all other words", trains=True
        ),
        "clcr": MethodRow(
            "calque.clcr.method:KeyPointAlignment",
            "makes rows that are key points, of equal number and order in all languages, from an encoder of each",
            trains=True,
            of_each=True,
            symmetrize="grow-diag-final-and",  # a word and all pieces that translate it
            report="calque.clcr.report:key_points",
        ),
    },
    base="calque.alignment.base:Method",
    row_of=_row_of,
)


def methods_for(supervision: str) -> tuple[str, ...]:
    """Names of the methods that learn from "parallel" text, from a "dictionary", or from "text" of each language."""
    return tuple(name for name, row in METHODS.items() if supervision in row.learns_from)


def learns_from(method: str, supervision: str) -> bool:
    """Whether a method can use a kind of supervision; one from elsewhere learns from parallel text."""
    return method in methods_for(supervision) or (supervision == "parallel" and is_path(method))
