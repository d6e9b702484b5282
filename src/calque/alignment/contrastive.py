"""Alignment by contrast: a word is to be nearer to its translation than to all other words of the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor
from torch.nn import functional

from calque.alignment.equal import senses_of_pairs
from calque.alignment.losses import Same, info_nce, neighbours_lost
from calque.alignment.tuner import Tuner
from calque.alignment.update import GroupVectors
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
        temperature: τ.
        strong: both languages' words are negatives, not the other language's only.
        same: what pairs of equal words (in lower case) are to each other: "negative", as published; "ignored", left out of the
            denominator; "one", positives by the log of the sum of their exponentials; "each", positives by the mean over
            them of −log (Khosla et al. 2020, "Supervised contrastive learning", Eq. 2).
        same_share: of the loss with `same`, between 0 and 1; the rest is the loss where they are negatives.
        same_senses: only pairs in one sense are equal: up to so many senses of a pair of words are found in the encoder's own
            vectors before training, see `senses_of_pairs`; 1 looks for none.
        weight: of the mean squared distance ‖f − f0‖² of the words in language `towards` to the frozen encoder's.
        keep: weight of the mean divergence of a word's neighbours in language `towards` from those in the frozen encoder,
            see `neighbours_lost`.
        layers: layers that the loss reads; None: the encoder's own layer.
        epochs, learning_rate, warmup, decay, betas, epsilon, clip, seed: see `Schedule`.
        batch, special, max_words, freeze, step_back, accumulate, budget, window, precision, reference: see `Tuner`.
    """

    temperature: float = 0.05
    strong: bool = False
    same: Same = "each"
    same_share: float = 0.5
    same_senses: int = 1
    weight: float = 0.0
    keep: float = 0.2
    epochs: float = 2.0
    decay: Literal["constant", "linear", "cosine"] = "linear"
    clip: float | None = 1.0
    batch: int = 32
    special: bool = False

    def __post_init__(self):
        check_number("temperature", self.temperature, above=0)
        check_number("weight", self.weight, least=0)
        check_number("keep", self.keep, least=0)
        if self.same not in (allowed := ("negative", "ignored", "one", "each")):
            raise SettingError(f"same is {', '.join(allowed[:-1])} or {allowed[-1]}, got {self.same!r}")
        check_number("same_share", self.same_share, least=0, most=1)
        check_number("same_senses", self.same_senses, least=1, most=20, whole=True)
        super().__post_init__()

    terms_over_all = ("contrast", "keep")

    def default_rate(self, dim: int) -> float:
        # 2e-3 was best on held-out text for 128 dimensions (docs/results.md); 5e-5 is the usual choice for 768.
        return rate_by_width(dim, 2)

    @property
    def needs_reference(self) -> bool:
        return self.weight > 0 or self.keep > 0

    def kinds(self, encoder: TrainableEncoder) -> Callable[[ParallelCorpus, WordPairs], np.ndarray] | None:
        if self.same == "negative" or not self.same_share:
            return None
        return lambda corpus, pairs: senses_of_pairs(encoder, corpus, pairs, most=self.same_senses, seed=self.seed)

    def loss(self, groups: list[GroupVectors], processes: Processes) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        for group in groups:
            for name, value in self._of_group(group, processes).items():
                terms[name] = terms[name] + value if name in terms else value
        return terms

    def _of_group(self, group: GroupVectors, processes: Processes) -> dict[str, Tensor]:
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
        terms = {"contrast": info_nce(x, y, temperature=self.temperature, strong=self.strong, kinds=kinds, same=shares)}
        if group.reference is not None and self.weight:
            # Summed here and divided by everyone's number of elements: a mean over all processes.
            distance = (group.regularised - group.reference).square().sum()
            terms["stay"] = self.weight * distance / max(1, group.n_regularised * x.shape[1])
        if group.reference is not None and self.keep:
            now, before = (
                processes.gather_rows(rows, group.words_of_process) for rows in (group.regularised, group.reference)
            )
            terms["keep"] = self.keep * neighbours_lost(now, before, temperature=self.temperature)
        return terms
