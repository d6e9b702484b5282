"""Maps from plain text: each paper's formula, written down literally, and languages that were planted to meet."""

import numpy as np
import pytest

from calque.algebra.procrustes import Moments
from calque.errors import SettingError
from calque.maps.subspaces import language_subspace, lir, lsar, principal_directions, shifts

rng = np.random.default_rng(0)


def moments(vectors):
    return {lang: Moments.of(x, np.empty((len(x), 0)), block=7) for lang, x in vectors.items()}


def algorithm_1(m, r):
    """Xie et al. (2022), Algorithm 1, line by line: M [d, L] → μ, M_s, Γ."""
    ones = np.ones(m.shape[1])
    mu = m @ ones / m.shape[1]
    u, s, vt = np.linalg.svd(m - np.outer(mu, ones))
    approximated = np.outer(mu, ones) + u[:, :r] @ np.diag(s[:r]) @ vt[:r]
    mu = np.linalg.pinv(approximated).T @ ones
    mu = mu / (mu @ mu)
    u, s, vt = np.linalg.svd(approximated - np.outer(mu, ones))
    return mu, u[:, :r], vt[:r].T @ np.diag(s[:r]), approximated


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_the_subspace_is_that_of_algorithm_1(rank):
    means = rng.normal(size=(9, 5)) + 3
    mu, specific, gamma, approximated = algorithm_1(means, rank)
    np.testing.assert_allclose(mu @ specific, 0, atol=1e-10)
    np.testing.assert_allclose(np.outer(mu, np.ones(5)) + specific @ gamma.T, approximated, atol=1e-10)
    found = language_subspace(means, rank)
    np.testing.assert_allclose(found @ found.T, specific @ specific.T, atol=1e-10)
    vectors = {lang: rng.normal(size=(30, 9)) + mean for lang, mean in zip("abcde", means.T, strict=True)}
    _, specific, _, _ = algorithm_1(np.stack([x.mean(0) for x in vectors.values()], axis=1), rank)
    maps = lsar(moments(vectors), rank=rank)
    for lang, x in vectors.items():
        expected = np.array([e - specific @ (specific.T @ e) for e in x])
        np.testing.assert_allclose(maps[lang].transform(x), expected, atol=1e-10)
        assert maps[lang].n_pairs == 30


def test_all_directions_are_removed_and_no_others():
    means = rng.normal(size=(6, 1)) + np.outer(rng.normal(size=6), [0, 1, 3])  # on a line: two languages' worth
    assert language_subspace(means).shape == (6, 1)
    assert language_subspace(np.repeat(means[:, :1], 3, axis=1)).shape == (6, 0)
    for rank in (0, 3):
        with pytest.raises(
            SettingError, match=f"rank={rank}: the means of 3 languages in 6 dimensions, expected 1 to 2"
        ):
            language_subspace(means, rank)
    with pytest.raises(SettingError, match="two languages or more"):
        language_subspace(means[:, :1])


@pytest.mark.parametrize("rank", [1, 3])
def test_principal_components_are_the_singular_vectors_of_vectors_that_are_not_centred(rank):
    vectors = {lang: rng.normal(size=(40, 8)) * np.arange(1, 9) + rng.normal(size=8) * 5 for lang in "ab"}
    maps = lir(moments(vectors), rank=rank)
    for lang, x in vectors.items():
        c = np.linalg.svd(x)[2][:rank].T  # Yang et al. (2021), §2: right singular vectors of the language's matrix
        expected = np.array([e - sum((e @ c[:, k]) * c[:, k] for k in range(rank)) for e in x])
        np.testing.assert_allclose(maps[lang].transform(x), expected, atol=1e-8)
    for wrong in (0, 8):
        with pytest.raises(SettingError, match=f"rank={wrong}: 40 vectors of 8 dimensions, expected 1 to 7"):
            principal_directions(moments(vectors)["a"], wrong)
    with pytest.raises(SettingError, match="2 vectors of 8 dimensions, expected 1 to 2"):
        lir(moments({"a": vectors["a"][:2]}), rank=3)


def test_means_are_moved_or_only_removed():
    vectors = {lang: rng.normal(size=(20, 4)) + k for k, lang in enumerate(("en", "de", "fr"))}
    moved = shifts(moments(vectors), towards="en")
    assert set(moved) == {"de", "fr"}
    x = vectors["fr"]
    np.testing.assert_allclose(moved["fr"].transform(x), x - x.mean(0) + vectors["en"].mean(0), atol=1e-12)
    centred = shifts(moments(vectors), towards="en", offset=False)
    assert set(centred) == {"en", "de", "fr"}
    for lang, x in vectors.items():
        np.testing.assert_allclose(centred[lang].transform(x), x - x.mean(0), atol=1e-12)


def found_by_cosine(x, y):
    """Share of rows of x whose nearest row of y is the one of the same meaning."""
    x, y = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y))
    return np.mean(np.argmax(x @ y.T, axis=1) == np.arange(len(x)))


def test_languages_meet_when_what_is_theirs_alone_is_removed():
    """A word's vector is its meaning and, in two dimensions of sixteen, something of its language."""
    meaning, own = rng.normal(size=(300, 16)), np.linalg.qr(rng.normal(size=(16, 2)))[0]
    where = {"en": (0, 0), "de": (30, 5), "fr": (-9, 40)}
    vectors = {lang: meaning + (rng.normal(size=(300, 2)) + at) @ own.T for lang, at in where.items()}
    assert found_by_cosine(vectors["de"], vectors["en"]) < 0.3
    maps = lsar(moments(vectors))
    mapped = {lang: maps[lang].transform(x) for lang, x in vectors.items()}
    for lang in ("de", "fr"):
        np.testing.assert_allclose(mapped[lang], mapped["en"], atol=1e-6)
        assert found_by_cosine(mapped[lang], mapped["en"]) == 1
    one = lsar(moments(vectors), rank=1)  # too few: one direction of difference is left
    assert np.abs(one["de"].transform(vectors["de"]) - one["en"].transform(vectors["en"])).max() > 1
    # A single strong direction of each language is its first principal component, but for what meaning adds to it.
    alone = {lang: meaning + np.outer(50 + 10 * rng.normal(size=300), direction) for lang, direction in
             zip(("en", "de"), np.linalg.qr(rng.normal(size=(16, 2)))[0].T, strict=True)}  # fmt: skip
    maps = lir(moments(alone))
    removed = {lang: maps[lang].transform(x) for lang, x in alone.items()}
    assert found_by_cosine(alone["de"], alone["en"]) < 0.1
    assert found_by_cosine(removed["de"], removed["en"]) > 0.95
    # Languages that lie apart by their means only.
    shifted = {"en": meaning, "de": meaning + 20}
    moved = shifts(moments(shifted), towards="en")["de"].transform(shifted["de"])
    assert found_by_cosine(shifted["de"], shifted["en"]) < 0.1
    np.testing.assert_allclose(moved, meaning, atol=1e-9)
