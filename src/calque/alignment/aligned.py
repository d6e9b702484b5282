"""Word-aligned parallel text laid out for training: every sentence of every corpus in one ragged table."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from calque.encoders.base import TrainableEncoder
from calque.encoders.split import SplitSentences
from calque.errors import SettingError
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.text import ParallelCorpus

_LONGER = 2.0  # how much longer than its shortest sentence may be what a batch holds


@dataclass(frozen=True)
class GroupRows:
    """Where one corpus's words stand among the word vectors of an update.

    Rows index the update's word vectors; `reference` indexes the words of all target sentences of all corpora.
    """

    source: np.ndarray  # [n_pairs] rows of linked source words
    target: np.ndarray  # [n_pairs] rows of the words they are linked to
    regularised: np.ndarray  # [n_target_words] rows of all words of the target sentences
    reference: np.ndarray  # [n_target_words] the same words, as numbers among all target words
    reference_linked: np.ndarray  # [n_pairs] the linked target words, as numbers among all target words
    pairs_of_part: tuple[int, ...]  # links in each part of each process's share, in order
    n_regularised: int  # target words of all processes in this update


@dataclass
class Update:
    """One part of one process's share of an update.

    Args:
        shares: batches of sentence numbers, `[share][batch]`; the words in this order are the rows. Shares are equally
            long and may be gone through side by side.
        targets: numbers of the target sentences among them.
        groups: one for each corpus.
        reference: room for the frozen encoder's vectors of the target words, by layer.
    """

    shares: list[list[np.ndarray]]
    targets: np.ndarray
    groups: list[GroupRows]
    reference: dict | None = None


@dataclass
class Counts:
    """What preparation left out, for the record."""

    sentence_pairs: int = 0
    links: int = 0
    too_long: int = 0
    without_links: int = 0
    links_without_vector: int = 0
    truncated_words: int = 0
    special_pairs: int = 0
    languages: list[str] = field(default_factory=list)


class AlignedText:
    """Corpora with their word links, split into subwords once.

    In every corpus the side in language `towards` is called the target, as in Cao (2020): the source moves towards it.

    Args:
        corpora, pairs: one `WordPairs` for each corpus.
        encoder: that will be trained.
        towards: the language to move towards; every corpus must have it.
        special: treat the special subwords at both ends ([CLS], [SEP]) as two linked words (Cao 2020, code).
        max_words: drop pairs with a longer side; None keeps them, cut at the encoder's limit.
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
    ):
        if not corpora or len(corpora) != len(pairs):
            raise SettingError(f"{len(corpora)} corpora with {len(pairs)} sets of word pairs")
        self.counts = Counts()
        self.towards = towards
        self._special = int(special)
        self._sources: list[np.ndarray] = []  # [corpus][kept pair] → sentence number
        self._targets: list[np.ndarray] = []
        self._links: list[WordPairs] = []  # of kept pairs, renumbered
        self._offsets: list[np.ndarray] = []
        tables: list[SplitSentences] = []
        base = 0
        for corpus, links in zip(corpora, pairs, strict=True):
            links.check(corpus)
            if corpus.side(towards) == "source":
                corpus, links = corpus.swapped(), links.swapped()
            self.counts.languages.append(corpus.langs[0])
            source, target = encoder.split(corpus.source), encoder.split(corpus.target)
            self.counts.truncated_words += source.truncated_words + target.truncated_words
            keep, links = self._usable(corpus, links, source, target, max_words)
            self._sources.append(base + keep)
            self._targets.append(base + len(corpus) + keep)
            self._links.append(links)
            self._offsets.append(links.offsets())
            tables += [source, target]
            base += 2 * len(corpus)
        table = SplitSentences.joined(tables)
        self.table = table.with_special() if special else table
        self.word_counts = np.diff(self.table.word_offsets)
        # All target words of all corpora, numbered in a row, for vectors of the frozen encoder.
        self.target_sentences = np.concatenate(self._targets)
        self.reference_start = np.full(len(self.word_counts), -1, dtype=np.int64)
        sizes = self.word_counts[self.target_sentences]
        self.reference_start[self.target_sentences] = offsets_of(sizes)[:-1]
        self.n_reference = int(sizes.sum())

    def _usable(self, corpus, links, source, target, max_words) -> tuple[np.ndarray, WordPairs]:
        """Sentence pairs to train on, and their links renumbered; whatever is left out is counted."""
        s = source.word_lengths[source.word_offsets[links.sentence] + links.source]
        t = target.word_lengths[target.word_offsets[links.sentence] + links.target]
        covered = (s > 0) & (t > 0)
        self.counts.links_without_vector += int((~covered).sum())
        links = links.select(covered)
        longest = np.maximum(corpus.source.lengths(), corpus.target.lengths())
        short = np.ones(len(corpus), dtype=bool) if max_words is None else longest <= max_words
        linked = np.zeros(len(corpus), dtype=bool)
        linked[links.sentence] = True
        self.counts.too_long += int((~short).sum())
        self.counts.without_links += int((short & ~linked).sum())
        keep = np.flatnonzero(short & linked)
        number = np.full(len(corpus), -1, dtype=np.int64)
        number[keep] = np.arange(len(keep))
        links = links.select(short[links.sentence])
        links = WordPairs(
            number[links.sentence], links.source, links.target, n_sentences=len(keep), posterior=links.posterior
        )
        self.counts.sentence_pairs += len(keep)
        self.counts.links += len(links)
        self.counts.special_pairs += 2 * self._special * len(keep)
        return keep, links

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that training reads from the text."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.table.ids, self.table.offsets, self.table.word_starts, self.table.word_lengths):
            digest.update(np.ascontiguousarray(array).tobytes())
        for links, source in zip(self._links, self._sources, strict=True):
            for array in (source, links.sentence, links.source, links.target):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @property
    def lengths(self) -> list[np.ndarray]:
        """Subwords of both sides, `[corpus][pair]`, for grouping by length."""
        size = np.diff(self.table.offsets)
        return [size[s] + size[t] for s, t in zip(self._sources, self._targets, strict=True)]

    def shares(self, sentences: np.ndarray, budget: int, n: int = 1) -> list[list[np.ndarray]]:
        """Deal sentences out into `n` shares of about equal work, and cut each into batches of about equal length.

        A batch, padded, has at most `budget` subwords, or a single sentence.
        """
        size = np.diff(self.table.offsets)[sentences]
        order = np.argsort(size, kind="stable")
        shares = []
        for first in range(min(n, len(order))):
            mine, lengths = sentences[order[first::n]], size[order[first::n]]
            batches, start = [], 0
            while start < len(mine):
                # What differs in length costs padding, what stands alone costs calls.
                limit = _LONGER * lengths[start] + 4
                stop = start + 1
                while stop < len(mine) and (stop + 1 - start) * lengths[stop] <= budget and lengths[stop] <= limit:
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
    ) -> list[Update]:
        """Lay out one update.

        Args:
            chosen: `[corpus]` → pair numbers, as a `BatchPlan` gives them.
            budget: subwords in a batch, padding included.
            shares: to be gone through side by side.
            rank, world: which share of the pairs is this process's.
            accumulate: into how many parts to cut this process's share.

        Returns:
            one `Update` for each part.
        """
        parts = [np.array_split(pairs, world * accumulate) for pairs in chosen]
        mine = range(rank * accumulate, (rank + 1) * accumulate)
        n_links = [[int(np.diff(o)[p].sum() + 2 * self._special * len(p)) for p in s]
                   for o, s in zip(self._offsets, parts, strict=True)]  # fmt: skip
        totals = [int(self.word_counts[t[pairs]].sum()) for t, pairs in zip(self._targets, chosen, strict=True)]
        return [
            self._part([pairs[part] for pairs in parts], budget, shares, [tuple(n) for n in n_links], totals)
            for part in mine
        ]

    def _part(self, chosen, budget, shares, of_parts, totals) -> Update:
        sources = [s[pairs] for s, pairs in zip(self._sources, chosen, strict=True)]
        targets = [t[pairs] for t, pairs in zip(self._targets, chosen, strict=True)]
        dealt = self.shares(np.concatenate(sources + targets), budget, shares)
        batches = [batch for share in dealt for batch in share]
        ordered = np.concatenate(batches) if batches else np.zeros(0, dtype=np.int64)
        sizes = self.word_counts[ordered]
        row = np.full(len(self.word_counts), -1, dtype=np.int64)
        row[ordered] = offsets_of(sizes)[:-1]
        groups = []
        for corpus, (pairs, s, t) in enumerate(zip(chosen, sources, targets, strict=True)):
            offsets, links = self._offsets[corpus], self._links[corpus]
            n_links = offsets[pairs + 1] - offsets[pairs]
            which, local = ranges(offsets[pairs], n_links), np.repeat(np.arange(len(pairs)), n_links)
            left, right = links.source[which] + self._special, links.target[which] + self._special
            source, target = row[s][local] + left, row[t][local] + right
            linked = self.reference_start[t][local] + right
            if self._special:
                last = self.word_counts[s] - 1, self.word_counts[t] - 1
                source = np.concatenate([source, row[s], row[s] + last[0]])
                target = np.concatenate([target, row[t], row[t] + last[1]])
                linked = np.concatenate([linked, self.reference_start[t], self.reference_start[t] + last[1]])
            regularised = ranges(row[t], self.word_counts[t])
            reference = ranges(self.reference_start[t], self.word_counts[t])
            groups.append(GroupRows(source, target, regularised, reference, linked, of_parts[corpus], totals[corpus]))
        return Update(dealt, np.concatenate(targets), groups)
