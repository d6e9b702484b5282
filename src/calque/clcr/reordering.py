"""Reorder: the order that the key points of a sentence have in another language, learnt from the pivots of parallel text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from calque.clcr.extracting import share, source_rows
from calque.clcr.heads import HeadTraining, Trained
from calque.clcr.networks import ORDERS, Order
from calque.clcr.pivots import covered_words
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.training.sources import WordRows
from calque.vectors import Embeddings

LONGEST = 4  # n-grams


@dataclass(frozen=True)
class LinkedOrder:
    """The key points of each sentence, and the order of the words that they are linked to.

    Attributes:
        chosen: bool `[n_words]`, the words that are key points; none in sentences that have too few to be ordered.
        positions: int64 `[K]`, of each key point in its sentence.
        ranks: int64 `[K]`, its place among those of its sentence in the other language, from 0.
        lengths: int64 `[n_sentences]`, key points of each sentence.
        skipped: links that are not one to one, links to a word without a vector, and sentences with one key point or none.
    """

    chosen: np.ndarray
    positions: np.ndarray
    ranks: np.ndarray
    lengths: np.ndarray
    skipped: dict[str, int]

    @classmethod
    def of(cls, embeddings: Embeddings, pairs: WordPairs) -> LinkedOrder:
        """Build from vectors of the source language and links to the other.

        Raises:
            SettingError: links of other sentences.
        """
        source_rows(embeddings, pairs)  # whatever becomes of them, they must be of these sentences
        single = pairs.one_to_one()
        rows = source_rows(embeddings, single)
        kept = covered_words(embeddings)[rows]
        lengths = np.bincount(single.sentence[kept], minlength=len(embeddings))
        skipped = {
            "links_not_one_to_one": len(pairs) - len(single),
            "links_without_vector": int((~kept).sum()),
            "sentences_with_fewer_than_2_key_points": int((lengths < 2).sum()),
        }
        single = single.select(kept & (lengths[single.sentence] >= 2))
        single = single.select(np.lexsort((single.source, single.sentence)))
        lengths = np.where(lengths < 2, 0, lengths)
        chosen = np.zeros(embeddings.n_words, dtype=bool)
        chosen[embeddings.rows(single.sentence, single.source)] = True
        ranks = np.empty(len(single), dtype=np.int64)
        by_target = np.lexsort((single.target, single.sentence))
        ranks[by_target] = np.arange(len(single)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        return cls(chosen, single.source, ranks, lengths, skipped)


@dataclass(frozen=True, kw_only=True)
class Reordering:
    """How the order of a language's key points is learnt (CLCR, §3.3): from the pivots of each sentence, which the other
    language has in the order of their partners.

    Args:
        kind: "relative": which of two key points stands first (Eq. 8); "absolute": the place of each (Eq. 6).
        hidden, dropout: see `RelativeOrder` and `AbsoluteOrder`.
    """

    kind: Literal["relative", "absolute"] = "relative"
    hidden: int = 256
    dropout: float = 0.1
    training: HeadTraining = field(default_factory=HeadTraining)

    def __post_init__(self):
        if self.kind not in ORDERS:
            raise SettingError(f"an order is relative or absolute, got {self.kind!r}")

    def train(self, embeddings: Embeddings, pivots: WordPairs) -> Trained[Order]:
        """Learn the order of the pivots.

        Args:
            embeddings: vectors of the sentences of one language.
            pivots: links whose source words are of that language, and whose target words are of the language whose order
                is wanted. Words with several links say nothing of the order and are counted.

        Raises:
            SettingError: links of other sentences, or no sentence with two pivots.
        """
        gold = LinkedOrder.of(embeddings, pivots)
        if not gold.lengths.any():
            raise SettingError(
                f"no order can be learnt from {len(pivots)} pivots in {len(embeddings)} sentences, of which none has two: give "
                "more text, or leave the step out (steps=transform,extract)"
            )
        positions, ranks = torch.from_numpy(gold.positions), torch.from_numpy(gold.ranks)

        def losses(head: Order, given: WordRows, places: np.ndarray) -> Tensor:
            which = torch.from_numpy(places)
            return head.losses(given.rows, positions[which], given.lengths, ranks[which])

        kind = ORDERS[self.kind]
        make = partial(kind, dim=embeddings.dim, hidden=self.hidden, dropout=self.dropout)
        found: Trained[Order] = self.training.fit(
            make, embeddings, gold.chosen, losses, kind.questions(gold.lengths), name=f"order-{self.kind}"
        )
        counts = {"sentences": int((gold.lengths > 0).sum()), "key_points": len(gold.ranks), **gold.skipped}
        return replace(found, counts=counts)


def chosen_rows(embeddings: Embeddings, gold: LinkedOrder) -> Tensor:
    """Return the vectors of the key points, float32 `[K, dim]`."""
    return torch.from_numpy(np.asarray(embeddings.data[gold.chosen], dtype=np.float32))


def score_order(
    head: Order, embeddings: Embeddings, pivots: WordPairs, *, beams: Sequence[int] = (1, 10)
) -> dict[str, np.ndarray]:
    """Compare the order that a model gives the pivots of a text that it has not seen with that in the other language
    (Table 3).

    Args:
        embeddings, pivots: as in `Reordering.train`.
        beams: n of the search; 1 is greedy.

    Returns:
        sums of which `STATISTICS` are made, int64 `[n_ordered, 8]`, for the order "as it stands", and for that of each beam,
        "n = 1": see `ngram_counts`; of the sentences that have at least two key points.
    """
    gold = LinkedOrder.of(embeddings, pivots)
    orders = {"as it stands": np.arange(len(gold.ranks)) - np.repeat(offsets_of(gold.lengths)[:-1], gold.lengths)}
    rows, positions, lengths = (chosen_rows(embeddings, gold), *map(torch.from_numpy, (gold.positions, gold.lengths)))
    rows = rows.to(next(head.parameters()).device)
    orders |= {f"n = {beam}": head.search(rows, positions, lengths, beam)[0] for beam in beams}
    kept = gold.lengths > 0
    return {name: ngram_counts(order, gold.ranks, gold.lengths)[kept] for name, order in orders.items()}


def ngram_counts(order: np.ndarray, ranks: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """How many n-grams of an order the right order has as well.

    Every key point is a symbol of its own, so an n-gram is found again where n neighbours are neighbours there too, and in
    the same order; there is nothing to clip, and both orders are of the same length.

    Args:
        order: int64 `[K]`, numbers of the key points of each sentence in the order found.
        ranks: int64 `[K]`, place of each key point in the right order.
        lengths: int64 `[n_sentences]`.

    Returns:
        int64 `[n_sentences, 8]`: n-grams found again for n = 1 to 4, and n-grams for n = 1 to 4; a sentence of fewer than n
        key points has none.
    """
    offsets = offsets_of(lengths)
    begin = np.repeat(offsets[:-1], lengths)
    placed = ranks[begin + order]
    left = np.repeat(offsets[1:], lengths) - np.arange(len(order))  # key points from here to the end of the sentence
    owner, found = np.repeat(np.arange(len(lengths)), lengths), np.ones(len(order), dtype=bool)
    out = np.zeros((len(lengths), 2 * LONGEST), dtype=np.int64)
    follows = np.append(placed[1:] == placed[:-1] + 1, False)
    for n in range(1, LONGEST + 1):
        inside = left >= n
        if n > 1:
            found &= np.append(follows[n - 2 :], np.zeros(n - 2, dtype=bool))[: len(found)]
        out[:, n - 1] = np.bincount(owner[found & inside], minlength=len(lengths))
        out[:, LONGEST + n - 1] = np.bincount(owner[inside], minlength=len(lengths))
    return out


def bleu(n: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return BLEU of sums `[…, 8]` as of `ngram_counts`, over the whole text.

    It is the fraction of n-grams that are right. That is how Table 3 reads ("2-gram predictions correct over half of the
    time" is said of 0.582): the geometric mean (Papineni et al. 2002) would be √0.582 at least, as all 1-grams are right.
    The brevity penalty is 1.

    Args:
        n: 2 to 4.
    """
    return share(n - 1, LONGEST + n - 1)


STATISTICS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {f"bleu-{n}": bleu(n) for n in (2, 3, 4)}
"""Figures of Table 3 from sums `[…, 8]` as of `score_order`."""
