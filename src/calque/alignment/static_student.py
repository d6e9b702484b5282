"""A student of one vector a subword: how it begins, and how its gradients are had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calque.encoders.sentence_store import SentenceStore
from calque.encoders.split import SplitSentences
from calque.encoders.subword_vectors import SubwordVectors
from calque.encoders.subwords import Subwords
from calque.text import Sentences
from calque.training.sources import VectorSource, WordRows

_SMOOTHING = 1e-3  # of Arora et al. (2017), as in model2vec


def static_student(
    tokenizer: Any, teacher: SentenceStore, texts: Sequence[Sentences], *, lang: str = "", name: str = "static",
    unit: bool = True, progress: bool = False,
) -> SubwordVectors:  # fmt: skip
    """Static vectors by model2vec's recipe: what the teacher says of each subword alone, less the mean, times a weight that is
    small for frequent ones.

    The weight is a / (a + p) with a = 0.001 (Arora et al. 2017, "A simple but tough-to-beat baseline for sentence embeddings"),
    p being the subword's share of the text or, without text, of what Zipf's law gives its number in the vocabulary. Vectors
    keep the teacher's dimensions: no principal components are taken, so that they can be trained to be its own.

    Args:
        tokenizer: a fast one of `transformers`.
        teacher: gets the vectors of all subwords.
        texts: to count subwords in.
        lang: of the teacher.
        name, unit: see `SubwordVectors`.
        progress: show a bar.
    """
    subwords, n = Subwords(tokenizer), len(tokenizer)
    special = set(tokenizer.all_special_ids)
    words = [
        [] if number in special else tokenizer.convert_tokens_to_string([token]).replace("##", "").split()
        for number, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(n))))
    ]
    known = Sentences.of(words, lang)
    teacher.fill(known, progress=progress)
    filled = np.flatnonzero(known.lengths())
    matrix = np.zeros((n, teacher.dim), dtype=np.float32)
    matrix[filled] = teacher.take(teacher.places(known.take(filled)))
    matrix[filled] -= matrix[filled].mean(axis=0)
    start = SubwordVectors(subwords.tokenizer, torch.from_numpy(matrix), unit=unit, name=name)
    shares = 1.0 / (np.arange(n) + 2)
    if texts:
        counts = sum(np.bincount(start.split(text).ids, minlength=n) for text in texts)
        shares = np.asarray(counts, dtype=np.float64)
    weights = torch.from_numpy(_SMOOTHING / (_SMOOTHING + shares / max(1e-9, shares.sum()))).float()
    return SubwordVectors(subwords.tokenizer, start.model.weight.detach() * weights[:, None], unit=unit, name=name)


class BagSource(VectorSource):
    """Means of the subwords of texts, one row a text, by a table of vectors that learns."""

    def __init__(self, model: nn.Embedding, split: SplitSentences):
        self.dim, self.model = model.embedding_dim, model
        self.lengths = np.ones(len(split), dtype=np.int64)
        self._table, self._split = model, split
        self._rows = torch.zeros(0)

    def take(self, numbers: np.ndarray) -> WordRows:
        part = self._split.take(numbers)
        device = self._table.weight.device
        ids, bags = (torch.from_numpy(array).long().to(device) for array in (part.ids, part.offsets[:-1]))
        self._rows = nn.functional.embedding_bag(ids, self._table.weight, bags, mode="mean")
        return WordRows(self._rows.detach(), torch.ones(len(numbers), dtype=torch.int64), numbers)

    def backward(self, gradient: Tensor) -> None:
        self._rows.backward(gradient)
