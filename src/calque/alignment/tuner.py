"""Weights into weights: what all methods that train the encoder share."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from calque.alignment.aligned import AlignedText
from calque.alignment.base import Method
from calque.alignment.freezing import freeze_below
from calque.alignment.update import Alignment, GroupVectors, Reference
from calque.distributed import Processes
from calque.encoders.base import require
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_training_precision
from calque.errors import SettingError, check_number
from calque.threads import Threads
from calque.training.loop import Loop, Schedule
from calque.training.passes import shares_at_once
from calque.training.plan import BatchPlan

if TYPE_CHECKING:
    from torch import Tensor

    from calque.encoders.huggingface import HuggingFaceEncoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus


class Tuner(Method):
    """A method that changes the encoder's weights. Subclasses say which loss; `tune` gives back a new encoder.

    Args:
        towards: the language the others move towards.
        layers: hidden layers that the loss reads.
        schedule: how long and how fast.
        batch: sentence pairs of each language in an update.
        special: take the special subwords at both ends for linked words.
        max_words: leave out pairs with a longer side.
        freeze: leave the embeddings and this many layers above them as they are; None trains everything.
        accumulate: cut each process's share of an update in so many parts, one after the other in memory.
        budget: subwords, padding included, in one forward pass.
        window: batches within which pairs are grouped by length.
        precision: of the arithmetic, for the encoder that learns and the frozen one alike: "float32", "medium" or
            "bfloat16", see `calque.encoders.numerics.check_training_precision`.
        reference: whether vectors of the frozen encoder are kept from one pass or computed anew for each update; "auto"
            keeps them up to `reference_bytes`.
    """

    def __init__(
        self,
        *,
        towards: str,
        layers: Sequence[int] | None,
        schedule: Schedule,
        batch: int,
        special: bool,
        max_words: int | None,
        freeze: int | None,
        accumulate: int,
        budget: int,
        window: int,
        precision: TrainingPrecision,
        reference: Literal["auto", "cached", "recomputed"],
    ):
        for name, value in (("batch", batch), ("accumulate", accumulate), ("budget", budget), ("window", window)):
            check_number(name, value, least=1, whole=True)
        if max_words is not None:
            check_number("max_words", max_words, least=1, whole=True)
        if freeze is not None:
            check_number("freeze", freeze, least=0, whole=True)
        self.towards, self.layers, self.schedule, self.batch = towards, layers, schedule, batch
        self.special, self.max_words, self.freeze = special, max_words, freeze
        self.accumulate, self.budget, self.window = accumulate, budget, window
        self.precision: TrainingPrecision = check_training_precision(precision)  # type: ignore[assignment]
        if reference not in ("auto", "cached", "recomputed"):
            raise SettingError(f"reference is auto, cached or recomputed, got {reference!r}")
        self.reference: Literal["auto", "cached", "recomputed"] = reference

    #: names of the loss terms that every process computes over the vectors of all
    terms_over_all: tuple[str, ...] = ()

    @abstractmethod
    def default_rate(self, dim: int) -> float:
        """Learning rate for an encoder of `dim` dimensions, where the user names none."""

    @property
    @abstractmethod
    def needs_reference(self) -> bool:
        """Whether the loss reads vectors of the frozen encoder."""

    @abstractmethod
    def loss(self, groups: list[GroupVectors], processes: Processes) -> dict[str, Tensor]:
        """Terms whose sum is minimised, for one layer; `groups` holds one entry for each corpus.

        The gradient of their sum in a process's *own* vectors must be that of the whole update's loss. Terms over a
        process's own vectors alone are its share of a sum.
        """

    def shared_settings(self, method: str) -> dict[str, Any]:
        """The settings that all methods have; those that cannot change the result (budget) are left out."""
        names = ("towards", "layers", "batch", "special", "max_words", "freeze", "window", "precision")
        return {"method": method, **{name: getattr(self, name) for name in names}}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the result depends on, for the record and the identity of checkpoints."""

    def tune(
        self,
        encoder: HuggingFaceEncoder,
        corpus: ParallelCorpus | Sequence[ParallelCorpus],
        pairs: WordPairs | Sequence[WordPairs],
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
    ) -> HuggingFaceEncoder:
        """Train a copy of `encoder`.

        Args:
            encoder: stays as it is.
            corpus, pairs: parallel text and its word links; several for several languages at once.
            folder: where checkpoints and metrics go; a run that was stopped there is continued, bit by bit the same. The
                last checkpoint stays, so that nothing is lost before the result is saved: delete it afterwards.
            checkpoint_every: updates between checkpoints, 0 for none; one is also written every minute.
            progress: show a bar with the terms of the loss on standard error.

        Raises:
            SettingError: an encoder without weights to train, settings that do not fit together, or a checkpoint of
                another run in `folder`.
        """
        self._check(encoder)
        corpora = [corpus] if not isinstance(corpus, Sequence) else list(corpus)
        links = [pairs] if not isinstance(pairs, Sequence) else list(pairs)
        processes = Processes(self.precision)
        text = AlignedText(
            corpora, links, encoder.subwords, towards=self.towards, special=self.special, max_words=self.max_words
        )
        schedule = self.schedule
        if schedule.learning_rate is None:
            schedule = replace(schedule, learning_rate=self.default_rate(encoder.dim))
        plan = BatchPlan(text.lengths, batch=self.batch, seed=schedule.seed, window=self.window)
        layers = encoder.layer_numbers(self.layers)
        tuned = copy.copy(encoder)
        tuned.model = copy.deepcopy(encoder.model)
        tuned.model.to(device=processes.device).float().train()  # type: ignore[call-arg]
        freeze_below(tuned.model, self.freeze)
        with Threads(shares_at_once(encoder, processes.device)) as threads:
            frozen = None
            if self.needs_reference:
                frozen = Reference.of(self, encoder, text, layers, processes, threads)
            loop = Loop(
                Alignment(self, tuned, text, layers, processes, frozen, threads),
                schedule=schedule,
                processes=processes,
                identity={**self.settings(), "encoder": encoder.fingerprint, "text": text.fingerprint},
                folder=None if folder is None else Path(folder),
                checkpoint_every=checkpoint_every,
                progress=progress,
                products=TRAINING_PRECISIONS[self.precision],
                threads=threads,
            )
            self.history = loop.run(plan)
        self.counts, self.used = text.counts, schedule
        tuned.model.eval().requires_grad_(True)
        return tuned

    align = tune

    def record(self) -> dict[str, Any]:
        return {"settings": self.settings(), "schedule": vars(self.used), "counts": vars(self.counts),
                "updates": len(self.history), "first_loss": self.history[0]["loss"],
                "last_loss": self.history[-1]["loss"]}  # fmt: skip

    def _check(self, encoder: Any) -> None:
        """That the encoder has what training needs, and that something of it would learn."""
        require(encoder, "trained")
        highest = max(encoder.layer_numbers(self.layers))
        if self.freeze is not None and highest <= self.freeze < encoder.n_layers:
            raise SettingError(
                f"freeze={self.freeze}: the loss reads layer {highest} and below, which would all stay as they are; freeze "
                "fewer layers"
            )
