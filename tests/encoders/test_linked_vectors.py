"""Test that maps with an encoder are shrunk as held-out sentences show, in one pass over the text."""

import numpy as np
import pytest

from calque.alignment.data import LinkedText
from calque.alignment.maps import LinkedMaps
from calque.encoders import load_encoder
from calque.encoders.linked_vectors import LinkedVectors, unseen_elsewhere
from calque.encoders.mapped import MappedEncoder
from calque.maps import Rotation
from calque.maps.shrinkage import CANDIDATES
from calque.text import ParallelCorpus
from linked_text import make_text, numbered_text


def test_unseen_links_equal_a_literal_implementation():
    texts, links = zip(make_text("xx", 30, 0), make_text("xx", 30, 1), strict=True)
    # Without this, all links of `make_text` are between words that are equal in lower case.
    texts = [
        ParallelCorpus.of(
            [sentence.words for sentence in text.source],
            [[word + "x" * (word in "OF CAT") for word in s.words] for s in text.target],
            text.langs,
        )
        for text in texts
    ]
    rng = np.random.default_rng(0)
    fold, sampled = rng.integers(30, size=60, dtype=np.int8), rng.random(60) < 0.6
    types, sentences = [], []
    for number, (text, linked) in enumerate(zip(texts, links, strict=True)):
        for k, i, j in zip(linked.sentence, linked.source, linked.target, strict=True):
            types.append((text.source[k].words[i].lower(), text.target[k].words[j].lower()))
            sentences.append(30 * number + k)
    expected = []
    for kind, sentence in zip(types, sentences, strict=True):
        folds = {fold[s] for other, s in zip(types, sentences, strict=True) if other == kind}
        expected.append(bool(sampled[sentence] and len(folds) == 1 and kind[0] != kind[1]))
    found = unseen_elsewhere(texts, links, fold, sampled)
    assert found.tolist() == expected
    one_fold = unseen_elsewhere(texts, links, np.zeros(60, dtype=np.int8), sampled)
    assert 0 < one_fold.sum() < sampled[sentences].sum()


@pytest.mark.parametrize("unit", ["words", "sentences"])
def test_several_texts_and_blocks_give_the_moments_and_samples_of_one_text(tiny_encoder, unit):
    corpus, links = numbered_text(10)
    parts = [slice(0, 3), slice(3, 10)]
    whole, split = (
        LinkedVectors(
            texts, pairs, dim=tiny_encoder.dim, layers=(1, 3), unit=unit, shrinkage="auto"
        )
        for texts, pairs in (
            ([corpus], [links]),
            ([corpus[p] for p in parts], [links.slice(p.start, p.stop) for p in parts]),
        )
    )
    whole.encode(tiny_encoder, block=100)
    split.encode(tiny_encoder, block=2)
    assert whole.n_pairs == split.n_pairs == (60 if unit == "words" else 10)
    for layer in (1, 3):
        for one, other in zip(whole.moments[layer], split.moments[layer], strict=True):
            np.testing.assert_allclose(one.raw_cross, other.raw_cross, rtol=1e-4, atol=1e-3)
        for kind in (unit, "sentences"):
            one, other = (each._samples[layer][kind].sample() for each in (whole, split))
            for a, b in zip(one, other, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-4)
            queries = one[4]
            assert queries.any()
            if kind == "words":
                assert not queries.all()


def test_a_fixed_shrinkage_is_that_of_the_map(tiny_encoder):
    corpus, links = make_text("xx", 40, 1)
    x = tiny_encoder.encode(corpus.target)
    y = tiny_encoder.encode(corpus.source)
    rows = x.rows(links.sentence, links.target), y.rows(links.sentence, links.source)
    expected = Rotation(shrinkage=0.3).fit(x.data[rows[0]], y.data[rows[1]]).matrix
    fitted = LinkedMaps("rotation", towards="en", shrinkage=0.3).align(tiny_encoder, corpus, links)
    np.testing.assert_allclose(fitted.maps["xx"][3].matrix, expected, atol=1e-9)
    record = fitted.settings["fits"]["xx"]["3"]
    assert (record["shrinkage"], record["pairs"]) == (0.3, len(links))
    assert 0 < record["to_identity"] < 1


def test_without_shrinkage_the_encoder_is_bitwise_that_of_the_papers(tiny_encoder):
    corpus, links = make_text("xx", 40, 1)
    plain = MappedEncoder.fit(tiny_encoder, corpus, links, make=Rotation, towards="en")
    method = LinkedMaps("rotation", towards="en", shrinkage=0)
    assert method.align(tiny_encoder, corpus, links).fingerprint == plain.fingerprint


def test_if_no_map_is_better_the_vectors_do_not_change(tiny_encoder, tmp_path):
    """Both sides of this text are equal, so every sentence is its own nearest neighbour."""
    source, links = numbered_text(20)
    words = [sentence.words for sentence in source.source]
    corpus = ParallelCorpus.of(words, words, ("en", "de"))
    method = LinkedMaps("rotation", towards="en")
    fitted = method.fit(tiny_encoder, LinkedText((corpus,), (links,)))
    fit = fitted.record["settings"]["fits"]["de"]["3"]
    assert (fit["shrinkage"], fit["to_identity"]) == (1, 1)
    expected = tiny_encoder.encode(corpus.target).data
    np.testing.assert_array_equal(fitted.encoder.encode(corpus.target).data, expected)
    fitted.encoder.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out")
    assert again.maps["de"][3].shrinkage == 1
    assert again.settings["fits"]["de"]["3"] == fit
    np.testing.assert_array_equal(again.encode(corpus.target).data, expected)


def test_a_shrinkage_is_chosen_among_the_candidates_and_reported(tiny_encoder):
    texts, links = zip(
        *(make_text(lang, 60, seed) for lang, seed in (("xx", 0), ("yy", 1))), strict=True
    )
    fitted = LinkedMaps("linear", towards="en", layers=(1, 3)).align(tiny_encoder, texts, links)
    for lang in ("xx", "yy"):
        for layer in ("1", "3"):
            fit = fitted.settings["fits"][lang][layer]
            assert fit["shrinkage"] in CANDIDATES
            assert fitted.maps[lang][int(layer)].shrinkage == fit["shrinkage"]
            assert fit["retrieval"]["sentences"]["queries"] == 60
