"""Which settings the tables of a study may have, and of which types, so that none is dropped quietly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from calque.alignment import METHODS
from calque.linking import Words
from calque.runs.align import AVERAGING, map_method
from calque.runs.study.values import Count, Few, Files, Layer, Share, of
from calque.tasks.table import TASKS, option_names

Types = dict[str, Any]

#: annotated files, each in a language, of tasks whose files say their own
PARTS = ("train", "test", "dev", "ceiling", "links")
#: what a study calls files otherwise
SETTINGS = {"text": "texts"}
ENTRIES = Sequence[int]
_BY_LANGUAGE = Mapping[str, str]
_POOLING = Literal["last", "first", "mean"]

#: what a study may say at the top
TOP: Types = {
    "encoders": Mapping[str, str | Mapping[str, Any]] | Sequence[str],
    "methods": Mapping[str, Mapping[str, Any]] | Sequence[str],
    "supervision": Mapping[str, Mapping[str, Any]],
    "tasks": Mapping[str, Mapping[str, Any]],
    "source": str,
    "towards": str,
    "together": bool,
    "seeds": Few,
    "runs": Few,
    "words": Mapping[str, Any],
    "data": str,
    "out": str,
}
OF_ENCODER: Types = {
    "path": str, "pretrain": Mapping[str, Any], "runs": Few, "layers": Sequence[Layer], "pooling": _POOLING,
    "bidirectional": bool,
}  # fmt: skip
#: what a method can set of `load_encoder`
LOADED: Types = {"layer": Layer, "pooling": _POOLING, "bidirectional": bool}
#: what a method says beside its options
OF_METHOD = ("method", "supervision", "encoders", "runs", "views")
#: module of the system that trains encoders from text, whose `check` and `train` do so
PRETRAINING = "calque.senses.study"
#: of a method, or a task: the only encoders, and of a task the only methods, that it is for
OF_ROWS: Types = {"encoders": Files, "methods": Files}


def of_words() -> Types:
    """How word links are made."""
    from calque.wordalign.symmetrization import Symmetrization

    return {**of(Words), "model": Literal["auto", "fast-align", "hmm", "gibbs"], "symmetrize": Symmetrization}


def of_supervision(kind: str) -> Types:
    """Settings of a supervision that are not its languages."""
    if kind == "parallel":
        return {"kind": str, "limit": Count, "pretokenized": bool}
    entries = {"entries": ENTRIES} if kind == "dictionary" else {}
    return {"kind": str, "texts": _BY_LANGUAGE, **entries, **of_anchors()}


def of_method(given: Mapping[str, Any], kind: str) -> Types:
    """Settings of a method where it has a supervision of some kind."""
    if kind != "parallel" and not _has_options_of_its_own(given):
        return {"supervision": Files, "encoders": Files, **of_maps()}
    shared = {"method": str, "supervision": Files, "encoders": Files, **LOADED}
    if METHODS[given["method"]].trains:
        shared["runs"] = Few
    if METHODS[given["method"]].of_each:
        shared["views"] = Mapping[str, Mapping[str, Any]]
    return {**shared, **options_of_method(given["method"])}


def _has_options_of_its_own(given: Mapping[str, Any]) -> bool:
    """Whether a method's options are those of its class whatever it learns from, and not those of maps between anchors."""
    return given["method"] in METHODS and (METHODS[given["method"]].trains or from_text(given["method"]))


def from_text(name: str) -> bool:
    return "text" in METHODS[name].learns_from


def options_of_method(name: str) -> Types:
    """Options of a method that learns from parallel text or plain text, or that trains: those of its class."""
    options = of(METHODS.load(name), "towards", *METHODS[name].settings)
    return {**options, **({"layers": Sequence[Layer]} if "layers" in options else {})}


def of_maps(source: str = "") -> Types:
    """Options of maps from dictionaries or a start, or of those from one source: dictionary, identical or unsupervised."""
    options = {**of(map_method, "towards"), "held_out": Share, "layers": Sequence[Layer]}
    if not source:
        return options
    without = {"method", "seed", "start_options"} | ({"start", "restarts"} if source != "unsupervised" else set())
    without |= {"identical", "held_out"} if source != "dictionary" else set()
    averaging = {name: Count for name in AVERAGING if name != "layers"}
    starts = of_starts() if source == "unsupervised" else {}
    return {name: kind for name, kind in {**options, **averaging}.items() if name not in without} | starts


def of_start(start: str) -> Types:
    """Options of a start without a dictionary."""
    from calque.maps.unsupervised import start_options

    return {name: of_starts()[name] for name in start_options(start)}


def of_starts() -> Types:
    """Options of all starts without a dictionary."""
    from calque.maps.adversarial import adversarial_start
    from calque.maps.distributions import self_learning, similarity_seeds
    from calque.maps.unsupervised import start_options

    functions = (similarity_seeds, self_learning, adversarial_start)
    types = {name: wanted for function in functions for name, wanted in of(function).items()}
    return {name: types[name] for start in ("distributions", "adversarial") for name in start_options(start)}


def of_anchors() -> Types:
    """Settings of a supervision whose words get anchors."""
    return {"limit": Count, "pretokenized": bool, **{name: Count for name in AVERAGING if name != "layers"}}


def of_task(task: str) -> Types:
    """Settings of a task, besides `task`."""
    row = TASKS[task]
    shape: Any = _BY_LANGUAGE if row.languages == "pairs" else Files
    files = {SETTINGS.get(name, name): shape for name in (*PARTS, "text") if name in row.files}
    if row.languages != "pairs":
        files.pop("links", None)  # those of a text over which tags are projected
    unnamed = (*PARTS, "text", "train_links", "project")
    others = {name: str for name in row.files if name not in unnamed}
    read = {"pretokenized": bool, "test_limit": Count} if row.languages == "files" or "text" in row.files else {}
    return {
        **files,
        **others,
        **OF_ROWS,
        **({"seeds": Few} if "seeds" in row.options else {}),
        "limit": Count,
        **{name: read[name] for name in read if name in row.options},
        **options_of(task),
    }


def options_of(task: str) -> Types:
    """The options of a task's class."""
    kind = TASKS.load(task)
    types: Types = {}
    for function in kind.takes():
        types = {**of(function), **types}
    return {name: types[name] for name in option_names(kind) if name != "seeds"}
