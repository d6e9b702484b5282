"""Words cut into subwords at random, and anew each time: BPE-dropout and MaxMatch-dropout.

Both take a word's usual subwords and leave out some of what the tokenizer would join, so that a model also sees the
parts of words that it otherwise reads in one piece. How a word is cut depends on numbers alone that whoever asks for it
names, so it is the same in every process, and after a resume.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calque.encoders.framing import as_words
from calque.encoders.split import SplitSentences, laid_out, number_words, running
from calque.encoders.subwords import Subwords
from calque.errors import SettingError
from calque.offsets import offsets_of, ranges
from calque.text import Sentences


class Cut(NamedTuple):
    """How some words are cut.

    Attributes:
        ids: int32 `[n_subwords]`, word after word.
        counts: int64 `[n_words]`; −1 for a word that could not be cut so, which has none in `ids`.
    """

    ids: np.ndarray
    counts: np.ndarray


class SubwordDropout:
    """Sentences as subwords, of which each is left out with some probability where the tokenizer joins letters.

    - Of a BPE each merge that could come next is left out with probability p, anew in every step, and the first of the others
      is done, wherever in the word it was not left out (Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword
      Regularization", Algorithm 1, as in the authors' code).
    - Of a WordPiece each subword that fits at the start of what is left, but for single letters, is left out with probability
      p, and the longest of the others taken (Hiraoka 2022, "MaxMatch-Dropout: Subword Regularization for WordPiece").

    Words keep their places, and a word has a vector where it had one: one that no letters of the vocabulary can spell, or that
    the tokenizer does not cut as its vocabulary says, is always cut as usual, and so is every word of a sentence that would
    be longer than the encoder reads.

    Args:
        subwords: of the encoder.
        texts: all sentences, text after text.
        plain: the same as they are usually cut.
        share: p.

    Raises:
        SettingError: the tokenizer is of another kind, such as Unigram.
    """

    def __init__(self, subwords: Subwords, texts: Sequence[Sentences], plain: SplitSentences, share: float):
        self._subwords, self._plain, self._share = subwords, plain, share
        numbers: dict[str, int] = {}
        of_texts = []
        for text in texts:
            types, of_words, _ = number_words(text)
            table = np.array([numbers.setdefault(word, len(numbers)) for word in types], dtype=np.int32)
            of_texts.append(table[of_words])
        self._types = np.concatenate(of_texts)
        self._cut = _cutter(subwords, list(numbers))
        # What is not cut as usual where nothing is left out cannot be trusted where something is.
        n = len(numbers)
        found = self._cut(np.arange(n), np.zeros(n, dtype=np.uint64), 0.0)
        usual = subwords.split([[word] for word in numbers], whole=True)
        ends = len(subwords.prefix), len(subwords.suffix)
        inside = Cut(
            usual.ids[ranges(usual.offsets[:-1] + ends[0], usual.lengths - sum(ends))], usual.lengths - sum(ends)
        )
        self._fixed = ~_equal(found, inside)

    def split(self, sentences: np.ndarray, seed: Sequence[int]) -> SplitSentences:
        """Some sentences, cut at random.

        Args:
            sentences: their numbers among all.
            seed: with a sentence's number and a word's place it decides how that word is cut.
        """
        from calque.encoders.cutting import states

        plain = self._plain.take(sentences)
        start = int(np.random.SeedSequence(list(seed)).generate_state(1, dtype=np.uint64)[0])
        words = ranges(self._plain.word_offsets[sentences], np.diff(plain.word_offsets))
        types = self._types[words]
        cut = self._cut(types, states(np.uint64(start), sentences, np.diff(plain.word_offsets)), self._share)
        counts = np.maximum(cut.counts, 0)
        usual = self._fixed[types] | (cut.counts < 1) | ~plain.covered
        lengths = np.where(usual, plain.word_lengths, counts)
        first = np.repeat(plain.offsets[:-1], np.diff(plain.word_offsets)) + plain.word_starts
        starts = np.where(usual, len(cut.ids) + first, offsets_of(counts)[:-1])
        # No longer than the encoder reads, and no longer at all where words were lost to that already.
        over = np.zeros(len(plain), dtype=bool)
        if (limit := self._subwords.max_length) is not None:
            n_special = len(self._subwords.prefix) + len(self._subwords.suffix)
            over = running(lengths, plain.word_offsets)[1] + n_special > limit
        whole = np.repeat(over, np.diff(plain.word_offsets))
        lengths = np.where(whole, plain.word_lengths, lengths).astype(np.int64)
        starts = np.where(whole, len(cut.ids) + first, starts)
        ids, offsets, word_starts = laid_out(
            np.concatenate([cut.ids, plain.ids]), starts, lengths, plain.word_offsets, self._subwords.prefix,
            self._subwords.suffix,
        )  # fmt: skip
        return replace(plain, ids=ids, offsets=offsets, word_starts=word_starts, word_lengths=lengths.astype(np.int32))


def _equal(a: Cut, b: Cut) -> np.ndarray:
    """bool `[n_words]`, which words both cut alike."""
    same = a.counts == b.counts
    counts = np.where(same, a.counts, 0)
    rows = ranges(offsets_of(np.maximum(a.counts, 0))[:-1], counts), ranges(offsets_of(b.counts)[:-1], counts)
    wrong = a.ids[rows[0]] != b.ids[rows[1]]
    same[np.repeat(np.arange(len(same)), counts)[wrong]] = False
    return same


def _cutter(subwords: Subwords, words: list[str]) -> Callable[[np.ndarray, np.ndarray, float], Cut]:
    """What cuts types of words, given by their numbers, with a random state for each, leaving out a share."""
    from calque.encoders import cutting

    about = json.loads(subwords.backend.to_str())["model"]
    if about["type"] == "WordPiece":
        edges = [_edges(parts, about) for parts in _parts(subwords, words)]
        nodes = offsets_of([len(each) for each in edges])
        flat = [edge for word in edges for node in word for edge in node]
        arrays = (
            nodes,
            offsets_of([len(node) for word in edges for node in word]),
            np.array([step for step, _ in flat], dtype=np.int32),
            np.array([number for _, number in flat], dtype=np.int32),
        )
        kernel = cutting.longest_first
    elif about["type"] == "BPE":
        symbols = [_symbols(parts, about) for parts in _parts(subwords, words)]
        arrays = (
            offsets_of([len(each) for each in symbols]),
            np.array([number for word in symbols for number in word], dtype=np.int32),
            *_merges(about),
        )
        kernel = cutting.merged
    else:
        raise SettingError(
            f"subword_dropout is for tokenizers of the kinds BPE and WordPiece, and this one is {about['type']}: leave it out"
        )

    def cut(types: np.ndarray, states: np.ndarray, share: float) -> Cut:
        types = types.astype(np.int64)
        most = arrays[0][types + 1] - arrays[0][types]
        ids, counts = kernel(types, states, share, int(most.sum()), *arrays)
        return Cut(ids, counts)

    return cut


def _parts(subwords: Subwords, words: list[str]) -> list[list[str]]:
    """What the tokenizer makes of each word before it cuts it: normalised, and in parts that nothing is joined across."""
    backend = subwords.backend
    found: list[list[str]] = []
    with as_words(backend):
        for word in words:
            if subwords.needs_space and word and not word[0].isspace():
                word = " " + word
            try:
                text = word if backend.normalizer is None else backend.normalizer.normalize_str(word)
                split = backend.pre_tokenizer
                found.append([text] if split is None else [part for part, _ in split.pre_tokenize_str(text)])
            except (UnicodeEncodeError, TypeError):  # a lone surrogate: the word is cut as usual
                found.append([])
    return found


def _edges(parts: list[str], about: dict[str, Any]) -> list[list[tuple[int, int]]]:
    """For each letter of a word the subwords that could begin there, longest first: letters and id of each."""
    vocabulary, prefix = about["vocab"], about["continuing_subword_prefix"]
    longest = about.get("longest")
    if longest is None:
        longest = about["longest"] = max(map(len, vocabulary))
    nodes = []
    for part in parts:
        for start in range(len(part)):
            front = prefix if start else ""
            pieces = (
                (end - start, front + part[start:end]) for end in range(min(len(part), start + longest), start, -1)
            )
            nodes.append([(step, vocabulary[piece]) for step, piece in pieces if piece in vocabulary])
    return nodes


def _symbols(parts: list[str], about: dict[str, Any]) -> list[int]:
    """The letters of a word as a BPE begins with them, −1 between its parts; none where one is not in the vocabulary."""
    vocabulary = about["vocab"]
    prefix, suffix = (about.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    found: list[int] = []
    for part in parts:
        letters = [(prefix if k else "") + letter for k, letter in enumerate(part)]
        if letters:
            letters[-1] += suffix
        numbers = [vocabulary.get(letter) for letter in letters]
        if None in numbers:
            return []
        found += [*([-1] if found else []), *numbers]  # type: ignore[list-item]
    return found


def _merges(about: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs that a BPE joins as sorted numbers, int64 `[n]`, and the rank and the result of each, int32 `[n]`."""
    vocabulary, prefix = about["vocab"], about.get("continuing_subword_prefix") or ""
    rows = []
    for rank, merge in enumerate(about["merges"]):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        joined = vocabulary.get(left + right[len(prefix) :])
        if joined is not None and left in vocabulary and right in vocabulary:
            rows.append(((vocabulary[left] << 32) + vocabulary[right], rank, joined))
    keys, ranks, joined = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3).T
    return np.ascontiguousarray(keys), ranks.astype(np.int32), joined.astype(np.int32)
