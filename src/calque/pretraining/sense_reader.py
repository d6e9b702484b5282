"""Which sense each word of a text has, by a language model that has learnt senses."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from calque.encoders.batches import collate, token_batches
from calque.encoders.elmo import ElmoEncoder
from calque.encoders.extraction import encode_bar, word_counts
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import matmul_precision
from calque.encoders.split import SplitSentences, number_words
from calque.errors import SettingError
from calque.offsets import offsets_of, ranges
from calque.pretraining.sense_inventory import Join, Neighbour, SenseInventory, shared
from calque.pretraining.words import FIRST_WORD, Vocabulary
from calque.text import Sentence, Sentences

Direction = Literal["both", "forward", "backward"]
DIRECTIONS = ("both", "forward", "backward")
#: of the words of a sentence every so many-th is hidden at a time: about the share of training
EVERY = 7
_WINDOW = 4096  # sentences whose states are held at once


class SenseReader(ABC):
    """Selects senses as the training does.

    Attributes:
        name: of the model.
        inventory: the senses, by the numbers of words.
        words: form of each number; "" for what is no whole word.
        direction: of an ELMo, whose states count; None of a model that reads both sides at once.
    """

    direction: Direction | None = None
    name: str
    inventory: SenseInventory
    words: Sequence[str]

    @abstractmethod
    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """The number of each word, int64 `[n]`; −1 for one that has no senses."""

    @abstractmethod
    def _selected(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray, words: np.ndarray) -> Tensor:
        """Numbers of the senses of some words.

        Args:
            rows: int64 `[n]`, places of the words in the sentences, all in a row; in order.
            words: int64 `[n]`, their numbers.
        """

    def find(self, word: str) -> int:
        """The number of a word.

        Raises:
            SettingError: it is not in the vocabulary; close ones are named.
        """
        number = int(self.numbers([word])[0])
        if number < 0:
            close = difflib.get_close_matches(word, [known for known in self.words if known], n=3, cutoff=0.7)
            hint = f"did you mean {' or '.join(close)}?" if close else "only whole words of it have senses"
            raise SettingError(f"{word!r} is not in the vocabulary of {self.name}: {hint}")
        return number

    def select(self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False) -> np.ndarray:
        """The number of the sense of every word, from 1.

        Args:
            sentences: of any language that the model knows.
            progress: show a bar on standard error.

        Returns:
            int64 `[n_words]`, of all sentences in a row; 0 where a word has none, because it is not in the vocabulary, or
            lies beyond the length that the model reads.
        """
        sentences = sentences if isinstance(sentences, Sequence) else list(sentences)
        lengths = word_counts(sentences)
        offsets = offsets_of(lengths)
        chosen = np.zeros(offsets[-1], dtype=np.int64)
        with encode_bar(int(offsets[-1]), progress) as shown, torch.inference_mode():
            for start in range(0, len(sentences), _WINDOW):
                part = sentences[start : start + _WINDOW]
                first, last = offsets[start], offsets[min(start + _WINDOW, len(sentences))]
                chosen[first:last] = self._window(part)
                shown.update(int(last - first))
        return chosen

    def nearest(self, word: int, number: int, k: int, among: np.ndarray | None = None) -> list[Neighbour]:
        """The senses of whole words that are nearest to a sense, see `SenseInventory.nearest`."""
        whole = np.zeros(self.inventory.n_words, dtype=bool)
        whole[: len(self.words)] = [bool(form) for form in self.words]
        return self.inventory.nearest(word, number, k, whole if among is None else whole & among)

    def uses(self, sentences: Iterable[Sentence | Sequence[str]]) -> np.ndarray:
        """How often each word stands in a text, int64 by number."""
        types, place, _ = number_words(sentences)
        words = self.numbers(types)[place] if len(types) else np.zeros(0, dtype=np.int64)
        return np.bincount(words[words >= 0], minlength=self.inventory.n_words)

    def _window(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        types, place, _ = number_words(sentences)
        words = self.numbers(types)[place] if len(types) else np.zeros(0, dtype=np.int64)
        senses = np.where(words >= 0, self.inventory.n_senses[words], 0)
        chosen = (self._read(sentences) & (senses > 0)).astype(np.int64)
        rows = np.flatnonzero((chosen > 0) & (senses > 1))  # of one sense there is nothing to select
        if len(rows):
            chosen[rows] = self._selected(sentences, rows, words[rows]).numpy()
        return chosen

    def _read(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Which words the model reads, bool `[n_words]`."""
        return np.ones(int(word_counts(sentences).sum()), dtype=bool)


def languages_of(uses: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The language of each word, by number: that in whose text it has the largest share; None for a word of no text.

    Args:
        uses: by language, see `SenseReader.uses`; without any nothing is known.
    """
    if not uses:
        return None
    shares = np.stack([of_lang / max(1, of_lang.sum()) for of_lang in uses.values()])
    names = np.array([*uses, None], dtype=object)
    return names[np.where(shares.any(axis=0), shares.argmax(axis=0), len(uses))]


class ElmoSenseReader(SenseReader):
    """Senses by the states of an ELMo's last layer after the word itself has been read (Multi-sense, Algorithm 1).

    The layer is the forward half, then the backward half; each direction has a table of its own.

    Args:
        encoder: gives the states.
        tables: forwards and backwards.
        vocabulary: whose numbers they have.
        direction: whose states count.
        join: which senses of the two directions are one, see `SenseInventory.of_both`.
    """

    def __init__(
        self,
        encoder: ElmoEncoder,
        tables: Sequence[Any],
        vocabulary: Vocabulary,
        *,
        direction: Direction = "both",
        join: Join = shared,
    ):
        if direction not in DIRECTIONS:
            raise SettingError(f"direction is both, forward or backward, got {direction!r}")
        self.encoder, self.name, self.vocabulary = encoder, encoder.name, vocabulary
        self.direction = direction
        self.words = ["" for _ in range(FIRST_WORD)] + list(vocabulary.words)
        self._sides = (0, 1) if direction == "both" else (DIRECTIONS.index(direction) - 1,)
        forward, backward = tables
        if direction == "both":
            self.inventory = SenseInventory.of_both(forward, backward, join)
        else:
            self.inventory = SenseInventory.of_one(tables[self._sides[0]])

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        numbers = self.vocabulary.numbers([word.lower() for word in words] if self.encoder.lower else words)
        return np.where(numbers >= FIRST_WORD, numbers, -1)

    def _selected(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray, words: np.ndarray) -> Tensor:
        offsets = offsets_of(word_counts(sentences))
        sentence = np.searchsorted(offsets, rows, side="right") - 1
        needed = np.unique(sentence)
        part = sentences.take(needed) if isinstance(sentences, Sentences) else [sentences[k] for k in needed.tolist()]
        (states,) = self.encoder.encode_layers(part, [self.encoder.n_layers]).values()
        places = states.offsets[np.searchsorted(needed, sentence)] + rows - offsets[sentence]
        halves = torch.from_numpy(states.data[places]).chunk(2, dim=1)
        return self.inventory.select([halves[side] for side in self._sides], torch.from_numpy(words))


class MaskedSenseReader(SenseReader):
    """Senses by the states of a masked language model after its head's dense layer and norm.

    Only words of one subword have senses. As in training, a word is selected by the state of the mask in its place: every
    `EVERY`-th word of a sentence is hidden at a time, so that a sentence is read up to so many times.

    Args:
        encoder: around the model's body.
        transform: of its head, from states of the last layer to those that senses are selected by.
        table: by numbers of subwords.
        hidden: False selects by the word's own state, in one pass.
    """

    def __init__(self, encoder: HuggingFaceEncoder, transform: Any, table: Any, *, hidden: bool = True):
        tokenizer: Any = encoder.tokenizer
        self.encoder, self.name, self.hidden, self._transform = encoder, encoder.name, hidden, transform
        self._mask: int = tokenizer.mask_token_id
        self.inventory = SenseInventory.of_one(table)
        self._nothing = np.array(sorted(tokenizer.all_special_ids))
        # What a subword's form is split into again is that subword alone, where it is a whole word.
        ids = np.arange(min(self.inventory.n_words, len(tokenizer)))
        forms = [form.strip() for form in tokenizer.batch_decode(ids[:, None].tolist())]
        whole = self.numbers(forms) == ids
        self.words = [form if one else "" for form, one in zip(forms, whole.tolist(), strict=True)]

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        split = self.encoder.split([[word] for word in words])
        one = split.word_lengths == 1
        ids = split.ids[split.offsets[:-1] + split.word_starts]
        return np.where(one & ~np.isin(ids, self._nothing), ids, -1).astype(np.int64)

    def _read(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        return self.encoder.split(sentences).covered

    def _selected(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray, words: np.ndarray) -> Tensor:
        copies, order = _copies(
            self.encoder.split(sentences), rows, *((EVERY, self._mask) if self.hidden else (1, None))
        )
        last, chosen, given = self.encoder.n_layers, torch.zeros(len(rows), dtype=torch.int64), words[order]
        batches = token_batches(copies.lengths, self.encoder.budget)
        sizes = np.diff(copies.word_offsets)
        vectors = self.encoder._reader([last])
        with matmul_precision(self.encoder.precision or "highest"), torch.inference_mode():
            for numbers in batches:
                states = self._transform(vectors(collate(copies, numbers))[last]).float().cpu()
                places = ranges(copies.word_offsets[numbers], sizes[numbers])
                selected = self.inventory.select([states], torch.from_numpy(given[places]))
                chosen[torch.from_numpy(order[places])] = selected
        return chosen


def _copies(split: SplitSentences, rows: np.ndarray, every: int, mask: int | None) -> tuple[SplitSentences, np.ndarray]:
    """Sentences with some words hidden: as many copies as are needed so that each of these is hidden in one.

    Args:
        rows: int64 `[n]`, the words, each of one subword; in order.
        every: words of a sentence that lie so far apart, or a multiple of that, are hidden together.
        mask: the subword that hides them; None hides none.

    Returns:
        the copies, whose words are those that are hidden in them; and the place of each in `rows`.
    """
    counts = np.diff(split.word_offsets)
    sentence = np.repeat(np.arange(len(split)), counts)[rows]
    names, copy = np.unique(sentence * every + (rows - split.word_offsets[sentence]) % every, return_inverse=True)
    order = np.argsort(copy, kind="stable")
    lengths = split.lengths[names // every]
    offsets = offsets_of(lengths)
    ids = split.ids[ranges(split.offsets[names // every], lengths)]
    starts = split.word_starts[rows[order]]
    if mask is not None:
        ids[offsets[copy[order]] + starts] = mask
    return SplitSentences(
        ids, offsets, offsets_of(np.bincount(copy, minlength=len(names))), starts, np.ones_like(starts),
        pad_id=split.pad_id,
    ), order  # fmt: skip
