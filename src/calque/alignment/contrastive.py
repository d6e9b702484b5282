"""Alignment by contrast: a word is to be nearer to its translation than to all other words of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch.nn import functional

from calque.alignment.equal import senses_of_pairs
from calque.alignment.losses import Same, info_nce, neighbours_lost
from calque.alignment.temperature import LARGEST_SCALE, SCHEDULES, Schedule, TemperedAlignment
from calque.alignment.tuner import Tuner
from calque.alignment.update import Alignment, GroupVectors
from calque.distributed import Processes
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError, check_number
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.training.rates import rate_by_width


@dataclass(kw_only=True, eq=False)
class Contrastive(Tuner):
    """InfoNCE over the linked words of a batch, in both directions.

    With unit vectors x of the source words, y of the words they are linked to and temperature τ it minimises, for each
    corpus and layer, the mean over pairs k and both directions of

        −log exp(x_k·y_k/τ) / (Σ_j exp(x_k·y_j/τ) + [strong] Σ_{j≠k} exp(x_k·x_j/τ))

    (van den Oord et al. 2018, "Representation learning with contrastive predictive coding"; both languages' words as
    negatives after Wang et al. 2021, "Improving pre-trained multilingual models with vocabulary expansion", and Hu et
    al. 2021, "Explicit alignment objectives for multilingual bidirectional encoders").

    A batch often has several pairs of the *same* two words, which are negatives of each other there: the formula pushes
    equal words of a language apart. `same` says what else they can be, and `keep` holds on to what the language `towards`
    had to say before.

    Args:
        towards: the language that the regularisers keep in place.
        temperature: τ, or where it begins.
        temperature_schedule: "fixed"; "linear" or "cosine" from `temperature` to `temperature_end`, over the whole training; or
            "learned" along with the encoder, 1/τ by its logarithm and at most 100 (Radford et al. 2021, CLIP). `keep` has
            `temperature` throughout.
        temperature_end: where a schedule ends.
        strong: both languages' words are negatives, not the other language's only.
        same: what pairs of equal words (in lower case) are to each other: "negative", as published; "ignored", left out of the
            denominator; "one", positives by the log of the sum of their exponentials; "each", positives by the mean over
            them of −log (Khosla et al. 2020, "Supervised contrastive learning", Eq. 2).
        same_share: of the loss with `same`, between 0 and 1; the rest is the loss where they are negatives.
        same_senses: only pairs in one sense are equal: up to so many senses of a pair of words are found in the encoder's own
            vectors before training, see `senses_of_pairs`; 1 looks for none.
        weight: of the mean squared distance ‖f − f0‖² of the words in language `towards` to the frozen encoder's; the mean is
            over words and dimensions.
        stay_layers: layers in which they are held so; None: those that the loss reads.
        stay_scales: what `weight` is multiplied by in each of these layers; None: 1.
        stay_on: "words", or "subwords": all of these sentences, special ones too, whatever the pooling.
        keep: weight of the mean divergence of a word's neighbours in language `towards` from those in the frozen encoder,
            see `neighbours_lost`.
        sentences: weight of the same loss over the sentence pairs of each corpus, a sentence being the mean of its words: each
            is to be nearer to its translation than to all others of the batch (translation ranking, Feng et al. 2022,
            "Language-agnostic BERT sentence embedding", Eqs. 1–2, without their margin).
        layers: layers that the loss reads; None: the encoder's own layer.
        epochs, learning_rate, warmup, decay, betas, epsilon, clip, seed: see `Schedule`.
        batch, special, max_words, freeze, subword_dropout, balance_origins, step_back, accumulate, budget, window, precision,
            reference: see `Tuner`.
    """

    temperature: float = 0.05
    temperature_schedule: Schedule = "fixed"
    temperature_end: float | None = None
    strong: bool = False
    same: Same = "each"
    same_share: float = 0.5
    same_senses: int = 1
    weight: float = 0.0
    stay_layers: Sequence[int] | None = None
    stay_scales: Sequence[float] | None = None
    stay_on: Literal["words", "subwords"] = "words"
    keep: float = 0.2
    sentences: float = 0.0
    epochs: float = 2.0
    decay: Literal["constant", "linear", "cosine"] = "linear"
    clip: float | None = 1.0
    batch: int = 32
    special: bool = False

    def __post_init__(self):
        check_number("temperature", self.temperature, above=0)
        check_number("weight", self.weight, least=0)
        check_number("keep", self.keep, least=0)
        check_number("sentences", self.sentences, least=0)
        if self.same not in (allowed := ("negative", "ignored", "one", "each")):
            raise SettingError(f"same is {', '.join(allowed[:-1])} or {allowed[-1]}, got {self.same!r}")
        check_number("same_share", self.same_share, least=0, most=1)
        check_number("same_senses", self.same_senses, least=1, most=20, whole=True)
        self._check_temperature()
        self._check_stay()
        super().__post_init__()

    def _check_temperature(self) -> None:
        if self.temperature_schedule not in SCHEDULES:
            raise SettingError(
                f"temperature_schedule is {', '.join(SCHEDULES[:-1])} or {SCHEDULES[-1]}, got {self.temperature_schedule!r}"
            )
        if self.temperature_schedule in ("linear", "cosine"):
            check_number("temperature_end", self.temperature_end, above=0)
        elif self.temperature_end is not None:
            raise SettingError(
                f"temperature_end has no effect on a {self.temperature_schedule} temperature: leave it out, or set "
                "temperature_schedule to linear or cosine"
            )
        if self.temperature_schedule == "learned" and self.temperature < 1 / LARGEST_SCALE:
            raise SettingError(
                f"a temperature that is learned is at least {1 / LARGEST_SCALE:g}, got {self.temperature:g}"
            )

    def _check_stay(self) -> None:
        if self.stay_on not in ("words", "subwords"):
            raise SettingError(f"stay_on is words or subwords, got {self.stay_on!r}")
        changed = [name for name in ("stay_layers", "stay_scales") if getattr(self, name) is not None]
        changed += ["stay_on"] if self.stay_on != "words" else []
        if changed and not self.weight:
            raise SettingError(
                f"{changed[0]} says how vectors stay where they were: give the term a weight above 0, too"
            )
        if self.stay_layers is not None and not len(self.stay_layers):
            raise SettingError("stay_layers names no layer: name one, or leave it out")
        if self.stay_on == "subwords" and self.subword_dropout:
            raise SettingError("stay_on subwords with subword_dropout: its subwords are not those that the frozen encoder reads; "
                               "take stay_on words")  # fmt: skip
        for scale in self.stay_scales or ():
            check_number("each of stay_scales", scale, above=0)
        if self.stay_scales is not None and len(self.stay_scales) != len(self.stay_layers or ()):
            raise SettingError(
                f"{len(self.stay_scales)} stay_scales for {len(self.stay_layers or ())} stay_layers: give one for each"
            )

    terms_over_all = ("contrast", "keep", "sentences")

    def default_rate(self, dim: int) -> float:
        # 2e-3 was best on held-out text for 128 dimensions (docs/results.md); 5e-5 is the usual choice for 768.
        return rate_by_width(dim, 2)

    @property
    def needs_reference(self) -> bool:
        return self.weight > 0 or self.keep > 0

    @property
    def reads_sentences(self) -> bool:
        return self.sentences > 0

    @property
    def reads_subwords(self) -> bool:
        return self.stay_on == "subwords"

    def held(self, encoder: TrainableEncoder) -> dict[int, float] | None:
        if self.stay_layers is None:
            return None
        layers = encoder.layer_numbers(self.stay_layers)
        if len(set(layers)) < len(layers):
            raise SettingError(
                f"stay_layers names a layer twice: {list(self.stay_layers)} of layers 0 to {encoder.n_layers}"
            )
        return dict(zip(layers, map(float, self.stay_scales or [1.0] * len(layers)), strict=True))

    def kinds(self, encoder: TrainableEncoder) -> Callable[[ParallelCorpus, WordPairs], np.ndarray] | None:
        if self.same == "negative" or not self.same_share:
            return None
        return lambda corpus, pairs: senses_of_pairs(encoder, corpus, pairs, most=self.same_senses, seed=self.seed)

    def alignment(self, updates: int) -> Callable[..., Alignment]:
        if self.temperature_schedule == "fixed":
            return Alignment
        ends = {"first": self.temperature, "last": self.temperature_end or self.temperature}
        return partial(TemperedAlignment, schedule=self.temperature_schedule, updates=updates, **ends)

    def record(self) -> dict[str, Any]:
        found = super().record()
        if self.temperature_schedule != "fixed":
            found["temperature"] = {"first": self.history[0]["temperature"], "last": self.history[-1]["temperature"]}
        return found

    def loss(
        self, groups: list[GroupVectors], processes: Processes, *, temperature: float | Tensor | None = None
    ) -> dict[str, Tensor]:
        """As for every tuner; `temperature` is that of this update, where it changes."""
        terms: dict[str, Tensor] = {}
        temperature = self.temperature if temperature is None else temperature
        for group in groups:
            for name, value in self._of_group(group, processes, temperature).items():
                terms[name] = terms[name] + value if name in terms else value
        return terms

    def _of_group(self, group: GroupVectors, processes: Processes, temperature: float | Tensor) -> dict[str, Tensor]:
        terms = {"contrast": self._contrast(group, processes, temperature)} if group.aligned else {}
        if group.reference is not None and self.weight and group.stay:
            now, before, n = group.regularised, group.reference, group.n_regularised
            if group.subwords is not None and group.reference_subwords is not None:
                now, before, n = group.subwords, group.reference_subwords, group.n_subwords
            # Summed here and divided by everyone's number of elements: a mean over all processes.
            distance = (now - before).square().sum()
            terms["stay"] = self.weight * group.stay * distance / max(1, n * now.shape[1])
        if group.reference is not None and self.keep and group.aligned:
            now, before = (
                processes.gather_rows(rows, group.words_of_process) for rows in (group.regularised, group.reference)
            )
            terms["keep"] = self.keep * neighbours_lost(now, before, temperature=self.temperature)
        if group.sentences is not None and group.aligned:
            x, y = (
                functional.normalize(processes.gather_rows(rows, group.sentences_of_process), dim=1)
                for rows in group.sentences
            )
            terms["sentences"] = self.sentences * info_nce(x, y, temperature=temperature, strong=False)
        return terms

    def _contrast(self, group: GroupVectors, processes: Processes, temperature: float | Tensor) -> Tensor:
        x, y = (
            functional.normalize(processes.gather_rows(rows, group.pairs_of_process), dim=1)
            for rows in (group.source, group.target)
        )
        kinds = None
        if group.kinds is not None:
            kinds = processes.gather_rows(group.kinds, group.pairs_of_process).squeeze(1)
        shares: dict[Same, float] = {"negative": 1.0}
        if self.same != "negative":
            shares = {"negative": 1 - self.same_share, self.same: self.same_share}
        return info_nce(x, y, temperature=temperature, strong=self.strong, kinds=kinds, same=shares)
