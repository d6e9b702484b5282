"""Pairs that translate each other out of two texts that are no translations: candidates, and the score from which they count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from calque.algebra.margin import Best
from calque.errors import SettingError

Strategy = Literal["max", "forward", "backward", "intersection"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True)
class Mined:
    """Pairs with their scores, the best first.

    Attributes:
        source, target: int64 `[n_pairs]`.
        scores: float64 `[n_pairs]`, falling.
    """

    source: np.ndarray
    target: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def at_least(self, threshold: float) -> Mined:
        """The pairs whose score is so much or more."""
        n = int(np.searchsorted(-self.scores, -threshold, side="right"))
        return Mined(self.source[:n], self.target[:n], self.scores[:n])


def mine(best: Best, strategy: Strategy = "max") -> Mined:
    """Candidate pairs (Artetxe & Schwenk 2019, §3.2).

    Args:
        best: what each sentence goes best with.
        strategy: "forward": each source sentence with its best target. "backward": each target sentence with its best
            source. "intersection": pairs that are both. "max": all of both, and from the best pair on those whose two
            sentences are in no better pair.

    Raises:
        SettingError: another strategy.
    """
    if strategy not in STRATEGIES:
        raise SettingError(f"strategy={strategy!r}, expected one of {', '.join(STRATEGIES)}")
    n, m = len(best.targets), len(best.sources)
    forward = np.arange(n), best.targets, best.target_scores
    backward = best.sources, np.arange(m), best.source_scores
    if strategy == "intersection":
        safe = np.maximum(best.targets, 0)
        mutual = (best.targets >= 0) & (best.sources[safe] == np.arange(n)) if m else np.zeros(n, dtype=bool)
        forward = tuple(part[mutual] for part in forward)
    parts = {"max": (forward, backward), "backward": (backward,)}.get(strategy, (forward,))
    source, target, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((target, source, -scores))
    order = order[(source[order] >= 0) & (target[order] >= 0)]
    if strategy == "max":
        order = order[_in_no_better_pair(source[order], target[order], n, m)]
    return Mined(source[order], target[order], scores[order])


def _in_no_better_pair(source: np.ndarray, target: np.ndarray, n: int, m: int) -> np.ndarray:
    """bool `[n_pairs]`: both sentences of a pair are in none of those before it that were taken."""
    taken, free_source, free_target = np.zeros(len(source), dtype=bool), bytearray(b"\1" * n), bytearray(b"\1" * m)
    for place, (i, j) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        if free_source[i] and free_target[j]:
            free_source[i] = free_target[j] = 0
            taken[place] = True
    return taken


def best_threshold(mined: Mined, right: np.ndarray, n_gold: int) -> float:
    """The score from which on pairs count, for the best F1 (Artetxe & Schwenk 2019, §3.2; `bucc.py` of LASER).

    Args:
        mined: pairs with scores.
        right: bool `[n_pairs]`: it is one of the gold pairs.
        n_gold: how many gold pairs there are.

    Returns:
        half-way between the last score that counts and the first that does not, as in LASER's code; of several best the
        highest; ∞ where no pair is right.
    """
    if not right.any():
        return float("inf")
    ends = np.append(np.flatnonzero(np.diff(mined.scores)), len(mined) - 1)  # pairs of equal score come together
    said = ends + 1.0
    f1 = 2 * np.cumsum(right)[ends] / (said + n_gold)
    last = int(ends[np.argmax(f1)])
    following = mined.scores[min(last + 1, len(mined) - 1)]
    return float((mined.scores[last] + following) / 2)
