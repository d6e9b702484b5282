"""Alignment methods. `METHODS` lists the methods without importing their classes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from calque.named import Table, is_path
from calque.spec import Declared, declared


@dataclass(frozen=True)
class MethodRow:
    """Entry of `METHODS` for one alignment method.

    Attributes:
        target: import path of the class, `package.module:Class`; the class must be a subclass of
            `Method`.
        help: one-line description.
        settings: keyword arguments for the constructor of the class.
        learns_from: supported training data: "parallel" (text with word links), "dictionary" or
            "text" (monolingual text).
        trains: whether the method trains the encoder's weights; if true, it has a seed, a schedule
            and checkpoints.
        of_each: whether the method uses a separate encoder for each language; their dimensions may
            differ.
        unit: what the method brings together, "words" or "sentences"; by this, `calque align`
            chooses the encoder's layer and pooling, see `calque.choose_reading`.
        pooling: pooling of a word's subwords in the paper whose form the method keeps; if it is
            set, it is the default, together with the encoder's default layer, instead of a choice.
        symmetrize: default symmetrisation method for word links.
        report: import path of the function that builds a report section, `package.module:function`;
            "" if there is none.
    """

    target: str
    help: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    learns_from: tuple[str, ...] = ("parallel",)
    trains: bool = False
    of_each: bool = False
    unit: Literal["words", "sentences"] = "words"
    pooling: str = ""
    symmetrize: str = "one-to-one"
    report: str = ""

    @property
    def needs_links(self) -> bool:
        """True if the method requires parallel text with word links."""
        return "text" not in self.learns_from


def _maps(
    name: str, text: str, *learns_from: str, unit: Literal["words", "sentences"] = "words"
) -> MethodRow:
    """Return the `METHODS` entry of a map-fitting method, whose class is `LinkedMaps` if it
    supports parallel text.
    """
    target = "calque.alignment.maps:LinkedMaps"
    if "parallel" not in learns_from:
        target = "calque.alignment.dictionary:DictionaryMaps"
    return MethodRow(target, text, {"method": name}, learns_from, unit=unit)


def _row_of(name: str, cls: type) -> MethodRow:
    summary = (inspect.getdoc(cls) or "").partition("\n\n")[0].replace("\n", " ")
    return MethodRow(name, summary, trains=getattr(cls, "trains", False))


METHODS: Table[MethodRow] = Table(
    "method",
    {
        "rotation": _maps("rotation", "orthogonal map of word vectors", "parallel", "dictionary"),
        "normalized-rotation": _maps(
            "normalized-rotation", "rotation of mean-centred vectors", "parallel", "dictionary"
        ),
        "sentence-rotation": _maps(
            "sentence-rotation",
            "rotation fitted on mean sentence vectors",
            "parallel",
            unit="sentences",
        ),
        "linear": _maps("linear", "linear map fitted by least squares", "parallel", "dictionary"),
        "means": MethodRow(
            "calque.alignment.text_maps:LanguageMeans",
            "shifts each language's mean vector to the mean of --towards; needs no translations",
            learns_from=("parallel", "text"),
        ),
        "standardize": MethodRow(
            "calque.alignment.text_maps:Standardize",
            "gives each dimension mean 0 and variance 1; does not align languages",
            learns_from=("parallel", "text"),
        ),
        "finetune": MethodRow(
            "calque.alignment.finetune:FineTune",
            "trains the encoder to bring linked words closer",
            trains=True,
            pooling="last",  # Cao et al. (2020), §3.1
        ),
        "contrastive": MethodRow(
            "calque.alignment.contrastive:Contrastive",
            "contrasts linked words with other words (InfoNCE)",
            trains=True,
        ),
        "clcr": MethodRow(
            "calque.clcr.method:KeyPointAlignment",
            "aligns one encoder per language, and represents sentences by key points in the same "
            "order in all languages",
            trains=True,
            of_each=True,
            symmetrize="grow-diag-final-and",  # links each word to all words of its translation
            report="calque.clcr.report:key_points",
        ),
    },
    base="calque.alignment.base:Method",
    row_of=_row_of,
)


def options_of_method(name: str) -> dict[str, Declared]:
    """Return the options of a method's class, keyed by name."""
    return declared(METHODS.load(name), "towards", *METHODS[name].settings)


def methods_for(supervision: str) -> tuple[str, ...]:
    """Return the names of the methods that support the training data `supervision`, see
    `MethodRow.learns_from`.
    """
    return tuple(name for name, row in METHODS.items() if supervision in row.learns_from)


def learns_from(method: str, supervision: str) -> bool:
    """Return whether a method supports a type of training data; methods from other packages support
    only parallel text.
    """
    return method in methods_for(supervision) or (supervision == "parallel" and is_path(method))
