"""Predicting words, or senses of words, out of a large vocabulary: softmax over all classes, or over a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from calque.errors import InputError, SettingError
from calque.senses.sense_table import SENSES_FILE, SenseTable, has_senses, open_senses, save_senses

SOFTMAX_FILE = "softmax.safetensors"
_LOGITS = 4_000_000  # numbers held at once where nothing is learnt
_NOTHING = -1e30  # score of what is left out; infinity has no gradient where all is left out


class WordTable(nn.Module):
    """One vector and bias for each word, which is a class of its own.

    Args:
        size: words.
        dim: of a state.
    """

    words: Tensor
    live: Tensor

    def __init__(self, size: int, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, dim) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(size))
        self.register_buffer("words", torch.arange(size), persistent=False)
        self.register_buffer("live", torch.ones(size, dtype=torch.bool), persistent=False)
        self.n_words = size


class Negatives(NamedTuple):
    """Classes drawn for the answers of an update to be told from.

    Attributes:
        classes: int64 `[n]`, sorted, each once.
        tries: draws until there were n different ones; None where they are all classes there are.
    """

    classes: np.ndarray
    tries: int | None


class Targets(NamedTuple):
    """What each state is to predict.

    Attributes:
        classes: int64 `[n, k]`, the word or its selected sense, then senses of its translations; −1 for none.
        weights: `[n, k]`, of −log p of each; they sum to 1 (Eq. 7).
    """

    classes: Tensor
    weights: Tensor


class Sampler:
    """Draws classes in use: a word by its rank k in the order of frequency, which by Zipf's law is about its frequency, and any
    of its senses.

        p(k) = log((k + 2) / (k + 1)) / log(n + 1),    k = 0, …, n − 1

    Args:
        table: whose words stand in the order of frequency.
    """

    def __init__(self, table: WordTable | SenseTable):
        self._table, self._n = table, table.n_words

    def draw(self, count: int, rng: np.random.Generator) -> Negatives | None:
        """Different classes, drawn until there are `count` of them; None, for all of them, where there are not twice as
        many."""
        live, sizes = self._live()
        if 2 * count >= len(live):
            return None
        first, drawn = np.cumsum(sizes) - sizes, np.zeros(0, dtype=np.int64)
        while True:
            words = np.exp(rng.random(2 * count) * np.log(self._n + 1)).astype(np.int64) - 1
            places = first[words := np.clip(words, 0, self._n - 1)]
            if isinstance(self._table, SenseTable):
                places = places + (rng.random(2 * count) * sizes[words]).astype(np.int64)
            drawn = np.concatenate([drawn, live[places]])
            classes, seen = np.unique(drawn, return_index=True)
            if len(classes) >= count:
                last = np.partition(seen, count - 1)[count - 1]
                return Negatives(classes[seen <= last], int(last) + 1)

    def log_expected(self, classes: np.ndarray, tries: int | None) -> np.ndarray:
        """Logarithm of how often a class is expected among the negatives, 1 − (1 − p)^tries, float64 `[n]`."""
        if tries is None:
            return np.zeros(len(classes))
        words = self._table.words.cpu().numpy()[classes]
        p = np.log1p(1 / (words + 1.0)) / np.log(self._n + 1) / self._live()[1][words]
        return np.log(-np.expm1(tries * np.log1p(-p)))

    def _live(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes in use, and how many each word has."""
        live = np.flatnonzero(self._table.live.cpu().numpy())
        return live, np.bincount(self._table.words.cpu().numpy()[live], minlength=self._n)


class Softmax(nn.Module):
    """p(class | state) ∝ exp(w_class · state + b_class), over all words, or over the senses of all words (Eq. 3).

    A bias, which the equation has not, is kept for senses as for words.

    Args:
        tables: one for each direction of reading, or one for both.
        negatives: classes drawn for each direction of an update; None takes all. From each score log Q is subtracted, Q the
            expected number of times that the class is drawn, so that the scores learn log p and not log p / Q (Jean et al.
            2015, §3; `tf.nn.sampled_softmax_loss`).
    """

    def __init__(self, tables: Sequence[WordTable | SenseTable], *, negatives: int | None = None):
        super().__init__()
        if len(tables) not in (1, 2) or (negatives is not None and negatives < 1):
            raise SettingError(f"tables is 1 or 2 and negatives at least 1, got {len(tables)} and {negatives}")
        self.tables = nn.ModuleList(tables)
        self._samplers, self.negatives = [Sampler(table) for table in tables], negatives

    def table(self, side: int) -> WordTable | SenseTable:
        """The table of a direction: 0 for forwards, 1 for backwards."""
        return self.tables[side % len(self.tables)]  # type: ignore[return-value]

    @property
    def senses(self) -> list[SenseTable]:
        """The tables that have senses."""
        return [table for table in self.tables if isinstance(table, SenseTable)]

    def draw(self, rng: np.random.Generator) -> list[Negatives | None]:
        """Negatives for each direction, or None for all classes."""
        samplers = [self._samplers[side % len(self._samplers)] for side in (0, 1)]
        return [None if self.negatives is None else sampler.draw(self.negatives, rng) for sampler in samplers]

    def loss(self, states: Tensor, targets: Targets, side: int = 0, negatives: Negatives | None = None) -> Tensor:
        """Weighted sum of −log p, p over each target itself and the negatives.

        A negative that is the target itself (an accidental hit) is left out for this target. The other senses of the
        predicted word are among the negatives only where they are drawn.

            L = Σ_n Σ_k weights[n, k] · −log( e_nk / (e_nk + Σ_{j drawn, j ≠ class nk} exp(s_nj)) )

        Args:
            states: `[n, dim]`.
            targets: see `Targets`.
            side: of the table.
            negatives: None for all classes in use.
        """
        table, sampler = self.table(side), self._samplers[side % len(self._samplers)]
        if negatives is None:
            negatives = Negatives(np.flatnonzero(table.live.cpu().numpy()), None)
        # One look into the large table for all that is needed of it: its gradient is one, too.
        drawn, wanted = negatives.classes, targets.classes.cpu().numpy()
        classes, place = np.unique(np.concatenate([drawn, np.maximum(wanted, 0).ravel()]), return_inverse=True)
        rows = torch.from_numpy(classes).to(states.device)
        weight, bias = table.weight.index_select(0, rows), table.bias.index_select(0, rows)
        bias = bias - torch.from_numpy(sampler.log_expected(classes, negatives.tries)).to(bias)
        columns, right = (torch.from_numpy(part).to(states.device) for part in np.split(place, [len(drawn)]))
        right = right.view(wanted.shape)
        # The targets among the drawn classes: they are left out of the sum over these, and those of a state's other targets
        # are added again.
        hit = np.minimum(np.searchsorted(drawn, wanted), len(drawn) - 1)
        struck, place_of = (torch.from_numpy(part).to(states.device) for part in (drawn[hit] == wanted, hit))
        scores = F.linear(states, weight[columns], bias[columns]).float()
        state, k = struck.nonzero(as_tuple=True)
        others = scores.index_put_((state, place_of[state, k]), scores.new_tensor(_NOTHING)).logsumexp(1)
        answers = (states[:, None] * weight[right]).sum(2).float() + bias[right].float()
        again = struck[:, None] | torch.eye(wanted.shape[1], dtype=torch.bool, device=states.device)  # [n, k, l]
        among = answers[:, None].masked_fill(~again, -torch.inf).logsumexp(2)
        return (targets.weights.to(answers) * (torch.logaddexp(among, others[:, None]) - answers)).sum()

    @torch.inference_mode()
    def negative_log_likelihood(self, states: Tensor, words: Tensor, side: int = 0) -> Tensor:
        """−log p of each word over all words, `[n]`; of a word with senses, −log of the sum of p over them."""
        table = self.table(side)
        live = table.live.nonzero().squeeze(1)
        weight, bias, of_word = table.weight[live], table.bias[live], table.words[live]
        parts = []
        for block, answers in zip(*(x.split(max(1, _LOGITS // len(live))) for x in (states, words)), strict=True):
            scores = torch.addmm(bias, block, weight.t()).float()
            right = scores.masked_fill(of_word != answers[:, None], -torch.inf)
            parts.append(scores.logsumexp(1) - right.logsumexp(1))
        return torch.cat(parts) if parts else states.new_zeros(0)

    def save(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Write `softmax.safetensors`, or `senses.safetensors` with how the senses were found."""
        if self.senses:
            save_senses(self.senses, folder, settings)
            return
        parts = {
            f"{name}.{k}": getattr(table, name) for k, table in enumerate(self.tables) for name in ("weight", "bias")
        }
        save_file({name: part.detach().cpu().contiguous() for name, part in parts.items()}, folder / SOFTMAX_FILE)

    @classmethod
    def open(cls, folder: str | Path, *, words: int, dim: int, tables: int) -> Softmax:
        """Read what `save` wrote beside a language model. It predicts over all classes.

        Args:
            words, dim: that the language model has.
            tables: number of tables, where they have senses.

        Raises:
            InputError: the file is missing or damaged, or is of another model.
        """
        path = Path(folder)
        if not has_senses(path):
            return cls(_word_tables(path / SOFTMAX_FILE, words, dim))
        saved = open_senses(path).tables
        if len(saved) != tables or any((table.n_words, table.dim) != (words, dim) for table in saved):
            shapes = ", ".join(f"{table.n_words:,} × {table.dim}" for table in saved)
            raise InputError(
                f"senses of another model: {len(saved)} tables of words × dimensions {shapes}, expected {tables} of "
                f"{words:,} × {dim}",
                path=path / SENSES_FILE,
            )
        return cls(saved)


def _word_tables(path: Path, words: int, dim: int) -> list[WordTable]:
    try:
        parts, tables = load_file(path), []
        for k in range(len(parts) // 2):
            tables.append(WordTable(words, dim))
            tables[k].load_state_dict({name: parts[f"{name}.{k}"] for name in ("weight", "bias")})
    except Exception as error:  # whatever a damaged file provokes
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"not the softmax of this model ({reason})", path=path) from error
    return tables
