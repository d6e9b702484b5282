"""Does a word have the same sense in two texts (WiC, XL-WiC)? Zero-shot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from calque.corpora.word_pairs import WordPairText, read_word_pairs
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.tasks.classification import TextHead
from calque.tasks.datasets import Answers, Dataset
from calque.tasks.grouped import GroupedAnswer, GroupedSource, GroupedSplit, side_by_side
from calque.training.sources import FrozenSource, VectorSource
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.text import Sentences

LABELS = ("different", "same")


class WordsInContext(GroupedAnswer[WordPairText]):
    """Says whether a word has the same sense in two texts (Pilehvar and Camacho-Collados 2019; in other languages Raganato et
    al. 2020), and is judged by accuracy. Both texts are encoded apart; the head sees the vectors of the word alone, of several
    words their mean.

    The head puts two dense layers on [u; v; |u − v|; u·v]. Raganato et al. train the encoder along on both texts in one
    sequence, which reads more of the texts than the word.

    Args:
        train, tests, dev, seeds, tune, select, options, bootstrap, seed: see `ZeroShot`.
        hidden: of the dense layers.
        dropout: before each dense layer.
    """

    name = "wic"

    def __init__(
        self,
        train: Sequence[Dataset[WordPairText]],
        tests: Sequence[Dataset[WordPairText]],
        *,
        hidden: int = 128,
        dropout: float = 0.1,
        **protocol: Any,
    ):
        self.hidden, self.dropout = hidden, dropout
        labels = {each.data.labels[k] for each in train for k in range(len(each.data))}
        if train and labels != set(LABELS):
            names, shown = ", ".join(each.name for each in train), ", ".join(sorted(labels))
            raise SettingError(f"{names}: the labels are {shown}, expected both {' and '.join(LABELS)}")
        super().__init__(train, tests, **protocol)

    @staticmethod
    def read(path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise") -> WordPairText:
        """Pairs of a file; `on_error`: "raise", or "skip" to leave out those that cannot be read."""
        return read_word_pairs(path, lang=lang, on_error=on_error)

    def defaults(self) -> dict[str, Any]:
        if getattr(self, "tune", False):
            return {"epochs": 3, "batch": 32, "warmup": 0.1, "decay": "linear", "clip": 1.0}
        return {"epochs": 15, "batch": 32, "learning_rate": 1e-3, "patience": 4}

    def settings(self) -> dict[str, Any]:
        return {"head": "mean", "hidden": self.hidden, "dropout": self.dropout}

    def sentences(self, data: WordPairText) -> Sentences:
        return side_by_side(data.texts)

    def answers(self, each: Dataset[WordPairText]) -> Answers:
        codes = each.data.labels.among(LABELS)
        if (codes < 0).any():
            shown = ", ".join(each.data.labels.names)
            raise InputError(f"the labels {shown}, expected {' and '.join(LABELS)}", path=each.data.path or each.name)
        return Answers(np.ones(len(codes), dtype=np.int64), texts={"labels": codes})

    # -- vectors ---------------------------------------------------------------------------------------------------
    def encoded(self, encoder: Encoder, data: WordPairText, *, progress: bool = False) -> Embeddings:
        whole = encoder.encode(self.sentences(data), progress=progress)
        rows, offsets = _places(data, whole.offsets)
        covered = None if whole.covered is None else np.asarray(whole.covered)[rows]
        return Embeddings(np.asarray(whole.data[rows]), offsets, covered)

    def frozen(self, embeddings: Embeddings, device: torch.device) -> VectorSource:
        return GroupedSource(FrozenSource(embeddings, device), 2)

    def split(self, encoder: Any, data: WordPairText) -> GroupedSplit:
        whole = encoder.split(self.sentences(data))
        rows, offsets = _places(data, whole.word_offsets)
        starts, lengths = whole.word_starts[rows], whole.word_lengths[rows]
        return GroupedSplit(replace(whole, word_offsets=offsets, word_starts=starts, word_lengths=lengths), 2)

    # -- the head --------------------------------------------------------------------------------------------------
    def head(self, dim: int) -> nn.Module:
        return TextHead(dim, len(LABELS), columns=2, lstm=False, hidden=self.hidden, dropout=self.dropout)


def _places(data: WordPairText, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which words of the texts side by side are the words asked about, and where those of each text begin among them.

    Args:
        offsets: int64 `[2 n + 1]`, where the words of each text begin.
    """
    spans = data.spans.reshape(-1, 2).astype(np.int64)
    counts = spans[:, 1] - spans[:, 0]
    return ranges(np.asarray(offsets[:-1]) + spans[:, 0], counts), offsets_of(counts)
