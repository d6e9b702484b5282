"""Weights into weights: what all methods that train the encoder share."""

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

#: how much faster adapters learn by default than weights, which are many more
LORA_RATE = 10


@dataclass(kw_only=True, eq=False)
class Tuner(TrainingSettings, Method):
    """A method that changes the encoder's weights. A subclass says which loss; `tune` gives back a new encoder.

    Args:
        towards: the language the others move towards.
        layers: hidden layers that the loss reads; None: the encoder's own layer.
        standardize: standardise the word vectors first, and so those of the result, see `standardized`; None where one dimension
            dominates them.
        centre: `align` takes off what is left between the means of the languages, see `centred`, and gives
            the trained encoder with a shift of each language; `tune` does not.
        lora: train adapters of this rank alone (LoRA, Hu et al. 2022; needs PEFT), by default at `LORA_RATE` times the rate, and
            give an `AdaptedEncoder`, whose folder has them alone; of all matrices of a layer. None trains the weights themselves.
        epochs, learning_rate, seed, batch, freeze, accumulate, precision: see `TrainingSettings`.
    """

    #: whether the special subwords at both ends of a sentence are linked words
    special: ClassVar[bool] = True
    #: words of a side beyond which a sentence pair is left out; None for no limit
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
            library()  # that it is missing is told before anything is read

    def default_rate(self, dim: int) -> float:
        """Learning rate for an encoder of `dim` dimensions, where the user names none."""
        # 2e-3 was best on held-out text for 128 dimensions (docs/results.md); 5e-5 is the usual choice for 768.
        return rate_by_width(dim, 2)

    @property
    def needs_reference(self) -> bool:
        """Whether the loss reads vectors of the encoder as it was before training."""
        return False

    @abstractmethod
    def loss(self, batch: LinkedBatch) -> dict[str, Tensor]:
        """Return the terms whose sum is minimised, of one text and layer; those of several are added."""

    @property
    def reads_sentences(self) -> bool:
        """Whether the loss reads the vectors of whole sentences, too."""
        return False

    def kinds(self) -> Callable[[ParallelCorpus, WordPairs], np.ndarray] | None:
        """Return what numbers the linked pairs that are positives of each other, see `AlignedText`; None: no two are."""
        return None

    def settings(self) -> dict[str, Any]:
        """What the result depends on, for the record and the identity of checkpoints: the settings that all tuners have,
        less those of the schedule, and all that the method adds."""
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
            encoder: stays as it is; the result shares the weights that `freeze` leaves as they are with it.
            corpus, pairs: parallel text and its word links; several for several languages at once.
            folder: where checkpoints and metrics go; a run that was stopped there is continued, bit by bit the same. The
                last checkpoint stays, so that nothing is lost before the result is saved: delete it afterwards.
            checkpoint_every: updates between checkpoints, 0 for none; one is also written every minute.
            progress: show a bar with the terms of the loss on standard error.
            kept: adapters are to be saved without the encoder that they are for, which must then be one that can be loaded
                again; not if they are to be merged.

        Raises:
            SettingError: an encoder without weights to train, settings that do not fit together, or a checkpoint of
                another run in `folder`.
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
        """The encoder that learns; of its weights, only those need a gradient that are trained.

        Args:
            kept: adapters are to be saved, without the encoder that they are for.
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
        """Train a copy of `encoder`, see `tune`, and centre its languages if `centre` says so."""
        tuned = self.tune(encoder, corpus, pairs, folder=folder, checkpoint_every=checkpoint_every, progress=progress)
        if not self.centre:
            return tuned
        from calque.alignment.text_maps import centred

        corpora = [corpus] if isinstance(corpus, ParallelCorpus) else corpus
        aligned = centred(tuned, corpora, towards=self.towards, progress=progress)
        aligned.made = tuned.made
        return aligned

    # -- what a run is made of, for those who train something else along with it ------------------------------------
    def text(
        self, encoder: TrainableEncoder, corpora: Sequence[ParallelCorpus], pairs: Sequence[WordPairs]
    ) -> AlignedText:
        """Parallel texts with their links, as the encoder reads them."""
        return AlignedText(
            corpora, pairs, encoder, towards=self.towards, special=self.special, max_words=self.max_words,
            kinds=self.kinds(), sentences=self.reads_sentences,
        )  # fmt: skip

    def objective(
        self, tuned: TrainableEncoder, encoder: TrainableEncoder, text: AlignedText, processes: Processes
    ) -> Alignment:
        """Return the loss of an update of `tuned`, whose model is trained; `encoder` is the same before training."""
        return Alignment(
            tuned, text, encoder.layer_numbers(self.layers), processes, encoder if self.needs_reference else None,
            loss=self.loss, budget=self.budget, accumulate=self.accumulate,
        )  # fmt: skip

    def _check(self, encoder: Any) -> None:
        """That the encoder has what training needs, and that something of it would learn."""
        require(encoder, "trained")
        highest = max(encoder.layer_numbers(self.layers))
        if self.freeze is not None and highest <= self.freeze < encoder.n_layers:
            raise SettingError(
                f"freeze={self.freeze}: the loss reads layer {highest} and below, which would all stay as they are; freeze "
                "fewer layers"
            )
