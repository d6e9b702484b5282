"""Which sense each word of a text has: by clusters of hidden states, or by the senses that a model was trained with."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from calque.algebra.normalize import unit_rows
from calque.encoders.base import Encoder
from calque.encoders.batches import collate, token_batches
from calque.encoders.checkpoint import weights_as
from calque.encoders.extraction import encode_bar, word_counts
from calque.encoders.folder import file_pair
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import matmul_precision, usable_device
from calque.encoders.split import SplitSentences, number_words
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.senses.clusters import ENOUGH, FEWEST_WORDS, split_words, word_space
from calque.senses.elmo import ElmoEncoder
from calque.senses.masked import head_of
from calque.senses.sense_files import open_senses
from calque.senses.sense_table import SenseTable, principal_axes
from calque.senses.words import FIRST_WORD, Vocabulary
from calque.text import Sentence, Sentences

Direction = Literal["both", "forward", "backward"]
DIRECTIONS = ("both", "forward", "backward")
#: of the words of a sentence every so many-th is hidden at a time: about the share of training
EVERY = 7
_BLOCK = 32_768  # senses that are compared at a time
_DRAWN = 100_000  # senses that the plane is made from at most
_WINDOW = 4096  # sentences whose states are held at once
_WORDS = 2000  # words of a text whose senses are asked, the most frequent
_OCCURRENCES = 200  # of each of these that are divided


class Neighbour(NamedTuple):
    """A sense near to another: number of its word, its own number within that, and the cosine."""

    word: int
    number: int
    cosine: float


class Inventory:
    """Senses of words, numbered from 1 for each word.

    Args:
        n_senses: int64 `[n_words]`.
        shares: float64 `[n_words, k]`, of the uses of each word; 0 for no sense.
        vectors: `[n_senses, dim]`, of length 1, in the order of words and numbers; None for a subclass with its own.
    """

    def __init__(self, n_senses: np.ndarray, shares: np.ndarray, vectors: Tensor | None = None):
        self.n_senses, self.shares, self._vectors = n_senses, shares, vectors
        self._rows = np.stack([np.repeat(np.arange(len(n_senses)), n_senses), ranges(0 * n_senses, n_senses)], axis=1)

    @property
    def n_words(self) -> int:
        return len(self.n_senses)

    def vectors(self, rows: np.ndarray) -> Tensor:
        """Vectors of some senses, by their indices in `senses`, `[n, dim]` of length 1."""
        assert self._vectors is not None
        return self._vectors[torch.from_numpy(rows)]

    @property
    def senses(self) -> np.ndarray:
        """Word and number of every sense in use, int64 `[n, 2]`."""
        return self._rows + np.array([0, 1])

    def row(self, word: int, number: int) -> int:
        """Return the index of a sense in `senses`."""
        return int(np.searchsorted(self._rows[:, 0], word)) + number - 1

    def nearest(self, word: int, number: int, k: int, among: np.ndarray | None = None) -> list[Neighbour]:
        """The other senses, of any word, whose vectors are nearest to that of a sense, nearest first.

        Args:
            among: bool `[n_words]`, words to look among; None for all.
        """
        own = self.row(word, number)
        cosines = np.zeros(len(self._rows))
        query = self.vectors(np.array([own]))[0]
        for start in range(0, len(cosines), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(cosines)))
            cosines[rows] = (self.vectors(rows) @ query).numpy()
        cosines[own] = -np.inf
        if among is not None:
            cosines[~among[self._rows[:, 0]]] = -np.inf
        best = np.argsort(-cosines, kind="stable")[:k]
        return [
            Neighbour(int(self._rows[r, 0]), int(self._rows[r, 1]) + 1, float(cosines[r]))
            for r in best if np.isfinite(cosines[r])
        ]  # fmt: skip

    def plane(self, rows: np.ndarray) -> np.ndarray:
        """Some senses on the first two principal axes of the vectors of all senses, float64 `[n, 2]` (Multi-sense, Figures
        4 to 7). Of very many senses the axes are those of a part, evenly drawn."""
        n = len(self._rows)
        drawn = self.vectors(np.unique(np.linspace(0, n - 1, min(n, _DRAWN)).astype(np.int64)))
        axes = principal_axes(drawn, min(2, drawn.shape[1]))
        signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # otherwise the sign of an axis is arbitrary
        places = np.zeros((len(rows), 2))
        places[:, : axes.shape[1]] = ((self.vectors(rows) - drawn.mean(0)) @ (axes * signs)).numpy()
        return places


class SenseInventory(Inventory):
    """The senses in use that a model was trained with.

    A sense is a class of one table; or, of an ELMo read in both directions, the same class of each.

    A word's senses are numbered from 1, those selected most often in training first, of equally frequent ones that of the
    lower class. So the numbers belong to the model, whatever text is looked at.

    Args:
        tables: one or two, of the same vocabulary.
        classes: int64 `[n_tables, n_words, k]`, the senses of each word in any order; −1 for none.

    Attributes:
        classes: the same in the order of the numbers.
        shares: float64 `[n_words, k]`, of the selections of the word in training; 0 for none. Of two tables the mean.
        n_senses: int64 `[n_words]`.
    """

    def __init__(self, tables: Sequence[SenseTable], classes: Tensor):
        self.tables = list(tables)
        exists = (classes >= 0).all(0)
        shares = torch.stack([
            shares_of(table)[own.clamp(min=0)] for table, own in zip(self.tables, classes, strict=True)
        ]).mean(0)  # fmt: skip
        order = torch.argsort(torch.where(exists, -shares, torch.inf), dim=1, stable=True)
        order = order[:, : int(exists.sum(1).max())]
        exists = exists.gather(1, order)
        self.classes = torch.where(exists, torch.stack([own.gather(1, order) for own in classes]), -1)
        shares = torch.where(exists, shares.gather(1, order), 0.0)
        # A class may be in two pairs, and another of the same direction in none: what is shown are shares of the word.
        shares = torch.where(shares.any(1, keepdim=True), shares, exists.double())
        super().__init__(exists.sum(1).numpy(), (shares / shares.sum(1, keepdim=True)).numpy())
        self._norms = [table.weight.detach().norm(dim=1).clamp(min=1e-30) for table in self.tables]

    @classmethod
    def of_one(cls, table: SenseTable) -> SenseInventory:
        """The senses of one table."""
        return cls([table], classes_of(table)[None])

    @classmethod
    def of_both(cls, forward: SenseTable, backward: SenseTable) -> SenseInventory:
        """Those of an ELMo whose directions selected together in training: the classes in use in both."""
        return cls([forward, backward], _shared(forward, backward))

    # -- which is meant ----------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def similarity(self, states: Sequence[Tensor], words: Tensor) -> Tensor:
        """How near each word's state is to the centre of each of its senses: the cosine after the projection
        (Algorithm 1, line 7), of two tables the mean of both.

        Args:
            states: `[n, dim]` for each table.
            words: int64 `[n]`.

        Returns:
            `[n, k]` by number; −inf where a word has no such sense.
        """
        different, place = torch.unique(words, return_inverse=True)
        total = torch.zeros(len(words), self.classes.shape[2])
        for table, own, given in zip(self.tables, self.classes, states, strict=True):
            here = own[different]  # [u, k]
            centres = table.projected(table.centres[here.clamp(min=0)])
            total += torch.einsum("na,nka->nk", table.projected(given.float()), centres[place])
        return (total / len(self.tables)).masked_fill(self.classes[0][words] < 0, -torch.inf)

    def select(self, states: Sequence[Tensor], words: Tensor) -> Tensor:
        """The number of the sense that is meant, int64 `[n]`; of equally near ones the most frequent."""
        return self.similarity(states, words).argmax(1) + 1

    def vectors(self, rows: np.ndarray) -> Tensor:
        """Sense vectors w of some senses in use, by their indices in `senses`, `[n, dim]` of length 1. Of two tables both
        vectors of length 1, one after the other: so the cosine of two is the mean of the cosines in both."""
        word, place = torch.from_numpy(self._rows[rows]).unbind(1)
        parts = [
            table.weight.detach()[own[word, place]] / norm[own[word, place]][:, None]
            for table, own, norm in zip(self.tables, self.classes, self._norms, strict=True)
        ]
        return torch.cat(parts, dim=1) / len(parts) ** 0.5


def classes_of(table: SenseTable) -> Tensor:
    """The classes in use of each word, int64 `[n_words, S]`; −1 for none."""
    index = table.index.cpu()
    return torch.where((index >= 0) & table.live.cpu()[index.clamp(min=0)], index, -1)


def shares_of(table: SenseTable) -> Tensor:
    """Share of each class in the selections of its word, float64 `[n_classes]`; equal ones for a word not seen."""
    counts = table.counts.double().cpu() * table.live.cpu()
    words = table.words.cpu()
    zeros = torch.zeros(table.n_words, dtype=torch.float64)
    totals, live = zeros.index_add(0, words, counts), zeros.index_add(0, words, table.live.cpu().double())
    return torch.where(
        totals[words] > 0, counts / totals[words].clamp(min=1), table.live.cpu() / live[words].clamp(min=1)
    )


def _shared(forward: SenseTable, backward: SenseTable) -> Tensor:
    """Return the classes in use in both tables, int64 `[2, n_words, k]`, −1 for none; of a word that has none the first."""
    first, second = classes_of(forward), classes_of(backward)
    both = torch.where(first == second, first, -1)
    none = (both < 0).all(1)
    both[none, 0] = forward.index[none.to(forward.index.device), 0].cpu()
    return both.expand(2, -1, -1)


class SenseReader(ABC):
    """Selects senses as the training does.

    Attributes:
        name: of the model.
        inventory: an `Inventory` of the senses, by the numbers of words.
        lacks: what messages say of a word without a number.
        words: form of each number; "" for what is no whole word.
        direction: of an ELMo, whose states count; None of a model that reads both sides at once.
    """

    direction: Direction | None = None
    lacks = "is not in the vocabulary of {}"
    name: str
    inventory: Any
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
            raise SettingError(f"{word!r} {self.lacks.format(self.name)}: {hint}")
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
        direction: whose states count; both only where the directions selected together in training.
    """

    def __init__(
        self, encoder: ElmoEncoder, tables: Sequence[Any], vocabulary: Vocabulary, *, direction: Direction = "both"
    ):
        if direction not in DIRECTIONS:
            raise SettingError(f"direction is both, forward or backward, got {direction!r}")
        self.encoder, self.name, self.vocabulary = encoder, encoder.name, vocabulary
        self.direction = direction
        self.words = ["" for _ in range(FIRST_WORD)] + list(vocabulary.words)
        self._sides = (0, 1) if direction == "both" else (DIRECTIONS.index(direction) - 1,)
        forward, backward = tables
        if direction == "both":
            self.inventory = SenseInventory.of_both(forward, backward)
        else:
            self.inventory = SenseInventory.of_one(tables[self._sides[0]])

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        numbers = self.vocabulary.numbers([word.lower() for word in words] if self.encoder.lower else words)
        return np.where(numbers >= FIRST_WORD, numbers, -1)

    def _selected(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray, words: np.ndarray) -> Tensor:
        part, places = _needed(sentences, rows)
        (states,) = self.encoder.encode_layers(part, [self.encoder.n_layers]).values()
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
    """

    def __init__(self, encoder: HuggingFaceEncoder, transform: Any, table: Any):
        self.contexts, self.name = MaskedContexts(encoder, transform), encoder.name
        self.inventory, tokenizer = SenseInventory.of_one(table), encoder.tokenizer
        # What a subword's form is split into again is that subword alone, where it is a whole word.
        ids = np.arange(min(self.inventory.n_words, len(tokenizer)))
        forms = [form.strip() for form in tokenizer.batch_decode(ids[:, None].tolist())]
        whole = self.numbers(forms) == ids
        self.words = [form if one else "" for form, one in zip(forms, whole.tolist(), strict=True)]

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        return self.contexts.subwords(words)

    def _read(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        return self.contexts.covered(sentences)

    def _selected(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray, words: np.ndarray) -> Tensor:
        return self.inventory.select([self.contexts.states(sentences, rows)], torch.from_numpy(words))


# -- senses of a text, without training -----------------------------------------------------------------------------------
class ElmoContexts:
    """States of an ELMo that predict words, see `ElmoEncoder.encode_contexts`."""

    def __init__(self, encoder: ElmoEncoder):
        self.encoder, self.lower = encoder, encoder.lower

    def subwords(self, words: Sequence[str]) -> np.ndarray:
        """Return int64 `[n]`, −1 for a word that has no state that predicts it alone."""
        return np.zeros(len(words), dtype=np.int64)

    def covered(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the mask of the words that the model reads, bool `[n_words]`."""
        return np.ones(int(word_counts(sentences).sum()), dtype=bool)

    def states(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray) -> Tensor:
        """Return the states `[n, dim]` of the words with some indices, int64 `[n]`, ascending, among all of the sentences."""
        part, places = _needed(sentences, rows)
        return torch.from_numpy(self.encoder.encode_contexts(part).data[places])


class MaskedContexts:
    """States of a masked language model in the place of a word that is hidden, after its head's dense layer and norm.

    Only words of one subword have such states. Every `EVERY`-th word of a sentence is hidden at a time, as in training, so
    that a sentence is read up to so many times.

    Args:
        encoder: around the model's body.
        transform: of its head, from states of the last layer to those that predict; None to leave them as they are.
    """

    def __init__(self, encoder: HuggingFaceEncoder, transform: Any = None):
        tokenizer: Any = encoder.tokenizer
        self.encoder, self._transform = encoder, transform or (lambda states: states)
        self.lower = bool(getattr(tokenizer, "do_lower_case", False))
        self._mask, self._nothing = int(tokenizer.mask_token_id), np.array(sorted(tokenizer.all_special_ids))

    def subwords(self, words: Sequence[str]) -> np.ndarray:
        """Return the subword that each word is, int64 `[n]`; −1 for a word of several."""
        split = self.encoder.split([[word] for word in words])
        one = split.word_lengths == 1
        ids = split.ids[split.offsets[:-1] + split.word_starts]
        return np.where(one & ~np.isin(ids, self._nothing), ids, -1).astype(np.int64)

    def covered(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the mask of the words that the model reads, bool `[n_words]`."""
        return self.encoder.split(sentences).covered

    def states(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray) -> Tensor:
        """Return the states `[n, dim]` of the words with some indices, int64 `[n]`, ascending, among all of the sentences."""
        copies, order = _copies(self.encoder.split(sentences), rows, EVERY, self._mask)
        sizes, device, parts, places = np.diff(copies.word_offsets), self.encoder.device, [], []
        with matmul_precision(self.encoder.precision or "highest"), torch.inference_mode():
            for numbers in token_batches(copies.lengths, self.encoder.budget):
                batch = collate(copies, numbers).to(device)
                read = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
                hidden = self.encoder.model(**read).last_hidden_state.flatten(0, 1)[batch.starts]
                parts.append(self._transform(hidden).float().cpu())
                places.append(order[ranges(copies.word_offsets[numbers], sizes[numbers])])
        found = torch.cat(parts)
        return torch.empty_like(found).index_copy_(0, torch.from_numpy(np.concatenate(places)), found)


Contexts = ElmoContexts | MaskedContexts


class ContextSenseReader(SenseReader):
    """Senses of the words of a text: clusters of the states that predict them, see `split_words`. The model needs no senses.

    Words are those with a letter that occur `ENOUGH` times or more, the most frequent 2,000 at most. Of each up to 200
    occurrences are divided, drawn evenly; every other one has the sense whose centre is nearest.

    Args:
        contexts: of the model.
        name: of the model.
        texts: gives the blocks of sentences anew at each call.
        word: to be among the words, however many are more frequent.
        most, seed: see `split_words`.

    Raises:
        SettingError: the text has fewer than `FEWEST_WORDS` such words.
    """

    lacks = f"does not occur {ENOUGH} times in the text as a word that the model can predict"

    def __init__(
        self, contexts: Contexts, name: str, texts: Callable[[], Iterable[Sentences]], *, word: str = "", most: int = 5,
        seed: int = 0,
    ):  # fmt: skip
        self.contexts, self.name = contexts, name
        counts: Counter[str] = Counter()
        for block in texts():
            types, place, _ = number_words(block)
            for form, n in zip(types, np.bincount(place, minlength=len(types)).tolist(), strict=True):
                counts[self._form(form)] += n
        forms = [form for form, n in counts.most_common() if n >= ENOUGH and any(letter.isalpha() for letter in form)]
        forms = [form for form, k in zip(forms, contexts.subwords(forms).tolist(), strict=True) if k >= 0]
        forms = forms[:_WORDS] + [form for form in forms[_WORDS:] if form == self._form(word)]
        self._number = {form: k for k, form in enumerate(forms)}
        kept = self._sample(texts, np.array([counts[form] for form in forms], dtype=np.int64), seed)
        forms = [form for form, states in zip(forms, kept, strict=True) if len(states) >= ENOUGH]
        kept = [states for states in kept if len(states) >= ENOUGH]
        if len(forms) < FEWEST_WORDS:
            raise SettingError(
                f"only {len(forms)} words of the text occur {ENOUGH} times or more, {FEWEST_WORDS} are needed to tell how "
                "words of one sense divide: give more text"
            )
        self.words, self._number = forms, {form: k for k, form in enumerate(forms)}
        self._mean, self._axes = word_space(kept)
        labels = split_words(kept, most=most, seed=seed)
        n_senses = np.array([of_word.max() + 1 for of_word in labels])
        shares = np.stack([np.bincount(of_word, minlength=n_senses.max()) / len(of_word) for of_word in labels])
        centres = [
            self._compared(states)[of_word == sense].mean(0)
            for states, of_word in zip(kept, labels, strict=True)
            for sense in range(of_word.max() + 1)
        ]
        self._centres, self._first = np.stack(centres), offsets_of(n_senses)
        self.inventory = Inventory(n_senses, shares, torch.from_numpy(unit_rows(self._centres)))

    def _form(self, word: str) -> str:
        return word.lower() if self.contexts.lower else word

    def _compared(self, states: np.ndarray) -> np.ndarray:
        return unit_rows((states - self._mean) @ self._axes)

    def _sample(self, texts: Callable[[], Iterable[Sentences]], counts: np.ndarray, seed: int) -> list[np.ndarray]:
        """Return the states of up to `_OCCURRENCES` occurrences of each word, of words with these counts."""
        rng, first = np.random.default_rng(seed), offsets_of(counts)
        drawn, seen = np.zeros(first[-1], dtype=bool), np.zeros(len(counts), dtype=np.int64)
        for begin, n in zip(first.tolist(), counts.tolist(), strict=False):
            drawn[begin + rng.permutation(n)[:_OCCURRENCES]] = True
        kept: list[list[np.ndarray]] = [[] for _ in counts]
        for block in texts():
            types, place, _ = number_words(block)
            words = self.numbers(types)[place] if len(types) else place
            rows = np.flatnonzero(words >= 0)
            order = rows[np.argsort(words[rows], kind="stable")]
            uses = np.bincount(words[rows], minlength=len(counts))
            rank = np.empty(len(words), dtype=np.int64)
            rank[order] = ranges(first[:-1] + seen, uses)
            seen += uses
            rows = rows[drawn[rank[rows]]]
            rows = rows[self.contexts.covered(block)[rows]]
            if len(rows):
                states = self.contexts.states(block, rows).numpy()
                for k in np.unique(words[rows]).tolist():
                    kept[k].append(states[words[rows] == k])
        return [np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float32) for parts in kept]

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        return np.array([self._number.get(self._form(word), -1) for word in words], dtype=np.int64)

    def _read(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        return self.contexts.covered(sentences)

    def _selected(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray, words: np.ndarray) -> Tensor:
        x, chosen = self._compared(self.contexts.states(sentences, rows).numpy()), np.zeros(len(rows), dtype=np.int64)
        for word in np.unique(words).tolist():
            own = words == word
            centres = self._centres[self._first[word] : self._first[word + 1]]
            chosen[own] = ((x[own, None] - centres) ** 2).sum(2).argmin(1) + 1
        return torch.from_numpy(chosen)


def open_contexts(encoder: Encoder) -> Contexts:
    """Open the states by which an encoder predicts words.

    Raises:
        SettingError: it is neither an ELMo nor a model of `transformers` with a mask among its subwords.
    """
    if isinstance(encoder, ElmoEncoder):
        return ElmoContexts(encoder)
    if not isinstance(encoder, HuggingFaceEncoder) or encoder.tokenizer.mask_token_id is None:
        raise SettingError(
            f"{encoder.name} predicts no words from their context: senses need an ELMo or a model with a mask"
        )
    try:
        head = head_of(open_masked(str(getattr(encoder.model, "name_or_path", "")))[0])
    except InputError:  # aligned encoders and sentence encoders have no head
        head = None
    return MaskedContexts(encoder, None if head is None else head.transform.to(encoder.device).eval())


def _needed(
    sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray
) -> tuple[Sequence[Sentence | Sequence[str]], np.ndarray]:
    """Return the sentences that contain the words with some indices, and the indices of these words among theirs."""
    offsets = offsets_of(word_counts(sentences))
    sentence = np.searchsorted(offsets, rows, side="right") - 1
    needed, place = np.unique(sentence, return_inverse=True)
    part = sentences.take(needed) if isinstance(sentences, Sentences) else [sentences[k] for k in needed.tolist()]
    return part, offsets_of(np.diff(offsets)[needed])[place] + rows - offsets[sentence]


def _copies(split: SplitSentences, rows: np.ndarray, every: int, mask: int) -> tuple[SplitSentences, np.ndarray]:
    """Sentences with some words hidden: as many copies as are needed so that each of these is hidden in one.

    Args:
        rows: int64 `[n]`, the words, each of one subword; in order.
        every: words of a sentence that lie so far apart, or a multiple of that, are hidden together.
        mask: the subword that hides them.

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
    ids[offsets[copy[order]] + starts] = mask
    return SplitSentences(
        ids, offsets, offsets_of(np.bincount(copy, minlength=len(names))), starts, np.ones_like(starts),
        pad_id=split.pad_id,
    ), order  # fmt: skip


# -- what a folder holds -----------------------------------------------------------------------------------------------
def open_sense_reader(
    folder: str | PathLike[str], *, direction: Direction | None = None, device: str | torch.device | None = None
) -> SenseReader:
    """Open the senses that a language model in a folder has learnt.

    Args:
        folder: what `calque pretrain --senses` has made.
        direction: of an ELMo, see `ElmoSenseReader`; None for both, or forward where each direction selected for itself.
        device: where the model is to be; None for a graphics card if there is one.

    Raises:
        InputError: a file is missing or damaged.
        SettingError: a direction of a BERT, or both where each selected for itself.
    """
    path = Path(folder)
    tables, settings = open_senses(path)
    if file_pair(path) is not None and not (path / "config.json").is_file():
        encoder, vocabulary = ElmoEncoder.open(path, device=device), Vocabulary.open(path)
        if len(tables) != 2 or any(table.n_words != len(vocabulary) for table in tables):
            raise InputError(f"senses of another vocabulary than that of {len(vocabulary):,} words here", path=path)
        joint = bool(settings.get("joint"))
        if direction == "both" and not joint:
            raise SettingError(
                f"{path}: each direction was trained to select for itself, so they share no senses: name forward or backward"
            )
        direction = direction or ("both" if joint else "forward")
        return ElmoSenseReader(encoder, tables, vocabulary, direction=direction)
    if direction is not None:
        raise SettingError(f"{path} is a masked language model, which reads in both directions at once: no --direction")
    if len(tables) != 1:
        raise InputError(f"{len(tables)} tables of senses, but a masked language model has one", path=path)
    model, tokenizer = open_masked(path)
    head = head_of(model)
    if head is None or tables[0].dim != head.weight.shape[1]:
        size = "no head that is known" if head is None else f"a model of {head.weight.shape[1]}"
        raise InputError(f"senses of {tables[0].dim} dimensions, but {size}", path=path)
    model.to(usable_device(device)).eval()
    name = path.resolve().name
    return MaskedSenseReader(HuggingFaceEncoder(model.base_model, tokenizer, name=name), head.transform, tables[0])


def open_masked(where: str | PathLike[str]) -> tuple[Any, Any]:
    """Open a masked language model with its head, in float32, and its tokenizer.

    Raises:
        InputError: there is none, or no head.
    """
    from transformers import AutoModelForMaskedLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        loaded: Any = AutoModelForMaskedLM.from_pretrained(
            str(where), **weights_as(torch.float32), output_loading_info=True
        )
        model, report = loaded
        tokenizer: Any = AutoTokenizer.from_pretrained(str(where))
    except Exception as error:  # an encoder of another kind, or whatever a damaged folder provokes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"not a masked language model ({reason})", path=where) from error
    if report["missing_keys"] or tokenizer.mask_token_id is None:
        raise InputError("no language-model head in this folder; calque pretrain saves one", path=where)
    return model, tokenizer
