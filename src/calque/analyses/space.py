"""Measures of a vector space that do not require a map: isometry, hubness, anisotropy and a
language probe.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from calque.algebra.normalize import unit_centre_unit
from calque.analyses.questions import DEPTH, SIDES, Finding, Questions, View
from calque.offsets import offsets_of
from calque.tasks.bootstrap import accuracy, measure, ratio

_TYPES = 1000  # isometry: maximum number of word types per language, and of word pairs
_WORDS, _STEPS = (
    5000,
    5000,
)  # language probe: maximum number of word types per language, and of optimiser steps


# -- isometry
# --------------------------------------------------------------------------------------------------
def laplacian_eigenvalues(x: np.ndarray, *, neighbours: int) -> np.ndarray:
    """Return the Laplacian spectrum of the nearest-neighbour graph of L2-normalised vectors `[n,
    dim]`, in descending order, float64 `[n]`.

    L = D − A, where A has an edge between two vectors if either is among the `neighbours` nearest
    vectors of the other.
    """
    n = len(x)
    similar = x.astype(np.float64) @ x.astype(np.float64).T
    np.fill_diagonal(similar, -np.inf)
    nearest = np.argsort(-similar, axis=1, kind="stable")[:, : min(neighbours, n - 1)]
    edges = np.zeros((n, n))
    np.put_along_axis(edges, nearest, 1.0, axis=1)
    edges = np.maximum(edges, edges.T)
    return np.linalg.eigvalsh(np.diag(edges.sum(axis=1)) - edges)[::-1]


def eigenvalue_similarity(first: np.ndarray, second: np.ndarray) -> float:
    """Return Σᵢ (λᵢ − μᵢ)² over the k largest eigenvalues of two Laplacians (Søgaard et al. 2018,
    §3.1); 0 for equal spectra. The eigenvalues must be in descending order.

    For each spectrum, count the largest eigenvalues that are needed to reach 90% of its sum; k is
    the smaller count. The value grows with the number of vectors, so only values for equal numbers
    of vectors are comparable.
    """

    def needed(values: np.ndarray) -> int:
        total = np.cumsum(values)
        return (
            int(np.searchsorted(total, 0.9 * total[-1] * (1 - 1e-12)) + 1)
            if total[-1] > 0
            else len(values)
        )

    k = min(needed(first), needed(second), len(first), len(second))
    return float(np.square(first[:k] - second[:k]).sum())


def relational_similarity(x: np.ndarray, y: np.ndarray) -> float:
    """Return Pearson's r between the cosines of all pairs of vectors in one space and the cosines
    of their translations in the other space (Vulić et al. 2020, §2); 1 for isometric spaces. The
    rows have unit norm, and row i of `y` is the translation of row i of `x`."""
    upper = np.triu_indices(len(x), 1)
    first, second = (
        (side.astype(np.float64) @ side.astype(np.float64).T)[upper] for side in (x, y)
    )
    return float(np.corrcoef(first, second)[0, 1])


def isometry(questions: Questions, view: View) -> list[Finding]:
    """Return the eigenvalue similarity (0 for isometric spaces) and the relational similarity (1
    for isometric spaces).

    Eigenvalue similarity uses mean vectors of the most frequent word types in the test text, with
    the same number of types per language. The vectors are L2-normalised, centred and normalised
    again. Relational similarity uses one link per source word type. Both measures are invariant to
    rotation, so they estimate how well a rotation could align the spaces. No bootstrap intervals
    are computed, because a word that is drawn twice would add a second point at distance 0.
    """
    means = [_type_means(questions, view, side) for side in SIDES]
    used = min(_TYPES, *(len(side) for side in means))
    queries = view.answers.queries
    types = questions.types["source"][0][questions.rows["source"][queries]]
    linked = queries[np.sort(np.unique(types, return_index=True)[1])][
        :_TYPES
    ]  # one link per source word type
    if used < 3 or len(linked) < 3:
        return []
    x, y = (unit_centre_unit(side[:used])[0] for side in means)
    words = (
        unit_centre_unit(view.side(side).data[questions.rows[side][linked]])[0] for side in SIDES
    )
    spectra = [laplacian_eigenvalues(side, neighbours=10) for side in (x, y)]
    figures = (
        ("eigenvalue-similarity", eigenvalue_similarity(*spectra), used, {"neighbours": 10}),
        ("relational-similarity", relational_similarity(*words), len(linked), {}),
    )
    return [
        questions.finding(
            "isometry", view, metric, value, count, about, task="isometry", percent=False
        )
        for metric, value, count, about in figures
    ]


def _type_means(questions: Questions, view: View, side: str) -> np.ndarray:
    """Return the mean vector of each word type, most frequent types first; equally frequent types
    keep their order.
    """
    numbers, types = questions.types[side]
    rows = np.flatnonzero(view.covered(side))
    order = rows[np.argsort(numbers[rows], kind="stable")]
    counts = np.bincount(numbers[rows], minlength=len(types))
    present = np.flatnonzero(counts)
    if not len(present):
        return np.zeros((0, view.side(side).dim))
    starts = offsets_of(counts)[present]
    sums = np.add.reduceat(
        np.asarray(view.side(side).data)[order], starts, axis=0, dtype=np.float64
    )
    return (sums / counts[present][:, None])[np.argsort(-counts[present], kind="stable")]


# -- hubs
# --------------------------------------------------------------------------------------------------
def occurrences(lists: np.ndarray, n: int) -> np.ndarray:
    """Return N_k: for each of `n` vectors, the number of `lists` (`[n_queries, k]`, padded with −1)
    that contain it.
    """
    return np.bincount(lists[lists >= 0], minlength=n)


def powers(values: np.ndarray) -> np.ndarray:
    """Return 1, v, v² and v³ of each value v, `[n, 4]`; `skewness` is computed from the sums of
    these columns.
    """
    return np.stack([np.ones(len(values)), values, values**2.0, values**3.0], axis=1)


def skewness(sums: np.ndarray) -> np.ndarray:
    """Return E[(v − μ)³] / σ³ from sums of `powers` `[…, 4]` (Radovanović et al. 2010, §2.2). The
    skewness is 0 for a symmetric distribution, large if a few vectors (hubs) are in most lists, and
    NaN if all values are equal."""
    n, first, second, third = (sums[..., k] for k in range(4))
    mean = ratio(first, n)
    variance = ratio(second, n) - mean**2
    moment = ratio(third, n) - 3 * mean * ratio(second, n) + 2 * mean**3
    variance = np.where(variance > 1e-12 * np.maximum(mean**2, 1e-300), variance, 0.0)
    return ratio(moment, variance**1.5)


def hubness(questions: Questions, view: View) -> list[Finding]:
    """Return the skewness of N_10 in each direction, for CSLS neighbours and for cosine neighbours.

    N_10 of a candidate word is the number of queries in the other language that have the word among
    their 10 nearest neighbours; N_10 may be 0. CSLS reduces hubness, so only the cosine value
    describes the space itself. The bootstrap resamples the sentences of the candidates.
    """
    task = questions.task
    by_similarity = {str(task.similarity): view.answers}
    if "cosine" not in by_similarity:
        by_similarity["cosine"] = task.retrieve(
            view.source, view.target, similarity="cosine", depth=DEPTH
        )
    findings = []
    for similarity, answers in by_similarity.items():
        for side, lists, pool, langs in (
            ("target", answers.target_lists, answers.target_pool, questions.langs),
            ("source", answers.source_lists, answers.source_pool, questions.langs[::-1]),
        ):
            counts = occurrences(lists, len(pool))[pool]
            sums = questions.summed(questions.sentence_of[side][pool], *powers(counts).T)
            about = {
                "k": DEPTH,
                "similarity": similarity,
                "largest": int(counts.max(initial=0)),
                "mean": float(counts.mean()) if len(counts) else None,
                "never": int((counts == 0).sum()),
            }
            figures = measure(sums, skewness, samples=task.bootstrap).ends
            findings.append(
                questions.finding(
                    "hubness",
                    view,
                    f"skewness.{similarity}",
                    figures,
                    len(counts),
                    about,
                    group="-".join(langs),
                    task="hubness",
                    percent=False,
                )
            )
    return findings


# -- anisotropy
# --------------------------------------------------------------------------------------------------
def mean_cosine(total: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return the mean cosine over all pairs of distinct vectors in a set of `n`, computed from the
    sum of their unit vectors, `[…, dim]`: (‖Σu‖² − n) / (n(n − 1))."""
    return ratio(np.square(total).sum(axis=-1) - n, n * (n - 1))


def anisotropy(questions: Questions, view: View) -> list[Finding]:
    """Return the mean cosine of random word pairs (Ethayarajh 2019, §3.2) within each language and
    across the two languages, and the mean cosine of linked words, which should be higher. All
    tokens that have a vector are used."""
    units = {side: view.units[side][view.covered(side)].astype(np.float64) for side in SIDES}
    totals, counts = (
        [each.sum(axis=0) for each in units.values()],
        [len(each) for each in units.values()],
    )
    linked = [
        view.units[side][questions.rows[side][view.answers.queries]].astype(np.float64)
        for side in SIDES
    ]
    pair = "-".join(questions.langs)
    figures = [
        *(
            (lang, mean_cosine(total, np.array(n)), n)
            for lang, total, n in zip(questions.langs, totals, counts, strict=True)
        ),
        (pair, ratio(totals[0] @ totals[1], np.array(counts[0] * counts[1])), sum(counts)),
        (
            f"{pair} linked",
            ratio((linked[0] * linked[1]).sum(), np.array(len(linked[0]))),
            len(linked[0]),
        ),
    ]
    return [
        questions.finding(
            "anisotropy",
            view,
            "mean-cosine",
            float(value),
            n,
            group=group,
            task="anisotropy",
            percent=False,
        )
        for group, value, n in figures
    ]


# -- language
# --------------------------------------------------------------------------------------------------
def logistic_regression(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the weights w, float64 `[dim]`, and the bias b that minimise Σ log(1 + exp(−s(xw +
    b))) + ½‖w‖². The sign s is 1 where `y`, bool `[n]`, is true, and −1 otherwise. The loss is
    strictly convex in w, so the minimum is unique."""
    x1 = np.concatenate([np.asarray(x, dtype=np.float64), np.ones((len(x), 1))], axis=1)
    sign, ridge = np.where(y, 1.0, -1.0), np.append(np.ones(x.shape[1]), 0.0)

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        margins = sign * (x1 @ w)
        value = np.logaddexp(0, -margins).sum() + 0.5 * (ridge * w * w).sum()
        return float(value), x1.T @ (-sign * expit(-margins)) + ridge * w

    tight = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 1e-15, "gtol": 1e-7}
    weights = minimize(loss, np.zeros(x1.shape[1]), jac=True, method="L-BFGS-B", options=tight).x
    return weights[:-1], float(weights[-1])


def language(questions: Questions, view: View, *, seed: int = 0) -> list[Finding]:
    """Return the accuracy of a linear probe that predicts the language of held-out words; the
    chance level is one half.

    The data are the first token of each word type that occurs in only one of the languages, with
    equally many types per language. Two thirds of these tokens form the training set; the rest form
    the test set. Vectors are L2-normalised, then standardised per dimension. Alignment should lower
    the accuracy, but retrieval can be good even if the probe is accurate, as the probe needs only
    one direction that separates the languages. `seed` determines how types are sampled and split.
    """
    shared = set(questions.types["source"][1]) & set(questions.types["target"][1])
    rng = np.random.default_rng(seed)
    rows = []
    for side in SIDES:
        numbers, types = questions.types[side]
        first = np.sort(np.unique(numbers, return_index=True)[1])
        distinct = np.array([word not in shared for word in types], dtype=bool)
        first = first[distinct[numbers[first]] & view.covered(side)[first]]
        rows.append(rng.permutation(first))
    used = min(_WORDS, *(len(side) for side in rows))
    known = 2 * used // 3
    if known < 1 or used == known:
        return []
    parts = [
        (side, chosen[:known], chosen[known:used]) for side, chosen in zip(SIDES, rows, strict=True)
    ]
    train, test = (
        np.concatenate([view.units[part[0]][part[k]] for part in parts]).astype(np.float64)
        for k in (1, 2)
    )
    mean, scale = train.mean(axis=0), train.std(axis=0)
    scale[scale == 0] = 1.0
    weights, bias = logistic_regression((train - mean) / scale, np.arange(len(train)) >= known)
    hits = (((test - mean) / scale) @ weights + bias > 0) == (np.arange(len(test)) >= used - known)
    sentence = np.concatenate([questions.sentence_of[side][tested] for side, _, tested in parts])
    sums = questions.summed(sentence, hits, np.ones(len(hits)))
    figures = measure(sums, accuracy, samples=questions.task.bootstrap).ends
    about = {
        "chance": 0.5,
        "train_words": 2 * known,
        "shared_forms_left_out": len(shared),
        "probe": "logistic regression",
    }
    return [
        questions.finding(
            "language", view, "probe-accuracy", figures, len(hits), about, task="language"
        )
    ]
