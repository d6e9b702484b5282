"""Tests of custom encoders: errors name missing members, and an encoder with the required members
can be trained.
"""

import numpy as np
import pytest
import torch
from torch import nn

from calque import Contrastive, FineTune, MappedEncoder, Rotation, WordRetrieval
from calque.algebra.normalize import unit_rows
from calque.encoders.batches import WordBatch
from calque.encoders.split import SplitSentences
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from linked_text import numbered_text
from planted import Planted


@pytest.fixture(scope="module")
def text():
    return numbered_text(40, 4)


class Letters(TrainableEncoder):
    """Custom trainable encoder: each letter is a subword, and a word's vector is the mean of its
    letter vectors.
    """

    def __init__(self):
        self.name, self.dim = "letters", 16
        self.model = nn.Embedding(128, 16)

    def split(self, sentences):
        words = [word for sentence in sentences for word in sentence.words]
        ends = np.cumsum([0, *map(len, words)])
        word_offsets = np.cumsum([0, *map(len, sentences)])
        offsets = ends[word_offsets]
        return SplitSentences(
            ids=np.array([ord(letter) for word in words for letter in word], dtype=np.int32),
            offsets=offsets,
            word_offsets=word_offsets,
            word_lengths=np.diff(ends).astype(np.int32),
            word_starts=(ends[:-1] - np.repeat(offsets[:-1], np.diff(word_offsets))).astype(
                np.int32
            ),
        )

    def forward(self, batch, layers):
        rows = []
        for each in [batch] if isinstance(batch, WordBatch) else batch:
            letters = self.model(each.input_ids.flatten())
            spans = zip(each.starts.tolist(), each.lengths.tolist(), strict=True)
            rows.append(torch.stack([letters[start : start + n].mean(0) for start, n in spans]))
        return {layer: torch.cat(rows) for layer in layers}

    @property
    def fingerprint(self):
        return str(self.model.weight.sum().item())


def linked(encoder, corpus, pairs):
    source, target = encoder.encode(corpus.source), encoder.encode(corpus.target)
    return (
        source.data[source.rows(pairs.sentence, pairs.source)],
        target.data[target.rows(pairs.sentence, pairs.target)],
    )


def distance(x, y):
    return ((x - y) ** 2).sum(1).mean()


def contrast(x, y):
    """Return the mean cosine of words with the words of other pairs, minus their mean cosine with
    their own translations.
    """
    x, y = unit_rows(x), unit_rows(y)
    return (x * np.roll(y, 1, axis=0)).sum(1).mean() - (x * y).sum(1).mean()


@pytest.mark.parametrize(
    ("make", "accumulate", "measure"),
    [
        (Contrastive, 1, contrast),
        (Contrastive, 2, contrast),
        (type("FineTune", (FineTune,), {"special": False}), 1, distance),
    ],
)
def test_a_custom_encoder_with_the_required_members_can_be_trained(make, accumulate, measure, text):
    torch.manual_seed(0)
    encoder = Letters()
    before = encoder.model.weight.clone()
    settings = {"epochs": 8, "learning_rate": 3e-2, "accumulate": accumulate, "held_out": 0}
    if make is Contrastive:
        settings["batch"] = 32
    tuned = make(towards="en", **settings).align(encoder, *text)
    assert type(tuned) is Letters
    assert torch.equal(encoder.model.weight, before)
    assert measure(*linked(tuned, *text)) < measure(*linked(encoder, *text)) - 0.01


def test_encode_of_a_custom_trainable_encoder_uses_its_forward_pass(text, tmp_path):
    encoder, sentences = Letters(), list(text[0].source)
    encoder.budget = 40
    encoder.model.train()
    expected = [
        encoder.model.weight[[ord(letter) for letter in word]].mean(0)
        for s in sentences
        for word in s.words
    ]
    vectors = encoder.encode(sentences)
    np.testing.assert_allclose(vectors.data, torch.stack(expected).detach().numpy(), atol=1e-6)
    assert vectors.offsets.tolist() == np.cumsum([0, *map(len, sentences)]).tolist()
    assert encoder.model.training
    np.testing.assert_array_equal(
        encoder.encode_to(tmp_path / "kept", sentences).data, vectors.data
    )
    np.testing.assert_array_equal(encoder.encode_layers(sentences, [-1])[-1].data, vectors.data)


@pytest.mark.parametrize(
    ("use", "missing"),
    [
        (
            lambda *text: MappedEncoder.fit(object(), *text, make=Rotation, towards="en"),
            r"object cannot be mapped: object has no .*, layer, layer_numbers, encode_layers; see .*docs/guides/own\.md",
        ),
        (
            lambda *text: Contrastive(towards="en").align(Planted(), *text),
            r"planted cannot be trained: Planted has no model, split, forward; see",
        ),
        (
            lambda *text: WordRetrieval(*text).evaluate(object()),
            r"object cannot be measured: object has no name, dim, fingerprint, encode; see",
        ),
    ],
)
def test_the_error_names_the_missing_members_of_an_encoder(use, missing, text):
    with pytest.raises(SettingError, match=missing):
        use(*text)


def test_training_or_remapping_a_mapped_encoder_raises_an_error(text, tiny_encoder):
    mapped = MappedEncoder.fit(tiny_encoder, *text, make=Rotation, towards="en")
    with pytest.raises(SettingError, match=r"cannot be trained: MappedEncoder has no model"):
        Contrastive(towards="en").align(mapped, *text)
    with pytest.raises(SettingError, match="already has maps; fit new maps to its base"):
        MappedEncoder.fit(mapped, *text, make=Rotation, towards="en")


def test_encoders_have_one_layer_unless_they_define_several(text):
    planted, corpus = Planted(), text[0]
    assert (planted.layer, list(planted.layers), planted.languages, planted.rows) == (
        0,
        [0],
        (),
        "words",
    )
    assert planted.layer_numbers(None) == planted.layer_numbers([-1]) == (0,)
    expected = planted.encode(corpus.source).data
    for found in planted.encode_layers(corpus.source, [0, -1]).values():
        np.testing.assert_array_equal(found.data, expected)
    for layers, why in (
        ([1], "no layer 1: planted has layers 0"),
        ([], "layers must not be empty"),
    ):
        with pytest.raises(SettingError, match=why):
            planted.layer_numbers(layers)
    planted.n_layers = planted.layer = 3
    assert planted.layer_numbers([0, -1, -2]) == (0, 3, 2)
    with pytest.raises(
        SettingError, match="planted has several layers, so Planted must implement encode_layers"
    ):
        planted.encode_layers(corpus.source, [1, 2])
