"""Loops of the fast_align model."""

from __future__ import annotations

import math

from calque.wordalign.loops import loop


@loop
def diagonal(j, m, n, tension, row):
    """Write exp(-tension |i / n - j / m|) for i = 1 to n into `row`; j counts from 1. Returns the sum."""
    below = int(j * n / m)  # positions up to here lie below the diagonal
    ratio = math.exp(-tension / n)
    total = 0.0
    value = math.exp(-tension * (j / m - below / n))
    for i in range(below, 0, -1):
        row[i - 1] = value
        total += value
        value *= ratio
    value = math.exp(-tension * ((below + 1) / n - j / m))
    for i in range(below, n):
        row[i] = value
        total += value
        value *= ratio
    return total


@loop
def expected_feature(shapes, times, tension, exact, row):
    """Sum over all observed words of the feature -|i / n - j / m| that the model expects.

    Args:
        shapes: int64 `[n_shapes, 2]`, lengths m (observed) and n (given) of sentence pairs; times: how many there are.
        row: float64, work space for the longest.
    """
    expected = 0.0
    for k in range(len(shapes)):
        m, n = shapes[k]
        for j in range(1, m + 1):
            total = diagonal(j, m, n, tension, row)
            weighted = 0.0
            for i in range(n):
                weighted -= abs((i + 1) / n - j / m) * row[i]
            if not exact:
                total = transposed_sum(j, m, n, tension)
            expected += times[k] * weighted / total
    return expected


@loop
def transposed_sum(j, m, n, tension):
    """Z with the two lengths exchanged, as the program has it; j may then lie outside the sentence."""
    below = int(j * m / n)
    ratio = math.exp(-tension / m)
    above = m - below if m >= below else (1 << 32) + m - below  # the program's difference is unsigned
    total = 0.0
    if above:
        total += math.exp(-tension * abs((below + 1) / m - j / n)) * (1 - ratio**above) / (1 - ratio)
    if below:
        total += math.exp(-tension * abs(below / m - j / n)) * (1 - ratio**below) / (1 - ratio)
    return total


@loop
def expectation(
    sentences, origin, cells, across, given_offsets, observed, observed_offsets, longest,
    table, null_table, tension, null, exact, learn, counts, null_counts, links, posterior, row, mass,
):  # fmt: skip
    """Posteriors of one direction: expected counts, or the best position of every observed word.

    Returns:
        log-likelihood; feature -|i / n - j / m| summed over the posteriors.
    """
    likelihood = feature = 0.0
    for b in sentences:
        left, cell = observed_offsets[b], origin[b]
        n, m = given_offsets[b + 1] - given_offsets[b], observed_offsets[b + 1] - left
        down, right = (m, 1) if across else (1, n)
        for j in range(m):
            f = observed[left + j]
            if tension > 0:
                empty = null
                even = (1 - null) / diagonal(j + 1, m, n, tension, row)
            else:
                empty = 1 / (n + 1) if null > 0 else 0.0
                even = 1 / (n + 1) if null > 0 else 1 / n
                for i in range(n):
                    row[i] = 1.0
            empty *= null_table[f]
            first = cell + j * right
            mine = cells[first : first + (n - 1) * down + 1 : down]
            total = empty
            for i in range(n):
                p = table[mine[i]] * row[i] * even
                mass[i] = p
                total += p
            likelihood += math.log(total)
            if learn:
                inverse = 1 / total
                null_counts[f] += empty * inverse
                shift = (j + 1 if exact else j) / m
                for i in range(n):
                    p = mass[i] * inverse
                    counts[mine[i]] += p
                    feature -= abs((i + 1) / n - shift) * p
            else:
                best, at = empty, -1
                for i in range(n):
                    if mass[i] > best:
                        best, at = mass[i], i
                links[left + j] = at
                posterior[left + j] = best / total if at >= 0 else 0.0
    return likelihood, feature


@loop
def exp_digamma(x):
    """exp(digamma(x)) for x > 0, to 1e-9: the asymptotic series behind six steps of the recurrence."""
    shifted = 0.0
    if x < 6:
        shifted = 1 / x + 1 / (x + 1) + 1 / (x + 2) + 1 / (x + 3) + 1 / (x + 4) + 1 / (x + 5)
        x += 6
    z = x - 0.5
    z2 = 1 / (z * z)
    series = z * (1 + z2 * (1 / 24 - z2 * (37 / 5760 - z2 * (10313 / 2903040 - z2 * 5509121 / 1393459200))))
    return series * math.exp(-shifted)


@loop
def normalize(across, starts, target, counts, nulls, alpha, total):
    """Probabilities from counts, in place: those of a given type sum to one, or to less under variational Bayes. `total` has a
    0 for every given type."""
    for s in range(len(starts) - 1):
        for p in range(starts[s], starts[s + 1]):
            total[s if across else target[p]] += counts[p] + alpha
    for e in range(len(total)):
        total[e] = (exp_digamma(total[e]) if alpha else total[e]) if total[e] > 0 else 1.0
    for s in range(len(starts) - 1):
        for p in range(starts[s], starts[s + 1]):
            x = counts[p] + alpha
            counts[p] = (exp_digamma(x) if alpha else x) / total[s if across else target[p]]
    whole = 0.0
    for f in range(len(nulls)):
        whole += nulls[f] + alpha
    whole = (exp_digamma(whole) if alpha else whole) if whole > 0 else 1.0
    for f in range(len(nulls)):
        x = nulls[f] + alpha
        nulls[f] = (exp_digamma(x) if alpha else x) / whole
