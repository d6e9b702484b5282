"""Alignment: weights into weights, by parallel text."""

from calque.alignment.contrastive import Contrastive
from calque.alignment.finetune import FineTune
from calque.alignment.tuner import Tuner

TUNERS: dict[str, type[Tuner]] = {"finetune": FineTune, "contrastive": Contrastive}

__all__ = ["TUNERS", "Contrastive", "FineTune", "Tuner"]
