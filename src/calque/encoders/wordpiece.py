"""BERT's kind of tokenizer as a compiled loop: the same subwords, without a string for any of them."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Self

import numpy as np

from calque.encoders.forms import Bytes
from calque.offsets import offsets_of
from calque.wordalign.constants import DROPPED, ENDS, IRREGULAR, LETTER, LONE, POINT_BITS
from calque.wordalign.loops.words import longest_first as _longest_first
from calque.wordalign.loops.words import plant as _plant
from calque.wordalign.loops.words import unseen as _unseen

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class WordPiece:
    """Cuts words as a tokenizer with BERT's normalizer and pre-tokenizer and a WordPiece vocabulary does.

    A word is divided at spaces and around punctuation, and each part is cut from the left, each time after the longest subword
    of the vocabulary that fits; a part that cannot be cut so, or has too many letters, is one unknown subword (Wu et al. 2016,
    "Google's Neural Machine Translation System", Section 4.1; Devlin et al. 2019). What a letter becomes, and whether it
    divides, the tokenizer is asked for each letter once. That is enough where a letter is read alike in whatever word;
    a word with a letter of which that is not certain is left to the tokenizer.

    Args:
        backend: a tokenizer that `of` takes.
    """

    def __init__(self, backend: Tokenizer):
        self._backend = backend
        normalizer = backend.normalizer
        strip = getattr(normalizer, "strip_accents", False)
        # Marks are put into order before accents are taken away: two that stay could change places.
        self._ordered = bool(getattr(normalizer, "lowercase", False) if strip is None else strip)
        self._kinds = np.zeros(1 << POINT_BITS, np.uint8)
        self._mapped = np.zeros(1 << POINT_BITS, np.int32)
        model, vocabulary = backend.model, backend.get_vocab(with_added_tokens=False)
        self._longest, self._unknown = model.max_input_chars_per_word, vocabulary[model.unk_token]  # type: ignore[attr-defined]
        begin: str = model.continuing_subword_prefix  # type: ignore[attr-defined]
        inner = {word[len(begin) :]: number for word, number in vocabulary.items() if word.startswith(begin)}
        groups = [{word: k for word, k in each.items() if word} for each in (vocabulary, inner)]
        letters = sum(len(word) for each in groups for word in each)
        slots = 1 << (2 * letters + 2).bit_length()
        self._tree = np.zeros(slots, np.uint64), np.zeros(slots, np.int32), np.full(letters + 2, -1, np.int32)
        nodes = 2  # of which the first is where a part begins, the second where it goes on
        for root, each in enumerate(groups):
            points = np.frombuffer("".join(each).encode("utf-32-le", "surrogatepass"), np.int32)
            numbers = np.fromiter(each.values(), np.int32, len(each))
            nodes = _plant(points, offsets_of(list(map(len, each))), numbers, root, nodes, *self._tree)

    @classmethod
    def of(cls, backend: Tokenizer) -> Self | None:
        """That of a tokenizer; None where it has other parts than BERT's, or subwords that it looks for in the text."""
        parts = [type(part).__name__ for part in (backend.model, backend.normalizer, backend.pre_tokenizer)]
        if parts != ["WordPiece", "BertNormalizer", "BertPreTokenizer"]:
            return None
        added = backend.get_added_tokens_decoder().values()
        unknown = backend.model.unk_token  # type: ignore[attr-defined]
        if any(not token.special for token in added) or unknown not in backend.get_vocab(with_added_tokens=False):
            return None
        return cls(backend)

    def cut(self, text: Bytes, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cut words.

        Args:
            text: has the words.
            words: int64, which of them.

        Returns:
            ids of their subwords, int32, one word after the other; and how many each has, int64 `[len(words)]`, −1 for a word
            that the tokenizer itself must cut, which has none among the ids.
        """
        sizes = text.sizes(words)
        found = np.empty(sizes.sum(), np.int32)
        for point in found[: _unseen(*text, words, self._kinds, found)].tolist():
            self._kinds[point], self._mapped[point] = self._ask(chr(point))
        letters, counts = np.empty(sizes.max(initial=0) + 1, np.int32), np.empty(len(words), np.int64)
        filled = _longest_first(
            *text, words, self._kinds, self._mapped, *self._tree, self._longest, self._unknown, letters, found, counts
        )
        return found[:filled], counts

    def _ask(self, letter: str) -> tuple[int, int]:
        """What a letter does to a word, and what it is read as, by what becomes of it between two others."""
        normalizer, divider = self._backend.normalizer, self._backend.pre_tokenizer
        parts = [part for part, _ in divider.pre_tokenize_str(normalizer.normalize_str(f"a{letter}a"))]  # type: ignore[union-attr]
        if self._ordered and unicodedata.category(letter) == "Cn":
            return IRREGULAR, 0
        if parts == ["aa"]:
            return DROPPED, 0
        if self._ordered and unicodedata.combining(letter):
            return IRREGULAR, 0
        if parts == ["a", "a"]:
            return ENDS, 0
        if len(parts) == 3 and len(parts[1]) == 1:
            return LONE, ord(parts[1])
        if len(parts) == 1 and len(parts[0]) == 3:
            return LETTER, ord(parts[0][1])
        return IRREGULAR, 0
