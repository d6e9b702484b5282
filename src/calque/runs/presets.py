"""Settings of language models under a name: those of the Multi-sense paper, and smaller ones that can be compared alike.

A preset holds for a model with senses and without, so that the two differ in nothing else. Whatever is named beside it
counts instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calque.errors import SettingError

Settings = dict[str, Any]

# Tables 6 to 8 of the paper, and Appendix D. Where it gives no number, or one that has no counterpart, ours stay:
# - a batch is of sentences, not of pieces of 20 words (12, with two languages) of a stream (`unroll_steps`);
# - an epoch (`n_epochs`) is counted in updates: 1,000,000, or 600,000 for several languages;
# - of ELMo the size of the vocabulary, of BERT the batch, the learning rate and the length of a block.
_PAPER: Mapping[str, Settings] = {
    "elmo": {
        "dim": 512, "hidden": 4096, "layers": 2, "character_dim": 16, "max_characters": 50, "highway": 2,
        "clip_values": 3.0, "clip": 10.0, "dropout": 0.1, "batch": 256, "negatives": 8192, "tables": 2,
        "optimiser": "adagrad", "learning_rate": 0.2, "vocabulary": 100_000, "lower": True,
    },
    "bert": {
        "dim": 512, "layers": 4, "heads": 8, "inner": 2048, "positions": 512, "segments": 2, "initial": 0.02,
        "dropout": 0.1, "vocabulary": 27_654, "lower": True,
    },
}  # fmt: skip
_ALGORITHMS: Settings = {
    "warmup": 20_000,
    "occurrences": 0,
    "rate": 0.01,
    "queue": 20_000,
    "centred": False,
    "whiten": 0.0,
    "joint": False,
}
_PAPER_SENSES: Mapping[str, Settings] = {
    "elmo": {**_ALGORITHMS, "start": "fresh", "axes": 16, "below": 0.1},
    "bert": {**_ALGORITHMS, "start": "kept", "axes": 14, "below": 0.0},
}

# About an hour at most on two cores, with 9 MB of text of each language; and minutes.
_SMALL: Mapping[str, Settings] = {
    "elmo": {"dim": 64, "hidden": 256, "vocabulary": 20_000, "batch": 64, "updates": 3000, "negatives": 2048, "tables": 2},
    "bert": {"dim": 128, "layers": 4, "vocabulary": 12_000, "batch": 32, "updates": 6000, "length": 64, "positions": 128},
}  # fmt: skip
_TINY: Mapping[str, Settings] = {
    "elmo": {"dim": 32, "hidden": 64, "vocabulary": 5000, "batch": 32, "updates": 400, "negatives": 512, "tables": 2},
    "bert": {"dim": 64, "layers": 2, "vocabulary": 4000, "batch": 16, "updates": 600, "length": 64, "positions": 128},
}
#: of `small` and `tiny`, what differs from the defaults of `Senses`
_SMALL_SENSES: Mapping[str, Settings] = {"elmo": {}, "bert": {}}
_TINY_SENSES: Mapping[str, Settings] = {"elmo": {}, "bert": {}}

PRESETS: Mapping[str, tuple[Mapping[str, Settings], Mapping[str, Settings]]] = {
    "paper": (_PAPER, _PAPER_SENSES),
    "small": (_SMALL, _SMALL_SENSES),
    "tiny": (_TINY, _TINY_SENSES),
}


def of_model(preset: str | None, model: str, several: bool) -> Settings:
    """What a preset says of a language model.

    Args:
        preset: its name; None says nothing.
        model: bert or elmo.
        several: whether the text is in several languages, which are then seen in equal shares.

    Raises:
        SettingError: no such preset.
    """
    if preset is None:
        return {}
    settings = dict(_named(preset)[0][model])
    if preset == "paper":
        settings["updates"] = 600_000 if several else 1_000_000
    return {**settings, **({"alpha": 0.0} if several else {})}


def of_senses(preset: str | None, model: str) -> Settings:
    """What a preset says of the senses. How many there are is not among it: 5 as published, or 3 with two languages."""
    return {} if preset is None else dict(_named(preset)[1][model])


def _named(preset: str) -> tuple[Mapping[str, Settings], Mapping[str, Settings]]:
    if preset not in PRESETS:
        raise SettingError(f"unknown preset {preset!r}, expected {', '.join(PRESETS)}")
    return PRESETS[preset]
