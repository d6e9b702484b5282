"""Types of the options that methods, maps, tasks and language models have of their own, from their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from calque.alignment import METHODS, methods_for
from calque.errors import SettingError
from calque.runs.align import AVERAGING, STARTS, map_method
from calque.runs.study.values import Count, Layer, Share, of
from calque.tasks.table import TASKS, option_names

Types = dict[str, Any]
#: how anchors are averaged
OF_ANCHORS: Types = {name: Count for name in AVERAGING if name != "layers"}


def options_of_method(name: str) -> Types:
    """Return the options of a method that learns from parallel text or plain text, or that trains: those of its class."""
    options = of(METHODS.load(name), "towards", *METHODS[name].settings)
    return {**options, **({"layers": Sequence[Layer]} if "layers" in options else {})}


def of_maps(source: str = "") -> Types:
    """Return options of maps from dictionaries or a start, or of those from one source: dictionary, identical or
    unsupervised."""
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


def of_model(model: str) -> Types:
    """Return the settings of the class of a language model."""
    return of(class_of_model(model), *(("start",) if model == "bert" else ()))


def class_of_model(model: str) -> type:
    """Return the class of a language model.

    Raises:
        SettingError: there is none of this name.
    """
    if model == "elmo":
        from calque.pretraining.bidirectional import BiLanguageModel

        return BiLanguageModel
    if model == "bert":
        from calque.pretraining.masked import MaskedLanguageModel

        return MaskedLanguageModel
    raise SettingError(f"unknown model {model!r} to pretrain, expected bert or elmo")


def of_pretraining(model: str) -> Types:
    """Return the options of `calque pretrain` that a study may set, see `class_of_model`."""
    from calque.runs.pretrain import PRESETS

    more = {"vocabulary": Count, "half": bool, "lower": bool} if model == "bert" else {}
    senses = int | Mapping[str, Any]
    return {**of_model(model), **more, "senses": senses, "preset": Literal[tuple(PRESETS)], "held_out": int}


def check_pretraining(model: str, options: Mapping[str, Any], *, langs: Sequence[str], translated: bool) -> None:
    """Construct a language model, which checks its settings; see `settings_for`."""
    from calque.runs.pretrain import check_warmup, settings_for

    options = dict(options)
    how = {"preset": options.pop("preset", None), "senses": options.pop("senses", None)}
    settings = settings_for(model, **how, langs=langs, translated=translated, options=options)
    beside = ("held_out", "vocabulary", "half", "lower") if model == "bert" else ("held_out",)
    check_warmup(class_of_model(model)(**{name: value for name, value in settings.items() if name not in beside}))


def of_senses() -> Types:
    """Return the settings of the senses of a language model."""
    from calque.pretraining.senses import Senses

    return of(Senses)
