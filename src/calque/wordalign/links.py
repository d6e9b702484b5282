"""Links of both directions, before they are made symmetric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calque.wordalign.bitext import Bitext


@dataclass
class Links:
    """The best position of every word on the other side.

    Args:
        forward: int32 `[n_target_words]`, source position of each target word, -1 for none.
        backward: int32 `[n_source_words]`, target position of each source word, -1 for none.
        forward_posterior, backward_posterior: float32, how probable the links are.
    """

    forward: np.ndarray
    backward: np.ndarray
    forward_posterior: np.ndarray
    backward_posterior: np.ndarray

    @classmethod
    def none(cls, bitext: Bitext) -> Links:
        """No links yet."""
        n_source, n_target = len(bitext.source.words), len(bitext.target.words)
        return cls(
            np.full(n_target, -1, np.int32), np.full(n_source, -1, np.int32),
            np.zeros(n_target, np.float32), np.zeros(n_source, np.float32),
        )  # fmt: skip

    def direction(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Links and posteriors from source to target words (`across`), or the other way."""
        return (self.forward, self.forward_posterior) if across else (self.backward, self.backward_posterior)
