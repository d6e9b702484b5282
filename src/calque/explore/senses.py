"""Senses of words, of an encoder that has learnt with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.explore.collection import Collection

if TYPE_CHECKING:
    from calque.pretraining.sense_reader import SenseReader

_NEAREST = 8  # senses near to the one of a word


class WordSenses:
    """Which sense a word of a sentence has, and what lies near to it. The model is read when somebody asks.

    Args:
        folder: of a language model with senses.
        collection: the text, which tells the languages of words.
    """

    def __init__(self, folder: Path, collection: Collection):
        self._folder, self._collection = folder, collection

    @cached_property
    def _reader(self) -> SenseReader:
        from calque.pretraining.sense_reader import open_sense_reader

        return open_sense_reader(self._folder)

    @cached_property
    def _languages(self) -> np.ndarray | None:
        from calque.pretraining.sense_reader import languages_of

        text = self._collection
        return languages_of({
            lang: self._reader.uses(text.sentences[first:last]) for lang, (first, last) in text.ranges.items()
        })  # fmt: skip

    def of_word(self, words: Sequence[str], place: int) -> dict[str, Any]:
        """Return the sense of one word of a sentence.

        Returns:
            `senses`, how many the word has, 0 if it is not in the vocabulary; then `number` of the one that is meant, its
            `share` in training, and `nearest`: `word`, `number`, `cosine`, `lang`.
        """
        reader = self._reader
        number = int(reader.select([words])[place])
        if not number:
            return {"senses": 0}
        word, langs = int(reader.numbers([words[place]])[0]), self._languages
        return {
            "senses": int(reader.inventory.n_senses[word]),
            "number": number,
            "share": round(float(reader.inventory.shares[word, number - 1]), 4),
            "nearest": [
                {"word": reader.words[near.word], "number": near.number, "cosine": round(near.cosine, 4),
                 "lang": None if langs is None else langs[near.word]}
                for near in reader.nearest(word, number, _NEAREST)
            ],
        }  # fmt: skip
