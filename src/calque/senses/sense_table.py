"""Output layers: tables of sense vectors (Multi-sense, §3.1, Algorithms 1 and 2), and the softmax
over words or senses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from calque.errors import InputError, SettingError
from calque.storage import json_text

SENSES_FILE = "senses.safetensors"
_KEPT = ("weight", "bias", "centres", "projection", "mean", "counts", "live")
_MOST = 64  # maximum number of senses per word


class SenseTable(nn.Module):
    """Sense vectors for a vocabulary, and the cluster centres that are used to select senses.

    Each sense is a class, and the senses of a word are adjacent. In the warm-up, only the first
    sense of each word is active; `open` activates the other senses, and `prune` deactivates rare
    senses. Only the vectors w and the biases have gradients.

    Args:
        senses: number of senses of each word, at least 1, int `[n_words]`.
        axes: dimension d′ of the projection in which states and centres are compared; at most
            `dim`.
        queue: number Q of states from which the projection is computed.
        spread: standard deviation σ of the initial centres.
        recent: number of recent states to store for each word that may have several senses.
        kinds: number of states to store for each occurrence.

    Attributes:
        weight, bias: vectors w, `[n_classes, dim]`, and biases, `[n_classes]`.
        centres: centres c, `[n_classes, dim]`.
        projection, mean: matrix P `[dim, axes]`, and vector `[dim]` that is subtracted first (zero
            in the paper), see `project`.
        queue, seen: ring buffer of recent states, `[queue, dim]`, and the total number of states so
            far.
        recent, n_recent: recent states of each word in `several`, `[n_several, recent, kinds,
            dim]`; total number of its states.
        counts: number of selections of each class since `open`, int64 `[n_classes]`.
        live: mask of the active senses, bool `[n_classes]`.
        index, words: classes of each word, int64 `[n_words, S]`, padded with −1; and the word of
            each class.

    Raises:
        SettingError: an argument is invalid.
    """

    def __init__(
        self,
        senses: Sequence[int] | np.ndarray,
        dim: int,
        *,
        axes: int = 16,
        queue: int = 20_000,
        spread: float = 0.01,
        recent: int = 0,
        kinds: int = 1,
    ):
        super().__init__()
        of_words = torch.as_tensor(np.asarray(senses), dtype=torch.int64)
        if not len(of_words) or of_words.min() < 1 or of_words.max() > _MOST:
            raise SettingError(f"the number of senses of each word must be from 1 to {_MOST}")
        if not 1 <= axes <= min(dim, queue):
            fact = (
                f"axes must be at most dim and queue, got {axes} axes, {dim} dimensions and a "
                f"queue of {queue}"
            )
            raise SettingError(f"{fact}; try fewer axes")
        n, several = int(of_words.sum()), (of_words > 1).nonzero().squeeze(1)
        slots, first = torch.arange(int(of_words.max())), of_words.cumsum(0) - of_words
        self.weight = nn.Parameter(torch.randn(n, dim) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(n))
        self.centres = nn.Buffer(torch.randn(n, dim) * spread)
        self.projection = nn.Buffer(torch.randn(dim, axes))
        self.mean = nn.Buffer(torch.zeros(dim))
        self.queue = nn.Buffer(torch.zeros(queue, dim))
        self.seen = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.recent = nn.Buffer(torch.zeros(len(several), recent, kinds, dim))
        self.n_recent = nn.Buffer(torch.zeros(len(several), dtype=torch.int64))
        self.counts = nn.Buffer(torch.zeros(n, dtype=torch.int64))
        self.live = nn.Buffer(torch.zeros(n, dtype=torch.bool).index_fill(0, first, True))
        # Checkpoints omit the following tensors, because the argument `senses` determines them.
        self.several = nn.Buffer(several, persistent=False)
        self.index = nn.Buffer(
            torch.where(slots < of_words[:, None], first[:, None] + slots, -1), persistent=False
        )
        self.words = nn.Buffer(
            torch.arange(len(of_words)).repeat_interleave(of_words), persistent=False
        )

    @property
    def dim(self) -> int:
        return self.weight.shape[1]

    def __len__(self) -> int:
        """Number of classes, including inactive classes."""
        return len(self.weight)

    @property
    def n_words(self) -> int:
        return len(self.index)

    # -- selection
    # ----------------------------------------------------------------------------------------------
    @torch.no_grad()
    def compared(self, states: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return the senses of candidate words, and their cosines with each state after the
        projection (Algorithm 1, line 7).

        Args:
            states: hidden states h, `[n, dim]`.
            words: candidate words for each state, such as translations (§3.2), int64 `[n, t]`,
                padded with −1.

        Returns:
            the classes, int64 `[n, t · S]`, and the cosines, `[n, t · S]`; −1 and −∞ for missing
            and inactive senses.
        """
        different, place = torch.unique(words.clamp(min=0), return_inverse=True)
        classes = self.index[different]  # [u, S]
        usable = (classes >= 0) & self.live[classes.clamp(min=0)]
        with torch.autocast(
            states.device.type, enabled=False
        ):  # rounding would change the selected senses
            centres = self.projected(self.centres[classes.clamp(min=0)])
            similarity = torch.einsum(
                "na,ntsa->nts", self.projected(states.detach().float()), centres[place]
            )
        allowed = usable[place] & (words >= 0)[:, :, None]
        similarity = similarity.masked_fill(~allowed, -torch.inf)
        return torch.where(allowed, classes[place], -1).flatten(1), similarity.flatten(1)

    def projected(self, vectors: Tensor) -> Tensor:
        """Project states or centres `[..., dim]`, and L2-normalise them."""
        return nn.functional.normalize((vectors - self.mean) @ self.projection, dim=-1, eps=1e-30)

    # -- updates after selection
    # -------------------------------------------------------------------------------------------
    @torch.no_grad()
    def follow(self, states: Tensor, classes: Tensor, rate: float) -> None:
        """Move each selected centre towards the mean of the states h `[n, dim]` that selected it.

        c ← (1 − α) c + α · mean(h)    (Algorithm 1, line 8, applied once per update; α is `rate`)
        """
        chosen, place, counts = torch.unique(classes, return_inverse=True, return_counts=True)
        sums = torch.zeros(len(chosen), self.dim, dtype=torch.float64, device=states.device)
        means = (
            sums.index_add_(0, place, states.double()).div_(counts[:, None]).to(self.centres.dtype)
        )
        self.centres[chosen] = (1 - rate) * self.centres[chosen] + rate * means
        self.counts[chosen] += counts

    @torch.no_grad()
    def remember(self, states: Tensor) -> None:
        """Replace the oldest states in the queue with new states `[n, dim]`, in order (Algorithm 2,
        lines 6 to 9).
        """
        size = len(self.queue)
        kept = states[-size:]
        first = int(self.seen) + len(states) - len(kept)
        places = (torch.arange(len(kept), device=states.device) + first) % size
        self.queue[places] = kept.to(self.queue.dtype)
        self.seen += len(states)

    @torch.no_grad()
    def keep_recent(self, states: Tensor, words: Tensor) -> None:
        """Replace the oldest stored states of each word that may have several senses with new
        states `[n, kinds, dim]`.
        """
        size = self.recent.shape[1]
        place = torch.searchsorted(self.several, words).clamp(max=max(0, len(self.several) - 1))
        known = (
            (self.several[place] == words).nonzero().squeeze(1)
            if size and len(self.several)
            else words[:0]
        )
        place, order = place[known].sort(stable=True)
        uses = torch.bincount(place, minlength=len(self.several))
        rank = torch.arange(len(place), device=place.device) - (uses.cumsum(0) - uses)[place]
        last = rank >= uses[place] - size
        slots = (self.n_recent[place] + rank)[last] % max(1, size)
        self.recent[place[last], slots] = states[known[order[last]]].to(self.recent.dtype)
        self.n_recent += uses

    @torch.no_grad()
    def project(self, *, centred: bool = False, whiten: float = 0.0) -> None:
        """Recompute the projection from the queue (Algorithm 2, line 11) if the queue contains more
        states than axes.

        If `centred`, the mean of the queue is subtracted before each projection. For `whiten`, see
        `principal_axes`.
        """
        states, axes = self.queue[: int(self.seen)], self.projection.shape[1]
        if len(states) > axes:
            self.projection.copy_(principal_axes(states, axes, whiten=whiten))
            if centred:
                self.mean.copy_(states.mean(0, dtype=torch.float64))

    # -- active senses
    # ----------------------------------------------------------------------------------------------
    @torch.no_grad()
    def open(self, *, start: str = "copied", live: Tensor | None = None) -> None:
        """End the warm-up, and activate the other senses of each word.

        Args:
            start: initialisation of the other senses. "copied" copies the vector of the first sense
                and divides its probability among all senses. "kept" keeps the random vectors
                (SaBERT). "fresh" also keeps them, but deactivates the first sense of words with
                several senses (SaELMo).
            live: mask of the senses to activate, bool `[n_classes]`; default: all senses.
        """
        first = self.index[:, 0]
        self.live.copy_(torch.ones_like(self.live) if live is None else live)
        if start == "fresh":
            self.live[first[self.several]] = False
        if start == "copied":
            number = torch.zeros_like(first).index_add_(0, self.words, self.live.to(first.dtype))
            self.weight.copy_(self.weight[first[self.words]])
            self.bias.copy_((self.bias[first] - number.log())[self.words])
        self.counts.zero_()

    @torch.no_grad()
    def most_selected(self) -> Tensor:
        """Return the most selected active sense of each word (the first in a tie), int64
        `[n_words]`.
        """
        used = (self.index >= 0) & self.live[self.index.clamp(min=0)]
        of_word = torch.where(used, self.counts[self.index.clamp(min=0)], -1)
        return self.index.gather(1, of_word.argmax(1, keepdim=True)).squeeze(1)

    @torch.no_grad()
    def prune(self, below: float) -> int:
        """Deactivate senses with less than a fraction β = `below` of their word's selections
        (§3.1), and return their number.

        Each word keeps its most selected sense. Words with fewer than 1 / β selections are not
        pruned.
        """
        totals = torch.zeros(self.n_words, dtype=torch.int64, device=self.counts.device)
        totals.index_add_(0, self.words, self.counts * self.live)
        most = self.most_selected()
        share = self.counts / totals[self.words].clamp(min=1)
        going = self.live & (share < below) & (totals[self.words] * below >= 1)
        going[most] = False
        self.live[going] = False
        return int(going.sum())


def nearest(compared: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return each state's class with the largest sum of cosines over the tables, int64 `[n]`, or −1
    if it has no class.
    """
    classes = compared[0][0]
    if not classes.shape[1]:
        return classes.new_full((len(classes),), -1)
    similarity = torch.stack([cosines for _, cosines in compared]).sum(0)
    return classes.gather(1, similarity.argmax(1, keepdim=True)).squeeze(1)


def principal_axes(states: Tensor, k: int, *, whiten: float = 0.0) -> Tensor:
    """Return the first k principal axes (right singular vectors of the centred matrix) of vectors
    `[n, dim]`, `[dim, k]`.

    Args:
        whiten: exponent p; each axis is divided by σ^p, where σ is its standard deviation. 0 gives
            orthonormal axes.
    """
    centred = states.double() - states.double().mean(0)
    squares, axes = torch.linalg.eigh(centred.t() @ centred / len(states))
    axes, deviations = axes.flip(1)[:, :k], squares.flip(0)[:k].clamp(min=0).sqrt()
    if whiten:
        axes = axes / deviations.clamp(min=1e-6 * float(deviations[0]) + 1e-30) ** whiten
    return axes.to(states.dtype)


# -- the file
# --------------------------------------------------------------------------------------------------
def save_senses(tables: Sequence[SenseTable], folder: Path, settings: Mapping[str, Any]) -> None:
    """Write `senses.safetensors`, which contains the tensors in `_KEPT` and the number of senses of
    each word for each table, with the settings as JSON in the metadata."""
    parts: dict[str, Tensor] = {}
    for k, table in enumerate(tables):
        parts |= {f"{k}.{name}": getattr(table, name).detach().cpu().contiguous() for name in _KEPT}
        parts[f"{k}.senses"] = (table.index >= 0).sum(1).to(torch.int32).cpu()
    # The metadata is a single entry, because safetensors would write several entries in random
    # order.
    about = json_text({"tables": len(tables), "settings": dict(settings)}, sort_keys=True)
    save_file(parts, folder / SENSES_FILE, metadata={"senses": about})


def has_senses(folder: str | Path) -> bool:
    return (Path(folder) / SENSES_FILE).is_file()


def open_senses(folder: str | Path) -> list[SenseTable]:
    """Read the tables that `save_senses` wrote, with empty queues: one table, or a forward and a
    backward table for ELMo.

    Raises:
        InputError: the folder contains no senses, or the file is corrupt.
    """
    path, tables = Path(folder) / SENSES_FILE, []
    if not path.is_file():
        raise InputError(
            f"there is no {SENSES_FILE} in this folder; calque pretrain --senses writes one",
            path=folder,
        )
    with _reading(path, "the senses of a language model"), safe_open(path, framework="pt") as file:
        for k in range(int(json.loads(file.metadata()["senses"])["tables"])):
            parts = {name: file.get_tensor(f"{k}.{name}") for name in (*_KEPT, "senses")}
            senses, (dim, axes) = parts.pop("senses"), parts["projection"].shape
            with torch.random.fork_rng(
                devices=[]
            ):  # restore the random state after initial vectors are drawn
                tables.append(SenseTable(senses.numpy(), dim, axes=axes, queue=axes))
            tables[-1].load_state_dict(parts, strict=False)  # the file does not contain the queue
    return tables


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # libraries can raise any exception for a corrupt file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"the file does not contain {what} ({reason})", path=path) from error


SOFTMAX_FILE = "softmax.safetensors"
MAX_LOGITS = 4_000_000  # maximum number of logits in memory if no gradients are computed
_NOTHING = (
    -1e30
)  # score of an excluded class; with −∞, the gradient would be invalid if all classes were excluded


class WordTable(nn.Module):
    """Output vectors and biases for a vocabulary without senses, in which each word is a class."""

    def __init__(self, size: int, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, dim) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(size))
        self.words = nn.Buffer(torch.arange(size), persistent=False)
        self.live = nn.Buffer(torch.ones(size, dtype=torch.bool), persistent=False)
        self.n_words = size


class Negatives(NamedTuple):
    """Negative classes sampled for an update."""

    classes: np.ndarray  # sorted distinct classes, int64 `[n]`
    tries: (
        int | None
    )  # number of draws needed for n distinct classes; None if all active classes are used


class Targets(NamedTuple):
    """Target classes of each state."""

    # word or selected sense, followed by senses of its translations, int64 `[n, k]`, padded with −1
    classes: Tensor
    weights: (
        Tensor  # weight of −log p of each class, `[n, k]`; the weights of a state sum to 1 (Eq. 7)
    )


class Sampler:
    """Samples a word by its frequency rank k, with an approximately Zipfian probability, and then
    one of its active senses.

        p(k) = log((k + 2) / (k + 1)) / log(n + 1),    k = 0, …, n − 1

    Args:
        table: table whose words are sorted by frequency.
    """

    def __init__(self, table: WordTable | SenseTable):
        self._table, self._n = table, table.n_words

    def draw(self, count: int, rng: np.random.Generator) -> Negatives | None:
        """Draw `count` distinct classes. Return None, which means all classes, if at most 2 ·
        `count` classes are active.
        """
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
        """Return log(1 − (1 − p)^tries), the log-probability that a class is among the negatives,
        float64 `[n]`.
        """
        if tries is None:
            return np.zeros(len(classes))
        words = self._table.words.cpu().numpy()[classes]
        p = np.log1p(1 / (words + 1.0)) / np.log(self._n + 1) / self._live()[1][words]
        return np.log(-np.expm1(tries * np.log1p(-p)))

    def _live(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the active classes, and the number of active classes of each word."""
        live = np.flatnonzero(self._table.live.cpu().numpy())
        return live, np.bincount(self._table.words.cpu().numpy()[live], minlength=self._n)


class Softmax(nn.Module):
    """Softmax p(class | state) ∝ exp(w_class · state + b_class) over all words, or over all senses
    (Eq. 3, with a bias).

    Args:
        tables: one table for each direction, or one table for both directions.
        negatives: number of classes sampled for each direction in an update; by default, a full
            softmax is computed. The log of the expected count of a class among the negatives is
            subtracted from its score (Jean et al. 2015, §3; `tf.nn.sampled_softmax_loss`).
    """

    def __init__(self, tables: Sequence[WordTable | SenseTable], *, negatives: int | None = None):
        super().__init__()
        if len(tables) not in (1, 2) or (negatives is not None and negatives < 1):
            raise SettingError(
                f"expected 1 or 2 tables and at least 1 negative, got {len(tables)} and {negatives}"
            )
        self.tables = nn.ModuleList(tables)
        self._samplers, self.negatives = [Sampler(table) for table in tables], negatives

    def table(self, side: int) -> WordTable | SenseTable:
        """Return the table for a direction: 0 is forward, 1 is backward."""
        return self.tables[side % len(self.tables)]  # type: ignore[return-value]

    @property
    def senses(self) -> list[SenseTable]:
        """Tables with senses."""
        return [table for table in self.tables if isinstance(table, SenseTable)]

    def draw(self, rng: np.random.Generator) -> list[Negatives | None]:
        """Return the negatives for each direction, or None if all classes are negatives."""
        samplers = [self._samplers[side % len(self._samplers)] for side in (0, 1)]
        return [
            None if self.negatives is None else sampler.draw(self.negatives, rng)
            for sampler in samplers
        ]

    def loss(
        self, states: Tensor, targets: Targets, side: int = 0, negatives: Negatives | None = None
    ) -> Tensor:
        """Return the weighted sum of −log p of the targets for states `[n, dim]` and negatives
        (default: all active classes).

            L = Σ_n Σ_k weights[n, k] · −log( e_nk / (e_nk + Σ_{j drawn, j ≠ class nk} exp(s_nj)) )

        Accidental hits (j = class nk) are excluded. Other senses of the target word are negatives
        only if they are drawn.
        """
        table, sampler = self.table(side), self._samplers[side % len(self._samplers)]
        if negatives is None:
            negatives = Negatives(np.flatnonzero(table.live.cpu().numpy()), None)
        # Index the large table only once, so that its gradient is also computed only once.
        drawn, wanted = negatives.classes, targets.classes.cpu().numpy()
        classes, place = np.unique(
            np.concatenate([drawn, np.maximum(wanted, 0).ravel()]), return_inverse=True
        )
        rows = torch.from_numpy(classes).to(states.device)
        weight, bias = table.weight.index_select(0, rows), table.bias.index_select(0, rows)
        bias = bias - torch.from_numpy(sampler.log_expected(classes, negatives.tries)).to(bias)
        columns, right = (
            torch.from_numpy(part).to(states.device) for part in np.split(place, [len(drawn)])
        )
        right = right.view(wanted.shape)
        # Exclude all targets of a state from the sum over drawn classes. For each target, the
        # others are added again below.
        hit = np.minimum(np.searchsorted(drawn, wanted), len(drawn) - 1)
        struck, place_of = (
            torch.from_numpy(part).to(states.device) for part in (drawn[hit] == wanted, hit)
        )
        scores = F.linear(states, weight[columns], bias[columns]).float()
        state, k = struck.nonzero(as_tuple=True)
        others = scores.index_put_(
            (state, place_of[state, k]), scores.new_tensor(_NOTHING)
        ).logsumexp(1)
        answers = (states[:, None] * weight[right]).sum(2).float() + bias[right].float()
        again = struck[:, None] | torch.eye(
            wanted.shape[1], dtype=torch.bool, device=states.device
        )  # [n, k, l]
        among = answers[:, None].masked_fill(~again, -torch.inf).logsumexp(2)
        return (
            targets.weights.to(answers) * (torch.logaddexp(among, others[:, None]) - answers)
        ).sum()

    @torch.inference_mode()
    def negative_log_likelihood(self, states: Tensor, words: Tensor, side: int = 0) -> Tensor:
        """Return −log p of each word, `[n]`; the probability of a word is the sum over its
        senses.
        """
        table = self.table(side)
        live = table.live.nonzero().squeeze(1)
        weight, bias, of_word = table.weight[live], table.bias[live], table.words[live]
        parts = []
        for block, answers in zip(
            *(x.split(max(1, MAX_LOGITS // len(live))) for x in (states, words)), strict=True
        ):
            scores = torch.addmm(bias, block, weight.t()).float()
            right = scores.masked_fill(of_word != answers[:, None], -torch.inf)
            parts.append(scores.logsumexp(1) - right.logsumexp(1))
        return torch.cat(parts) if parts else states.new_zeros(0)

    def save(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Write `softmax.safetensors` or, with senses, `senses.safetensors`, which includes the
        sense settings.
        """
        if self.senses:
            save_senses(self.senses, folder, settings)
            return
        named = {
            f"{name}.{k}": getattr(t, name)
            for k, t in enumerate(self.tables)
            for name in ("weight", "bias")
        }
        save_file(
            {name: part.detach().cpu().contiguous() for name, part in named.items()},
            folder / SOFTMAX_FILE,
        )

    @classmethod
    def open(cls, folder: str | Path, *, words: int, dim: int, tables: int) -> Softmax:
        """Read the output layer that `save` wrote, as a full softmax.

        Args:
            words, dim: vocabulary size and dimension of the language model.
            tables: expected number of tables with senses.

        Raises:
            InputError: the file is missing or corrupt, or belongs to another model.
        """
        path = Path(folder)
        if not has_senses(path):
            with _reading(path / SOFTMAX_FILE, "the softmax weights of this model"):
                parts = load_file(path / SOFTMAX_FILE)
                plain = [WordTable(words, dim) for _ in range(len(parts) // 2)]
                for k, table in enumerate(plain):
                    table.load_state_dict(
                        {name: parts[f"{name}.{k}"] for name in ("weight", "bias")}
                    )
            return cls(plain)
        saved = open_senses(path)
        if len(saved) != tables or any(
            (table.n_words, table.dim) != (words, dim) for table in saved
        ):
            shapes = ", ".join(f"{table.n_words:,} × {table.dim}" for table in saved)
            fact = (
                f"the senses belong to another model: got tables of {shapes}, expected {tables} of "
                f"{words:,} × {dim}"
            )
            raise InputError(fact, path=path / SENSES_FILE)
        return cls(saved)
