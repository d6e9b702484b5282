"""Word-aligned parallel text for training, with the subwords of all sentences in one table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from calque.encoders.split import SplitSentences
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences

_SENTENCES = 1 << 14  # number of sentences that are split into subwords at a time


@dataclass
class Counts:
    """Numbers of used and unused sentence pairs and links, which are saved with the result."""

    sentence_pairs: int = 0
    links: int = 0
    too_long: int = 0
    without_links: int = 0
    links_without_vector: int = 0
    truncated_words: int = 0
    special_pairs: int = 0
    languages: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SentenceRows:
    """Indices of the words that have a vector, for the sentences on one side of a corpus."""

    rows: np.ndarray  # [n_words] index of each word's vector among all vectors of the update
    owner: np.ndarray  # [n_words] index of each word's sentence
    counts: np.ndarray  # [n_sentences] number of words with a vector in each sentence


@dataclass(frozen=True)
class GroupRows:
    """Row indices of the words of one corpus in the array of word vectors of an update. `reference`
    and `reference_linked` are indices in a second array, which contains only the vectors of target
    sentences."""

    # [n_pairs] row of each pair's source word, and of its target word
    source: np.ndarray
    target: np.ndarray
    # [n_target_words] row of each word in the target sentences
    regularised: np.ndarray
    # [n_target_words] and [n_pairs] rows among the vectors of target sentences
    reference: np.ndarray
    reference_linked: np.ndarray
    # number of pairs and of target words in each part, ordered by process and then by part
    pairs_of_part: tuple[int, ...]
    words_of_part: tuple[int, ...]
    # [n_pairs] ids; pairs with equal ids are positives of each other
    kinds: np.ndarray | None = None
    # words of both sides, if the loss needs them
    sentences: tuple[SentenceRows, SentenceRows] | None = None
    # number of sentence pairs in each part, ordered like `pairs_of_part`
    sentences_of_part: tuple[int, ...] = ()


@dataclass
class Update:
    """One of the parts into which a process divides its share of an update.

    Attributes:
        batches: sentence indices of each batch. The word vectors are in the order of these
            sentences.
        target_batches: sentence indices of each batch that contains only target sentences.
        groups: row indices for each corpus.
    """

    batches: list[np.ndarray]
    target_batches: list[np.ndarray]
    groups: list[GroupRows]


@dataclass(frozen=True)
class _Corpus:
    """Sentence pairs and links of one corpus that are used for training.

    Attributes:
        source, target: index of the source and of the target sentence of each sentence pair, int64
            `[n]`.
        pairs: linked words.
        offsets: start of each sentence pair's links in `pairs`, int64 `[n + 1]`.
        kinds: id of each link, equal for links that are positives of each other, int64 `[n_pairs]`;
            or None.
    """

    source: np.ndarray
    target: np.ndarray
    pairs: WordPairs
    offsets: np.ndarray
    kinds: np.ndarray | None = None

    def links_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the number of links in each sentence pair, int64 `[n]`."""
        return self.offsets[numbers + 1] - self.offsets[numbers]


class _Sizes(NamedTuple):
    """Numbers of links, of target words and of sentence pairs in each part of a corpus, ordered by
    process and then by part. The last is empty unless the loss needs sentences.
    """

    pairs: tuple[int, ...]
    words: tuple[int, ...]
    sentences: tuple[int, ...]


class AlignedText:
    """Corpora with their word links. All sentences are split into subwords once.

    As in Cao (2020), the target side of every corpus is the side in the language `towards`.

    Args:
        corpora, pairs: parallel texts and the word links of each text.
        towards: target language; every corpus must have one side in this language.
        special: whether to link the boundary tokens ([CLS], [SEP]) of both sentences as if they
            were words, as in Cao's code.
        max_words: maximum number of words in a sentence, or None to truncate sentences at the
            encoder's limit instead.
        kinds: function that returns an id for each link of a corpus; links with equal ids are
            positives of each other.
        sentences: whether each `Update` lists the words of each sentence, for losses that use
            sentence vectors.

    Attributes:
        table: all sentences, split into subwords.
        word_counts: number of words in each sentence, int64 `[n_sentences]`.
        counts: numbers of used and unused sentence pairs and links.
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
        sentences: bool = False,
    ):
        if not corpora or len(corpora) != len(pairs):
            raise SettingError(
                f"each text must have word links, got {len(corpora)} texts but links for "
                f"{len(pairs)}"
            )
        self.counts = Counts()
        self.towards = towards
        self._special = int(special)
        self._sentences = sentences
        self._padding = encoder.padding
        texts = _towards(towards, corpora, pairs)
        sides: list[Sentences] = []
        for corpus, _ in texts:
            sides += [corpus.source, corpus.target]
        parts = _split_texts(encoder, sides)
        if special:
            parts = (part.with_special() for part in parts)
        self.table = SplitSentences.joined(parts)
        self.counts.truncated_words = self.table.truncated_words
        self._corpora: list[_Corpus] = []
        first_source = 0  # index of the first source sentence of the corpus in the table
        for corpus, linked in texts:
            first_target = first_source + len(corpus)
            self.counts.languages.append(corpus.langs[0])
            linked = self._with_vectors(linked, first_source, first_target)
            usable, linked = self._usable(corpus, linked, max_words)
            of_links = None if kinds is None else kinds(corpus, linked)
            linked = _renumbered(linked, usable)
            self._corpora.append(
                _Corpus(
                    first_source + usable,
                    first_target + usable,
                    linked,
                    linked.offsets(),
                    of_links,
                )
            )
            first_source = first_target + len(corpus)
        self.word_counts = np.diff(self.table.word_offsets)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the texts and their links."""
        digest = hashlib.blake2b(digest_size=16)
        table = self.table
        arrays = [table.ids, table.offsets, table.word_starts, table.word_lengths]
        for corpus in self._corpora:
            links = corpus.pairs
            arrays += [corpus.source, links.sentence, links.source, links.target]
            if corpus.kinds is not None:
                arrays.append(corpus.kinds)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def sizes(self) -> list[int]:
        """Number of sentence pairs in each corpus."""
        return [len(corpus.source) for corpus in self._corpora]

    def _with_vectors(self, pairs: WordPairs, source: int, target: int) -> WordPairs:
        """Return the links whose words both have vectors, and count the other links. `source` and
        `target` are the indices of the first source sentence and the first target sentence in the
        table."""
        covered = np.ones(len(pairs), dtype=bool)
        for base, words in ((source, pairs.source), (target, pairs.target)):
            first = self.table.word_offsets[base + pairs.sentence] + self._special
            covered &= self.table.word_lengths[first + words] > 0
        kept = pairs.select(covered)
        self.counts.links_without_vector += len(pairs) - len(kept)
        return kept

    def _usable(
        self, corpus: ParallelCorpus, pairs: WordPairs, max_words: int | None
    ) -> tuple[np.ndarray, WordPairs]:
        """Return the indices and the links of the usable sentence pairs, and count the unusable
        sentence pairs.
        """
        longest = np.maximum(corpus.source.lengths(), corpus.target.lengths())
        short = np.ones(len(corpus), dtype=bool) if max_words is None else longest <= max_words
        linked = np.zeros(len(corpus), dtype=bool)
        linked[pairs.sentence] = True
        usable = np.flatnonzero(short & linked)
        pairs = pairs.select(short[pairs.sentence])
        self.counts.too_long += int((~short).sum())
        self.counts.without_links += int((short & ~linked).sum())
        self.counts.sentence_pairs += len(usable)
        self.counts.links += len(pairs)
        self.counts.special_pairs += 2 * self._special * len(usable)
        return usable, pairs

    def batches(self, sentences: np.ndarray, budget: int) -> list[np.ndarray]:
        """Divide sentences into batches of sentences with similar lengths.

        Args:
            sentences: sentence indices.
            budget: maximum number of subwords in a batch, including padding; a longer sentence
                forms its own batch.
        """
        lengths = self.table.lengths[sentences]
        order = np.argsort(lengths, kind="stable")
        sentences, lengths = sentences[order], lengths[order]
        batches, start = [], 0
        while start < len(sentences):
            limit, stop = self._padding * (lengths[start] + 2), start + 1
            while (
                stop < len(sentences)
                and (stop + 1 - start) * lengths[stop] <= budget
                and lengths[stop] <= limit
            ):
                stop += 1
            batches.append(sentences[start:stop])
            start = stop
        return batches

    def update(
        self,
        chosen: Sequence[np.ndarray],
        *,
        budget: int,
        rank: int = 0,
        world: int = 1,
        accumulate: int = 1,
    ) -> list[Update]:
        """Return the parts of one update that this process computes.

        Args:
            chosen: indices of the selected sentence pairs of each corpus, see `BatchPlan`.
            budget: maximum number of subwords in a batch, including padding.
            rank, world: rank of this process, and number of processes.
            accumulate: number of parts into which each process divides its sentence pairs.
        """
        # Each text is divided into parts, of which every process computes `accumulate`.
        parts_of = [np.array_split(numbers, world * accumulate) for numbers in chosen]
        # All processes need the sizes of all parts, to know whose rows are whose after gathering.
        sizes = [
            self._sizes(corpus, parts)
            for corpus, parts in zip(self._corpora, parts_of, strict=True)
        ]
        mine = range(rank * accumulate, (rank + 1) * accumulate)
        return [self._part([parts[k] for parts in parts_of], budget, sizes) for k in mine]

    def _sizes(self, corpus: _Corpus, parts: Sequence[np.ndarray]) -> _Sizes:
        """Return the sizes of the parts into which the sentence pairs of a corpus are divided."""
        pairs, words = [], []
        for numbers in parts:
            n_special = 2 * self._special * len(numbers)
            pairs.append(int(corpus.links_of(numbers).sum()) + n_special)
            words.append(int(self.word_counts[corpus.target[numbers]].sum()))
        sentences = tuple(map(len, parts)) if self._sentences else ()
        return _Sizes(tuple(pairs), tuple(words), sentences)

    def _part(self, chosen: Sequence[np.ndarray], budget: int, sizes: Sequence[_Sizes]) -> Update:
        """Return the batches and row indices of one part.

        Args:
            chosen: indices of the part's sentence pairs in each corpus.
        """
        sources, targets = [], []
        for corpus, numbers in zip(self._corpora, chosen, strict=True):
            sources.append(corpus.source[numbers])
            targets.append(corpus.target[numbers])
        batches = self.batches(np.concatenate(sources + targets), budget)
        target_batches = self.batches(np.concatenate(targets), budget)
        first, first_in_targets = self._rows(batches), self._rows(target_batches)
        groups = []
        for corpus, numbers, of_corpus in zip(self._corpora, chosen, sizes, strict=True):
            groups.append(self._group(corpus, numbers, first, first_in_targets, of_corpus))
        return Update(batches, target_batches, groups)

    def _group(
        self,
        corpus: _Corpus,
        numbers: np.ndarray,
        first: np.ndarray,
        first_in_targets: np.ndarray,
        sizes: _Sizes,
    ) -> GroupRows:
        """Return the row indices for the sentence pairs `numbers` of a corpus.

        Args:
            first, first_in_targets: row of each sentence's first word among all vectors of the
                part, and among the vectors of its target sentences; see `_rows`.
        """
        sources, targets = corpus.source[numbers], corpus.target[numbers]
        n_links = corpus.links_of(numbers)
        links = ranges(corpus.offsets[numbers], n_links)
        # index of the sentence pair of each link, within this part
        pair = np.repeat(np.arange(len(numbers)), n_links)
        # If [CLS] is linked, it is word 0 of each sentence.
        source_word = corpus.pairs.source[links] + self._special
        target_word = corpus.pairs.target[links] + self._special
        source = first[sources][pair] + source_word
        target = first[targets][pair] + target_word
        reference_linked = first_in_targets[targets][pair] + target_word
        kinds = None if corpus.kinds is None else corpus.kinds[links]
        if self._special:
            # Also link the first and the last token of the sentences of each pair.
            def with_boundaries(rows: np.ndarray, starts: np.ndarray, sentences: np.ndarray):
                return np.concatenate([rows, starts, starts + self.word_counts[sentences] - 1])

            source = with_boundaries(source, first[sources], sources)
            target = with_boundaries(target, first[targets], targets)
            reference_linked = with_boundaries(reference_linked, first_in_targets[targets], targets)
            if kinds is not None:
                kinds = np.concatenate([kinds, np.full(2 * len(numbers), -1)])
        sentences = None
        if self._sentences:
            sentences = (
                self._of_sentences(sources, first[sources]),
                self._of_sentences(targets, first[targets]),
            )
        n_words = self.word_counts[targets]
        return GroupRows(
            source=source,
            target=target,
            regularised=ranges(first[targets], n_words),
            reference=ranges(first_in_targets[targets], n_words),
            reference_linked=reference_linked,
            pairs_of_part=sizes.pairs,
            words_of_part=sizes.words,
            kinds=kinds,
            sentences=sentences,
            sentences_of_part=sizes.sentences,
        )

    def _rows(self, batches: list[np.ndarray]) -> np.ndarray:
        """Return the row index of each sentence's first word, or −1 if the sentence is in no batch,
        int64 `[n_sentences]`.
        """
        ordered = np.concatenate([np.zeros(0, dtype=np.int64), *batches])
        row = np.full(len(self.word_counts), -1, dtype=np.int64)
        row[ordered] = offsets_of(self.word_counts[ordered])[:-1]
        return row

    def _of_sentences(self, sentences: np.ndarray, rows: np.ndarray) -> SentenceRows:
        """Return the indices of the words that have a vector in the given sentences, without
        special tokens.
        """
        counts = self.word_counts[sentences] - 2 * self._special
        covered = self.table.covered[
            ranges(self.table.word_offsets[sentences] + self._special, counts)
        ]
        owner = np.repeat(np.arange(len(sentences)), counts)[covered]
        found = ranges(rows + self._special, counts)[covered]
        return SentenceRows(found, owner, np.bincount(owner, minlength=len(sentences)))


def _towards(
    towards: str, corpora: Sequence[ParallelCorpus], pairs: Sequence[WordPairs]
) -> list[tuple[ParallelCorpus, WordPairs]]:
    """Return the texts and their links with the language `towards` on the target side."""
    texts = []
    for corpus, linked in zip(corpora, pairs, strict=True):
        corpus.side(towards)  # raises an error if the corpus has no side in this language
        linked.check(corpus)
        if corpus.langs[0] == towards:
            corpus, linked = corpus.swapped(), linked.swapped()
        texts.append((corpus, linked))
    return texts


def _split_texts(encoder: TrainableEncoder, texts: Sequence[Sentences]) -> Iterator[SplitSentences]:
    """Split the sentences of all texts into subwords, and yield the results block by block."""
    for text in texts:
        for start in range(0, len(text), _SENTENCES):
            yield encoder.split(text[start : start + _SENTENCES])


def _renumbered(pairs: WordPairs, kept: np.ndarray) -> WordPairs:
    """Return the links of the sentence pairs in `kept`; the k-th pair in `kept` gets the new
    sentence index k.
    """
    number = np.full(pairs.n_sentences, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    return WordPairs(
        number[pairs.sentence],
        pairs.source,
        pairs.target,
        n_sentences=len(kept),
        posterior=pairs.posterior,
    )
