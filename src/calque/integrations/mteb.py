"""Use encoders as MTEB models for bitext mining, semantic textual similarity (STS) and other
sentence tasks.

MTEB (Muennighoff et al. 2023, "MTEB: Massive Text Embedding Benchmark") requires `pip install
'calque-align[mteb]'`. MTEB does not pass the language of a text, so encoders with language-specific
maps or tables are rejected. Prompts, such as
`query: ` and `passage: `, are chosen by the name of the task, the type of the task, and the type of
the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from calque.algebra.normalize import unit_rows
from calque.encoders import Encoder, HuggingFaceEncoder
from calque.encoders.sentence_settings import PROMPT_NAMES, TextSettings
from calque.encoders.sentence_vectors import (
    Pooling,
    SentencePooling,
    sentence_vectors,
    text_settings,
)
from calque.errors import MissingExtraError, SettingError
from calque.segment import split_spaces
from calque.text import Sentences

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.types import PromptType
    from numpy.typing import ArrayLike

# similarities that are negative distances, with the order of the norm
_NORMS = {"euclidean": 2.0, "manhattan": 1.0}


class MtebEncoder:
    """Model for `mteb.evaluate(model, tasks)` that implements MTEB 2's `EncoderProtocol`.

    Args:
        encoder: the encoder to evaluate.
        pooling: sentence pooling (see `SentencePooling.of`); default: the encoder's own pooling,
            otherwise the mean of the subword vectors, as in sentence-transformers, or of the word
            vectors if the encoder has no subwords.
        name: name in MTEB's results, ORGANISATION/NAME; default: calque/ followed by the encoder's
            name.
        prompts: prompts in addition to those saved in the encoder's folder, such as `{"query":
            "query: ", "document":
            "passage: "}`. A key may also be the name or the type of an MTEB task, optionally
            followed by "-query" or "-document".

    Raises:
        MissingExtraError: mteb is not installed.
        SettingError: the encoder requires the language of each text.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        pooling: Pooling | None = None,
        name: str | None = None,
        prompts: Mapping[str, str] | None = None,
    ):
        try:
            from mteb.models import ModelMeta
        except ImportError as error:
            raise MissingExtraError("mteb", "mteb", "running MTEB tasks") from error
        if encoder.languages or getattr(encoder, "maps", None):
            raise SettingError(
                f"{encoder.name} needs the language of each text, which MTEB does not pass on; "
                "evaluate this encoder with calque evaluate … sentences"
            )
        if pooling is None and isinstance(encoder, HuggingFaceEncoder) and encoder.modules is None:
            pooling = "subwords"
        self.encoder = encoder
        self.pooling = SentencePooling.of(encoder, pooling)
        # Prompts and similarity that are saved in the folder belong to its own pooling.
        saved = text_settings(encoder) if self.pooling.name == "own" else TextSettings()
        self.prompts = {**saved.prompts, **(prompts or {})}
        self._similarity = saved.similarity
        if self.prompts and self.pooling.unit == "words":
            raise SettingError(
                f"prompts require the pooling own, subwords or cls, got words for {encoder.name}"
            )
        if not name:
            name = "calque/" + re.sub(r"[^A-Za-z0-9_.-]+", "-", encoder.name)
        self._meta = ModelMeta.create_empty(
            overwrites={
                "name": name,
                # encoders with equal fingerprints return equal vectors
                "revision": encoder.fingerprint,
                "embed_dim": encoder.dim,
                "max_tokens": getattr(encoder, "max_length", None),
                "framework": ["PyTorch"],
            }
        )

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Metadata that MTEB saves with its results."""
        return self._meta

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: TaskMetadata | None = None,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: PromptType | str | None = None,
        **options: object,
    ) -> np.ndarray:
        """Return the vectors of the texts under key `text` of all batches, float32 `[n, dim]`;
        texts without a vector get zeros.

        Args:
            task_metadata: metadata of the task, whose name and type may select a prompt.
            prompt_type: "query" or "document", which may select a prompt; "passage" is a former
                name of "document".
            hf_split, hf_subset, options: ignored.
        """
        task = _task_of(prompt_type)
        name = cast("Pooling", self.pooling.name)
        pooling = SentencePooling.of(self.encoder, name, task=task)
        prompt = self._prompt(task_metadata, task)
        if prompt is not None:
            pooling = pooling.with_prompt(self.encoder, prompt)
        # Subword pooling rejoins the words with single spaces, so repeated spaces must be kept as
        # empty words.
        is_joined = isinstance(self.encoder, HuggingFaceEncoder) and pooling.unit == "subwords"
        split = partial(str.split, sep=" ") if is_joined else split_spaces
        words = []
        for batch in inputs:
            words += [split(text) for text in batch["text"]]
        return sentence_vectors(self.encoder, Sentences.of(words), pooling).data

    def _prompt(self, task_metadata: TaskMetadata | None, task: str | None) -> str | None:
        """Return the prompt for a task and a type of texts; None means the default prompt."""
        names: list[str] = []  # names of prompts, the most specific first
        for attribute in ("name", "type"):
            value = getattr(task_metadata, attribute, None)
            if value is None:
                continue
            if task is not None:
                names.append(f"{value}-{task}")
            names.append(value)
        if task is not None:
            names += PROMPT_NAMES[task]
        for name in names:
            if self.prompts.get(name):
                return self.prompts[name]
        return None

    def similarity(
        self, embeddings1: ArrayLike | Tensor, embeddings2: ArrayLike | Tensor
    ) -> Tensor:
        """Return the similarity of every pair of vectors, `[n, m]`: the cosine, or the similarity
        that the folder declares.
        """
        x, y = self._compared(embeddings1), self._compared(embeddings2)
        if self._similarity in _NORMS:
            return -torch.cdist(
                torch.from_numpy(x), torch.from_numpy(y), p=_NORMS[self._similarity]
            )
        return torch.from_numpy(x @ y.T)

    def similarity_pairwise(
        self, embeddings1: ArrayLike | Tensor, embeddings2: ArrayLike | Tensor
    ) -> Tensor:
        """Return the similarity of corresponding vectors, `[n]`."""
        x, y = self._compared(embeddings1), self._compared(embeddings2)
        if self._similarity in _NORMS:
            difference = torch.from_numpy(x - y)
            return -torch.linalg.vector_norm(difference, ord=_NORMS[self._similarity], dim=1)
        return torch.from_numpy((x * y).sum(axis=1))

    def _compared(self, vectors: ArrayLike | Tensor) -> np.ndarray:
        """Return vectors as rows, which are L2-normalised if the similarity is the cosine."""
        rows = _rows(vectors)
        return unit_rows(rows) if self._similarity == "cosine" else rows


def _task_of(prompt_type: PromptType | str | None) -> str | None:
    """Return "query" or "document" for a prompt type of MTEB, which may be a string or an
    enumeration.
    """
    name = getattr(prompt_type, "value", prompt_type)
    if name is None:
        return None
    task = "document" if name == "passage" else str(name)
    if task not in PROMPT_NAMES:
        raise SettingError(f"prompt_type must be query or document, got {name!r:.60}")
    return task


def _rows(vectors: ArrayLike | Tensor) -> np.ndarray:
    """Return vectors as float32 `[n, dim]`, or `[1, dim]` for a single vector."""
    if isinstance(vectors, Tensor):
        vectors = vectors.detach().cpu().numpy()
    return np.atleast_2d(np.asarray(vectors)).astype(np.float32)
