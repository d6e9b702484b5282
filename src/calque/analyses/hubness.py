"""Hubs: words that are near to far too many others."""

from __future__ import annotations

import numpy as np

from calque.analyses.finding import Finding
from calque.analyses.questions import DEPTH, SIDES, Questions, View
from calque.tasks.bootstrap import ratio
from calque.tasks.nearest import retrieve


def occurrences(lists: np.ndarray, n: int) -> np.ndarray:
    """N_k: in how many lists of nearest neighbours each of `n` vectors is; int64 `[n]`.

    Args:
        lists: int `[n_queries, k]`, −1 for no neighbour.
    """
    return np.bincount(lists[lists >= 0], minlength=n)


def powers(values: np.ndarray) -> np.ndarray:
    """1, v, v² and v³ of each value: what `skewness` is computed from, once summed; `[n, 4]`."""
    return np.stack([np.ones(len(values)), values, values**2.0, values**3.0], axis=1)


def skewness(sums: np.ndarray) -> np.ndarray:
    """E[(v − μ)³] / σ³ from sums of powers `[…, 4]` (Radovanović et al. 2010, §2.2); NaN where all values are equal.

    0 for a symmetric distribution; the larger, the more do a few vectors stand in everybody's list.
    """
    n, first, second, third = (sums[..., k] for k in range(4))
    mean = ratio(first, n)
    variance = ratio(second, n) - mean**2
    moment = ratio(third, n) - 3 * mean * ratio(second, n) + 2 * mean**3
    variance = np.where(variance > 1e-12 * np.maximum(mean**2, 1e-300), variance, 0.0)
    return ratio(moment, variance**1.5)


def hubness(questions: Questions, view: View) -> list[Finding]:
    """Skewness of N_10 in either direction, by CSLS and by cosine.

    N_10 of a word is for how many of the linked words of the other language it is among the 10 nearest; all words of its
    side count, also those that are in no list. CSLS is made to make hubs rarer, so that by cosine is what the space itself
    is like. Intervals are over sentences of the words that can be hubs.
    """
    answers_by_similarity = {str(questions.task.similarity): view.answers}
    if "cosine" not in answers_by_similarity:
        answers_by_similarity["cosine"] = retrieve(
            view.source, view.target, questions.pairs,
            candidates=questions.task.candidates, similarity="cosine", uncovered=questions.task.uncovered, depth=DEPTH,
            source_words=questions.first["source"], target_words=questions.first["target"],
        )  # fmt: skip
    findings = []
    for similarity, answers in answers_by_similarity.items():
        directions = (
            (SIDES[1], answers.target_lists, questions.langs),
            (SIDES[0], answers.source_lists, questions.langs[::-1]),
        )
        for side, lists, langs in directions:
            pool = questions.first[side] & view.covered(side)
            if questions.task.candidates == "linked":
                linked = np.zeros_like(pool)
                linked[questions.rows[side][answers.queries]] = True
                pool = pool & linked
            counts = occurrences(lists, len(pool))[pool]
            lengths = np.diff(questions.offsets[side])
            owner = np.repeat(np.arange(len(lengths)), lengths)[pool]
            sums = np.zeros((len(lengths), 4))
            for power, column in enumerate(powers(counts).T):
                sums[:, power] = np.bincount(owner, weights=column, minlength=len(lengths))
            figures = questions.resamples.interval(sums, skewness)
            about = {
                **view.about, "k": DEPTH, "similarity": similarity, "largest": int(counts.max(initial=0)),
                "mean": float(counts.mean()) if len(counts) else None, "never": int((counts == 0).sum()),
            }  # fmt: skip
            score = questions.score(
                f"skewness.{similarity}", figures, len(counts), about, task="hubness", percent=False
            )
            findings.append(Finding("hubness", view.name, score, "-".join(langs)))
    return findings
