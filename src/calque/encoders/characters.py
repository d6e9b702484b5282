"""Words as rows of characters, for encoders that read no subwords."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from calque.encoders.split import SplitSentences, number_words
from calque.nn.characters import PADDING, SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, CharacterCNN
from calque.offsets import ranges
from calque.text import Sentence

#: numbers of the two ends of a sentence among the word types
BEGIN, END = 0, 1


def character_rows(words: Sequence[str], length: int = 50) -> np.ndarray:
    """Words as ELMo reads them: the first bytes of their UTF-8 between two ends, filled up with padding, all one higher.

    A word may be cut within a character. No word is special: `<S>` and `</S>` in a text, which AllenNLP takes for the ends
    of a sentence, are spelled like any other. Half a surrogate pair, which UTF-8 cannot write, is passed over.

    Args:
        length: of a row; a word keeps `length - 2` bytes.

    Returns:
        int16 `[n_words, length]`.
    """
    encoded = [word.encode("utf-8", "ignore")[: length - 2] for word in words]
    sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    rows = np.full((len(encoded), length), PADDING + 1, dtype=np.int16)
    rows[:, 0] = WORD_BEGIN + 1
    places = ranges(np.arange(len(encoded)) * length + 1, sizes)
    rows.flat[places] = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int16) + 1
    rows[np.arange(len(encoded)), sizes + 1] = WORD_END + 1
    return rows


def sentence_ends(length: int = 50) -> np.ndarray:
    """The rows that stand before and after each sentence, int16 `[2, length]`."""
    rows = character_rows(["?", "?"], length)
    rows[:, 1] = SENTENCE_BEGIN + 1, SENTENCE_END + 1
    return rows


class WordTypes:
    """What `extract` reads in place of subwords: the word types of a window of sentences, and a vector of each.

    Each type's vector is computed once in a window, however often the word occurs.

    Args:
        network: gives the vectors.
        lower: whether words are read in lower case.
    """

    def __init__(self, network: CharacterCNN, *, lower: bool = False):
        self._network, self._lower = network, lower

    def split(self, sentences: Iterable[Sentence | Sequence[str]]) -> SplitSentences:
        """Begin a window: its sentences as numbers of types, each between `BEGIN` and `END`."""
        forms, numbers, offsets = number_words(sentences)
        forms = [form.lower() for form in forms] if self._lower else forms
        length = self._network.max_characters
        rows = np.concatenate([sentence_ends(length), character_rows(forms, length)])
        with torch.no_grad():
            self._table = self._network(torch.from_numpy(rows).to(self._network.projection.device))
        lengths = np.diff(offsets)
        ids = np.full(len(numbers) + 2 * len(lengths), END, dtype=np.int32)
        starts = offsets[:-1] + 2 * np.arange(len(lengths))
        ids[starts] = BEGIN
        ids[ranges(starts + 1, lengths)] = numbers + 2
        return SplitSentences(
            ids=ids,
            offsets=offsets + 2 * np.arange(len(offsets)),
            word_offsets=offsets,
            word_starts=(ranges(np.zeros_like(lengths), lengths) + 1).astype(np.int32),
            word_lengths=np.ones(len(numbers), dtype=np.int32),
            pad_id=END,
        )

    def vectors(self, numbers: Tensor) -> Tensor:
        """Vectors of some of the window's types, `[n, dim]`."""
        return self._table[numbers]
