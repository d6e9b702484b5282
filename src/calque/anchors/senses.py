"""Words with several meanings: their occurrences lie in several clusters, and an anchor for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calque.algebra.clusters import kmeans, squared_distances
from calque.algebra.normalize import unit_rows
from calque.anchors.sums import Anchors, AnchorSums
from calque.errors import SettingError
from calque.offsets import offsets_of


@dataclass(frozen=True)
class SenseAnchors:
    """Anchors of senses, and which words have several.

    Attributes:
        anchors: by layer; a word with several senses stands there once for each, its senses side by side.
        whole: by layer, the anchors of the words themselves.
        senses: int64 `[n_words]`, number of senses of each word of `whole`, at least 1.
        silhouettes: float64 `[n_words]`, mean silhouette of the best division into two clusters or more; NaN where there
            were too few occurrences to ask, or no division has clusters of some size.
    """

    anchors: dict[int, Anchors]
    whole: dict[int, Anchors]
    senses: np.ndarray
    silhouettes: np.ndarray

    def single(self) -> dict[int, Anchors]:
        """Anchors of the words with one sense only: Zhang et al.'s (2019) removal of multi-sense words."""
        rows = np.flatnonzero(self.senses == 1)
        return {layer: anchors.take(rows) for layer, anchors in self.whole.items()}


def split_senses(
    sums: AnchorSums,
    *,
    at_least: int = 1,
    most: int | None = None,
    most_senses: int = 5,
    layer: int | None = None,
    clear: float = 0.2,
    share: float = 0.1,
    enough: int = 20,
    restarts: int = 4,
    seed: int = 0,
) -> SenseAnchors:
    """Divide the occurrences of each word into clusters, one for each sense (Zhang et al. 2019).

    Zhang et al. take the words with several senses for noise and leave them out (`SenseAnchors.single`), or put
    anchors of clusters in the place of the word's one anchor (`SenseAnchors.anchors`). Here the occurrences are those
    that `sums` drew (`samples`), at unit length; they are divided by k-means (k-means++ starts, the best of some
    restarts) for k = 2, 3, … `most_senses`, and k is the one with the largest mean silhouette (Rousseeuw 1987). As a
    silhouette cannot speak for k = 1, a word has one sense unless that value reaches `clear`. A division counts only
    if every cluster is large enough (`share`): a single outlier is no sense.

    Args:
        at_least, most: which words get anchors, as in `AnchorSums.finish`.
        most_senses: K, senses of a word at most.
        layer: the layer whose vectors are divided; None for the last. Other layers get the same clusters.
        clear: silhouette from which a word has several senses. Occurrences around one centre divide at about 0.05 to
            0.15 in tens of dimensions, and lower in hundreds; clusters apart by twice their width at 0.3 and more.
        share: fraction of the sample that the smallest cluster needs.
        enough: kept occurrences below which a word has one sense.
        restarts, seed: of k-means.

    Raises:
        SettingError: sums without samples, or a layer that they have not.
    """
    if sums.samples is None:
        raise SettingError("these sums kept no occurrences: make them with, say, samples=100")
    chosen = sums.layers[-1] if layer is None else layer
    if chosen not in sums.layers:
        raise SettingError(f"layer {chosen}: these sums have {list(sums.layers)}")
    if most_senses < 2:
        raise SettingError(f"most_senses={most_senses}, expected 2 or more")
    place, which = sums.layers.index(chosen), {"at_least": at_least, "most": most}
    unsplit, order = sums.finish(**which), sums.order(**which)
    senses, silhouettes = np.ones(len(order), dtype=np.int64), np.full(len(order), np.nan)
    rng = np.random.default_rng(seed)
    clusters: dict[int, np.ndarray] = {}
    for k, code in enumerate(order):
        kept = sums.samples.of(int(code))
        if kept.shape[1] < max(enough, 4):
            continue
        labels, silhouettes[k] = divide(unit_rows(kept[place]).astype(np.float64), most_senses, share, restarts, rng)
        if labels is not None and silhouettes[k] >= clear:
            clusters[k], senses[k] = labels, labels.max() + 1
    owner = np.repeat(np.arange(len(order)), senses)
    split = {n: of_layer.take(owner) for n, of_layer in unsplit.items()}  # arrays of its own, changed below
    counts = split[chosen].counts
    first = offsets_of(senses)[:-1]
    for k, labels in clusters.items():
        kept, sizes = sums.samples.of(int(order[k])), np.bincount(labels)
        rows = first[k] + np.arange(senses[k])
        counts[rows] = _rounded(sizes * (counts[rows[0]] / len(labels)), int(unsplit[chosen].counts[k]))
        for number, n in enumerate(sums.layers):
            for sense, row in enumerate(rows):
                members = kept[number][labels == sense].astype(np.float64)
                anchors: Any = split[n]
                anchors.vectors[row] = centre = members.mean(axis=0)
                anchors.variances[row] = ((members - centre) ** 2).sum(axis=1).mean()
                anchors.norms[row] = np.linalg.norm(members, axis=1).mean()
    by_layer = {n: replace(of_layer, counts=counts) for n, of_layer in split.items()}
    return SenseAnchors(by_layer, unsplit, senses, silhouettes)


def divide(
    x: np.ndarray, most: int, share: float, restarts: int, rng: np.random.Generator
) -> tuple[np.ndarray | None, float]:
    """The division of vectors into two clusters or more that has the largest silhouette.

    Args:
        x: `[n, dim]`.
        most: clusters.
        share: of the vectors that the smallest cluster needs.
        restarts, rng: of k-means.

    Returns:
        int64 `[n]`, larger clusters first, and the silhouette; None and NaN where no division has clusters of that size.
    """
    gram = x @ x.T  # all that k-means and silhouettes need: what follows does not depend on the dimensions
    squared = squared_distances(gram)
    distances, best, value = np.sqrt(squared), None, np.nan
    for k in range(2, min(most, len(x) // 2) + 1):
        labels = kmeans(gram, squared, k, restarts, rng)
        sizes = np.bincount(labels, minlength=k)
        if sizes.min() < max(2.0, share * len(x)):
            continue
        new = silhouette(distances, labels)
        if best is None or new > value:
            best, value = np.argsort(np.argsort(-sizes, kind="stable"))[labels], new
    return best, value


def silhouette(distances: np.ndarray, labels: np.ndarray) -> float:
    """Mean silhouette (Rousseeuw 1987): (b − a) / max(a, b), with a a vector's mean distance from the others of its
    cluster and b that from the nearest other cluster; 0 for a cluster of one.

    Args:
        distances: `[n, n]`.
        labels: int64 `[n]`, no cluster empty, two or more.
    """
    inside = labels[:, None] == np.arange(labels.max() + 1)
    sums, sizes = distances @ inside, inside.sum(axis=0)
    size = sizes[labels]
    a = sums[inside] / np.maximum(size - 1, 1)
    b = np.where(inside, np.inf, sums / sizes).min(axis=1)
    return float(np.where(size > 1, (b - a) / np.maximum(np.maximum(a, b), 1e-300), 0.0).mean())


def _rounded(quotas: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers near `quotas` that sum to `total`, none below 1."""
    numbers = np.maximum(np.floor(quotas).astype(np.int64), 1)
    numbers[0] += total - numbers.sum()
    return numbers
