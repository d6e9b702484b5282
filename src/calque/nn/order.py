"""The order that key points have in another language: of pairs of them, or of each one's place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from calque.algebra.ordering import absolute_order, relative_order
from calque.errors import SettingError
from calque.nn.ragged import Ragged
from calque.offsets import ranges

_LEARNT = 1 << 15  # pairs whose hidden layer is held for the gradient
_ASKED = 1 << 11  # pairs whose hidden layer is computed at once where nothing is learnt: it stays in the cache


class Order(nn.Module, ABC):
    """Says in which order the key points of a sentence stand in another language.

    Rows are the vectors of the key points of some sentences, in the order of their own language; `positions`, int64 `[W]`,
    says which word of its sentence each of them is, counted from 0; `lengths`, int64 `[S]`, how many there are in each
    sentence.

    Attributes:
        kind: its name in what is saved.
        settings: what makes the same module again, see `order_of`.
    """

    kind: Literal["relative", "absolute"]
    settings: dict[str, Any]

    @abstractmethod
    def losses(self, rows: Tensor, positions: Tensor, lengths: Tensor, ranks: Tensor) -> Tensor:
        """−log p of the right answers, summed over those of each sentence, `[S]`.

        Args:
            ranks: int64 `[W]`, place of each key point among those of its sentence in the other language, from 0.
        """

    @staticmethod
    @abstractmethod
    def questions(lengths: np.ndarray) -> np.ndarray:
        """Of how many answers a sentence's loss is the sum, int64 `[S]`."""

    @abstractmethod
    def _search(self, rows: Tensor, positions: Tensor, ragged: Ragged, beam: int) -> tuple[np.ndarray, np.ndarray]:
        """See `search`."""

    @torch.no_grad()
    def search(
        self, rows: Tensor, positions: Tensor, lengths: Tensor | Ragged, beam: int = 10
    ) -> tuple[np.ndarray, np.ndarray]:
        """The order found, without dropout: numbers within each sentence, int64 `[W]`, and its cost, float64 `[S]`; see
        `algebra.ordering`.

        Args:
            beam: hypotheses that are followed at once; 1 is greedy.
        """
        was = self.training
        self.eval()
        try:
            return self._search(rows, positions, Ragged.of(lengths, len(rows)), beam)
        finally:
            self.train(was)

    def order(self, rows: Tensor, positions: Tensor, lengths: Tensor | Ragged, beam: int = 10) -> Tensor:
        """The same as numbers of rows, on their device: `rows[order]` are the rows in the order found, sentence by
        sentence."""
        ragged = Ragged.of(lengths, len(rows))
        found, _ = self.search(rows, positions, ragged, beam)
        return torch.from_numpy(ragged.offsets[ragged.sentence] + found).to(rows.device)

    @property
    def saved(self) -> dict[str, Any]:
        """What `order_of` makes the same module of."""
        return {"kind": self.kind, **self.settings}


class RelativeOrder(Order):
    """Which of two key points stands first (CLCR, Eq. 8), as log-odds

        s(i, j) = f(i, j) − f(j, i),
        f(i, j) = w · dropout(relu(U h_i + a[place_i] + V h_j + b[place_j] + e[position_j − position_i]))

    so that s(j, i) = −s(i, j), whatever is learnt: one of the two stands first. Place is the number of the key point among
    those of its sentence, position that of its word. U and V are products over words; over pairs there are sums and one
    product with w. Without places the vectors would have to know where they stand: whether a noun comes before the verb
    or after it may be a matter of whether it is the first one.

    Args:
        dim: of the vectors.
        hidden: size of the hidden layer.
        reach: distances in words beyond this one are all the same.
        most: places beyond this one are all the same.
        dropout: fraction of the components zeroed, of what comes in and of the hidden layer.

    Example:
        >>> model, lengths = RelativeOrder(8, 5, 4), torch.tensor([3, 1])
        >>> model(torch.randn(4, 8), torch.tensor([0, 2, 7, 0]), lengths).shape  # (0, 1), (0, 2), (1, 2)
        torch.Size([3])
    """

    kind = "relative"

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
        rows = self.drop(rows)
        places = torch.from_numpy(ragged.position).to(rows.device).clamp(max=self.most - 1)
        first = self.first(rows) + F.embedding(places, self.first_place)
        second = self.second(rows) + F.embedding(places, self.second_place)
        # Both ways round side by side: what f(i, j) takes of i stands on the left, what f(j, i) takes of it on the right.
        left, right = torch.cat([first, second], dim=1), torch.cat([second, first], dim=1)
        between = torch.cat([self.distance, self.distance.flip(0)], dim=1)
        weight = torch.cat([self.out.weight, -self.out.weight], dim=1)
        i, j = (part.to(rows.device) for part in _pairs(ragged))
        positions = positions.to(rows.device)
        distance = (positions[j] - positions[i]).clamp(-self.reach, self.reach) + self.reach
        at_once = _LEARNT if torch.is_grad_enabled() else _ASKED
        parts = list(zip(*(part.split(at_once) for part in (i, j, distance)), strict=True))
        if len(parts) == 1 or not torch.is_grad_enabled():
            return torch.cat([self._scores(left, right, between, weight, *part) for part in parts])
        # Hidden layers of all pairs of long sentences would not fit: they are computed again for the gradient.
        scores = [checkpoint(self._scores, left, right, between, weight, *part, use_reentrant=False) for part in parts]
        return torch.cat(scores)  # type: ignore[arg-type]

    def _scores(
        self, left: Tensor, right: Tensor, between: Tensor, weight: Tensor, i: Tensor, j: Tensor, distance: Tensor
    ) -> Tensor:
        hidden = F.embedding(i, left) + F.embedding(j, right) + F.embedding(distance, between)
        return F.linear(self.drop(hidden.relu_()), weight)[:, 0]

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
        dim: of the vectors.
        hidden: size of the hidden layer.
        most: N; later places are all in the last class, later positions share the last embedding.
        dropout: see `RelativeOrder`.

    Example:
        >>> model, lengths = AbsoluteOrder(8, 5, 4), torch.tensor([3, 1])
        >>> model(torch.randn(4, 8), torch.tensor([0, 2, 7, 0]), lengths).shape
        torch.Size([4, 4])
    """

    kind = "absolute"

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


def order_of(saved: dict[str, Any]) -> Order:
    """A module with the settings that another's `saved` said, and weights of its own.

    Raises:
        SettingError: settings of no such module.
    """
    settings = dict(saved)
    kinds = {each.kind: each for each in (RelativeOrder, AbsoluteOrder)}
    kind = settings.pop("kind", None)
    if kind not in kinds:
        raise SettingError(f"an order of kind {kind!r}, expected {' or '.join(kinds)}")
    return kinds[kind](**settings)


def _pairs(ragged: Ragged) -> tuple[Tensor, Tensor]:
    """Rows i and j of all pairs i < j of each sentence, row by row; int64 `[n_pairs]` each."""
    after = ragged.lengths[ragged.sentence] - ragged.position - 1  # words behind each word
    words = np.arange(ragged.n_words)
    return torch.from_numpy(np.repeat(words, after)), torch.from_numpy(ranges(words + 1, after))
