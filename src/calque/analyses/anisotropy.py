"""Whether word vectors fill their space or a narrow cone of it."""

from __future__ import annotations

import math

import numpy as np

from calque.analyses.finding import Finding
from calque.analyses.questions import SIDES, Questions, View, without_interval
from calque.tasks.bootstrap import ratio

_COMPONENTS = (1, 3, 10)


def mean_cosine(total: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Mean cosine of two different vectors of a set, from its sum: (‖Σu‖² − n) / (n(n − 1)) for unit vectors u.

    Args:
        total: `[…, dim]`, sum of the unit vectors.
        n: `[…]`, how many there are.
    """
    return ratio(np.square(total).sum(axis=-1) - n, n * (n - 1))


def explained_variance(x: np.ndarray) -> np.ndarray:
    """Share of the variance in the first 1, 2, 3 … principal components of centred vectors; `[min(n, dim)]`."""
    centred = x - x.mean(axis=0, dtype=np.float64)
    values = np.linalg.eigvalsh(centred.T @ centred / max(len(x), 1))[::-1][: min(x.shape)].clip(min=0)
    return np.cumsum(values) / values.sum() if values.sum() > 0 else np.full(len(values), math.nan)


def anisotropy(questions: Questions, view: View) -> list[Finding]:
    """Mean cosine of random words (Ethayarajh 2019, §3.2), and the variance that the first components explain.

    Groups of `mean-cosine`: words of either language; words of both, one of each; and linked words, which should stand out.
    All words that have a vector count once each time that they come. In `explained-variance`, x is the number of components.
    """
    n_sentences = len(questions.corpus)
    sums, findings = {}, []
    for side in SIDES:
        units, covered = view.units[side], view.covered(side)
        starts, lengths = questions.offsets[side][:-1], np.diff(questions.offsets[side])
        parts = np.zeros((n_sentences, units.shape[1] + 1))
        filled = lengths > 0
        if filled.any():  # rows without a vector are zero
            parts[filled, :-1] = np.add.reduceat(units, starts[filled], axis=0, dtype=np.float64)
            parts[filled, -1] = np.add.reduceat(covered.astype(np.int64), starts[filled])
        sums[side] = parts
    both = np.concatenate([sums["source"], sums["target"]], axis=1)
    dim = both.shape[1] // 2
    asked = view.answers.queries
    units = [view.units[side][questions.rows[side][asked]] for side in SIDES]
    cosines = np.einsum("ij,ij->i", *(part.astype(np.float64) for part in units))
    sentence = questions.pairs.sentence[asked]
    linked = np.stack(
        [np.bincount(sentence, weights=weights, minlength=n_sentences) for weights in (cosines, np.ones(len(asked)))],
        axis=1,
    )

    def within(drawn: np.ndarray) -> np.ndarray:
        return mean_cosine(drawn[..., :-1], drawn[..., -1])

    def between(drawn: np.ndarray) -> np.ndarray:
        products = (drawn[..., : dim - 1] * drawn[..., dim:-1]).sum(axis=-1)
        return ratio(products, drawn[..., dim - 1] * drawn[..., -1])

    def of_links(drawn: np.ndarray) -> np.ndarray:
        return ratio(drawn[..., 0], drawn[..., 1])

    pair = "-".join(questions.langs)
    for group, parts, statistic, n in (
        (questions.langs[0], sums["source"], within, sums["source"][:, -1].sum()),
        (questions.langs[1], sums["target"], within, sums["target"][:, -1].sum()),
        (pair, both, between, both[:, -1].sum() + both[:, dim - 1].sum()),
        (f"{pair} linked", linked, of_links, len(asked)),
    ):
        figures = questions.resamples.interval(parts, statistic)
        score = questions.score("mean-cosine", figures, n, view.about, task="anisotropy", percent=False)
        findings.append(Finding("anisotropy", view.name, score, group))
    for side, lang in zip(SIDES, questions.langs, strict=True):
        used = view.units[side][view.covered(side)]
        shares = explained_variance(used)
        for count in _COMPONENTS:
            if count <= len(shares):
                figures = without_interval(shares[count - 1])
                score = questions.score("explained-variance", figures, len(used), view.about, task="anisotropy")
                findings.append(Finding("anisotropy", view.name, score, lang, float(count)))
    return findings
