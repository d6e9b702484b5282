"""Compare the mixture of layers with a literal transcription of its formula."""

import math

import numpy as np
import pytest
import torch

from calque.nn.mixture import ScalarMix


def slow_mix(words, scores, gamma, norm):
    """Compute γ Σ_j softmax(s)_j h_j for each word (Peters et al. 2018, Eq. 1) in plain Python.

    Args:
        words: vectors by word, layer and dimension.
    """
    n_words, n_layers, dim = len(words), len(words[0]), len(words[0][0])
    words = [[list(layer) for layer in word] for word in words]
    if norm != "none":
        for word in words:
            for j in range(n_layers):
                mean = sum(word[j]) / dim
                variance = sum((x - mean) ** 2 for x in word[j]) / dim
                word[j] = [(x - mean) / math.sqrt(variance + 1e-5) for x in word[j]]
    if norm == "standard":
        for j in range(n_layers):
            for k in range(dim):
                column = [word[j][k] for word in words]
                mean = sum(column) / n_words
                deviation = math.sqrt(sum((x - mean) ** 2 for x in column) / n_words)
                for word in words:
                    word[j][k] = (word[j][k] - mean) / deviation
    total = sum(math.exp(score) for score in scores)
    mixed = []
    for word in words:
        row = [0.0] * dim
        for j, score in enumerate(scores):
            for k in range(dim):
                row[k] += gamma * math.exp(score) / total * word[j][k]
        mixed.append(row)
    return mixed


@pytest.mark.parametrize("norm", ["standard", "layer", "none"])
def test_the_mixture_equals_its_formula(norm):
    rng = np.random.default_rng(0)
    words = rng.standard_normal((7, 3, 5)) * [[[1.0], [200.0], [0.5]]] + [0, 0, 0, 0, 50.0]
    scores, gamma = [0.3, -0.5, 1.2], 1.7
    mix = ScalarMix(3, 5, norm=norm)
    rows = torch.tensor(words.reshape(7, 15), dtype=torch.float32)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor(scores))
        mix.gamma.fill_(gamma)
    if norm == "standard":
        mix.measure([rows[:4], rows[4:]])
    expected = slow_mix(words.tolist(), scores, gamma, norm)
    np.testing.assert_allclose(mix(rows).detach().numpy(), expected, rtol=2e-3, atol=2e-3)


def test_a_new_mixture_is_the_mean_of_the_layers():
    rows = torch.randn(4, 6)
    mix = ScalarMix(2, 3, norm="none")
    torch.testing.assert_close(mix(rows), (rows[:, :3] + rows[:, 3:]) / 2)
    assert mix.weights().tolist() == [0.5, 0.5]


def test_a_dominant_dimension_does_not_hide_the_others():
    """Check that the information of a small dimension survives only with the default norm."""
    rng = np.random.default_rng(0)
    layers = rng.standard_normal((50, 2, 8))
    layers[..., 0] += 1000  # nearly constant, with almost all of the length
    rows = torch.tensor(layers.reshape(50, 16), dtype=torch.float32)
    deviations = {}
    for norm in ("standard", "layer"):
        mix = ScalarMix(2, 8, norm=norm)
        mix.measure([rows])
        deviations[norm] = mix(rows).std(0)[1:].max()
    assert deviations["standard"] > 0.5 > 0.01 > deviations["layer"]


def test_a_dimension_that_is_constant_in_training_text_stays_finite():
    rows = torch.ones(4, 6)
    mix = ScalarMix(2, 3)
    mix.measure([rows])
    assert mix(rows).isfinite().all()
