"""Alignment by fine-tuning (Cao et al. 2020), with the layers and alignment directions of
Kulshreshtha et al. (2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from calque.alignment.tuner import Tuner
from calque.alignment.update import LinkedBatch
from calque.errors import SettingError, check_number
from calque.spec import option
from calque.training.loop import rate_by_width


@dataclass(frozen=True, kw_only=True, eq=False)
class FineTune(Tuner):
    """Minimise the distance between linked words, with a penalty for changing the vectors of one
    language.

    The loss is summed over `layers`. For each language pair, where `s` is aligned to `t`, the loss
    is

        Σ_(i,j) linked ‖f(i, s) − f(j, t)‖²  +  λ Σ_j ‖f(j, t) − f0(j, t)‖²

    where f0 is the encoder before training, and the second sum is over *all* words of the target
    sentences (Cao 2020, §3.3; Kulshreshtha 2020, Eqs. 7–10). Cao et al. train BERT-base with
    `learning_rate=5e-5, batch=2`. Here, the default batch is larger, and the default
    `learning_rate` is 5e-5 · (768 / dim)^(5/3).
    """

    special = True  # as in the code of Cao et al.
    decay = "constant"
    clip = None

    weight: float = option(1.0, "weight λ of the penalty.")
    variant: Literal["paper", "code"] = option(
        "paper",
        "loss as in the paper (`paper`) or as in Cao's code (`code`). The code divides each term "
        "by its number of elements, and replaces f(j, t) in the first term by f0(j, t).",
    )

    def __post_init__(self):
        if self.variant not in ("paper", "code"):
            raise SettingError(f"variant must be paper or code, got {self.variant!r}")
        check_number("weight", self.weight, least=0)
        super().__post_init__()

    def default_rate(self, dim: int) -> float:
        # The paper uses 5e-5 for 768 dimensions; 1e-3 was best on held-out text for 128 dimensions.
        return rate_by_width(dim, 5 / 3)

    @property
    def needs_reference(self) -> bool:
        return self.weight > 0 or self.variant == "code"

    def loss(self, batch: LinkedBatch) -> dict[str, Tensor]:
        frozen = batch.reference_linked if self.variant == "code" else None
        terms = {"align": (batch.source - (batch.target if frozen is None else frozen)).square()}
        if batch.reference is not None and self.weight:
            terms["stay"] = self.weight * (batch.regularised - batch.reference).square()
        sizes = {
            name: max(1, squares.numel()) if self.variant == "code" else 1
            for name, squares in terms.items()
        }
        return {name: squares.sum() / sizes[name] for name, squares in terms.items()}
