"""Use encoders as MTEB models for bitext mining, semantic textual similarity (STS) and other sentence tasks.

MTEB (Muennighoff et al. 2023, "MTEB: Massive Text Embedding Benchmark") requires `pip install 'calque-align[mteb]'`.
MTEB does not pass the language of a text, so encoders with language-specific maps or tables are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calque.algebra.normalize import unit_rows
from calque.encoders import Encoder, HuggingFaceEncoder
from calque.encoders.sentence_vectors import Pooling, SentencePooling, sentence_vectors
from calque.errors import MissingExtraError, SettingError
from calque.segment import split_spaces
from calque.text import Sentences


class MtebEncoder:
    """Model for `mteb.evaluate(model, tasks)` that implements MTEB 2's `EncoderProtocol`.

    Args:
        encoder: the encoder to evaluate.
        pooling: sentence pooling (see `SentencePooling.of`); default: the encoder's own pooling, otherwise the mean of the
            subword vectors, as in sentence-transformers, or of the word vectors if the encoder has no subwords.
        name: name in MTEB's results, ORGANISATION/NAME; default: calque/ followed by the encoder's name.

    Raises:
        MissingExtraError: mteb is not installed.
        SettingError: the encoder requires the language of each text.
    """

    def __init__(self, encoder: Encoder, *, pooling: Pooling | None = None, name: str | None = None):
        try:
            from mteb.models import ModelMeta
        except ImportError as error:
            raise MissingExtraError("mteb", "mteb", "running MTEB tasks") from error
        if encoder.languages or getattr(encoder, "maps", None):
            fact = f"{encoder.name} needs the language of each text, which MTEB does not pass on"
            raise SettingError(f"{fact}; evaluate this encoder with calque evaluate … sentences")
        if pooling is None and isinstance(encoder, HuggingFaceEncoder) and encoder.modules is None:
            pooling = "subwords"
        self.encoder, self.pooling = encoder, SentencePooling.of(encoder, pooling)
        self._meta = ModelMeta.create_empty(overwrites={
            "name": name or f"calque/{re.sub(r'[^A-Za-z0-9_.-]+', '-', encoder.name)}",
            "revision": encoder.fingerprint,  # encoders with equal fingerprints return equal vectors
            "embed_dim": encoder.dim,
            "max_tokens": getattr(encoder, "max_length", None),
            "framework": ["PyTorch"],
        })  # fmt: skip

    @property
    def mteb_model_meta(self) -> Any:
        """Metadata that MTEB saves with its results."""
        return self._meta

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, task_metadata: Any = None, hf_split: str = "", hf_subset: str = "",
        prompt_type: Any = None, **options: Any,
    ) -> np.ndarray:  # fmt: skip
        """Return the vectors of the texts under key `text` of all batches, float32 `[n, dim]`; texts without a vector get zeros.

        The other arguments describe the task and are ignored.
        """
        # Subword pooling rejoins the words with single spaces, so repeated spaces must be kept as empty words.
        is_joined = isinstance(self.encoder, HuggingFaceEncoder) and self.pooling.unit == "subwords"
        split = partial(str.split, sep=" ") if is_joined else split_spaces
        words = [split(text) for batch in inputs for text in batch["text"]]
        return sentence_vectors(self.encoder, Sentences.of(words), self.pooling).data

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine similarity of every pair of vectors, `[n, m]`."""
        return torch.from_numpy(_unit(embeddings1) @ _unit(embeddings2).T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine similarity of corresponding vectors, `[n]`."""
        return torch.from_numpy((_unit(embeddings1) * _unit(embeddings2)).sum(axis=1))


def _unit(vectors: Any) -> np.ndarray:
    """Return L2-normalised vectors, float32 `[n, dim]`, or `[1, dim]` for a single vector."""
    data = vectors.detach().cpu().numpy() if isinstance(vectors, Tensor) else np.asarray(vectors)
    return unit_rows(np.atleast_2d(data).astype(np.float32))
