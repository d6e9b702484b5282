"""How many senses a word has, and where they lie, from the last states that it was seen with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from calque.algebra.normalize import unit_rows
from calque.anchors.senses import kmeans
from calque.nn.senses import SenseTable

_ENOUGH = 20  # states of a word below which nothing can be said
_MOST = 500  # states of a word that are looked at
_STARTS = 4


@torch.no_grad()
def group(tables: Sequence[SenseTable], *, apart: float, near: float, share: float, seed: int) -> torch.Tensor:
    """Divide the queued states of each word into clusters, and put the centres of its senses there.

    The states are compared as senses are selected: after the projection, at unit length, those of several tables side by
    side. They are divided by k-means into as many clusters as the word may have senses, or else fewer, until no two centres
    are nearer by cosine than `near` and no cluster is smaller than `share`. But that a word has several senses at all is
    believed only where some such division has no two centres nearer than `apart`.

    Args:
        tables: of one model; their queues hold the same text.
        apart: largest cosine between the centres of the senses of a word that is said to have several.
        near: the same of a word that is known to have several.
        share: of the word's states that a sense needs.
        seed: of the starts.

    Returns:
        bool `[n_classes]`, the senses that have states.
    """
    first = tables[0]
    live = torch.zeros_like(first.live)
    live[first.index[:, 0]] = True
    rows = _same_occurrences([table.queued.cpu().numpy() for table in tables], int(first.seen))
    words = first.queued.cpu().numpy()[rows[0]]
    order = np.argsort(words, kind="stable")
    ends = np.flatnonzero(np.diff(words[order], append=-2)) + 1
    senses = (first.index >= 0).sum(1).cpu().numpy()
    for begin, end in zip(np.concatenate([[0], ends[:-1]]), ends, strict=True):
        word = int(words[order[begin]])
        if end - begin < _ENOUGH or word < 0 or senses[word] < 2:
            continue
        chosen = order[max(begin, end - _MOST) : end]
        states = [table.queue[torch.from_numpy(of[chosen])] for table, of in zip(tables, rows, strict=True)]
        x = torch.cat([table.projected(part) for table, part in zip(tables, states, strict=True)], dim=1)
        rng = np.random.default_rng([seed, word])
        labels = divide(x.double().cpu().numpy(), int(senses[word]), apart, near, share, rng)
        for sense in range(labels.max() + 1):
            number = first.index[word, sense]
            live[number] = True
            members = torch.from_numpy(labels == sense)
            for table, part in zip(tables, states, strict=True):
                table.centres[number] = part[members].mean(0)
    return live


def divide(x: np.ndarray, most: int, apart: float, near: float, share: float, rng: np.random.Generator) -> np.ndarray:
    """Clusters that are apart, larger ones first: as many as possible, by k-means for each number of them.

    Args:
        x: float64 `[n, dim]`.
        most: clusters at most.
        apart, near, share: see `group`.
        rng: for k-means.

    Returns:
        int64 `[n]`, cluster of each.
    """
    gram = x @ x.T
    squares = np.diag(gram)
    squared = np.maximum(squares[:, None] + squares - 2 * gram, 0.0)
    best, several = None, False
    for k in range(most, 1, -1):
        labels = np.unique(kmeans(gram, squared, k, _STARTS, rng), return_inverse=True)[1]
        sizes = np.bincount(labels)
        if len(sizes) < 2 or sizes.min() < share * len(x):
            continue
        centres = unit_rows(np.stack([x[labels == j].mean(0) for j in range(len(sizes))]))
        cosines = centres @ centres.T
        np.fill_diagonal(cosines, -1.0)
        if best is None and cosines.max() <= near:
            best = np.argsort(np.argsort(-sizes, kind="stable"))[labels]
        several = several or bool(cosines.max() <= apart)
        if several and best is not None:
            return best
    return np.zeros(len(x), dtype=np.int64)


def _same_occurrences(queued: Sequence[np.ndarray], seen: int) -> list[np.ndarray]:
    """Places of the same occurrences in each queue.

    A model that reads forwards predicts each word but the first of a text, one that reads backwards each but the last: what
    stands at a place of the one queue stands at the next of the other; but the last of the one has no next.

    Args:
        queued: words of each queue.
        seen: states that there have been.
    """
    if len(queued) == 1:
        return [np.arange(len(queued[0]))]
    forwards = np.arange(len(queued[0]))
    backwards = (forwards + 1) % len(forwards)
    same = (queued[0][forwards] == queued[1][backwards]) & (backwards != seen % len(forwards))
    return [forwards[same], backwards[same]]
