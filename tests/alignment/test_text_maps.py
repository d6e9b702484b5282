"""Tests of maps fitted on monolingual text."""

import numpy as np
import pytest

from calque.alignment.data import LinkedText
from calque.alignment.text_maps import LanguageMeans, TextMoments, moments_of, shifts
from calque.encoders import load_encoder
from calque.errors import SettingError
from calque.text import Sentence, Sentences
from calque.vectors import Embeddings
from linked_text import make_text


@pytest.fixture(scope="module")
def corpora():
    return [make_text("xx", 30, 0)[0], make_text("yy", 20, 1)[0]]


def literal(encoder, corpora, layer):
    """Return the vectors of all words in each language in float64."""
    rows = {}
    for corpus in corpora:
        for lang, side in zip(corpus.langs, (corpus.source, corpus.target), strict=True):
            rows.setdefault(lang, []).append(
                encoder.encode_layers(side, [layer])[layer].data.astype(np.float64)
            )
    return {lang: np.concatenate(parts) for lang, parts in rows.items()}


def test_moments_equal_the_moments_over_all_words_with_a_vector(tiny_encoder, corpora):
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
    with pytest.raises(
        SettingError, match="must have a vector for at least one word of the text in en"
    ):
        moments_of(tiny_encoder, {"en": [Sentences.of([[]], "en")]})


@pytest.mark.parametrize("offset", [True, False])
def test_language_means_are_shifted_or_removed_at_every_layer(tiny_encoder, corpora, offset):
    method = LanguageMeans(
        towards="en", layers=(1, 2), combine="concat", offset=offset, shrinkage=0
    )
    made = method.align(tiny_encoder, corpora)
    assert (made.layers, made.dim) == ((1, 2), 2 * tiny_encoder.dim)
    expected = {"en": [], "xx": [], "yy": []}
    for layer in (1, 2):
        rows = literal(tiny_encoder, corpora, layer)
        for lang, x in rows.items():
            expected[lang].append(x - x.mean(0) + offset * rows["en"].mean(0))
    for lang in expected:
        texts = [side for c in corpora for side in (c.source, c.target) if side.lang == lang]
        found = np.concatenate([made.encode(text).data for text in texts])
        np.testing.assert_allclose(found, np.hstack(expected[lang]), atol=1e-3)


def test_the_target_language_is_not_shifted_and_the_maps_can_be_saved(
    tiny_encoder, corpora, tmp_path
):
    corpus = corpora[0]
    made = LanguageMeans(towards="en").align(tiny_encoder, corpus)
    assert made.languages == ("en", "xx")
    for side in (corpus.source, corpus.target):
        moved = np.abs(made.encode(side).data - tiny_encoder.encode(side).data).max() > 1e-3
        assert moved == (side.lang == "xx")
    words = Sentence(corpus.source[0].words, "zz")  # languages without text are not shifted
    np.testing.assert_array_equal(made.encode([words]).data, tiny_encoder.encode([words]).data)
    made.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out")
    assert (again.towards, again.fingerprint) == ("en", made.fingerprint)
    np.testing.assert_array_equal(again.encode(corpus.target).data, made.encode(corpus.target).data)
    assert again.settings["method"] == "means"


def test_a_shift_is_shrunk_by_the_fraction_of_its_sampling_error(tiny_encoder, corpora):
    corpus = corpora[0]
    means, errors = {}, {}
    for lang, side in (("en", corpus.source), ("xx", corpus.target)):
        rows = tiny_encoder.encode(side)
        means[lang] = rows.data.astype(float).mean(axis=0)
        sums = [(rows[k].astype(float) - means[lang]).sum(axis=0) for k in range(len(rows))]
        errors[lang] = sum(each @ each for each in sums) / len(rows.data) ** 2
    shift = means["en"] - means["xx"]
    expected = (errors["en"] + errors["xx"]) / (shift @ shift)
    assert 0 < expected < 1
    fitted = LanguageMeans(towards="en").fit(tiny_encoder, LinkedText((corpus,)))
    assert fitted.encoder.maps["xx"][3].shrinkage == pytest.approx(expected, rel=1e-3)
    before, after = (each.encode(corpus.target).data for each in (tiny_encoder, fitted.encoder))
    np.testing.assert_allclose(
        after - before, np.tile((1 - expected) * shift, (len(after), 1)), atol=1e-3
    )
    record = fitted.record["settings"]["fits"]["xx"]["3"]
    assert record["to_identity"] == pytest.approx(expected, rel=1e-2)


def test_a_shift_that_is_only_error_is_left_out():
    """Both texts are samples of the same distribution."""
    rng = np.random.default_rng(0)

    def sampled(mean):
        moments = TextMoments(200)
        moments.add(Embeddings(mean + rng.normal(size=(40, 200)), np.arange(0, 41, 4)))
        return moments

    moments = {"en": sampled(0), "xx": sampled(0), "yy": sampled(5)}
    found = shifts(moments, towards="en", shrinkage="auto")
    assert found["xx"].shrinkage > 0.8
    assert found["yy"].shrinkage < 0.01
    assert shifts(moments, towards="en")["xx"].shrinkage == 0


def test_too_few_languages_and_mapped_encoders_are_rejected(tiny_encoder, corpora):
    with pytest.raises(
        SettingError, match="method means requires text in en and in another language, got en"
    ):
        LanguageMeans(towards="en").align(tiny_encoder, {"en": corpora[0].source})
    mapped = LanguageMeans(towards="en").align(tiny_encoder, corpora[0])
    with pytest.raises(SettingError, match="already has maps"):
        LanguageMeans(towards="en").align(mapped, corpora[0])
