"""The first step of CLCR with tiny encoders, for tests that run this step several times. Not a test
itself.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from calque.alignment.base import Run
from calque.alignment.data import training_data
from calque.clcr import method
from calque.clcr.learning import Transformed
from calque.clcr.method import KeyPointAlignment
from calque.encoders import load_encoder
from encoder_copies import with_dropout
from linked_text import make_text

SETTINGS: dict[str, Any] = {
    "towards": "en",
    "batch": 3,
    "epochs": (2.0, 1.0, 1.0, 2.0, 1.0),
    "steps": "transform",
    "learning_rate": (5e-3, 1e-3, 1e-3),
    "held_out": 0.1,
    "max_words": None,
}


def two_languages(folder: str, dropout: float = 0.0) -> dict[str, Any]:
    """Return copies of a tiny encoder for three languages; training makes the copies differ."""
    return {lang: with_dropout(load_encoder(folder), dropout) for lang in ("en", "xx", "yy")}


def run(
    folder: str,
    out: Path | None,
    *,
    dropout: float = 0.0,
    sizes: tuple[int, ...] = (14, 6),
    **settings: Any,
) -> tuple[Transformed, dict[str, torch.Tensor]]:
    """Run the first step of CLCR, and return its result and all weights."""
    texts = [
        make_text(lang, n, number)
        for number, (lang, n) in enumerate(zip(("xx", "yy"), sizes, strict=False))
    ]
    job = KeyPointAlignment(**(SETTINGS | settings))
    data = training_data([text[0] for text in texts], [text[1] for text in texts])
    found, weights = (
        job.fit(two_languages(folder, dropout), data, Run(out, checkpoint_every=2)).transformed,
        {},
    )
    for lang, encoder in found.encoders.items():
        weights |= {f"{lang}.{name}": value for name, value in encoder.model.state_dict().items()}  # type: ignore[attr-defined]
    for name, maps in (("to", found.to_pivot), ("from", found.from_pivot)):
        for lang, module in maps.items():
            weights |= {f"{name}.{lang}.{key}": value for key, value in module.state_dict().items()}
    return found, weights


#: Adam normalises gradients, so rounding errors in a zero gradient cause a full step unless epsilon
#: is much larger.
EQUAL = replace(method.PHASES, epsilon=1e-2)
