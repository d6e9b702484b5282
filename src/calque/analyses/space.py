"""Measures of a vector space that do not require a map: isometry, hubness, anisotropy and a
language probe.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from calque.algebra.normalize import unit_centre_unit
from calque.analyses.questions import DEPTH, SIDES, Finding, Questions, View
from calque.offsets import offsets_of
from calque.tasks.bootstrap import accuracy, measure, ratio

_TYPES = 1000  # isometry: maximum number of word types per language, and of word pairs
_WORDS = 5000  # language probe: maximum number of word types per language
_STEPS = 5000  # language probe: maximum number of optimiser steps


# -- isometry --------------------------------------------------------------------------------------
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
    # The graph is undirected: an edge exists if either word is a neighbour of the other.
    edges = np.maximum(edges, edges.T)
    return np.linalg.eigvalsh(np.diag(edges.sum(axis=1)) - edges)[::-1]


def eigenvalue_similarity(first: np.ndarray, second: np.ndarray) -> float:
    """Return Σᵢ (λᵢ − μᵢ)² over the k largest eigenvalues of two Laplacians (Søgaard et al. 2018,
    §3.1); 0 for equal spectra. The eigenvalues must be in descending order.

    For each spectrum, count the largest eigenvalues that are needed to reach 90% of its sum; k is
    the smaller count. The value grows with the number of vectors, so only values for equal numbers
    of vectors are comparable.
    """

    def needed(eigenvalues: np.ndarray) -> int:
        """Return the number of largest eigenvalues that reach 90% of the sum."""
        partial_sums = np.cumsum(eigenvalues)
        total = partial_sums[-1]
        if total <= 0:
            return len(eigenvalues)
        # The tolerance absorbs rounding errors in a partial sum of exactly 90%.
        return int(np.searchsorted(partial_sums, 0.9 * total * (1 - 1e-12)) + 1)

    k = min(needed(first), needed(second), len(first), len(second))
    return float(np.square(first[:k] - second[:k]).sum())


def relational_similarity(x: np.ndarray, y: np.ndarray) -> float:
    """Return Pearson's r between the cosines of all pairs of vectors in one space and the cosines
    of their translations in the other space (Vulić et al. 2020, §2); 1 for isometric spaces. The
    rows have unit norm, and row i of `y` is the translation of row i of `x`."""
    upper = np.triu_indices(len(x), 1)
    x, y = x.astype(np.float64), y.astype(np.float64)
    return float(np.corrcoef((x @ x.T)[upper], (y @ y.T)[upper])[0, 1])


def isometry(questions: Questions, view: View) -> list[Finding]:
    """Return the eigenvalue similarity (0 for isometric spaces) and the relational similarity (1
    for isometric spaces).

    Eigenvalue similarity uses mean vectors of the most frequent word types in the test text, with
    the same number of types per language. The vectors are L2-normalised, centred and normalised
    again. Relational similarity uses one link per source word type. Both measures are invariant to
    rotation, so they estimate how well a rotation could align the spaces. No bootstrap intervals
    are computed, because a word that is drawn twice would add a second point at distance 0.
    """
    source_means, target_means = (_type_means(questions, view, side) for side in SIDES)
    n_types = min(_TYPES, len(source_means), len(target_means))
    # Use the first link of each source word type.
    queries = view.answers.queries
    types = questions.types["source"][0][questions.rows["source"][queries]]
    # A type that occurs twice would add two nearly equal points.
    first_of_type = np.sort(np.unique(types, return_index=True)[1])
    linked = queries[first_of_type][:_TYPES]
    if n_types < 3 or len(linked) < 3:
        return []
    spectra = []
    for means in (source_means, target_means):
        normalised, *_ = unit_centre_unit(means[:n_types])
        spectra.append(laplacian_eigenvalues(normalised, neighbours=10))
    words = []
    for side in SIDES:
        normalised, *_ = unit_centre_unit(view.side(side).data[questions.rows[side][linked]])
        words.append(normalised)
    return [
        questions.finding(
            "isometry",
            view,
            "eigenvalue-similarity",
            eigenvalue_similarity(*spectra),
            n_types,
            {"neighbours": 10},
            task="isometry",
            percent=False,
        ),
        questions.finding(
            "isometry",
            view,
            "relational-similarity",
            relational_similarity(*words),
            len(linked),
            task="isometry",
            percent=False,
        ),
    ]


def _type_means(questions: Questions, view: View, side: str) -> np.ndarray:
    """Return the mean vector of each word type, most frequent types first; equally frequent types
    keep their order.
    """
    numbers, types = questions.types[side]
    vectors = view.side(side)
    rows = np.flatnonzero(view.covered(side))
    counts = np.bincount(numbers[rows], minlength=len(types))
    present = np.flatnonzero(counts)
    if not len(present):
        return np.zeros((0, vectors.dim))
    # Sort the rows by type, so the rows of each type are contiguous.
    by_type = rows[np.argsort(numbers[rows], kind="stable")]
    starts = offsets_of(counts)[present]
    sums = np.add.reduceat(np.asarray(vectors.data)[by_type], starts, axis=0, dtype=np.float64)
    means = sums / counts[present][:, None]
    return means[np.argsort(-counts[present], kind="stable")]


# -- hubs ------------------------------------------------------------------------------------------
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


# -- anisotropy ------------------------------------------------------------------------------------
def mean_cosine(total: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return the mean cosine over all pairs of distinct vectors in a set of `n`, computed from the
    sum of their unit vectors, `[…, dim]`: (‖Σu‖² − n) / (n(n − 1))."""
    return ratio(np.square(total).sum(axis=-1) - n, n * (n - 1))


def anisotropy(questions: Questions, view: View) -> list[Finding]:
    """Return the mean cosine of random word pairs (Ethayarajh 2019, §3.2) within each language and
    across the two languages, and the mean cosine of linked words, which should be higher. All
    tokens that have a vector are used."""
    source_units, target_units = (
        view.units[side][view.covered(side)].astype(np.float64) for side in SIDES
    )
    n_source, n_target = len(source_units), len(target_units)
    source_total, target_total = source_units.sum(axis=0), target_units.sum(axis=0)
    linked_source, linked_target = (
        view.units[side][questions.rows[side][view.answers.queries]].astype(np.float64)
        for side in SIDES
    )
    n_linked = len(linked_source)
    source_lang, target_lang = questions.langs
    # The mean over all pairs across the languages is the product of the sums.
    across = ratio(source_total @ target_total, np.array(n_source * n_target))
    linked = ratio((linked_source * linked_target).sum(), np.array(n_linked))
    pair = f"{source_lang}-{target_lang}"
    figures = [
        (source_lang, mean_cosine(source_total, np.array(n_source)), n_source),
        (target_lang, mean_cosine(target_total, np.array(n_target)), n_target),
        (pair, across, n_source + n_target),
        (f"{pair} linked", linked, n_linked),
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


# -- language --------------------------------------------------------------------------------------
def logistic_regression(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the weights w, float64 `[dim]`, and the bias b that minimise Σ log(1 + exp(−s(xw +
    b))) + ½‖w‖². The sign s is 1 where `y`, bool `[n]`, is true, and −1 otherwise. The loss is
    strictly convex in w, so the minimum is unique."""
    # The bias is the weight of a constant feature, which the penalty leaves out.
    x1 = np.concatenate([np.asarray(x, dtype=np.float64), np.ones((len(x), 1))], axis=1)
    sign = np.where(y, 1.0, -1.0)
    ridge = np.append(np.ones(x.shape[1]), 0.0)

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        margins = sign * (x1 @ w)
        value = np.logaddexp(0, -margins).sum() + 0.5 * (ridge * w * w).sum()
        return float(value), x1.T @ (-sign * expit(-margins)) + ridge * w

    options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 1e-15, "gtol": 1e-7}
    start = np.zeros(x1.shape[1])
    weights = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
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
    # A type in both languages would have no language that a probe could predict.
    tokens = {}  # shuffled first tokens of the usable word types
    for side in SIDES:
        numbers, types = questions.types[side]
        first = np.sort(np.unique(numbers, return_index=True)[1])
        is_distinct = np.array([word not in shared for word in types], dtype=bool)
        first = first[is_distinct[numbers[first]] & view.covered(side)[first]]
        tokens[side] = rng.permutation(first)
    n_types = min(_WORDS, *(len(side_tokens) for side_tokens in tokens.values()))
    n_train = 2 * n_types // 3
    n_test = n_types - n_train
    if not n_train or not n_test:
        return []
    train_tokens = {side: tokens[side][:n_train] for side in SIDES}
    test_tokens = {side: tokens[side][n_train:n_types] for side in SIDES}

    def vectors_of(chosen: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the vectors of both sides, the source side first."""
        both = [view.units[side][chosen[side]] for side in SIDES]
        return np.concatenate(both).astype(np.float64)

    train, test = vectors_of(train_tokens), vectors_of(test_tokens)
    # The statistics are those of the training words, as the test words must stay unknown.
    mean, scale = train.mean(axis=0), train.std(axis=0)
    scale[scale == 0] = 1.0
    train_is_target = np.arange(len(train)) >= n_train
    test_is_target = np.arange(len(test)) >= n_test
    weights, bias = logistic_regression((train - mean) / scale, train_is_target)
    hits = (((test - mean) / scale) @ weights + bias > 0) == test_is_target
    sentence = np.concatenate([questions.sentence_of[side][test_tokens[side]] for side in SIDES])
    sums = questions.summed(sentence, hits, np.ones(len(hits)))
    figures = measure(sums, accuracy, samples=questions.task.bootstrap).ends
    about = {
        "chance": 0.5,
        "train_words": 2 * n_train,
        "shared_forms_left_out": len(shared),
        "probe": "logistic regression",
    }
    return [
        questions.finding(
            "language", view, "probe-accuracy", figures, len(hits), about, task="language"
        )
    ]
