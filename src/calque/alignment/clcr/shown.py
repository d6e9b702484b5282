"""Held-out sentences with what was learnt of them, for the record: what Figures 2 and 3 are drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calque.alignment.clcr.extracting import KeyPointScores
from calque.alignment.clcr.linked import LinkedOrder
from calque.alignment.clcr.reordering import Order, order_matrices
from calque.nn.order import AbsoluteOrder, RelativeOrder
from calque.text import Sentences
from calque.vectors import Embeddings

_SENTENCES = 5
_FEWEST, _MOST = 4, 16  # key points of a sentence whose order is shown: something to order, and a matrix one can read


def key_point_examples(lang: str, sentences: Sentences, scores: Mapping[str, KeyPointScores]) -> list[dict[str, Any]]:
    """The first sentences with the probability of each word to be a key point (Figure 2).

    Args:
        lang: their language.
        sentences: a text, or its beginning.
        scores: of that text, by the name of what was trained.
    """
    found = []
    for number in range(min(_SENTENCES, len(sentences))):
        said = {name: each.sentence(number) for name, each in scores.items()}
        found.append(
            {
                "lang": lang,
                "sentence": number,
                "words": list(sentences[number].words),
                "pivots": next(iter(said.values()))[1].tolist(),
                "probabilities": {name: _rounded(values) for name, (values, _) in said.items()},
            }
        )
    return found


def order_examples(
    lang: str, sentences: Sentences, vectors: Embeddings, gold: LinkedOrder, heads: Mapping[str, Order]
) -> list[dict[str, Any]]:
    """The first sentences that have a few key points to order, with what was found (Figure 3): the words of these in the
    order of the sentence, the place of each in the other language (`ranks`, from 0), and the matrices `places` and `before`
    of `OrderMatrices`, as far as there is a model that gives them.

    Args:
        lang: their language.
        sentences, vectors, gold: a text, its vectors, and the right order of its key points.
        heads: what was trained, by its kind, "relative" or "absolute".
    """
    relative, absolute = heads.get("relative"), heads.get("absolute")
    assert relative is None or isinstance(relative, RelativeOrder)
    assert absolute is None or isinstance(absolute, AbsoluteOrder)
    found = []
    for number in np.flatnonzero((gold.lengths >= _FEWEST) & (gold.lengths <= _MOST))[:_SENTENCES].tolist():
        begin = int(gold.lengths[:number].sum())
        own, words = slice(begin, begin + int(gold.lengths[number])), sentences[number].words
        matrices = order_matrices(relative, absolute, vectors, gold, number)
        tables = {"places": matrices.places, "before": matrices.before}
        found.append(
            {
                "lang": lang,
                "sentence": number,
                "words": [words[position] for position in gold.positions[own].tolist()],
                "ranks": gold.ranks[own].tolist(),
                **{name: _rounded(table) for name, table in tables.items() if table is not None},
            }
        )
    return found


def _rounded(values: np.ndarray) -> list[Any]:
    return values.astype(np.float64).round(3).tolist()
