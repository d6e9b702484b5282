"""Alignment by contrast: a word is to be nearer to its translation than to all other words of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from calque.alignment.tuner import Tuner
from calque.alignment.update import GroupVectors
from calque.distributed import Processes
from calque.errors import check_number
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
        weight: of the mean squared distance ‖f − f0‖² of the words in language `towards` to the frozen encoder's.
        layers: layers that the loss reads; None: the encoder's own layer.
        epochs, learning_rate, warmup, decay, betas, epsilon, clip, seed: see `Schedule`.
        batch, special, max_words, freeze, accumulate, budget, window, precision, reference: see `Tuner`.
    """

    temperature: float = 0.05
    strong: bool = False
    weight: float = 0.0
    epochs: float = 2.0
    decay: Literal["constant", "linear", "cosine"] = "linear"
    clip: float | None = 1.0
    batch: int = 32
    special: bool = False

    def __post_init__(self):
        check_number("temperature", self.temperature, above=0)
        check_number("weight", self.weight, least=0)
        super().__post_init__()

    terms_over_all = ("contrast",)

    def default_rate(self, dim: int) -> float:
        # 2e-3 was best on held-out text for 128 dimensions (docs/results.md); 5e-5 is the usual choice for 768.
        return rate_by_width(dim, 2)

    @property
    def needs_reference(self) -> bool:
        return self.weight > 0

    def loss(self, groups: list[GroupVectors], processes: Processes) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        for group in groups:
            x = functional.normalize(processes.gather_rows(group.source, group.pairs_of_process), dim=1)
            y = functional.normalize(processes.gather_rows(group.target, group.pairs_of_process), dim=1)
            contrast = info_nce(x, y, temperature=self.temperature, strong=self.strong)
            terms["contrast"] = terms["contrast"] + contrast if "contrast" in terms else contrast
            if group.reference is not None:
                # Summed here and divided by everyone's number of elements: a mean over all processes.
                distance = (group.regularised - group.reference).square().sum()
                stay = self.weight * distance / max(1, group.n_regularised * x.shape[1])
                terms["stay"] = terms["stay"] + stay if "stay" in terms else stay
        return terms


def info_nce(x: Tensor, y: Tensor, *, temperature: float, strong: bool) -> Tensor:
    """Mean over both directions of the cross entropy of each row's partner among all candidates.

    Args:
        x, y: unit rows `[n, dim]`; row k of one translates row k of the other. Without any the loss is 0.
        temperature: what similarities are divided by.
        strong: the other rows of the anchor's own side are candidates too.
    """
    if not len(x):
        return (x.sum() + y.sum()) * 0.0
    across = x @ y.T / temperature
    truth = torch.arange(len(x), device=x.device)
    if not strong:
        return 0.5 * (functional.cross_entropy(across, truth) + functional.cross_entropy(across.T, truth))
    diagonal = torch.eye(len(x), dtype=torch.bool, device=x.device)
    left = (x @ x.T / temperature).masked_fill(diagonal, -torch.inf)
    right = (y @ y.T / temperature).masked_fill(diagonal, -torch.inf)
    forward = torch.logaddexp(across.logsumexp(1), left.logsumexp(1))
    backward = torch.logaddexp(across.logsumexp(0), right.logsumexp(1))
    return 0.5 * (forward + backward).mean() - across.diagonal().mean()
