"""Maps from plain text, with encoders."""

import numpy as np
import pytest

from calque.alignment.text_maps import LanguageInformationRemoval, LanguageMeans, LowRankRemoval, moments_of
from calque.encoders import load_encoder
from calque.encoders.mapped import MappedEncoder
from calque.encoders.static import SentencePart, StaticEncoder
from calque.encoders.tables import PlainTable
from calque.errors import SettingError
from calque.text import ParallelCorpus, Sentence, Sentences
from linked_text import make_text


@pytest.fixture(scope="module")
def corpora():
    return [make_text("xx", 30, 0)[0], make_text("yy", 20, 1)[0]]


def literal(encoder, corpora, layer):
    """Vectors of all words of each language, float64."""
    rows = {}
    for corpus in corpora:
        for lang, side in zip(corpus.langs, (corpus.source, corpus.target), strict=True):
            rows.setdefault(lang, []).append(encoder.encode_layers(side, [layer])[layer].data.astype(np.float64))
    return {lang: np.concatenate(parts) for lang, parts in rows.items()}


def test_moments_in_blocks_are_those_of_all_words_that_have_a_vector(tiny_encoder, corpora):
    texts = {"en": [corpora[0].source, corpora[1].source], "xx": [corpora[0].target]}
    found = moments_of(tiny_encoder, texts, [1, -1], block=4)
    assert found["en"].keys() == {1, 3}
    x = literal(tiny_encoder, corpora, 1)["en"]
    assert found["en"][1].n == len(x)
    np.testing.assert_allclose(found["en"][1].source_mean, x.mean(0), atol=1e-6)
    np.testing.assert_allclose(found["en"][1].gram, (x - x.mean(0)).T @ (x - x.mean(0)), atol=1e-3)
    with pytest.warns(UserWarning, match="have no vector"):
        one = moments_of(tiny_encoder, {"en": [Sentences.of([["cat", "\x00"]], "en")]})
    assert one["en"][3].n == 1
    with pytest.raises(SettingError, match="the text in en has no word for which .* has a vector"):
        moments_of(tiny_encoder, {"en": [Sentences.of([[]], "en")]})


def test_each_method_equals_its_formula_at_every_layer(tiny_encoder, corpora):
    for make in (LanguageMeans, LowRankRemoval, LanguageInformationRemoval):
        made = make(towards="en", layers=(1, 2), combine="concat").align(tiny_encoder, corpora)
        assert isinstance(made, MappedEncoder)
        assert (made.layers, made.dim) == ((1, 2), 2 * tiny_encoder.dim)
        expected = {"en": [], "xx": [], "yy": []}
        for layer in (1, 2):
            rows = literal(tiny_encoder, corpora, layer)
            means = {lang: x.mean(0) for lang, x in rows.items()}
            centred = np.stack(list(means.values()), axis=1) - np.mean(list(means.values()), axis=0)[:, None]
            shared = np.linalg.svd(centred)[0][:, :2]
            for lang, x in rows.items():
                if make is LanguageMeans:
                    expected[lang].append(x - means[lang] + means["en"])
                else:
                    own = shared if make is LowRankRemoval else np.linalg.svd(x)[2][:1].T
                    expected[lang].append(x - x @ own @ own.T)
        for lang in expected:
            texts = [side for c in corpora for side in (c.source, c.target) if side.lang == lang]
            found = np.concatenate([made.encode(text).data for text in texts])
            np.testing.assert_allclose(found, np.hstack(expected[lang]), atol=1e-3)


def test_text_and_the_sides_of_parallel_text_teach_the_same(tiny_encoder, corpora):
    corpus = corpora[0]
    for make in (LanguageMeans, LowRankRemoval, LanguageInformationRemoval):
        pairs, plain = make(towards="en"), make(towards="en")
        one = pairs.align(tiny_encoder, corpus)
        other = plain.align(tiny_encoder, {"en": corpus.source, "xx": corpus.target})
        assert one.fingerprint == other.fingerprint
        assert pairs.record() == plain.record()
        assert plain.record()["settings"]["sentences"] == {"en": 30, "xx": 30}


@pytest.mark.parametrize(("make", "moves"), [
    (LanguageMeans, {"xx"}), (LowRankRemoval, {"en", "xx"}), (LanguageInformationRemoval, {"en", "xx"}),
])  # fmt: skip
def test_who_moves_and_that_the_folder_brings_it_back(tiny_encoder, corpora, tmp_path, make, moves):
    corpus = corpora[0]
    made = make(towards="en").align(tiny_encoder, corpus)
    assert made.languages == ("en", "xx")
    for side in (corpus.source, corpus.target):
        moved = np.abs(made.encode(side).data - tiny_encoder.encode(side).data).max() > 1e-3
        assert moved == (side.lang in moves)
    words = Sentence(corpus.source[0].words, "zz")  # a language without text stays as it is
    np.testing.assert_array_equal(made.encode([words]).data, tiny_encoder.encode([words]).data)
    made.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out")
    assert (again.towards, again.fingerprint) == ("en", made.fingerprint)
    np.testing.assert_array_equal(again.encode(corpus.source).data, made.encode(corpus.source).data)
    assert again.settings["method"] == make.method


def test_static_vectors_take_the_maps_in(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(30)]
    vectors = {lang: rng.normal(size=(30, 6)).astype(np.float32) + shift for lang, shift in (("en", 0), ("xx", 3))}
    tables = {lang: PlainTable(words, x) for lang, x in vectors.items()}
    base = StaticEncoder(tables, normalise=False, sentence=SentencePart())
    corpus = ParallelCorpus.of([words], [words], ("en", "xx"))
    made = LowRankRemoval(towards="en").align(base, corpus)
    assert isinstance(made, StaticEncoder)
    assert set(made.maps) == {"en", "xx"}
    made.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out")
    apart = vectors["en"].mean(0) - vectors["xx"].mean(0)
    apart /= np.linalg.norm(apart)
    for lang, side in (("en", corpus.source), ("xx", corpus.target)):
        expected = vectors[lang] - np.outer(vectors[lang] @ apart, apart)
        np.testing.assert_allclose(again.replace(sentence=None).encode(side).data, expected, atol=1e-5)


def test_what_cannot_be_is_said(tiny_encoder, corpora):
    with pytest.raises(SettingError, match="lsar needs text in de and in another language, got en, xx"):
        LowRankRemoval(towards="de").align(tiny_encoder, corpora[0])
    with pytest.raises(SettingError, match="lir needs text in en and in another language, got en"):
        LanguageInformationRemoval(towards="en").align(tiny_encoder, {"en": corpora[0].source})
    for make in (LowRankRemoval, LanguageInformationRemoval):
        with pytest.raises(SettingError, match="rank must be at least 1"):
            make(towards="en", rank=0)
    with pytest.raises(SettingError, match="rank=2: the means of 2 languages"):
        LowRankRemoval(towards="en", rank=2).align(tiny_encoder, corpora[0])
    mapped = LanguageMeans(towards="en").align(tiny_encoder, corpora[0])
    with pytest.raises(SettingError, match="has maps already"):
        LanguageMeans(towards="en").align(mapped, corpora[0])
