"""Compare the models with naive implementations of their formulas, on texts small enough for
enumeration.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from calque.wordalign import fast_align, gibbs, hmm
from calque.wordalign.bitext import GOLDEN, Bitext, Side, unit
from calque.wordalign.fast_align import DiagonalModel, FastAlignSettings
from calque.wordalign.gibbs import FERTILITIES
from calque.wordalign.hmm import LANES, HmmPass, HmmSettings, first_jumps, spread, train
from calque.wordalign.model import Job
from calque.wordalign.prior import prior_of
from calque.wordalign.similarity import Similarities

TEXT = [
    ([0, 1, 2], [0, 1, 2, 1]),
    ([2, 0], [2, 0, 3]),
    ([3], [3, 3]),
    ([1, 3, 4, 0, 2], [1, 0]),
    ([], [1]),
    ([4, 4], [2, 4]),
]
N_SOURCE, N_TARGET = 5, 5


def side(sentences, n_types):
    offsets = np.concatenate([[0], np.cumsum([len(words) for words in sentences])]).astype(np.int64)
    return Side(
        np.array([word for words in sentences for word in words], dtype=np.int32), offsets, n_types
    )


def bitext(text=TEXT, **options) -> Bitext:
    return Bitext(
        side([a for a, _ in text], N_SOURCE), side([b for _, b in text], N_TARGET), **options
    )


def swapped(text):
    return [(b, a) for a, b in text]


# -- fast_align ------------------------------------------------------------------------------------
def digamma(x: float) -> float:
    total = 0.0
    while x < 30:
        total -= 1 / x
        x += 1
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def literal_fast_align(text, settings: FastAlignSettings):
    """Return the links of the last iteration and the tension of Dyer et al. (2013), computed with
    dictionaries.
    """
    table = defaultdict(lambda: 1e-9)
    tension, text = settings.tension, [(a, b) for a, b in text if a and b]
    words = sum(len(b) for _, b in text)

    def prior(i, j, m, n):
        return math.exp(-tension * abs(i / n - j / m))

    for iteration in range(settings.iterations):
        counts, feature, links = defaultdict(float), 0.0, []
        for given, observed in text:
            n, m = len(given), len(observed)
            for j, f in enumerate(observed, 1):
                z = sum(prior(i, j, m, n) for i in range(1, n + 1))
                mass = [settings.null * table[None, f]]
                mass += [
                    (1 - settings.null) * prior(i, j, m, n) / z * table[e, f]
                    for i, e in enumerate(given, 1)
                ]
                links.append(max(range(n + 1), key=lambda i: mass[i]) - 1)  # ties go to the first
                for i, e in enumerate([None, *given]):
                    counts[e, f] += mass[i] / sum(mass)
                    if i:
                        feature -= abs(i / n - j / m) * mass[i] / sum(mass)
        if iteration == settings.iterations - 1:
            return links, tension
        if iteration:
            for _ in range(8):
                expected = 0.0
                for given, observed in text:
                    n, m = len(given), len(observed)
                    for j in range(1, m + 1):
                        z = sum(prior(i, j, m, n) for i in range(1, n + 1))
                        expected -= sum(
                            abs(i / n - j / m) * prior(i, j, m, n) / z for i in range(1, n + 1)
                        )
                tension = min(14, max(0.1, tension + 20 * (feature - expected) / words))
        seen = {e: {f for e2, f in counts if e2 == e} for e, _ in counts}
        seen[None] = set(range(N_TARGET))
        for e, observed in seen.items():
            total = sum(counts[e, f] + settings.alpha for f in observed)
            for f in observed:
                x = counts[e, f] + settings.alpha
                table[e, f] = math.exp(digamma(x) - digamma(total))
    raise AssertionError


@pytest.mark.parametrize("iterations", [1, 2, 3, 6])
def test_fast_align_matches_the_algorithm_in_the_paper(iterations):
    settings = FastAlignSettings(iterations=iterations, exact=True)
    model, links = DiagonalModel.fit(Job(bitext(), lambda: np.zeros(0, np.uint16)), settings)
    for d, (text, got) in enumerate(((TEXT, links.forward), (swapped(TEXT), links.backward))):
        expected, tension = literal_fast_align(text, settings)
        used = np.concatenate([[bool(a and b)] * len(b) for a, b in text]).astype(bool)
        assert got[used].tolist() == expected
        assert (got[~used] == -1).all()
        assert model.directions[d].tension == pytest.approx(tension, abs=1e-5)


def test_the_normaliser_of_the_diagonal_prior_equals_the_sum_over_positions():
    row = np.zeros(9)
    for m, n, j in itertools.product((1, 4, 9), (1, 5, 9), (1, 3)):
        if j <= m:
            total = fast_align.diagonal(j, m, n, 4.0, row)
            np.testing.assert_allclose(
                row[:n], [math.exp(-4 * abs(i / n - j / m)) for i in range(1, n + 1)]
            )
            assert total == pytest.approx(row[:n].sum())
            # For sentences of equal length, the closed form in fast_align equals the sum.
            if m == n:
                assert fast_align.transposed_sum(j, m, n, 4.0) == pytest.approx(total)


# -- HMM -------------------------------------------------------------------------------------------
def enumerate_hmm(emission, nulls, jump, null):
    """Return likelihood, posteriors and expected jump counts, summed over all alignments; `jump`
    maps widths to probabilities.
    """
    n, width = emission.shape
    total, posterior, empty, jumps = 0.0, np.zeros((n, width)), np.zeros(n), defaultdict(float)
    for path in itertools.product(
        range(width + 1), repeat=n
    ):  # the value `width` stands for the null alignment
        p, at, steps = 1.0, -1, []
        for j, i in enumerate(path):
            if i == width:
                p *= null * nulls[j]
                continue
            p *= (
                (1 - null) * jump(i - at) / sum(jump(k - at) for k in range(width)) * emission[j, i]
            )
            steps.append(i - at)
            at = i
        p *= jump(width - at)
        steps.append(width - at) if at >= 0 else None
        total += p
        for j, i in enumerate(path):
            if i == width:
                empty[j] += p
            else:
                posterior[j, i] += p
        for d in steps:
            jumps[d] += p
    return total, posterior / total, empty / total, {d: p / total for d, p in jumps.items()}


def run_chain(emission, nulls, jumps, null, floor=0.0):
    n, width = emission.shape
    padded = (width + LANES) // LANES * LANES
    weights = spread(jumps, max(n, width))
    slots = np.zeros((n, padded), np.float32)
    slots[:, 1 : width + 1] = emission
    flow, posterior, empty = (
        np.zeros_like(weights),
        np.zeros((n, padded), np.float32),
        np.zeros(n, np.float32),
    )
    likelihood = hmm.chain(
        slots.ravel(),
        nulls.astype(np.float32),
        n,
        width,
        padded,
        weights,
        np.float32(null),
        np.float32(floor),
        hmm.work_space(max(n, width), len(weights)),
        flow,
        posterior.ravel(),
        empty,
    )
    return likelihood, posterior[:, 1 : width + 1], empty, flow * weights, len(weights) // 2


@pytest.mark.parametrize(("n", "width"), [(1, 1), (4, 3), (3, 4), (5, 2), (2, 7)])
def test_forward_backward_equals_the_sum_over_all_alignments(n, width):
    rng = np.random.default_rng(n * 10 + width)
    emission, nulls = rng.random((n, width)) ** 3, rng.random(n)
    jumps = first_jumps()
    middle = len(jumps) // 2
    expected = enumerate_hmm(emission, nulls, lambda d: float(jumps[middle + d]), 0.2)
    likelihood, posterior, empty, flow, at = run_chain(emission, nulls, jumps, 0.2)
    assert likelihood == pytest.approx(math.log(expected[0]), abs=1e-5)
    np.testing.assert_allclose(posterior, expected[1], atol=2e-6)
    np.testing.assert_allclose(empty, expected[2], atol=2e-6)
    for d in range(-width, width + 2):
        assert flow[at + d] == pytest.approx(expected[3].get(d, 0.0), abs=1e-5)


def literal_prior(matrix, weight):
    """Return the factors of p(target word | position) and p(source word | position); the mean of
    the odds replaces NaN.
    """
    odds = [[None if math.isnan(c) else math.exp(weight * c) for c in row] for row in matrix]
    known = [x for row in odds for x in row if x is not None]
    odds = np.array([[sum(known) / len(known) if x is None else x for x in row] for row in odds])
    n, m = odds.shape
    forward = np.array([[odds[i, j] / (sum(odds[:, j]) / n) for j in range(m)] for i in range(n)])
    backward = np.array([[odds[i, j] / (sum(odds[i]) / m) for j in range(m)] for i in range(n)])
    return forward, backward


def cosines(text=TEXT):
    """Return random similarities between the words of each sentence pair; some words have NaN."""
    rng = np.random.default_rng(3)
    matrices = [rng.uniform(-1, 1, (len(a), len(b))).astype(np.float32) for a, b in text]
    matrices[0][1] = np.nan
    matrices[3][:, 0] = np.nan
    return matrices


def literal_agreement(text, prior, iterations, settings: HmmSettings, matrices=None):
    """Return the expected counts after iterations of IBM model 1 and the HMM with agreement."""
    matrices = [
        None if matrices is None else matrices[k] for k, (a, b) in enumerate(text) if a and b
    ]
    text = [(a, b) for a, b in text if a and b]
    pairs_of_types = {(s, t) for a, b in text for s in a for t in b}
    counts = dict.fromkeys(pairs_of_types, 0.0)
    nulls = [
        dict.fromkeys(range(N_SOURCE), 1 / N_SOURCE),
        dict.fromkeys(range(N_TARGET), 1 / N_TARGET),
    ]
    jumps = [first_jumps().astype(float)] * 2
    middle = len(jumps[0]) // 2
    for model in iterations:
        mass = {pair: counts[pair] + prior for pair in pairs_of_types}
        by_source, by_target = Counter(), Counter()
        for (s, t), m in mass.items():
            by_source[s] += m
            by_target[t] += m
        counts = dict.fromkeys(pairs_of_types, 0.0)
        left_over = [Counter(), Counter()]
        flows = [np.zeros(len(jumps[0])), np.zeros(len(jumps[0]))]
        for (a, b), matrix in zip(text, matrices, strict=True):
            emission = np.array([[mass[s, t] for s in a] for t in b])
            tables = (emission / [by_source[s] for s in a], emission.T / [by_target[t] for t in b])
            if matrix is not None:
                forward, backward = literal_prior(matrix, settings.similarity)
                tables = tables[0] * forward.T, tables[1] * backward
            posteriors = []
            for d, (table, observed) in enumerate(zip(tables, (b, a), strict=True)):
                empty = np.array([nulls[1 - d][w] for w in observed])
                if model == "ibm1":
                    joint = (1 - settings.null) / table.shape[1] * table
                    posteriors.append(joint / (joint.sum(1) + settings.null * empty)[:, None])
                else:
                    jump = jumps[d]
                    found = enumerate_hmm(
                        table, empty, lambda k, jump=jump: jump[middle + k], settings.null
                    )
                    posteriors.append(found[1])
                    for k, p in found[3].items():
                        flows[d][middle + k] += p
            q = posteriors[0].T * posteriors[1]
            for i, s in enumerate(a):
                left_over[0][s] += 1 - q[i].sum()
                for j, t in enumerate(b):
                    counts[s, t] += q[i, j]
            for j, t in enumerate(b):
                left_over[1][t] += 1 - q[:, j].sum()
        for d, n in enumerate((N_SOURCE, N_TARGET)):
            rest = {w: left_over[d][w] + settings.null_strength for w in range(n)}
            nulls[d] = {w: v / sum(rest.values()) for w, v in rest.items()}
        if model == "hmm":
            jumps = [
                (1 - settings.jump_smoothing) * f / f.sum() + settings.jump_smoothing / len(f)
                for f in flows
            ]
    return counts


@pytest.mark.parametrize("similar", [False, True])
@pytest.mark.parametrize(("ibm1", "more"), [(1, 0), (3, 0), (0, 1), (1, 2), (3, 3)])
def test_agreement_counts_are_products_of_posteriors(ibm1, more, similar):
    settings = HmmSettings(ibm1_iterations=ibm1, hmm_iterations=more, floor=0.0)
    text = bitext()
    matrices = cosines() if similar else None
    job = Job(
        text,
        lambda: np.zeros(len(text.pairs), np.uint16),
        similarities=matrices and Similarities.of(matrices),
    )
    tables = train(HmmPass(job, settings))
    expected = literal_agreement(
        TEXT, settings.strength, ["ibm1"] * ibm1 + ["hmm"] * more, settings, matrices
    )
    pairs = zip(text.pairs.source.tolist(), text.pairs.target.tolist(), strict=True)
    # The model ignores expected counts below 1e-5 in a cell.
    np.testing.assert_allclose(
        tables.counts, [expected[pair] for pair in pairs], rtol=1e-3, atol=3e-4
    )


# -- Gibbs -----------------------------------------------------------------------------------------
def literal_gibbs(
    text,
    links,
    prior,
    fertility_prior,
    *,
    null,
    null_strength,
    jump_strength,
    longest,
    state,
    sweeps,
    order,
    factors,
):
    """Return links and marginals sampled from the documented conditional distributions with the
    sampler's random numbers.
    """
    state, cap = int(state), FERTILITIES - 1
    n_jumps = 2 * (2 * longest + 2) + 1
    links = [list(sentence) for sentence in links]
    pairs_of_types = {(s, t) for a, b in text for s in a for t in b if a and b}
    prior_total = {
        s: sum(prior[pair] for pair in pairs_of_types if pair[0] == s) for s in range(N_SOURCE)
    }
    marginals = [np.zeros((len(a), len(b))) for a, b in text]
    for _ in range(sweeps):
        for k in order:
            given, observed = text[k]
            for j, f in enumerate(observed):
                links[k][j] = None  # recompute all counts without this word
                pairs, totals, nulls, jumps, fertilities = (
                    Counter(),
                    Counter(),
                    Counter(),
                    Counter(),
                    Counter(),
                )
                for b, (a, o) in enumerate(text):
                    if not a or not o:
                        continue
                    at, phi = -1, [0] * len(a)
                    for q, i in enumerate(links[b]):
                        if i is None:
                            continue
                        if i < 0:
                            nulls[o[q]] += 1
                            continue
                        pairs[a[i], o[q]] += 1
                        totals[a[i]] += 1
                        jumps[i - at] += 1
                        at = i
                        phi[i] += 1
                    jumps[len(a) - at] += 1
                    for i, e in enumerate(a):
                        fertilities[e, min(phi[i], cap)] += 1
                before = max([-1] + [q for q in range(j) if links[k][q] >= 0], key=lambda q: q)
                before = links[k][before] if before >= 0 else -1
                behind = [links[k][q] for q in range(j + 1, len(observed)) if links[k][q] >= 0]
                after = behind[0] if behind else len(given)
                weights = []
                for i, e in enumerate(given):
                    fertility = sum(link == i for link in links[k] if link is not None)
                    high, low = min(fertility + 1, cap), min(fertility, cap)
                    w = (pairs[e, f] + prior[e, f]) / (totals[e] + prior_total[e])
                    w *= (jumps[i - before] + jump_strength) * (jumps[after - i] + jump_strength)
                    w /= jumps[after - before] + jump_strength
                    w /= sum(jumps.values()) + jump_strength * n_jumps
                    w *= fertilities[e, high] + fertility_prior[high]
                    w /= fertilities[e, low] - 1 + fertility_prior[low]
                    w *= factors[k][i, j]
                    weights.append((1 - null) * w)
                nothing = (
                    null
                    * (nulls[f] + null_strength)
                    / (sum(nulls.values()) + null_strength * N_TARGET)
                )
                state = (state + int(GOLDEN)) % 2**64
                rest = unit(np.uint64(state)) * (sum(weights) + nothing)
                links[k][j] = -1
                for i, w in enumerate(weights):
                    rest -= w
                    if rest < 0:
                        links[k][j] = i
                        break
                marginals[k][:, j] += np.array(weights) / (sum(weights) + nothing)
    return links, marginals


@pytest.mark.parametrize("similar", [False, True])
@pytest.mark.parametrize("across", [True, False])
def test_the_sampler_follows_its_conditional_distributions(across, similar):
    source_text = (
        TEXT if across else swapped(TEXT)
    )  # pairs (conditioning sentence, observed sentence)
    text = bitext()
    rng = np.random.default_rng(5)
    start = [[int(rng.integers(-1, len(a))) if a else -1 for _ in b] for a, b in source_text]
    links = np.array([i for sentence in start for i in sentence], dtype=np.int32)
    prior = (0.01 + rng.random(len(text.pairs))).astype(np.float32)
    keys = list(zip(text.pairs.source.tolist(), text.pairs.target.tolist(), strict=True))
    by_pair = {
        (pair if across else pair[::-1]): float(p) for pair, p in zip(keys, prior, strict=True)
    }
    shape = rng.random(FERTILITIES).astype(np.float32)
    middle = 2 * text.longest + 2
    counts, total, nulls = prior.copy(), np.zeros(5, np.float32), np.zeros(5, np.float32)
    jumps, fertilities = np.full(2 * middle + 1, 0.7), np.zeros((5, FERTILITIES), np.float32)
    for p, (s, t) in enumerate(keys):
        total[s if across else t] += prior[p]
    chain = gibbs.State(
        links,
        counts,
        total,
        nulls,
        np.zeros(3),
        jumps,
        fertilities,
        shape,
        np.array([77], np.uint64),
    )
    view = text.text(across)
    gibbs.tally(text.used, view, chain)
    chain.sums[:] = nulls.sum(dtype=np.float64), jumps.sum(), len(nulls)
    marginal, null_marginal = np.zeros(text.n_cells, np.float32), np.zeros(len(links), np.float32)
    factors = [np.ones((len(given), len(observed))) for given, observed in source_text]
    if similar:
        made = [
            literal_prior(matrix, 2.0) if matrix.size else (matrix, matrix) for matrix in cosines()
        ]
        factors = [forward if across else backward.T for forward, backward in made]
    positions = prior_of(Similarities.of(cosines()) if similar else None, text, 2.0)
    nothing, strength = np.float32(0.15), np.float32(0.02)
    for _ in range(3):
        gibbs.sample(
            text.used,
            view,
            chain,
            positions,
            np.zeros(0, np.uint64),
            nothing,
            strength,
            True,
            marginal,
            null_marginal,
        )
    expected, marginals = literal_gibbs(
        source_text,
        start,
        by_pair,
        shape,
        null=0.15,
        null_strength=0.02,
        jump_strength=0.7,
        longest=text.longest,
        state=77,
        sweeps=3,
        order=text.used,
        factors=factors,
    )
    assert links.tolist() == [i for sentence in expected for i in sentence]
    for k, (a, b) in enumerate(TEXT):
        if a and b:
            cells = marginal[text.origin[k] : text.origin[k] + len(a) * len(b)].reshape(
                len(a), len(b)
            )
            np.testing.assert_allclose(cells, marginals[k] if across else marginals[k].T, rtol=2e-3)
