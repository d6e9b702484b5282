"""Any `transformers` encoder as an encoder of words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calque.encoders.base import Encoder
from calque.encoders.batches import WordBatch, collate, token_batches
from calque.encoders.subwords import Subwords
from calque.errors import SettingError
from calque.text import Sentence
from calque.vectors import Embeddings

POOLINGS = ("last", "first", "mean")


class HuggingFaceEncoder(Encoder):
    """Words as the hidden states of a `transformers` model."""

    def __init__(
        self, model, tokenizer, *, layer: int = -1, pooling: str = "last", max_length=None, name: str = ""
    ):
        if pooling not in POOLINGS:
            raise SettingError(f"pooling={pooling!r}, expected one of {', '.join(POOLINGS)}")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.subwords = Subwords(tokenizer, max_length=max_length)
        self.n_layers = int(model.config.num_hidden_layers)
        self.dim = int(model.config.hidden_size)
        self.layer = self._normalise(layer)
        self.pooling = pooling
        self.name = name or str(model.config.name_or_path)
        self.token_budget = 512

    def _normalise(self, layer: int) -> int:
        if not -self.n_layers - 1 <= layer <= self.n_layers:
            raise SettingError(
                f"layer {layer}: the model has layers 0 (embeddings) to {self.n_layers}, or -1 for the last"
            )
        return layer % (self.n_layers + 1)

    @property
    def fingerprint(self) -> str:
        raise SettingError("not yet")

    def hidden_states(self, batch: WordBatch, layers: Sequence[int]) -> dict[int, Tensor]:
        """States of the given layers, each `[B, T, dim]`; differentiable."""
        output = self.model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True
        )
        return {layer: output.hidden_states[self._normalise(layer)] for layer in layers}

    def forward(self, batch: WordBatch, layers: Sequence[int]) -> dict[int, Tensor]:
        """Word vectors of the given layers, each `[W, dim]`; differentiable."""
        return {
            layer: self.pool(states, batch) for layer, states in self.hidden_states(batch, layers).items()
        }

    def pool(self, states: Tensor, batch: WordBatch) -> Tensor:
        """Word vectors `[W, dim]` from hidden states `[B, T, dim]`; a word without subwords gets zeros."""
        flat = states.reshape(-1, states.shape[-1])
        lengths = batch.lengths
        if self.pooling == "last":
            vectors = flat[batch.starts + (lengths - 1).clamp(min=0)]
        elif self.pooling == "first" or not len(lengths):
            vectors = flat[batch.starts]
        else:
            # words side by side: [W, longest word], each row its subwords, masked beyond its length
            steps = torch.arange(int(lengths.max().clamp(min=1)), device=flat.device)
            inside = steps < lengths[:, None]
            places = torch.where(inside, batch.starts[:, None] + steps, batch.starts[:, None])
            vectors = (flat[places] * inside[:, :, None]).sum(1) / lengths.clamp(min=1)[:, None]
        return vectors * (lengths > 0)[:, None]

    def encode(
        self, sentences: Iterable[Sentence], *, progress: bool = False, out: str | PathLike[str] | None = None
    ) -> Embeddings:
        return self.encode_layers(sentences, [self.layer], progress=progress)[self.layer]

    def encode_layers(self, sentences, layers, *, progress: bool = False, out=None) -> dict[int, Embeddings]:
        split = self.subwords.split(sentences)
        data = {layer: np.zeros((split.n_words, self.dim), dtype=np.float32) for layer in layers}
        with torch.inference_mode():
            for numbers in token_batches(split.lengths, self.token_budget):
                vectors = self.forward(collate(split, numbers).to(self.model.device), layers)
                starts, counts = split.word_offsets[numbers], np.diff(split.word_offsets)[numbers]
                rows = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, counts, strict=True)])
                for layer in layers:
                    data[layer][rows] = vectors[layer].float().cpu().numpy()
        return {layer: Embeddings(data[layer], split.word_offsets, split.covered) for layer in layers}

    def save(self, folder: str | PathLike[str]) -> None:
        self.model.save_pretrained(fspath(folder))
        self.tokenizer.save_pretrained(fspath(folder))


def load_encoder(name_or_path, *, layer: int = -1, pooling: str = "last", max_length=None) -> Encoder:
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(name_or_path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(name_or_path)
    name = Path(name_or_path).name
    return HuggingFaceEncoder(
        model, tokenizer, layer=layer, pooling=pooling, max_length=max_length, name=name
    )
