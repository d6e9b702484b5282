"""Text as numbers of words, for models that predict words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calque.encoders.split import number_words
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.senses.blocks import Blocks
from calque.senses.elmo import BEGIN, END
from calque.text import Sentence, Sentences

#: after the numbers of the ends of a sentence: that of all words that are not predicted; then come the words
UNKNOWN, FIRST_WORD = END + 1, END + 2
VOCABULARY_FILE = "vocabulary.json"


@dataclass(frozen=True)
class Vocabulary:
    """The words that are predicted, the frequent ones first, as the sampling of negatives expects it.

    Attributes:
        words: number `k + FIRST_WORD` is `words[k]`.
        counts: int64 `[size]`, how often each number occurs in the training text.
    """

    words: tuple[str, ...]
    counts: np.ndarray
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "_numbers", {word: k for k, word in enumerate(self.words, FIRST_WORD)})

    def __len__(self) -> int:
        """With both ends and the unknown word."""
        return len(self.counts)

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """The number of each word, or that of the unknown one, int64 `[n]`."""
        return np.fromiter((self._numbers.get(word, UNKNOWN) for word in words), dtype=np.int64, count=len(words))

    def unigram(self) -> np.ndarray:
        """Probability of each number by its count alone, with one added, float64 `[size]`."""
        return (self.counts + 1) / (self.counts.sum() + len(self.counts))

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(json.dumps(self.words).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.counts).tobytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write to a folder that `open` reads."""
        about = {"words": self.words, "counts": self.counts.tolist()}
        (folder / VOCABULARY_FILE).write_text(json.dumps(about, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def open(cls, folder: Path) -> Vocabulary:
        try:
            about = json.loads((folder / VOCABULARY_FILE).read_text(encoding="utf-8"))
            vocabulary = cls(tuple(about["words"]), np.array(about["counts"], dtype=np.int64))
            if len(vocabulary.counts) != len(vocabulary.words) + FIRST_WORD:
                raise ValueError(f"{len(vocabulary.counts)} counts of {len(vocabulary.words)} words")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"no vocabulary ({error})", path=folder / VOCABULARY_FILE) from error
        return vocabulary


@dataclass(frozen=True)
class WordText:
    """Text of several languages as numbers of word forms, seen through one vocabulary.

    Attributes:
        vocabulary: what is predicted.
        forms: every form of the text; those of the vocabulary first, so that number n of the vocabulary and of the text
            is the same word: `forms[n - FIRST_WORD]`.
        blocks: by language, int32 numbers of forms; a block is a sentence with both ends, or a part of one.
    """

    vocabulary: Vocabulary
    forms: list[str]
    blocks: dict[str, Blocks]

    @classmethod
    def of(
        cls,
        texts: Mapping[str, Sentences],
        *,
        size: int,
        min_count: int = 1,
        length: int = 128,
        alpha: float = 1.0,
        lower: bool = False,
    ) -> WordText:
        """Count and number the words of a text.

        A sentence without words is left out. One with more than `length` words is cut into parts that share the word where
        they meet, so that each word is still predicted once from each side.

        Args:
            texts: sentences by language.
            size: most numbers of the vocabulary, `FIRST_WORD` of which are no words.
            min_count: occurrences below which a word is not predicted.
            length: most predictions in each direction from one part of a sentence.
            alpha: as in `Mixture`; so that words are ordered by how often they are seen in training.
            lower: read all words in lower case.

        Raises:
            SettingError: no word is left, or a number cannot be.
        """
        if size <= FIRST_WORD or min_count < 1 or length < 1:
            raise SettingError(
                f"a vocabulary of {size} with words from {min_count} times on, in parts of {length} words: expected more "
                f"than {FIRST_WORD}, and at least 1 of the others"
            )
        numbered = {lang: number_words(text) for lang, text in texts.items()}
        forms: dict[str, int] = {}
        local = {
            lang: np.array([forms.setdefault(form, len(forms)) for form in _cased(names, lower)], dtype=np.int64)
            for lang, (names, _, _) in numbered.items()
        }
        counts, seen = np.zeros(len(forms), dtype=np.int64), np.zeros(len(forms))
        for lang, (names, numbers, _) in numbered.items():
            occurred = np.bincount(numbers, minlength=len(names))
            np.add.at(counts, local[lang], occurred)  # several forms of a text may be one in lower case
            np.add.at(seen, local[lang], occurred * float(max(1, len(numbers))) ** (alpha - 1))
        seen[counts < min_count] = -1  # last, and never predicted
        order = np.argsort(-seen, kind="stable")
        n_words = min(size - FIRST_WORD, int((counts >= min_count).sum()))
        if not n_words:
            raise SettingError(f"no word occurs {min_count} times or more: there is nothing to predict")
        names = list(forms)
        names = [names[k] for k in order.tolist()]
        sentences = sum(int((np.diff(offsets) > 0).sum()) for _, _, offsets in numbered.values())
        ends = np.array([sentences, sentences, counts[order[n_words:]].sum()])
        vocabulary = Vocabulary(tuple(names[:n_words]), np.concatenate([ends, counts[order[:n_words]]]))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) + FIRST_WORD
        blocks = {
            lang: _blocks(rank[local[lang]][numbers], offsets, length)
            for lang, (_, numbers, offsets) in numbered.items()
        }
        return cls(vocabulary, names, blocks)

    @classmethod
    def seen_by(
        cls, vocabulary: Vocabulary, sentences: Iterable[Sentence | Sequence[str]], *, lower: bool = False
    ) -> WordText:
        """Another text, such as one held out; one block a sentence, all under the language ""."""
        names, numbers, offsets = number_words(sentences)
        names = _cased(names, lower)
        known = vocabulary.numbers(names)
        new = np.flatnonzero(known == UNKNOWN)
        known[new] = len(vocabulary) + np.arange(len(new))
        forms = [*vocabulary.words, *(names[k] for k in new.tolist())]
        longest = int(np.diff(offsets).max(initial=0)) + 1
        return cls(vocabulary, forms, {"": _blocks(known[numbers], offsets, longest)})


def _cased(forms: list[str], lower: bool) -> list[str]:
    return [form.lower() for form in forms] if lower else forms


def _blocks(numbers: np.ndarray, offsets: np.ndarray, length: int) -> Blocks:
    lengths = np.diff(offsets)
    filled = lengths > 0
    lengths = lengths[filled] + 2
    ends = np.cumsum(lengths)
    starts = ends - lengths
    ids = np.full(int(lengths.sum()), END, dtype=np.int32)
    ids[starts] = BEGIN
    ids[ranges(starts + 1, lengths - 2)] = numbers
    parts = -(-(lengths - 1) // length)
    first = np.repeat(starts, parts) + ranges(np.zeros_like(parts), parts) * length
    sizes = np.minimum(first + length + 1, np.repeat(ends, parts)) - first
    return Blocks(ids[ranges(first, sizes)], offsets_of(sizes))
