"""Word-aligned parallel text laid out for training: every sentence of every corpus in one ragged table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.alignment.learnt import Counts, renumbered, split_texts, usable_pairs, with_vectors
from calque.alignment.rows import GroupRows, SentenceRows, Update
from calque.corpora.origins import origins_of
from calque.encoders.split import SplitSentences
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.encoders.dropped import SubwordDropout

_LONGER = 2.0  # how much longer than its shortest sentence may be what a batch holds


@dataclass(frozen=True)
class _Corpus:
    """What is trained on of a corpus.

    Attributes:
        source, target: int64 `[n]`, the numbers of both sentences of each sentence pair.
        pairs: their linked words.
        offsets: int64 `[n + 1]` into these.
        kinds: int64 `[n_pairs]`, equal for pairs that are positives of each other; None where each is one of its own.
        regularised: whether the target is the language that the others move towards.
    """

    source: np.ndarray
    target: np.ndarray
    pairs: WordPairs
    offsets: np.ndarray
    kinds: np.ndarray | None = None
    regularised: bool = True

    def links_of(self, numbers: np.ndarray) -> np.ndarray:
        """How many links some sentence pairs have, int64 `[n]`."""
        return self.offsets[numbers + 1] - self.offsets[numbers]


class AlignedText:
    """Corpora with their word links, split into subwords once.

    In every corpus the side in language `towards` is called the target, as in Cao (2020): the source moves towards it. A
    corpus of two other languages keeps its order, and of its words none is regularised:
    both sides move.

    Args:
        corpora, pairs: one `WordPairs` for each corpus.
        encoder: that will be trained.
        towards: the language to move towards; one corpus at least must have it.
        special: treat the special subwords at both ends ([CLS], [SEP]) as two linked words (Cao 2020, code).
        max_words: drop pairs with a longer side; None keeps them, cut at the encoder's limit.
        kinds: gives for a corpus and those of its links that are trained on a number for each link, equal for those that are
            positives of each other.
        dropout: how probably a subword is left out where a sentence is cut into subwords, anew in each update; see
            `SubwordDropout`. Vectors of the frozen encoder are of words cut as usual.
        seed: of this.
        sentences: updates also say which words are a sentence's.
        origins: also keep where each pair is from, as the third column of its text says.
        subwords: the subwords of regularised sentences, special ones too, have rows of their own behind those of the words.

    Attributes:
        table: all sentences; the "words" of each are what it has rows for.
        dropout: see above.
        origins: for each corpus int64 `[n_pairs]`, equal for pairs from one place; empty if nobody asked.
        word_counts, row_counts: int64 `[n_sentences]`, words, and rows, of which the others are subwords.
    """

    def __init__(
        self,
        corpora: Sequence[ParallelCorpus],
        pairs: Sequence[WordPairs],
        encoder: TrainableEncoder,
        *,
        towards: str,
        special: bool = True,
        max_words: int | None = 64,
        kinds: Callable[[ParallelCorpus, WordPairs], np.ndarray] | None = None,
        subwords: bool = False,
        dropout: float = 0.0,
        seed: int = 0,
        sentences: bool = False,
        origins: bool = False,
    ):
        if not corpora or len(corpora) != len(pairs):
            raise SettingError(f"{len(corpora)} corpora with {len(pairs)} sets of word pairs")
        if all(towards not in corpus.langs for corpus in corpora):
            corpora[0].side(towards)  # which says so
        self.counts = Counts()
        self.towards = towards
        self._special = int(special)
        self._corpora: list[_Corpus] = []
        self.origins: list[np.ndarray] = []
        texts: list[tuple[ParallelCorpus, WordPairs]] = []
        for corpus, linked in zip(corpora, pairs, strict=True):
            linked.check(corpus)
            texts.append((corpus.swapped(), linked.swapped()) if corpus.langs[0] == towards else (corpus, linked))
        sides = [side for corpus, _ in texts for side in (corpus.source, corpus.target)]
        parts = split_texts(encoder, sides)
        if special and not dropout:  # words that are cut anew are counted without
            parts = (part.with_special() for part in parts)
        self.table = SplitSentences.gathered(parts)
        self.counts.truncated_words = self.table.truncated_words
        self.dropout, self._seed, self._sentences = dropout, seed, sentences
        self._dropping = _dropping(encoder, sides, self.table, dropout) if dropout else None
        if special and dropout:
            self.table = self.table.with_special()
        base = 0
        for corpus, linked in texts:
            regularised = corpus.langs[1] == towards
            self.counts.languages.append(corpus.langs[0] if regularised else "-".join(corpus.langs))
            linked = with_vectors(linked, self.table, (base, base + len(corpus)), self.counts, special=special)
            usable, linked = usable_pairs(corpus, linked, max_words, self.counts, special=special)
            of_pairs = None if kinds is None else kinds(corpus, linked)
            linked = renumbered(linked, usable)
            self._corpora.append(
                _Corpus(base + usable, base + len(corpus) + usable, linked, linked.offsets(), of_pairs, regularised)
            )
            if origins:
                self.origins.append(_numbers(corpus)[usable])
            base += 2 * len(corpus)
        self.word_counts = self.row_counts = np.diff(self.table.word_offsets)
        # All words in `towards` of all corpora, numbered in a row, for vectors of the frozen encoder.
        self.target_sentences = np.concatenate([corpus.target for corpus in self._corpora if corpus.regularised])
        self._subwords = subwords
        if subwords:
            regularised = np.zeros(len(self.table), dtype=bool)
            regularised[self.target_sentences] = True
            self.table = self.table.with_subwords(regularised)
            self.row_counts = np.diff(self.table.word_offsets)
        self.reference_start = np.full(len(self.row_counts), -1, dtype=np.int64)
        sizes = self.row_counts[self.target_sentences]
        self.reference_start[self.target_sentences] = offsets_of(sizes)[:-1]
        self.n_reference = int(sizes.sum())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that training reads from the text."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.table.ids, self.table.offsets, self.table.word_starts, self.table.word_lengths):
            digest.update(np.ascontiguousarray(array).data)
        for corpus in self._corpora:
            for array in (corpus.source, corpus.pairs.sentence, corpus.pairs.source, corpus.pairs.target):
                digest.update(np.ascontiguousarray(array).data)
            if corpus.kinds is not None:
                digest.update(np.ascontiguousarray(corpus.kinds).data)
        for numbers in self.origins:
            digest.update(numbers.tobytes())
        return digest.hexdigest()

    @property
    def lengths(self) -> list[np.ndarray]:
        """Subwords of both sides, `[corpus][pair]`, for grouping by length."""
        sizes = self.table.lengths
        return [sizes[corpus.source] + sizes[corpus.target] for corpus in self._corpora]

    def shares(
        self, sentences: np.ndarray, budget: int, n: int = 1, *, lengths: np.ndarray | None = None
    ) -> list[list[np.ndarray]]:
        """Deal sentences out into `n` shares of about equal work, and cut each into batches of about equal length.

        A batch, padded, has at most `budget` subwords, or a single sentence.

        Args:
            sentences: their numbers.
            budget: see above.
            n: how many shares.
            lengths: subwords of each, where the sentences are not cut as usual.
        """
        size = self.table.lengths[sentences] if lengths is None else lengths
        order = np.argsort(size, kind="stable")
        # Dealt to and fro: else one share would have the longer of each few neighbours, and the others would wait for it.
        turn, place = np.divmod(np.arange(len(order)), n)
        owner = np.where(turn % 2, n - 1 - place, place)
        shares = []
        for share in range(min(n, len(order))):
            dealt = order[owner == share]
            mine, sizes = sentences[dealt], size[dealt]
            batches, start = [], 0
            while start < len(mine):
                # What differs in length costs padding, what stands alone costs calls.
                limit = _LONGER * sizes[start] + 4
                stop = start + 1
                while stop < len(mine) and (stop + 1 - start) * sizes[stop] <= budget and sizes[stop] <= limit:
                    stop += 1
                batches.append(mine[start:stop])
                start = stop
            shares.append(batches)
        return shares

    def update(
        self,
        chosen: Sequence[np.ndarray],
        *,
        budget: int,
        shares: int = 1,
        rank: int = 0,
        world: int = 1,
        accumulate: int = 1,
        number: int = 0,
    ) -> list[Update]:
        """Lay out one update.

        Args:
            chosen: `[corpus]` → numbers of sentence pairs, as a `BatchPlan` gives them.
            budget: subwords in a batch, padding included.
            shares: to be gone through side by side.
            rank, world: which share of the pairs is this process's.
            accumulate: into how many parts to cut this process's share.
            number: of the update, which decides how its words are cut where they are cut at random.

        Returns:
            one `Update` for each part.
        """
        parts = [np.array_split(numbers, world * accumulate) for numbers in chosen]
        pairs_of, words_of, subwords_of = [], [], []
        sentences_of = [tuple(map(len, split)) if self._sentences else () for split in parts]
        for corpus, split in zip(self._corpora, parts, strict=True):
            n_pairs = [int(corpus.links_of(part).sum()) + 2 * self._special * len(part) for part in split]
            targets = [corpus.target[part] if corpus.regularised else part[:0] for part in split]
            pairs_of.append(tuple(n_pairs))
            words_of.append(tuple(int(self.word_counts[part].sum()) for part in targets))
            subwords_of.append(tuple(int((self.row_counts[part] - self.word_counts[part]).sum()) for part in targets))
        mine = range(rank * accumulate, (rank + 1) * accumulate)
        of = pairs_of, words_of, subwords_of, sentences_of
        return [self._part([split[k] for split in parts], budget, shares, number, *of) for k in mine]

    def _part(self, chosen, budget, shares, number, pairs_of, words_of, subwords_of, sentences_of) -> Update:
        sources = [corpus.source[numbers] for corpus, numbers in zip(self._corpora, chosen, strict=True)]
        targets = [corpus.target[numbers] for corpus, numbers in zip(self._corpora, chosen, strict=True)]
        table, sentences = self.table, np.concatenate(sources + targets)
        if self._dropping is not None:
            table = self._dropping.split(sentences, (self._seed, number))
            table = table.with_special() if self._special else table
        dealt = self.shares(
            sentences, budget, shares, lengths=None if self._dropping is None else table.lengths
        )  # fmt: skip
        batches = [batch for share in dealt for batch in share]
        ordered = np.concatenate(batches) if batches else np.zeros(0, dtype=np.int64)
        sizes = self.row_counts[ordered]
        row = np.full(len(self.row_counts), -1, dtype=np.int64)
        row[ordered] = offsets_of(sizes)[:-1]
        groups = []
        for k, (corpus, numbers, s, t) in enumerate(zip(self._corpora, chosen, sources, targets, strict=True)):
            n_pairs = corpus.links_of(numbers)
            which, local = ranges(corpus.offsets[numbers], n_pairs), np.repeat(np.arange(len(numbers)), n_pairs)
            left, right = corpus.pairs.source[which] + self._special, corpus.pairs.target[which] + self._special
            source, target = row[s][local] + left, row[t][local] + right
            linked = self.reference_start[t][local] + right if corpus.regularised else None
            kinds = None if corpus.kinds is None else corpus.kinds[which]
            if self._special:
                kinds = None if kinds is None else np.concatenate([kinds, np.full(2 * len(numbers), -1)])
                last = self.word_counts[s] - 1, self.word_counts[t] - 1
                source = np.concatenate([source, row[s], row[s] + last[0]])
                target = np.concatenate([target, row[t], row[t] + last[1]])
                if linked is not None:
                    linked = np.concatenate([linked, self.reference_start[t], self.reference_start[t] + last[1]])
            if not corpus.regularised:
                t = t[:0]
            words, subwords = self.word_counts[t], self.row_counts[t] - self.word_counts[t]
            regularised, reference = ranges(row[t], words), ranges(self.reference_start[t], words)
            group = GroupRows(source, target, regularised, reference, linked, pairs_of[k], words_of[k], kinds)
            if self._subwords:
                first = row[t] + words, self.reference_start[t] + words
                group = replace(
                    group, subwords=ranges(first[0], subwords), reference_subwords=ranges(first[1], subwords),
                    subwords_of_part=subwords_of[k],
                )  # fmt: skip
            if self._sentences:
                both = self._of_sentences(s, row[s]), self._of_sentences(targets[k], row[targets[k]])
                group = replace(group, sentences=both, sentences_of_part=sentences_of[k])
            groups.append(group)
        if self._dropping is not None:
            place = np.full(len(self.row_counts), -1, dtype=np.int64)
            place[sentences] = np.arange(len(sentences))
            dealt = [[place[batch] for batch in share] for share in dealt]
        kept = [numbers for corpus, numbers in zip(self._corpora, targets, strict=True) if corpus.regularised]
        return Update(dealt, np.concatenate(kept), groups, table)

    def _of_sentences(self, sentences: np.ndarray, rows: np.ndarray) -> SentenceRows:
        """The words of some sentences whose first rows are known, without special subwords and words without a vector."""
        counts = self.word_counts[sentences] - 2 * self._special
        covered = self.table.covered[ranges(self.table.word_offsets[sentences] + self._special, counts)]
        owner = np.repeat(np.arange(len(sentences)), counts)[covered]
        found = ranges(rows + self._special, counts)[covered]
        return SentenceRows(found, owner, np.bincount(owner, minlength=len(sentences)))


def _numbers(corpus: ParallelCorpus) -> np.ndarray:
    """A number for where each pair is from, int64 `[n]`."""
    name = corpus.path or "-".join(corpus.langs)
    found = origins_of(corpus, name, "origins to balance").values()
    return (np.arange(1, len(found) + 1)[:, None] * np.stack(list(found))).sum(0)


def _dropping(encoder: Any, texts: Sequence[Sentences], table: SplitSentences, share: float) -> SubwordDropout:
    if not hasattr(encoder, "dropping"):
        raise SettingError(f"subword_dropout: {encoder.name} has no subwords that could be left out; leave it at 0")
    return encoder.dropping(texts, table, share)
