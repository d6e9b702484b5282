"""Word types for statistical alignment: numbers instead of words, rare words by their stems."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported; checkers cannot see them.

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calque.offsets import offsets_of
from calque.text import Sentences
from calque.wordalign.spelling import CodePoints, code_points

_RARE = "\u2026"  # ends the name of a stem, so that it differs from a word spelt the same


@dataclass(frozen=True)
class Classes:
    """How words are put into classes before alignment. A class is a frequent word, or a stem shared by rare ones.

    A rare word has too few contexts to learn its translation from, so it shares those of its stem, the first `stem`
    characters (Fraser & Marcu 2005, "ISI's participation in the Romanian-English alignment task"). `lower` folds
    case; full-width and compatibility forms are folded with it (NFKC).

    Args:
        lower: fold case.
        stem: characters of a rare word that count; 0 keeps all words whole.
        frequent: occurrences from which on a word stands for itself.
    """

    lower: bool = True
    stem: int = 5
    frequent: int = 100


AS_IS = Classes(lower=False, stem=0)


class Vocabulary:
    """The classes of one language's words.

    Args:
        names: Arrow strings, a name for each class: the word itself, or the stem and `…`.
        forms: Arrow strings, the most frequent spelling in each class.
        classes: how words were put into them.
    """

    def __init__(self, names: pa.Array, forms: pa.Array, classes: Classes):
        self.names, self.forms, self.classes = names, forms, classes

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def points(self) -> CodePoints:
        """How the classes are spelt, as numbers."""
        return code_points(self.forms)

    @classmethod
    def build(cls, sentences: Sentences, classes: Classes) -> tuple[Vocabulary, np.ndarray, np.ndarray]:
        """Collect the classes of a text and number its words.

        Returns:
            the vocabulary; classes of the words, int32 `[n_words]`; offsets of the sentences, int64 `[n + 1]`.
        """
        types, numbers, offsets = _types(sentences, classes)
        frequency = np.bincount(numbers, minlength=len(types))
        if classes.stem:
            stems = _stem(types, classes)
            named = pc.if_else(pc.less(pa.array(frequency), pa.scalar(np.int64(classes.frequent))), stems, types)
        else:
            named = types
        encoded = named.dictionary_encode()
        of_type = np.array(encoded.indices)
        names = encoded.dictionary
        best = np.zeros(len(names), dtype=np.int64)
        order = np.argsort(frequency, kind="stable")  # the last assignment wins: the most frequent spelling
        best[of_type[order]] = order
        np.take(of_type.astype(np.int32), numbers, out=numbers)
        return cls(names, types.take(pa.array(best)), classes), numbers, offsets

    def encode(self, sentences: Sentences) -> tuple[np.ndarray, np.ndarray, pa.Array]:
        """Number the words of a further text; a word in no class gets a number from `len(self)` on.

        In another sentence such a word is another: what training never met says nothing about other sentences, so that
        links do not depend on what else is in the text.

        Returns:
            classes, int32 `[n_words]`; offsets of the sentences, int64 `[n + 1]`; spellings of the unknown words.
        """
        types, numbers, offsets = _types(sentences, self.classes)
        class_of = pc.index_in(types, self.names)
        if self.classes.stem:
            class_of = pc.coalesce(class_of, pc.index_in(_stem(types, self.classes), self.names))
        words = np.array(pc.fill_null(class_of, pa.scalar(np.int32(-1))))[numbers]
        at = np.flatnonzero(words < 0)
        sentence = np.searchsorted(offsets, at, side="right")
        _, first, of_word = np.unique(
            sentence * max(len(types), 1) + numbers[at], return_index=True, return_inverse=True
        )
        words[at] = len(self) + np.argsort(np.argsort(first))[of_word].astype(np.int32)
        return words, offsets, types.take(pa.array(numbers[at[np.sort(first)]]))


def _types(sentences: Sentences, classes: Classes) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Return the different words after folding, the number of each running word, and the offsets of the sentences."""
    offsets = offsets_of(sentences.lengths())
    words = pa.chunked_array([chunk.flatten() for chunk in sentences.chunks()], pa.string())
    encoded = words.dictionary_encode().unify_dictionaries()
    numbers = np.concatenate([np.zeros(0, np.int32), *(np.array(chunk.indices) for chunk in encoded.chunks)])
    types = encoded.chunk(0).dictionary if encoded.num_chunks else pa.nulls(0, pa.string())
    if classes.lower and len(types):
        folded = pc.utf8_lower(pc.utf8_normalize(types, form="NFKC")).dictionary_encode()
        types = folded.dictionary
        np.take(np.array(folded.indices), numbers, out=numbers)
    return types, numbers, offsets


def _stem(types: pa.Array, classes: Classes) -> pa.Array:
    return pc.binary_join_element_wise(pc.utf8_slice_codeunits(types, 0, classes.stem), pa.scalar(_RARE), pa.scalar(""))
