"""What a student is taught with, and the loss of an update of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from calque.distributed import Processes
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.sentence_store import TeacherVectors
from calque.encoders.sentence_vectors import SentencePooling
from calque.encoders.split import SplitSentences
from calque.encoders.subword_vectors import SubwordVectors
from calque.errors import SettingError
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences
from calque.training.objective import Objective
from calque.training.sources import TrainedSource, VectorSource, WordRows

Terms = Callable[[Tensor, Tensor, Tensor, int], dict[str, Tensor]]


@dataclass(frozen=True)
class LinkedWords:
    """What words are learnt from: the texts of a distillation once more, divided into words.

    Args:
        teacher: of words; gets the vectors that it does not have yet.
        corpora: the same sentence pairs in the same order.
        pairs: their linked words.
        texts: the same sentences in the teacher's language alone, of which every word is learnt.
    """

    teacher: TeacherVectors
    corpora: Sequence[ParallelCorpus]
    pairs: Sequence[WordPairs]
    texts: Sequence[Sentences] = field(default=())

    def towards(self, lang: str) -> LinkedWords:
        """Return the texts with the side in a language first."""
        both = list(zip(self.corpora, self.pairs, strict=True))
        both = [(c, links) if c.langs[0] == lang else (c.swapped(), links.swapped()) for c, links in both]
        return LinkedWords(self.teacher, [c for c, _ in both], [links for _, links in both], self.texts)

    @property
    def read(self) -> Sentences:
        """What the teacher reads."""
        return Sentences.joined([*(corpus.source for corpus in self.corpora), *self.texts])


@dataclass
class Lesson:
    """Texts as the student reads them, what it learns of each, and where the teacher's vector of that is.

    Attributes:
        table: all texts, numbered in a row: of each corpus first all in the teacher's language, then their translations.
        offsets: int64 `[n_texts + 1]` into the two arrays below.
        words: int64, which word of its text each is that learns; None where the whole text learns.
        places: int64, of the teacher's vector of it, or of what it translates.
        parts: for each corpus and text int64 `[n, 2]` or `[n, 1]`, the numbers of the texts that belong together.
        counts: what was kept and left out, for the record.
    """

    table: SplitSentences
    offsets: np.ndarray
    words: np.ndarray | None
    places: np.ndarray
    parts: list[np.ndarray]
    counts: dict[str, int]

    @classmethod
    def of_sentences(
        cls,
        student: HuggingFaceEncoder | SubwordVectors,
        pooling: SentencePooling,
        teacher: TeacherVectors,
        corpora: Sequence[ParallelCorpus],
        texts: Sequence[Sentences],
    ) -> Lesson:
        """Lay out sentences, and those of their translations.

        Args:
            teacher: has a vector of every text in its language.
            corpora: whose source is in that language.
        """
        tables, places, taught, parts, base = [], [], [], [], 0
        for sides in _sides(corpora, texts):
            split = [pooling.split(student, side) for side in sides]
            full = np.logical_and.reduce([side.lengths() > 0 for side in sides])
            full &= np.logical_and.reduce([np.diff(part.word_offsets) > 0 for part in split])
            usable, n = np.flatnonzero(full), len(full)
            parts.append(np.stack([base + k * n + usable for k in range(len(sides))], axis=1))
            tables += split
            taught += [full] * len(sides)
            places += [teacher.places(sides[0].take(usable))] * len(sides)
            base += n * len(sides)
        counts = {
            "sentence_pairs": sum(len(part) for part in parts if part.shape[1] == 2),
            "sentences": sum(len(part) for part in parts if part.shape[1] == 1),
            "texts_cut": sum(table.truncated_sentences for table in tables),
        }
        offsets = offsets_of(np.concatenate(taught))
        return cls(SplitSentences.joined(tables), offsets, None, np.concatenate(places), parts, counts)

    @classmethod
    def of_words(cls, student: HuggingFaceEncoder, given: LinkedWords, parts: Sequence[int]) -> Lesson:
        """Lay out words, and those that are linked with them.

        Args:
            given: whose corpora have the teacher's language first; the teacher has all vectors.
            parts: the sentences of each corpus and text of the distillation, which must be as many.

        Raises:
            SettingError: they are not.
        """
        sides = _sides(given.corpora, given.texts)
        if (sizes := [len(side[0]) for side in sides]) != list(parts):
            raise SettingError(f"the texts divided into words have {sizes} sentences, the texts {list(parts)}")
        tables, found, base, without_vector = [], [], 0, 0
        for number, side in enumerate(sides):
            split, n = [student.split(each) for each in side], len(side[0])
            places = given.teacher.places(side[0])
            known = given.teacher.covered[places] & split[0].covered
            first = split[0].word_offsets
            if len(side) == 2:
                links = given.pairs[number].check(given.corpora[number])
                ours, theirs = (
                    first[links.sentence] + links.source,
                    split[1].word_offsets[links.sentence] + links.target,
                )
                kept = known[ours] & split[1].covered[theirs]
                without_vector += int((~kept).sum())
                sentence, place = base + links.sentence[kept], places[ours[kept]]
                found += [(sentence, links.source[kept], place), (sentence + n, links.target[kept], place)]
            else:
                word = np.flatnonzero(known)
                owner = np.repeat(np.arange(n), np.diff(first))[word]
                found.append((base + owner, word - first[owner], places[word]))
            tables += split
            base += n * len(side)
        text, words, places = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        order = np.argsort(text, kind="stable")
        counts = {"words": len(words), "links_without_vector": without_vector}
        offsets = offsets_of(np.bincount(text, minlength=base))
        return cls(SplitSentences.joined(tables), offsets, words[order].astype(np.int64), places[order], [], counts)

    def of(self, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what some texts learn, as numbers in `places`, and of how many each text does, int64."""
        counts = self.offsets[texts + 1] - self.offsets[texts]
        return ranges(self.offsets[texts], counts), counts

    @property
    def fingerprint(self) -> str:
        """Hash over the texts and what is learnt of them."""
        digest = hashlib.blake2b(digest_size=16)
        arrays = [self.table.ids, self.table.offsets, self.table.word_starts, self.offsets, *self.parts]
        for array in [*arrays, *([] if self.words is None else [self.words, self.places])]:
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _sides(corpora: Sequence[ParallelCorpus], texts: Sequence[Sentences]) -> list[tuple[Sentences, ...]]:
    return [*((corpus.source, corpus.target) for corpus in corpora), *((text,) for text in texts)]


@dataclass
class Taught:
    """A lesson with what it takes to learn it.

    Attributes:
        source: of the student's rows of the texts.
        head: from these to vectors like the teacher's: a pooling, or for words a module of their own.
        weight: of the loss.
        prefix: of the names of its terms.
    """

    lesson: Lesson
    teacher: TeacherVectors
    source: VectorSource
    head: nn.Module
    weight: float = 1.0
    prefix: str = ""

    def vectors(self, given: WordRows, rows: Tensor) -> Tensor:
        """Return the student's vectors of all that some texts learn, `[k, dim]`."""
        if self.lesson.words is None:
            return self.head(rows, given.lengths)
        which, counts = self.lesson.of(given.numbers)
        chosen = np.repeat(offsets_of(given.lengths.numpy())[:-1], counts) + self.lesson.words[which]
        return self.head(rows[torch.from_numpy(chosen).to(rows.device)])

    def wanted(self, places: np.ndarray) -> Tensor:
        """Return the teacher's vectors; those of words have length 1."""
        vectors = torch.from_numpy(self.teacher.take(places))
        return vectors if self.lesson.words is None else functional.normalize(vectors)


class Distilling(Objective[Sequence[np.ndarray]]):
    """The loss of an update: for each corpus the numbers of the sentence pairs of all processes.

    Args:
        sentences, words: what is learnt of the same texts; no words for None.
        processes: of this run; each computes the loss of its share of the texts, which is a share of a sum.
        terms: of the loss, see `Distillation.terms`.
        accumulate: see `Tuner`.
        negatives, source_share, seed: see `Distillation`.
    """

    def __init__(
        self,
        student: HuggingFaceEncoder | SubwordVectors,
        sentences: Taught,
        words: Taught | None,
        processes: Processes,
        *,
        terms: Terms,
        accumulate: int = 1,
        negatives: int = 0,
        source_share: float = 1.0,
        seed: int = 0,
    ):
        self.student = student
        self.module = nn.ModuleDict({"encoder": student.model, "pooling": sentences.head})
        if words is not None:
            self.module["words"] = words.head
        self.sentences, self.words, self.processes = sentences, words, processes
        self._terms, self._accumulate = terms, accumulate
        self._negatives, self._share, self._seed, self._updates = negatives, source_share, seed, 0
        self._places = np.unique(sentences.lesson.places)

    def state(self) -> dict[str, Any]:
        return {"updates": self._updates}

    def load_state(self, state: dict[str, Any]) -> None:
        self._updates = state["updates"]

    def texts(self, update: Sequence[np.ndarray]) -> np.ndarray:
        """Return the numbers of the texts that an update reads, in ascending order, by its own number and the seed."""
        rng = np.random.default_rng([self._seed, self._updates])
        found = []
        for part, rows in zip(self.sentences.lesson.parts, update, strict=True):
            found.append(part[rows, -1])
            if part.shape[1] == 2:
                found.append(part[rows[rng.random(len(rows)) < self._share], 0])
        return np.sort(np.concatenate(found))

    def drawn(self) -> np.ndarray:
        """Return places of further vectors of the teacher, from which the update's texts are distinguished."""
        rng = np.random.default_rng([self._seed, self._updates, 1])
        return self._places[rng.integers(len(self._places), size=self._negatives)]

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        texts, drawn = self.texts(update), self.drawn()
        self._updates += 1
        total = self._learn(self.sentences, texts, drawn)
        if self.words is not None:
            total |= self._learn(self.words, texts, drawn[:0])
        shown = self.processes.sum_numbers(torch.stack(list(total.values())))
        return {"loss": float(shown.sum()), **dict(zip(total, shown.tolist(), strict=True))}

    def _learn(self, taught: Taught, texts: np.ndarray, drawn: np.ndarray) -> dict[str, Tensor]:
        """Add the gradient of this process's share of some texts, and return the terms of its loss."""
        lesson, device = taught.lesson, self.processes.device
        texts = texts[lesson.of(texts)[1] > 0]
        which, counts = lesson.of(texts)
        starts = offsets_of(counts)
        places, own = np.unique(np.concatenate([lesson.places[which], drawn]), return_inverse=True)
        candidates = taught.wanted(places).to(device)
        total: dict[str, Tensor] = {}
        for part in np.array_split(self.processes.share(texts), self._accumulate):
            given = taught.source.take(part)
            rows = given.rows.requires_grad_()
            mine = own[ranges(starts[np.searchsorted(texts, given.numbers)], lesson.of(given.numbers)[1])]
            mine = torch.from_numpy(mine).to(device)
            found = self._terms(taught.vectors(given, rows), mine, candidates, max(1, len(which)))
            found = {f"{taught.prefix}{name}": taught.weight * value for name, value in found.items()}
            torch.stack(list(found.values())).sum().backward()
            if rows.grad is not None:
                taught.source.backward(rows.grad)
            total = {name: value.detach() + total.get(name, 0.0) for name, value in found.items()}
        return total


def source_of(
    student: HuggingFaceEncoder | SubwordVectors, table: SplitSentences, processes: Processes, budget: int
) -> VectorSource:
    """Return the source of the student's rows of some texts, with gradients."""
    if isinstance(student, SubwordVectors):
        return _BagSource(student.model, table)
    return TrainedSource(student, table, processes, budget=budget)


class _BagSource(VectorSource):
    """Means of the subwords of texts, one row a text, by a table of vectors that learns."""

    def __init__(self, model: nn.Embedding, split: SplitSentences):
        self.dim, self.model = model.embedding_dim, model
        self.lengths = np.ones(len(split), dtype=np.int64)
        self._table, self._split = model, split
        self._rows = torch.zeros(0)

    def take(self, numbers: np.ndarray) -> WordRows:
        part, device = self._split.take(numbers), self._table.weight.device
        ids, bags = (torch.from_numpy(array).long().to(device) for array in (part.ids, part.offsets[:-1]))
        self._rows = functional.embedding_bag(ids, self._table.weight, bags, mode="mean")
        return WordRows(self._rows.detach(), torch.ones(len(numbers), dtype=torch.int64), numbers)

    def backward(self, gradient: Tensor) -> None:
        self._rows.backward(gradient)
