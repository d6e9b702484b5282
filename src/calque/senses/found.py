"""Senses learned in pretraining, or induced from text by clustering the hidden states that predict
words (`calque senses`).
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from calque.algebra.normalize import unit_rows
from calque.corpora.languages import language_and_path
from calque.corpora.plain import read_sentences
from calque.corpora.readers import AUTO
from calque.encoders import load_encoder
from calque.encoders.base import Encoder
from calque.encoders.batches import collate, token_batches
from calque.encoders.extraction import word_counts
from calque.encoders.folder import file_pair, read_about
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import arithmetic
from calque.encoders.split import SplitSentences
from calque.encoders.subwords import Subwords
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.senses.clusters import FEWEST_WORDS, MIN_VECTORS, discriminant_axes, split_words
from calque.senses.elmo import ElmoEncoder
from calque.senses.masked import open_masked
from calque.senses.sense_table import SenseTable, open_senses
from calque.senses.text import FIRST_WORD, Vocabulary
from calque.storage import write_lines
from calque.text import Sentence, Sentences, number_words

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from calque.encoders.batches import WordBatch

#: every seventh word of a sentence is masked, which is about the same fraction as in pretraining
EVERY = 7
_WINDOW = 16_384  # number of sentences whose hidden states are in memory at a time
_WORDS = 2000  # maximum number of words with senses; the most frequent words are used
_OCCURRENCES = 200  # maximum number of occurrences to cluster for each word
_EXAMPLES = 3  # number of example sentences for each sense


class Neighbour(NamedTuple):
    """Sense with a large cosine to a given sense: its word's index, its number within the word, and
    the cosine.
    """

    word: int
    number: int
    cosine: float


class WordIndex:
    """Indices of words.

    Args:
        words: distinct words.
        lower: whether to lower-case words before they are looked up.
    """

    def __init__(self, words: Sequence[str], *, lower: bool = False):
        self.words, self.lower = words, lower
        self._index = {word: k for k, word in enumerate(words)}

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """Return the index of each word, int64 `[n]`, or −1 for an unknown word."""
        if self.lower:
            words = [word.lower() for word in words]
        return np.array([self._index.get(word, -1) for word in words], dtype=np.int64)

    def in_text(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the index of each word in a text, int64 `[n]`, or −1 for an unknown word."""
        types, numbers, _ = number_words(sentences)
        return self.numbers(types)[numbers]


class Inventory(WordIndex):
    """Inventory of word senses. The senses of each word are numbered from 1.

    Args:
        name: name of the model.
        words: words that have senses.
        n_senses: number of senses of each word, int64 `[n_words]`.
        shares: fraction of each word's occurrences with each sense, float64 `[n_words, k]`, padded
            with 0.
        vectors: L2-normalised vectors of the senses, `[n_senses, dim]`, sorted by word and number.
        lower: whether to lower-case words before they are looked up.
    """

    lacks = "is not in the vocabulary of {}"

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        n_senses: np.ndarray,
        shares: np.ndarray,
        vectors: Tensor,
        *,
        lower: bool = False,
    ):
        super().__init__(words, lower=lower)
        self.name, self.n_senses, self.shares, self.vectors = name, n_senses, shares, vectors
        sense_words = np.repeat(np.arange(len(n_senses)), n_senses)
        sense_numbers = ranges(np.ones_like(n_senses), n_senses)
        #: word index and number of each sense, int64 `[n, 2]`
        self.senses = np.stack([sense_words, sense_numbers], axis=1)

    def find(self, word: str) -> int:
        """Return the index of a word.

        Raises:
            SettingError: the word has no senses. The message suggests similar words.
        """
        number = int(self.numbers([word])[0])
        if number < 0:
            close = difflib.get_close_matches(word, self.words, n=3, cutoff=0.7)
            hint = "only whole words have senses"
            if close:
                hint = f"did you mean {' or '.join(close)}?"
            raise SettingError(f"{word!r} {self.lacks.format(self.name)}: {hint}")
        return number

    def nearest(
        self, word: int, number: int, k: int, among: np.ndarray | None = None
    ) -> list[Neighbour]:
        """Return the k senses (of any word) with the largest cosine to a sense, nearest first.

        Args:
            among: mask of the words to search, bool `[n_words]`; default: all words.
        """
        sense = int(self.n_senses[:word].sum()) + number - 1  # its row in `vectors`
        cosines = (self.vectors @ self.vectors[sense]).double().numpy()
        cosines[sense] = -np.inf
        if among is not None:
            cosines[~among[self.senses[:, 0]]] = -np.inf
        neighbours = []
        for row in np.argsort(-cosines, kind="stable")[:k]:
            if np.isfinite(cosines[row]):
                other, other_number = self.senses[row].tolist()
                neighbours.append(Neighbour(other, other_number, float(cosines[row])))
        return neighbours

    def languages(self, texts: Sequence[Sentences]) -> np.ndarray | None:
        """Return the language in which each word has the highest relative frequency, or None for
        words that no text contains.

        Returns:
            an array of language names, `[n_words]`; None if the languages of all texts are unknown.
        """
        uses: dict[str, np.ndarray] = {}
        for text in texts:
            if text.lang:
                words = self.in_text(text)
                counts = np.bincount(words[words >= 0], minlength=len(self.words))
                uses[text.lang] = uses.get(text.lang, 0) + counts
        if not uses:
            return None
        frequencies = np.stack([counts / max(1, counts.sum()) for counts in uses.values()])
        # The last name is that of words without any use.
        names = np.array([*uses, None], dtype=object)
        return names[np.where(frequencies.any(axis=0), frequencies.argmax(axis=0), len(uses))]


# -- senses learned in pretraining -----------------------------------------------------------------
def trained_senses(folder: str | PathLike[str]) -> Inventory:
    """Open the senses that `calque pretrain --senses` saved. For ELMo, these are the senses of the
    forward direction; for BERT, the senses of words that are single subwords.

    Raises:
        InputError: a file is missing or corrupt.
    """
    path = Path(folder)
    tables = open_senses(path)
    is_elmo = file_pair(path) is not None and not (path / "config.json").is_file()
    return _elmo_senses(path, tables) if is_elmo else _bert_senses(path, tables)


def _elmo_senses(path: Path, tables: Sequence[SenseTable]) -> Inventory:
    """Return the senses of the forward direction."""
    vocabulary = Vocabulary.open(path)
    if len(tables) != 2 or tables[0].n_words != len(vocabulary):
        raise InputError(
            f"the senses do not belong to the vocabulary of {len(vocabulary):,} words", path=path
        )
    numbers = np.arange(FIRST_WORD, len(vocabulary))
    lower = bool(read_about(path).get("lower"))
    return inventory_of(path.resolve().name, vocabulary.words, numbers, tables[0], lower=lower)


def _bert_senses(path: Path, tables: Sequence[SenseTable]) -> Inventory:
    """Return the senses of the words that are single subwords."""
    table = tables[0]
    _, tokenizer = open_masked(path)
    n_subwords = len(tokenizer)
    if len(tables) != 1 or n_subwords != table.n_words:
        raise InputError(
            f"{table.n_words:,} subwords have senses, but the tokenizer has {n_subwords:,}",
            path=path,
        )
    texts = tokenizer.batch_decode(np.arange(n_subwords)[:, None].tolist())
    words = [text.strip() for text in texts]
    # A subword is a whole word if the tokenizer maps its text back to only this subword.
    subwords = Subwords(tokenizer, max_length=8, vocabulary=n_subwords)
    numbers = np.flatnonzero(subwords.single_subwords(words) == np.arange(n_subwords))
    whole_words = [words[k] for k in numbers.tolist()]
    lower = bool(getattr(tokenizer, "do_lower_case", False))
    return inventory_of(path.resolve().name, whole_words, numbers, table, lower=lower)


def inventory_of(
    name: str, words: Sequence[str], numbers: np.ndarray, table: SenseTable, *, lower: bool = False
) -> Inventory:
    """Return the active senses of the words with indices `numbers` in a table, with the most
    selected senses first. If no sense of a word was ever selected, all its senses have equal
    shares."""
    index, live = table.index.cpu()[numbers], table.active.cpu()[numbers]  # [n, S]
    counts = torch.where(live, table.counts.cpu()[index.clamp(min=0)], -1)
    # Sort the senses of each word by their selections, so that inactive senses (−1) come last.
    n_senses = live.sum(1)
    order = torch.argsort(-counts, dim=1, stable=True)[:, : int(n_senses.max())]
    live, index = live.gather(1, order), index.gather(1, order)
    counts = counts.gather(1, order).clamp(min=0).double()
    shares = torch.where(counts.any(1, keepdim=True), counts, live.double())
    shares = (shares / shares.sum(1, keepdim=True)).numpy()
    vectors = nn.functional.normalize(table.weight.detach().cpu()[index[live]], dim=1, eps=1e-30)
    return Inventory(name, words, n_senses.numpy(), shares, vectors, lower=lower)


# -- states that predict words ---------------------------------------------------------------------
class Contexts(ABC):
    """Reads the hidden states from which a model predicts words.

    Attributes:
        lower: whether the model lower-cases all words.
    """

    lower: bool

    @abstractmethod
    def predicted(self, words: Sequence[str]) -> np.ndarray:
        """Return the mask of words that the model predicts from a single state, bool `[n]`."""

    @abstractmethod
    def covered(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the mask of words that are within the length limit and not dropped by the
        tokenizer, bool `[n_words]`.
        """

    @abstractmethod
    def states(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray) -> Tensor:
        """Return the states that predict the given words, `[n, dim]`.

        Args:
            rows: ascending indices of the words among all words of the sentences, int64 `[n]`.
        """


class ElmoContexts(Contexts):
    """Reads the hidden states from which ELMo predicts words, see `ElmoEncoder.encode_contexts`."""

    def __init__(self, encoder: ElmoEncoder):
        self.encoder, self.lower = encoder, encoder.lower

    def predicted(self, words: Sequence[str]) -> np.ndarray:
        return np.ones(len(words), dtype=bool)

    def covered(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        return np.ones(int(word_counts(sentences).sum()), dtype=bool)

    def states(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray) -> Tensor:
        offsets, parts = offsets_of(word_counts(sentences)), []
        for start in range(0, len(sentences), _WINDOW):
            data = self.encoder.encode_contexts(sentences[start : start + _WINDOW]).data
            first_word = offsets[start]
            first, last = np.searchsorted(rows, [first_word, first_word + len(data)])
            parts.append(torch.from_numpy(data[rows[first:last] - first_word]))
        return torch.cat(parts)


class MaskedContexts(Contexts):
    """Reads the states of masked words in a masked language model: the output of the head's dense
    layer and layer norm.

    In each copy of a sentence, every `EVERY`-th word is masked. `read` returns the states of a
    batch, `[n, length, dim]`.
    """

    def __init__(self, encoder: HuggingFaceEncoder, read: Callable[[WordBatch], Tensor]):
        self.encoder, self._read = encoder, read
        self.lower = encoder.lower

    def predicted(self, words: Sequence[str]) -> np.ndarray:
        return self.encoder.single_subwords(words) >= 0

    def covered(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        return self.encoder.split(sentences).covered

    def states(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray) -> Tensor:
        mask_id: Any = self.encoder.mask_id
        copies, order = _masked(self.encoder.split(sentences), rows, mask_id)
        n_masked = np.diff(copies.word_offsets)  # number of masked words in each copy
        parts, places = [], []
        with arithmetic("highest"), torch.inference_mode():
            for numbers in token_batches(copies.lengths, self.encoder.budget):
                batch = collate(copies, numbers).to(self.encoder.device)
                states = self._read(batch).flatten(0, 1)
                parts.append(states[batch.starts].float().cpu())
                places.append(order[ranges(copies.word_offsets[numbers], n_masked[numbers])])
        states = torch.cat(parts)
        return torch.empty_like(states).index_copy_(
            0, torch.from_numpy(np.concatenate(places)), states
        )


def open_contexts(encoder: Encoder) -> Contexts:
    """Return an object that reads the hidden states from which an encoder predicts words.

    Raises:
        SettingError: the encoder is neither ELMo nor a Hugging Face encoder with a mask token.
    """
    if isinstance(encoder, ElmoEncoder):
        return ElmoContexts(encoder)
    if not isinstance(encoder, HuggingFaceEncoder) or encoder.mask_id is None:
        raise SettingError(
            f"senses need an ELMo or a model with a mask token, but {encoder.name} predicts no "
            "words from context"
        )
    try:
        masked, _ = open_masked(encoder.place)
    except InputError:  # aligned encoders and sentence encoders have no language-model head
        return MaskedContexts(encoder, encoder.last_hidden_states)
    model: Any = without_output(masked)
    model.to(encoder.device)

    def read(batch: WordBatch) -> Tensor:
        return model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits

    return MaskedContexts(encoder, read)


def without_output(model: PreTrainedModel) -> PreTrainedModel:
    """Remove the output layer of a Hugging Face masked language model, so that its logits are the
    input of that layer.
    """
    output: Any = nn.Identity()
    output.bias = None  # some models add the bias of the output layer themselves
    model.set_output_embeddings(output)
    return model.eval()


def _masked(
    split: SplitSentences, rows: np.ndarray, mask_id: int
) -> tuple[SplitSentences, np.ndarray]:
    """Return copies of the sentences with masked words, and the index in `rows` of each masked
    word.

    Args:
        rows: ascending indices of the words to mask, which are single subwords, int64 `[n]`.
    """
    sentence = np.searchsorted(split.word_offsets, rows, side="right") - 1
    position = rows - split.word_offsets[sentence]
    # Each copy is identified by its sentence and by the remainder of the positions that are masked.
    keys, copy = np.unique(sentence * EVERY + position % EVERY, return_inverse=True)
    order = np.argsort(copy, kind="stable")
    copies, starts = split.take(keys // EVERY), split.word_starts[rows[order]]
    copies.ids[copies.offsets[copy[order]] + starts] = mask_id
    masked = SplitSentences(
        copies.ids,
        copies.offsets,
        offsets_of(np.bincount(copy, minlength=len(keys))),
        starts,
        np.ones_like(starts),
        pad_id=split.pad_id,
    )
    return masked, order


# -- senses induced from text ----------------------------------------------------------------------
class ContextSenses(Inventory):
    """Senses induced from text by clustering the states that predict a word, see `split_words`.

    Senses are induced for the 2,000 most frequent words that contain a letter and occur at least
    `MIN_VECTORS` times. Up to 200 random occurrences of each word are clustered. `select` assigns
    each occurrence to the sense with the nearest centroid.

    Args:
        contexts: object that reads the hidden states of the model, see `open_contexts`.
        name: name of the model.
        texts: texts to induce the senses from.
        word: word that is included even if 2,000 words are more frequent.
        seed: seed for the sample and for `split_words`.

    Raises:
        SettingError: fewer than `FEWEST_WORDS` words are frequent enough.
    """

    lacks = f"does not occur {MIN_VECTORS} times in the text, or the model cannot predict it"

    def __init__(
        self,
        contexts: Contexts,
        name: str,
        texts: Sequence[Sentences],
        *,
        word: str = "",
        seed: int = 0,
    ):
        self.contexts = contexts
        words = _frequent_words(contexts, texts, word)
        sampled = _sampled_states(contexts, texts, words, seed)
        sampled = {word: states for word, states in sampled.items() if len(states) >= MIN_VECTORS}
        if len(sampled) < FEWEST_WORDS:
            raise SettingError(
                f"at least {FEWEST_WORDS} words must occur {MIN_VECTORS} times to decide which "
                f"words have several senses, got {len(sampled)}; give more text"
            )
        word_states = list(sampled.values())
        self._mean, self._axes = discriminant_axes(word_states)
        word_labels = split_words(word_states, seed=seed)
        n_senses = np.array([labels.max() + 1 for labels in word_labels])
        shares, centres = np.zeros((len(sampled), n_senses.max())), []
        for k, (states, labels) in enumerate(zip(word_states, word_labels, strict=True)):
            shares[k] = np.bincount(labels, minlength=n_senses.max()) / len(labels)
            projected = self._projected(states)
            centres += [projected[labels == sense].mean(0) for sense in range(n_senses[k])]
        self._centres = np.stack(centres)  # [n_senses, k], sorted by word
        self._first = offsets_of(n_senses)  # first centre of each word
        vectors = torch.from_numpy(unit_rows(self._centres))
        super().__init__(name, list(sampled), n_senses, shares, vectors, lower=contexts.lower)

    def _projected(self, states: np.ndarray) -> np.ndarray:
        return unit_rows((states - self._mean) @ self._axes)

    def select(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the sense number of each word, from 1, or 0 for a word without senses or without a
        vector, int64 `[n_words]`.
        """
        selected = [np.zeros(0, dtype=np.int64)]
        for start in range(0, len(sentences), _WINDOW):
            selected.append(self._select(sentences[start : start + _WINDOW]))
        return np.concatenate(selected)

    def _select(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Compute `select` for sentences whose states fit into memory."""
        words = self.in_text(sentences)
        has_senses = self.contexts.covered(sentences) & (words >= 0)
        senses = has_senses.astype(np.int64)
        # A word with one sense has sense 1. Only other words need their states.
        rows = np.flatnonzero(has_senses & (self.n_senses[words] > 1))
        if not len(rows):
            return senses
        x = self._projected(self.contexts.states(sentences, rows).numpy())
        for word in np.unique(words[rows]).tolist():
            is_word = words[rows] == word
            centres = self._centres[self._first[word] : self._first[word + 1]]
            distances = ((x[is_word, None] - centres) ** 2).sum(2)  # squared, [n, n_senses]
            senses[rows[is_word]] = distances.argmin(1) + 1
        return senses

    def occurrences(
        self, word: int, texts: Sequence[Sentences]
    ) -> tuple[np.ndarray, list[list[dict[str, Any]]]]:
        """Count the occurrences of a word for each sense (0: no sense), int64 `[n_senses + 1]`, and
        collect example sentences.
        """
        counts = np.zeros(int(self.n_senses[word]) + 1, dtype=np.int64)
        examples: list[list[dict[str, Any]]] = [[] for _ in counts]
        for text in texts:
            offsets, rows = offsets_of(text.lengths()), np.flatnonzero(self.in_text(text) == word)
            sentence = np.searchsorted(offsets, rows, side="right") - 1
            position = rows - offsets[sentence]
            # Only the sentences that contain the word are read.
            part = text.take(np.unique(sentence))
            senses = self.select(part)[self.in_text(part) == word]
            counts += np.bincount(senses, minlength=len(counts))
            places = zip(sentence.tolist(), position.tolist(), senses.tolist(), strict=True)
            for k, place, sense in places:
                if len(examples[sense]) == _EXAMPLES:
                    continue
                words = list(text[k].words)
                if all(example["words"] != words for example in examples[sense]):
                    examples[sense].append(
                        {"words": words, "place": place, "lang": text.lang or None}
                    )
        return counts, examples


def _frequent_words(contexts: Contexts, texts: Sequence[Sentences], word: str) -> list[str]:
    """Return the `_WORDS` most frequent words that may have senses, and `word` if it may have
    senses.
    """
    vocabulary: dict[str, int] = {}
    numbered = [
        number_words(text, lower=contexts.lower, vocabulary=vocabulary)[1] for text in texts
    ]
    counts = np.zeros(len(vocabulary), dtype=np.int64)
    for numbers in numbered:
        counts += np.bincount(numbers, minlength=len(vocabulary))
    types, order = list(vocabulary), np.argsort(-counts, kind="stable")
    frequent = [types[k] for k in order[counts[order] >= MIN_VECTORS].tolist()]
    with_letters = [form for form in frequent if any(map(str.isalpha, form))]
    is_predicted = contexts.predicted(with_letters)
    words = [with_letters[k] for k in np.flatnonzero(is_predicted).tolist()]
    wanted = word.lower() if contexts.lower else word
    return words[:_WORDS] + [other for other in words[_WORDS:] if other == wanted]


def _sampled_states(
    contexts: Contexts, texts: Sequence[Sentences], words: Sequence[str], seed: int
) -> dict[str, np.ndarray]:
    """Return the states of up to `_OCCURRENCES` random occurrences of each word, `[n, dim]`, in
    text order. Words without any state are left out.
    """
    index = WordIndex(words, lower=contexts.lower)
    text_numbers = [index.in_text(text) for text in texts]
    numbers = np.concatenate(text_numbers)
    rng, is_drawn = np.random.default_rng(seed), np.zeros(len(numbers), dtype=bool)
    for places in _places_by_word(numbers, len(words)):
        is_drawn[places[rng.permutation(len(places))[:_OCCURRENCES]]] = True
    ends = np.cumsum([len(numbers) for numbers in text_numbers])
    parts: list[list[np.ndarray]] = [[] for _ in words]
    for text, numbers, drawn in zip(
        texts, text_numbers, np.split(is_drawn, ends[:-1]), strict=True
    ):
        rows = np.flatnonzero(drawn & contexts.covered(text))
        if not len(rows):
            continue
        states = contexts.states(text, rows).numpy()
        for word, places in enumerate(_places_by_word(numbers[rows], len(words))):
            if len(places):
                parts[word].append(states[places])
    return {
        word: np.concatenate(word_parts)
        for word, word_parts in zip(words, parts, strict=True)
        if word_parts
    }


def _places_by_word(numbers: np.ndarray, n_words: int) -> list[np.ndarray]:
    """Return the ascending positions of each word in an array of word indices, which may also
    contain −1.
    """
    order = np.argsort(numbers, kind="stable")
    firsts = np.searchsorted(numbers[order], np.arange(n_words))
    return np.split(order, firsts)[1:]  # the first part contains −1


# -- calque senses ---------------------------------------------------------------------------------
def read_texts(
    texts: Sequence[str],
    *,
    format: str = AUTO,
    pretokenized: bool = False,
    limit: int | None = None,
) -> list[Sentences]:
    """Read files with one sentence per line. Each file must be given as `de=FILE`, or its name must
    contain the language.

    Raises:
        InputError: a file cannot be read.
        SettingError: the language of a text is unknown, and `pretokenized` is false.
    """
    # Only the tokeniser needs the language.
    default = "und" if pretokenized else None
    sentences = []
    for text in texts:
        lang, path = language_and_path(text, default)
        if lang == "und":
            lang = ""
        sentences.append(
            read_sentences(path, lang=lang, format=format, pretokenized=pretokenized, limit=limit)
        )
    return sentences


def senses(
    folder: str | Path,
    word: str,
    texts: Sequence[str] = (),
    *,
    k: int = 10,
    trained: bool = False,
    format: str = AUTO,
    pretokenized: bool = False,
    limit: int | None = None,
) -> dict[str, Any]:
    """Return the senses of a word with their frequency, the nearest senses of other words, and
    example sentences.

    Arguments not listed here are the options of `calque senses`.

    Args:
        texts: files with one sentence per line, given as `de=FILE` if the name does not contain the
            language. Senses are induced from these texts (see `ContextSenses`). With `trained`,
            they only determine the language of each word.

    Returns:
        `word`, `model`, `trained`, and `senses`, the most frequent sense first. Each sense has a
        `number`, its `share` of the word's occurrences (in a sample of the texts, or in training),
        and `nearest` senses with `word`, `number`, `cosine` and `lang`. Induced senses also have
        `chosen`, their number of occurrences, and example `sentences` with `words`, `lang` and the
        `place` of the word. If senses are induced, `occurrences` is the total of `chosen` over all
        senses.

    Raises:
        InputError: the folder contains no model or no senses, or a text cannot be read.
        SettingError: the word is not in the vocabulary or is too rare, or there is no text to
            induce senses from.
    """
    read = read_texts(texts, format=format, pretokenized=pretokenized, limit=limit)
    inventory = trained_senses(folder) if trained else _induced(folder, read, word)
    number, langs = inventory.find(word), inventory.languages(read)
    result: dict[str, Any] = {
        "word": inventory.words[number],
        "model": inventory.name,
        "trained": trained,
    }
    word_senses: list[dict[str, Any]] = []
    for sense in range(1, int(inventory.n_senses[number]) + 1):
        word_senses.append(
            {
                "number": sense,
                "share": round(float(inventory.shares[number, sense - 1]), 4),
                "nearest": _nearest_by_language(inventory, number, sense, k, langs),
            }
        )
    if isinstance(inventory, ContextSenses):
        counts, examples = inventory.occurrences(number, read)
        result["occurrences"] = int(counts[1:].sum())
        for about in word_senses:
            about["chosen"] = int(counts[about["number"]])
            about["sentences"] = examples[about["number"]]
    return {**result, "senses": word_senses}


def _nearest_by_language(
    inventory: Inventory, word: int, sense: int, k: int, langs: np.ndarray | None
) -> list[dict[str, Any]]:
    """Return the k nearest senses in each language.

    Args:
        langs: language of each word or None, `[n_words]`; None if no language is known.
    """
    masks: list[np.ndarray | None] = [None]
    if langs is not None:
        names = sorted({lang for lang in langs.tolist() if lang})
        if len(names) > 1:
            masks = [langs == name for name in names]
    neighbours = []
    for mask in masks:
        for near in inventory.nearest(word, sense, k, mask):
            neighbours.append(
                {
                    "word": inventory.words[near.word],
                    "number": near.number,
                    "cosine": round(near.cosine, 4),
                    "lang": None if langs is None else langs[near.word],
                }
            )
    return neighbours


def write_senses(
    folder: str | Path,
    texts: Sequence[str],
    out: str | Path,
    *,
    format: str = AUTO,
    pretokenized: bool = False,
    limit: int | None = None,
) -> dict[str, int]:
    """Write the sense numbers of the words in each line of the texts, with `-` for a word without
    senses.

    Returns:
        the number of `lines`, of `words`, and of `known` words, i.e. words with senses.

    Raises:
        InputError, SettingError: see `senses`.
    """
    read = read_texts(texts, format=format, pretokenized=pretokenized, limit=limit)
    inventory = _induced(folder, read)
    totals = {"lines": 0, "words": 0, "known": 0}

    def lines() -> Iterator[str]:
        for text in read:
            senses = inventory.select(text)
            offsets = offsets_of(text.lengths())
            for start, end in pairwise(offsets.tolist()):
                yield " ".join(str(n) if n else "-" for n in senses[start:end].tolist()) + "\n"
            totals["lines"] += len(text)
            totals["words"] += len(senses)
            totals["known"] += int((senses > 0).sum())

    write_lines(out, lines())
    return totals


def _induced(folder: str | Path, texts: Sequence[Sentences], word: str = "") -> ContextSenses:
    """Induce senses from texts with the encoder in a folder."""
    if not texts:
        raise SettingError(
            "senses are induced from text; add --text FILE, or --trained for the senses learned in "
            "pretraining"
        )
    encoder = load_encoder(str(folder))
    return ContextSenses(open_contexts(encoder), encoder.name, texts, word=word)


def table(result: Mapping[str, Any]) -> str:
    """Format the result of `senses` as text."""
    word, n_senses = result["word"], len(result["senses"])
    plural = "s" if n_senses > 1 else ""
    lines = [f"{word}: {n_senses} sense{plural} ({result['model']})"]
    uses = "uses in training" if result["trained"] else "uses in a sample of the text"
    for sense in result["senses"]:
        lines += ["", f"{word}_{sense['number']}  {100 * sense['share']:.1f}% of its {uses}"]
        by_lang: dict[str | None, list[str]] = {}
        for near in sense["nearest"]:
            shown = f"{near['word']}_{near['number']} {near['cosine']:.2f}"
            by_lang.setdefault(near["lang"], []).append(shown)
        for lang, neighbours in by_lang.items():
            where = f" in {lang}" if lang and len(by_lang) > 1 else ""
            lines.append(f"  nearest{where}: {', '.join(neighbours)}")
        if "chosen" in sense:
            lines.append(f"  {sense['chosen']:,} of {result['occurrences']:,} in the text")
            for example in sense["sentences"]:
                lines.append(f"    {_marked(example['words'], example['place'])}")
    return "\n".join(lines)


def _marked(words: Sequence[str], place: int) -> str:
    """Return a word in brackets with up to eight words on each side."""
    first, last = max(0, place - 8), place + 9
    marked = [*words[first:place], f"[{words[place]}]", *words[place + 1 : last]]
    if first:
        marked.insert(0, "…")
    if last < len(words):
        marked.append("…")
    return " ".join(marked)
