"""Alignment by contrast: a word is to be nearer to its translation than to all other words of the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from calque.alignment.equal import senses_of_pairs
from calque.alignment.tuner import Tuner
from calque.alignment.update import GroupVectors
from calque.distributed import Processes
from calque.encoders.trainable import TrainableEncoder
from calque.errors import check_number
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

    Args:
        towards: the language that the regulariser keeps in place.
        temperature: τ.
        strong: both languages' words are negatives, not the other language's only.
        same_senses: 0: every other pair of the batch is a negative, as published. Otherwise pairs of equal words in one sense
            are positives of each other, and the mean over them of −log is minimised (Khosla et al. 2020, "Supervised
            contrastive learning", Eq. 2), while equal words in different senses stay negatives: up to so many senses of a
            pair of words are found in the encoder's own vectors before training, see `senses_of_pairs`; with 1 all equal
            pairs are positives.
        weight: of the mean squared distance ‖f − f0‖² of the words in language `towards` to the frozen encoder's.
        layers: layers that the loss reads; None: the encoder's own layer.
        epochs, learning_rate, warmup, decay, betas, epsilon, clip, seed: see `Schedule`.
        batch, special, max_words, freeze, accumulate, budget, window, precision, reference: see `Tuner`.
    """

    temperature: float = 0.05
    strong: bool = False
    same_senses: int = 0
    weight: float = 0.0
    epochs: float = 2.0
    decay: Literal["constant", "linear", "cosine"] = "linear"
    clip: float | None = 1.0
    batch: int = 32
    special: bool = False

    def __post_init__(self):
        check_number("temperature", self.temperature, above=0)
        check_number("weight", self.weight, least=0)
        check_number("same_senses", self.same_senses, least=0, most=20, whole=True)
        super().__post_init__()

    terms_over_all = ("contrast",)

    def default_rate(self, dim: int) -> float:
        # 2e-3 was best on held-out text for 128 dimensions (docs/results.md); 5e-5 is the usual choice for 768.
        return rate_by_width(dim, 2)

    @property
    def needs_reference(self) -> bool:
        return self.weight > 0

    def kinds(self, encoder: TrainableEncoder) -> Callable[[ParallelCorpus, WordPairs], np.ndarray] | None:
        if not self.same_senses:
            return None
        return lambda corpus, pairs: senses_of_pairs(encoder, corpus, pairs, most=self.same_senses, seed=self.seed)

    def loss(self, groups: list[GroupVectors], processes: Processes) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        for group in groups:
            x = functional.normalize(processes.gather_rows(group.source, group.pairs_of_process), dim=1)
            y = functional.normalize(processes.gather_rows(group.target, group.pairs_of_process), dim=1)
            kinds = None
            if group.kinds is not None:
                kinds = processes.gather_rows(group.kinds, group.pairs_of_process).squeeze(1)
            contrast = info_nce(x, y, temperature=self.temperature, strong=self.strong, kinds=kinds)
            terms["contrast"] = terms["contrast"] + contrast if "contrast" in terms else contrast
            if group.reference is not None:
                # Summed here and divided by everyone's number of elements: a mean over all processes.
                distance = (group.regularised - group.reference).square().sum()
                stay = self.weight * distance / max(1, group.n_regularised * x.shape[1])
                terms["stay"] = terms["stay"] + stay if "stay" in terms else stay
        return terms


def info_nce(x: Tensor, y: Tensor, *, temperature: float, strong: bool, kinds: Tensor | None = None) -> Tensor:
    """Mean over both directions of the cross entropy of each row's partner among all candidates.

    Args:
        x, y: unit rows `[n, dim]`; row k of one translates row k of the other. Without any the loss is 0.
        temperature: what similarities are divided by.
        strong: the other rows of the anchor's own side are candidates too.
        kinds: int64 `[n]`; rows of one kind, but −1, are partners of each other, and the mean over them is taken.
    """
    if not len(x):
        return (x.sum() + y.sum()) * 0.0
    across = x @ y.T / temperature
    partners = torch.eye(len(x), dtype=torch.bool, device=x.device)
    truth = torch.arange(len(x), device=x.device)
    if kinds is not None:
        partners |= (kinds[:, None] == kinds) & (kinds >= 0)
        truth = partners / partners.sum(1, keepdim=True)
    if not strong:
        return 0.5 * (functional.cross_entropy(across, truth) + functional.cross_entropy(across.T, truth))
    left = (x @ x.T / temperature).masked_fill(partners, -torch.inf)
    right = (y @ y.T / temperature).masked_fill(partners, -torch.inf)
    forward = torch.logaddexp(across.logsumexp(1), left.logsumexp(1))
    backward = torch.logaddexp(across.logsumexp(0), right.logsumexp(1))
    own = across.diagonal() if kinds is None else (across * truth).sum(1)
    return 0.5 * (forward + backward).mean() - own.mean()
