"""Maximum spanning trees for dependency parsing."""

from __future__ import annotations

import numpy as np

from calque.errors import SettingError


def maximum_spanning_trees(scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return, for each sentence of a batch, the single-root tree with the largest sum of arc
    scores:

        argmax over trees h of  sum over i of scores[i, h(i)]

    In the algorithm of Chu & Liu (1965) and Edmonds (1967), every word first gets its best head. A
    cycle is contracted to one node, whose incoming arcs are scored by their gain over the arcs they
    replace, and the smaller graph is solved recursively. A single root is enforced by subtracting
    from all root arcs a constant so large that a tree with fewer roots always scores higher
    ("Please mind the root", Zmigrod, Vieira & Cotterell 2020, §3).

    Args:
        scores: arc scores `[n_sentences, words, words + 1]`, in which row `i` is word `i + 1` as
            the dependent, column 0 is the artificial root and column `j` is word `j` as the head.
            The diagonal `scores[:, i, i + 1]` and entries beyond a sentence's length are ignored. A
            score of −inf forbids an arc; if every tree contains forbidden arcs, the returned tree
            contains as few of them as possible.
        lengths: number of words of each sentence, int64 `[n_sentences]`.

    Returns:
        the concatenated heads of the words of all sentences, int32 `[sum of the lengths]`. A head
        is the 1-based position of a word, or 0 if the word is the root. Scores are summed in
        float64, and ties are broken deterministically.

    Raises:
        SettingError: the shape of `scores` is wrong, or a score is NaN or +inf.

    Example:
        >>> maximum_spanning_trees(np.array([[[9.0, 0.0, 5.0], [8.0, 6.0, 0.0]]]), np.array([2]))
        array([0, 1], dtype=int32)
    """
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    if scores.ndim != 3 or scores.shape[2] != scores.shape[1] + 1 or len(scores) != len(lengths):
        raise SettingError(
            f"scores must have shape [{len(lengths)} sentences, words, words + 1], got "
            f"{scores.shape}"
        )
    heads = [_best_heads(scores[k, :n, : n + 1], k) for k, n in enumerate(lengths.tolist())]
    return np.concatenate([np.zeros(0, dtype=np.int32), *heads])


def _best_heads(scores: np.ndarray, sentence: int) -> np.ndarray:
    """Return the head of each word of a sentence, int32 `[n]`."""
    n = len(scores)
    # Row and column 0 belong to the artificial root, which has no head.
    weight = np.full((n + 1, n + 1), -np.inf)
    weight[1:] = scores
    np.fill_diagonal(weight, -np.inf)
    if np.isnan(weight).any() or weight.max(initial=-np.inf) == np.inf:
        raise SettingError(f"scores of sentence {sentence} must be finite or -inf, got NaN or +inf")
    finite = weight[np.isfinite(weight)]
    low, spread = (finite.min(), np.ptp(finite)) if len(finite) else (0.0, 0.0)
    # Forbidden arcs get a weight so low that a tree with fewer forbidden arcs is always better.
    worst = low - n * spread - max(1.0, abs(low))
    weight[1:] = np.maximum(weight[1:], worst)
    np.fill_diagonal(weight, -np.inf)
    heads = _contracted(weight)
    if (heads[1:] == 0).sum() > 1:
        weight[1:, 0] -= 1.0 + (n + 1) * (weight[1:].max() - worst)
        heads = _contracted(weight)
    return heads[1:].astype(np.int32)


def _contracted(weight: np.ndarray) -> np.ndarray:
    """Return the heads of the best tree, int64 `[n]`; node 0, the root, has head 0.

    Args:
        weight: weight of the arc from the column's node to the row's node, `[n, n]`; −inf on the
            diagonal and in row 0.
    """
    heads = weight.argmax(axis=1)
    heads[0] = 0
    cycle = _cycle(heads)
    if cycle is None:
        return heads
    rest = np.setdiff1d(np.arange(len(heads)), cycle)
    # gain[i, h]: gain of replacing the head of the i-th node of the cycle with node h
    gain = weight[cycle] - weight[cycle, heads[cycle]][:, None]
    # For each node outside the cycle: its best dependent and its best head in the cycle.
    entry = gain[:, rest].argmax(axis=0)
    head_in_cycle = weight[rest][:, cycle].argmax(axis=1)
    # In the smaller graph, the last node is the contracted cycle, and node 0 is still the root.
    smaller = np.full((len(rest) + 1, len(rest) + 1), -np.inf)
    smaller[:-1, :-1] = weight[np.ix_(rest, rest)]
    smaller[-1, :-1] = gain[entry, rest]
    smaller[1:-1, -1] = weight[rest, cycle[head_in_cycle]][1:]
    solved = _contracted(smaller)
    inside = solved[:-1] == len(rest)
    outside_heads = rest[np.minimum(solved[:-1], len(rest) - 1)]
    heads[rest] = np.where(inside, cycle[head_in_cycle], outside_heads)
    # The node outside the cycle that is the head of the contracted cycle replaces one arc of it.
    entered = solved[-1]
    heads[cycle[entry[entered]]] = rest[entered]
    return heads


def _cycle(heads: np.ndarray) -> np.ndarray | None:
    """Return the nodes of a cycle, or None if every node leads to node 0."""
    # Start of the walk that visited each node, or 0 if it was not visited.
    state = np.zeros(len(heads), dtype=np.int64)
    state[0] = -1
    for start in range(1, len(heads)):
        node = start
        while not state[node]:
            state[node] = start
            node = heads[node]
        if state[node] == start:  # this walk has returned to the node
            cycle = [node]
            while heads[cycle[-1]] != node:
                cycle.append(heads[cycle[-1]])
            return np.array(cycle)
    return None
