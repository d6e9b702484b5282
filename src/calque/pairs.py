"""Links between the words of sentence pairs."""

from __future__ import annotations

import re
import warnings
from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import index
from os import PathLike, fspath
from typing import TYPE_CHECKING

import numpy as np

from calque.errors import CalqueWarning, InputError, SettingError
from calque.offsets import ranges
from calque.storage import write_lines
from calque.text_files import readable_lines

if TYPE_CHECKING:
    from calque.text import ParallelCorpus

_LINES = 1 << 14  # number of lines written at a time
_PROBABILITY = r"0|0?\.\d+|1(?:\.0*)?|\d(?:\.\d*)?[eE]-\d+"
#: a link, or an attempt to write one; used to recognise columns of links
LINK_LIKE = re.compile(r"\d+[-?p]\d+(?::\S+)?")
_LINK = re.compile(rf"(\d{{1,9}})([-?p])(\d{{1,9}})(?::({_PROBABILITY}))?")


class WordPairs:
    """Links between the words of sentence pairs, as parallel arrays sorted by sentence.

    Args:
        sentence: index of each link's sentence pair, int64 `[n_pairs]`.
        source, target: position of each linked word in its sentence, int64 `[n_pairs]`.
        n_sentences: number of sentence pairs, including those without a link.
        posterior: posterior probability of each link, float32 `[n_pairs]`, or None.
        possible: mask of the links that annotators marked as possible rather than sure, bool
            `[n_pairs]`.
    """

    def __init__(
        self,
        sentence: np.ndarray,
        source: np.ndarray,
        target: np.ndarray,
        *,
        n_sentences: int,
        posterior: np.ndarray | None = None,
        possible: np.ndarray | None = None,
    ):
        self.sentence = np.asarray(sentence, dtype=np.int64)
        self.source = np.asarray(source, dtype=np.int64)
        self.target = np.asarray(target, dtype=np.int64)
        self.n_sentences = int(n_sentences)
        shapes = [array.shape for array in (self.sentence, self.source, self.target)]
        if len(set(shapes)) != 1 or self.sentence.ndim != 1:
            raise SettingError(f"arrays must be 1-D and equally long, got {shapes}")
        if possible is None:
            possible = np.zeros(len(self), dtype=bool)
        self.possible = np.asarray(possible, dtype=bool)
        self.posterior = None if posterior is None else np.asarray(posterior, dtype=np.float32)
        for values in (self.posterior, self.possible):
            if values is not None and values.shape != self.sentence.shape:
                raise SettingError(
                    f"posterior and possible must have the same shape as sentence, [{len(self)}]"
                )
        self._check_range()
        if (self.sentence[1:] < self.sentence[:-1]).any():
            self._sort()

    def _sort(self) -> None:
        """Sort the links by sentence; the links of a sentence keep their order."""
        order = np.argsort(self.sentence, kind="stable")
        self.sentence = self.sentence[order]
        self.source = self.source[order]
        self.target = self.target[order]
        self.possible = self.possible[order]
        if self.posterior is not None:
            self.posterior = self.posterior[order]

    def _check_range(self) -> None:
        """Check that sentence numbers and word positions are possible."""
        if len(self) and (self.sentence.min() < 0 or self.sentence.max() >= self.n_sentences):
            places = f"{self.sentence.min()} to {self.sentence.max()}"
            raise SettingError(
                f"links refer to sentences {places}, but there are {self.n_sentences} sentences"
            )
        if len(self) and min(self.source.min(), self.target.min()) < 0:
            raise SettingError("word positions must be at least 0, got a negative position")

    def __len__(self) -> int:
        return len(self.sentence)

    def __repr__(self) -> str:
        return f"WordPairs({len(self):,} pairs in {self.n_sentences:,} sentences)"

    def __eq__(self, other: object) -> bool:
        """Return whether `other` has the same links; the order and the posteriors of links are
        ignored.
        """
        if not isinstance(other, WordPairs) or self.n_sentences != other.n_sentences:
            return False
        return np.array_equal(self._sorted_links(), other._sorted_links())

    def _sorted_links(self) -> np.ndarray:
        """Return the sentence, source, target and mark of each link in sorted order, int64
        `[4, n_pairs]`.
        """
        links = np.stack([self.sentence, self.source, self.target, self.possible])
        return links[:, np.lexsort(links[::-1])]

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, links: Iterable[Iterable[tuple[int, int]]]) -> WordPairs:
        """Build `WordPairs` from one list of (source position, target position) per sentence pair;
        duplicates are removed.

        Raises:
            SettingError: a link is not a pair of non-negative whole numbers.

        Example:
            >>> WordPairs.of([[(0, 0), (1, 2)], [], [(0, 1)]])
            WordPairs(3 pairs in 3 sentences)
        """
        flat: list[tuple[int, int, int]] = []
        n = 0
        for n, sentence in enumerate(links, 1):
            try:
                # `index` also accepts integers of NumPy, but no floats.
                flat += dict.fromkeys((n - 1, index(i), index(j)) for i, j in sentence)
            except (TypeError, ValueError) as error:
                fact = (
                    "expected pairs of whole numbers, (source word, target word), got "
                    f"{str(sentence)[:60]}"
                )
                raise SettingError(f"links of sentence pair {n - 1}: {fact}") from error
        sentence, source, target = np.array(flat, dtype=np.int64).reshape(-1, 3).T
        return cls(sentence, source, target, n_sentences=n)

    # -- selection ---------------------------------------------------------------------------------
    def select(self, chosen: np.ndarray) -> WordPairs:
        """Return the links selected by a boolean mask or by sorted indices; sentence numbers do not
        change.
        """
        return self._part(chosen, self.sentence[chosen], self.n_sentences)

    def _part(self, chosen: np.ndarray, sentence: np.ndarray, n_sentences: int) -> WordPairs:
        """Return the links selected by a mask or by indices, with new sentence numbers."""
        return WordPairs(
            sentence,
            self.source[chosen],
            self.target[chosen],
            n_sentences=n_sentences,
            possible=self.possible[chosen],
            posterior=None if self.posterior is None else self.posterior[chosen],
        )

    def one_to_one(self) -> WordPairs:
        """Drop every link whose source or target word has a link to a different word in its
        sentence (as in the code of Cao et al. 2020). A link that is listed several times counts
        once."""
        links = self.distinct()
        is_only_link = np.ones(len(links), dtype=bool)
        for words in (links.source, links.target):
            # number of each word in the text, if all sentences had as many words as the longest
            word_numbers = links.sentence * (int(words.max(initial=0)) + 1) + words
            _, inverse, counts = np.unique(word_numbers, return_inverse=True, return_counts=True)
            is_only_link &= counts[inverse] == 1
        return links.select(is_only_link)

    def distinct(self) -> WordPairs:
        """Return the links without repetitions; a link is sure if any occurrence is sure, and keeps
        its first posterior.
        """
        # In sorted order, repetitions of a link are adjacent.
        order = np.lexsort((self.target, self.source, self.sentence))
        # whether each link, in this order, differs from the link before it
        is_new = np.zeros(len(self), dtype=bool)
        for column in (self.sentence, self.source, self.target):
            is_new |= np.diff(column[order], prepend=-1) != 0
        if is_new.all():
            return self
        starts = np.flatnonzero(is_new)
        first = order[starts]  # lexsort is stable, so this is the first occurrence of each link
        possible = np.logical_and.reduceat(self.possible[order], starts)
        in_order = np.argsort(first)
        links = self.select(first[in_order])
        links.possible = possible[in_order]
        return links

    @property
    def sure(self) -> WordPairs:
        """Sure links, i.e. the links that are not marked as possible."""
        return self.select(~self.possible)

    def slice(self, start: int, stop: int) -> WordPairs:
        """Return the links of sentences `start` to `stop` (exclusive), with sentences renumbered
        from 0.
        """
        # Links are sorted by sentence, so those of a range are contiguous.
        first, end = np.searchsorted(self.sentence, [start, stop])
        chosen = np.arange(first, end)
        n_sentences = max(0, min(stop, self.n_sentences) - start)
        return self._part(chosen, self.sentence[chosen] - start, n_sentences)

    def take(self, indices: np.ndarray) -> WordPairs:
        """Return the links of the sentences at `indices`; the sentences are renumbered in this
        order.
        """
        indices, offsets = np.asarray(indices, dtype=np.int64), self.offsets()
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.n_sentences:
            raise SettingError(
                f"indices must be in [0, {self.n_sentences}), got {indices.min()} to "
                f"{indices.max()}"
            )
        counts = np.diff(offsets)[indices]
        sentence = np.repeat(np.arange(len(indices)), counts)
        return self._part(ranges(offsets[indices], counts), sentence, len(indices))

    def swapped(self) -> WordPairs:
        """Return the links with source and target exchanged."""
        return WordPairs(
            self.sentence,
            source=self.target,
            target=self.source,
            n_sentences=self.n_sentences,
            posterior=self.posterior,
            possible=self.possible,
        )

    def offsets(self) -> np.ndarray:
        """Return the offsets of each sentence's links, int64 `[n_sentences + 1]`."""
        return np.searchsorted(self.sentence, np.arange(self.n_sentences + 1))

    def check(
        self, corpus: ParallelCorpus, *, path: str | PathLike[str] | None = None
    ) -> WordPairs:
        """Check that the linked words exist in the corpus, and return self.

        Raises:
            InputError: a link refers to a word that does not exist, or the numbers of sentence
                pairs differ.
        """
        if self.n_sentences != len(corpus):
            fact = (
                f"has links for {self.n_sentences} sentence pairs, but the corpus has {len(corpus)}"
            )
            raise InputError(fact, path=path)
        for name, words, sentences in (
            ("source", self.source, corpus.source),
            ("target", self.target, corpus.target),
        ):
            lengths = sentences.lengths()
            wrong = np.flatnonzero(words >= lengths[self.sentence])
            if not len(wrong):
                continue
            sentence = int(self.sentence[wrong[0]])
            remedy = "was the corpus tokenised differently?"
            # A link beyond the last word is also what numbers from 1 would cause.
            if self.never_use_word_0:
                remedy = f"do the links count words from 1 (--one-based), or {remedy}"
            fact = (
                f"no {name} word {words[wrong[0]]} (0-based): sentence {sentence + 1} has "
                f"{lengths[sentence]} words; {remedy}"
            )
            raise InputError(fact, path=path, line=sentence + 1)
        return self

    # -- Pharaoh files -----------------------------------------------------------------------------
    def pharaoh_lines(self, *, posteriors: bool = False, one_based: bool = False) -> Iterator[str]:
        """Yield one line per sentence pair: `i-j` is a sure link, `i?j` a possible link, and a
        suffix `:p` the posterior.

        With `one_based`, word numbers start at 1 instead of 0.
        """
        # Lists of Python numbers are large, so the lines are built block by block.
        offsets = self.offsets()
        for first in range(0, self.n_sentences, _LINES):
            block_offsets = offsets[first : first + _LINES + 1]
            block = slice(block_offsets[0], block_offsets[-1])
            source = (self.source[block] + int(one_based)).tolist()
            target = (self.target[block] + int(one_based)).tolist()
            marks = np.where(self.possible[block], "?", "-").tolist()
            suffixes = [""] * len(marks)
            if posteriors and self.posterior is not None:
                suffixes = [f":{p:.4g}" for p in self.posterior[block].tolist()]
            links = list(zip(source, target, marks, suffixes, strict=True))
            for start, end in pairwise((block_offsets - block_offsets[0]).tolist()):
                yield " ".join(
                    [f"{i}{mark}{j}{suffix}" for i, j, mark, suffix in sorted(links[start:end])]
                )

    def save(
        self, path: str | PathLike[str], *, posteriors: bool = False, one_based: bool = False
    ) -> None:
        """Write a Pharaoh file with one line per sentence pair; the line of a pair without links is
        empty.
        """
        lines = self.pharaoh_lines(posteriors=posteriors, one_based=one_based)
        write_lines(path, (f"{line}\n" for line in lines))

    @classmethod
    def parse(
        cls,
        lines: Iterable[str],
        *,
        one_based: bool | None = None,
        path: str | PathLike[str] | None = None,
    ) -> WordPairs:
        """Parse Pharaoh lines: `i-j` is a sure link, `i?j` or `ipj` a possible link, and an
        optional suffix `:p` the posterior.

        A repeated link is kept once, and is sure if any occurrence is sure.

        Args:
            one_based: whether word numbers start at 1. By default, they start at 0, and a warning
                is given if no link uses word 0 on either side, because the numbers then probably
                start at 1.
            path: path of the file, for use in messages.

        Raises:
            InputError: a line is not in this format.
        """
        # Arrays of numbers need a tenth of the memory of lists.
        sentence, source, target = array("q"), array("q"), array("q")
        possible, posterior = bytearray(), array("f")
        shift = 1 if one_based else 0
        number, any_posterior = -1, False
        for number, line in enumerate(lines):
            place_of: dict[tuple[int, int], int] = {}  # index of each link of this sentence
            for item in line.split():
                match = _LINK.fullmatch(item)
                if match is None:
                    fact = (
                        f"{item[:40]!r} is not a link, expected i-j or i?j, optionally with "
                        ":PROBABILITY"
                    )
                    raise InputError(fact, path=path, line=number + 1)
                i, mark, j, probability = match.groups()
                link = (int(i) - shift, int(j) - shift)
                if min(link) < 0:
                    fact = f"link {item[:40]!r} has word 0, expected 1 or more"
                    raise InputError(fact, path=path, line=number + 1)
                if link in place_of:  # a repeated link, which is sure if any occurrence is sure
                    possible[place_of[link]] &= mark != "-"
                    continue
                place_of[link] = len(sentence)
                sentence.append(number)
                source.append(link[0])
                target.append(link[1])
                possible.append(mark != "-")
                posterior.append(float(probability or 1))
                any_posterior |= probability is not None
        pairs = cls(
            np.array(sentence, dtype=np.int64),
            np.array(source, dtype=np.int64),
            np.array(target, dtype=np.int64),
            n_sentences=number + 1,
            possible=np.array(possible, dtype=bool),
            posterior=np.array(posterior, dtype=np.float32) if any_posterior else None,
        )
        if one_based is None:
            pairs._warn_if_one_based(path)
        return pairs

    def _warn_if_one_based(self, path: str | PathLike[str] | None) -> None:
        """Warn if parsed links probably count words from 1."""
        if not self.never_use_word_0:
            return
        place = "" if path is None else f"{fspath(path)}: "
        message = (
            f"{place}no link uses word 0 on either side, so the links probably count words "
            "from 1: set --one-based (one_based=True), or --zero-based (one_based=False) if "
            "they count from 0"
        )
        warnings.warn(CalqueWarning(message), stacklevel=3)

    @property
    def never_use_word_0(self) -> bool:
        """True if there are links, and none of them uses word 0 on either side.

        In all but very short texts, the first word of some sentence has a link, so links without
        word 0 probably count words from 1. A single link to word 0 rules this out.
        """
        return len(self) > 0 and min(int(self.source.min()), int(self.target.min())) > 0

    @classmethod
    def open(cls, path: str | PathLike[str], *, one_based: bool | None = None) -> WordPairs:
        """Read a Pharaoh file, plain or compressed (gzip, zstd, xz, bzip2); see `parse`.

        Raises:
            InputError: the file cannot be read, or a line is invalid.
        """
        return cls.parse(readable_lines(path), one_based=one_based, path=path)
