"""Words beside sentences in distillation: what the teacher says of a word in its sentence, for the word and its translation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from calque.distributed import Processes
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.sentence_store import WordStore
from calque.encoders.split import SplitSentences
from calque.errors import SettingError
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences
from calque.training.sources import TrainedSource

Terms = Callable[[Tensor, Tensor, Tensor, int], dict[str, Tensor]]


@dataclass(frozen=True)
class LinkedWords:
    """What words are learnt from: the texts of a distillation once more, divided into words.

    Args:
        teacher: gets the vectors that it does not have yet.
        corpora: the same sentence pairs in the same order.
        pairs: their linked words.
        texts: the same sentences in the teacher's language alone, of which every word is learnt.
    """

    teacher: WordStore
    corpora: Sequence[ParallelCorpus]
    pairs: Sequence[WordPairs]
    texts: Sequence[Sentences] = field(default=())

    def towards(self, lang: str) -> LinkedWords:
        """The same with the side in a language first."""
        turned = [corpus.langs[0] != lang for corpus in self.corpora]
        corpora = [corpus.swapped() if turn else corpus for corpus, turn in zip(self.corpora, turned, strict=True)]
        pairs = [links.swapped() if turn else links for links, turn in zip(self.pairs, turned, strict=True)]
        return LinkedWords(self.teacher, corpora, pairs, self.texts)

    @property
    def read(self) -> Sentences:
        """What the teacher reads."""
        return Sentences.joined([*(corpus.source for corpus in self.corpora), *self.texts])


class TaughtWords:
    """Words as the student reads them, and where the teacher's vector of each is.

    Args:
        given: whose corpora have the teacher's language first; the teacher has all vectors.
        parts: the sentences of each corpus and text of the distillation, which must be as many.

    Attributes:
        table: all texts, numbered as `DistilledText` numbers them.
        offsets: int64 `[n_texts + 1]` into the two arrays below.
        words: int64, which word of its text each is that learns.
        places: int64, of the teacher's vector of it, or of the word in the teacher's language that it is linked with.
        without_vector: links that are left out because the student or the teacher has no vector of a word.
    """

    def __init__(self, student: HuggingFaceEncoder, given: LinkedWords, parts: Sequence[int]):
        sides = [*((corpus.source, corpus.target) for corpus in given.corpora), *((text,) for text in given.texts)]
        if [len(side[0]) for side in sides] != list(parts):
            raise SettingError(
                f"the texts divided into words have {[len(side[0]) for side in sides]} sentences, the texts {list(parts)}"
            )
        tables, found, base, self.without_vector = [], [], 0, 0
        self._digest = hashlib.blake2b(digest_size=16)
        for number, side in enumerate(sides):
            split, n = [student.split(each) for each in side], len(side[0])
            places, known = given.teacher.places(side[0])
            first = split[0].word_offsets
            if len(side) == 2:
                links = given.pairs[number].check(given.corpora[number])
                ours, theirs = (
                    first[links.sentence] + links.source,
                    split[1].word_offsets[links.sentence] + links.target,
                )
                kept = known[ours] & split[0].covered[ours] & split[1].covered[theirs]
                self.without_vector += int((~kept).sum())
                for array in (links.sentence[kept], links.source[kept], links.target[kept]):
                    self._digest.update(np.ascontiguousarray(array).tobytes())
                sentence, place = base + links.sentence[kept], places[ours[kept]]
                found += [(sentence, links.source[kept], place), (sentence + n, links.target[kept], place)]
            else:
                kept = np.flatnonzero(known & split[0].covered)
                self._digest.update(kept.tobytes())
                owner = np.repeat(np.arange(n), np.diff(first))[kept]
                found.append((base + owner, kept - first[owner], places[kept]))
            tables += split
            base += n * len(side)
        self.table = SplitSentences.joined(tables)
        text, words, places = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        order = np.argsort(text, kind="stable")
        self.offsets = offsets_of(np.bincount(text, minlength=base))
        self.words, self.places = words[order].astype(np.int64), places[order]

    def counts(self, texts: np.ndarray) -> np.ndarray:
        """How many words of some texts learn, int64 `[n]`."""
        return self.offsets[texts + 1] - self.offsets[texts]

    @property
    def fingerprint(self) -> str:
        """Hash over the texts and what is learnt of them."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (
            self.table.ids,
            self.table.offsets,
            self.table.word_starts,
            self.offsets,
            self.words,
            self.places,
        ):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


class WordLoss:
    """The loss over the words of an update.

    Args:
        head: from its word vectors to the teacher's; trained with it.
        processes: of this run; each computes the loss of the words of its share of the texts.
        terms: of the loss, see `Distillation.terms`; over vectors of length 1.
        weight: of them.
        budget, accumulate: see `Tuner`.
    """

    def __init__(
        self,
        student: HuggingFaceEncoder,
        head: nn.Module,
        words: TaughtWords,
        teacher: WordStore,
        processes: Processes,
        *,
        terms: Terms,
        weight: float,
        budget: int,
        accumulate: int = 1,
    ):
        self.head, self._words, self._teacher, self._processes = head, words, teacher, processes
        self._source = TrainedSource(student, words.table, processes, budget=budget)
        self._terms, self._weight, self._accumulate = terms, weight, accumulate

    def backward(self, texts: np.ndarray) -> dict[str, Tensor]:
        """Add the gradient of this process's share, and give the terms of it.

        Args:
            texts: numbers of the texts that all processes read in this update, in ascending order.
        """
        words, device = self._words, self._processes.device
        texts = texts[words.counts(texts) > 0]
        counts = words.counts(texts)
        starts = offsets_of(counts)
        places, own = np.unique(words.places[ranges(words.offsets[texts], counts)], return_inverse=True)
        candidates = functional.normalize(torch.from_numpy(self._teacher.take(places)).to(device))
        total: dict[str, Tensor] = {}
        for part in np.array_split(self._processes.share(texts), self._accumulate):
            given = self._source.take(part)
            rows = given.rows.requires_grad_()
            n = words.counts(given.numbers)
            first = np.repeat(offsets_of(given.lengths.numpy())[:-1], n)
            chosen = torch.from_numpy(first + words.words[ranges(words.offsets[given.numbers], n)]).to(device)
            which = torch.from_numpy(own[ranges(starts[np.searchsorted(texts, given.numbers)], n)]).to(device)
            found = self._terms(self.head(rows[chosen]), which, candidates, max(1, len(own)))
            found = {f"words_{name}": self._weight * value for name, value in found.items()}
            torch.stack(list(found.values())).sum().backward()
            if rows.grad is not None:
                self._source.backward(rows.grad)
            total = {name: value.detach() + total.get(name, 0.0) for name, value in found.items()}
        return total
