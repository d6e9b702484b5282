"""Train a tiny SaELMo and a tiny SaBERT on two languages, also as a program for two processes. Not
a test itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calque.annotated import Dictionary
from calque.senses.bidirectional import BiLanguageModel
from calque.senses.masked import MaskedLanguageModel, train_tokenizer
from calque.senses.sense_table import SenseTable
from calque.senses.training import LanguageModel, Pretrained, Senses
from calque.text import Sentences

KINDS = ("elmo", "bert")
WORDS = {
    "en": ["the", "cat", "sees", "a", "house", "bank", "river"],
    "de": ["die", "katze", "sieht", "ein", "haus", "ufer", "taxi"],
}
TRANSLATIONS = [
    ("cat", "katze"),
    ("house", "haus"),
    ("bank", "ufer"),
    ("bank", "haus"),
    ("the", "die"),
]
DICTIONARY = Dictionary(*map(tuple, zip(*TRANSLATIONS, strict=True)), langs=("en", "de"))
SENSES: dict[str, dict[str, Any]] = {
    "elmo": {
        "senses": 3,
        "warmup": 6,
        "axes": 4,
        "queue": 400,
        "project_every": 2,
        "rate": 0.1,
        "prune_every": 4,
        "occurrences": 0,
    },
    "bert": {
        "senses": 3,
        "warmup": 3,
        "axes": 4,
        "queue": 50,
        "project_every": 2,
        "rate": 0.1,
        "prune_every": 4,
        "start": "kept",
        "occurrences": 5,
        "spread": 1.0,
    },
}
SHAPES: dict[str, dict[str, Any]] = {
    "elmo": {
        "dim": 6,
        "hidden": 8,
        "filters": [(1, 4), (2, 4)],
        "dropout": 0.0,
        "min_count": 1,
        "optimiser": "adagrad",
    },
    "bert": {
        "layers": 2,
        "dim": 16,
        "heads": 2,
        "inner": 24,
        "positions": 40,
        "length": 20,
        "share": 0.3,
        "learning_rate": 1e-3,
    },
}


def make_texts() -> dict[str, Sentences]:
    rng = np.random.default_rng(0)
    return {
        lang: Sentences.of([list(rng.choice(words, rng.integers(1, 9))) for _ in range(30)], lang)
        for lang, words in WORDS.items()
    }


def make_tokenizer():
    return train_tokenizer(make_texts(), size=70)


def model(
    kind: str, senses: dict[str, Any] | None = None, **options
) -> BiLanguageModel | MaskedLanguageModel:
    settings = Senses(**SENSES[kind] | (senses or {}))
    method = {"elmo": BiLanguageModel, "bert": MaskedLanguageModel}[kind]
    return method(**SHAPES[kind] | {"batch": 24, "updates": 10, "senses": settings} | options)


def train(method: LanguageModel, dictionaries=(DICTIONARY,), **options) -> Pretrained:
    texts = make_texts()
    given = [make_tokenizer()] if isinstance(method, MaskedLanguageModel) else []
    return method.train(texts, *given, dictionaries=dictionaries, **options)


def tables_of(trained: Pretrained) -> list[SenseTable]:
    assert trained.softmax is not None
    return trained.softmax.senses


def outcome(trained: Pretrained) -> dict[str, Any]:
    """Return everything that must be equal after two training runs with the same settings."""
    return {
        "losses": [line["loss"] for line in trained.history],
        "model": trained.model.state_dict(),
        "tables": [table.state_dict() for table in tables_of(trained)],
    }


def main(folder: str) -> None:
    torch.set_num_threads(1)
    for kind in KINDS:
        torch.save(outcome(train(model(kind))), Path(folder) / f"{kind}.pt")


if __name__ == "__main__":
    main(sys.argv[1])
