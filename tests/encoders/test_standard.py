"""Tests of standardised word vectors: when vectors are standardised, the statistics used, and
saving.
"""

import numpy as np
import pytest
import torch

from calque import Contrastive, load_encoder
from calque.alignment.data import training_data
from calque.alignment.maps import LinkedMaps
from calque.encoders.random_vectors import RandomVectors
from calque.encoders.standard import StandardizedWarning, standardized
from calque.errors import SettingError
from linked_text import make_text

WORDS = [["a", "cat", "sees"], ["the", "house"]]


@pytest.fixture(scope="module")
def text():
    return make_text("xx", 24, 0)


@pytest.fixture
def dominated(tiny_encoder, tiny_folder):
    """Return an encoder whose last-layer vectors are dominated by dimension 5."""
    encoder = load_encoder(tiny_folder)
    norms = [module for module in encoder.model.modules() if isinstance(module, torch.nn.LayerNorm)]
    with torch.no_grad():
        norms[-1].bias[5] += 1000
    return encoder


def statistics(encoder, text):
    rows = np.concatenate(
        [encoder.encode(side).data for side in training_data(*text).sides]
    ).astype(np.float64)
    return rows.mean(axis=0), rows.std(axis=0)


def test_a_layer_with_a_dominating_dimension_is_standardised(dominated, text):
    mean, deviation = statistics(dominated, text)
    with pytest.warns(StandardizedWarning, match="layer 3"):
        found = standardized(dominated, training_data(*text).sides, None, None)
    assert dominated.standard == {}
    expected = (dominated.encode(WORDS).data - mean) / deviation
    np.testing.assert_allclose(
        found.encode(WORDS).data, expected, atol=2e-3
    )  # float32 values near 1000 are 6e-5 apart
    assert found.fingerprint != dominated.fingerprint
    assert standardized(found, training_data(*text).sides, None, True) is found


def test_other_encoders_are_not_standardised(tiny_encoder, text):
    assert standardized(tiny_encoder, training_data(*text).sides, None, None).standard == {}
    assert standardized(tiny_encoder, training_data(*text).sides, None, True).standard.keys() == {
        tiny_encoder.layer
    }
    static = RandomVectors(4)
    assert standardized(static, [], None, None) is static
    with pytest.raises(SettingError, match="standardize"):
        standardized(static, [], None, True)


@pytest.mark.filterwarnings("ignore:.*have no vector")
def test_vectors_of_words_without_subwords_remain_zero(dominated, text):
    found = standardized(dominated, training_data(*text).sides, None, True)
    vectors = found.encode([["cat", "\u200b", "house"]])
    assert not vectors.data[~vectors.covered].any()
    assert vectors.data[vectors.covered].all(axis=1).any()


@pytest.mark.parametrize("lora", [None, 2])
def test_training_uses_and_saves_standardised_vectors(dominated, tiny_folder, tmp_path, text, lora):
    dominated.save(tmp_path / "base")
    base, data = load_encoder(tmp_path / "base"), training_data(*text)
    tuner = Contrastive(towards="en", batch=6, learning_rate=1e-9, lora=lora)
    with pytest.warns(StandardizedWarning):
        trained = tuner.fit(base, data)
    tuned = trained.encoder
    plain = Contrastive(towards="en", batch=6, learning_rate=1e-9, lora=lora, standardize=False)
    unscaled = plain.fit(base, data)
    same = unscaled.encoder
    assert same.standard == {}
    assert trained.history != unscaled.history
    if lora is None:  # adapters require a base encoder that can be reloaded
        assert (
            plain.fit(standardized(base, data.sides, None, True), data).history == trained.history
        )
    tuned.save(tmp_path / "out")
    opened = load_encoder(tmp_path / "out")
    np.testing.assert_array_equal(opened.encode(WORDS).data, tuned.encode(WORDS).data)
    assert opened.fingerprint == tuned.fingerprint
    np.testing.assert_allclose(
        opened.merged().encode(WORDS).data, tuned.encode(WORDS).data, atol=1e-3
    )
    # Saving another encoder to the same folder replaces the statistics.
    same.merged().save(tmp_path / "out")
    (tmp_path / "out" / "adapter_config.json").unlink(missing_ok=True)
    np.testing.assert_array_equal(
        load_encoder(tmp_path / "out").encode(WORDS).data, same.merged().encode(WORDS).data
    )


def test_a_rotation_of_a_standardised_encoder_can_be_saved(dominated, tmp_path, text):
    with pytest.warns(StandardizedWarning):
        mapped = LinkedMaps("rotation", towards="en").align(dominated, *text)
    mapped.save(tmp_path / "m")
    opened = load_encoder(tmp_path / "m")
    side = text[0].target
    np.testing.assert_array_equal(opened.encode(side).data, mapped.encode(side).data)
    assert float(np.abs(mapped.encode(side).data.mean(axis=0)).max()) < 1
