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
# tensors that `save_senses` writes
_SAVED = ("weight", "bias", "centres", "projection", "mean", "counts", "live")
_MAX_SENSES = 64  # maximum number of senses per word


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
        states_per_use: number of states to store for each occurrence: 1, or 2 if the state that
            selects the sense is not the state that predicts the word.

    Attributes:
        weight, bias: vectors w, `[n_classes, dim]`, and biases, `[n_classes]`.
        centres: centres c, `[n_classes, dim]`.
        projection, mean: matrix P `[dim, axes]`, and vector `[dim]` that is subtracted first (zero
            in the paper), see `project`.
        queue, seen: ring buffer of recent states, `[queue, dim]`, and the total number of states so
            far.
        recent, n_recent: ring buffer of recent states of each word in `several`, `[n_several,
            recent, states_per_use, dim]`; total number of its states so far, int64 `[n_several]`.
        counts: number of selections of each class since `open`, int64 `[n_classes]`.
        live: mask of the active senses, bool `[n_classes]`.
        several: ascending indices of the words that may have several senses, int64 `[n_several]`.
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
        states_per_use: int = 1,
    ):
        super().__init__()
        n_senses = torch.as_tensor(np.asarray(senses), dtype=torch.int64)
        if not len(n_senses) or n_senses.min() < 1 or n_senses.max() > _MAX_SENSES:
            raise SettingError(f"the number of senses of each word must be from 1 to {_MAX_SENSES}")
        if not 1 <= axes <= min(dim, queue):
            fact = (
                f"axes must be at most dim and queue, got {axes} axes, {dim} dimensions and a "
                f"queue of {queue}"
            )
            raise SettingError(f"{fact}; try fewer axes")
        n_classes = int(n_senses.sum())
        several = (n_senses > 1).nonzero().squeeze(1)
        first = n_senses.cumsum(0) - n_senses  # first class of each word
        self.weight = nn.Parameter(torch.randn(n_classes, dim) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(n_classes))
        self.centres = nn.Buffer(torch.randn(n_classes, dim) * spread)
        self.projection = nn.Buffer(torch.randn(dim, axes))
        self.mean = nn.Buffer(torch.zeros(dim))
        self.queue = nn.Buffer(torch.zeros(queue, dim))
        self.seen = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.recent = nn.Buffer(torch.zeros(len(several), recent, states_per_use, dim))
        self.n_recent = nn.Buffer(torch.zeros(len(several), dtype=torch.int64))
        self.counts = nn.Buffer(torch.zeros(n_classes, dtype=torch.int64))
        self.live = nn.Buffer(torch.zeros(n_classes, dtype=torch.bool).index_fill(0, first, True))
        # Checkpoints omit the following tensors, because the argument `senses` determines them.
        numbers = torch.arange(int(n_senses.max()))  # number of a sense within its word
        index = torch.where(numbers < n_senses[:, None], first[:, None] + numbers, -1)
        words = torch.arange(len(n_senses)).repeat_interleave(n_senses)
        self.several = nn.Buffer(several, persistent=False)
        self.index = nn.Buffer(index, persistent=False)
        self.words = nn.Buffer(words, persistent=False)

    @property
    def dim(self) -> int:
        return self.weight.shape[1]

    def __len__(self) -> int:
        """Number of classes, including inactive classes."""
        return len(self.weight)

    @property
    def n_words(self) -> int:
        return len(self.index)

    @property
    def active(self) -> Tensor:
        """Mask of the active senses of each word, bool `[n_words, S]`."""
        return (self.index >= 0) & self.live[self.index.clamp(min=0)]

    # -- selection ---------------------------------------------------------------------------------
    @torch.no_grad()
    def compare(self, states: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
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
        # Project the centres of each distinct word only once; u is the number of distinct words.
        different, place = torch.unique(words.clamp(min=0), return_inverse=True)
        classes = self.index[different]  # [u, S]
        usable = (classes >= 0) & self.live[classes.clamp(min=0)]
        # In bfloat16, rounding would change the selected senses.
        with torch.autocast(states.device.type, enabled=False):
            centres = self.projected(self.centres[classes.clamp(min=0)])  # [u, S, axes]
            cosines = torch.einsum(
                "na,ntsa->nts", self.projected(states.detach().float()), centres[place]
            )
        allowed = usable[place] & (words >= 0)[:, :, None]  # [n, t, S]
        cosines = cosines.masked_fill(~allowed, -torch.inf)
        return torch.where(allowed, classes[place], -1).flatten(1), cosines.flatten(1)

    def projected(self, vectors: Tensor) -> Tensor:
        """Project states or centres `[..., dim]`, and L2-normalise them."""
        return nn.functional.normalize((vectors - self.mean) @ self.projection, dim=-1, eps=1e-30)

    # -- updates after selection -------------------------------------------------------------------
    @torch.no_grad()
    def follow(self, states: Tensor, classes: Tensor, rate: float) -> None:
        """Move each selected centre towards the mean of the states h `[n, dim]` that selected it.

        c ← (1 − α) c + α · mean(h)    (Algorithm 1, line 8, applied once per update; α is `rate`)
        """
        selected, place, counts = torch.unique(classes, return_inverse=True, return_counts=True)
        # Sum in float64, so that the result hardly depends on the order of the states.
        sums = torch.zeros(len(selected), self.dim, dtype=torch.float64, device=states.device)
        sums.index_add_(0, place, states.double())
        means = (sums / counts[:, None]).to(self.centres.dtype)
        self.centres[selected] = (1 - rate) * self.centres[selected] + rate * means
        self.counts[selected] += counts

    @torch.no_grad()
    def remember(self, states: Tensor) -> None:
        """Replace the oldest states in the queue with new states `[n, dim]`, in order (Algorithm 2,
        lines 6 to 9).
        """
        size = len(self.queue)
        latest = states[-size:]
        first = int(self.seen) + len(states) - len(latest)
        places = (torch.arange(len(latest), device=states.device) + first) % size
        self.queue[places] = latest.to(self.queue.dtype)
        self.seen += len(states)

    @torch.no_grad()
    def keep_recent(self, states: Tensor, words: Tensor) -> None:
        """Replace the oldest stored states of each word that may have several senses with new
        states.

        Args:
            states: states of each use, `[n, states_per_use, dim]`.
            words: word of each use, int64 `[n]`, or −1 for a use that is not stored.
        """
        size = self.recent.shape[1]
        if not size or not len(self.several):
            return
        # Sort the uses by the place of their word in `several`, and keep text order within a word.
        place = torch.searchsorted(self.several, words).clamp(max=len(self.several) - 1)
        uses = (self.several[place] == words).nonzero().squeeze(1)
        place, order = place[uses].sort(stable=True)
        uses = uses[order]
        n_uses = torch.bincount(place, minlength=len(self.several))
        rank = torch.arange(len(place), device=place.device) - (n_uses.cumsum(0) - n_uses)[place]
        # Of more uses than there are slots, only the last ones are written, each to its own slot.
        latest = rank >= n_uses[place] - size
        slots = (self.n_recent[place] + rank)[latest] % size
        self.recent[place[latest], slots] = states[uses[latest]].to(self.recent.dtype)
        self.n_recent += n_uses

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

    # -- active senses -----------------------------------------------------------------------------
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
        if live is None:
            self.live.fill_(True)
        else:
            self.live.copy_(live)
        if start == "fresh":
            self.live[first[self.several]] = False
        elif start == "copied":
            n_live = torch.zeros_like(first).index_add_(0, self.words, self.live.to(first.dtype))
            self.weight.copy_(self.weight[first[self.words]])
            # exp(b − log n) = exp(b) / n: all senses together have the probability of the first.
            self.bias.copy_((self.bias[first] - n_live.log())[self.words])
        self.counts.zero_()

    @torch.no_grad()
    def most_selected(self) -> Tensor:
        """Return the most selected active sense of each word (the first in a tie), int64
        `[n_words]`.
        """
        counts = torch.where(self.active, self.counts[self.index.clamp(min=0)], -1)  # [n_words, S]
        return self.index.gather(1, counts.argmax(1, keepdim=True)).squeeze(1)

    @torch.no_grad()
    def prune(self, below: float) -> int:
        """Deactivate senses with less than a fraction β = `below` of their word's selections
        (§3.1), and return their number.

        Each word keeps its most selected sense. Words with fewer than 1 / β selections are not
        pruned.
        """
        totals = torch.zeros(self.n_words, dtype=torch.int64, device=self.counts.device)
        totals.index_add_(0, self.words, self.counts * self.live)
        totals = totals[self.words]  # selections of the word of each class
        frequency = self.counts / totals.clamp(min=1)  # ρ in the paper
        pruned = self.live & (frequency < below) & (totals * below >= 1)
        pruned[self.most_selected()] = False
        self.live[pruned] = False
        return int(pruned.sum())


def nearest(compared: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return each state's class with the largest sum of cosines over the tables, int64 `[n]`, or −1
    if it has no class. `compared` contains the results of `SenseTable.compare` for each table.
    """
    classes = compared[0][0]  # the tables have the same classes
    if not classes.shape[1]:
        return classes.new_full((len(classes),), -1)
    total = torch.stack([cosines for _, cosines in compared]).sum(0)
    return classes.gather(1, total.argmax(1, keepdim=True)).squeeze(1)


def principal_axes(states: Tensor, k: int, *, whiten: float = 0.0) -> Tensor:
    """Return the first k principal axes (right singular vectors of the centred matrix) of vectors
    `[n, dim]`, `[dim, k]`.

    Args:
        whiten: exponent p; each axis is divided by σ^p, where σ is its standard deviation. 0 gives
            orthonormal axes.
    """
    centred = states.double() - states.double().mean(0)
    # `eigh` sorts the eigenvalues in ascending order.
    variances, axes = torch.linalg.eigh(centred.t() @ centred / len(states))
    axes, deviations = axes.flip(1)[:, :k], variances.flip(0)[:k].clamp(min=0).sqrt()
    if whiten:
        smallest = 1e-6 * float(deviations[0]) + 1e-30  # do not divide by the deviation 0
        axes = axes / deviations.clamp(min=smallest) ** whiten
    return axes.to(states.dtype)


# -- the file --------------------------------------------------------------------------------------
def save_senses(tables: Sequence[SenseTable], folder: Path, settings: Mapping[str, Any]) -> None:
    """Write `senses.safetensors`, which contains the tensors in `_SAVED` and the number of senses
    of each word for each table, with the settings as JSON in the metadata."""
    parts: dict[str, Tensor] = {}
    for k, table in enumerate(tables):
        for name in _SAVED:
            parts[f"{k}.{name}"] = getattr(table, name).detach().cpu().contiguous()
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
    path = Path(folder) / SENSES_FILE
    if not path.is_file():
        raise InputError(
            f"there is no {SENSES_FILE} in this folder; calque pretrain --senses writes one",
            path=folder,
        )
    tables = []
    with _reading(path, "the senses of a language model"), safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["senses"])
        for k in range(int(about["tables"])):
            parts = {name: file.get_tensor(f"{k}.{name}") for name in (*_SAVED, "senses")}
            n_senses = parts.pop("senses").numpy()
            dim, axes = parts["projection"].shape
            # Restore the random state after the initial vectors are drawn.
            with torch.random.fork_rng(devices=[]):
                table = SenseTable(n_senses, dim, axes=axes, queue=axes)
            table.load_state_dict(parts, strict=False)  # the file does not contain the queue
            tables.append(table)
    return tables


@contextmanager
def _reading(path: Path, content: str) -> Iterator[None]:
    """Raise an InputError if the file is not readable as the expected content."""
    try:
        yield
    except Exception as error:  # libraries can raise any exception for a corrupt file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"the file does not contain {content} ({reason})", path=path) from error


# -- the softmax -----------------------------------------------------------------------------------
SOFTMAX_FILE = "softmax.safetensors"
MAX_LOGITS = 4_000_000  # maximum number of logits in memory if no gradients are computed
# score of an excluded class; with −∞, the gradient would be invalid if all classes were excluded
_EXCLUDED = -1e30


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

    # sorted distinct classes, int64 `[n]`
    classes: np.ndarray
    # number of draws needed for n distinct classes; None if all active classes are used
    tries: int | None


class Targets(NamedTuple):
    """Target classes of each state."""

    # word or selected sense, followed by senses of its translations, int64 `[n, k]`, padded with −1
    classes: Tensor
    # weight of −log p of each class, `[n, k]`; the weights of a state sum to 1 (Eq. 7)
    weights: Tensor


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
        live, n_live = self._live()
        if 2 * count >= len(live):
            return None
        first = np.cumsum(n_live) - n_live  # place of each word's first active class in `live`
        drawn = np.zeros(0, dtype=np.int64)
        while True:
            # Invert the distribution function of p: P(k < x) = log(x + 1) / log(n + 1).
            ranks = np.exp(rng.random(2 * count) * np.log(self._n + 1)).astype(np.int64) - 1
            words = np.clip(ranks, 0, self._n - 1)
            places = first[words]
            if isinstance(self._table, SenseTable):
                places = places + (rng.random(2 * count) * n_live[words]).astype(np.int64)
            drawn = np.concatenate([drawn, live[places]])
            classes, first_draw = np.unique(drawn, return_index=True)
            if len(classes) >= count:
                # Stop at the draw that gave the last of `count` distinct classes.
                last = np.partition(first_draw, count - 1)[count - 1]
                return Negatives(classes[first_draw <= last], int(last) + 1)

    def log_expected(self, classes: np.ndarray, tries: int | None) -> np.ndarray:
        """Return log(1 − (1 − p)^tries), the log-probability that a class is among the negatives,
        float64 `[n]`.
        """
        if tries is None:
            return np.zeros(len(classes))
        words = self._table.words.cpu().numpy()[classes]
        _, n_live = self._live()
        p = np.log1p(1 / (words + 1.0)) / np.log(self._n + 1) / n_live[words]
        # `expm1` and `log1p` remain exact for small p.
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
        if self.negatives is None:
            return [None, None]
        samplers = [self._samplers[side % len(self._samplers)] for side in (0, 1)]
        return [sampler.draw(self.negatives, rng) for sampler in samplers]

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
        drawn = negatives.classes  # [d], sorted
        wanted = targets.classes.cpu().numpy()  # [n, k]

        def on_device(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(states.device)

        # Index the large table only once, so that its gradient is also computed only once.
        classes, place = np.unique(
            np.concatenate([drawn, np.maximum(wanted, 0).ravel()]), return_inverse=True
        )
        rows = on_device(classes)
        weight, bias = table.weight.index_select(0, rows), table.bias.index_select(0, rows)
        # Correct the scores for the sampling (Jean et al. 2015, §3).
        bias = bias - on_device(sampler.log_expected(classes, negatives.tries)).to(bias)
        drawn_rows = on_device(place[: len(drawn)])
        target_rows = on_device(place[len(drawn) :]).view(wanted.shape)

        # Scores of the drawn classes. Exclude all targets of a state from the sum over them,
        # because below, each target is added to its own sum, and targets that were drawn to the
        # sums of the state's other targets.
        nearest_drawn = np.minimum(np.searchsorted(drawn, wanted), len(drawn) - 1)
        was_drawn = on_device(drawn[nearest_drawn] == wanted)  # [n, k]
        drawn_columns = on_device(nearest_drawn)
        scores = F.linear(states, weight[drawn_rows], bias[drawn_rows]).float()  # [n, d]
        state, k = was_drawn.nonzero(as_tuple=True)
        excluded = scores.new_tensor(_EXCLUDED)
        scores = scores.index_put_((state, drawn_columns[state, k]), excluded)
        log_drawn = scores.logsumexp(1)

        target_scores = (states[:, None] * weight[target_rows]).sum(2).float()
        target_scores = target_scores + bias[target_rows].float()  # [n, k]
        # included[n, k, l]: whether target l is in the sum for target k of state n
        itself = torch.eye(wanted.shape[1], dtype=torch.bool, device=states.device)
        included = was_drawn[:, None] | itself
        log_targets = target_scores[:, None].masked_fill(~included, -torch.inf).logsumexp(2)
        log_partition = torch.logaddexp(log_targets, log_drawn[:, None])
        # Eqs. 3 and 4, and Eqs. 5 and 6 for translations; padding has the weight 0 (Eq. 7).
        return (targets.weights.to(target_scores) * (log_partition - target_scores)).sum()

    @torch.inference_mode()
    def negative_log_likelihood(self, states: Tensor, words: Tensor, side: int = 0) -> Tensor:
        """Return −log p of each word, `[n]`; the probability of a word is the sum over its
        senses.
        """
        table = self.table(side)
        live = table.live.nonzero().squeeze(1)
        weight, bias, class_words = table.weight[live], table.bias[live], table.words[live]
        size = max(1, MAX_LOGITS // len(live))
        losses = []
        for block, block_words in zip(states.split(size), words.split(size), strict=True):
            scores = torch.addmm(bias, block, weight.t()).float()
            is_word = class_words == block_words[:, None]
            word_scores = scores.masked_fill(~is_word, -torch.inf)
            losses.append(scores.logsumexp(1) - word_scores.logsumexp(1))
        return torch.cat(losses) if losses else states.new_zeros(0)

    def save(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Write `softmax.safetensors` or, with senses, `senses.safetensors`, which includes the
        sense settings.
        """
        if self.senses:
            save_senses(self.senses, folder, settings)
            return
        parts: dict[str, Tensor] = {}
        for k, table in enumerate(self.tables):
            for name in ("weight", "bias"):
                parts[f"{name}.{k}"] = getattr(table, name).detach().cpu().contiguous()
        save_file(parts, folder / SOFTMAX_FILE)

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
            plain = []
            with _reading(path / SOFTMAX_FILE, "the softmax weights of this model"):
                parts = load_file(path / SOFTMAX_FILE)
                for k in range(len(parts) // 2):  # each table has vectors and biases
                    table = WordTable(words, dim)
                    table.load_state_dict(
                        {"weight": parts[f"weight.{k}"], "bias": parts[f"bias.{k}"]}
                    )
                    plain.append(table)
            return cls(plain)
        saved = open_senses(path)
        shapes = [(table.n_words, table.dim) for table in saved]
        if shapes != [(words, dim)] * tables:
            shown = ", ".join(f"{n_words:,} × {size}" for n_words, size in shapes)
            raise InputError(
                f"the senses belong to another model: got tables of {shown}, expected {tables} of "
                f"{words:,} × {dim}",
                path=path / SENSES_FILE,
            )
        return cls(saved)
