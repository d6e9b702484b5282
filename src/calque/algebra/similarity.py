"""Exact nearest neighbours by cosine and by CSLS, both directions from one pass over the similarities."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calque.algebra.products import error_bound, full_precision
from calque.algebra.rows import HeldRows, Rows
from calque.algebra.sweep import Engine, Lists, dots, sweep
from calque.errors import SettingError

_SPARE = 15  # candidates kept beyond those asked for: the more, the fewer rows lack the certificate
_STRIDE = 32  # one vector in so many is the sample that predicts hubness
_BLOCK = (2048, 4096)  # rows and columns of the search for challengers
_ROWS = 65_536  # rows whose lists are decided together


@dataclass(frozen=True)
class Neighbours:
    """Nearest neighbours in both directions.

    Attributes:
        targets: int64 `[n_source_queries, n_best]`, rows of the target matrix, best first; at most as wide
            as there are target vectors.
        target_scores: float64, their similarity (cosine, or CSLS).
        sources, source_scores: the same for the target queries.
        source_hubness, target_hubness: float64 `[n]` and `[m]`, mean cosine of each vector with its k
            nearest on the other side: r in CSLS. None for plain cosine.
        searched: how much of the similarity matrix was looked at a second time, from 0 to 1.
    """

    targets: np.ndarray
    target_scores: np.ndarray
    sources: np.ndarray
    source_scores: np.ndarray
    source_hubness: np.ndarray | None
    target_hubness: np.ndarray | None
    searched: float


def csls_neighbours(
    source: np.ndarray | Tensor | Rows,
    target: np.ndarray | Tensor | Rows,
    *,
    k: int = 10,
    n_best: int = 1,
    source_queries: np.ndarray | None = None,
    target_queries: np.ndarray | None = None,
    keep: int | None = None,
    engine: Engine | None = None,
) -> Neighbours:
    """Nearest neighbours by cross-domain similarity local scaling (Conneau et al. 2018a, Eq. 3).

    CSLS(x, y) = 2·cos(x, y) − r(x) − r(y), where r(x) is the mean cosine of x with its k nearest target
    vectors and r(y) that of y with its k nearest source vectors. Equal scores go to the smaller index.

    One sweep (see `calque.algebra.sweep`) keeps two lists for every row and column: the k largest cosines,
    which give r, and the `keep` largest of cos − r̂/2, where r̂ is a guess of the other side's r from a
    sample. Ranked again by CSLS, the second list gives candidates. If its last value is c, any vector y
    outside the list has 2·cos(x, y) − r(y) ≤ 2c + r̂(y) − r(y): where that is below the best candidate for
    every y, the candidate is certainly the best. For the other rows the products with just those y that
    could be better are computed again. Without the guess (r̂ = 0) this is the certificate
    best ≥ 2·cos − min r of the last cosine kept, which in an encoder's off-centre space fails so often that
    another third to three quarters of the products are needed; with it, a few per cent.

    Cosines that decide are recomputed in float64, and c is widened by a bound of the sweep's rounding error:
    the result is that of a float64 search.

    Args:
        source, target: `[n, dim]` and `[m, dim]`, rows of length 1 (or 0), as `unit_rows` makes them. A
            tensor's device is where the work is done. `UnitRows` makes them of vectors in float16 or in a mapped file, a
            block at a time, with the same result.
        k: neighbourhood size.
        n_best: how many neighbours to return for each query.
        source_queries, target_queries: row numbers to find neighbours for; all if None. r and the candidates
            are always those of all rows.
        keep: length of the lists; a matter of speed alone.
        engine: see `sweep`.

    Raises:
        SettingError: shapes that do not fit, a component that is not finite, or k or n_best below 1.
    """
    if k < 1:
        raise SettingError(f"CSLS needs a neighbourhood of at least 1, got k={k}")
    return _neighbours(source, target, k, n_best, source_queries, target_queries, keep, engine)


def cosine_neighbours(
    source: np.ndarray | Tensor | Rows,
    target: np.ndarray | Tensor | Rows,
    *,
    n_best: int = 1,
    source_queries: np.ndarray | None = None,
    target_queries: np.ndarray | None = None,
    keep: int | None = None,
    engine: Engine | None = None,
) -> Neighbours:
    """Nearest neighbours by cosine; arguments as in `csls_neighbours`."""
    return _neighbours(source, target, 0, n_best, source_queries, target_queries, keep, engine)


def _neighbours(source, target, k, n_best, source_queries, target_queries, keep, engine) -> Neighbours:
    if n_best < 1:
        raise SettingError(f"at least one neighbour must be asked for, got n_best={n_best}")
    x, y = _matrix(source, "source"), _matrix(target, "target")
    if x.shape[1] != y.shape[1] or x.device != y.device:
        raise SettingError(
            f"source vectors of {x.shape[1]} dimensions on {x.device}, target vectors of {y.shape[1]} on {y.device}"
        )
    if not math.isfinite(error_bound(x, y)):
        raise SettingError("a vector has a component that is not a finite number")
    if not len(x) or not len(y):
        return _nobody(x, y, k, source_queries, target_queries)
    ranked, nearest = max(keep or n_best + _SPARE, n_best), k + 2 if k else 0
    if k:
        bias_x, bias_y = _foresee(x, y, k, engine)
    else:
        bias_x, bias_y = (np.zeros(len(side), dtype=np.float32) for side in (x, y))
    source_ranked, target_ranked = (
        0 if rows is not None and not len(rows) else ranked for rows in (source_queries, target_queries)
    )
    asked = source_ranked, target_ranked
    seen = sweep(x, y, nearest, asked, bias_x=bias_x, bias_y=bias_y, engine=engine)
    source_hubness = _hubness(x, y, seen.rows, seen.error, k, engine)
    target_hubness = _hubness(y, x, seen.columns, seen.error, k, engine)
    targets, target_scores, forward_searched = _rank(
        x, y, seen.ranked_rows, seen.error, bias_y, target_hubness, n_best, source_queries, engine
    )
    sources, source_scores, backward_searched = _rank(
        y, x, seen.ranked_columns, seen.error, bias_x, source_hubness, n_best, target_queries, engine
    )
    searched = (forward_searched + backward_searched) / (len(x) * len(y))
    if k:
        target_scores -= source_hubness[slice(None) if source_queries is None else source_queries][:, None]
        source_scores -= target_hubness[slice(None) if target_queries is None else target_queries][:, None]
        return Neighbours(targets, target_scores, sources, source_scores, source_hubness, target_hubness, searched)
    return Neighbours(targets, target_scores / 2, sources, source_scores / 2, None, None, searched)


def _matrix(vectors: np.ndarray | Tensor | Rows, name: str) -> Rows:
    """As contiguous float32 rows; copied only where they are not that already."""
    if isinstance(vectors, Rows):
        return vectors
    if isinstance(vectors, np.ndarray):
        matrix = torch.from_numpy(np.require(vectors, dtype=np.float32, requirements=["C", "W"]))
    else:
        matrix = vectors.detach().float().contiguous()
    if matrix.ndim != 2:
        raise SettingError(f"{name} vectors must be a matrix, got shape {tuple(matrix.shape)}")
    return HeldRows(matrix)


def _nobody(x: Rows, y: Rows, k: int, source_queries, target_queries) -> Neighbours:
    """What there is to say where one side is empty."""
    counts = [
        len(x if source_queries is None else source_queries),
        len(y if target_queries is None else target_queries),
    ]
    hubness = (np.zeros(len(x)), np.zeros(len(y))) if k else (None, None)
    names, scores = ([np.zeros((n, 0), dtype=kind) for n in counts] for kind in (np.int64, np.float64))
    return Neighbours(names[0], scores[0], names[1], scores[1], *hubness, 0.0)


def _foresee(x: Rows, y: Rows, k: int, engine: Engine | None) -> tuple[np.ndarray, np.ndarray]:
    """Guess r/2 of every vector of both sides from a sample of the other side; float32 `[n]` and `[m]`.

    Every 32nd vector of a side is compared with the whole other side. The largest cosines with the sample
    predict the mean of the k largest with all; the weights are fitted on the vectors in the sample, whose r
    is now known.
    """
    samples = [np.arange(0, len(side), min(_STRIDE, max(1, len(side) // 128))) for side in (x, y)]
    part_x, part_y = (side.take(rows) for side, rows in zip((x, y), samples, strict=True))
    down, across = (sweep(*sides, k, engine=engine) for sides in ((part_x, y), (x, part_y)))
    return (
        _predict(across.rows.values, samples[0], down.rows.values, k) / 2,
        _predict(down.columns.values, samples[1], across.columns.values, k) / 2,
    )


def _predict(seen: np.ndarray, sample: np.ndarray, known: np.ndarray, k: int) -> np.ndarray:
    """Least squares on three features: the largest seen, and the mean of the 4 and of the k largest."""
    features = np.stack([seen[:, : min(size, seen.shape[1])].mean(axis=1) for size in (1, 4, k)], axis=1)
    features = np.hstack([features, np.ones((len(seen), 1))]).astype(np.float64)
    weights = np.linalg.lstsq(features[sample], known.mean(axis=1, dtype=np.float64), rcond=1e-6)[0]
    return np.clip(features @ weights, -1.0, 1.0).astype(np.float32)


def _hubness(x: Rows, y: Rows, lists: Lists, error: float, k: int, engine: Engine | None) -> np.ndarray:
    """r: the mean of the k largest cosines, or of all there are; zero for k = 0, which makes CSLS cosine."""
    hubness = np.zeros(len(x))
    for start in range(0, len(x) if k else 0, _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(x)))
        hubness[rows] = _mean_of_largest(x, y, lists, rows, error, k, engine)
    return hubness


def _mean_of_largest(x, y, lists: Lists, rows: np.ndarray, error: float, k: int, engine) -> np.ndarray:
    """r of some rows, by cosines in float64 of all that can be among the k largest."""
    seen, names = lists.values[rows], lists.indices[rows]
    k = min(k, names.shape[1])
    close = seen >= seen[:, [k - 1]].astype(np.float64) - 2 * error
    owners, places = np.nonzero(close)
    cosines = np.full(seen.shape, -np.inf)
    cosines[owners, places] = dots(x, y, rows[owners], names[owners, places], engine=engine)
    return np.sort(cosines, axis=1)[:, -k:].mean(axis=1)


def _rank(
    x: Rows,
    y: Rows,
    lists: Lists,
    error: float,
    bias: np.ndarray,
    hubness: np.ndarray,
    n_best: int,
    queries: np.ndarray | None,
    engine: Engine | None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """The `n_best` of each query by 2·cos − hubness: certified, or searched for."""
    rows = np.arange(len(x)) if queries is None else np.asarray(queries, dtype=np.int64)
    n_best = min(n_best, len(y))
    best, scores = np.empty((len(rows), n_best), dtype=np.int64), np.empty((len(rows), n_best))
    for start in range(0, len(rows), _ROWS):
        piece = slice(start, start + _ROWS)
        best[piece], scores[piece] = _best_listed(x, y, lists, rows[piece], error, bias, hubness, n_best, engine)
    if lists.indices.shape[1] == len(y) or not len(rows):
        return best, scores, 0
    ceiling = 2 * (lists.values[rows, -1].astype(np.float64) + error)  # of 2·cos − 2·bias outside the list
    searched = _search_challengers(x, y, rows, ceiling, 2.0 * bias - hubness, hubness, best, scores, engine)
    return best, scores, searched


def _best_listed(x, y, lists, rows, error, bias, hubness, n_best, engine) -> tuple[np.ndarray, np.ndarray]:
    """The best of the lists of some rows, and their exact scores."""
    names, seen = lists.indices[rows], lists.values[rows]
    # What the sweep saw says which candidates deserve an exact score: those within its error of the n-th.
    scores = 2 * (seen.astype(np.float64) + bias[names]) - hubness[names]
    close = scores >= -np.partition(-scores, n_best - 1, axis=1)[:, [n_best - 1]] - 4 * error
    owners, places = np.nonzero(close)
    chosen = names[owners, places]
    scores[...] = -np.inf
    scores[owners, places] = 2 * dots(x, y, rows[owners], chosen, engine=engine) - hubness[chosen]
    order = np.lexsort((names, -scores), axis=1)[:, :n_best]
    return np.take_along_axis(names, order, axis=1), np.take_along_axis(scores, order, axis=1)


def _search_challengers(x, y, rows, ceiling, surplus, hubness, best, scores, engine) -> int:
    """Look for vectors outside the lists that could be among the best; change `best` and `scores` in place.

    A vector y outside the list of x scores at most ceiling(x) + surplus(y). Those who can reach the n-th
    best score of x are the first so many by surplus; rows that reach about equally far share a product.

    Returns the number of products computed.
    """
    order = np.argsort(-surplus, kind="stable")
    reach = len(order) - np.searchsorted(surplus[order[::-1]], scores[:, -1] - ceiling, side="left")
    uncertain = np.argsort(-reach, kind="stable")
    uncertain = uncertain[: np.count_nonzero(reach)]
    falling = -reach[uncertain]
    slack = 2 * error_bound(x, y) + 1e-6  # of the float32 product below
    start = searched = 0
    while start < len(uncertain):
        far = -int(falling[start])
        stop = max(np.searchsorted(falling, -0.8 * far, side="right"), start + _BLOCK[0] // 8)
        block = uncertain[start : min(stop, start + _BLOCK[0])]
        start += len(block)
        stripe = x.take(rows[block])
        for left in range(0, far, _BLOCK[1]):
            names = order[left : min(left + _BLOCK[1], far)]
            searched += len(block) * len(names)
            with full_precision():
                product = stripe @ y.take(names).T
                product *= 2
                product -= torch.from_numpy(hubness[names]).to(product)
                floor = torch.from_numpy(scores[block, -1] - slack).to(product)
                hits = torch.nonzero(product >= floor[:, None]).cpu().numpy()
            if len(hits):
                pairs = rows[block[hits[:, 0]]], names[hits[:, 1]]
                values = 2 * dots(x, y, *pairs, engine=engine) - hubness[pairs[1]]
                _admit(best, scores, block, hits[:, 0], pairs[1], values)
    return searched


def _admit(best, scores, block, owners, names, values) -> None:
    """Merge new candidates and their scores into the lists of the rows `block`; `owners` are positions in it."""
    width = best.shape[1]
    owners = np.concatenate([np.repeat(np.arange(len(block)), width), owners])
    names = np.concatenate([best[block].reshape(-1), names])
    values = np.concatenate([scores[block].reshape(-1), values])
    order = np.lexsort((names, -values, owners))
    owners, names, values = owners[order], names[order], values[order]
    # A candidate that was in the list already comes twice, with the same score: side by side.
    fresh = np.ones(len(owners), dtype=bool)
    fresh[1:] = (owners[1:] != owners[:-1]) | (names[1:] != names[:-1])
    owners, names, values = owners[fresh], names[fresh], values[fresh]
    place = np.arange(len(owners)) - np.searchsorted(owners, owners)
    chosen = place < width
    best[block[owners[chosen]], place[chosen]] = names[chosen]
    scores[block[owners[chosen]], place[chosen]] = values[chosen]
