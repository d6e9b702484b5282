"""A fine-tuned encoder with a linear head as a `transformers` model of token or sequence classification."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from calque.encoders.batches import collate
from calque.encoders.checkpoint import read_classifier, save_model
from calque.encoders.folder import saving
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.layers import all_states
from calque.errors import SettingError

# RoBERTa and BERT put a dense layer and a tanh between the first special token and their classifier. Scaled down by this
# factor, the tanh is linear to 3e-7 of its argument, so that the two layers equal the linear head that was trained.
_SCALE = 2.0**-10
_CLOSE = 1e-3  # of the largest score: the greatest difference between the head's scores and those of the saved model


def check_classifier(encoder: object, folder: str | PathLike[str]) -> None:
    """Refuse an encoder or a folder that `save_classifier` could not write, before anything is trained.

    Raises:
        SettingError: the folder exists, or the encoder is no plain model of `transformers`.
    """
    if Path(folder).exists():
        raise SettingError(f"{folder} exists: choose a new folder for the head (--save-head)")
    if type(encoder) is not HuggingFaceEncoder:
        raise SettingError(
            f"--save-head: {type(encoder).__name__} is not a plain transformers model; run calque merge first if it has adapters"
        )
    if encoder.standard:
        raise SettingError("--save-head: the vectors of this encoder are standardised, which transformers does not do")


def save_classifier(
    encoder: HuggingFaceEncoder, folder: str | PathLike[str], labels: Sequence[str], head: nn.Linear, *, texts: bool
) -> None:
    """Write a folder that `AutoModelForTokenClassification` or `AutoModelForSequenceClassification` opens.

    Args:
        folder: a new folder.
        labels: names of the labels, in the order of the head's outputs.
        head: linear layer from `dim` to the number of labels, on the encoder's own layer.
        texts: whether the head reads the first special token of a text instead of each word.

    Raises:
        SettingError: `transformers` has no such model for this architecture, or its scores are not those of the head.
    """
    with saving(folder) as path:
        encoder.save(path / "encoder")
        model = read_classifier(path / "encoder", labels, texts=texts)
        shutil.rmtree(path / "encoder")
        layers = [] if model is None else _layers(model, texts)
        if not layers or layers[-1].weight.shape != head.weight.shape:
            raise SettingError(f"--save-head: {type(encoder.model).__name__} has no classifier of a known layout")
        with torch.no_grad():
            for dense in layers[:-1]:
                dense.weight.copy_(torch.eye(encoder.dim) * _SCALE)
                dense.bias.zero_()
            layers[-1].weight.copy_(head.weight / (_SCALE if texts and len(layers) > 1 else 1))
            layers[-1].bias.copy_(head.bias)
        _check_scores(encoder, model, head, texts)
        save_model(model, path)
        encoder.tokenizer.save_pretrained(path)
        (path / "README.md").write_text(_card(encoder, labels, texts), encoding="utf-8")


def _layers(model: Any, texts: bool) -> list[nn.Linear]:
    """Return the linear layers between the encoder and the scores, first to last; none where the layout is unknown."""
    last, pooler = getattr(model, "classifier", None), getattr(model.base_model, "pooler", None)
    if isinstance(last, nn.Linear):
        dense = getattr(pooler, "dense", None) if texts else None
        return [last] if dense is None else [dense, last]
    layers = [getattr(last, name, None) for name in ("dense", "out_proj")]
    return [each for each in layers if each is not None] if texts else []


@torch.inference_mode()
def _check_scores(encoder: HuggingFaceEncoder, model: Any, head: nn.Linear, texts: bool) -> None:
    """Compare scores of a small padded batch."""
    model.eval()
    device = next(model.parameters()).device
    batch = collate(encoder.split([["a"] * 2, ["the", "a", "in"] * 3]), np.arange(2))
    states = all_states(encoder.model, batch.to(encoder.device))[encoder.layer].to(device)
    expected = nn.functional.linear(states[:, 0] if texts else states, head.weight.to(device), head.bias.to(device))
    mask = batch.attention_mask
    given = model(input_ids=batch.input_ids.to(device), attention_mask=None if mask is None else mask.to(device)).logits
    if not texts and mask is not None:
        expected, given = expected[mask.bool()], given[mask.bool()]
    if given.shape != expected.shape or not bool((given - expected).abs().max() <= _CLOSE * expected.abs().max()):
        raise SettingError(f"--save-head: {type(model).__name__} gives other scores than the head that was trained")


def _card(encoder: HuggingFaceEncoder, labels: Sequence[str], texts: bool) -> str:
    """Return a model card that says how to read the labels as calque does."""
    kind, task = ("Sequence", "text-classification") if texts else ("Token", "token-classification")
    rule = {
        "first": "that of its first subword",
        "last": "that of its last subword",
        "mean": "by the mean of its subwords",
    }
    label = "" if texts else f" A word's label is {rule[encoder.pooling]}; tokenize with `is_split_into_words=True`."
    return f"""---
library_name: transformers
pipeline_tag: {task}
---

# {encoder.name}, fine-tuned for {task.replace("-", " ")}

Labels: {", ".join(labels)}.

`AutoModelFor{kind}Classification.from_pretrained("FOLDER")` and `AutoTokenizer.from_pretrained("FOLDER")` open it.{label}
"""
