"""Networks of key points: which words of a sentence are key points, and in which order another language has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.clcr.ordering import absolute_order, relative_order
from calque.errors import SettingError
from calque.nn.ragged import Ragged
from calque.offsets import ranges

_AT_ONCE = 1 << 14  # words whose probabilities are computed at once
_SENTENCES = 32  # whose order is sought at once: their hidden layers stay in the cache


class KeyPointHead(nn.Module):
    """How probable it is that a word is a key point (CLCR, Eq. 5): sigmoid of

        w · dropout(relu(W dropout(h) + b)) + c

    Args:
        dropout: fraction of the components zeroed, of what comes in and of the hidden layer.

    Attributes:
        settings: what makes the same head again, `KeyPointHead(**settings)`.

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
        """Log-odds of being a key point, `[W, dim]` to `[W]`."""
        return self.out(self.drop(torch.relu(self.hidden(self.drop(rows)))))[:, 0]

    @torch.no_grad()
    def probabilities(self, rows: Tensor | np.ndarray) -> np.ndarray:
        """P of each word, float32 `[W]`, without dropout. Rows on disk are read part by part."""
        device, was = self.out.weight.device, self.training
        out = np.empty(len(rows), dtype=np.float32)
        self.eval()
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            part = torch.from_numpy(np.array(part)) if isinstance(part, np.ndarray) else part
            out[start : start + len(part)] = self(part.to(device).float()).sigmoid().cpu().numpy()
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

    @abstractmethod
    def losses(self, rows: Tensor, positions: Tensor, lengths: Tensor, ranks: Tensor) -> Tensor:
        """Return −log p of the right answers, summed over those of each sentence, `[S]`.

        Args:
            ranks: int64 `[W]`, place of each key point among those of its sentence in the other language, from 0.
        """

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
        see `algebra.ordering`.

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
        """Log-odds that i stands before j for the pairs i < j of each sentence, `[n_pairs]`, in the order of
        `algebra.ordering.relative_order`."""
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

    def losses(self, rows: Tensor, positions: Tensor, lengths: Tensor, ranks: Tensor) -> Tensor:
        ragged = Ragged.of(lengths, len(rows))
        i, j = _pairs(ragged)
        before = (ranks.cpu()[i] < ranks.cpu()[j]).to(rows.device, rows.dtype)
        each = F.binary_cross_entropy_with_logits(self(rows, positions, ragged), before, reduction="none")
        owner = torch.from_numpy(ragged.sentence)[i].to(rows.device)
        return each.new_zeros(len(ragged)).index_add(0, owner, each)

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
        """Log p of each class, `[W, most]`."""
        places = torch.from_numpy(Ragged.of(lengths, len(rows)).position).to(rows.device)
        hidden = self.word(self.drop(rows)) + F.embedding(self._class(places), self.place)
        hidden = hidden + F.embedding(self._class(positions.to(rows.device)), self.position)
        return self.out(self.drop(hidden.relu_())).log_softmax(dim=1)

    def _class(self, places: Tensor) -> Tensor:
        return places.clamp(max=self.most - 1)

    def losses(self, rows: Tensor, positions: Tensor, lengths: Tensor, ranks: Tensor) -> Tensor:
        ragged = Ragged.of(lengths, len(rows))
        each = F.nll_loss(self(rows, positions, ragged), self._class(ranks.to(rows.device)), reduction="none")
        owner = torch.from_numpy(ragged.sentence).to(rows.device)
        return each.new_zeros(len(ragged)).index_add(0, owner, each)

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
    """The words that are key points: those with P > δ, and in a sentence without any its most probable word, the first of
    several; a sentence without words has none.

    Args:
        probabilities: `[n_words]`, the words of all sentences in a row.
        offsets: int64 `[n_sentences + 1]`, where each sentence begins.
        threshold: δ; 0.2 throughout the paper.
        covered: bool `[n_words]`, as of `Embeddings`: a word without a vector is no key point, whatever else there is.

    Returns:
        bool `[n_words]`.

    Raises:
        SettingError: offsets of other words.

    Example:
        >>> key_points(np.array([0.9, 0.1, 0.3, 0.1, 0.15]), np.array([0, 3, 5]))
        array([ True, False,  True, False,  True])
    """
    if offsets[-1] != len(probabilities):
        raise SettingError(f"{len(probabilities)} probabilities for sentences of {offsets[-1]} words")
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
