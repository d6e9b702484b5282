"""Use encoders as MTEB models for bitext mining, semantic textual similarity (STS) and other
sentence tasks.

MTEB (Muennighoff et al. 2023, "MTEB: Massive Text Embedding Benchmark") requires `pip install
'calque-align[mteb]'`. MTEB does not pass the language of a text, so encoders with language-specific
maps or tables are rejected. Prompts, such as
`query: ` and `passage: `, are chosen by the name of the task, the type of the task, and the type of
the prompt.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from calque.algebra.normalize import unit_rows
from calque.encoders import Encoder, HuggingFaceEncoder
from calque.encoders.folder import holds_encoder
from calque.encoders.mapped import MappedEncoder
from calque.encoders.sentence_settings import PROMPT_NAMES, TextSettings
from calque.encoders.sentence_vectors import (
    Pooling,
    SentencePooling,
    sentence_vectors,
    text_settings,
)
from calque.errors import InputError, MissingExtraError, SettingError
from calque.runs.card import add_scores
from calque.segment import language_parts, split_spaces
from calque.storage import JsonObject, json_text
from calque.tasks.base import Score, about_encoder
from calque.tasks.reporting import Reporting
from calque.text import Sentences

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.results import ModelResult, TaskResult
    from mteb.types import PromptType
    from numpy.typing import ArrayLike

# similarities that are negative distances, with the order of the norm
_NORMS = {"euclidean": 2.0, "manhattan": 1.0}
# folder for MTEB's results files in an encoder's folder
_RESULTS = "mteb"
# settings of the mean of all subword vectors; with them, a revision is an encoder's fingerprint
_DEFAULTS: JsonObject = {
    "modes": ["mean"],
    "max_length": None,
    "lower": False,
    "prompt": "",
    "truncate": None,
    "after": [],
    "prompts": {},
    "similarity": "cosine",
}


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
        needs_language = getattr(encoder, "maps", None) and getattr(encoder, "only", None) is None
        if encoder.languages or needs_language:
            raise SettingError(
                f"{encoder.name} needs the language of each text, which MTEB does not pass on; "
                "evaluate this encoder with calque evaluate … sentences"
            )
        base = encoder.base if isinstance(encoder, MappedEncoder) else encoder
        if pooling is None and isinstance(base, HuggingFaceEncoder) and base.modules is None:
            pooling = "subwords"
        self.encoder, self._has_subwords = encoder, isinstance(base, HuggingFaceEncoder)
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
                # MTEB does not compute results again that it has stored for an equal revision.
                "revision": self._revision(),
                "embed_dim": self.pooling.width(encoder.dim),
                "max_tokens": getattr(base, "max_length", None),
                "use_instructions": bool(self.prompts),
                "framework": ["PyTorch"],
            }
        )

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Metadata that MTEB saves with its results."""
        return self._meta

    def _revision(self) -> str:
        """Return a hash of everything that determines the sentence vectors and their similarity; it
        is the encoder's fingerprint if only the encoder does.
        """
        pooling = self.pooling
        settings: JsonObject = {
            "modes": list(pooling.modes),
            "max_length": pooling.max_length,
            "lower": pooling.lower,
            "prompt": pooling.prompt,
            "truncate": pooling.truncate,
            "after": [str(part) for part in pooling.after],
            "prompts": self.prompts,
            "similarity": self._similarity,
        }
        fingerprint = self.encoder.fingerprint
        if pooling.unit == "subwords" and settings == _DEFAULTS:
            return fingerprint
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json_text([fingerprint, pooling.unit, settings], sort_keys=True).encode())
        for _, weights in sorted(pooling.after.state_dict().items()):
            digest.update(weights.cpu().numpy().tobytes())
        return digest.hexdigest()

    def evaluate(
        self,
        tasks: AbsTask | Iterable[AbsTask],
        folder: str | PathLike[str],
        *,
        record: bool = True,
        **options: Any,
    ) -> ModelResult:
        """Run MTEB tasks, and write the results to the encoder's folder: MTEB's results files to
        `mteb/results/NAME/REVISION/TASK.json`, and the main scores to the model card.

        Results in these files are not computed again, unless the encoder, the pooling or a prompt
        has changed. `calque push` uploads them with the encoder.

        Args:
            tasks: tasks from `mteb.get_tasks`, or a benchmark.
            folder: folder of the encoder, which contains the model card.
            record: whether to add the main score of each task, split and subset to the model card
                and to `calque-run.json`.
            options: further arguments of `mteb.evaluate`.

        Raises:
            InputError: the folder contains no encoder.
        """
        import mteb
        from mteb.abstasks import AbsTask

        path = Path(folder)
        if not holds_encoder(path):
            raise InputError("this folder contains no encoder saved by calque", path=path)
        listed = [tasks] if isinstance(tasks, AbsTask) else list(tasks)
        cache = mteb.ResultCache(path / _RESULTS)
        model: Any = self  # MTEB's protocol also prescribes the arguments of the constructor
        results = mteb.evaluate(model, listed, cache=cache, **options)
        if record:
            metadata = {task.metadata.name: task.metadata for task in listed}
            scores = []
            for result in results.task_results:
                scores += self._scores(result, metadata[result.task_name])
            add_scores(path, scores)
        return results

    def _scores(self, result: TaskResult, metadata: TaskMetadata) -> list[dict[str, Any]]:
        """Return the main score of each split and subset of a task, as `Score.to_dict` does; MTEB
        reports neither intervals nor the number of test items.
        """
        reporting = Reporting(
            title=f"{metadata.name} (MTEB)",
            main=(metadata.main_score,),
            descriptive=("mteb_version",),
            hub_task=metadata.type,
        )
        scores = []
        for split, subsets in result.scores.items():
            for subset in subsets:
                settings = {
                    **about_encoder(self.encoder),
                    "pooled": self.pooling.described,
                    "dataset_revision": result.dataset_revision,
                    "mteb_version": result.mteb_version,
                    "mteb_revision": self._meta.revision,
                }
                score = Score(
                    task=metadata.name,
                    data=f"hub:{metadata.dataset['path']}:{subset['hf_subset']}:{split}",
                    languages=tuple(_language(tag) for tag in subset["languages"]),
                    metric=metadata.main_score,
                    value=subset["main_score"],
                    low=math.nan,
                    high=math.nan,
                    n=0,
                    seed=0,
                    settings=settings,
                    reporting=reporting,
                )
                scores.append({**score.to_dict(), "n": None, "queries": None})
        return scores

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
        is_joined = self._has_subwords and pooling.unit == "subwords"
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


def _language(tag: str) -> str:
    """Return the language of one of MTEB's tags, such as `deu-Latn`, as a two-letter code if there
    is one.
    """
    return language_parts(tag)[0]


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
