"""Tests of the baselines: a random vector for each word type, and an untrained network."""

import json

import numpy as np
import pytest
import torch

from calque.encoders import load_encoder
from calque.encoders.random_vectors import RandomVectors, untrained
from calque.errors import InputError, SettingError
from calque.text import Sentences

TEXT = Sentences.of([["the", "cat", "the"], [], ["Katze", "cat"]], "en")


def test_a_word_type_has_the_same_vector_in_every_text():
    encoder = RandomVectors(16)
    found = encoder.encode(TEXT)
    assert found.offsets.tolist() == [0, 3, 3, 5]
    assert (found[0][0] == found[0][2]).all()
    assert (found[0][1] == found[2][1]).all()
    alone = encoder.encode([["cat"]])
    assert (alone[0][0] == found[0][1]).all()
    assert not np.allclose(found[0][0], found[2][0])
    other = RandomVectors(16, seed=1)
    assert not np.allclose(other.encode(TEXT).data, found.data)
    assert other.fingerprint != encoder.fingerprint != RandomVectors(15).fingerprint


def test_components_are_standard_normal_and_independent_across_word_types():
    data = RandomVectors(64).encode([[f"w{k}" for k in range(2000)]]).data
    assert abs(data.mean()) < 0.02
    assert data.std() == pytest.approx(1, abs=0.02)
    assert (
        np.abs(np.corrcoef(data[:200])[np.triu_indices(200, 1)]).max() < 0.65
    )  # 4.5 standard errors are 0.57


def test_random_vectors_are_loaded_by_name_and_settings_are_checked(tmp_path):
    assert (
        load_encoder("calque.encoders.random_vectors:RandomVectors").fingerprint
        == RandomVectors().fingerprint
    )
    with pytest.raises(SettingError, match="dim"):
        RandomVectors(0)
    RandomVectors(12, seed=3).save(tmp_path / "random")
    with pytest.raises(SettingError, match="layer does not apply to random vectors"):
        load_encoder(tmp_path / "random", layer=1)
    about = json.loads((tmp_path / "random" / "calque.json").read_text())
    (tmp_path / "random" / "calque.json").write_text(json.dumps({**about, "dim": 0}))
    with pytest.raises(InputError, match="invalid settings for random vectors"):
        load_encoder(tmp_path / "random")


def test_an_untrained_network_differs_only_in_its_weights(tiny_folder, tmp_path):
    encoder = load_encoder(tiny_folder, layer=2, pooling="mean")
    before = encoder.fingerprint
    state = torch.random.get_rng_state()
    one, same, other = untrained(encoder), untrained(encoder), untrained(encoder, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (one.dim, one.layer, one.n_layers, one.pooling) == (
        encoder.dim,
        2,
        encoder.n_layers,
        "mean",
    )
    assert one.fingerprint == same.fingerprint
    assert len({one.fingerprint, other.fingerprint, before}) == 3
    assert encoder.fingerprint == before
    weights = dict(encoder.model.named_parameters())
    matrices = [name for name, value in one.model.named_parameters() if value.ndim == 2]
    assert not any(
        torch.allclose(one.model.get_parameter(name), weights[name]) for name in matrices
    )
    one.save(tmp_path / "untrained")
    np.testing.assert_allclose(
        load_encoder(tmp_path / "untrained").encode(TEXT).data, one.encode(TEXT).data, atol=1e-6
    )
    with pytest.raises(SettingError, match="random vectors is not a Transformers model"):
        untrained(RandomVectors())
