"""The targets of a probe, and in which rows of some vectors their words are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from calque.annotated import ProbeText
from calque.errors import SettingError
from calque.nn.probe import SpanRows
from calque.offsets import offsets_of, ranges
from calque.tasks.datasets import Answers
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from torch import Tensor

    from calque.text import Sentences
    from calque.training.sources import WordRows


class Asked(NamedTuple):
    """Targets that can be read off the rows of a batch.

    Attributes:
        targets: int64 `[T]`, their numbers.
        owner: int64 `[T]`, the text of the batch that each is of.
        spans: one or two, the rows of the first and second span of each.
    """

    targets: np.ndarray
    owner: np.ndarray
    spans: list[SpanRows]


class ProbeAnswers(Answers):
    """The targets of some texts with the labels that are known.

    Args:
        lengths: int64 `[n_texts]`, words of each.
        counts: int64 `[n_texts]`, targets of each.
        spans: int64 `[n_targets, 1 or 2, 2]`, see `ProbeText`.
        codes: int64 `[n_codes]`, the labels of all targets that the training text has, as numbers.
        code_counts: int64 `[n_targets]`, how many are of each.
        true: int64 `[n_texts]`, how many labels are right in each, unknown ones as well.
    """

    def __init__(
        self, lengths: np.ndarray, counts: np.ndarray, spans: np.ndarray, codes: np.ndarray, code_counts: np.ndarray,
        true: np.ndarray,
    ):  # fmt: skip
        super().__init__(lengths, texts={"labels": true})
        self.counts, self.spans, self.codes, self.code_counts = counts, spans, codes, code_counts
        self._first, self._first_code = offsets_of(counts)[:-1], offsets_of(code_counts)[:-1]

    @classmethod
    def of(cls, data: ProbeText, labels: Sequence[str]) -> ProbeAnswers:
        """Those of a text, its labels as numbers of `labels`."""
        codes = data.labels.among(labels)
        target = np.repeat(np.arange(len(data.spans)), np.diff(data.label_offsets))
        known = np.bincount(target[codes >= 0], minlength=len(data.spans))
        true = np.diff(data.label_offsets[data.offsets])
        return cls(data.sentences.lengths(), np.diff(data.offsets), data.spans.astype(np.int64),
                   codes[codes >= 0].astype(np.int64), known, true)  # fmt: skip

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> ProbeAnswers:
        def both(name: str) -> np.ndarray:
            return np.concatenate([getattr(part, name) for part in parts])

        true = np.concatenate([part.texts["labels"] for part in parts])
        return cls(both("lengths"), both("counts"), both("spans"), both("codes"), both("code_counts"), true)

    def asked(self, given: WordRows) -> Asked:
        """The targets of some texts that can be asked: those each of whose spans has a row. A span is made of those of its
        words that have one."""
        counts = self.counts[given.numbers]
        targets = ranges(self._first[given.numbers], counts)
        owner = np.repeat(np.arange(len(counts)), counts)
        lengths, spans, order = given.lengths.numpy(), self.spans[targets], None
        if given.words is None:
            bounds = offsets_of(lengths)[owner][:, None, None] + spans
        else:
            # Rows by text and word, whatever their order; a span is a run of them.
            most = int(self.lengths[given.numbers].max(initial=0)) + 1
            keys = np.repeat(np.arange(len(lengths)), lengths) * most + given.words
            order = np.argsort(keys, kind="stable")
            bounds = np.searchsorted(keys[order], owner[:, None, None] * most + spans)
        sizes = bounds[..., 1] - bounds[..., 0]
        has = (sizes > 0).all(axis=1)
        found = []
        for k in range(spans.shape[1]):
            rows = ranges(bounds[has, k, 0], sizes[has, k])
            rows = rows if order is None else order[rows]
            found.append(SpanRows(torch.from_numpy(rows), torch.from_numpy(sizes[has, k])))
        return Asked(targets[has], owner[has], found)

    def gold(self, targets: np.ndarray, n_labels: int) -> Tensor:
        """Which labels some targets have, bool `[T, n_labels]`."""
        counts = self.code_counts[targets]
        table = torch.zeros(len(targets), n_labels, dtype=torch.bool)
        rows = torch.from_numpy(np.repeat(np.arange(len(targets)), counts))
        table[rows, torch.from_numpy(self.codes[ranges(self._first_code[targets], counts)])] = True
        return table


class KeyPointVectors(Embeddings):
    """Vectors of some of the words of each text.

    Args:
        vectors: in any order in each text.
        words: int64 `[n_rows]`, which word of its text each is of.
    """

    def __init__(self, vectors: Embeddings, words: np.ndarray):
        super().__init__(vectors.data, vectors.offsets, vectors.covered)
        self.words = words

    @classmethod
    def of(cls, encoder: Any, vectors: Embeddings, sentences: Sentences) -> KeyPointVectors:
        """With the words that an encoder says they are of.

        Raises:
            SettingError: it does not say it, or says what cannot be.
        """
        if not hasattr(encoder, "key_points"):
            raise SettingError(
                f"{encoder.name} cannot be probed: its vectors are of key points, and {type(encoder).__name__} has no "
                "key_points, which says of which words they are"
            )
        points = encoder.key_points(sentences)
        words, counts = np.asarray(points.data, dtype=np.int64).reshape(-1), np.diff(points.offsets)
        if not np.array_equal(counts, np.diff(vectors.offsets)):
            raise SettingError(f"{encoder.name} has {len(words):,} key points, but {vectors.n_words:,} vectors of them")
        if ((words < 0) | (words >= np.repeat(sentences.lengths(), counts))).any():
            raise SettingError(f"{encoder.name} has key points that are no words of their sentences")
        return cls(vectors, words)

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> KeyPointVectors:
        return cls(Embeddings.joined(parts), np.concatenate([part.words for part in parts]))
