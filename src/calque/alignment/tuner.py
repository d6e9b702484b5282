"""Base class of alignment methods that train the encoder."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from torch import Tensor

from calque.alignment.aligned import AlignedText
from calque.alignment.base import Fitted, Method, Run
from calque.alignment.data import LinkedText
from calque.alignment.update import Alignment, LinkedBatch
from calque.alignment.validation import (
    TOO_FEW,
    Check,
    UnchangedWarning,
    Validation,
    hold_out,
)
from calque.distributed import Processes
from calque.encoders.base import made_of, require
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_precision
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError, check_number
from calque.pairs import WordPairs
from calque.spec import Count, Layer, Share, option, values_of
from calque.text import ParallelCorpus
from calque.training.loop import Loop, Schedule, TrainingSettings, rate_by_width, training_record
from calque.training.plan import BatchPlan
from calque.training.sources import float32_copy, freeze_below

#: ratio of the default learning rate for adapters to the default learning rate for all weights
LORA_RATE = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuner(TrainingSettings, Method):
    """Base class of alignment methods that train the encoder's weights. A subclass defines the
    loss.
    """

    #: whether the boundary tokens ([CLS], [SEP]) of both sentences are linked as if they were words
    special: ClassVar[bool] = False
    #: maximum number of words in either sentence of a pair; if None, there is no limit
    max_words: ClassVar[int | None] = 64

    towards: str = option(..., "language that all other languages are aligned with.")
    layers: Sequence[Layer] | None = option(
        None, "layers in which the loss is computed; default: the encoder's output layer."
    )
    lora: int | None = option(
        None,
        "rank of the LoRA adapters (Hu et al. 2022; requires PEFT) that are trained instead of "
        "the weight matrices. The default learning rate is then 10 times higher, and the result "
        "is a folder with the adapters only. By default, there are no adapters and the weights "
        "are trained.",
    )
    standardize: bool | None = option(
        None,
        "whether to standardise the word vectors before training and in the result; default: only "
        "if one dimension dominates the vectors.",
    )
    centre: bool = option(
        False,
        "whether to shift the mean vector of each language to the mean vector of `towards` after "
        "training.",
    )
    held_out: Share = option(
        0.05,
        "fraction of the sentence pairs of each text that are not trained on. On these pairs, the "
        "trained encoder is compared with the encoder before training, four times during training; "
        "the best weights are returned, or the encoder unchanged if nothing was gained. Small "
        "texts hold out more, up to a fifth, so that there are 64 pairs in total; a text holds out "
        "at most 256. 0 trains on all pairs and returns the weights of the last update.",
    )
    held_out_check: Check = option(
        "both",
        "what must not get worse on the held-out pairs: word retrieval (`words`), or word and "
        "sentence retrieval (`both`). Among the weights that pass, those with the best word "
        "retrieval are returned.",
    )
    accumulate: Count = option(
        1,
        "number of parts into which each process divides its batch, to save memory; the result is "
        "the same.",
        role="run",
    )
    precision: TrainingPrecision = option(
        "float32",
        'precision of the forward passes, "float32" or "bfloat16". Results in "float32" are '
        "reproducible on the same machine.",
    )

    def __post_init__(self):
        super().__post_init__()
        check_number("accumulate", self.accumulate, least=1, whole=True)
        check_number("held_out", self.held_out, least=0, below=1)
        if self.held_out_check not in get_args(Check):
            expected = " or ".join(get_args(Check))
            raise SettingError(f"held_out_check must be {expected}, got {self.held_out_check!r}")
        check_precision(self.precision, TRAINING_PRECISIONS)
        if self.lora is not None:
            from calque.encoders.adapted import library

            check_number("lora", self.lora, least=1, whole=True)
            library()  # raises an error early if PEFT is not installed

    @abstractmethod
    def loss(self, batch: LinkedBatch) -> Tensor | dict[str, Tensor]:
        """Return the loss for one text and layer, or its named terms; training minimises the sum
        over all texts and layers.
        """

    @property
    def needs_reference(self) -> bool:
        """True if the loss also uses vectors computed by the encoder before training."""
        return False

    @property
    def reads_sentences(self) -> bool:
        """True if the loss also uses sentence vectors."""
        return False

    def kinds(self) -> Callable[[ParallelCorpus, WordPairs], np.ndarray] | None:
        """Return a function that assigns equal ids to links that are positives of each other (see
        `AlignedText`), or None.
        """
        return None

    def batch_for(self, sizes: Sequence[int]) -> int:
        """Return the number of sentence pairs from each text in an update.

        Args:
            sizes: number of sentence pairs of each text.
        """
        return self.batch

    def default_rate(self, dim: int) -> float:
        """Return the default learning rate for an encoder with `dim` dimensions."""
        # 2e-3 was best on held-out text for 128 dimensions; 5e-5 is a common value for 768
        # dimensions.
        return rate_by_width(dim, 2)

    def settings(self) -> dict[str, Any]:
        """Return all settings except the schedule; they are saved with the result and identify
        checkpoints.
        """
        names = ["towards", "layers", "batch", "special", "max_words", "freeze"]
        names += ["lora"] if self.lora is not None else []
        recorded = values_of(self, "identity", "description")
        names += [name for name in recorded if name not in Tuner.__dataclass_fields__]
        names += ["precision"]
        names += ["standardize"] if self.standardize is not None else []
        names += ["held_out", "held_out_check"] if self.held_out else []
        return {
            "method": type(self).__name__.lower(),
            **{name: getattr(self, name) for name in names},
        }

    def _identity(self) -> dict[str, Any]:
        """Return the settings that determine the result, in which a checkpoint must agree."""
        descriptions = values_of(self, "description")
        return {k: value for k, value in self.settings().items() if k not in descriptions}

    def fit(self, encoder: TrainableEncoder, data: LinkedText, run: Run = Run()) -> Fitted:
        """Train a copy of `encoder`, which is not changed. The result shares the frozen weights of
        this encoder.

        Args:
            encoder: encoder with trainable weights.
            data: parallel texts and their word links.
            run: how to run the training.

        Raises:
            SettingError: the encoder has no trainable weights, settings contradict each other, or
                `run.folder` contains a checkpoint of a different run.
        """
        from calque.encoders.standard import standardized

        self._check(encoder)
        before = encoder
        processes = Processes(self.precision)
        # The loss is computed on standardised vectors, and the result computes them, too.
        encoder = standardized(encoder, data.sides, self.layers, self.standardize)
        if self.lora is None:
            encoder = encoder.merged()  # all weights are trained, also those of old adapters
        tuned = self._copy(encoder, processes.device)
        tuned.model.train()
        training, held_out = hold_out(data, self.held_out, max_words=self.max_words)
        objective = self.objective(tuned, encoder, training, processes)
        schedule = self._schedule_for(encoder)
        # An update has `batch` pairs of every text, so that each language counts equally.
        batch = self.batch_for(objective.text.sizes)
        plan = BatchPlan(objective.text.sizes, batch=batch, seed=schedule.seed)
        if held_out:
            objective.validation = Validation(
                before,
                tuned,
                held_out,
                layer=max(encoder.layer_numbers(self.layers)),
                total=schedule.updates(plan.steps_per_epoch),
                processes=processes,
                check=self.held_out_check,
            )
            # Held-out pairs have no links in the training data, but are no unusable pairs.
            objective.text.counts.without_links -= objective.validation.n_pairs
        loop = Loop(
            objective,
            schedule=schedule,
            processes=processes,
            folder=None if run.folder is None else Path(run.folder),
            identity={
                **self._identity(),
                "batch": batch,
                "encoder": encoder.fingerprint,
                "text": objective.text.fingerprint,
            },
            checkpoint_every=run.checkpoint_every,
            progress=run.progress,
        )
        history = loop.run(plan)
        tuned.model.eval()
        if self.lora is None:
            tuned.model.requires_grad_(True)  # frozen layers can be trained later
        settings = {**self.settings(), "batch": batch}
        record = training_record(settings, schedule, vars(objective.text.counts), history)
        result = tuned
        if objective.validation is not None:
            result = self._selected(objective.validation, before, tuned, record)
        elif self.held_out:
            record["held_out"] = {"sentence_pairs": 0, "summary": TOO_FEW}
        result.made = made_of(
            encoder, record["settings"]["method"], self.towards, data.corpora, data.pairs, record
        )
        if not self.centre:
            return Fitted(result, record, history)
        return self._centred(result, data, record, history, run)

    def _selected(
        self,
        validation: Validation,
        before: TrainableEncoder,
        tuned: TrainableEncoder,
        record: dict[str, Any],
    ) -> TrainableEncoder:
        """Return the encoder with the selected weights, or a copy of the encoder before training,
        and add the comparison to the record.
        """
        summary = validation.summary(record["settings"]["method"])
        record["held_out"] = {**validation.record(), "summary": summary}
        if validation.has_gained:
            validation.restore()
            return tuned
        warnings.warn(UnchangedWarning(summary), stacklevel=4)
        return copy.copy(before)  # the caller's encoder gets no record

    def _centred(
        self,
        encoder: TrainableEncoder,
        data: LinkedText,
        record: dict[str, Any],
        history: Sequence[dict[str, float]],
        run: Run,
    ) -> Fitted:
        """Return the result with the mean of each language shifted to the mean of `towards`."""
        from calque.alignment.text_maps import centred

        record["settings"] = record["settings"] | {"centre": True}
        aligned = centred(encoder, data.corpora, towards=self.towards, progress=run.progress)
        aligned.made = (encoder.made or {}) | record
        return Fitted(aligned, record, history)

    def tune(self, encoder: TrainableEncoder, data: Any, pairs: Any = None, **run: Any) -> Any:
        """Return the trained encoder; the same as `align`, under the name for methods that
        train.
        """
        return self.align(encoder, data, pairs, **run)

    def _schedule_for(self, encoder: TrainableEncoder) -> Schedule:
        """Return the schedule with the learning rate for this encoder."""
        schedule = self.schedule
        if schedule.learning_rate is not None:
            return schedule
        rate = self.default_rate(encoder.dim)
        if self.lora is not None:
            rate *= LORA_RATE
        return replace(schedule, learning_rate=rate)

    def objective(
        self,
        tuned: TrainableEncoder,
        encoder: TrainableEncoder,
        data: LinkedText,
        processes: Processes,
    ) -> Alignment:
        """Return the objective for training the encoder `tuned`; `encoder` is the encoder before
        training.
        """
        text = AlignedText(
            data.corpora,
            data.pairs,
            encoder,
            towards=self.towards,
            special=self.special,
            max_words=self.max_words,
            kinds=self.kinds(),
            sentences=self.reads_sentences,
        )
        return Alignment(
            tuned,
            text,
            encoder.layer_numbers(self.layers),
            processes,
            encoder if self.needs_reference else None,
            loss=self.loss,
            budget=self.budget,
            accumulate=self.accumulate,
        )

    def _copy(self, encoder: TrainableEncoder, device: torch.device) -> TrainableEncoder:
        """Return a copy of the encoder for training; the frozen weights of the copy do not require
        gradients.
        """
        if self.lora is None:
            tuned = float32_copy(encoder, device, freeze=self.freeze)
            freeze_below(tuned, self.freeze)
            return tuned
        from calque.encoders.adapted import with_adapters

        # Layers above the highest layer of the loss get no gradient, so they get no adapters.
        layers = range(self.freeze or 0, max(encoder.layer_numbers(self.layers)))
        return with_adapters(encoder, self.lora, layers=layers, device=device, seed=self.seed)

    def _check(self, encoder: Any) -> None:
        """Check that the encoder can be trained and that `freeze` leaves layers that affect the
        loss.
        """
        require(encoder, "trained")
        highest = max(encoder.layer_numbers(self.layers))
        if self.freeze is not None and highest <= self.freeze < encoder.n_layers:
            raise SettingError(
                f"freeze={self.freeze} would freeze all layers that affect the loss (the highest "
                f"is layer {highest}); freeze fewer layers"
            )
