"""Word classes for statistical alignment, in which stems replace rare words, and the spelling
similarity of words.

Spelling similarity helps to align names, numbers and loan words. It is the longest common
subsequence ratio (Melamed 1995, "Automatic evaluation and uniform filter cascades for inducing
N-best translation lexicons") of the words after transliteration to Latin letters without accents.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute creates its functions at import time, so type checkers cannot find them.

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calque.text import Sentences
from calque.wordalign.bitext import Pairs, loop

# Pairs of a letter and its transliteration, separated by spaces.
_CYRILLIC = (
    "а:a б:b в:v г:g д:d е:e ё:e ж:zh з:z и:i й:i к:k л:l м:m н:n о:o п:p р:r с:s т:t у:u ф:f х:h "
    "ц:ts ч:ch "
)
_CYRILLIC += (
    "ш:sh щ:sht ъ: ы:y ь: э:e ю:yu я:ya є:e і:i ї:i ґ:g ђ:d ј:j љ:l њ:n ћ:c џ:dz ѓ:g ќ:k ѕ:z "
)
_GREEK = (
    "α:a β:v γ:g δ:d ε:e ζ:z η:i θ:th ι:i κ:k λ:l μ:m ν:n ξ:x ο:o π:p ρ:r σ:s ς:s τ:t υ:y φ:f χ:h "
    "ψ:ps ω:o"
)
_ROMAN = str.maketrans({letter[0]: letter[2:] for letter in (_CYRILLIC + _GREEK).split(" ")})
_U = np.uint64
BITS = 64
# maximum word length that `shared` stores in 8 bits; the lengths of longer words are clipped to it
LONGEST = 255

CodePoints = tuple[np.ndarray, np.ndarray]


def code_points(words: pa.Array) -> CodePoints:
    """Return words as lower-case code points without accents, with Cyrillic and Greek
    transliterated to Latin letters.

    Returns:
        the code points of all words, uint32, and the offsets of the words, int64 `[n + 1]`.
    """
    bare = pc.replace_substring_regex(
        pc.utf8_lower(pc.utf8_normalize(words, form="NFKD")), r"[\p{M}\n]+", ""
    )
    text = "".join(word + "\n" for word in bare.to_pylist())
    if not text.isascii():
        text = text.translate(_ROMAN)
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    ends = np.flatnonzero(points == 10)
    offsets = np.zeros(len(words) + 1, dtype=np.int64)
    offsets[1:] = ends - np.arange(len(ends))
    return points[points != 10], offsets


def joined(first: CodePoints, second: CodePoints) -> CodePoints:
    """Concatenate the words of `first` and `second`."""
    first_points, first_offsets = first
    second_points, second_offsets = second
    offsets = np.concatenate([first_offsets, first_offsets[-1] + second_offsets[1:]])
    return np.concatenate([first_points, second_points]), offsets


def ratios() -> np.ndarray:
    """Return the longest common subsequence ratio for each possible result of `shared`, float32."""
    subsequence, longer = np.divmod(np.arange(65 << 8), 1 << 8)
    return (subsequence / np.maximum(longer, 1)).astype(np.float32)


def shared(pairs: Pairs, source: CodePoints, target: CodePoints) -> np.ndarray:
    """Return, for each type pair, 256 · (length of the longest common subsequence) + (length of the
    longer word, at most 255).

    Args:
        pairs: type pairs to compare.
        source, target: spelling of each type, see `code_points`. Only the first 64 letters of a
            source word are compared.

    Returns:
        the spelling similarities, uint16 `[n_pairs]`.
    """
    source_points, source_offsets = source
    target_points, target_offsets = target
    # Number the letters of both sides from 0, so that they can be used as array indices.
    letters, numbers = np.unique(
        np.concatenate([source_points, target_points]), return_inverse=True
    )
    numbers = numbers.astype(np.int32)
    source_letters, target_letters = np.split(numbers, [len(source_points)])
    return common(
        source_letters,
        source_offsets,
        target_letters,
        target_offsets,
        len(letters),
        pairs.starts,
        pairs.target,
    )


@loop
def common(left, left_offsets, right, right_offsets, n_letters, starts, target):
    """Compute `shared` with the bit-parallel algorithm of Hyyrö (2004), which stores a column of
    the table in one 64-bit word.

    Args:
        left, left_offsets: letters of all source types, and offsets of the types.
        right, right_offsets: letters of all target types, and offsets of the types.
        n_letters: number of distinct letters.
        starts, target: type pairs, see `Pairs`.
    """
    # Bit k of masks[letter] is set if letter k of the current source word is this letter.
    masks, out = np.zeros(n_letters, np.uint64), np.zeros(len(target), np.uint16)
    for s in range(len(starts) - 1):
        low, length = left_offsets[s], left_offsets[s + 1] - left_offsets[s]
        bits = min(length, BITS)
        for k in range(bits):
            masks[left[low + k]] |= _U(1) << _U(k)
        inside = ~_U(0) if bits == BITS else (_U(1) << _U(bits)) - _U(1)
        for p in range(starts[s], starts[s + 1]):
            first, last = right_offsets[target[p]], right_offsets[target[p] + 1]
            column = ~_U(0)
            for k in range(first, last):
                both = column & masks[right[k]]
                column = (column + both) | (column - both)
            # The zero bits of the last column are the letters of the common subsequence.
            rest = ~column & inside
            n = 0
            while rest != _U(0):
                rest &= rest - _U(1)
                n += 1
            out[p] = (n << 8) | min(max(length, last - first), LONGEST)
        for k in range(bits):  # clear the masks for the next source word
            masks[left[low + k]] = _U(0)
    return out


_RARE = "\u2026"  # suffix of stem names, which distinguishes a stem from an identical word


@dataclass(frozen=True)
class Classes:
    """Settings of the word classes used in alignment. A class is a frequent word, or a stem that
    rare words share.

    The translations of a rare word cannot be estimated reliably, so all rare words with the same
    first `stem` characters share a class (Fraser & Marcu 2005, "ISI's participation in the
    Romanian-English alignment task").

    Args:
        lower: whether to lower-case words and normalise compatibility forms such as full-width
            letters (NFKC).
        stem: number of characters in the stem of a rare word; 0 disables stems.
        frequent: minimum number of occurrences for a word to have its own class.
    """

    lower: bool = True
    stem: int = 5
    frequent: int = 100


AS_IS = Classes(lower=False, stem=0)


class Vocabulary:
    """Word classes of one language.

    Args:
        names: name of each class (a word, or a stem followed by `…`), as Arrow strings.
        spellings: most frequent word of each class, as Arrow strings.
        classes: settings of the word classes.
    """

    def __init__(self, names: pa.Array, spellings: pa.Array, classes: Classes):
        self.names, self.spellings, self.classes = names, spellings, classes

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def points(self) -> CodePoints:
        """Spellings as code points, see `code_points`."""
        return code_points(self.spellings)

    @classmethod
    def build(
        cls, sentences: Sentences, classes: Classes
    ) -> tuple[Vocabulary, np.ndarray, np.ndarray]:
        """Build the vocabulary of a text, and encode the text.

        Returns:
            the vocabulary, the class index of each word, int32 `[n_words]`, and the sentence
            offsets, int64 `[n + 1]`.
        """
        types, numbers, offsets = _types(sentences, classes)
        frequency = np.bincount(numbers, minlength=len(types))
        class_names = types
        if classes.stem:
            is_rare = pc.less(pa.array(frequency), pa.scalar(np.int64(classes.frequent)))
            class_names = pc.if_else(is_rare, _stem(types, classes), types)
        encoded = class_names.dictionary_encode()
        class_of_type = np.array(encoded.indices)
        # Types are assigned in ascending order of frequency, so the most frequent one remains.
        order = np.argsort(frequency, kind="stable")
        spelling = np.zeros(len(encoded.dictionary), dtype=np.int64)
        spelling[class_of_type[order]] = order
        np.take(class_of_type.astype(np.int32), numbers, out=numbers)
        vocabulary = cls(encoded.dictionary, types.take(pa.array(spelling)), classes)
        return vocabulary, numbers, offsets

    def encode(self, sentences: Sentences) -> tuple[np.ndarray, np.ndarray, pa.Array]:
        """Encode a new text as class indices; out-of-vocabulary words get indices of at least
        `len(self)`.

        The same out-of-vocabulary word gets different indices in different sentences, so that the
        links of a sentence do not depend on the rest of the text.

        Returns:
            the index of each word, int32 `[n_words]`, the sentence offsets, int64 `[n + 1]`, and
            the spellings of the out-of-vocabulary words.
        """
        types, numbers, offsets = _types(sentences, self.classes)
        class_of_type = pc.index_in(types, self.names)
        if self.classes.stem:
            # A word without a class of its own gets the class of its stem.
            of_stem = pc.index_in(_stem(types, self.classes), self.names)
            class_of_type = pc.coalesce(class_of_type, of_stem)
        words = np.array(pc.fill_null(class_of_type, pa.scalar(np.int32(-1))))[numbers]
        unknown = np.flatnonzero(words < 0)
        sentence = np.searchsorted(offsets, unknown, side="right")
        # One key for each pair of a sentence and an out-of-vocabulary type.
        keys = sentence * max(len(types), 1) + numbers[unknown]
        _, first, key_of_word = np.unique(keys, return_index=True, return_inverse=True)
        # `np.unique` sorts the keys; number them in the order of their first occurrence instead.
        rank = np.argsort(np.argsort(first)).astype(np.int32)
        words[unknown] = len(self) + rank[key_of_word]
        return words, offsets, types.take(pa.array(numbers[unknown[np.sort(first)]]))


def _types(sentences: Sentences, classes: Classes) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Return the word types after normalisation, the type index of each word, and the sentence
    offsets.
    """
    types, numbers, offsets = sentences.word_types()
    # Types are lower-cased in Arrow and remain Arrow strings, unlike those of `number_words`: text
    # for alignment is large, and these words are never compared with words lower-cased by Python.
    if classes.lower and len(types):
        folded = pc.utf8_lower(pc.utf8_normalize(types, form="NFKC")).dictionary_encode()
        types = folded.dictionary
        np.take(np.array(folded.indices), numbers, out=numbers)
    return types, numbers, offsets


def _stem(types: pa.Array, classes: Classes) -> pa.Array:
    """Return the class name of each type if it is rare: its first characters, followed by `…`."""
    stems = pc.utf8_slice_codeunits(types, 0, classes.stem)
    return pc.binary_join_element_wise(stems, pa.scalar(_RARE), pa.scalar(""))
