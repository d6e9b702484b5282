"""Training: weights into weights."""

from calque.training.contrastive import Contrastive
from calque.training.finetune import FineTune
from calque.training.loop import Loop, Schedule
from calque.training.tuner import Tuner

TUNERS: dict[str, type[Tuner]] = {"finetune": FineTune, "contrastive": Contrastive}

__all__ = ["TUNERS", "Contrastive", "FineTune", "Loop", "Schedule", "Tuner"]
