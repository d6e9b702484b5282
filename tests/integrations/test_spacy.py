"""Tests of the calque component in spaCy pipelines."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

spacy = pytest.importorskip(
    "spacy", reason="spaCy is not installed: pip install 'calque-align[spacy]'"
)

import calque.integrations.spacy as ours  # noqa: E402
from calque.encoders import load_encoder  # noqa: E402
from calque.encoders.sentence_vectors import SentencePooling  # noqa: E402
from calque.errors import SettingError  # noqa: E402
from calque.linker import Linker  # noqa: E402

TEXT, OTHER = "the cat  sees\na house .", "eht tac a esuoh"


@pytest.fixture
def make(tiny_folder):
    def pipeline(*before, language="en", **config):
        nlp = spacy.blank(language)
        for name in before:
            nlp.add_pipe(name)
        nlp.add_pipe("calque", config={"encoder": str(tiny_folder), **config})
        return nlp

    return pipeline


def test_tokens_have_the_vectors_of_their_words_and_white_space_tokens_have_zeros(
    make, tiny_encoder
):
    doc = make()(TEXT)
    words = [token.text for token in doc if not token.is_space]
    assert words == ["the", "cat", "sees", "a", "house", "."]
    assert len(doc) == 8
    expected = iter(tiny_encoder.encode([words]).data)
    for token in doc:
        row = np.zeros(tiny_encoder.dim) if token.is_space else next(expected)
        np.testing.assert_allclose(token._.calque, row, atol=1e-6)
        np.testing.assert_array_equal(token._.calque, doc._.calque_vectors[token.i])
    assert make()("")._.calque_vectors.shape == (0, tiny_encoder.dim)
    assert not make()(" \n ")._.calque_vectors.any()


def test_sentences_with_known_boundaries_are_encoded_separately(make, tiny_encoder):
    doc = make("sentencizer")("the cat sees. a house")
    expected = tiny_encoder.encode([["the", "cat", "sees", "."], ["a", "house"]]).data
    np.testing.assert_allclose(doc._.calque_vectors, expected, atol=1e-6)


def test_a_stream_is_encoded_in_batches(make, monkeypatch):
    nlp, texts = make(batch_size=2), [TEXT, "", "a house", OTHER, "time and water"]
    component = nlp.get_pipe("calque")
    encoder, sizes = component.encoder, []
    usual = encoder.encode
    monkeypatch.setattr(
        encoder, "encode", lambda part, **options: sizes.append(len(part)) or usual(part, **options)
    )
    together = list(nlp.pipe(texts, batch_size=3))
    assert sizes == [2, 2]  # the text without words is not encoded
    for doc, text in zip(together, texts, strict=True):
        np.testing.assert_allclose(doc._.calque_vectors, nlp(text)._.calque_vectors, atol=1e-5)
    sizes.clear()
    list(component.pipe(map(nlp.make_doc, texts[2:])))
    assert sizes == [2, 1]


def test_every_word_of_a_long_text_has_a_vector(make, tiny_encoder):
    doc = make()("the cat sees a house " * tiny_encoder.max_length)
    assert doc._.calque_vectors.any(axis=1).all()


@pytest.mark.parametrize("options", [{}, {"method": "softmax", "threshold": 0.01}])
def test_links_between_two_docs_equal_those_of_a_linker(make, tiny_encoder, options):
    nlp = make()
    doc, other = nlp(TEXT), nlp(OTHER)
    named = {name: value for name, value in options.items() if name != "method"}
    linker = Linker(tiny_encoder, method=options.get("method"), options=named)
    words = [[token for token in each if not token.is_space] for each in (doc, other)]
    expected = linker.link(*([token.text for token in side] for side in words))
    found = doc._.calque_links(other, **options)
    assert found
    assert [(link.source, link.target) for link in found] == [
        (words[0][link.source].i, words[1][link.target].i) for link in expected
    ]
    np.testing.assert_allclose(
        [link.score for link in found], [link.score for link in expected], atol=1e-5
    )


def test_a_saved_pipeline_contains_its_encoder(make, tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "base")
    SentencePooling("own", "subwords", ("cls",)).save(
        load_encoder(tmp_path / "base"), tmp_path / "base"
    )
    nlp = make(encoder=str(tmp_path / "base"), layer=2)
    vectors = nlp(TEXT)._.calque_vectors
    assert not np.allclose(vectors, make()(TEXT)._.calque_vectors)
    nlp.to_disk(tmp_path / "saved")
    shutil.rmtree(tmp_path / "base")
    opened = spacy.load(tmp_path / "saved")
    np.testing.assert_allclose(opened(TEXT)._.calque_vectors, vectors, atol=1e-6)
    assert SentencePooling.of(opened.get_pipe("calque").encoder).modes == ("cls",)


def test_the_language_of_the_pipeline_selects_the_encoder(make, tiny_folder):
    pair = f"en={tiny_folder},de={tiny_folder}"
    for lang, config in (("de", {}), ("xx", {"lang": "en"})):
        assert make(language=lang, encoder=pair, **config)("a house")._.calque_vectors.any()
    with pytest.raises(SettingError, match="no encoder for language 'fr'"):
        make(language="fr", encoder=pair)("a house")


def test_invalid_uses_and_settings_are_rejected(make):
    nlp = make()
    bare = nlp.make_doc("a house")
    for use in (lambda: bare[0]._.calque, lambda: bare._.calque_links(nlp("a"))):
        with pytest.raises(
            SettingError, match="process it with a pipeline that contains the component calque"
        ):
            use()
    doc = nlp("a house")
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[:2])
    with pytest.raises(SettingError, match="retokenized"):
        _ = doc[0]._.calque
    with pytest.raises(
        SettingError, match=r"expected a spaCy Doc from a pipeline with calque, got str"
    ):
        nlp("a")._.calque_links("a house")
    with pytest.raises(SettingError, match="batch_size must be at least 1"):
        make(batch_size=0)


def test_spacy_finds_the_factory_by_its_entry_point():
    project = tomllib.loads(
        (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    module, _, function = project["entry-points"]["spacy_factories"]["calque"].partition(":")
    assert module == ours.__name__
    assert getattr(ours, function) is ours.make_component
    assert spacy.blank("en").has_factory("calque")
