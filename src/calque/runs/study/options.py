"""Types of the options of methods, maps and tasks, from their classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from calque.alignment import METHODS, methods_for
from calque.alignment.driver import align_options
from calque.runs.align import AVERAGING, STARTS, map_method
from calque.runs.study.values import Count, Layer, Share, of
from calque.tasks.table import TASKS, option_names

Types = dict[str, Any]
#: module with `check_pretraining` and `train`, which trains encoders from text
PRETRAINING = "calque.senses.study"
#: options of anchors
OF_ANCHORS: Types = {name: Count for name in AVERAGING if name != "layers"}


def options_of_method(name: str) -> Types:
    """Return the options of the class of a method for parallel or plain text and of its `align`, also by their old names."""
    kind = METHODS.load(name)
    options, run = of(kind, "towards", *METHODS[name].settings), of(kind.align)
    options = {**options, **{each: run[each] for each in align_options(kind)}}
    options |= {old: options[new] for old, new in vars(kind).get("renamed", {}).items()}
    return {**options, **({"layers": Sequence[Layer]} if "layers" in options else {})}


def of_maps(source: str = "") -> Types:
    """Return the options of maps from dictionaries or a start, or from one source: dictionary, identical or unsupervised."""
    own = {
        "held_out": Share,
        "layers": Sequence[Layer],
        "start": Literal[STARTS],
        "method": Literal[methods_for("dictionary")],
    }
    options = {**of(map_method, "towards"), **own}
    if not source:
        return options
    without = {"method", "seed", "start_options"} | ({"start", "restarts"} if source != "unsupervised" else set())
    without |= {"identical", "held_out"} if source != "dictionary" else set()
    starts = of_starts() if source == "unsupervised" else {}
    return {name: kind for name, kind in {**options, **OF_ANCHORS}.items() if name not in without} | starts


def of_start(start: str) -> Types:
    """Return the options of a start without a dictionary."""
    from calque.maps.unsupervised import start_options

    return {name: of_starts()[name] for name in start_options(start)}


def of_starts() -> Types:
    """Return the options of all starts without a dictionary."""
    from calque.maps.adversarial import adversarial_start
    from calque.maps.distributions import self_learning, similarity_seeds
    from calque.maps.unsupervised import start_options

    functions = (similarity_seeds, self_learning, adversarial_start)
    types = {name: wanted for function in functions for name, wanted in of(function).items()}
    return {name: types[name] for start in ("distributions", "adversarial") for name in start_options(start)}


def options_of(task: str) -> Types:
    """Return the options of a task's class."""
    kind = TASKS.load(task)
    types: Types = {}
    for function in kind.takes():
        types = {**of(function), **types}
    return {name: types[name] for name in option_names(kind) if name != "seeds"}
