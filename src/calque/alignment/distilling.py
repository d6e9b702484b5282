"""The text that a student is taught with, and the loss of an update of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calque.alignment.distilled_words import WordLoss
from calque.alignment.static_student import BagSource
from calque.distributed import Processes
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.sentence_store import SentenceStore
from calque.encoders.sentence_vectors import SentencePooling
from calque.encoders.split import SplitSentences
from calque.encoders.subword_vectors import SubwordVectors
from calque.text import ParallelCorpus, Sentences
from calque.training.objective import Objective
from calque.training.sources import TrainedSource, VectorSource


class DistilledText:
    """Texts as the student reads them, and where the teacher's vector of each is.

    Args:
        teacher: has a vector of every text in its language.
        corpora: whose source is in that language.

    Attributes:
        table: all texts.
        places: int64 `[n_texts]`, of the teacher's vector.
        parts: for each corpus and text int64 `[n, 2]` or `[n, 1]`, the numbers of the texts that belong together.
    """

    def __init__(
        self,
        student: HuggingFaceEncoder | SubwordVectors,
        pooling: SentencePooling,
        teacher: SentenceStore,
        corpora: Sequence[ParallelCorpus],
        texts: Sequence[Sentences],
    ):
        tables: list[SplitSentences] = []
        places: list[np.ndarray] = []
        self.parts: list[np.ndarray] = []
        base = 0
        for sides in [*((corpus.source, corpus.target) for corpus in corpora), *((text,) for text in texts)]:
            split = [pooling.split(student, side) for side in sides]
            full = np.logical_and.reduce([side.lengths() > 0 for side in sides])
            full &= np.logical_and.reduce([np.diff(part.word_offsets) > 0 for part in split])
            usable, n = np.flatnonzero(full), len(full)
            self.parts.append(np.stack([base + k * n + usable for k in range(len(sides))], axis=1))
            where = np.full(n, -1, dtype=np.int64)
            where[usable] = teacher.places(sides[0].take(usable))
            tables += split
            places += [where] * len(sides)
            base += n * len(sides)
        self.table, self.places = SplitSentences.joined(tables), np.concatenate(places)
        self.counts: Mapping[str, int] = {
            "sentence_pairs": sum(len(part) for part in self.parts if part.shape[1] == 2),
            "sentences": sum(len(part) for part in self.parts if part.shape[1] == 1),
            "texts_cut": sum(table.truncated_sentences for table in tables),
        }

    @property
    def fingerprint(self) -> str:
        """Hash over the texts and what belongs together."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.table.ids, self.table.offsets, *self.parts):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


class Distilling(Objective[Sequence[np.ndarray]]):
    """The loss of an update: for each corpus the numbers of the sentence pairs of all processes.

    Args:
        processes: of this run; each computes the loss of its share of the texts, which is a share of a sum.
        terms: of the loss, see `Distillation.terms`.
        budget, accumulate: see `Tuner`.
        negatives, source_share, seed: see `Distillation`.
        words: the loss over words of the same texts; None for none.
    """

    def __init__(
        self,
        student: HuggingFaceEncoder | SubwordVectors,
        pooling: SentencePooling,
        text: DistilledText,
        teacher: SentenceStore,
        processes: Processes,
        *,
        terms: Any,
        budget: int,
        accumulate: int = 1,
        negatives: int = 0,
        source_share: float = 1.0,
        seed: int = 0,
        words: WordLoss | None = None,
    ):
        self.module = nn.ModuleDict({"encoder": student.model, "pooling": pooling})
        if words is not None:
            self.module["words"] = words.head
        self._words = words
        self.pooling, self.text, self.teacher, self.processes = pooling, text, teacher, processes
        if isinstance(student, SubwordVectors):
            self._source: VectorSource = BagSource(student.model, text.table)
        else:
            self._source = TrainedSource(student, text.table, processes, budget=budget)
        self._terms, self._accumulate = terms, accumulate
        self._negatives, self._share, self._seed, self._updates = negatives, source_share, seed, 0
        self._places = np.unique(text.places[text.places >= 0])

    def state(self) -> dict[str, Any]:
        return {"updates": self._updates}

    def load_state(self, state: dict[str, Any]) -> None:
        self._updates = state["updates"]

    def _texts(self, update: Sequence[np.ndarray]) -> np.ndarray:
        """Numbers of the texts that an update reads, in ascending order; a function of its own number and the seed."""
        rng = np.random.default_rng([self._seed, self._updates])
        found = []
        for part, rows in zip(self.text.parts, update, strict=True):
            found.append(part[rows, -1])
            if part.shape[1] == 2:
                found.append(part[rows[rng.random(len(rows)) < self._share], 0])
        return np.sort(np.concatenate(found))

    def _drawn(self) -> np.ndarray:
        """Places of vectors of the teacher that the update's texts are to be told apart from, with those of its own."""
        rng = np.random.default_rng([self._seed, self._updates, 1])
        return self._places[rng.integers(len(self._places), size=self._negatives)]

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        numbers = self._texts(update)
        drawn = self._drawn()
        self._updates += 1
        places, own = np.unique(np.concatenate([self.text.places[numbers], drawn]), return_inverse=True)
        device = self.processes.device
        candidates = torch.from_numpy(self.teacher.take(places)).to(device)
        total: dict[str, Tensor] = {}
        for part in np.array_split(self.processes.share(numbers), self._accumulate):
            given = self._source.take(part)
            rows = given.rows.requires_grad_()
            which = torch.from_numpy(own[np.searchsorted(numbers, given.numbers)]).to(device)
            found = self._terms(self.pooling(rows, given.lengths), which, candidates, len(numbers))
            torch.stack(list(found.values())).sum().backward()
            if rows.grad is not None:
                self._source.backward(rows.grad)
            total = {name: value.detach() + total.get(name, 0.0) for name, value in found.items()}
        if self._words is not None:
            total |= self._words.backward(numbers)
        shown = self.processes.sum_numbers(torch.stack(list(total.values())))
        return {"loss": float(shown.sum()), **dict(zip(total, shown.tolist(), strict=True))}
