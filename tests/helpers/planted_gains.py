"""A world in which alignment helps some tasks and hurts others, more where the gradients agree and retrieval is poor."""

from __future__ import annotations

import numpy as np

from calque.analyses.advice import Cell, Question

TASKS = {"pos": 12.0, "slots": 7.0, "nli": 5.0, "parsing": -3.0, "ner": -5.0, "sentiment": 2.0, "qa": -7.0}
LANGS = ("bg", "de", "es", "fr", "ru", "tr", "zh")
NOISE = 0.8


def gain(task: float, form: float, pairs: float) -> float:
    """The right answer."""
    return task + 8 * (0.3 - form) + 2 * (np.log10(pairs) - 3)


def planted_cells(seed: int = 0, *, amounts=(500, 2000, 5000), error: float = 0.5) -> list[Cell]:
    """Cells of 7 tasks in 7 languages: the cosine of gradients tells of a task what the words for it do."""
    rng = np.random.default_rng(seed)
    cells = []
    for lang in LANGS:
        form, probe = rng.uniform(0.1, 0.5), rng.uniform(0.95, 1)
        for pairs in amounts:
            for task, own in TASKS.items():
                features = {
                    "pairs": float(pairs),
                    "form": form,
                    "probe": probe,
                    "gradient": own / 50 + rng.normal(0, 0.01),
                }
                measured = gain(own, form, pairs) + rng.normal(0, NOISE) + rng.normal(0, error)
                cells.append(Cell(Question("mini", lang, task, features), measured, error))
    return cells
