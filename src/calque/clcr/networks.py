"""Networks of key points: which words of a sentence are key points, and in which order another language has them."""

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

_AT_ONCE = 1 << 14  # words whose probabilities are computed at once
_SENTENCES = 32  # whose order is sought at once: their hidden layers stay in the cache


class KeyPointHead(nn.Module):
    """How probable it is that a word is a key point (CLCR, Eq. 5): sigmoid of

        w · dropout(relu(W dropout(h) + b)) + c

    Args:
        dropout: fraction of the components zeroed, of what comes in and of the hidden layer.

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
        """Return the log-odds of being a key point, `[W, dim]` to `[W]`."""
        return self.out(self.drop(torch.relu(self.hidden(self.drop(rows)))))[:, 0]

    @torch.no_grad()
    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Return P of each word, float32 `[W]`, without dropout. Rows on disk are read part by part."""
        device, was = self.out.weight.device, self.training
        out = np.empty(len(rows), dtype=np.float32)
        self.eval()
        for start in range(0, len(rows), _AT_ONCE):
            part = torch.from_numpy(np.array(rows[start : start + _AT_ONCE])).to(device)
            out[start : start + len(part)] = self(part.float()).sigmoid().cpu().numpy()
        self.train(was)
        return out


class Order(nn.Module, ABC):
    """The order in which the key points of a sentence stand in another language.

    Rows are the vectors of the key points of some sentences, in the order of their own language; `positions`, int64 `[W]`,
    is the number of the word in its sentence, from 0; `lengths`, int64 `[S]`, the number of key points of each sentence.

    Attributes:
        settings: arguments that make the same module again, `type(order)(**order.settings)`.
    """

    settings: dict[str, Any]

    def losses(self, rows: Tensor, positions: Tensor, lengths: Tensor, ranks: Tensor) -> Tensor:
        """Return −log p of the right answers, summed over those of each sentence, `[S]`.

        Args:
            ranks: int64 `[W]`, place of each key point among those of its sentence in the other language, from 0.
        """
        ragged = Ragged.of(lengths, len(rows))
        each, word = self._losses(rows, positions, ragged, ranks)
        owner = torch.from_numpy(ragged.sentence[word]).to(rows.device)
        return each.new_zeros(len(ragged)).index_add(0, owner, each)

    @abstractmethod
    def _losses(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, ranks: Tensor
    ) -> tuple[Tensor, np.ndarray | slice]:
        """Return −log p of each right answer, and a word of the sentence that it belongs to."""

    @staticmethod
    @abstractmethod
    def questions(lengths: np.ndarray) -> np.ndarray:
        """Return the number of answers that a sentence's loss is the sum of, int64 `[S]`."""

    @abstractmethod
    def _search(self, rows: Tensor, positions: Tensor, ragged: Ragged, beam: int) -> tuple[np.ndarray, np.ndarray]:
        """See `search`."""

    @torch.no_grad()
    def search(
        self, rows: Tensor, positions: Tensor, lengths: Tensor | Ragged, beam: int = 10
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the order found, without dropout: numbers within each sentence, int64 `[W]`, and its cost, float64 `[S]`;
        see `relative_order`.

        Args:
            beam: hypotheses that are followed at once; 1 is greedy.
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
    """Which of two key points stands first (CLCR, Eq. 8), as log-odds

        s(i, j) = f(i, j) − f(j, i),
        f(i, j) = w · dropout(relu(U h_i + a[place_i] + V h_j + b[place_j] + e[position_j − position_i]))

    so that s(j, i) = −s(i, j), whatever is learnt: one of the two stands first. Place is the number of the key point among
    those of its sentence, position that of its word. U and V are products over words; over pairs there are sums and one
    product with w. Without places the vectors would have to know where they stand: whether a noun comes before the verb
    or after it may be a matter of whether it is the first one.

    Args:
        reach: distances in words beyond this one are all the same.
        most: places beyond this one are all the same.
        dropout: fraction of the components zeroed, of what comes in and of the hidden layer.

    Example:
        >>> model, lengths = RelativeOrder(8, 5, 4), torch.tensor([3, 1])
        >>> model(torch.randn(4, 8), torch.tensor([0, 2, 7, 0]), lengths).shape  # (0, 1), (0, 2), (1, 2)
        torch.Size([3])
    """

    def __init__(self, dim: int, hidden: int = 256, reach: int = 16, most: int = 64, dropout: float = 0.0):
        super().__init__()
        self.settings = {"dim": dim, "hidden": hidden, "reach": reach, "most": most, "dropout": dropout}
        self.reach, self.most = reach, most
        self.first_place, self.second_place = (nn.Parameter(0.1 * torch.randn(most, hidden)) for _ in range(2))
        self.first, self.second = nn.Linear(dim, hidden), nn.Linear(dim, hidden, bias=False)
        self.distance = nn.Parameter(0.1 * torch.randn(2 * reach + 1, hidden))
        self.out = nn.Linear(hidden, 1, bias=False)  # a constant would cancel
        self.drop = nn.Dropout(dropout)

    def forward(self, rows: Tensor, positions: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Return the log-odds that i stands before j for the pairs i < j of each sentence, `[n_pairs]`, in the order of
        `relative_order`."""
        ragged = Ragged.of(lengths, len(rows))
        rows, positions = self.drop(rows), positions.to(rows.device)
        places = torch.from_numpy(ragged.position).to(rows.device).clamp(max=self.most - 1)
        first = self.first(rows) + F.embedding(places, self.first_place)
        second = self.second(rows) + F.embedding(places, self.second_place)
        i, j = (part.to(rows.device) for part in _pairs(ragged))

        def before(i: Tensor, j: Tensor) -> Tensor:
            distance = (positions[j] - positions[i]).clamp(-self.reach, self.reach) + self.reach
            hidden = F.embedding(i, first) + F.embedding(j, second) + F.embedding(distance, self.distance)
            return self.out(self.drop(hidden.relu()))[:, 0]

        return before(i, j) - before(j, i)

    def _losses(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, ranks: Tensor
    ) -> tuple[Tensor, np.ndarray | slice]:
        i, j = _pairs(ragged)
        before = (ranks.cpu()[i] < ranks.cpu()[j]).to(rows.device, rows.dtype)
        return F.binary_cross_entropy_with_logits(self(rows, positions, ragged), before, reduction="none"), i.numpy()

    @staticmethod
    def questions(lengths: np.ndarray) -> np.ndarray:
        return lengths * (lengths - 1) // 2

    def _search(self, rows: Tensor, positions: Tensor, ragged: Ragged, beam: int) -> tuple[np.ndarray, np.ndarray]:
        return relative_order(self(rows, positions, ragged).cpu().numpy(), ragged.lengths, beam=beam)


class AbsoluteOrder(Order):
    """Which place each key point has (CLCR, Eq. 6): one of N classes,

        softmax(O dropout(relu(U h_i + a[place_i] + b[position_i])))

    where place is the number of the key point among those of its sentence in its own language, and position that of its
    word. Without them the vector would have to know where it stands.

    Args:
        most: N; later places are all in the last class, later positions share the last embedding.
        dropout: see `RelativeOrder`.

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
        self.place, self.position = (nn.Parameter(0.1 * torch.randn(most, hidden)) for _ in range(2))
        self.out = nn.Linear(hidden, most)
        self.drop = nn.Dropout(dropout)

    def forward(self, rows: Tensor, positions: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Return log p of each class, `[W, most]`."""
        places = torch.from_numpy(Ragged.of(lengths, len(rows)).position).to(rows.device)
        hidden = self.word(self.drop(rows)) + F.embedding(self._class(places), self.place)
        hidden = hidden + F.embedding(self._class(positions.to(rows.device)), self.position)
        return self.out(self.drop(hidden.relu_())).log_softmax(dim=1)

    def _class(self, places: Tensor) -> Tensor:
        return places.clamp(max=self.most - 1)

    def _losses(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, ranks: Tensor
    ) -> tuple[Tensor, np.ndarray | slice]:
        right = self._class(ranks.to(rows.device))
        return F.nll_loss(self(rows, positions, ragged), right, reduction="none"), slice(None)

    @staticmethod
    def questions(lengths: np.ndarray) -> np.ndarray:
        return lengths

    def _search(self, rows: Tensor, positions: Tensor, ragged: Ragged, beam: int) -> tuple[np.ndarray, np.ndarray]:
        scores = self(rows, positions, ragged).cpu().numpy()
        of_word = ragged.lengths[ragged.sentence]  # as many places as there are key points in its sentence
        word = np.repeat(np.arange(len(scores)), of_word)
        places = ranges(np.zeros_like(of_word), of_word)
        return absolute_order(scores[word, np.minimum(places, self.most - 1)], ragged.lengths, beam=beam)


ORDERS: Mapping[str, type[Order]] = {"relative": RelativeOrder, "absolute": AbsoluteOrder}


def key_points(
    probabilities: np.ndarray, offsets: np.ndarray, threshold: float = 0.2, covered: np.ndarray | None = None
) -> np.ndarray:
    """Return which words are key points, bool `[n_words]`: those with P > δ, and in a sentence without any its most probable
    word, the first of several; a sentence without words has none.

    Args:
        probabilities: `[n_words]`, the words of all sentences in a row.
        offsets: int64 `[n_sentences + 1]`, where each sentence begins.
        threshold: δ; 0.2 throughout the paper.
        covered: bool `[n_words]`, as of `Embeddings`: a word without a vector is no key point, whatever else there is.

    Example:
        >>> key_points(np.array([0.9, 0.1, 0.3, 0.1, 0.15]), np.array([0, 3, 5]))
        array([ True, False,  True, False,  True])
    """
    usable = np.ones(len(probabilities), dtype=bool) if covered is None else covered
    chosen, lengths = (probabilities > threshold) & usable, np.diff(offsets)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    by_probability = np.lexsort((-np.where(usable, probabilities, -np.inf), owner))
    best = by_probability[offsets[:-1][lengths > 0]]  # of each sentence with words
    silent = np.bincount(owner, chosen, minlength=len(lengths)) == 0
    chosen[best[silent[owner[best]] & usable[best]]] = True
    return chosen


def _pairs(ragged: Ragged) -> tuple[Tensor, Tensor]:
    """Return rows i and j of all pairs i < j of each sentence, row by row; int64 `[n_pairs]` each."""
    after = ragged.lengths[ragged.sentence] - ragged.position - 1  # words behind each word
    words = np.arange(ragged.n_words)
    return torch.from_numpy(np.repeat(words, after)), torch.from_numpy(ranges(words + 1, after))


# -- the best order of some words ---------------------------------------------------------------------------------------
# A beam search. A hypothesis is a beginning of the order. What the rest of it costs depends only on *which* words stand in
# the beginning, so of hypotheses with the same words only the cheapest goes on, and a beam of 10 holds 10 different sets.
# With a beam as wide as there are sets of a size the search is exact (Held & Karp 1962, "A dynamic programming approach to
# sequencing problems").
def relative_order(scores: np.ndarray, lengths: np.ndarray, *, beam: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of the words of each sentence from which word of a pair stands first (CLCR, Eq. 9):

        argmin over orders m of  Σ over pairs with m_i < m_j of −log p(i before j)

    built from left to right: to place word i next decides all its pairs with the words that are not placed yet.

    Args:
        scores: `[n_pairs]`, log-odds that word i stands before word j, for i < j: those of a sentence row by row, (0, 1),
            (0, 2), …, (1, 2), …, one sentence after the other.
        lengths: int `[n_sentences]`, words of each sentence.
        beam: number of beginnings of the order that are followed at once; 1 is greedy.

    Returns:
        the numbers of the words in the order found, counted from 0 in each sentence, int64 `[n_words]`; and its cost, float64
        `[n_sentences]`. Of beginnings of the same cost the one is preferred that goes on from the cheaper one, and then
        the one with the earlier word.

    Example:
        >>> relative_order(np.array([4.0, -3.0, -5.0]), np.array([3]))[0]  # (0, 1), (0, 2), (1, 2)
        array([2, 0, 1])
    """

    def costs(of_sentence: np.ndarray, n: int) -> np.ndarray:  # [i, j]: −log p(i before j)
        table, (i, j) = np.zeros((n, n)), np.triu_indices(n, 1)
        table[i, j], table[j, i] = np.logaddexp(0, -of_sentence), np.logaddexp(0, of_sentence)
        return table

    return _searched(costs, True, scores, lengths, lengths * (lengths - 1) // 2, beam)


def absolute_order(scores: np.ndarray, lengths: np.ndarray, *, beam: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of the words of each sentence from where each of them stands (CLCR, Eq. 7):

        argmin over orders m of  Σ_i −log p(m_i | i)

    word by word: each takes a place that no word before it has. Of n words the places are 0 … n − 1.

    Args:
        scores: `[sum of the squares of the lengths]`, log p of word i (row) at place m (column), row by row.
        lengths, beam: as in `relative_order`.

    Returns:
        as `relative_order`; of the same cost, the earlier place is preferred.

    Example:
        >>> absolute_order(np.log([0.1, 0.9, 0.6, 0.4]), np.array([2]))[0]
        array([1, 0])
    """
    places, cost = _searched(lambda some, n: -some.reshape(n, n), False, scores, lengths, lengths**2, beam)
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
    """Search the order of all sentences together, an item of each at a time.

    If `relative`, the items taken are words, one for each place from left to right, and `costs[i, j]` is what i before j
    costs. Else they are places, one for each word, and `costs[i, m]` is what place m costs word i.

    Args:
        costs: float64 `[n, n]` from the scores of a sentence of n words.
        sizes: number of scores of each sentence.
    """
    begins, words = offsets_of(sizes), offsets_of(lengths)
    s, n = len(lengths), int(max(lengths, default=0))
    table = np.zeros((s, n, n))
    for k, length in enumerate(lengths):
        table[k, :length, :length] = costs(scores[begins[k] : begins[k + 1]].astype(np.float64), int(length))
    keys = np.random.default_rng(0).integers(1, 2**63, n)  # a set of items is known by the exclusive or of theirs
    total, code = np.full((s, beam), np.inf), np.zeros((s, beam), dtype=np.int64)
    total[:, 0] = 0.0
    used = np.broadcast_to((np.arange(n) >= lengths[:, None])[:, None], (s, beam, n)).copy()
    rest = np.broadcast_to(table.sum(2)[:, None], (s, beam, n)).copy()  # what each word would cost next
    parent, item = (np.zeros((n, s, beam), dtype=np.int64) for _ in range(2))
    for step in range(n):
        of = np.flatnonzero(lengths > step)
        row = of[:, None]
        cost = np.where(used[of], np.inf, total[of][:, :, None] + (rest[of] if relative else table[of, step][:, None]))
        best, after = _cheapest_sets(
            cost.reshape(len(of), -1), (code[of][:, :, None] ^ keys).reshape(len(of), -1), beam
        )
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
    """Return the places of the cheapest candidates of each row, of those with one code the first; and their costs, infinite
    where there are fewer than `most`."""
    order = cost.argsort(1, kind="stable")
    cost, code = np.take_along_axis(cost, order, 1), np.take_along_axis(code, order, 1)
    by_code = code.argsort(1, kind="stable")
    again = np.diff(np.take_along_axis(code, by_code, 1), axis=1) == 0
    np.put_along_axis(cost, by_code[:, 1:], np.where(again, np.inf, np.take_along_axis(cost, by_code[:, 1:], 1)), 1)
    kept = cost.argsort(1, kind="stable")[:, :most]
    return np.take_along_axis(order, kept, 1), np.take_along_axis(cost, kept, 1)
