"""Neural networks that select the key points of a sentence and predict their order in another
language.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

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
        self.settings: dict[str, int | float] = {"dim": dim, "hidden": hidden, "dropout": dropout}
        self.hidden = nn.Linear(dim, hidden)
        self.out = nn.Linear(hidden, 1)
        self.drop = nn.Dropout(dropout)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the log-odds that each word is a key point, `[W, dim]` to `[W]`."""
        return self.out(self.drop(torch.relu(self.hidden(self.drop(rows)))))[:, 0]

    @torch.no_grad()
    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Return the key-point probability of each word, float32 `[W]`, without dropout. `rows` are
        read in blocks.
        """
        device = self.out.weight.device
        was_training = self.training
        self.eval()
        probabilities = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _AT_ONCE):
            # `rows` can be a memory-mapped file, so each block is copied into memory.
            block = torch.from_numpy(np.array(rows[start : start + _AT_ONCE])).to(device)
            log_odds = self(block.float())
            probabilities[start : start + len(block)] = log_odds.sigmoid().cpu().numpy()
        self.train(was_training)
        return probabilities


class Order(nn.Module, ABC):
    """Model that predicts the order in which the key points of a sentence occur in its translation.

    `rows` are the vectors of the key points of several sentences, in source order. `positions`,
    int64 `[W]`, is the index of each key point's word in its sentence, from 0, and `lengths`, int64
    `[S]`, is the number of key points in each sentence. `type(order)(**order.settings)` builds a
    module with the same shapes.
    """

    settings: dict[str, int | float]

    def losses(self, rows: Tensor, positions: Tensor, lengths: Tensor, ranks: Tensor) -> Tensor:
        """Return −log p of the gold answers, summed over each sentence, `[S]`. `ranks`, int64
        `[W]`, is the rank of each key point, from 0, among the key points of its sentence in the
        other language."""
        ragged = Ragged.of(lengths, len(rows))
        losses = self._prediction_losses(rows, positions, ragged, ranks)
        # index of the sentence of each prediction
        sentence = np.repeat(np.arange(len(ragged)), self.n_predictions(ragged.lengths))
        zeros = losses.new_zeros(len(ragged))
        return zeros.index_add(0, torch.from_numpy(sentence).to(rows.device), losses)

    @abstractmethod
    def _prediction_losses(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, ranks: Tensor
    ) -> Tensor:
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
        ragged = Ragged.of(lengths, len(rows))
        order, cost = np.empty(len(rows), dtype=np.int64), np.empty(len(ragged))
        was_training = self.training
        self.eval()
        for start in range(0, len(ragged), _SENTENCES):
            sentences = slice(start, start + _SENTENCES)
            block = Ragged(ragged.lengths[sentences])
            first_word = int(ragged.offsets[start])
            words = slice(first_word, first_word + block.n_words)
            order[words], cost[sentences] = self._search(rows[words], positions[words], block, beam)
        self.train(was_training)
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
        self.first_place = nn.Parameter(0.1 * torch.randn(most, hidden))  # a
        self.second_place = nn.Parameter(0.1 * torch.randn(most, hidden))  # b
        self.first = nn.Linear(dim, hidden)  # U
        self.second = nn.Linear(dim, hidden, bias=False)  # V
        self.distance = nn.Parameter(0.1 * torch.randn(2 * reach + 1, hidden))  # e
        self.out = nn.Linear(hidden, 1, bias=False)  # w; a bias would cancel out
        self.drop = nn.Dropout(dropout)

    def forward(self, rows: Tensor, positions: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Return the log-odds that i precedes j for all pairs i < j in each sentence, `[n_pairs]`,
        ordered as in `relative_order`."""
        ragged = Ragged.of(lengths, len(rows))
        rows, positions = self.drop(rows), positions.to(rows.device)
        places = torch.from_numpy(ragged.position).to(rows.device).clamp(max=self.most - 1)
        # The terms of each word are computed once, `[W, hidden]`, and shared by all its pairs.
        first = self.first(rows) + F.embedding(places, self.first_place)
        second = self.second(rows) + F.embedding(places, self.second_place)

        def score(i: Tensor, j: Tensor) -> Tensor:
            """Return f(i, j) for each pair, `[n_pairs]`."""
            distance = (positions[j] - positions[i]).clamp(-self.reach, self.reach) + self.reach
            # F.embedding selects rows, with a faster backward pass than indexing
            hidden = (
                F.embedding(i, first)
                + F.embedding(j, second)
                + F.embedding(distance, self.distance)
            )
            return self.out(self.drop(hidden.relu()))[:, 0]

        i, j = _pairs(ragged, rows.device)
        return score(i, j) - score(j, i)  # s(i, j), Eq. 8

    def _prediction_losses(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, ranks: Tensor
    ) -> Tensor:
        i, j = _pairs(ragged, rows.device)
        ranks = ranks.to(rows.device)
        precedes = (ranks[i] < ranks[j]).to(rows.dtype)
        log_odds = self(rows, positions, ragged)
        return F.binary_cross_entropy_with_logits(log_odds, precedes, reduction="none")

    @staticmethod
    def n_predictions(lengths: np.ndarray) -> np.ndarray:
        return lengths * (lengths - 1) // 2

    def _search(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, beam: int
    ) -> tuple[np.ndarray, np.ndarray]:
        log_odds = self(rows, positions, ragged).cpu().numpy()
        return relative_order(log_odds, ragged.lengths, beam=beam)


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
        self.word = nn.Linear(dim, hidden)  # U
        self.place = nn.Parameter(0.1 * torch.randn(most, hidden))  # a
        self.position = nn.Parameter(0.1 * torch.randn(most, hidden))  # b
        self.out = nn.Linear(hidden, most)  # O
        self.drop = nn.Dropout(dropout)

    def forward(self, rows: Tensor, positions: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Return the log-probability of each class, `[W, most]`."""
        places = torch.from_numpy(Ragged.of(lengths, len(rows)).position).to(rows.device)
        hidden = self.word(self.drop(rows)) + F.embedding(self._class(places), self.place)
        hidden = hidden + F.embedding(self._class(positions.to(rows.device)), self.position)
        return self.out(self.drop(hidden.relu_())).log_softmax(dim=1)  # Eq. 6

    def _class(self, places: Tensor) -> Tensor:
        """Return the class of each rank, or the index of the embedding of each position."""
        return places.clamp(max=self.most - 1)

    def _prediction_losses(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, ranks: Tensor
    ) -> Tensor:
        classes = self._class(ranks.to(rows.device))
        return F.nll_loss(self(rows, positions, ragged), classes, reduction="none")

    @staticmethod
    def n_predictions(lengths: np.ndarray) -> np.ndarray:
        return lengths

    def _search(
        self, rows: Tensor, positions: Tensor, ragged: Ragged, beam: int
    ) -> tuple[np.ndarray, np.ndarray]:
        log_probabilities = self(rows, positions, ragged).cpu().numpy()
        # A word of a sentence with n key points has n possible ranks; list all (word, rank) pairs.
        n_ranks = ragged.lengths[ragged.sentence]
        words = np.repeat(np.arange(len(log_probabilities)), n_ranks)
        ranks = ranges(np.zeros_like(n_ranks), n_ranks)
        scores = log_probabilities[words, np.minimum(ranks, self.most - 1)]
        return absolute_order(scores, ragged.lengths, beam=beam)


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
    if covered is None:
        covered = np.ones(len(probabilities), dtype=bool)
    chosen = (probabilities > threshold) & covered
    lengths = np.diff(offsets)
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    # Sort the words of each sentence by falling P; the first one is the sentence's best word.
    by_probability = np.lexsort((-np.where(covered, probabilities, -np.inf), sentence))
    best = by_probability[offsets[:-1][lengths > 0]]
    has_none = np.bincount(sentence, chosen, minlength=len(lengths)) == 0
    # In a sentence in which no word has a vector, the best word has none either.
    chosen[best[has_none[sentence[best]] & covered[best]]] = True
    return chosen


def _pairs(ragged: Ragged, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the word indices i and j of all pairs i < j within each sentence, ordered by i, int64
    `[n_pairs]` each.
    """
    n_after = ragged.lengths[ragged.sentence] - ragged.position - 1
    words = np.arange(ragged.n_words)
    i, j = np.repeat(words, n_after), ranges(words + 1, n_after)
    return torch.from_numpy(i).to(device), torch.from_numpy(j).to(device)


# -- beam search -----------------------------------------------------------------------------------
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

    def pair_costs(log_odds: np.ndarray, n: int) -> np.ndarray:
        """Return −log p(i before j), `[n, n]`."""
        costs = np.zeros((n, n))
        i, j = np.triu_indices(n, 1)
        costs[i, j] = np.logaddexp(0, -log_odds)
        costs[j, i] = np.logaddexp(0, log_odds)
        return costs

    n_pairs = RelativeOrder.n_predictions(lengths)
    costs = _padded_costs(scores, n_pairs, lengths, pair_costs)
    return _beam_search(costs, lengths, beam, relative=True)


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
    costs = _padded_costs(
        scores, lengths**2, lengths, lambda log_probabilities, n: -log_probabilities.reshape(n, n)
    )
    ranks, cost = _beam_search(costs, lengths, beam, relative=False)
    # Invert the assignment: `order` lists the words by rank, whereas `ranks` lists ranks by word.
    starts = np.repeat(offsets_of(lengths)[:-1], lengths)
    order = np.empty_like(ranks)
    order[starts + ranks] = np.arange(len(ranks)) - starts
    return order, cost


def _padded_costs(
    scores: np.ndarray,
    n_scores: np.ndarray,
    lengths: np.ndarray,
    costs_of: Callable[[np.ndarray, int], np.ndarray],
) -> np.ndarray:
    """Return the cost tables of all sentences, padded with zeros, float64 `[n_sentences, N, N]`.

    Args:
        scores: scores of all sentences, one sentence after another.
        n_scores: number of scores for each sentence.
        costs_of: function that computes the table `[n, n]` of a sentence with n words from its
            scores.
    """
    longest = int(max(lengths, default=0))
    costs = np.zeros((len(lengths), longest, longest))
    offsets = offsets_of(n_scores)
    for k, length in enumerate(lengths):
        own_scores = scores[offsets[k] : offsets[k + 1]].astype(np.float64)
        costs[k, :length, :length] = costs_of(own_scores, int(length))
    return costs


def _beam_search(
    costs: np.ndarray, lengths: np.ndarray, beam: int, *, relative: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Search for the best orders of all sentences in parallel, adding one item to the order of each
    sentence at a time.

    Args:
        costs: cost table of each sentence, `[n_sentences, N, N]`.
        relative: if true, the items are words, placed from left to right, and `costs[s, i, j]` is
            the cost of i before j in sentence s. Otherwise, the items are ranks, assigned to one
            word after another, and `costs[s, i, m]` is the cost of rank m for word i.

    Returns:
        the chosen items of each sentence, int64 `[n_words]`, and the cost of each sentence.
    """
    n_sentences, n, _ = costs.shape
    # The code of a set of items is the XOR of their random keys, so equal sets have equal codes.
    keys = np.random.default_rng(0).integers(1, 2**63, n)

    # State of the hypotheses. At first, each beam contains one hypothesis, the empty order; the
    # infinite cost of the other hypotheses means that they do not exist.
    shape = n_sentences, beam, n
    total = np.full((n_sentences, beam), np.inf)
    total[:, 0] = 0.0
    code = np.zeros((n_sentences, beam), dtype=np.int64)
    is_padding = np.arange(n) >= lengths[:, None]
    is_used = np.broadcast_to(is_padding[:, None], shape).copy()
    # If `relative`: cost of placing each word next, which puts it before all other remaining words
    next_cost = np.broadcast_to(costs.sum(2)[:, None], shape).copy()

    parents = np.zeros((n, n_sentences, beam), dtype=np.int64)
    items = np.zeros((n, n_sentences, beam), dtype=np.int64)
    for step in range(n):
        active = np.flatnonzero(lengths > step)  # sentences whose orders are not complete
        rows = active[:, None]
        step_cost = next_cost[active] if relative else costs[active, step][:, None]
        candidate_cost = np.where(is_used[active], np.inf, total[active][:, :, None] + step_cost)
        candidate_code = code[active][:, :, None] ^ keys
        best, best_cost = _cheapest_sets(
            candidate_cost.reshape(len(active), -1), candidate_code.reshape(len(active), -1), beam
        )
        parent, item = np.divmod(best, n)  # hypothesis that is extended, and its new item
        parents[step, active], items[step, active] = parent, item
        total[active] = best_cost
        code[active] = np.take_along_axis(code[active], parent, 1) ^ keys[item]
        if relative:
            # The new word is no longer among the words that remain after the next one.
            next_cost[active] = next_cost[rows, parent] - costs.transpose(0, 2, 1)[rows, item]
        used_after = is_used[rows, parent]
        np.put_along_axis(used_after, item[:, :, None], True, 2)
        is_used[active] = used_after

    # Follow the parents of the cheapest complete hypothesis, which is the first one.
    offsets = offsets_of(lengths)
    chosen_items = np.empty(offsets[-1], dtype=np.int64)
    hypothesis = np.zeros(n_sentences, dtype=np.int64)
    for step in range(n - 1, -1, -1):
        active = np.flatnonzero(lengths > step)
        chosen_items[offsets[active] + step] = items[step, active, hypothesis[active]]
        hypothesis[active] = parents[step, active, hypothesis[active]]
    return chosen_items, total[:, 0]


def _cheapest_sets(
    cost: np.ndarray, code: np.ndarray, n_kept: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each row, the columns and the costs of the `n_kept` cheapest candidates with
    distinct codes. If a row has fewer candidates, the remaining costs are infinite."""
    by_cost = cost.argsort(1, kind="stable")
    cost, code = np.take_along_axis(cost, by_cost, 1), np.take_along_axis(code, by_cost, 1)
    # The stable sort by code lists equal codes by rising cost, so only the first of them is kept.
    by_code = code.argsort(1, kind="stable")
    is_repeated = np.diff(np.take_along_axis(code, by_code, 1), axis=1) == 0
    later_costs = np.take_along_axis(cost, by_code[:, 1:], 1)
    np.put_along_axis(cost, by_code[:, 1:], np.where(is_repeated, np.inf, later_costs), 1)
    kept = cost.argsort(1, kind="stable")[:, :n_kept]
    return np.take_along_axis(by_cost, kept, 1), np.take_along_axis(cost, kept, 1)
