"""Training on answers: a head on word vectors, over a frozen encoder or together with it."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from calque.distributed import Processes
from calque.encoders.batches import collate, token_batches
from calque.encoders.numerics import matmul_precision
from calque.errors import SettingError, check_number
from calque.offsets import ranges
from calque.threads import Threads
from calque.training.loop import Loop, Schedule
from calque.training.passes import Pass
from calque.training.plan import BatchPlan
from calque.training.rates import rate_by_width

if TYPE_CHECKING:
    from calque.encoders.huggingface import HuggingFaceEncoder
    from calque.encoders.split import SplitSentences
    from calque.vectors import Embeddings


@dataclass(frozen=True)
class Vectors:
    """The words of some texts, one after the other.

    Attributes:
        rows: `[W, dim]`.
        lengths: int64 `[S]`, words of each text.
        numbers: int64 `[S]`, which texts these are.
    """

    rows: Tensor
    lengths: Tensor
    numbers: np.ndarray


class Source(ABC):
    """Where the vectors of a text's words come from.

    Attributes:
        dim: dimensions of a vector.
        lengths: int64 `[n]`, words of each text.
        model: what is trained along with the head, if anything.
        threads: what an update is quickest with, see `Loop`.
    """

    dim: int
    lengths: np.ndarray
    model: nn.Module | None = None
    threads: Threads | None = None

    @abstractmethod
    def take(self, numbers: np.ndarray) -> Vectors:
        """The vectors of some texts, in an order of the source's own."""

    @abstractmethod
    def backward(self, gradient: Tensor) -> None:
        """Take the gradient in the rows of the last `take`."""


class FrozenVectors(Source):
    """Vectors that were computed once."""

    def __init__(self, embeddings: Embeddings, device: torch.device | str = "cpu"):
        self.dim = embeddings.dim
        self.lengths = np.diff(embeddings.offsets)
        self._offsets = embeddings.offsets
        self._data = torch.from_numpy(np.ascontiguousarray(embeddings.data, dtype=np.float32)).to(device)

    def take(self, numbers: np.ndarray) -> Vectors:
        lengths = self.lengths[numbers]
        rows = torch.from_numpy(ranges(self._offsets[numbers], lengths)).to(self._data.device)
        return Vectors(self._data.index_select(0, rows), torch.from_numpy(lengths), numbers)

    def backward(self, gradient: Tensor) -> None:
        pass


class Some(Source):
    """Some texts of a source, by new numbers; `take` says the old ones."""

    def __init__(self, whole: Source, kept: np.ndarray):
        self._whole, self._kept = whole, kept
        self.dim, self.lengths, self.model = whole.dim, whole.lengths[kept], whole.model
        self.threads = whole.threads

    def take(self, numbers: np.ndarray) -> Vectors:
        return self._whole.take(self._kept[numbers])

    def backward(self, gradient: Tensor) -> None:
        self._whole.backward(gradient)


class Renumbered(Source):
    """A source of a part of some texts; `take` says which of the whole they are."""

    def __init__(self, part: Source, numbers: np.ndarray):
        self._part, self._numbers = part, numbers
        self.dim, self.lengths = part.dim, part.lengths

    def take(self, numbers: np.ndarray) -> Vectors:
        found = self._part.take(numbers)
        return Vectors(found.rows, found.lengths, self._numbers[found.numbers])

    def backward(self, gradient: Tensor) -> None:
        self._part.backward(gradient)


class TrainedVectors(Source):
    """Vectors computed anew for each update, by an encoder that learns too.

    Args:
        encoder: is changed in place.
        split: the texts as subwords, and where their words are.
        threads: for the shares of an update, as many as `shares_at_once` says.
        processes: of this run.
    """

    def __init__(
        self,
        encoder: HuggingFaceEncoder,
        split: SplitSentences,
        threads: Threads,
        processes: Processes,
    ):
        self.dim, self.model = encoder.dim, encoder.model  # type: ignore[assignment]
        self.lengths = np.diff(split.word_offsets)
        self.threads = threads
        self._encoder, self._split, self._processes = encoder, split, processes

    def take(self, numbers: np.ndarray) -> Vectors:
        # Each share gets every n-th of the texts in order of length: about the same work for all.
        order = numbers[np.argsort(-self._split.lengths[numbers], kind="stable")]
        assert self.threads is not None
        count = min(self.threads.count, len(order))
        shares = [order[k::count] for k in range(count)]
        device = self._processes.device
        self._pass = Pass(
            self._encoder,
            [[collate(self._split, share).to(device)] for share in shares],
            [self._encoder.layer],
            threads=self.threads,
            context=self._processes.autocast,
        )
        taken = np.concatenate(shares)
        return Vectors(self._pass.vectors[self._encoder.layer], torch.from_numpy(self.lengths[taken]), taken)

    def backward(self, gradient: Tensor) -> None:
        self._pass.backward({self._encoder.layer: gradient})


def tuned_rate(dim: int) -> float:
    """Learning rate of a head together with an encoder of `dim` dimensions, where nobody says: 5e-4 did well at 128."""
    return rate_by_width(dim, 9 / 7)


class Supervised:
    """Trains a head on word vectors, and keeps its state after the best epoch.

    Args:
        epochs: at most.
        batch: texts in an update.
        learning_rate: the highest.
        patience: epochs without a better score after which training ends; None goes on to the last.
        warmup, decay, clip, seed: see `Schedule`.
        per_epoch: texts in an epoch, each batch from one language drawn at random (Schuster et al. 2019, §5: 32,000, so
            that large treebanks do not drown small ones); None for every text once, languages mixed.
    """

    def __init__(
        self,
        *,
        epochs: float,
        batch: int = 32,
        learning_rate: float = 1e-3,
        patience: int | None = None,
        warmup: float = 0.0,
        decay: Any = "constant",
        clip: float | None = 5.0,
        seed: int = 0,
        per_epoch: int | None = None,
    ):
        for name, value in (("per_epoch", per_epoch), ("patience", patience), ("batch", batch)):
            if value is not None:
                check_number(name, value, least=1, whole=True)
        self.per_epoch = per_epoch
        self.schedule = Schedule(epochs, learning_rate, warmup, decay, (0.9, 0.999), 1e-8, clip, seed)
        self.batch, self.patience = batch, patience
        self.best, self.best_epoch = float("nan"), 0

    def fit(
        self,
        head: nn.Module,
        source: Source,
        losses: Callable[[Vectors], Tensor],
        *,
        processes: Processes,
        groups: np.ndarray | None = None,
        select: Callable[[], float] | None = None,
        progress: bool = False,
        title: str = "train",
    ) -> list[dict[str, float]]:
        """Minimise the mean loss over the texts.

        Args:
            head: trained, together with the source's model if it has one.
            source: vectors of the training texts.
            losses: `[S]`, of the texts whose vectors it is given.
            processes: of this run.
            groups: int `[n]`, the language of each text, for `per_epoch`; None if they are all of one.
            select: score of the current state, the higher the better; without it the last state stays.
            progress, title: show a bar on standard error.

        Returns:
            the metrics of every update; `best` and `best_epoch` say what `select` chose.
        """
        if self.per_epoch is None:
            plan: Any = BatchPlan([source.lengths], batch=self.batch, seed=self.schedule.seed, window=1)
        else:
            groups = np.zeros(len(source.lengths), dtype=np.int64) if groups is None else groups
            plan = LanguagePlan(groups, batch=self.batch, per_epoch=self.per_epoch, seed=self.schedule.seed)
        module = head if source.model is None else nn.ModuleList([head, source.model])
        loop = Loop(
            module, schedule=self.schedule, processes=processes, identity={}, checkpoint_every=0, progress=progress,
            threads=source.threads, title=title,
        )  # fmt: skip

        def backward(update: list[np.ndarray]) -> dict[str, float]:
            (numbers,) = update
            mine = processes.share(numbers)
            total = torch.zeros((), device=processes.device)
            if len(mine):
                given = source.take(mine)
                rows = given.rows.requires_grad_(source.model is not None)
                loss = losses(Vectors(rows, given.lengths, given.numbers)).sum() / len(numbers)
                loss.backward()
                if rows.grad is not None:
                    source.backward(rows.grad)
                total = loss.detach()
            return {"loss": float(processes.sum_numbers(total))}

        keep = _Best(module, select, self.patience)
        module.train()
        history = loop.run(plan.epoch, plan.steps_per_epoch, backward, keep if select is not None else None)
        keep.restore()
        self.best, self.best_epoch = keep.score, keep.epoch
        module.eval()
        return history


class LanguagePlan:
    """Batches of a single language each, drawn with equal chances, whatever the amounts of text; each language's texts are
    gone through in random order, and again.

    Args:
        groups: int `[n]`, the language of each text.
        batch: texts in an update.
        per_epoch: texts in an epoch.
        seed: of the drawing.
    """

    def __init__(self, groups: np.ndarray, *, batch: int, per_epoch: int, seed: int):
        self._texts = [np.flatnonzero(groups == group) for group in np.unique(groups)]
        if not self._texts:
            raise SettingError("nothing to train on: there is no text")
        self._batch, self._seed = batch, seed
        self.steps_per_epoch = -(-per_epoch // batch)

    def epoch(self, number: int) -> list[list[np.ndarray]]:
        """As of `BatchPlan`: the updates of one epoch, a pure function of its number."""
        rng = np.random.default_rng([self._seed, number])
        drawn = rng.integers(len(self._texts), size=self.steps_per_epoch)
        needed = np.bincount(drawn, minlength=len(self._texts)) * self._batch
        orders = [
            np.concatenate([rng.permutation(texts) for _ in range(-(-int(n) // len(texts)))] or [texts[:0]])
            for texts, n in zip(self._texts, needed, strict=True)
        ]
        place, updates = [0] * len(orders), []
        for group in drawn:
            updates.append([orders[group][place[group] : place[group] + self._batch]])
            place[group] += self._batch
        return updates


class _Best:
    """The state with the highest score so far."""

    def __init__(self, module: nn.Module, select: Callable[[], float] | None, patience: int | None):
        self._module, self._select, self._patience = module, select, patience
        self._state: dict[str, Tensor] | None = None
        self.score, self.epoch, self._now = float("-inf"), 0, 0

    def __call__(self) -> bool:
        assert self._select is not None
        self._now += 1
        self._module.eval()
        score = self._select()
        self._module.train()
        if score > self.score or self._state is None:
            self.score, self.epoch = score, self._now
            self._state = {name: value.detach().clone() for name, value in self._module.state_dict().items()}
        return self._patience is not None and self._now - self.epoch >= self._patience

    def restore(self) -> None:
        if self._state is not None:
            self._module.load_state_dict(self._state)


def trainable_copy(encoder: HuggingFaceEncoder, device: torch.device) -> HuggingFaceEncoder:
    """The same encoder with weights of its own in float32."""
    found = copy.copy(encoder)
    found.model = copy.deepcopy(encoder.model)
    found.model.to(device=device).float()  # type: ignore[call-arg]
    return found


@torch.no_grad()
def vectors_of(encoder: HuggingFaceEncoder, split: SplitSentences, *, budget: int = 2048) -> Embeddings:
    """Vectors of texts that are split already, such as those whose only word is the first special subword."""
    from calque.vectors import Embeddings

    device = encoder.device
    found = np.zeros((split.n_words, encoder.dim), dtype=np.float32)
    counts = np.diff(split.word_offsets)
    for numbers in token_batches(split.lengths, budget):
        with matmul_precision("highest"):
            rows = encoder.forward(collate(split, numbers).to(device), [encoder.layer])[encoder.layer]
        found[ranges(split.word_offsets[numbers], counts[numbers])] = rows.float().cpu().numpy()
    return Embeddings(found, split.word_offsets)
