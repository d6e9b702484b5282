"""Base class of methods that train the encoder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from calque.alignment.aligned import AlignedText
from calque.alignment.base import Method
from calque.alignment.update import Alignment, LinkedBatch
from calque.distributed import Processes
from calque.encoders.base import made_of, require
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError, check_number
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.training.loop import Loop, TrainingSettings, rate_by_width
from calque.training.plan import BatchPlan
from calque.training.sources import float32_copy, freeze_below

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

#: ratio of the default learning rate of adapters to that of all weights
LORA_RATE = 10


@dataclass(kw_only=True, eq=False)
class Tuner(TrainingSettings, Method):
    """A method that trains the encoder's weights. A subclass defines the loss, and `tune` returns a new encoder.

    Args:
        towards: language that the others are aligned with.
        layers: layers of the loss; default: the encoder's layer.
        standardize: standardise the word vectors before training, and those of the result, see `standardized`; default: if one
            dimension dominates them.
        centre: shift the language means of the trained encoder in `align` (not in `tune`), see `centred`.
        lora: rank of adapters in all matrices (LoRA, Hu et al. 2022; needs PEFT), which are trained in the place of the
            weights, by default at `LORA_RATE` times the learning rate; the result is an `AdaptedEncoder`. None trains the
            weights.
        epochs, learning_rate, seed, batch, freeze, accumulate, precision: see `TrainingSettings`.
    """

    #: whether the special tokens at both ends of a sentence are linked words
    special: ClassVar[bool] = True
    #: maximum number of words of a side of a sentence pair; None for no limit
    max_words: ClassVar[int | None] = 64

    towards: str
    layers: Sequence[int] | None = None
    standardize: bool | None = None
    centre: bool = False
    lora: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.lora is not None:
            from calque.encoders.adapted import library

            check_number("lora", self.lora, least=1, whole=True)
            library()  # fails early if PEFT is missing

    def default_rate(self, dim: int) -> float:
        """Return the default learning rate for an encoder of `dim` dimensions."""
        # 2e-3 was best on held-out text at 128 dimensions (docs/results.md); 5e-5 is usual at 768.
        return rate_by_width(dim, 2)

    @property
    def needs_reference(self) -> bool:
        """Whether the loss reads vectors of the encoder before training."""
        return False

    @abstractmethod
    def loss(self, batch: LinkedBatch) -> dict[str, Tensor]:
        """Return the terms of the loss for one text and layer; the sum over all is minimised."""

    @property
    def reads_sentences(self) -> bool:
        """Whether the loss also reads sentence vectors."""
        return False

    def kinds(self) -> Callable[[ParallelCorpus, WordPairs], np.ndarray] | None:
        """Return the function that numbers linked pairs which are positives of each other, see `AlignedText`; None if there
        are none."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the result, except those of the schedule, for the record and the identity of
        checkpoints."""
        names = ["towards", "layers", "batch", "special", "max_words", "freeze", "precision"]
        names += [] if self.standardize is None else ["standardize"]
        names += ["centre"] if self.centre else []
        names += ["lora"] if self.lora is not None else []
        names += [field.name for field in fields(self) if field.name not in Tuner.__dataclass_fields__]
        return {"method": type(self).__name__.lower(), **{name: getattr(self, name) for name in names}}

    def tune(
        self,
        encoder: TrainableEncoder,
        corpus: ParallelCorpus | Sequence[ParallelCorpus],
        pairs: WordPairs | Sequence[WordPairs],
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
        kept: bool = True,
    ) -> TrainableEncoder:
        """Train a copy of `encoder`.

        Args:
            encoder: encoder, which is not changed; the result shares its frozen weights.
            corpus, pairs: parallel text and its word links; several for several languages at once.
            folder: folder for checkpoints and metrics; an interrupted run resumes from it with bitwise equal results. The last
                checkpoint is kept; delete it after the result is saved.
            checkpoint_every: number of updates between checkpoints, 0 for none; one is also written every minute.
            progress: show a bar with the terms of the loss on standard error.
            kept: whether adapters will be saved without their encoder, which must then be loadable from its place.

        Raises:
            SettingError: the encoder has no weights to train, settings contradict each other, or `folder` has a checkpoint of
                another run.
        """
        self._check(encoder)
        corpora = [corpus] if not isinstance(corpus, Sequence) else list(corpus)
        pairs_of = [pairs] if not isinstance(pairs, Sequence) else list(pairs)
        processes = Processes(self.precision)
        from calque.encoders.standard import sides_of, standardized

        encoder = standardized(encoder, sides_of(corpora), self.layers, self.standardize)
        if self.lora is None:
            encoder = encoder.merged()
        text = self.text(encoder, corpora, pairs_of)
        schedule = self.schedule
        if schedule.learning_rate is None:
            rate = self.default_rate(encoder.dim) * (1 if self.lora is None else LORA_RATE)
            schedule = replace(schedule, learning_rate=rate)
        plan = BatchPlan(text.sizes, batch=self.batch, seed=schedule.seed)
        tuned = self._copy(encoder, processes.device, kept=kept)
        tuned.model.train()
        loop = Loop(
            self.objective(tuned, encoder, text, processes),
            schedule=schedule,
            processes=processes,
            identity={**self.settings(), "encoder": encoder.fingerprint, "text": text.fingerprint},
            folder=None if folder is None else Path(folder),
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
        self.history = loop.run(plan)
        self.counts, self.used = vars(text.counts), schedule
        tuned.model.eval()
        if self.lora is None:
            tuned.model.requires_grad_(True)
        about = self.record()
        tuned.made = made_of(encoder, about["settings"]["method"], self.towards, corpora, pairs_of, about)
        return tuned

    def _copy(self, encoder: TrainableEncoder, device: torch.device, *, kept: bool = True) -> TrainableEncoder:
        """Return a copy of the encoder for training, whose frozen weights need no gradient.

        Args:
            kept: whether adapters will be saved without their encoder.
        """
        if self.lora is None:
            tuned = float32_copy(encoder, device, freeze=self.freeze)
            freeze_below(tuned.model, self.freeze)
            return tuned
        from calque.encoders.adapted import with_adapters

        layers = range(self.freeze or 0, max(encoder.layer_numbers(self.layers)))
        return with_adapters(encoder, self.lora, layers=layers, device=device, seed=self.seed, kept=kept)

    def align(
        self,
        encoder: Any,
        corpus: ParallelCorpus | Sequence[ParallelCorpus],
        pairs: WordPairs | Sequence[WordPairs],
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
    ) -> Encoder:
        """Train a copy of `encoder`, see `tune`, and shift its language means if `centre` is true."""
        tuned = self.tune(encoder, corpus, pairs, folder=folder, checkpoint_every=checkpoint_every, progress=progress)
        if not self.centre:
            return tuned
        from calque.alignment.text_maps import centred

        corpora = [corpus] if isinstance(corpus, ParallelCorpus) else corpus
        aligned = centred(tuned, corpora, towards=self.towards, progress=progress)
        aligned.made = tuned.made
        return aligned

    # -- parts of a training -------------------------------------
    def text(
        self, encoder: TrainableEncoder, corpora: Sequence[ParallelCorpus], pairs: Sequence[WordPairs]
    ) -> AlignedText:
        """Return parallel texts with their links, split for the encoder."""
        return AlignedText(
            corpora, pairs, encoder, towards=self.towards, special=self.special, max_words=self.max_words,
            kinds=self.kinds(), sentences=self.reads_sentences,
        )  # fmt: skip

    def objective(
        self, tuned: TrainableEncoder, encoder: TrainableEncoder, text: AlignedText, processes: Processes
    ) -> Alignment:
        """Return the objective of training `tuned`; `encoder` is the encoder before training."""
        return Alignment(
            tuned, text, encoder.layer_numbers(self.layers), processes, encoder if self.needs_reference else None,
            loss=self.loss, budget=self.budget, accumulate=self.accumulate,
        )  # fmt: skip

    def _check(self, encoder: Any) -> None:
        """Check that the encoder can be trained, and that some layer of the loss is not frozen."""
        require(encoder, "trained")
        highest = max(encoder.layer_numbers(self.layers))
        if self.freeze is not None and highest <= self.freeze < encoder.n_layers:
            raise SettingError(
                f"freeze={self.freeze}: the loss reads layer {highest} and below, which would all stay as they are; freeze "
                "fewer layers"
            )
