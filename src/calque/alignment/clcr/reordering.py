"""Reorder: the order that the key points of a sentence have in another language, learnt from the pivots of parallel text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from calque.alignment.clcr.heads import HeadTraining, History, digest
from calque.alignment.clcr.linked import LinkedOrder
from calque.errors import SettingError, check_number
from calque.nn.order import AbsoluteOrder, Order, RelativeOrder, order_of
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.training.sources import ChosenWords, WordRows
from calque.vectors import Embeddings

LONGEST = 4  # n-grams
_WORDS = 1 << 13  # key points whose order is sought at once


@dataclass(frozen=True)
class TrainedOrder:
    """A model of the order, and how it came about.

    Attributes:
        head: orders key points.
        counts: sentences and key points learnt from, and what was skipped, see `LinkedOrder`.
        history: metrics of every update.
    """

    head: Order
    counts: dict[str, int]
    history: History


@dataclass(frozen=True, kw_only=True)
class Reordering:
    """How the order of a language's key points is learnt (CLCR, §3.3): from the pivots of each sentence, which the other
    language has in the order of their partners.

    Args:
        kind: "relative": which of two key points stands first (Eq. 8); "absolute": the place of each (Eq. 6).
        hidden, reach, most, dropout: see `RelativeOrder` and `AbsoluteOrder`.
        training: of the head.
    """

    kind: Literal["relative", "absolute"] = "relative"
    hidden: int = 256
    reach: int = 16
    most: int = 64
    dropout: float = 0.1
    training: HeadTraining = field(default_factory=HeadTraining)

    def __post_init__(self):
        if self.kind not in ("relative", "absolute"):
            raise SettingError(f"an order is relative or absolute, got {self.kind!r}")
        for name in ("hidden", "reach", "most"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("dropout", self.dropout, least=0, below=1)

    def train(self, embeddings: Embeddings, pivots: WordPairs) -> TrainedOrder:
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

        own = {"most": self.most, **({"reach": self.reach} if self.kind == "relative" else {})}
        settings: dict[str, Any] = {"dim": embeddings.dim, "hidden": self.hidden, "dropout": self.dropout, **own}
        make = partial(order_of, {"kind": self.kind, **settings})
        asked = RelativeOrder.questions if self.kind == "relative" else AbsoluteOrder.questions
        head, history = self.training.fit(
            make, embeddings, gold.chosen, losses, asked(gold.lengths), name=f"order-{self.kind}",
            identity={**settings, "head": self.kind, "order": digest(gold.positions, gold.ranks)},
        )  # fmt: skip
        counts = {"sentences": int((gold.lengths > 0).sum()), "key_points": len(gold.ranks), **gold.skipped}
        return TrainedOrder(head, counts, history)


def predicted_order(head: Order, embeddings: Embeddings, gold: LinkedOrder, *, beam: int = 10) -> np.ndarray:
    """The order that a model gives the key points of each sentence: their numbers among those of the sentence, int64
    `[K]`."""
    device = next(head.parameters()).device
    source, offsets = ChosenWords(embeddings, gold.chosen, device), offsets_of(gold.lengths)
    found = np.empty(offsets[-1], dtype=np.int64)
    longest_first = np.argsort(-gold.lengths, kind="stable")
    part = np.cumsum(gold.lengths[longest_first]) // _WORDS
    for numbers in np.split(longest_first, np.flatnonzero(np.diff(part)) + 1):
        given, places = source.take(numbers), ranges(offsets[numbers], gold.lengths[numbers])
        positions = torch.from_numpy(gold.positions[places])
        found[places], _ = head.search(given.rows, positions, given.lengths, beam)
    return found


@dataclass(frozen=True)
class OrderScores:
    """Orders of the key points of a text, and what they have in common with that of the pivots (Table 3).

    Attributes:
        gold: the key points and their order in the other language.
        orders: numbers of the key points in the order found, int64 `[K]`: "as it stands", and one for each beam, "n = 1".
        counts: sums of which `STATISTICS` are made, int64 `[n_ordered, 8]` for each order: n-grams found again, for n = 1 to
            4, and n-grams; of the sentences that have at least two key points.
    """

    gold: LinkedOrder
    orders: dict[str, np.ndarray]
    counts: dict[str, np.ndarray]

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """`STATISTICS` of all sentences, for each order; NaN where there are no n-grams."""
        totals = {name: counts.sum(axis=0) for name, counts in self.counts.items()}
        return {name: {s: float(f(total)) for s, f in STATISTICS.items()} for name, total in totals.items()}


def score_order(
    head: Order, embeddings: Embeddings, pivots: WordPairs, *, beams: Sequence[int] = (1, 10)
) -> OrderScores:
    """Compare the order that a model gives the pivots of a text that it has not seen with that in the other language.

    Args:
        embeddings, pivots: as in `Reordering.train`.
        beams: n of the search; 1 is greedy.
    """
    gold = LinkedOrder.of(embeddings, pivots)
    own = np.arange(len(gold.ranks)) - np.repeat(offsets_of(gold.lengths)[:-1], gold.lengths)
    orders = {"as it stands": own}
    orders |= {f"n = {beam}": predicted_order(head, embeddings, gold, beam=beam) for beam in beams}
    kept = gold.lengths > 0
    counts = {name: ngram_counts(order, gold.ranks, gold.lengths)[kept] for name, order in orders.items()}
    return OrderScores(gold, orders, counts)


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


def bleu(n: int, *, mean: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    """BLEU of sums `[…, 8]` as of `ngram_counts`, over the whole text.

    The share of n-grams that are right. That is how Table 3 reads ("2-gram predictions correct over half of the time" is
    said of 0.582): the geometric mean would be √0.582 at least, as all 1-grams are right. The brevity penalty is 1.

    Args:
        n: 2 to 4.
        mean: the geometric mean of the shares for 1 to n instead (Papineni et al. 2002, "BLEU"). A sentence of fewer than n
            key points then counts with the shorter n-grams that it has, and otherwise not at all.
    """

    def statistic(total: np.ndarray) -> np.ndarray:
        right, all_ = total[..., :LONGEST].astype(np.float64), total[..., LONGEST:]
        shares = np.divide(right, all_, out=np.full(right.shape, np.nan), where=all_ != 0)
        if not mean:
            return shares[..., n - 1]
        return shares[..., :n].prod(axis=-1) ** (1.0 / n)

    return statistic


STATISTICS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {f"bleu-{n}": bleu(n) for n in (2, 3, 4)}
"""Figures of Table 3 from sums `[…, 8]` of `OrderScores.counts`."""


@dataclass(frozen=True)
class OrderMatrices:
    """The order of the n key points of a sentence, right and predicted (Figure 3). In rows are the key points in the order
    of their own language.

    Attributes:
        gold_places: float32 `[n, n]`, 1 in the column of the place of each.
        places: float32 `[n, n]`, how probable each place is; all places from N − 1 on share the last class. None without a
            model of places.
        gold_before: float32 `[n, n]`, 1 where the key point of the row stands before that of the column.
        before: float32 `[n, n]`, how probable that is; 0.5 on the diagonal, where nothing is asked. None without a model of
            pairs.
    """

    gold_places: np.ndarray
    places: np.ndarray | None
    gold_before: np.ndarray
    before: np.ndarray | None


@torch.no_grad()
def order_matrices(
    relative: RelativeOrder | None,
    absolute: AbsoluteOrder | None,
    embeddings: Embeddings,
    gold: LinkedOrder,
    sentence: int,
) -> OrderMatrices:
    """What models of both kinds, or of one, say of a sentence; in evaluation mode."""
    begin, n = int(gold.lengths[:sentence].sum()), int(gold.lengths[sentence])
    ranks, positions = gold.ranks[begin : begin + n], torch.from_numpy(gold.positions[begin : begin + n])
    places = before = None
    for head in (relative, absolute):
        if head is None:
            continue
        given = ChosenWords(embeddings, gold.chosen, next(head.parameters()).device).take(np.array([sentence]))
        said = head(given.rows, positions, given.lengths).cpu().numpy()
        if isinstance(head, AbsoluteOrder):
            places = np.exp(said)[:, np.minimum(np.arange(n), head.most - 1)]
        else:
            table = np.zeros((n, n), dtype=np.float32)
            table[np.triu_indices(n, 1)] = said
            before = 1.0 / (1.0 + np.exp(table.T - table))
    return OrderMatrices(
        gold_places=(ranks[:, None] == np.arange(n)).astype(np.float32),
        places=places,
        gold_before=(ranks[:, None] < ranks).astype(np.float32),
        before=before,
    )
