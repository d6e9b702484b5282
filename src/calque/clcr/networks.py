"""Neural networks that select the key points of a sentence and predict their order in another
language.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.nn.ragged import Ragged
from calque.offsets import offsets_of, ranges

_AT_ONCE = 1 << 14  # number of words whose probabilities are computed at a time
# number of sentences searched at a time; few enough that their hidden layers fit into the cache
_SENTENCES = 32


class KeyPointHead(nn.Module):
    """Key-point classifier (CLCR, Eq. 5). The key-point probability of a word is the sigmoid of

        w · dropout(relu(W dropout(h) + b)) + c

    Args:
        dropout: dropout probability for the input and for the hidden layer.

    Example:
        >>> KeyPointHead(8, 5)(torch.randn(7, 8)).shape
        torch.Size([7])
    """

    def __init__(self, dim: int, hidden: int = 256, dropout: float = 0.0):
        super().__init__()
        self.settings: dict[str, Any] = {"dim": dim, "hidden": hidden, "dropout": dropout}
        self.hidden, self.out = nn.Linear(dim, hidden), nn.Linear(hidden, 1)
        self.drop = nn.Dropout(dropout)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the log-odds that each word is a key point, `[W, dim]` to `[W]`."""
        return self.out(self.drop(torch.relu(self.hidden(self.drop(rows)))))[:, 0]

    @torch.no_grad()
    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Return the key-point probability of each word, float32 `[W]`, without dropout. `rows` are
        read in blocks.
        """
        device, was = self.out.weight.device, self.training
        out = np.empty(len(rows), dtype=np.float32)
        self.eval()
        for start in range(0, len(rows), _AT_ONCE):
            part = torch.from_numpy(np.array(rows[start : start + _AT_ONCE])).to(device)
            out[start : start + len(part)] = self(part.float()).sigmoid().cpu().numpy()
        self.train(was)
        return out


class Order(nn.Module, ABC):
    """Model that predicts the order in which the key points of a sentence occur in its translation.

    `rows` are the vectors of the key points of several sentences, in source order. `positions`,
    int64 `[W]`, is the index of each key point's word in its sentence, from 0, and `lengths`, int64
    `[S]`, is the number of key points in each sentence. `type(order)(**order.settings)` builds a
    module with the same shapes.
    """

    settings: dict[str, Any]

    def losses(self, rows: Tensor, positions: Tensor, lengths: Tensor, ranks: Tensor) -> Tensor:
        """Return −log p of the gold answers, summed over each sentence, `[S]`. `ranks`, int64
        `[W]`, is the rank of each key point, from 0, among the key points of its sentence in the
        other language."""
        ragged = Ragged.of(lengths, len(rows))
        each = self._losses(rows, positions, ragged, ranks)
        sentence = np.repeat(np.arange(len(ragged)), self.n_predictions(ragged.lengths))
        return each.new_zeros(len(ragged)).index_add(
            0, torch.from_numpy(sentence).to(rows.device), each
        )

    @abstractmethod
    def _losses(self, rows: Tensor, positions: Tensor, ragged: Ragged, ranks: Tensor) -> Tensor:
        """Return −log p of each gold answer, one sentence after another."""

    @staticmethod
    @abstractmethod
    def n_predictions(lengths: np.ndarray) -> np.ndarray:
        """Return the number of predictions for each sentence, int64 `[S]`."""

    @abstractmethod
    def _search(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, beam: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search for the best order of the key points of a few sentences, see `search`."""

    @torch.no_grad()
    def search(
        self, rows: Tensor, positions: Tensor, lengths: Tensor, beam: int = 10
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the order that is predicted without dropout, and its cost, see
        `relative_order`.
        """
        was, ragged = self.training, Ragged.of(lengths, len(rows))
        order, cost = np.empty(len(rows), dtype=np.int64), np.empty(len(ragged))
        self.eval()
        for start in range(0, len(ragged), _SENTENCES):
            few = slice(start, start + _SENTENCES)
            part = Ragged(ragged.lengths[few])
            some = slice(int(ragged.offsets[start]), int(ragged.offsets[start]) + part.n_words)
            order[some], cost[few] = self._search(rows[some], positions[some], part, beam)
        self.train(was)
        return order, cost


class RelativeOrder(Order):
    """Order model for pairs of key points (CLCR, Eq. 8). The log-odds that i precedes j are

        s(i, j) = f(i, j) − f(j, i),
        f(i, j) = w · dropout(relu(U h_i + a[place_i] + V h_j + b[place_j]
                                   + e[position_j − position_i]))

    so s(j, i) = −s(i, j) for any weights. `place` is the index of a key point among the key points
    of its sentence, and `position` is the index of its word in the sentence. The products with U
    and V are computed once per word; each pair then needs only sums and one product with w. `place`
    is an input because vectors may not encode it, and the order of a noun and a verb may depend on
    which key point comes first in the sentence.

    Args:
        reach: maximum distance in words; larger distances are clipped to this maximum.
        most: number of place embeddings; later places share the last embedding.
        dropout: dropout probability for the input and for the hidden layer.

    Example:
        >>> model, lengths = RelativeOrder(8, 5, 4), torch.tensor([3, 1])
        >>> model(torch.randn(4, 8), torch.tensor([0, 2, 7, 0]), lengths).shape  # (0, 1), (0, 2), (1, 2)
        torch.Size([3])
    """

    def __init__(
        self, dim: int, hidden: int = 256, reach: int = 16, most: int = 64, dropout: float = 0.0
    ):
        super().__init__()
        self.settings = {
            "dim": dim,
            "hidden": hidden,
            "reach": reach,
            "most": most,
            "dropout": dropout,
        }
        self.reach, self.most = reach, most
        self.first_place, self.second_place = (
            nn.Parameter(0.1 * torch.randn(most, hidden)) for _ in range(2)
        )
        self.first, self.second = nn.Linear(dim, hidden), nn.Linear(dim, hidden, bias=False)
        self.distance = nn.Parameter(0.1 * torch.randn(2 * reach + 1, hidden))
        self.out = nn.Linear(hidden, 1, bias=False)  # a bias would cancel out
        self.drop = nn.Dropout(dropout)

    def forward(self, rows: Tensor, positions: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Return the log-odds that i precedes j for all pairs i < j in each sentence, `[n_pairs]`,
        ordered as in `relative_order`."""
        ragged = Ragged.of(lengths, len(rows))
        rows, positions = self.drop(rows), positions.to(rows.device)
        places = torch.from_numpy(ragged.position).to(rows.device).clamp(max=self.most - 1)
        first = self.first(rows) + F.embedding(places, self.first_place)
        second = self.second(rows) + F.embedding(places, self.second_place)
        i, j = (part.to(rows.device) for part in _pairs(ragged))

        def before(i: Tensor, j: Tensor) -> Tensor:
            distance = (positions[j] - positions[i]).clamp(-self.reach, self.reach) + self.reach
            hidden = (
                F.embedding(i, first)
                + F.embedding(j, second)
                + F.embedding(distance, self.distance)
            )
            return self.out(self.drop(hidden.relu()))[:, 0]

        return before(i, j) - before(j, i)

    def _losses(self, rows: Tensor, positions: Tensor, ragged: Ragged, ranks: Tensor) -> Tensor:
        i, j = _pairs(ragged)
        before = (ranks.cpu()[i] < ranks.cpu()[j]).to(rows.device, rows.dtype)
        return F.binary_cross_entropy_with_logits(
            self(rows, positions, ragged), before, reduction="none"
        )

    @staticmethod
    def n_predictions(lengths: np.ndarray) -> np.ndarray:
        return lengths * (lengths - 1) // 2

    def _search(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, beam: int
    ) -> tuple[np.ndarray, np.ndarray]:
        return relative_order(
            self(rows, positions, ragged).cpu().numpy(), ragged.lengths, beam=beam
        )


class AbsoluteOrder(Order):
    """Order model that classifies each key point by its rank in the other language, with N classes
    (CLCR, Eq. 6):

        softmax(O dropout(relu(U h_i + a[place_i] + b[position_i])))

    Here, `place` is the index of the key point among the key points of its sentence, in source
    order, and `position` is the index of the key point's word in the sentence. Both are inputs
    because the vectors may not encode them.

    Args:
        most: number N of classes. Ranks of N or more share the last class, and positions of N or
            more the last embedding.

    Example:
        >>> model, lengths = AbsoluteOrder(8, 5, 4), torch.tensor([3, 1])
        >>> model(torch.randn(4, 8), torch.tensor([0, 2, 7, 0]), lengths).shape
        torch.Size([4, 4])
    """

    def __init__(self, dim: int, hidden: int = 256, most: int = 64, dropout: float = 0.0):
        super().__init__()
        self.settings = {"dim": dim, "hidden": hidden, "most": most, "dropout": dropout}
        self.most = most
        self.word = nn.Linear(dim, hidden)
        self.place, self.position = (
            nn.Parameter(0.1 * torch.randn(most, hidden)) for _ in range(2)
        )
        self.out = nn.Linear(hidden, most)
        self.drop = nn.Dropout(dropout)

    def forward(self, rows: Tensor, positions: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Return the log-probability of each class, `[W, most]`."""
        places = torch.from_numpy(Ragged.of(lengths, len(rows)).position).to(rows.device)
        hidden = self.word(self.drop(rows)) + F.embedding(self._class(places), self.place)
        hidden = hidden + F.embedding(self._class(positions.to(rows.device)), self.position)
        return self.out(self.drop(hidden.relu_())).log_softmax(dim=1)

    def _class(self, places: Tensor) -> Tensor:
        return places.clamp(max=self.most - 1)

    def _losses(self, rows: Tensor, positions: Tensor, ragged: Ragged, ranks: Tensor) -> Tensor:
        return F.nll_loss(
            self(rows, positions, ragged), self._class(ranks.to(rows.device)), reduction="none"
        )

    @staticmethod
    def n_predictions(lengths: np.ndarray) -> np.ndarray:
        return lengths

    def _search(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, beam: int
    ) -> tuple[np.ndarray, np.ndarray]:
        scores = self(rows, positions, ragged).cpu().numpy()
        of_word = ragged.lengths[ragged.sentence]  # number of possible ranks for each word
        word = np.repeat(np.arange(len(scores)), of_word)
        places = ranges(np.zeros_like(of_word), of_word)
        return absolute_order(
            scores[word, np.minimum(places, self.most - 1)], ragged.lengths, beam=beam
        )


ORDERS: Mapping[str, type[Order]] = {"relative": RelativeOrder, "absolute": AbsoluteOrder}


def key_points(
    probabilities: np.ndarray,
    offsets: np.ndarray,
    threshold: float = 0.2,
    covered: np.ndarray | None = None,
) -> np.ndarray:
    """Return the mask of key points, bool `[n_words]`. Key points are the words with P > δ or, in a
    sentence without such a word, the word with the highest P.

    Args:
        probabilities: key-point probability P of each word, `[n_words]`, one sentence after
            another.
        threshold: threshold δ; the paper always uses 0.2.
        offsets, covered: see `Embeddings`; words without a vector are never key points.

    Example:
        >>> key_points(np.array([0.9, 0.1, 0.3, 0.1, 0.15]), np.array([0, 3, 5]))
        array([ True, False,  True, False,  True])
    """
    usable = np.ones(len(probabilities), dtype=bool) if covered is None else covered
    chosen, lengths = (probabilities > threshold) & usable, np.diff(offsets)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    by_probability = np.lexsort((-np.where(usable, probabilities, -np.inf), owner))
    best = by_probability[offsets[:-1][lengths > 0]]  # best word of each non-empty sentence
    without = np.bincount(owner, chosen, minlength=len(lengths)) == 0
    chosen[best[without[owner[best]] & usable[best]]] = True
    return chosen


def _pairs(ragged: Ragged) -> tuple[Tensor, Tensor]:
    """Return the word indices i and j of all pairs i < j within each sentence, ordered by i, int64
    `[n_pairs]` each.
    """
    after = ragged.lengths[ragged.sentence] - ragged.position - 1  # number of words after each word
    words = np.arange(ragged.n_words)
    return torch.from_numpy(np.repeat(words, after)), torch.from_numpy(ranges(words + 1, after))


# -- beam search
# --------------------------------------------------------------------------------------------------
# The cost of the remaining words depends only on the set of words that are already placed. Only the
# cheapest hypothesis for each set is therefore kept, and a beam of 10 contains 10 different sets.
# The search is exact if the beam is large enough for all sets (Held & Karp 1962, "A dynamic
# programming approach to sequencing problems").
def relative_order(
    scores: np.ndarray, lengths: np.ndarray, *, beam: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best order of the words in each sentence, given pairwise scores (CLCR, Eq. 9):

        argmin over orders m of  Σ over pairs with m_i < m_j of −log p(i before j)

    The order is built from left to right; placing word i fixes its order relative to all words that
    are not yet placed.

    Args:
        scores: log-odds that word i precedes word j for i < j, `[n_pairs]`, one sentence after
            another. The pairs of a sentence are ordered by i and then by j: (0, 1), (0, 2), …, (1,
            2), ….
        lengths: number of words in each sentence, int `[n_sentences]`.
        beam: number of partial orders that are kept at each step; with 1, the search is greedy.

    Returns:
        the indices of the words in the predicted order, starting from 0 in each sentence, int64
        `[n_words]`; and the cost of each order, float64 `[n_sentences]`. Ties are broken in favour
        of the cheaper partial order, then of the earlier word.

    Example:
        >>> relative_order(np.array([4.0, -3.0, -5.0]), np.array([3]))[0]  # (0, 1), (0, 2), (1, 2)
        array([2, 0, 1])
    """

    def costs(given: np.ndarray, n: int) -> np.ndarray:  # [i, j]: −log p(i before j)
        table, (i, j) = np.zeros((n, n)), np.triu_indices(n, 1)
        table[i, j], table[j, i] = np.logaddexp(0, -given), np.logaddexp(0, given)
        return table

    return _searched(costs, True, scores, lengths, RelativeOrder.n_predictions(lengths), beam)


def absolute_order(
    scores: np.ndarray, lengths: np.ndarray, *, beam: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best order of the words in each sentence, given the scores of their ranks (CLCR,
    Eq. 7):

        argmin over orders m of  Σ_i −log p(m_i | i)

    Each word in turn is assigned one of the remaining ranks. The ranks of n words are 0 … n − 1.

    Args:
        scores: log p of rank m (column) for word i (row), `[sum of the squares of the lengths]`,
            row by row.
        lengths, beam, and returned values: see `relative_order`. Ties are broken in favour of the
            earlier rank.

    Example:
        >>> absolute_order(np.log([0.1, 0.9, 0.6, 0.4]), np.array([2]))[0]
        array([1, 0])
    """
    places, cost = _searched(
        lambda given, n: -given.reshape(n, n), False, scores, lengths, lengths**2, beam
    )
    begin = np.repeat(offsets_of(lengths)[:-1], lengths)
    order = np.empty_like(places)
    order[begin + places] = np.arange(len(places)) - begin
    return order, cost


def _searched(
    costs: Callable[[np.ndarray, int], np.ndarray],
    relative: bool,
    scores: np.ndarray,
    lengths: np.ndarray,
    sizes: np.ndarray,
    beam: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Search for the best orders of all sentences in parallel, adding one item to the order of each
    sentence at a time.

    `costs` computes a table `[n, n]` from the scores of a sentence with n words. If `relative`, the
    items are words, placed from left to right, and `costs[i, j]` is the cost of i before j.
    Otherwise, the items are ranks, assigned to one word after another, and `costs[i, m]` is the
    cost of rank m for word i. `sizes` is the number of scores for each sentence.
    """
    begins, words = offsets_of(sizes), offsets_of(lengths)
    s, n = len(lengths), int(max(lengths, default=0))
    table = np.zeros((s, n, n))
    for k, length in enumerate(lengths):
        table[k, :length, :length] = costs(
            scores[begins[k] : begins[k + 1]].astype(np.float64), int(length)
        )
    keys = np.random.default_rng(0).integers(
        1, 2**63, n
    )  # the code of a set is the XOR of its items' keys
    total, code = np.full((s, beam), np.inf), np.zeros((s, beam), dtype=np.int64)
    total[:, 0] = 0.0
    used = np.broadcast_to((np.arange(n) >= lengths[:, None])[:, None], (s, beam, n)).copy()
    rest = np.broadcast_to(
        table.sum(2)[:, None], (s, beam, n)
    ).copy()  # cost of placing each word next
    parent, item = (np.zeros((n, s, beam), dtype=np.int64) for _ in range(2))
    for step in range(n):
        of = np.flatnonzero(lengths > step)
        row = of[:, None]
        cost = np.where(
            used[of],
            np.inf,
            total[of][:, :, None] + (rest[of] if relative else table[of, step][:, None]),
        )
        codes = (code[of][:, :, None] ^ keys).reshape(len(of), -1)
        best, after = _cheapest_sets(cost.reshape(len(of), -1), codes, beam)
        before, new = parent[step, of], item[step, of] = np.divmod(best, n)
        total[of], code[of] = after, np.take_along_axis(code[of], before, 1) ^ keys[new]
        rest[of] = rest[row, before] - table.transpose(0, 2, 1)[row, new]
        taken = used[row, before]
        np.put_along_axis(taken, new[:, :, None], True, 2)
        used[of] = taken
    order, chosen = np.empty(words[-1], dtype=np.int64), np.zeros(s, dtype=np.int64)
    for step in range(n - 1, -1, -1):
        of = np.flatnonzero(lengths > step)
        order[words[of] + step] = item[step, of, chosen[of]]
        chosen[of] = parent[step, of, chosen[of]]
    return order, total[:, 0]


def _cheapest_sets(cost: np.ndarray, code: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each row, the columns and the costs of the `most` cheapest candidates with
    distinct codes. If a row has fewer candidates, the remaining costs are infinite."""
    order = cost.argsort(1, kind="stable")
    cost, code = np.take_along_axis(cost, order, 1), np.take_along_axis(code, order, 1)
    by_code = code.argsort(1, kind="stable")
    again = np.diff(np.take_along_axis(code, by_code, 1), axis=1) == 0
    np.put_along_axis(
        cost,
        by_code[:, 1:],
        np.where(again, np.inf, np.take_along_axis(cost, by_code[:, 1:], 1)),
        1,
    )
    kept = cost.argsort(1, kind="stable")[:, :most]
    return np.take_along_axis(order, kept, 1), np.take_along_axis(cost, kept, 1)
