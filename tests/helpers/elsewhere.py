"""Sentence vectors of a saved folder, computed by calque and by the other programs that open it."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer

from calque.encoders import load_encoder
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.text import Sentences

TEXTS = [
    "the cat sees a house, of time!",
    "water",
    "Wir haben drei Bücher über Vögel, Käfer und Flüsse gekauft.",
    "老船长早上七点离开了港口",
]


def sentence_transformer(folder: Path, **options):
    """Open a folder with sentence-transformers, or skip the test if it is not installed."""
    library = pytest.importorskip(
        "sentence_transformers",
        reason="needs sentence-transformers: pip install 'calque-align[sentence-transformers]'",
    )
    return library.SentenceTransformer(str(folder), device="cpu", **options)


def of_calque(folder: Path, lang: str = "") -> np.ndarray:
    """Return the mean of all subword vectors of each text, or the vectors of the folder's own
    pooling.
    """
    encoder = load_encoder(folder, device="cpu")
    own = SentencePooling.of(encoder)
    pooling = own if own.name == "own" else SentencePooling.of(encoder, "subwords")
    text = Sentences.of([text.split(" ") for text in TEXTS], lang)
    return sentence_vectors(encoder, text, pooling).data


def of_auto_model(folder: Path) -> np.ndarray:
    """Return the mean of the last hidden states of each text, computed by transformers alone."""
    return means_of(AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder))


def means_of(model, tokenizer) -> np.ndarray:
    """Return the mean of the last hidden states of each text."""
    means = []
    for text in TEXTS:
        batch = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states = model(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
            ).last_hidden_state
        means.append(states[0].mean(0).numpy())
    return np.stack(means)


class _Tensors(nn.Module):
    """A sentence-transformers model whose inputs and outputs are tensors instead of dictionaries."""

    def __init__(self, model, arguments):
        super().__init__()
        self.model, self.arguments = model, arguments

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        return self.model(features, **self.arguments)["sentence_embedding"]


def of_onnx(folder: Path, path: Path, arguments=None, **options) -> np.ndarray:
    """Export a sentence-transformers model to an ONNX file, and return the vectors that
    onnxruntime computes with it.

    Args:
        arguments: arguments of the model's forward pass, which are fixed in the exported model.
        options: arguments for loading the folder.
    """
    pytest.importorskip("onnx", reason="needs onnx: pip install 'calque-align[onnx]'")
    runtime = pytest.importorskip(
        "onnxruntime", reason="needs onnxruntime: pip install 'calque-align[onnx]'"
    )
    model = sentence_transformer(folder, **options)
    first, batch = (
        model[0].tokenizer(TEXTS[:2], padding=True),
        model[0].tokenizer(TEXTS, padding=True),
    )
    names = ["input_ids", "attention_mask"]
    sizes = {0: "text", 1: "subword"}
    torch.onnx.export(
        _Tensors(model, arguments or {}).eval(),
        tuple(torch.tensor(first[name]) for name in names),
        str(path),
        input_names=names,
        output_names=["vectors"],
        dynamic_axes=dict.fromkeys(names, sizes),
        dynamo=False,
    )
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {name: np.array(batch[name]) for name in names})[0]


def check_equal(found: np.ndarray, expected: np.ndarray) -> None:
    """Check that vectors differ by at most 1e-5 of the largest value."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@contextmanager
def refused():
    """Check that the `with` block cannot open a folder."""
    with pytest.raises((OSError, ValueError)):
        yield
