"""The senses of a word among their neighbours, as points of a picture (Multi-sense, Figures 4 to 7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from calque.analyses.questions import Finding
from calque.senses.reader import SenseReader
from calque.tasks.base import Score


def neighbourhoods(
    reader: SenseReader, word: int, *, k: int = 30, langs: np.ndarray | None = None, languages: Sequence[str] = ()
) -> Finding:
    """Each sense of a word with those nearest to it, in the plane of the first two principal axes of all senses.

    Args:
        k: neighbours of each sense.
        langs: the language of each word, as far as it is known.

    Returns:
        one finding, with an item for every point: `of`, the number of the sense whose neighbour it is, or which it is itself;
        `word`, `number`, `share`, `lang`, `cosine`, `x`, `y`.
    """
    inventory, points = reader.inventory, []
    for number in range(1, int(inventory.n_senses[word]) + 1):
        points.append((number, word, number, 1.0))
        points += [(number, *near) for near in reader.nearest(word, number, k)]
    places = inventory.plane(np.array([inventory.row(of, number) for _, of, number, _ in points]))
    items: list[dict[str, Any]] = [
        {
            "of": sense, "word": reader.words[of], "number": number,
            "share": round(float(inventory.shares[of, number - 1]), 4), "lang": None if langs is None else langs[of],
            "cosine": round(cosine, 4), "x": round(float(x), 5), "y": round(float(y), 5),
        }
        for (sense, of, number, cosine), (x, y) in zip(points, places.tolist(), strict=True)
    ]  # fmt: skip
    score = Score(
        "senses", reader.words[word], tuple(languages) or ("und",), "pca", math.nan, math.nan, math.nan, len(items), 0,
        {"encoder": reader.name, "direction": reader.direction},
    )  # fmt: skip
    return Finding("senses", reader.name, score, group=reader.words[word], items=items)
