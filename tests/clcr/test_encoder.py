"""Tests of key-point encoders: steps, pivots and saving."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from calque import load_encoder
from calque.clcr.encoder import PARTS_FILE, KeyPointEncoder, Parts
from calque.clcr.networks import AbsoluteOrder, KeyPointHead, RelativeOrder
from calque.clcr.transform import Transform
from calque.encoders.base import Encoder
from calque.encoders.random_vectors import RandomVectors
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.text import ParallelCorpus, Sentence, Sentences
from calque.vectors import Embeddings

TEXT = ["the red house", "", "unknown", "we see a very small tree behind it", "unknown yes", "one"]


class Words(Encoder):
    """Encoder whose word vectors depend on letters and position; the word `unknown` has no
    vector.
    """

    dim, name = 6, "words"

    @property
    def fingerprint(self):
        return f"words-{self.dim}"

    def encode(self, sentences, *, progress=False):
        words = [
            (word, place) for sentence in sentences for place, word in enumerate(sentence.words)
        ]
        rows = [
            np.random.default_rng(hashlib.sha256(f"{word} {place}".encode()).digest()[0]).normal(
                size=self.dim
            )
            for word, place in words
        ]
        covered = np.array([word != "unknown" for word, _ in words], dtype=bool)
        data = np.array(rows, dtype=np.float32).reshape(-1, self.dim) * covered[:, None]
        return Embeddings(data, offsets_of([len(s.words) for s in sentences]), covered)


class Wide(Words):
    dim, name = 9, "wide"


def parts(dim, *, pivot_dim=6, order=RelativeOrder):
    """Return the networks of a language whose vectors have `dim` dimensions; the weights are random
    instead of trained.
    """
    torch.manual_seed(dim)
    made = Parts(
        Transform(dim, pivot_dim, 5),
        Transform(pivot_dim, dim, 5),
        KeyPointHead(dim, 7),
        order(dim, 8),
    )
    for module in vars(made).values():
        for weights in module.parameters():
            torch.nn.init.normal_(weights)
    return made


def encoder(**options):
    order = options.pop("order", RelativeOrder)
    of_pivot = Parts(head=parts(6).head)
    return KeyPointEncoder(
        {"en": Words(), "de": Wide()},
        {"en": of_pivot, "de": parts(9, order=order)},
        pivot="en",
        **options,
    )


def text(lang):
    return Sentences.of([line.split() for line in TEXT], lang)


@pytest.mark.parametrize("order", [RelativeOrder, AbsoluteOrder])
@pytest.mark.parametrize("lang", ["en", "de"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_vectors_of_each_sentence_match_appendix_a(steps, lang, order):
    """Compare with a loop over sentences and words that follows Appendix A of the paper."""
    steps = ("transform", "extract", "reorder")[:steps]
    model = encoder(steps=steps, order=order)
    found, points = model.encode(text(lang)), model.key_points(text(lang))
    base, of_lang = model.encoders[lang], model.parts[lang]
    for number, sentence in enumerate(text(lang)):
        states = base.encode([sentence])
        words = list(range(len(sentence.words)))
        if "extract" in steps:
            known = [k for k in words if sentence.words[k] != "unknown"]
            with torch.no_grad():
                p = {
                    k: float(of_lang.head(torch.from_numpy(states.data[k : k + 1])).sigmoid())
                    for k in known
                }
            words = [k for k in known if p[k] > 0.2] or (
                [max(known, key=lambda k: p[k])] if known else []
            )
        if "reorder" in steps and lang == "de" and words:
            rows, place = torch.from_numpy(states.data[words]), torch.tensor(words)
            found_order, _ = of_lang.order.search(rows, place, torch.tensor([len(words)]), 10)
            words = [words[k] for k in found_order]
        rows = torch.from_numpy(states.data[words])
        if lang == "de":
            with torch.no_grad():
                known = torch.tensor([sentence.words[k] != "unknown" for k in words])
                rows = of_lang.to_pivot(rows) * known[:, None] if len(words) else torch.zeros(0, 6)
        assert points[number].tolist() == words
        np.testing.assert_allclose(found[number], rows.numpy(), rtol=1e-5, atol=1e-5)
    assert model.rows == ("words" if len(steps) == 1 else "key points")
    assert (model.dim, found.dim) == (6, 6)


def test_vectors_of_pivots_follow_the_order_of_the_translation():
    """Check the setting T+pGA of Table 4: untranslated words are removed, and the other words are
    in translation order.
    """
    same, words = Transform(6), RandomVectors(6)
    torch.nn.init.eye_(same.linear.weight)
    parts = {"en": Parts(), "de": Parts(same, same)}
    base = KeyPointEncoder(
        {"en": words, "de": words}, parts, pivot="en", steps=["transform"], costs={"de": 0.1}
    )
    english = [["one", "red", "house", "see"], ["tree", "small", "we"]]
    german = [["house", "extra", "one", "see", "red"], ["small", "we", "tree"]]
    model = base.with_pivots([ParallelCorpus.of(english, german, ("en", "de"))])
    found = model.key_points(Sentences.of(german, "de"))
    assert [found[k].tolist() for k in range(2)] == [[2, 4, 0, 3], [2, 0, 1]]
    np.testing.assert_array_equal(
        model.encode(Sentences.of(german, "de")).data, words.encode(english).data
    )
    assert (model.rows, model.name) == ("key points", f"{base.name}+pGA")
    assert model.fingerprint != base.fingerprint
    with pytest.raises(SettingError, match="1 of 1 sentences in de have no translation"):
        model.encode(Sentences.of([["tree"]], "de"))
    with pytest.raises(SettingError, match="pivots depend on one text"):
        model.save("anywhere")


def test_mixed_languages_are_encoded_like_each_language_separately():
    model = encoder()
    mixed = [
        Sentence(s.words, lang)
        for pair in zip(text("en"), text("de-AT"), strict=True)
        for s, lang in zip(pair, ("en", "de-AT"), strict=True)
    ]
    together, points = model.encode(mixed), model.key_points(mixed)
    for k, lang in enumerate(("en", "de")):
        alone, own = model.encode(text(lang)), model.key_points(text(lang))
        for number in range(len(TEXT)):
            np.testing.assert_array_equal(together[2 * number + k], alone[number])
            np.testing.assert_array_equal(points[2 * number + k], own[number])


def test_an_opened_encoder_equals_the_saved_encoder(tmp_path):
    model = encoder(threshold=0.3, beam=4, settings={"epochs": 1.0}, order=AbsoluteOrder)
    model.save(tmp_path / "it")
    again = load_encoder(tmp_path / "it")
    assert again.fingerprint == model.fingerprint
    assert (again.name, again.threshold, again.beam, again.settings) == (
        model.name,
        0.3,
        4,
        {"epochs": 1.0},
    )
    np.testing.assert_array_equal(again.encode(text("de")).data, model.encode(text("de")).data)
    only = load_encoder(tmp_path / "it", steps="transform")
    assert only.rows == "words"
    assert only.fingerprint != model.fingerprint
    with pytest.raises(
        SettingError, match="steps must be transform, or transform,extract, .* got extract"
    ):
        load_encoder(tmp_path / "it", steps="extract")
    with pytest.raises(SettingError, match="layer cannot be changed"):
        load_encoder(tmp_path / "it", layer=1)
    with pytest.raises(SettingError, match="steps does not apply to"):
        load_encoder("mini", steps="transform")
    (tmp_path / "it" / PARTS_FILE).write_bytes(b"nothing")
    with pytest.raises(InputError, match="must contain the trained weights of a key-point encoder"):
        load_encoder(tmp_path / "it")


def test_untrained_steps_and_languages_are_rejected():
    one = Parts(to_pivot=parts(9).to_pivot)
    model = KeyPointEncoder(
        {"en": Words(), "de": Wide()}, {"en": Parts(), "de": one}, pivot="en", steps=["transform"]
    )
    with pytest.raises(SettingError, match="step extract was not trained for en"):
        model.with_steps(("transform", "extract"))
    with pytest.raises(SettingError, match="no encoder for language 'fr'"):
        model.encode(text("fr"))
    with pytest.raises(SettingError, match="must be for en, de and 'fr', got en, de"):
        KeyPointEncoder({"en": Words(), "de": Wide()}, {"en": Parts(), "de": one}, pivot="fr")
