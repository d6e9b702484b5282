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
        arrays = [np.asarray(array, dtype=np.int64) for array in (sentence, source, target)]
        if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
            raise SettingError(
                f"arrays must be 1-D and equally long, got {[array.shape for array in arrays]}"
            )
        self.sentence, self.source, self.target = arrays
        self.n_sentences = int(n_sentences)
        self.posterior = None if posterior is None else np.asarray(posterior, dtype=np.float32)
        self.possible = (
            np.zeros(len(arrays[0]), dtype=bool)
            if possible is None
            else np.asarray(possible, dtype=bool)
        )
        if any(
            extra is not None and extra.shape != arrays[0].shape
            for extra in (self.posterior, self.possible)
        ):
            raise SettingError(
                f"posterior and possible must have the same shape as sentence, [{len(self)}]"
            )
        if len(self) and (self.sentence.min() < 0 or self.sentence.max() >= self.n_sentences):
            places = f"{self.sentence.min()} to {self.sentence.max()}"
            raise SettingError(
                f"links refer to sentences {places}, but there are {self.n_sentences} sentences"
            )
        if len(self) and min(self.source.min(), self.target.min()) < 0:
            raise SettingError("word positions must be at least 0, got a negative position")
        if (self.sentence[1:] < self.sentence[:-1]).any():
            order = np.argsort(self.sentence, kind="stable")
            self.sentence, self.source, self.target = (array[order] for array in arrays)
            self.possible = self.possible[order]
            self.posterior = None if self.posterior is None else self.posterior[order]

    def __len__(self) -> int:
        return len(self.sentence)

    def __repr__(self) -> str:
        return f"WordPairs({len(self):,} pairs in {self.n_sentences:,} sentences)"

    def __eq__(self, other: object) -> bool:
        """Return whether `other` has the same links; the order and the posteriors of links are
        ignored.
        """
        if (
            not isinstance(other, WordPairs)
            or self.n_sentences != other.n_sentences
            or len(self) != len(other)
        ):
            return False
        orders = [
            np.lexsort((pairs.possible, pairs.target, pairs.source, pairs.sentence))
            for pairs in (self, other)
        ]
        return all(
            np.array_equal(getattr(self, name)[orders[0]], getattr(other, name)[orders[1]])
            for name in ("sentence", "source", "target", "possible")
        )

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
                flat += dict.fromkeys((n - 1, index(i), index(j)) for i, j in sentence)
            except (TypeError, ValueError) as error:
                fact = (
                    "expected pairs of whole numbers, (source word, target word), got "
                    f"{str(sentence)[:60]}"
                )
                raise SettingError(f"links of sentence pair {n - 1}: {fact}") from error
        return cls(*np.array(flat, dtype=np.int64).reshape(-1, 3).T, n_sentences=n)

    # -- selection
    # -------------------------------------------------------------------------------------------
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
        alone = np.ones(len(links), dtype=bool)
        for words in (links.source, links.target):
            keys = links.sentence * (int(words.max(initial=0)) + 1) + words
            _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
            alone &= counts[inverse] == 1
        return links.select(alone)

    def distinct(self) -> WordPairs:
        """Return the links without repetitions; a link is sure if any occurrence is sure, and keeps
        its first posterior.
        """
        order = np.lexsort((self.target, self.source, self.sentence))
        differs = np.zeros(len(self), dtype=bool)
        for column in (self.sentence, self.source, self.target):
            differs |= np.diff(column[order], prepend=-1) != 0
        if differs.all():
            return self
        starts = np.flatnonzero(differs)
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
        chosen = np.arange(*np.searchsorted(self.sentence, [start, stop]))
        return self._part(
            chosen, self.sentence[chosen] - start, max(0, min(stop, self.n_sentences) - start)
        )

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
        scores = {"posterior": self.posterior, "possible": self.possible}
        return WordPairs(
            self.sentence, self.target, self.source, n_sentences=self.n_sentences, **scores
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
        for name, words in (("source", self.source), ("target", self.target)):
            lengths = getattr(corpus, name).lengths()
            wrong = np.flatnonzero(words >= lengths[self.sentence])
            if len(wrong):
                line = int(self.sentence[wrong[0]])
                fact = (
                    f"no {name} word {words[wrong[0]]} (0-based): sentence {line + 1} has "
                    f"{lengths[line]} words;"
                )
                counted = (
                    "do the links count words from 1 (--one-based), or "
                    if self.never_use_word_0
                    else ""
                )
                remedy = f"{counted}was the corpus tokenised differently?"
                raise InputError(f"{fact} {remedy}", path=path, line=line + 1)
        return self

    # -- Pharaoh files
    # ---------------------------------------------------------------------------------------
    def pharaoh_lines(self, *, posteriors: bool = False, one_based: bool = False) -> Iterator[str]:
        """Yield one line per sentence pair: `i-j` is a sure link, `i?j` a possible link, and a
        suffix `:p` the posterior.

        With `one_based`, word numbers start at 1 instead of 0.
        """
        offsets = self.offsets()
        for first in range(0, self.n_sentences, _LINES):
            cut = offsets[first : first + _LINES + 1]
            part = slice(cut[0], cut[-1])
            marks = np.where(self.possible[part], "?", "-").tolist()
            ends = [""] * len(marks)
            if posteriors and self.posterior is not None:
                ends = [f":{p:.4g}" for p in self.posterior[part].tolist()]
            source, target = (words[part] + int(one_based) for words in (self.source, self.target))
            links = [*zip(source.tolist(), target.tolist(), marks, ends, strict=True)]
            for a, b in pairwise((cut - cut[0]).tolist()):
                yield " ".join([f"{i}{mark}{j}{end}" for i, j, mark, end in sorted(links[a:b])])

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
        sentence, source, target = array("q"), array("q"), array("q")
        possible, posterior = bytearray(), array("f")
        shift, number, any_posterior = int(bool(one_based)), -1, False
        for number, line in enumerate(lines):
            seen: dict[tuple[int, int], int] = {}
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
                    raise InputError(
                        f"link {item[:40]!r} has word 0, expected 1 or more",
                        path=path,
                        line=number + 1,
                    )
                if link in seen:
                    possible[seen[link]] &= mark != "-"
                    continue
                seen[link] = len(sentence)
                sentence.append(number)
                source.append(link[0])
                target.append(link[1])
                possible.append(mark != "-")
                posterior.append(float(probability or 1))
                any_posterior |= probability is not None
        ends = (np.array(column, dtype=np.int64) for column in (sentence, source, target))
        probabilities = np.array(posterior, dtype=np.float32) if any_posterior else None
        pairs = cls(
            *ends,
            n_sentences=number + 1,
            possible=np.array(possible, dtype=bool),
            posterior=probabilities,
        )
        if one_based is None and pairs.never_use_word_0:
            place = "" if path is None else f"{fspath(path)}: "
            warnings.warn(
                CalqueWarning(
                    f"{place}no link uses word 0 on either side, so the links probably count words "
                    "from 1: set --one-based "
                    "(one_based=True), or --zero-based (one_based=False) if they count from 0"
                ),
                stacklevel=2,
            )
        return pairs

    @property
    def never_use_word_0(self) -> bool:
        """Whether there are links, and none of them uses word 0 on either side.

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
