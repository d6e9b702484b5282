"""Mining: which sentences of two texts translate each other, by margins and a threshold (Artetxe & Schwenk 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calque.algebra.margin import Margin, best_by_margin
from calque.algebra.mining import Mined, Strategy, best_threshold, mine
from calque.corpora.comparable import Comparable
from calque.encoders.base import Encoder
from calque.encoders.sentence_vectors import SentencePooling, SentenceVectors, sentence_vectors
from calque.errors import SettingError
from calque.segment import splitter
from calque.tasks.bootstrap import Statistic, accuracy, f1
from calque.text import ParallelCorpus, Sentences


@dataclass(frozen=True)
class Minable:
    """Two texts as sets of sentences, and the pairs that are to be found.

    Attributes:
        source, target: the sentences, each text once.
        gold: int64 `[n_pairs, 2]`, sorted, each pair once.
        rows: int64 `[n]` and `[m]`, where in the texts as they were each sentence stands first.
        name: of the texts, for messages.
    """

    source: Sentences
    target: Sentences
    gold: np.ndarray
    rows: tuple[np.ndarray, np.ndarray]
    name: str = ""


def minable(text: ParallelCorpus | Comparable) -> Minable:
    """A text as it is mined: parallel text is one in which everything has a translation. Sentences that come twice are one, and
    empty ones none."""
    if isinstance(text, Comparable):
        gold = text.gold
    else:
        gold = np.repeat(np.arange(len(text))[:, None], 2, axis=1)
    rows, sides, columns = [], [], []
    for side, column in ((text.source, gold[:, 0]), (text.target, gold[:, 1])):
        numbers = text_numbers(side)
        distinct, first = np.unique(numbers, return_index=True)
        keep = side.lengths()[first] > 0
        order = np.argsort(first[keep])
        place = np.full(len(distinct), -1)
        place[distinct[keep][order]] = np.arange(int(keep.sum()))
        rows.append(first[keep][order])
        sides.append(side.take(rows[-1]))
        columns.append(place[numbers[column]])
    pairs = np.stack(columns, axis=1)
    pairs = np.unique(pairs[(pairs >= 0).all(axis=1)], axis=0)
    return Minable(sides[0], sides[1], pairs, (rows[0], rows[1]), text.path or "")


def text_numbers(sentences: Sentences) -> np.ndarray:
    """int64 `[n_sentences]`: a number for each text, the same for sentences of the same words; from 0 in order."""
    known: dict[tuple[str, ...], int] = {}
    return np.array([known.setdefault(sentence.words, len(known)) for sentence in sentences], dtype=np.int64)


@dataclass(frozen=True)
class Mining:
    """How pairs are mined.

    Attributes:
        margin, k: see `best_by_margin`.
        strategy: see `calque.algebra.mining.mine`.
        threshold: the margin from which pairs count; None to choose it on a development text.
    """

    margin: Margin = "ratio"
    k: int = 4
    strategy: Strategy = "max"
    threshold: float | None = None

    def pairs(self, source: SentenceVectors, target: SentenceVectors) -> Mined:
        """Candidate pairs of sentences that have a vector."""
        rows = [np.flatnonzero(side.covered) for side in (source, target)]
        found = mine(
            best_by_margin(source.data[rows[0]], target.data[rows[1]], margin=self.margin, k=self.k), self.strategy
        )
        return Mined(rows[0][found.source], rows[1][found.target], found.scores)

    def chosen(self, text: Minable, source: SentenceVectors, target: SentenceVectors) -> float:
        """The threshold that is best on a text."""
        found = self.pairs(source, target)
        return best_threshold(found, is_gold(text, found), len(text.gold))


def is_gold(text: Minable, found: Mined) -> np.ndarray:
    """bool `[n_pairs]`: a pair is one of those to be found."""
    width = len(text.target)
    return np.isin(found.source * width + found.target, text.gold[:, 0] * width + text.gold[:, 1])


def mining_figures(text: Minable, found: Mined) -> list[tuple[str, np.ndarray, Statistic]]:
    """F1, precision and recall of pairs: name, sums for each source sentence, and the statistic of them."""
    n, right = len(text.source), is_gold(text, found)
    of_source = (found.source[right], found.source, text.gold[:, 0])
    hits, said, true = (np.bincount(numbers, minlength=n) for numbers in of_source)
    return [
        ("f1", np.stack([hits, said, true], axis=1), f1),
        ("precision", np.stack([hits, said], axis=1), accuracy),
        ("recall", np.stack([hits, true], axis=1), accuracy),
    ]


# -- texts into vectors ------------------------------------------------------------------------------------------------
def encoded(
    encoder: Encoder, pooling: SentencePooling, sides: Sequence[Sentences], *, tokenize: bool, progress: bool = False
) -> list[SentenceVectors]:
    """Vectors of several lists of sentences.

    Args:
        tokenize: what stands between spaces is divided into words where the pooling is one of words.

    Raises:
        SettingError: none of the sentences of a list has a vector.
    """
    vectors = []
    for side in sides:
        text = into_words(side) if tokenize and pooling.unit == "words" else side
        vectors.append(sentence_vectors(encoder, text, pooling, progress=progress))
        if len(side) and not vectors[-1].covered.any():
            raise SettingError(
                f"{encoder.name} has no vector for any of {len(side):,} sentences in {side.lang}, so there is nothing to measure"
            )
    return vectors


def into_words(sentences: Sentences) -> Sentences:
    """The same text, divided by the rules of its language."""
    split = splitter(sentences.lang, pretokenized=False)
    return Sentences.of([split(" ".join(sentence.words)) for sentence in sentences], sentences.lang)


def about_vectors(encoder: Encoder, pooling: SentencePooling, asked: str | None) -> dict[str, Any]:
    """What a record says of the encoder and of how a sentence's vector was made."""
    return {
        "sentence_pooling": asked or "default",
        "pooled": f"{pooling.name} ({'+'.join(pooling.modes)})" if pooling.name == "own" else pooling.name,
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
    }
