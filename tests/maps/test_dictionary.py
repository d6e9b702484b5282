"""Test that maps from dictionaries and unsupervised maps recover planted rotations."""

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import csls_neighbours
from calque.alignment.data import Dictionaries
from calque.alignment.dictionary import DictionaryMaps, FailedMapWarning, joined
from calque.alignment.maps import LinkedMaps
from calque.anchors import Anchors
from calque.annotated import Dictionary
from calque.encoders import load_encoder
from calque.encoders.anchors import compute_anchors, frequent_words
from calque.encoders.mapped import MappedEncoder
from calque.encoders.static import StaticEncoder, WordTable
from calque.errors import SettingError
from calque.maps import LinearMap, NormalizedRotation, Rotation
from calque.maps.adversarial import adversarial_start
from calque.maps.dictionary import (
    WordList,
    fit_dictionary,
    identical_words,
    seed_pairs,
)
from calque.maps.distributions import self_learning, similarity_seeds
from calque.maps.refine import (
    Refinement,
    hold_out,
    mapped,
    mutual_neighbours,
    precision_at_1,
    refine,
)
from calque.maps.unsupervised import check_map, fit_unsupervised, start_options
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentence, Sentences
from linked_text import WORDS, make_text

DIM = 16


def planted(n=600, dim=DIM, noise=0.1, seed=0):
    """Return source words in clusters of Zipfian size, target words in another order with noisy
    rotated vectors, the gold pairs `[n, 2]`, and the rotation."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((30, dim)) * np.linspace(2, 0.3, dim)
    p = 1 / np.arange(1, 31)
    x = centres[rng.choice(30, n, p=p / p.sum())]
    x = x + 0.7 * rng.standard_normal((n, dim)) * np.linspace(1.5, 0.4, dim) + 0.3
    turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    z = x @ turn + noise * rng.standard_normal((n, dim))
    order = np.argsort(
        np.arange(n) * np.exp(0.1 * rng.standard_normal(n))
    )  # makes the frequency ranks differ slightly
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    source = WordList([f"s{k}" for k in range(n)], x.astype(np.float32))
    target = WordList([f"t{k}" for k in order], z[order].astype(np.float32))
    return source, target, np.stack([np.arange(n), place], axis=1), turn


def dictionary_of(source, target, pairs, langs=("xx", "en")):
    return Dictionary(
        tuple(source.words[a] for a, _ in pairs), tuple(target.words[b] for _, b in pairs), langs
    )


def right(fit, source, target, gold):
    x = unit_rows(fit.source.transform(source.vectors))
    z = unit_rows(target.vectors)
    return precision_at_1(x, z, gold)


NO_ROUNDS = Refinement(rounds=0, held_out=0)


# -- rounds of refinement --------------------------------------------------------------------------
@pytest.mark.parametrize("best", [0, 1, 3])
@pytest.mark.parametrize("held_out", [False, True])
def test_the_best_round_is_kept_wherever_it_is(best, held_out):
    """Without held-out words, the best round has the highest mean CSLS of mutual neighbours."""
    source, target, gold, turn = planted(n=200, noise=0.01)
    given = []

    def solve(pairs):
        """Return the planted rotation in the round `best`, and random rotations in other rounds."""
        given.append(pairs)
        other = np.linalg.qr(np.random.default_rng(len(given)).standard_normal((DIM, DIM)))[0]
        return Rotation.from_arrays(
            {"matrix": turn if len(given) == best + 1 else other}, len(pairs)
        )

    how = Refinement(rounds=3, held_out=0.1 if held_out else 0)
    found = refine(
        source.vectors, target.vectors, gold[:50], solve, how, gold[150:] if held_out else None
    )
    assert (found.best, len(found.rounds)) == (best, 4)
    np.testing.assert_array_equal(found.map.matrix, turn)
    np.testing.assert_array_equal(found.pairs, given[best])
    scores = [each.held_out if held_out else each.mutual for each in found.rounds]
    assert max(scores) == scores[best] > max(score for k, score in enumerate(scores) if k != best)


# -- with a dictionary -----------------------------------------------------------------------------
def test_maps_from_a_dictionary_equal_the_scipy_solution():
    source, target, gold, _ = planted(noise=0.5)
    seeds = gold[:200]
    fit = fit_dictionary(
        source, target, dictionary_of(source, target, seeds), normalise="none", refinement=NO_ROUNDS
    )
    x, y = source.vectors[seeds[:, 0]].astype(float), target.vectors[seeds[:, 1]].astype(float)
    np.testing.assert_allclose(fit.source.matrix, orthogonal_procrustes(x, y)[0], atol=1e-10)
    assert isinstance(fit.source, Rotation)
    unit = fit_dictionary(source, target, seeds, refinement=NO_ROUNDS)
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
    np.testing.assert_allclose(unit.source.matrix, orthogonal_procrustes(x, y)[0], atol=1e-6)
    linear = fit_dictionary(source, target, seeds, method="linear", refinement=NO_ROUNDS)
    np.testing.assert_allclose(
        linear.source.matrix, np.linalg.lstsq(x, y, rcond=None)[0], atol=1e-5
    )
    assert isinstance(linear.source, LinearMap)


@pytest.mark.parametrize("normalise", ["none", "unit", "centre", "centre-unit", "unit-centre-unit"])
def test_every_normalisation_recovers_a_rotation(normalise):
    source, target, gold, turn = planted(noise=0.0)
    fit = fit_dictionary(source, target, gold[:100], normalise=normalise, refinement=NO_ROUNDS)
    np.testing.assert_allclose(fit.source.matrix, turn, atol=1e-4)
    assert right(fit, source, target, gold) == 1
    kind = Rotation if normalise in ("none", "unit") else NormalizedRotation
    assert isinstance(fit.source, kind)
    if normalise == "centre":  # the map contains the means, so shifting a language has no effect
        moved = WordList(target.words, target.vectors + 5)
        shifted = fit_dictionary(
            source, moved, gold[:100], normalise=normalise, refinement=NO_ROUNDS
        )
        np.testing.assert_allclose(
            shifted.source.transform(source.vectors[:9]) - 5, source.vectors[:9] @ turn, atol=0.01
        )


def centred_rotation(x, y):
    """Return W, x̄ and ȳ of a rotation between centred vectors (Kulshreshtha et al. 2020, Eqs. 2 to
    4; rows are vectors).
    """
    x, y = x.astype(float), y.astype(float)
    source_mean, target_mean = x.mean(axis=0), y.mean(axis=0)
    u, _, vt = np.linalg.svd((y - target_mean).T @ (x - source_mean))
    return (u @ vt).T, source_mean, target_mean


def shifted(noise=0.5, n=600, seed=0):
    """Return planted vectors that are longer for rare words, so means over frequent words differ
    from those over all words.
    """
    source, target, gold, _ = planted(n=n, noise=noise, seed=seed)
    x, z = source.vectors * np.linspace(1, 3, n, dtype=np.float32)[:, None] + 2, target.vectors - 1
    return WordList(source.words, x), WordList(target.words, z), gold


@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.parametrize("held_out", [0.0, 0.2])
def test_a_normalized_rotation_is_centred_at_the_means_of_its_own_pairs(rounds, held_out):
    """The vectors keep their lengths (Kulshreshtha et al. 2020, Eqs. 4 and 5), and each refinement
    round has its own means.
    """
    source, target, gold = shifted()
    how = Refinement(rounds=rounds, held_out=held_out, frequent=300)
    fit = fit_dictionary(source, target, gold[:60], normalise="centre", refinement=how)
    x, y = source.vectors[fit.pairs[:, 0]], target.vectors[fit.pairs[:, 1]]
    matrix, source_mean, target_mean = centred_rotation(x, y)
    np.testing.assert_allclose(fit.source.matrix, matrix, atol=1e-9)
    np.testing.assert_allclose(fit.source.source_mean, source_mean, atol=1e-9)
    np.testing.assert_allclose(fit.source.target_mean, target_mean, atol=1e-9)
    expected = (source.vectors.astype(float) - source_mean) @ matrix + target_mean
    np.testing.assert_allclose(
        fit.source.transform(source.vectors.astype(float)), expected, atol=1e-9
    )
    assert isinstance(fit.source, NormalizedRotation)
    assert fit.source.n_pairs == len(fit.pairs)
    if fit.best == 0:
        assert fit.pairs.tolist() == gold[:60].tolist()
    linear = fit_dictionary(
        source, target, gold[:60], method="linear", normalise="centre", refinement=NO_ROUNDS
    ).source
    x, y = (
        side.astype(float) for side in (source.vectors[gold[:60, 0]], target.vectors[gold[:60, 1]])
    )
    expected = np.linalg.lstsq(x - x.mean(axis=0), y - y.mean(axis=0), rcond=None)[0]
    np.testing.assert_allclose(linear.matrix, expected, atol=1e-8)
    np.testing.assert_allclose(linear.target_mean, y.mean(axis=0), atol=1e-9)


def test_refinement_scores_the_mapped_vectors_with_their_means():
    source, target, gold = shifted(n=120)
    how = Refinement(rounds=0, held_out=0)
    fit = fit_dictionary(source, target, gold[:40], normalise="centre", refinement=how)
    x, z = unit_rows(fit.source.transform(source.vectors)), unit_rows(target.vectors)
    pairs, scores = mutual_neighbours(x, z)
    assert fit.rounds[0].mutual_pairs == len(pairs)
    assert fit.rounds[0].mutual == pytest.approx(scores.mean(), abs=1e-6)


def test_a_map_centred_at_all_words_is_a_named_option():
    """With `centre-unit`, the mean of all words is subtracted, and the vectors are then
    L2-normalised.
    """
    source, target, gold = shifted()
    fit = fit_dictionary(source, target, gold[:60], normalise="centre-unit", refinement=NO_ROUNDS)
    x, z = (unit_rows(side.vectors - side.vectors.mean(axis=0)) for side in (source, target))
    expected = orthogonal_procrustes(x[gold[:60, 0]].astype(float), z[gold[:60, 1]].astype(float))[
        0
    ]
    np.testing.assert_allclose(fit.source.matrix, expected, atol=1e-5)
    np.testing.assert_allclose(
        fit.source.source_mean, source.vectors.mean(axis=0, dtype=float), atol=1e-6
    )


def test_the_mean_of_unit_vectors_is_scaled_to_the_length_of_the_words():
    """With `unit-centre-unit`, the subtracted mean is that of unit vectors; the map applies to
    vectors of any length, whose mean is that mean times their mean length."""
    source, target, gold = shifted()
    fit = fit_dictionary(
        source, target, gold[:60], normalise="unit-centre-unit", refinement=NO_ROUNDS
    )
    for side, mean in ((source, fit.source.source_mean), (target, fit.source.target_mean)):
        lengths = np.linalg.norm(side.vectors.astype(float), axis=1)
        assert lengths.mean() > 3
        expected = np.mean(side.vectors / lengths[:, None], axis=0) * lengths.mean()
        np.testing.assert_allclose(mean, expected, atol=1e-5)


@pytest.mark.parametrize("method", ["normalized-rotation", "rotation", "linear"])
def test_maps_on_parallel_text_have_the_form_of_the_papers(method, tmp_path):
    """With the same pairs, the maps of a dictionary and of parallel text are equal, before and
    after saving.
    """
    source, target, gold = shifted(n=60)
    dictionary = dictionary_of(source, target, gold[:40])
    encoder, anchors = static_anchors(source, target)
    normalise = {} if method == "normalized-rotation" else {"normalise": "none"}
    made = DictionaryMaps(
        method, towards="en", refine=0, held_out=0, shrinkage=0, **normalise
    ).align(encoder, anchors, [dictionary])
    made.save(tmp_path / "made")
    found = load_encoder(tmp_path / "made").maps["xx"]
    corpus = ParallelCorpus.of(
        [[word] for word in dictionary.source], [[word] for word in dictionary.target], ("xx", "en")
    )
    links = WordPairs.of([[(0, 0)]] * 40)
    text = LinkedMaps(method, towards="en", shrinkage=0).align(encoder, corpus, links).maps["xx"]
    for name, array in text.arrays().items():
        np.testing.assert_allclose(found.arrays()[name], array, atol=1e-6)
    if method == "normalized-rotation":
        matrix, source_mean, _ = centred_rotation(
            source.vectors[gold[:40, 0]], target.vectors[gold[:40, 1]]
        )
        np.testing.assert_allclose(found.matrix, matrix, atol=1e-6)
        np.testing.assert_allclose(found.source_mean, source_mean, atol=1e-6)


def test_an_unsupervised_normalized_rotation_is_centred_at_the_means_of_its_own_pairs():
    source, target, gold, _ = planted(noise=0.05)
    moved = WordList(target.words, target.vectors + 3)
    fit = fit_unsupervised(source, moved, normalise="centre", options={"patience": 5, "keep": 0.3})
    assert not fit.verdict.failed
    x, y = source.vectors[fit.pairs[:, 0]], moved.vectors[fit.pairs[:, 1]]
    matrix, source_mean, target_mean = centred_rotation(x, y)
    np.testing.assert_allclose(fit.source.matrix, matrix, atol=1e-9)
    np.testing.assert_allclose(fit.source.source_mean, source_mean, atol=1e-9)
    np.testing.assert_allclose(fit.source.target_mean, target_mean, atol=1e-9)
    assert right(fit, source, moved, gold) > 0.9


# -- shrinkage -------------------------------------------------------------------------------------
def same_space(n, noise, seed=0):
    """Return planted vectors of two languages that share a space already."""
    rng = np.random.default_rng(seed)
    source, _, gold, _ = planted(n=n, noise=0.0)
    vectors = source.vectors + noise * rng.standard_normal(source.vectors.shape)
    target = WordList([f"t{k}" for k in range(n)], vectors.astype(np.float32))
    return source, target, np.stack([np.arange(n), np.arange(n)], axis=1)


@pytest.mark.parametrize("method", ["rotation", "linear"])
@pytest.mark.parametrize("normalise", ["none", "unit", "centre", "unit-centre-unit"])
@pytest.mark.parametrize("rounds", [0, 2])
def test_a_small_dictionary_never_makes_a_shared_space_worse(method, normalise, rounds):
    source, target, gold = same_space(300, 1.0)
    identity = fit_dictionary(source, target, gold[:5], shrinkage=1, refinement=NO_ROUNDS)
    np.testing.assert_array_equal(identity.source.transform(source.vectors), source.vectors)
    before = right(identity, source, target, gold)
    options = dict(method=method, normalise=normalise, refinement=Refinement(rounds=rounds))
    plain = fit_dictionary(source, target, gold[::15], **{**options, "refinement": NO_ROUNDS})
    assert right(plain, source, target, gold) < before - 0.05
    fit = fit_dictionary(source, target, gold[::15], shrinkage="auto", **options)
    assert right(fit, source, target, gold) > before - 0.02
    assert fit.settings["retrieval"]["words"]["queries"] > 0


@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.parametrize("n_seeds", [40, 300])
def test_between_unrelated_spaces_nothing_is_lost(rounds, n_seeds):
    source, target, gold, _ = planted(noise=0.5)
    how = Refinement(rounds=rounds)
    plain = fit_dictionary(source, target, gold[:n_seeds], refinement=how)
    fit = fit_dictionary(source, target, gold[:n_seeds], refinement=how, shrinkage="auto")
    assert right(fit, source, target, gold) > right(plain, source, target, gold) - 0.02
    assert fit.settings["to_identity"] < 0.2


def test_later_rounds_are_shrunk_less_because_they_have_more_pairs():
    source, target, gold = same_space(200, 0.5)
    x, z = unit_rows(source.vectors).astype(float), unit_rows(target.vectors).astype(float)
    how = Refinement(rounds=1, held_out=0)
    fit = fit_dictionary(source, target, gold[:20], shrinkage=0.5, refinement=how)
    for fitted, pairs in ((fit.source, fit.pairs),):
        a, b = x[pairs[:, 0]], z[pairs[:, 1]]
        prior = 20 / len(pairs) * np.trace(a.T @ a) / DIM
        axes = np.sqrt(prior) * np.eye(DIM)
        expected = orthogonal_procrustes(np.concatenate([a, axes]), np.concatenate([b, axes]))[0]
        np.testing.assert_allclose(fitted.matrix, expected, atol=1e-5)
    assert fit.best == 1
    assert len(fit.pairs) > 100


def test_a_shrunk_map_keeps_its_shrinkage_in_the_folder_and_in_the_record(tmp_path):
    source, target, gold = shifted(n=60)
    encoder, anchors = static_anchors(source, target)
    dictionary = dictionary_of(source, target, gold[:40])
    method = DictionaryMaps("linear", towards="en", shrinkage=0.5, refine=0)
    fitted = method.fit(encoder, Dictionaries(anchors, (dictionary,)))
    assert fitted.record["settings"]["fits"]["xx"]["0"]["shrinkage"] == 0.5
    fitted.encoder.save(tmp_path / "made")
    assert load_encoder(tmp_path / "made").maps["xx"].shrinkage == 0.5


def static_anchors(source, target):
    """Return a static encoder of two languages, and its vectors as anchors."""
    encoder = StaticEncoder(
        {
            "xx": WordTable(list(source.words), source.vectors),
            "en": WordTable(list(target.words), target.vectors),
        },
        normalise=False,
    )
    anchors = {}
    for lang, side in (("xx", source), ("en", target)):
        counts = np.ones(len(side.words), dtype=np.int64)
        anchors[lang] = {0: Anchors(tuple(side.words), side.vectors, counts, lang)}
    return encoder, anchors


def test_refinement_improves_on_a_noisy_dictionary():
    source, target, gold, _ = planted(noise=0.3)
    rng = np.random.default_rng(1)
    seeds = gold[:60].copy()
    wrong = rng.random(60) < 0.5  # half of the entries are wrong
    seeds[wrong, 1] = rng.permutation(seeds[wrong, 1])
    plain = fit_dictionary(source, target, seeds, refinement=NO_ROUNDS)
    refined = fit_dictionary(source, target, seeds, refinement=Refinement(rounds=5, held_out=0))
    assert right(refined, source, target, gold) > right(plain, source, target, gold) + 0.1
    assert refined.best > 0
    assert len(refined.rounds) == 6
    assert refined.rounds[-1].mutual > refined.rounds[0].mutual


def test_the_refinement_round_is_chosen_on_held_out_words():
    source, target, gold, _ = planted(noise=0.4)
    fit = fit_dictionary(
        source, target, gold[:300], refinement=Refinement(rounds=3, held_out=0.2, frequent=100)
    )
    assert fit.seeds == 240
    scores = [each.held_out for each in fit.rounds]
    assert scores[fit.best] == max(scores)
    assert len(scores) == 4
    kept, aside = hold_out(np.array([[0, 1], [0, 2], [1, 1], [2, 5]]), 0.3, 0)
    assert len(np.intersect1d(kept[:, 0], aside[:, 0])) == 0
    assert len(kept) + len(aside) == 4


def test_refinement_equals_a_naive_implementation_of_the_published_rounds():
    source, target, gold, _ = planted(n=120, noise=0.4)
    x, z = unit_rows(source.vectors), unit_rows(target.vectors)

    def solve(pairs):
        return Rotation.from_arrays(
            {
                "matrix": orthogonal_procrustes(
                    x[pairs[:, 0]].astype(float), z[pairs[:, 1]].astype(float)
                )[0]
            }
        )

    found = refine(x, z, gold[:20], solve, Refinement(rounds=2, k=4, held_out=0))
    pairs = gold[:20]
    for number in range(3):
        w = solve(pairs).matrix
        cosines = mapped(x, w).astype(float) @ z.T.astype(float)
        r = np.sort(cosines, axis=1)[:, -4:].mean(axis=1)
        s = np.sort(cosines, axis=0)[-4:].mean(axis=0)
        csls = 2 * cosines - r[:, None] - s
        pairs = np.array([(i, j) for i, j in enumerate(csls.argmax(1)) if csls[:, j].argmax() == i])
        assert found.rounds[number].mutual_pairs == len(pairs)
        assert found.rounds[number].mutual == pytest.approx(
            np.mean([csls[i, j] for i, j in pairs]), abs=1e-6
        )


def test_precision_at_1_counts_any_gold_translation_among_frequent_words():
    z = np.eye(5, dtype=np.float32)
    x = z[[0, 1, 1]]
    assert precision_at_1(x, z, np.array([[0, 3], [0, 0], [1, 2], [2, 1]]), k=1) == pytest.approx(
        2 / 3
    )
    # the candidates are the first word and the words of the pairs
    assert precision_at_1(x, z, np.array([[1, 2]]), k=1, among=1) in (0.0, 1.0)
    assert np.isnan(precision_at_1(x, z, np.zeros((0, 2), dtype=np.int64)))


def test_repeated_pairs_change_the_fit_but_not_the_held_out_score():
    """A repeated pair has a larger weight in the fit, like a repeated row in a literal
    least-squares solution.
    """
    rng = np.random.default_rng(2)
    x, z = rng.standard_normal((2, 40, 5)).astype(np.float32)
    once = np.array([(k, k) for k in range(30)] + [(3, 7), (4, 9)])
    twice = np.concatenate([once, once[:10], once[-1:]])
    x_unit, z_unit = unit_rows(x), unit_rows(z)
    assert precision_at_1(x_unit, z_unit, twice) == precision_at_1(x_unit, z_unit, once)
    right = {tuple(pair) for pair in once.tolist()}
    near = csls_neighbours(x_unit, z_unit).targets[:30, 0].tolist()
    assert precision_at_1(x_unit, z_unit, twice) == np.mean(
        [(k, near[k]) in right for k in range(30)]
    )
    lists = WordList([f"e{k}" for k in range(40)], x), WordList([f"d{k}" for k in range(40)], z)
    fitted = fit_dictionary(
        *lists, twice, method="linear", normalise="none", refinement=Refinement(rounds=0)
    )
    expected = np.linalg.lstsq(
        x[twice[:, 0]].astype(float), z[twice[:, 1]].astype(float), rcond=None
    )[0]
    np.testing.assert_allclose(fitted.source.matrix, expected, atol=1e-6)


def test_an_entry_with_several_senses_uses_the_closest_pair():
    source, target, gold, _ = planted(noise=0.1)
    rng = np.random.default_rng(3)
    words, vectors = list(source.words), list(source.vectors)
    for k in range(
        0, 100, 2
    ):  # gives every other word a second sense that is not in the dictionary
        words.append(words[k])
        vectors.append(rng.standard_normal(DIM) * 2)
    many = WordList(words, np.array(vectors, dtype=np.float32))
    fit = fit_dictionary(
        many, target, dictionary_of(source, target, gold[:100]), refinement=NO_ROUNDS
    )
    assert fit.seeds == 100
    assert np.mean(fit.pairs[:, 0] < 600) > 0.95


def test_seed_pairs_are_found_in_dictionaries_and_among_identical_words():
    pairs, entries, left_out = seed_pairs(
        Dictionary(("a", "b", "a", "zz"), ("1", "2", "3", "1"), ("en", "de")),
        ["b", "a", "b"],
        ["3", "1", "2"],
    )
    assert pairs.tolist() == [[1, 1], [0, 2], [2, 2], [1, 0]]
    assert entries.tolist() == [0, 1, 1, 2]
    assert left_out == 1
    # If a word has no exact match, the lookup ignores case.
    pairs, _, left_out = seed_pairs(
        Dictionary(("House", "it"), ("haus", "es"), ("en", "de")),
        ["it", "house", "IT"],
        ["HAUS", "Haus", "Es", "es"],
    )
    assert pairs.tolist() == [[1, 0], [0, 3]]
    assert left_out == 0
    assert identical_words(["the", "1984", "a", "Paris"], ["a", "Paris", "1984", "a"]).tolist() == [
        [1, 2],
        [2, 0],
        [3, 1],
    ]


def test_impossible_fits_are_rejected():
    source, target, gold, _ = planted(n=50)
    nothing = Dictionary(("no",), ("such",), ("xx", "en"))
    with pytest.raises(SettingError, match="none of .* has vectors for both words"):
        fit_dictionary(source, target, nothing)
    with pytest.raises(SettingError, match="equal dimensions, got 16 and 5"):
        fit_dictionary(source, WordList(target.words, target.vectors[:, :5]), gold)
    narrow = WordList(target.words, target.vectors[:, :5])
    assert fit_dictionary(
        source, narrow, gold, method="linear", refinement=NO_ROUNDS
    ).source.matrix.shape == (16, 5)


# -- without a dictionary --------------------------------------------------------------------------
def test_similarity_distributions_and_self_learning_recover_the_rotation():
    source, target, gold, _ = planted(noise=0.3)
    fit = fit_unsupervised(source, target, start="distributions", options=dict(patience=10))
    assert right(fit, source, target, gold) > 0.95
    assert fit.verdict is not None
    assert not fit.verdict.failed
    assert fit.verdict.gain > 1.25
    x, z = unit_rows(source.vectors), unit_rows(target.vectors)
    seeds = similarity_seeds(x, z)
    hits = {tuple(pair) for pair in gold.tolist()} & {tuple(pair) for pair in seeds.tolist()}
    assert len(hits) > 10 * 1200 / 600  # ten times the number expected by chance
    assert len(self_learning(x, z, seeds, keep=1.0)) == 1200


def test_adversarial_training_recovers_the_rotation():
    rng = np.random.default_rng(1)
    centres = np.linalg.qr(rng.standard_normal((3, 3)))[0] + 0.2 * rng.standard_normal((3, 3))
    cluster = rng.choice(
        3, 400, p=[0.6, 0.3, 0.1]
    )  # different sizes make the matching of clusters unique
    x = unit_rows(centres[cluster] + 0.1 * rng.standard_normal((400, 3)))
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    z = unit_rows(x @ turn + 0.02 * rng.standard_normal((400, 3)))[rng.permutation(400)]
    options = dict(epochs=3, updates=300, hidden=32)
    assert np.einsum("ij,ij->i", x, x @ turn).mean() < 0
    w = adversarial_start(x, z, seed=1, **options)
    assert np.einsum("ij,ij->i", x @ w, x @ turn).mean() > 0.9
    tiny = dict(epochs=1, updates=3, hidden=4)
    first, again = (adversarial_start(x, z, seed=1, **tiny) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    source, target, _, _ = planted(n=200)
    fit = fit_unsupervised(
        source,
        target,
        start="adversarial",
        options=tiny,
        restarts=2,
        refinement=Refinement(rounds=1),
    )
    assert fit.settings["start"] == "adversarial"
    assert fit.verdict is not None


def test_a_failed_unsupervised_map_is_reported():
    source, _, _, _ = planted(n=400)
    _, target, _, _ = planted(n=400, seed=7)
    fit = fit_unsupervised(source, target, options=dict(patience=3), restarts=2)
    assert fit.verdict.failed
    assert fit.verdict.gain < 1.25
    assert fit.settings["tries"] == 2
    assert "unreliable" in fit.verdict.why
    assert "use a dictionary" in fit.verdict.why
    sides = {
        lang: {0: Anchors(tuple(side.words), side.vectors, np.zeros(400, dtype=np.int64), lang)}
        for lang, side in (("xx", source), ("en", target))
    }
    encoder = StaticEncoder(
        {lang: WordTable(list(of[0].words), of[0].vectors) for lang, of in sides.items()}
    )
    with pytest.warns(
        FailedMapWarning, match="xx, layer 0: the map fitted without a dictionary is unreliable"
    ):
        DictionaryMaps(
            towards="en", start="distributions", start_options=dict(patience=2), restarts=1
        ).align(encoder, sides)
    x, z = unit_rows(source.vectors), unit_rows(target.vectors)
    assert check_map(x, z, np.eye(DIM)).failed
    assert start_options("distributions")["patience"] == 50
    assert start_options("adversarial")["updates"] == 31_250
    for start, there_are in (
        ("distributions", "frequent, keep, patience"),
        ("adversarial", "epochs"),
        ("identical", "none"),
    ):
        with pytest.raises(
            SettingError,
            match=f"'seed' is not an option of start '{start}', whose options are {there_are}",
        ):
            fit_unsupervised(source, target, start=start, options=dict(seed=1))


# -- encoders --------------------------------------------------------------------------------------
@pytest.fixture
def languages():
    corpus, _ = make_text("xx", 60, 0)
    return {"en": corpus.source, "xx": corpus.target}


def test_maps_of_an_encoder_are_fitted_from_anchors_and_a_dictionary(
    tiny_encoder, languages, tmp_path
):
    layers = (1, 2)
    anchors = {
        lang: compute_anchors(tiny_encoder, text, layers) for lang, text in languages.items()
    }
    dictionary = Dictionary(tuple(WORDS), tuple(w.upper() for w in WORDS), ("en", "xx"))
    how = Refinement(rounds=1, held_out=0.2)
    method = DictionaryMaps(
        "normalized-rotation", towards="en", combine="mean", refine=1, held_out=0.2, shrinkage=0
    )
    made = method.align(tiny_encoder, anchors, [dictionary])
    assert isinstance(made, MappedEncoder)
    assert (made.towards, made.layers) == ("en", (1, 2))
    for layer in layers:
        alone = fit_dictionary(
            anchors["xx"][layer],
            anchors["en"][layer],
            joined([dictionary], "en")["xx"],
            normalise="centre",
            refinement=how,
        )
        np.testing.assert_allclose(made.maps["xx"][layer].matrix, alone.source.matrix)
    assert made.settings["fits"]["xx"]["2"]["rounds"][0]["pairs"] == 8
    made.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out")
    sentence = [Sentence(("CAT", "HOUSE"), "xx")]
    np.testing.assert_array_equal(again.encode(sentence).data, made.encode(sentence).data)
    assert again.fingerprint == made.fingerprint
    with pytest.raises(SettingError, match="must have anchors"):
        method.align(tiny_encoder, {"en": anchors["en"]}, [dictionary])
    with pytest.raises(SettingError, match="cannot be used to map towards fr"):
        DictionaryMaps(towards="fr").align(tiny_encoder, {"fr": anchors["en"]}, [dictionary])
    with pytest.raises(SettingError, match="not both"):
        method.align(tiny_encoder, anchors)


def test_frequent_words_also_include_the_given_words(languages):
    text = Sentences.of([["b", "a", "b"], [], ["c", "b", "a"]], "en")
    assert frequent_words(text, 2, ["x", "a"]) == ["b", "a", "x"]
    assert set(frequent_words(languages["en"], 100)) == set(WORDS)
    assert mutual_neighbours(np.zeros((0, 3), np.float32), np.zeros((2, 3), np.float32))[
        0
    ].shape == (0, 2)
