"""Compare the mixture of layers with a literal transcription of its formula."""

import math

import numpy as np
import pytest
import torch

from calque.nn.mixture import ScalarMix


def slow_mix(layers, scores, gamma, layer_norm):
    """Compute γ Σ_j softmax(s)_j h_j for one word (Peters et al. 2018, Eq. 1) in plain Python."""
    total = sum(math.exp(score) for score in scores)
    mixed = [0.0] * len(layers[0])
    for vector, score in zip(layers, scores, strict=True):
        mean, deviation = 0.0, 1.0
        if layer_norm:
            mean = sum(vector) / len(vector)
            variance = sum((x - mean) ** 2 for x in vector) / len(vector)
            deviation = math.sqrt(variance + 1e-5)
        for k, x in enumerate(vector):
            mixed[k] += gamma * math.exp(score) / total * (x - mean) / deviation
    return mixed


@pytest.mark.parametrize("layer_norm", [True, False])
def test_the_mixture_equals_its_formula(layer_norm):
    rng = np.random.default_rng(0)
    words = rng.standard_normal((7, 3, 5)) * [[[1.0], [20.0], [0.1]]]
    scores, gamma = [0.3, -0.5, 1.2], 1.7
    mix = ScalarMix(3, 5, layer_norm=layer_norm)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor(scores))
        mix.gamma.fill_(gamma)
    rows = torch.tensor(words.reshape(7, 15), dtype=torch.float32)
    expected = [slow_mix(word.tolist(), scores, gamma, layer_norm) for word in words]
    np.testing.assert_allclose(mix(rows).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_new_mixture_is_the_mean_of_the_layers():
    rows = torch.randn(4, 6)
    mix = ScalarMix(2, 3, layer_norm=False)
    torch.testing.assert_close(mix(rows), (rows[:, :3] + rows[:, 3:]) / 2)
    assert mix.weights().tolist() == [0.5, 0.5]


def test_words_without_a_vector_keep_the_zero_vector():
    assert not ScalarMix(2, 3)(torch.zeros(4, 6)).any()
