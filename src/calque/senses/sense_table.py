"""Several output vectors for each word, which of them is meant (Multi-sense, §3.1, Algorithms 1 and 2), and their file; and the
softmax over words or senses, all of them or a sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from calque.errors import InputError, SettingError

SENSES_FILE = "senses.safetensors"
_KEPT = ("weight", "bias", "centres", "projection", "mean", "counts", "live")
_MOST = 64  # senses of a word


class SenseTable(nn.Module):
    """The sense vectors of a vocabulary, and the centres of the clusters by which a sense is told.

    Senses of all words stand in one row, those of a word side by side; the number of a sense there is its class. A word
    begins with its first sense alone (the warm-up); `open` gives it the others, `prune` takes away what is hardly used.

    What is learnt by gradient are the vectors w and their biases. The centres, the projection and the queue are buffers,
    which only `follow`, `remember`, `keep_recent`, `open` and `prune` change, so that a checkpoint holds them.

    Args:
        senses: int `[n_words]`, how many senses each word has, at least 1.
        axes: d′, dimensions of the projection in which states and centres are compared; at most d.
        queue: Q, states that the projection is made from.
        spread: σ, standard deviation of a centre's components at the beginning.
        recent: states to keep of each word that may have several senses, the last ones; 0 keeps none.
        kinds: kinds of states that are kept of each occurrence.

    Attributes:
        weight, bias: w `[n_classes, dim]` and `[n_classes]`.
        centres: c `[n_classes, dim]`.
        projection: P `[dim, axes]`.
        mean: `[dim]`, what is taken from states and centres before they are projected: zero as published, or the queue's
            mean, see `project`.
        queue: `[queue, dim]`, the last states, in the order of a ring; `seen` says how many there have been.
        recent: `[n_several, recent, kinds, dim]`, last states of the words in `several`, in the order of rings; int64
            `n_recent` `[n_several]` says how many there have been.
        several: int64 `[n_several]`, words that may have several senses.
        counts: int64 `[n_classes]`, selections since the senses were opened.
        live: bool `[n_classes]`, the senses in use.
        index: int64 `[n_words, S]`, the classes of each word; −1 fills up the rows.

    Raises:
        SettingError: a number that cannot be.
    """

    weight: nn.Parameter
    bias: nn.Parameter
    centres: Tensor
    projection: Tensor
    mean: Tensor
    queue: Tensor
    seen: Tensor
    recent: Tensor
    n_recent: Tensor
    several: Tensor
    counts: Tensor
    live: Tensor
    index: Tensor
    words: Tensor

    def __init__(
        self, senses: Sequence[int] | np.ndarray, dim: int, *, axes: int = 16, queue: int = 20_000, spread: float = 0.01,
        recent: int = 0, kinds: int = 1,
    ):  # fmt: skip
        super().__init__()
        of_words = torch.as_tensor(np.asarray(senses), dtype=torch.int64)
        fewest, most = (int(of_words.min()), int(of_words.max())) if len(of_words) else (0, 0)
        if fewest < 1 or most > _MOST:
            raise SettingError(f"a word has from 1 to {_MOST} senses, got {fewest if fewest < 1 else most}")
        if not 1 <= axes <= dim:
            raise SettingError(f"states of {dim} dimensions cannot be projected onto {axes} axes: expected 1 to {dim}")
        if queue < axes:
            raise SettingError(f"a queue of {queue} states cannot give {axes} axes: expected at least {axes}")
        n, several = int(of_words.sum()), (of_words > 1).nonzero().squeeze(1)
        slots, first = torch.arange(int(of_words.max())), of_words.cumsum(0) - of_words
        self.weight = nn.Parameter(torch.randn(n, dim) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(n))
        buffers = {
            "centres": torch.randn(n, dim) * spread, "projection": torch.randn(dim, axes), "mean": torch.zeros(dim),
            "queue": torch.zeros(queue, dim), "seen": torch.zeros((), dtype=torch.int64),
            "recent": torch.zeros(len(several), recent, kinds, dim),
            "n_recent": torch.zeros(len(several), dtype=torch.int64),
            "counts": torch.zeros(n, dtype=torch.int64), "live": torch.zeros(n, dtype=torch.bool).index_fill(0, first, True),
        }  # fmt: skip
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)
        # What follows from `senses` alone is in no checkpoint.
        index = torch.where(slots < of_words[:, None], first[:, None] + slots, -1)
        words = torch.arange(len(of_words)).repeat_interleave(of_words)
        for name, buffer in (("several", several), ("index", index), ("words", words)):
            self.register_buffer(name, buffer, persistent=False)

    @property
    def dim(self) -> int:
        return self.weight.shape[1]

    def __len__(self) -> int:
        """Classes, in use or not."""
        return len(self.weight)

    @property
    def n_words(self) -> int:
        return len(self.index)

    # -- which sense is meant --------------------------------------------------------------------------------------------
    @torch.no_grad()
    def compared(self, states: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """All senses of some words for each state, such as of the translations of one (§3.2), and how near they are: the cosine
        after the projection (Algorithm 1, line 7).

        Args:
            states: h `[n, dim]`.
            words: int64 `[n, t]`; −1 for none.

        Returns:
            classes, int64 `[n, t · S]`, −1 for none; cosines, `[n, t · S]`, −∞ where there is none or it is not in use.
        """
        different, place = torch.unique(words.clamp(min=0), return_inverse=True)
        classes = self.index[different]  # [u, S]
        usable = (classes >= 0) & self.live[classes.clamp(min=0)]
        with torch.autocast(states.device.type, enabled=False):  # near centres are not to be told apart by rounding
            centres = self.projected(self.centres[classes.clamp(min=0)])
            similarity = torch.einsum("na,ntsa->nts", self.projected(states.detach().float()), centres[place])
        allowed = usable[place] & (words >= 0)[:, :, None]
        similarity = similarity.masked_fill(~allowed, -torch.inf)
        return torch.where(allowed, classes[place], -1).flatten(1), similarity.flatten(1)

    def projected(self, vectors: Tensor) -> Tensor:
        """States or centres `[..., dim]` on the axes, at unit length."""
        return nn.functional.normalize((vectors - self.mean) @ self.projection, dim=-1, eps=1e-30)

    # -- what selections change --------------------------------------------------------------------------------------------
    @torch.no_grad()
    def follow(self, states: Tensor, classes: Tensor, rate: float) -> None:
        """Move each selected centre towards the mean of the states that selected it; no other centre moves.

            c ← (1 − α) c + α · mean(h)    (Algorithm 1, line 8, for all states of an update at once)

        Args:
            states: h `[n, dim]`.
            classes: int64 `[n]`, selected by them.
            rate: α.
        """
        chosen, place, counts = torch.unique(classes, return_inverse=True, return_counts=True)
        sums = torch.zeros(len(chosen), self.dim, dtype=torch.float64, device=states.device)
        means = sums.index_add_(0, place, states.double()).div_(counts[:, None]).to(self.centres.dtype)
        self.centres[chosen] = (1 - rate) * self.centres[chosen] + rate * means
        self.counts[chosen] += counts

    @torch.no_grad()
    def remember(self, states: Tensor) -> None:
        """Put states `[n, dim]` into the queue, in their order, in place of the oldest (Algorithm 2, lines 6 to 9)."""
        size = len(self.queue)
        kept = states[-size:]
        first = int(self.seen) + len(states) - len(kept)
        places = (torch.arange(len(kept), device=states.device) + first) % size
        self.queue[places] = kept.to(self.queue.dtype)
        self.seen += len(states)

    @torch.no_grad()
    def keep_recent(self, states: Tensor, words: Tensor) -> None:
        """Keep the last states of each word that may have several senses, in place of its oldest.

        Args:
            states: `[n, kinds, dim]`, in the order of the text.
            words: int64 `[n]`; states of other words are passed over.
        """
        size = self.recent.shape[1]
        place = torch.searchsorted(self.several, words).clamp(max=max(0, len(self.several) - 1))
        known = (self.several[place] == words).nonzero().squeeze(1) if size and len(self.several) else words[:0]
        place, order = place[known].sort(stable=True)
        uses = torch.bincount(place, minlength=len(self.several))
        rank = torch.arange(len(place), device=place.device) - (uses.cumsum(0) - uses)[place]
        last = rank >= uses[place] - size
        slots = (self.n_recent[place] + rank)[last] % max(1, size)
        self.recent[place[last], slots] = states[known[order[last]]].to(self.recent.dtype)
        self.n_recent += uses

    @torch.no_grad()
    def project(self, *, centred: bool = False, whiten: float = 0.0) -> None:
        """Make the projection anew from the queue (Algorithm 2, line 11), once there are more states than axes.

        Args:
            centred: compare what differs from the mean of the queue from now on.
            whiten: see `principal_axes`.
        """
        states, axes = self.queue[: int(self.seen)], self.projection.shape[1]
        if len(states) > axes:
            self.projection.copy_(principal_axes(states, axes, whiten=whiten))
            if centred:
                self.mean.copy_(states.mean(0, dtype=torch.float64))

    # -- which senses are in use ---------------------------------------------------------------------------------------------
    @torch.no_grad()
    def open(self, *, start: str = "copied", live: Tensor | None = None) -> None:
        """End the warm-up: every word has all its senses from now on.

        Args:
            start: "copied": the others begin with the vector of the first, whose probability they share, and with centres
                at random; "kept": with random vectors, as SaBERT's; "fresh": as "kept", and the first sense of a word that
                has others is not used any more, as SaELMo's.
            live: bool `[n_classes]`, the senses to be used instead of all.
        """
        several = self.index[:, 1] >= 0 if self.index.shape[1] > 1 else self.index[:, 0] < 0
        first = self.index[:, 0]
        self.live.copy_(torch.ones_like(self.live) if live is None else live)
        if start == "fresh":
            self.live[first[several]] = False
        if start == "copied":
            number = torch.zeros_like(first).index_add_(0, self.words, self.live.to(first.dtype))
            self.weight.copy_(self.weight[first[self.words]])
            self.bias.copy_((self.bias[first] - number.log())[self.words])
        self.counts.zero_()

    @torch.no_grad()
    def most_selected(self) -> Tensor:
        """The sense of each word in use that is selected most, int64 `[n_words]`; of equal ones the first."""
        used = (self.index >= 0) & self.live[self.index.clamp(min=0)]
        of_word = torch.where(used, self.counts[self.index.clamp(min=0)], -1)
        return self.index.gather(1, of_word.argmax(1, keepdim=True)).squeeze(1)

    @torch.no_grad()
    def prune(self, below: float) -> int:
        """Take senses out of use whose share of their word's selections is too small (§3.1); each word keeps the one most
        selected. Words selected fewer than 1 / `below` times cannot tell yet, and stay as they are.

        Args:
            below: β.

        Returns:
            how many senses went.
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
    """The nearest sense of each row; of several tables of the same senses, the one with the largest sum of cosines.

    Args:
        compared: what `SenseTable.compared` gives, of one table or of several.

    Returns:
        classes, int64 `[n]`; of equally near ones the first, −1 where there is none.
    """
    classes = compared[0][0]
    if not classes.shape[1]:
        return classes.new_full((len(classes),), -1)
    similarity = torch.stack([cosines for _, cosines in compared]).sum(0)
    return classes.gather(1, similarity.argmax(1, keepdim=True)).squeeze(1)


def principal_axes(states: Tensor, k: int, *, whiten: float = 0.0) -> Tensor:
    """The first k principal axes of some vectors: right singular vectors of the centred ones, as columns.

    Args:
        states: `[n, dim]`.
        k: at most dim.
        whiten: p; each axis is divided by σ^p, σ the standard deviation of the vectors along it: 0 leaves the axes
            orthonormal, 1 makes all variances equal.

    Returns:
        `[dim, k]`, the axis of the largest variance first.
    """
    centred = states.double() - states.double().mean(0)
    squares, axes = torch.linalg.eigh(centred.t() @ centred / len(states))
    axes, deviations = axes.flip(1)[:, :k], squares.flip(0)[:k].clamp(min=0).sqrt()
    if whiten:
        axes = axes / deviations.clamp(min=1e-6 * float(deviations[0]) + 1e-30) ** whiten
    return axes.to(states.dtype)


# -- the file --------------------------------------------------------------------------------------------------------------
def save_senses(tables: Sequence[SenseTable], folder: Path, settings: Mapping[str, Any]) -> None:
    """Write `senses.safetensors`: of each table, by its number, the parts in `_KEPT` and how many senses each word has; and
    how the senses were found, as JSON. The queue of states is of use to the training only, and is left out."""
    parts: dict[str, Tensor] = {}
    for k, table in enumerate(tables):
        parts |= {f"{k}.{name}": getattr(table, name).detach().cpu().contiguous() for name in _KEPT}
        parts[f"{k}.senses"] = (table.index >= 0).sum(1).to(torch.int32).cpu()
    # One entry: safetensors writes several in an order of their own, another one each time.
    about = json.dumps({"tables": len(tables), "settings": dict(settings)}, sort_keys=True)
    save_file(parts, folder / SENSES_FILE, metadata={"senses": about})


def has_senses(folder: str | Path) -> bool:
    return (Path(folder) / SENSES_FILE).is_file()


def open_senses(folder: str | Path) -> list[SenseTable]:
    """Read the tables that `save_senses` wrote: one; or two, of the model that reads forwards and of the one that reads
    backwards. Their queues are empty.

    Raises:
        InputError: there are no senses in this folder, or the file is damaged.
    """
    path = Path(folder) / SENSES_FILE
    if not path.is_file():
        raise InputError(f"no {SENSES_FILE} in this folder; calque pretrain --senses writes one", path=folder)
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["senses"])
            tables = [
                _table({name: file.get_tensor(f"{k}.{name}") for name in (*_KEPT, "senses")})
                for k in range(int(about["tables"]))
            ]
        if not tables:
            raise ValueError("no tables")
    except Exception as error:  # whatever a damaged file provokes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"not the senses of a language model ({reason})", path=path) from error
    return tables


def _table(parts: dict[str, Tensor]) -> SenseTable:
    senses, dim = parts.pop("senses"), parts["weight"].shape[1]
    axes = parts["projection"].shape[1]
    with torch.random.fork_rng(devices=[]):  # a table begins at random
        table = SenseTable(senses.numpy(), dim, axes=axes, queue=axes)
    table.load_state_dict(parts, strict=False)  # all but the queue, which the file does not hold
    return table


SOFTMAX_FILE = "softmax.safetensors"
MOST_LOGITS = 4_000_000  # numbers held at once where nothing is learnt
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
    """Classes drawn for the answers of an update to be told from."""

    classes: np.ndarray  # int64 `[n]`, sorted, each once
    tries: int | None  # draws until there were n different ones; None where they are all classes there are


class Targets(NamedTuple):
    """What each state is to predict."""

    classes: Tensor  # int64 `[n, k]`, the word or its selected sense, then senses of its translations; −1 for none
    weights: Tensor  # `[n, k]`, of −log p of each; they sum to 1 (Eq. 7)


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
        for block, answers in zip(*(x.split(max(1, MOST_LOGITS // len(live))) for x in (states, words)), strict=True):
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
        saved = open_senses(path)
        if len(saved) != tables or any((table.n_words, table.dim) != (words, dim) for table in saved):
            shapes = ", ".join(f"{table.n_words:,} × {table.dim}" for table in saved)
            fact = f"senses of another model: tables of {shapes}, expected {tables} of {words:,} × {dim}"
            raise InputError(fact, path=path / SENSES_FILE)
        return cls(saved)


def _word_tables(path: Path, words: int, dim: int) -> list[WordTable]:
    try:
        parts, tables = load_file(path), []
        for k in range(len(parts) // 2):
            tables.append(WordTable(words, dim))
            tables[k].load_state_dict({name: parts[f"{name}.{k}"] for name in ("weight", "bias")})
    except Exception as error:  # whatever a damaged file provokes
        raise InputError(f"not the softmax of this model ({str(error).strip().splitlines()[0]})", path=path) from error
    return tables
