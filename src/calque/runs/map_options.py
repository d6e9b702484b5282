"""Options of `calque align` with dictionaries or without translations, and their types."""

from __future__ import annotations

from calque.runs.supervision import Averaging
from calque.spec import Declared, declared


def options_of_maps(source: str = "") -> dict[str, Declared]:
    """Return the options for maps, or only those for one `source` of maps: dictionary, identical
    or unsupervised.
    """
    from calque.alignment.dictionary import DictionaryMaps

    options = dict(declared(DictionaryMaps, "towards"))
    of_anchors = declared(Averaging)
    options["layers"] = of_anchors["layers"]
    if not source:
        return options
    without = {"method", "seed", "start_options"}
    if source != "unsupervised":
        without |= {"start", "restarts"}
    if source != "dictionary":
        without |= {"identical", "held_out", "shrinkage"}
    options |= of_anchors
    options = {name: each for name, each in options.items() if name not in without}
    if source == "unsupervised":
        options |= options_of_starts()
    return options


def options_of_starts(*starts: str) -> dict[str, Declared]:
    """Return the options for the given initialisations without a dictionary; default: for all of
    them.
    """
    from calque.maps.adversarial import adversarial_start
    from calque.maps.distributions import self_learning
    from calque.maps.unsupervised import start_options

    every: dict[str, Declared] = {}
    for function in (self_learning, adversarial_start):
        every |= declared(function)
    names: list[str] = []
    for start in starts or ("distributions", "adversarial"):
        names += start_options(start)
    return {name: every[name] for name in names}
