"""Test that shrunk maps equal literal solutions, and that the shrinkage is chosen on held-out
pairs."""

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes

from calque.algebra.procrustes import Moments
from calque.errors import SettingError
from calque.maps import KINDS, LinearMap, NormalizedRotation, Rotation, about_map
from calque.maps.shrinkage import (
    CANDIDATES,
    HeldOut,
    choose_shrinkage,
    lines_of_fits,
    merged,
    way_to_identity,
)

DIM = 12


@pytest.fixture
def pairs():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, DIM)) * np.linspace(0.3, 2, DIM) + 1
    return x, x + rng.normal(size=x.shape) * 0.5 + 2


def with_identity_pairs(x, y, shrinkage):
    """Return pairs to which √prior · e is added as its own translation for every axis e."""
    prior = shrinkage / (1 - shrinkage) * np.sum(x**2) / DIM
    axes = np.sqrt(prior) * np.eye(DIM)
    return np.concatenate([x, axes]), np.concatenate([y, axes])


# -- formulas --------------------------------------------------------------------------------------
@pytest.mark.parametrize("shrinkage", [0.01, 0.5, 0.9])
def test_shrunk_maps_are_fitted_on_further_pairs_that_do_not_move(pairs, shrinkage):
    x, y = pairs
    expected = orthogonal_procrustes(*with_identity_pairs(x, y, shrinkage))[0]
    found = Rotation(shrinkage=shrinkage).fit(x, y)
    np.testing.assert_allclose(found.matrix, expected, atol=1e-8)
    expected = np.linalg.lstsq(*with_identity_pairs(x, y, shrinkage), rcond=None)[0]
    found = LinearMap(shrinkage=shrinkage).fit(x, y)
    np.testing.assert_allclose(found.matrix, expected, atol=1e-8)


@pytest.mark.parametrize("make", [NormalizedRotation, lambda **s: LinearMap(centred=True, **s)])
def test_centred_maps_shrink_the_shift_of_the_mean_as_well(pairs, make):
    x, y = pairs
    found = make(shrinkage=0.25).fit(x, y)
    augmented = with_identity_pairs(x - x.mean(0), y - y.mean(0), 0.25)
    expected = orthogonal_procrustes(*augmented)[0]
    if isinstance(found, LinearMap):
        expected = np.linalg.lstsq(*augmented, rcond=None)[0]
    np.testing.assert_allclose(found.matrix, expected, atol=1e-8)
    moved = found.transform(x).mean(0) - x.mean(0)
    np.testing.assert_allclose(moved, 0.75 * (y.mean(0) - x.mean(0)), atol=1e-9)


def test_without_shrinkage_the_maps_are_bitwise_those_of_the_papers(pairs):
    x, y = pairs
    moments = Moments.of(x, y)
    for kind, cross in (("rotation", moments.raw_cross), ("normalized-rotation", moments.cross)):
        u, _, vt = torch.linalg.svd(torch.from_numpy(cross))
        np.testing.assert_array_equal(KINDS[kind]().fit_moments(moments).matrix, (u @ vt).numpy())
    expected = np.linalg.lstsq(moments.raw_gram, moments.raw_cross, rcond=None)[0]
    np.testing.assert_array_equal(LinearMap().fit_moments(moments).matrix, expected)
    np.testing.assert_array_equal(
        NormalizedRotation().fit_moments(moments).target_mean, moments.target_mean
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_shrinkage_of_1_does_not_change_any_vector(pairs, kind, dtype):
    x, y = pairs
    x = x.astype(dtype)
    np.testing.assert_array_equal(KINDS[kind](shrinkage=1).fit(x, y).transform(x), x)


def test_for_vectors_spread_equally_the_shrinkage_is_the_way_to_the_identity():
    rng = np.random.default_rng(0)
    x = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]  # XᵀX = I
    y = rng.normal(size=(DIM, DIM))
    unshrunk = LinearMap().fit(x, y)
    assert way_to_identity(LinearMap(shrinkage=0.3).fit(x, y), unshrunk) == pytest.approx(0.3)
    assert way_to_identity(unshrunk, unshrunk) == 0
    assert way_to_identity(LinearMap(shrinkage=1).fit(x, y), unshrunk) == 1


def test_impossible_shrinkages_are_rejected(pairs):
    x, y = pairs
    with pytest.raises(SettingError, match="shrinkage must be"):
        Rotation(shrinkage=1.5)
    with pytest.raises(SettingError, match="shrinkage requires equal dimensions, got 12 and 5"):
        LinearMap(shrinkage=0.5).fit(x, y[:, :5])
    assert about_map(Rotation(shrinkage=0.5).fit(x, y))["shrinkage"] == 0.5
    assert "shrinkage" not in about_map(Rotation().fit(x, y))


# -- choice ----------------------------------------------------------------------------------------
def folded(x, y, per_sentence=5, folds=4, unit="words"):
    """Return the moments of each fold and all pairs as a sample; consecutive pairs belong to one
    sentence."""
    sentence = np.arange(len(x)) // per_sentence
    fold = np.random.default_rng(0).integers(folds, size=sentence.max() + 1)[sentence]
    held_out = HeldOut(unit)
    held_out.add(x, y, fold, sentence)
    return [Moments.of(x[fold == k], y[fold == k]) for k in range(folds)], held_out


def chosen(kind, x, y):
    folds, held_out = folded(x, y)
    return choose_shrinkage(lambda value: KINDS[kind](shrinkage=value), folds, [held_out]).shrinkage


def nearest(x, z, k=10):
    """Return the index of each row's nearest row of `z` by CSLS, computed literally."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    cosines = x @ z.T
    of_x = np.sort(cosines, axis=1)[:, -k:].mean(axis=1)
    of_z = np.sort(cosines, axis=0)[-k:].mean(axis=0)
    return (2 * cosines - of_x[:, None] - of_z).argmax(axis=1)


def test_the_choice_equals_a_literal_implementation():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 8))
    y = x @ np.linalg.qr(np.eye(8) + 0.3 * rng.normal(size=(8, 8)))[0] + rng.normal(size=x.shape)
    sentence = np.arange(60) // 3
    fold = np.random.default_rng(0).integers(4, size=20)[sentence]
    is_query = rng.random(60) < 0.7
    held_out = HeldOut("words")
    for rows in (slice(0, 20), slice(20, 60)):
        held_out.add(x[rows], y[rows], fold[rows], sentence[rows], is_query[rows])
    folds = [Moments.of(x[fold == k], y[fold == k]) for k in range(4)]
    found = choose_shrinkage(lambda value: Rotation(shrinkage=value), folds, [held_out])

    right = {value: {} for value in CANDIDATES}  # hits of each query
    for value in CANDIDATES:
        for k in range(4):
            fitted = Rotation(shrinkage=value).fit(x[fold != k], y[fold != k])
            mapped = x @ fitted.matrix
            for pair in np.flatnonzero(is_query & (fold == k)):
                forward = int(nearest(mapped, y)[pair] == pair)
                backward = int(nearest(y, mapped)[pair] == pair)
                right[value][pair] = (forward + backward) / 2
    expected = [np.mean(list(right[value].values())) for value in CANDIDATES]
    np.testing.assert_allclose(found.accuracy["words"], expected)
    assert found.queries["words"] == is_query.sum()
    best, best_gain = 1.0, 0.0
    for value in CANDIDATES[-2::-1]:
        gains = {pair: right[value][pair] - right[1.0][pair] for pair in right[1.0]}
        gain = np.mean(list(gains.values()))
        sums = {}
        for pair, each in gains.items():
            sums[sentence[pair]] = sums.get(sentence[pair], 0) + each - gain
        n = len(sums)
        error = np.sqrt(sum(each**2 for each in sums.values()) * n / (n - 1)) / len(gains)
        if gain > error and gain > best_gain:
            best, best_gain = value, gain
    assert found.shrinkage == best < 1


def planted(n, dim, noise, turn, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim)) * np.geomspace(2, 0.3, dim)
    return x, x @ turn + noise * rng.normal(size=x.shape)


def accuracy(fitted, x, y):
    return np.mean(nearest(fitted.transform(x), y) == np.arange(len(x)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [50, 400, 5000])
def test_a_random_rotation_is_recovered_as_well_as_without_shrinkage(kind, n):
    """The identity is of no use between spaces with unrelated axes."""
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(24, 24)))[0]
    x, y = planted(n, 24, 0.3, turn)
    test = planted(300, 24, 0.3, turn, seed=1)
    shrinkage = chosen(kind, x, y)
    before = accuracy(KINDS[kind]().fit(x, y), *test)
    assert before > 0.3
    assert accuracy(KINDS[kind](shrinkage=shrinkage).fit(x, y), *test) > before - 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_few_pairs_in_many_dimensions_never_make_aligned_spaces_worse(kind):
    for n, seed in ((50, 0), (200, 2)):
        x, y = planted(n, 96, 2.0, np.eye(96), seed=seed)
        test = planted(300, 96, 2.0, np.eye(96), seed=9)
        before = accuracy(Rotation(shrinkage=1).fit(x, y), *test)
        # Without shrinkage, the map is far worse than no map.
        assert accuracy(KINDS[kind]().fit(x, y), *test) < before - 0.05
        shrinkage = chosen(kind, x, y)
        assert accuracy(KINDS[kind](shrinkage=shrinkage).fit(x, y), *test) > before - 0.02


def test_a_map_that_harms_sentences_is_not_chosen():
    """A map is chosen only if it lowers the accuracy on no sample."""
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(8, 8)))[0]
    x, y = planted(200, 8, 0.1, turn)
    folds, words = folded(x, y)
    still, _ = planted(200, 8, 0.1, turn, seed=3)
    _, sentences = folded(still, still, unit="sentences")

    def make(value):
        return Rotation(shrinkage=value)

    assert choose_shrinkage(make, folds, [words]).shrinkage < 0.5
    both = choose_shrinkage(make, folds, [words, sentences])
    assert both.shrinkage == 1
    held_out = both.record()["retrieval"]
    assert held_out["sentences"]["mapped"] == held_out["sentences"]["unmapped"] == 100
    assert held_out["words"]["queries"] == 200


def test_without_held_out_pairs_the_identity_is_chosen():
    x, y = planted(20, 4, 0.1, np.eye(4))
    folds, _ = folded(x, y)
    found = choose_shrinkage(lambda value: Rotation(shrinkage=value), folds, [HeldOut("words")])
    assert (found.shrinkage, found.record()) == (1.0, {"retrieval": {}})
    # One sentence alone does not show whether a map is better.
    folds, held_out = folded(x, y @ np.diag([1, 1, -1, -1]), per_sentence=20)
    assert choose_shrinkage(lambda v: Rotation(shrinkage=v), folds, [held_out]).shrinkage == 1


def test_merging_folds_gives_the_moments_of_all_pairs(pairs):
    folds, _ = folded(*pairs)
    whole, found = Moments.of(*pairs), merged(folds)
    assert found.n == whole.n == 30
    np.testing.assert_allclose(found.raw_cross, whole.raw_cross)


def test_the_sample_is_bounded_and_keeps_queries_first():
    held_out = HeldOut("words")
    n = 5000
    x, is_query = np.arange(n, dtype=np.float32)[:, None], np.arange(n) % 5 == 0
    held_out.add(x, x, np.zeros(n, dtype=int), np.arange(n), is_query)
    source, _, _, group, mask = held_out.sample()
    assert len(source) == 2000
    assert mask.tolist() == [True] * 1000 + [False] * 1000
    np.testing.assert_array_equal(source[:, 0], group)


def test_lines_say_how_far_each_map_was_shrunk():
    fit = {"pairs": 1231, "dim": 384, "shrinkage": 0.5, "to_identity": 0.823}
    fits = {"de": {"12": fit}, "tr": {"6": {**fit, "to_identity": 1}, "7": {}}}
    assert lines_of_fits(fits) == [
        "de: fitted on 1,231 pairs in 384 dimensions: 82% of the way to the identity",
        "tr, layer 6: fitted on 1,231 pairs in 384 dimensions: no map is better than none on "
        "held-out pairs, so vectors do not change",
    ]
