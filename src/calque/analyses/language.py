"""Whether a word vector betrays its language."""

from __future__ import annotations

import numpy as np

from calque.analyses.finding import Finding
from calque.analyses.questions import SIDES, Questions, View
from calque.tasks.bootstrap import accuracy

_WORDS = 5000  # of each language
_STEPS = 100


def logistic_regression(x: np.ndarray, y: np.ndarray, *, penalty: float = 1.0) -> tuple[np.ndarray, float]:
    """The linear probe: minimises Σ log(1 + exp(−s(xw + b))) + penalty/2 · ‖w‖², where s is 1 for `y` and −1 otherwise.

    Newton's method with steps halved until the loss falls. The loss is strictly convex in w, so there is one answer.

    Args:
        x: `[n, dim]`.
        y: bool `[n]`.
        penalty: of the weights, not of b.

    Returns:
        w, float64 `[dim]`, and b.
    """
    x1 = np.concatenate([np.asarray(x, dtype=np.float64), np.ones((len(x), 1))], axis=1)
    sign, weights = np.where(y, 1.0, -1.0), np.zeros(x1.shape[1])
    ridge = np.full(x1.shape[1], float(penalty))
    ridge[-1] = 0.0

    def loss(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -sign * (x1 @ w)).sum() + 0.5 * (ridge * w * w).sum())

    current = loss(weights)
    for _ in range(_STEPS):
        p = 0.5 * (1 + np.tanh(0.5 * (x1 @ weights)))
        gradient = x1.T @ (p - (sign > 0)) + ridge * weights
        if np.abs(gradient).max() < 1e-8 * len(x1):
            break
        # The last place has no penalty: a little keeps the matrix from being singular where p is 0 or 1 everywhere.
        curvature = (x1 * (p * (1 - p))[:, None]).T @ x1 + np.diag(ridge + 1e-9)
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while (new := loss(weights - size * step)) > current and size > 1e-8:
            size /= 2
        if new >= current:
            break
        weights, current = weights - size * step, new
    return weights[:-1], float(weights[-1])


def language(questions: Questions, view: View, *, words: int = _WORDS, seed: int = 0) -> list[Finding]:
    """Accuracy of a linear probe that tells the language of words it has not seen; chance is one half.

    Each form comes once, where it first stands in the test text, and forms that both languages have are left out: nothing
    could be told of them. Two thirds of the forms, as many of each language, train the probe (unit vectors, each dimension
    standardised); the others are asked. Alignment should make it fall. It need not reach chance for retrieval to be good:
    a probe needs one direction in which the languages differ, the nearest neighbour a small distance in all.

    Args:
        words: forms of each language, at most.
        seed: of the choice and division of the forms.
    """
    shared = set(questions.forms["source"][1]) & set(questions.forms["target"][1])
    rng = np.random.default_rng(seed)
    rows = []
    for side in SIDES:
        numbers, forms = questions.forms[side]
        first = np.sort(np.unique(numbers, return_index=True)[1])
        distinct = np.array([form not in shared for form in forms], dtype=bool)
        first = first[distinct[numbers[first]] & view.covered(side)[first]]
        rows.append(rng.permutation(first))
    used = min(words, *(len(side) for side in rows))
    known = 2 * used // 3
    if known < 1 or used == known:
        return []
    parts = [(side, chosen[:known], chosen[known:used]) for side, chosen in zip(SIDES, rows, strict=True)]
    train, test = (np.concatenate([view.units[part[0]][part[k]] for part in parts]).astype(np.float64) for k in (1, 2))
    mean, scale = train.mean(axis=0), train.std(axis=0)
    scale[scale == 0] = 1.0
    weights, bias = logistic_regression((train - mean) / scale, np.arange(len(train)) >= known)
    hits = (((test - mean) / scale) @ weights + bias > 0) == (np.arange(len(test)) >= used - known)
    sentence = np.concatenate([np.searchsorted(questions.offsets[s], asked, side="right") - 1 for s, _, asked in parts])
    weighted = [np.bincount(sentence, weights=w, minlength=len(questions.corpus)) for w in (hits, np.ones(len(hits)))]
    figures = questions.resamples.interval(np.stack(weighted, axis=1), accuracy)
    about = {
        **view.about, "chance": 0.5, "train_words": 2 * known, "shared_forms_left_out": len(shared),
        "probe": "logistic regression",
    }  # fmt: skip
    score = questions.score("probe-accuracy", figures, len(hits), about, task="language")
    return [Finding("language", view.name, score)]
