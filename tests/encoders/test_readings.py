"""Compare layers that are read side by side, or with another pooling, with separate encoders."""

import numpy as np
import pytest

from calque.encoders import load_encoder
from calque.encoders.mapped import MappedEncoder
from calque.encoders.readings import StackedLayers, layers_of, poolings_of, with_pooling
from calque.errors import SettingError
from calque.maps import Rotation
from calque.text import Sentences
from planted import Planted


@pytest.fixture(scope="module")
def text(multilingual_words):
    return Sentences.of(multilingual_words[:4], "de")


def rotated(encoder, layers, combine="last"):
    """Return the encoder with a random rotation for each layer of German."""
    rng = np.random.default_rng(0)
    maps = {}
    for layer in layers:
        x = rng.standard_normal((100, encoder.dim))
        maps[layer] = Rotation().fit(x, x @ np.linalg.qr(rng.standard_normal((32, 32)))[0])
    return MappedEncoder(encoder, {"de": maps}, towards="en", combine=combine)


def test_stacked_layers_equal_separate_encoders(tiny_folder, tiny_encoder, text):
    stacked = StackedLayers(tiny_encoder, [0, 2, -1])
    found = stacked.encode(text)
    assert (stacked.numbers, stacked.dim, found.dim) == ((0, 2, 3), 96, 96)
    for index, layer in enumerate((0, 2, 3)):
        alone = load_encoder(tiny_folder, layer=layer).encode(text)
        np.testing.assert_allclose(
            found.data[:, 32 * index : 32 * (index + 1)], alone.data, atol=1e-5
        )
    assert stacked.fingerprint != StackedLayers(tiny_encoder, [0, 1, 3]).fingerprint


@pytest.mark.parametrize("combine", ["last", "concat"])
def test_each_stacked_layer_is_mapped_by_its_own_map(combine, tiny_encoder, text):
    mapped = rotated(tiny_encoder, [1, 3], combine)
    found = StackedLayers(mapped, layers_of(mapped)).encode(text)
    assert found.dim == 64
    for index, layer in enumerate((1, 3)):
        before = tiny_encoder.encode_layers(text, [layer])[layer]
        expected = mapped.maps["de"][layer].transform(before.data)
        np.testing.assert_allclose(
            found.data[:, 32 * index : 32 * (index + 1)], expected, atol=1e-5
        )


def test_an_encoder_with_one_layer_has_nothing_to_choose_from(tiny_encoder):
    with pytest.raises(SettingError, match="planted, because it has only one"):
        layers_of(Planted())
    with pytest.raises(SettingError, match=r"only layer 2 has maps; .*calque align --layers 0-3"):
        layers_of(rotated(tiny_encoder, [2]))
    assert layers_of(tiny_encoder) == (0, 1, 2, 3)
    assert layers_of(tiny_encoder, [-1, 1, 3]) == (1, 3)


def test_the_pooling_changes_only_in_the_returned_encoder(tiny_folder, tiny_encoder, text):
    changed = with_pooling(tiny_encoder, "first")
    expected = load_encoder(tiny_folder, pooling="first")
    np.testing.assert_allclose(changed.encode(text).data, expected.encode(text).data, atol=1e-6)
    assert (changed.fingerprint, tiny_encoder.pooling) == (expected.fingerprint, "mean")


def test_the_pooling_of_fitted_vectors_cannot_change(tiny_encoder):
    assert poolings_of(tiny_encoder) == ("mean", "last", "first")
    mapped = rotated(tiny_encoder, [1, 2])
    assert poolings_of(mapped) == ()
    with pytest.raises(SettingError, match="cannot be mean, because it has no pooling"):
        with_pooling(mapped, "mean")
