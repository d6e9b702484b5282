"""Train a bidirectional language model (ELMo) from scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.encoders.batches import token_batches
from calque.errors import SettingError, check_number
from calque.input_texts import Say
from calque.nn.ragged import Ragged
from calque.offsets import offsets_of, ranges
from calque.senses.elmo import ElmoEncoder, ElmoNetwork, character_rows, elmo_options, sentence_ends
from calque.senses.sense_table import Negatives, Softmax, Targets, WordTable
from calque.senses.text import FIRST_WORD, UNKNOWN, Mixture, Vocabulary, WordText
from calque.senses.training import (
    LanguageModel,
    Prediction,
    Pretrained,
    Selected,
    SenseTraining,
    Update,
)
from calque.spec import Count, Share, option
from calque.text import Sentence, Sentences
from calque.training.loop import Schedule, adam

# the loss is multiplied by bilm-tf's unroll_steps, so that clipping and Adagrad act as in bilm-tf
LOSS_SCALE = 20.0


def adagrad(parameters: list[torch.nn.Parameter], schedule: Schedule) -> torch.optim.Optimizer:
    """Return an Adagrad optimiser (Duchi et al. 2011) with initial accumulators of 1, as in
    bilm-tf.
    """
    return torch.optim.Adagrad(parameters, lr=schedule.rate(0, 1), initial_accumulator_value=1.0)


OPTIMISERS = {"adam": adam, "adagrad": adagrad}


@dataclass(frozen=True, kw_only=True)
class PretrainedElmo(Pretrained):
    """Trained bidirectional language model."""

    encoder: ElmoEncoder
    model: WordModel

    @property
    def sizes(self) -> tuple[int, int]:
        n_parameters = sum(parameter.numel() for parameter in self.model.network.parameters())
        return len(self.model.vocabulary), n_parameters

    def save(self, folder: Path) -> None:
        self.model.save(folder, self.settings.get("senses", {}))


@dataclass(frozen=True, kw_only=True)
class BiLanguageModel(LanguageModel):
    """Trains ELMo from scratch to predict each word from the preceding or from the following words
    (Peters et al. 2018, §3).

    Both directions share the word vectors and, unless `tables` is 2, the softmax. The loss is the
    mean over both directions. Each sentence is read separately, as in the encoder, whereas bilm-tf
    reads the text as a stream of 20-word segments.
    """

    unit = "words"
    dim: Count = option(
        128,
        "dimension of a word vector and of each direction's hidden state; the vectors of a layer "
        "have 2 · dim dimensions.",
    )
    learning_rate: float | None = option(
        None,
        "maximum learning rate; default for Adagrad: 0.2; for Adam: 5e-3 up to 128 dimensions, and "
        "0.64 / dim above.",
    )
    hidden: Count | None = option(
        None, "dimension of an LSTM cell; default: 8 · dim, as in the paper."
    )
    layers: Count = option(2, "number of LSTM layers.")
    filters: Sequence[tuple[int, int]] | None = option(
        None,
        "(width, number) pairs of the character filters; default: as in the paper, with numbers "
        "proportional to `dim`.",
    )
    vocabulary: Count = option(
        100_000,
        "maximum number of words to predict. Rarer words share one output class. The input always "
        "uses characters.",
    )
    min_count: Count = option(
        2, "a word must occur at least this often in the training text to be predicted."
    )
    negatives: Count = option(
        8192, "number of negative words sampled for each direction in an update."
    )
    tables: Count = option(
        1,
        "1 if both directions share their output vectors, else 2. With `senses`, the directions "
        "never share vectors.",
    )
    dropout: Share = option(
        0.1,
        "dropout probability for the input of each LSTM layer and for the output of the last "
        "layer.",
    )
    optimiser: Literal["adam", "adagrad"] = option(
        "adam",
        '"adam", or "adagrad" as in the paper. After a few hundred updates, Adam reaches half the '
        "perplexity of Adagrad.",
    )
    clip: float | None = 10.0

    def __post_init__(self):
        if self.optimiser not in OPTIMISERS:
            raise SettingError(
                f"optimiser must be {' or '.join(OPTIMISERS)}, got {self.optimiser!r}"
            )
        super().__post_init__()
        for name in ("vocabulary", "layers"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("dropout", self.dropout, least=0, below=1)
        with torch.device("meta"):  # these are built only to check the arguments
            ElmoNetwork(self.options)
            Softmax([WordTable(1, 1)] * self.tables, negatives=self.negatives)

    @property
    def options(self) -> dict[str, Any]:
        """Content of `options.json` for the network."""
        filters = None if self.filters is None else tuple(self.filters)
        return elmo_options(dim=self.dim, hidden=self.hidden, layers=self.layers, filters=filters)

    def default_rate(self) -> float:
        return 0.2 if self.optimiser == "adagrad" else 5e-3 * min(1.0, 128 / self.dim)

    def settings(self) -> dict[str, Any]:
        names = (
            "vocabulary",
            "min_count",
            "negatives",
            "tables",
            "dropout",
            "length",
            "alpha",
            "batch",
            "updates",
            "optimiser",
            "precision",
            "seed",
        )
        settings = {"method": "bidirectional language model", "options": self.options}
        settings |= {name: getattr(self, name) for name in names}
        if self.lower:
            settings["lower"] = True
        return {**settings, **super().settings()}

    def train(
        self,
        texts: Mapping[str, Sentences],
        *,
        dictionaries: Sequence[Dictionary] = (),
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
        say: Say = lambda line: None,
    ) -> PretrainedElmo:
        """Train a new encoder."""
        processes = Processes(self.precision)
        text = WordText.of(
            texts,
            size=self.vocabulary + FIRST_WORD,
            min_count=self.min_count,
            length=self.length,
            alpha=self.alpha,
            lower=self.lower,
        )
        vocabulary, languages = text.vocabulary, list(text.blocks)
        mixture = Mixture(text.blocks, batch=self.batch, alpha=self.alpha, seed=self.seed)
        torch.manual_seed(self.seed)
        network = ElmoNetwork(self.options)
        model = WordModel(network, self._head(vocabulary), vocabulary, lower=self.lower)
        model.to(processes.device).train()
        translations = self._translations(dictionaries, languages, vocabulary.index)
        training = self._sense_training(model.head, translations, processes)
        settings = self.settings()
        history = self._run(
            WordPrediction(model, text, mixture, self.dropout, processes, training),
            settings=settings,
            identity={"words": vocabulary.fingerprint},
            folder=folder,
            checkpoint_every=checkpoint_every,
            progress=progress,
            optimiser=OPTIMISERS[self.optimiser],
        )
        model.eval()
        return PretrainedElmo(
            encoder=model.encoder("pretrained"),
            model=model,
            softmax=model.head,
            settings=settings,
            lower=self.lower,
            translations=translations,
            mixture=mixture,
            history=history,
        )

    def _head(self, vocabulary: Vocabulary) -> Softmax:
        dim = self.options["lstm"]["projection_dim"]
        if self.senses is None:
            tables = [WordTable(len(vocabulary), dim) for _ in range(self.tables)]
            return Softmax(tables, negatives=self.negatives)
        counts = vocabulary.counts.copy()
        counts[:UNKNOWN] = 0  # boundary tokens have only one sense
        return Softmax(self.senses.tables(counts, dim, 2), negatives=self.negatives)


class WordPrediction(Prediction):
    """Objective: mean cross-entropy of word predictions over both directions. The blocks of
    `mixture` are those of `text`.
    """

    def __init__(
        self,
        model: WordModel,
        text: WordText,
        mixture: Mixture,
        dropout: float,
        processes: Processes,
        training: SenseTraining | None = None,
    ):
        super().__init__(model, mixture, processes, training)
        self.model, self.dropout = model, dropout
        self._rows = model.rows(text.word_types)

    def backward(self, update: Update) -> dict[str, float]:
        parts = [(self.mixture.languages[lang], numbers) for lang, numbers in update]
        ids = np.concatenate([blocks.rows(numbers) for blocks, numbers in parts])
        lengths = np.concatenate([blocks.lengths[numbers] for blocks, numbers in parts])
        predictions = lengths - 1  # number of predictions per sentence in each direction
        # `Loop` adds the rank to the seed of each update. Subtract it, so that all processes draw
        # the same negatives.
        seed = torch.initial_seed()
        negatives = self.model.head.draw(np.random.default_rng([seed - self.processes.rank, 1]))
        shard = self.processes.share(np.arange(len(lengths)))  # sentences of this process
        loss, selected = torch.zeros((), device=self.model.device), [None, None]
        if len(shard):
            rng = np.random.default_rng([seed, 2, 0])
            drop = _dropout(self.dropout, rng, self.processes.device)
            shard_ids = ids[ranges(offsets_of(lengths)[shard], lengths[shard])]
            languages = np.repeat(self._languages(update)[shard], predictions[shard])
            with self.processes.autocast():
                contexts = self.model.contexts(self._rows, shard_ids, lengths[shard], drop)
                losses, selected = [], []
                for side in (0, 1):
                    total, side_selected = self._term(
                        contexts, side, negatives[side], torch.from_numpy(languages)
                    )
                    losses.append(total)
                    selected.append(side_selected)
                # The mean is over the predictions of all processes, whose gradients are summed.
                loss = (losses[0] + losses[1]) / (2 * int(predictions.sum()))
            (LOSS_SCALE * loss).backward()
        return self._finish(loss, selected, predictions)

    def _term(
        self, contexts: Contexts, side: int, negatives: Negatives | None, languages: Tensor
    ) -> tuple[Tensor, Selected | None]:
        """Return the summed loss of one direction and the selected senses.

        Args:
            side: 0 is forward, 1 is backward.
            languages: language of each prediction, int64 `[n]`.
        """
        states, head, training = contexts.states[side], self.model.head, self.training
        words = torch.from_numpy(contexts.following[side]).to(states.device)
        if training is None:
            targets = Targets(words[:, None], words.new_ones(len(words), 1))
            return head.loss(states, targets, side, negatives), None
        # A word is predicted from the state before it, h_{k−1}, but the states of the word itself,
        # h_k, select its sense (§3.1).
        word_states = contexts.own[side]
        if training.settings.grouped:
            selecting = dict(enumerate(word_states))  # both directions select the same sense
        else:
            selecting = {side: word_states[side]}
        targets = training.targets(selecting, words, languages.to(states.device))
        selected = Selected(
            torch.cat([states.detach(), word_states[side]], dim=1).float(),
            torch.stack([words, targets.classes[:, 0], torch.ones_like(words)], dim=1),
        )
        return head.loss(states, targets, side, negatives), selected


def _dropout(
    probability: float, rng: np.random.Generator, device: torch.device
) -> Callable[[Tensor], Tensor]:
    """Return a dropout function with its own random generator, so that a resumed run draws the same
    masks.
    """
    generator = torch.Generator(device).manual_seed(int(rng.integers(1 << 62)))
    keep = 1 - probability

    def drop(x: Tensor) -> Tensor:
        if not probability:
            return x
        mask = torch.empty_like(x).bernoulli_(keep, generator=generator)
        return x * mask.div_(keep)

    return drop


# -- the model -------------------------------------------------------------------------------------
class Contexts(NamedTuple):
    """Hidden states of both directions, from which the words are predicted."""

    # forward states of all words except the last of each text, and backward states of all words
    # except the first, `[n, dim]`
    states: tuple[Tensor, Tensor]
    # index of the word that each state predicts, int64 `[n]`
    following: tuple[np.ndarray, np.ndarray]
    # for each direction of prediction: detached forward and backward states of predicted words
    own: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


class WordModel(nn.Module):
    """Language model for p(w_t | w_1 … w_{t−1}) and p(w_t | w_{t+1} … w_n) that reads words as
    characters.
    """

    def __init__(
        self, network: ElmoNetwork, head: Softmax, vocabulary: Vocabulary, *, lower: bool = False
    ):
        super().__init__()
        self.network, self.head, self.vocabulary, self.lower = network, head, vocabulary, lower

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def rows(self, word_types: Sequence[str]) -> np.ndarray:
        """Return the character ids of the word types of a `WordText`, int16 `[FIRST_WORD + n,
        length]`.
        """
        length = self.network.words.max_characters
        # The row of `UNKNOWN` is not used, because out-of-vocabulary words also have character ids.
        unknown = np.ones((1, length), dtype=np.int16)
        return np.concatenate([sentence_ends(length), unknown, character_rows(word_types, length)])

    def contexts(
        self,
        rows: np.ndarray,
        ids: np.ndarray,
        lengths: np.ndarray,
        drop: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> Contexts:
        """Return the hidden states for several texts; `drop` is the dropout function of the
        network.

        Args:
            rows: character ids of the word types, see the method `rows`.
            ids: word-type index of each word in the concatenated texts, `[N]`.
            lengths: number of words in each text, int64 `[n_texts]`; at least 2.
        """

        def on_device(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(self.device)

        # The character CNN reads each word type once.
        types, place = np.unique(ids, return_inverse=True)
        words = self.network.words(on_device(rows[types]))
        ragged = Ragged(lengths)
        left_layers, right_layers = self.network.read(words[on_device(place)], ragged, drop=drop)
        left, right = left_layers[-1], right_layers[-1]  # [N, dim]
        # The forward direction predicts all words but the first of each text from the state before,
        # and the backward direction all words but the last from the state after.
        is_inner = np.ones(len(ids), dtype=bool)
        is_inner[ragged.offsets[:-1]] = False
        not_first, not_last = np.flatnonzero(is_inner), np.flatnonzero(np.roll(is_inner, -1))
        numbers = np.where(ids < len(self.vocabulary), ids, UNKNOWN).astype(np.int64)
        after, before = on_device(not_first), on_device(not_last)
        return Contexts(
            states=(left[before], right[after]),
            following=(numbers[not_first], numbers[not_last]),
            own=(
                (left.detach()[after], right.detach()[after]),
                (left.detach()[before], right.detach()[before]),
            ),
        )

    @torch.inference_mode()
    def negative_log_likelihood(
        self, sentences: Iterable[Sentence | Sequence[str]], *, budget: int = 4096
    ) -> np.ndarray:
        """Return five sums for each non-empty sentence, float64 `[n_sentences, 5]`: −log p of its
        words under the forward, the backward and the unigram model, the number of predictions, and
        the number of predicted words that are unknown.

        Raises:
            SettingError: the text has no words.
        """
        text = WordText.seen_by(self.vocabulary, sentences, lower=self.lower)
        rows, blocks = self.rows(text.word_types), text.blocks[""]
        if not len(blocks):
            raise SettingError("the text has no words, so its perplexity cannot be measured")
        unigram_losses, training = -np.log(self.vocabulary.unigram()), self.training
        sums = np.zeros((len(blocks), 5))
        self.eval()
        for numbers in token_batches(blocks.lengths, budget):
            lengths = blocks.lengths[numbers]
            states, following, _ = self.contexts(rows, blocks.rows(numbers), lengths)
            losses = np.zeros((len(following[0]), 5))
            for side in (0, 1):
                words = torch.from_numpy(following[side]).to(self.device)
                loss = self.head.negative_log_likelihood(states[side], words, side)
                losses[:, side] = loss.double().cpu().numpy()
                # Both directions predict the same words, except for the boundary tokens.
                losses[:, 2] += unigram_losses[following[side]] / 2
            losses[:, 3], losses[:, 4] = 1, following[0] == UNKNOWN
            sums[numbers] = np.add.reduceat(losses, offsets_of(lengths - 1)[:-1])
        self.train(training)
        return sums

    def encoder(self, name: str = "elmo") -> ElmoEncoder:
        """Return an encoder that shares the network's weights."""
        return ElmoEncoder(self.network, name=name, lower=self.lower)

    def save(self, folder: str | Path, senses: Mapping[str, Any] | None = None) -> None:
        """Write the encoder, `vocabulary.json`, and the output layer with the sense settings (see
        `Softmax.save`).
        """
        path = Path(folder)
        self.encoder().save(path)
        self.vocabulary.save(path)
        self.head.save(path, senses or {})

    @classmethod
    def open(cls, folder: str | Path) -> WordModel:
        """Read a folder that `save` wrote.

        Raises:
            InputError: a file is missing or corrupt.
        """
        path = Path(folder)
        encoder, vocabulary = ElmoEncoder.open(path, device="cpu"), Vocabulary.open(path)
        head = Softmax.open(path, words=len(vocabulary), dim=encoder.network.size, tables=2)
        return cls(encoder.network, head, vocabulary, lower=encoder.lower)
