"""The encoders that a study measures, and how its tables name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calque.runs.steps import Step


@dataclass(frozen=True)
class Row:
    """An encoder as the tables show it.

    Attributes:
        about: `encoder`, `layer`, `method`, `supervision` and `training_seed`, by which a score is known; the seed is None
            where nothing random was trained.
        encoder: where it is: the step that makes it, or what `load_encoder` takes.
        load: keyword arguments of `load_encoder`.
        langs: languages that it was made for; None for all.
        base: the encoder before the method, as `encoder`; None where there was no method.
    """

    about: dict[str, Any]
    encoder: Step | str
    load: dict[str, Any] = field(default_factory=dict)
    langs: tuple[str, ...] | None = None
    base: Step | str | None = None


@dataclass(frozen=True)
class Base:
    """An encoder before any method.

    Attributes:
        encoder: as in `Row`.
        langs: as in `Row`.
        number, seed: which of several trainings it is, and of which seed; None where there is but one.
    """

    encoder: Step | str
    langs: tuple[str, ...] | None = None
    number: int | None = None
    seed: int | None = None


def label_of(about: Mapping[str, Any]) -> str:
    """An encoder by the study's own names."""
    layer, seed = about["layer"], about["training_seed"]
    parts = [about["encoder"], f"layer {layer}" if layer is not None else "", about["method"], about["supervision"]]
    return ", ".join([*filter(None, parts), *([f"seed {seed}"] if seed is not None else [])])


def about_of(encoder: str, layer: int | None, method: str, supervision: str, seed: int | None = None) -> dict[str, Any]:
    """What is known of a score beside the score."""
    return {"encoder": encoder, "layer": layer, "method": method, "supervision": supervision, "training_seed": seed}
