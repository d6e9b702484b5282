"""A bidirectional language model of words: ELMo's network and what predicts words from its states."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from calque.encoders.batches import token_batches
from calque.encoders.elmo import ElmoEncoder, character_rows, sentence_ends
from calque.encoders.sense_files import has_senses, save_senses
from calque.errors import InputError, SettingError
from calque.nn.elmo import ElmoNetwork
from calque.nn.ragged import Ragged
from calque.offsets import offsets_of
from calque.pretraining.softmax import SenseSoftmax, WordSoftmax
from calque.pretraining.words import UNKNOWN, Vocabulary, WordText
from calque.text import Sentence

SOFTMAX_FILE = "softmax.safetensors"


class Contexts(NamedTuple):
    """What is known before each word, read from the left, and read from the right.

    Attributes:
        states: two of `[n, dim]`: forwards, of every place but a text's last; backwards, of every place but its first.
        following: two int64 `[n]`: the number of the word that comes next in that direction.
        own: for each direction two of `[n, dim]`: the states, read from the left and from the right, after that word has
            been read, too; no gradient comes from them.
    """

    states: tuple[Tensor, Tensor]
    following: tuple[np.ndarray, np.ndarray]
    own: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean of −log p.

    Attributes:
        forward, backward: of each direction.
        both: of the two together.
        unigram: of the same words by the frequency that they had in the training text, with one added.
        words: predictions in each direction: the words, and the end of each sentence.
        unknown: how many of them are of words outside the vocabulary, all of which count as one.
    """

    forward: float
    backward: float
    both: float
    unigram: float
    words: int
    unknown: int

    @classmethod
    def of(cls, sums: np.ndarray) -> Perplexity:
        """From what `WordModel.negative_log_likelihood` gives."""
        forward, backward, unigram, n, unknown = sums.sum(axis=0).tolist()
        values = [math.exp(total / n) for total in (forward, backward, (forward + backward) / 2, unigram)]
        return cls(*values, words=int(n), unknown=int(unknown))


class WordModel(nn.Module):
    """p(w_t | w_1 … w_{t−1}) and p(w_t | w_{t+1} … w_n), a word's characters in and its number out.

    Args:
        network: of ELMo.
        head: predicts from its last layer.
        vocabulary: what is predicted.
        lower: whether words are read in lower case.
    """

    def __init__(
        self, network: ElmoNetwork, head: WordSoftmax | SenseSoftmax, vocabulary: Vocabulary, *, lower: bool = False
    ):
        super().__init__()
        self.network, self.head, self.vocabulary, self.lower = network, head, vocabulary, lower

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def rows(self, forms: Sequence[str]) -> np.ndarray:
        """Characters of the forms of a text, int16 `[UNKNOWN + 1 + n, length]`, at the numbers that `WordText` gives."""
        length = self.network.words.max_characters
        nobody = np.ones((1, length), dtype=np.int16)  # what is not predicted is read by its characters
        return np.concatenate([sentence_ends(length), nobody, character_rows(forms, length)])

    def contexts(
        self, rows: np.ndarray, ids: np.ndarray, lengths: np.ndarray, drop: Callable[[Tensor], Tensor] = lambda x: x
    ) -> Contexts:
        """Read some texts.

        Args:
            rows: see `rows`.
            ids: numbers of forms, of all texts in a row `[N]`.
            lengths: int64 `[n_texts]`, 2 at least.
            drop: dropout, as in `ElmoNetwork.read`.
        """
        types, place = np.unique(ids, return_inverse=True)
        words = self.network.words(torch.from_numpy(rows[types]).to(self.device))
        ragged = Ragged(lengths)
        left, right = self.network.read(words[torch.from_numpy(place).to(self.device)], ragged, drop=drop)
        inner = np.ones(len(ids), dtype=bool)
        inner[ragged.offsets[:-1]] = False
        not_first, not_last = np.flatnonzero(inner), np.flatnonzero(np.roll(inner, -1))
        numbers = np.where(ids < len(self.vocabulary), ids, UNKNOWN).astype(np.int64)
        after, before = (torch.from_numpy(places).to(self.device) for places in (not_first, not_last))
        forwards, backwards = left[-1], right[-1]
        return Contexts(
            (forwards[before], backwards[after]),
            (numbers[not_first], numbers[not_last]),
            (
                (forwards.detach()[after], backwards.detach()[after]),
                (forwards.detach()[before], backwards.detach()[before]),
            ),
        )

    def perplexity(self, sentences: Iterable[Sentence | Sequence[str]], *, budget: int = 4096) -> Perplexity:
        """Negative log-likelihood of each word and each sentence end, over the whole vocabulary.

        Args:
            sentences: of any language; those without words are passed over.
            budget: words read at a time.

        Raises:
            SettingError: no words.
        """
        return Perplexity.of(self.negative_log_likelihood(sentences, budget=budget))

    @torch.inference_mode()
    def negative_log_likelihood(
        self, sentences: Iterable[Sentence | Sequence[str]], *, budget: int = 4096
    ) -> np.ndarray:
        """What a perplexity is made of, sentence by sentence.

        Returns:
            float64 `[n_sentences, 5]`, sums over the predictions in each sentence that has words: −log p forwards,
            backwards, and by frequency alone; their number, and how many of them are of unknown words.

        Raises:
            SettingError: no words.
        """
        text = WordText.seen_by(self.vocabulary, sentences, lower=self.lower)
        rows, (blocks,) = self.rows(text.forms), text.blocks.values()
        if not len(blocks):
            raise SettingError("no words to measure the perplexity on")
        frequency, training = -np.log(self.vocabulary.unigram()), self.training
        sums = np.zeros((len(blocks), 5))
        self.eval()
        for numbers in token_batches(blocks.lengths, budget):
            ids = np.concatenate([blocks.ids[blocks.offsets[k] : blocks.offsets[k + 1]] for k in numbers])
            states, following, _ = self.contexts(rows, ids, blocks.lengths[numbers])
            losses = np.zeros((len(following[0]), 5))
            for side in (0, 1):
                words = torch.from_numpy(following[side]).to(self.device)
                losses[:, side] = self.head.negative_log_likelihood(states[side], words, side).double().cpu().numpy()
                losses[:, 2] += frequency[following[side]] / 2
            losses[:, 3], losses[:, 4] = 1, following[0] == UNKNOWN
            predictions = blocks.lengths[numbers] - 1
            sums[numbers] = np.add.reduceat(losses, offsets_of(predictions)[:-1])
        self.train(training)
        return sums

    def encoder(self, name: str = "elmo") -> ElmoEncoder:
        """The network as an encoder, which shares its weights."""
        return ElmoEncoder(self.network, name=name, lower=self.lower)

    def save(self, folder: str | Path, senses: Mapping[str, Any] | None = None) -> None:
        """Write the encoder, and beside it what predicts words: `vocabulary.json` and `softmax.safetensors`, or
        `senses.safetensors`.

        Args:
            folder: where to.
            senses: how they were found, for the file of those that there are.
        """
        path = Path(folder)
        self.encoder().save(path)
        self.vocabulary.save(path)
        if isinstance(self.head, SenseSoftmax):
            save_senses(self.head.senses, path, senses or {})
            return
        weights = {name: value.detach().cpu().contiguous() for name, value in self.head.state_dict().items()}
        save_file(weights, path / SOFTMAX_FILE)

    @classmethod
    def open(cls, folder: str | Path) -> WordModel:
        """Read what `save` wrote.

        Raises:
            InputError: a file is missing or damaged.
        """
        path = Path(folder)
        encoder, vocabulary = ElmoEncoder.open(path, device="cpu"), Vocabulary.open(path)
        network = encoder.network
        if has_senses(path):
            senses = SenseSoftmax.open(path, words=len(vocabulary), dim=network.size, tables=2)
            return cls(network, senses, vocabulary, lower=encoder.lower)
        try:
            weights = load_file(path / SOFTMAX_FILE)
            tables = 2 if "weight.1" in weights else 1
            head = WordSoftmax(len(vocabulary), network.size, tables=tables)
            head.load_state_dict(weights)
        except Exception as error:  # whatever a damaged file provokes
            reason = str(error).strip().splitlines()[0]
            raise InputError(f"not the softmax of this model ({reason})", path=path / SOFTMAX_FILE) from error
        return cls(network, head, vocabulary, lower=encoder.lower)
