"""How alike the shapes of two languages' spaces are, whatever map lies between them."""

from __future__ import annotations

import numpy as np

from calque.algebra.normalize import unit_centre_unit
from calque.analyses.finding import Finding
from calque.analyses.questions import SIDES, Questions, View, without_interval
from calque.errors import SettingError
from calque.offsets import offsets_of

_FORMS = 1000  # the most frequent forms, whose mean vectors stand for a language


def laplacian_eigenvalues(x: np.ndarray, *, neighbours: int = 10) -> np.ndarray:
    """Spectrum of the graph that joins each vector with its nearest ones by inner product.

    L = D − A, where A has an edge between two vectors if either is among the `neighbours` nearest of the other.

    Args:
        x: `[n, dim]`, rows of length 1.
        neighbours: edges that each vector asks for; all others, if there are fewer.

    Returns:
        float64 `[n]`, from large to small.
    """
    n = len(x)
    if neighbours < 1:
        raise SettingError(f"a graph of nearest neighbours needs at least 1, got {neighbours}")
    similar = x.astype(np.float64) @ x.astype(np.float64).T
    np.fill_diagonal(similar, -np.inf)
    nearest = np.argsort(-similar, axis=1, kind="stable")[:, : min(neighbours, n - 1)]
    edges = np.zeros((n, n))
    np.put_along_axis(edges, nearest, 1.0, axis=1)
    edges = np.maximum(edges, edges.T)
    return np.linalg.eigvalsh(np.diag(edges.sum(axis=1)) - edges)[::-1]


def eigenvalue_similarity(first: np.ndarray, second: np.ndarray, *, energy: float = 0.9) -> float:
    """Σᵢ (λᵢ − μᵢ)² over the k largest eigenvalues of two Laplacians (Søgaard et al. 2018, §3.1); 0 for equal spectra.

    k is the smaller of the two numbers of largest eigenvalues that make up `energy` of a spectrum's sum. The sum grows with
    the number of vectors: compare only what was computed on as many.

    Args:
        first, second: eigenvalues from large to small.
    """

    def needed(values: np.ndarray) -> int:
        total = np.cumsum(values)
        return int(np.searchsorted(total, energy * total[-1] * (1 - 1e-12)) + 1) if total[-1] > 0 else len(values)

    k = min(needed(first), needed(second), len(first), len(second))
    return float(np.square(first[:k] - second[:k]).sum())


def component_deaths(distances: np.ndarray) -> np.ndarray:
    """When the components of a Rips filtration die: its persistence diagram in dimension 0, where all are born at 0.

    Balls grow until two components touch at the length of an edge of the minimal spanning tree, which Prim's algorithm
    grows here. The one component that never dies is left out.

    Args:
        distances: `[n, n]`, symmetric.

    Returns:
        float64 `[n − 1]`, from small to large.
    """
    n = len(distances)
    nearest = np.array(distances[0], dtype=np.float64) if n else np.zeros(0)
    outside = np.ones(n, dtype=bool)
    outside[:1] = False
    deaths = np.empty(max(n - 1, 0))
    for step in range(n - 1):
        new = int(np.argmin(np.where(outside, nearest, np.inf)))
        deaths[step] = nearest[new]
        outside[new] = False
        np.minimum(nearest, distances[new], out=nearest)
    return np.sort(deaths)


def bottleneck(first: np.ndarray, second: np.ndarray) -> float:
    """Bottleneck distance of two persistence diagrams whose points are born at 0.

    The smallest t for which every point (0, d) has a partner (0, e) of its own with |d − e| ≤ t, or lies within t of the
    diagonal (d/2 ≤ t). For a given t, points with d > 2t must have a partner; by the theorem of Mendelsohn and Dulmage
    (1958) it is enough that those of either diagram can be served each for themselves, and that a walk over the sorted
    numbers decides. t is one of the |d − e| and d/2.

    Args:
        first, second: deaths, in any order.
    """
    a, b = np.sort(first).astype(np.float64), np.sort(second).astype(np.float64)
    candidates = np.unique(np.concatenate([[0.0], a / 2, b / 2, np.abs(a[:, None] - b[None, :]).ravel()]))
    low, high = 0, len(candidates) - 1  # the largest always does
    while low < high:
        middle = (low + high) // 2
        t = candidates[middle]
        if _served(a, b, t) and _served(b, a, t):
            high = middle
        else:
            low = middle + 1
    return float(candidates[low])


def _served(points: np.ndarray, partners: np.ndarray, t: float) -> bool:
    """Whether all points far from the diagonal find a partner of their own: the smallest that is left, in order."""
    slack = 1e-12 * max(1.0, t)
    place, others = 0, partners.tolist()
    for point in points[points > 2 * t + slack].tolist():
        while place < len(others) and others[place] < point - t - slack:
            place += 1
        if place == len(others) or others[place] > point + t + slack:
            return False
        place += 1
    return True


def gromov_hausdorff(x: np.ndarray, y: np.ndarray) -> float:
    """Bound of the Gromov–Hausdorff distance between two spaces (Patra et al. 2019, §2.2; Chazal et al. 2009).

    The bottleneck distance between the persistence diagrams, in dimension 0, of the Rips filtrations of both sets of vectors
    under Euclidean distance. With filtrations by edge length, as here, it is at most twice the Gromov–Hausdorff distance.

    Published code (BLISS and programs after it) hands the *matrix of distances* to a function that takes its rows for
    points, so its figures are distances between rows of distances; here the distances are meant.

    Args:
        x, y: `[n, dim]` and `[m, dim]`, rows of length 1.
    """
    deaths = []
    for side in (x, y):
        wide = side.astype(np.float64)
        deaths.append(component_deaths(np.sqrt(np.maximum(2 - 2 * wide @ wide.T, 0))))
    return bottleneck(*deaths)


def relational_similarity(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's r between the cosines of all pairs of vectors in one space and of their translations in the other (Vulić
    et al. 2020, §2); 1 for isometric spaces.

    Args:
        x, y: `[n, dim]` and `[n, dim']`, rows of length 1; row i of one translates row i of the other.
    """
    if len(x) < 3:
        return float("nan")
    upper = np.triu_indices(len(x), 1)
    first, second = ((side.astype(np.float64) @ side.astype(np.float64).T)[upper] for side in (x, y))
    return float(np.corrcoef(first, second)[0, 1])


def isometry(questions: Questions, view: View, *, n: int = _FORMS, neighbours: int = 10) -> list[Finding]:
    """Eigenvalue similarity and the Gromov–Hausdorff bound (0: the same shape), and relational similarity (1).

    A language is the mean vectors of its most frequent forms in the test text, as many in both, made of unit length,
    centred and of unit length again; relational similarity takes the links' own words, one link for each source form.
    None of these asks how the spaces lie to each other: a rotation changes nothing, and what they say is how far a rotation
    could get. No intervals: words drawn twice would be points at distance 0.

    Args:
        n: forms of each language, or pairs of words, at most.
        neighbours: see `laplacian_eigenvalues`.
    """
    means = [_form_means(questions, view, side) for side in SIDES]
    used = min(n, *(len(side) for side in means))
    linked = _linked(questions, view, n)
    if used < 3 or len(linked) < 3:
        return []
    x, y = (unit_centre_unit(side[:used])[0] for side in means)
    spectra = [laplacian_eigenvalues(side, neighbours=neighbours) for side in (x, y)]
    figures = [
        ("eigenvalue-similarity", eigenvalue_similarity(*spectra), used, {"neighbours": neighbours}),
        ("gromov-hausdorff", gromov_hausdorff(x, y), used, {}),
        ("relational-similarity", relational_similarity(*(
            unit_centre_unit(view.side(side).data[questions.rows[side][linked]])[0] for side in SIDES
        )), len(linked), {}),
    ]  # fmt: skip
    return [
        Finding("isometry", view.name, questions.score(
            metric, without_interval(value), count, {**view.about, **more}, task="isometry", percent=False
        ))
        for metric, value, count, more in figures
    ]  # fmt: skip


def _form_means(questions: Questions, view: View, side) -> np.ndarray:
    """Mean vector of each form that has one, the most frequent first; of equally frequent ones the first in the text."""
    numbers, forms = questions.forms[side]
    rows = np.flatnonzero(view.covered(side))
    order = rows[np.argsort(numbers[rows], kind="stable")]
    counts = np.bincount(numbers[rows], minlength=len(forms))
    present = np.flatnonzero(counts)
    if not len(present):
        return np.zeros((0, view.side(side).dim))
    starts = offsets_of(counts)[present]
    sums = np.add.reduceat(np.asarray(view.side(side).data)[order], starts, axis=0, dtype=np.float64)
    return (sums / counts[present][:, None])[np.argsort(-counts[present], kind="stable")]


def _linked(questions: Questions, view: View, n: int) -> np.ndarray:
    """Links that were asked, one for each source form, in the order of the text."""
    asked = view.answers.queries
    forms = questions.forms["source"][0][questions.rows["source"][asked]]
    return asked[np.sort(np.unique(forms, return_index=True)[1])][:n]
