"""An encoder to look through: the vectors of the text's words under its layers, and of sentences that are typed."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.encoders.sense_files import has_senses
from calque.errors import SettingError
from calque.explore.collection import Collection
from calque.explore.neighbourhoods import Neighbourhoods
from calque.explore.senses import WordSenses
from calque.explore.sources import NamedEncoder
from calque.explore.store import Layers, WordVectors, layers_of
from calque.segment import split_words
from calque.text import Sentence
from calque.vectors import Embeddings

_TYPED = 256  # typed sentences whose vectors are remembered


@dataclass(frozen=True)
class Typed:
    """A sentence of the user's own."""

    text: str
    lang: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(split_words(self.text, self.lang))


class CollectionView:
    """An encoder over a collection.

    Args:
        named: the encoder.
        collection: the text.
        folder: of this encoder and this text alone.
        sums: what computes neighbourhoods; its lock is held while a typed sentence is encoded.
        layers: see `layers_of`.
        progress: show a bar on standard error.

    Attributes:
        before: whether other encoders were made from it by aligning.
        layers: the vectors of the text under each layer.
        own: the name of the encoder's own layer.
        typed: what was typed lately, with its vectors under every layer.
        senses: those that the encoder has learnt with; None if it has none.
    """

    def __init__(
        self,
        named: NamedEncoder,
        collection: Collection,
        folder: Path,
        sums: Neighbourhoods,
        layers: Sequence[int] | None = None,
        *,
        progress: bool = False,
    ):
        self.encoder, self.name, self.before = named.encoder, named.name, named.before
        numbers, self.own = layers_of(named.encoder, layers)
        self.layers = Layers(named.encoder, numbers, collection, folder, sums, progress=progress)
        self.typed: OrderedDict[Typed, dict[str, Embeddings]] = OrderedDict()
        self.senses: WordSenses | None = None
        if named.folder is not None and has_senses(named.folder):
            self.senses = WordSenses(named.folder, collection)
        self._collection, self._lock = collection, sums.lock

    def store(self, layer: str | None) -> tuple[WordVectors, str]:
        """The vectors of a layer, None for the encoder's own, and its name.

        Raises:
            SettingError: no such layer.
        """
        name = layer or self.own
        if name not in self.layers:
            raise SettingError(f"no layer {name!r} of {self.name}, only {', '.join(self.layers.numbers)}")
        return self.layers.get(name), name

    def vectors(self, layer: str, which: int | Typed) -> Embeddings:
        """Vectors of one sentence, of length 1."""
        if isinstance(which, Typed):
            return self._encoded(which)[layer]
        store = self.layers.get(layer).embeddings
        first, last = self._collection.offsets[which : which + 2]
        covered = None if store.covered is None else np.asarray(store.covered[first:last])
        return Embeddings(store.data[first:last], np.array([0, last - first]), covered)

    def sense(self, words: Sequence[str], place: int) -> dict[str, Any]:
        """The sense of a word of a sentence, see `WordSenses.of_word`.

        Raises:
            SettingError: the encoder has learnt none.
        """
        if self.senses is None:
            raise SettingError(f"{self.name} has learnt no senses: calque pretrain --senses makes an encoder that has")
        with self._lock:
            return self.senses.of_word(words, place)

    def _encoded(self, typed: Typed) -> dict[str, Embeddings]:
        """A typed sentence under all layers, from memory if it was asked for lately."""
        from calque.encoders.extraction import UncoveredWordsWarning

        with self._lock:  # a model encodes one sentence at a time
            if typed in self.typed:
                self.typed.move_to_end(typed)
                return self.typed[typed]
            sentences = [Sentence(typed.words, typed.lang)]
            numbers = [number for number in self.layers.numbers.values() if number is not None]
            by_number: dict[int | None, Embeddings] = {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UncoveredWordsWarning)  # the answers say so
                if numbers:
                    by_number |= self.encoder.encode_layers(sentences, numbers)
                if None in self.layers.numbers.values():
                    by_number[None] = self.encoder.encode(sentences)
            layers = {}
            for name, number in self.layers.numbers.items():
                raw = by_number[number]
                layers[name] = Embeddings(unit_rows(raw.data), raw.offsets, raw.covered)
            self.typed[typed] = layers
            while len(self.typed) > _TYPED:
                self.typed.popitem(last=False)
            return layers
