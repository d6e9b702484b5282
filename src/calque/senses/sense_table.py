"""Several output vectors for each word, which of them is meant (Multi-sense, §3.1, Algorithms 1 and 2), and their file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

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
        queued: int64 `[queue]`, the words of these states.
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
    queued: Tensor
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
        n = int(of_words.sum())
        self.spread = spread
        self.weight = nn.Parameter(torch.randn(n, dim) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(n))
        self.register_buffer("centres", torch.randn(n, dim) * spread)
        self.register_buffer("projection", torch.randn(dim, axes))
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("queue", torch.zeros(queue, dim))
        self.register_buffer("queued", torch.full((queue,), -1))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        several = (of_words > 1).nonzero().squeeze(1)
        self.register_buffer("recent", torch.zeros(len(several), recent, kinds, dim))
        self.register_buffer("n_recent", torch.zeros(len(several), dtype=torch.int64))
        self.register_buffer("several", several, persistent=False)
        self.register_buffer("counts", torch.zeros(n, dtype=torch.int64))
        slots = torch.arange(int(of_words.max()))
        first = of_words.cumsum(0) - of_words
        index = torch.where(slots < of_words[:, None], first[:, None] + slots, -1)
        live = torch.zeros(n, dtype=torch.bool)
        live[first] = True
        self.register_buffer("live", live)
        # What follows from `senses` alone is in no checkpoint.
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("words", torch.arange(len(of_words)).repeat_interleave(of_words), persistent=False)

    @property
    def dim(self) -> int:
        return self.weight.shape[1]

    def __len__(self) -> int:
        """Classes, in use or not."""
        return len(self.weight)

    @property
    def n_words(self) -> int:
        return len(self.index)

    @torch.no_grad()
    def begin_with(self, weight: Tensor, bias: Tensor) -> None:
        """Let the first sense of each word begin with a vector `[n_words, dim]` and bias `[n_words]`."""
        self.weight[self.index[:, 0]] = weight.to(self.weight)
        self.bias[self.index[:, 0]] = bias.to(self.bias)

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
    def remember(self, states: Tensor, words: Tensor) -> None:
        """Put states `[n, dim]` of words `[n]` into the queue, in their order, in place of the oldest (Algorithm 2, lines 6
        to 9)."""
        size, seen = len(self.queue), int(self.seen)
        kept = states[-size:]
        first = seen + len(states) - len(kept)
        places = (torch.arange(len(kept), device=states.device) + first) % size
        self.queue[places] = kept.to(self.queue.dtype)
        self.queued[places] = words[-size:]
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
class SavedSenses(NamedTuple):
    """What the file holds.

    Attributes:
        tables: one; or two, of the model that reads forwards and of that which reads backwards. Their queues are empty.
        settings: how the senses were found, and whatever else was said when they were saved.
    """

    tables: list[SenseTable]
    settings: dict[str, Any]


def save_senses(tables: Sequence[SenseTable], folder: Path, settings: Mapping[str, Any]) -> None:
    """Write `senses.safetensors`: of each table, by its number, the parts in `_KEPT` and how many senses each word has.

    The queue of states is left out: it is of use to nobody but the training.

    Args:
        settings: for `SavedSenses`; whatever JSON takes.
    """
    parts: dict[str, Tensor] = {}
    for k, table in enumerate(tables):
        parts |= {f"{k}.{name}": getattr(table, name).detach().cpu().contiguous() for name in _KEPT}
        parts[f"{k}.senses"] = (table.index >= 0).sum(1).to(torch.int32).cpu()
    # One entry: safetensors writes several in an order of their own, another one each time.
    about = json.dumps({"tables": len(tables), "settings": dict(settings)}, sort_keys=True)
    save_file(parts, folder / SENSES_FILE, metadata={"senses": about})


def has_senses(folder: str | Path) -> bool:
    return (Path(folder) / SENSES_FILE).is_file()


def open_senses(folder: str | Path) -> SavedSenses:
    """Read what `save_senses` wrote.

    Raises:
        InputError: there are no senses in this folder, or the file is damaged.
    """
    path = Path(folder) / SENSES_FILE
    if not path.is_file():
        raise InputError(f"no {SENSES_FILE} in this folder; calque pretrain --senses writes one", path=folder)
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["senses"])
            settings = about["settings"]
            tables = [
                _table({name: file.get_tensor(f"{k}.{name}") for name in (*_KEPT, "senses")})
                for k in range(int(about["tables"]))
            ]
        if not tables or not isinstance(settings, dict):
            raise ValueError("no tables, or no settings")
    except Exception as error:  # whatever a damaged file provokes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"not the senses of a language model ({reason})", path=path) from error
    return SavedSenses(tables, settings)


def _table(parts: dict[str, Tensor]) -> SenseTable:
    senses, dim = parts.pop("senses"), parts["weight"].shape[1]
    axes = parts["projection"].shape[1]
    with torch.random.fork_rng(devices=[]):  # a table begins at random
        table = SenseTable(senses.numpy(), dim, axes=axes, queue=axes)
    table.load_state_dict(parts, strict=False)  # all but the queue, which the file does not hold
    return table
