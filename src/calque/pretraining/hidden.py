"""What a masked language model minimises: hidden subwords, or their senses, are predicted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.distributed import Processes
from calque.encoders.batches import WordBatch
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.pretraining.base import Done, Prediction, Term, Update
from calque.pretraining.blocks import Mixture, mask
from calque.pretraining.sense_softmax import SenseSoftmax
from calque.pretraining.senses import Selected, SenseTraining, add_rows
from calque.training.passes import Pass, add_gradients


class HiddenPrediction(Prediction):
    """What hidden subwords are told by: the last layer's states in the place of each.

    Args:
        module: all that is trained.
        encoder: around the model's body.
        share: of the subwords to hide.
        weights: of the head that predicts.
        visible: see `mask`.
        mixture, processes: see `Prediction`.
    """

    def __init__(
        self, module: nn.Module, encoder: HuggingFaceEncoder, mixture: Mixture, share: float, processes: Processes,
        weights: Sequence[nn.Parameter], visible: float = 0.1,
    ):  # fmt: skip
        super().__init__(module, mixture, processes)
        self.encoder, self.share, self.visible = encoder, share, visible
        tokenizer: Any = encoder.tokenizer
        self._special = [tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id]
        self._mask_id, self._vocabulary = tokenizer.mask_token_id, len(tokenizer)
        self._head_weights = list(weights)

    def backward(self, update: Update) -> dict[str, float]:
        ids = self._ids(update)
        # The text that is hidden follows from the update's own random state, which `Loop` sets from its number.
        rng = np.random.default_rng(int(torch.randint(1 << 62, (1,), generator=_shared_generator(self.processes))))
        read, chosen = mask(
            ids, self._special, mask_id=self._mask_id, vocabulary=self._vocabulary, share=self.share, rng=rng,
            visible=self.visible,
        )  # fmt: skip
        width, (languages, words) = ids.shape[1], self._about(update, ids.shape)
        blocks = np.arange(len(ids))
        counts = [int(np.isin(chosen // width, part).sum()) for part in self.processes.shares(blocks)]
        mine = self.processes.share(blocks)
        if not len(mine):  # fewer blocks than processes
            self._finish([], counts)
            return {"loss": float(self.processes.sum_numbers(torch.zeros((), device=self.processes.device)))}
        order = np.flatnonzero((chosen // width >= mine[0]) & (chosen // width <= mine[-1]))
        places = chosen[order]
        about = ids.flat[places].astype(np.int64), order, languages[places // width], words.flat[places]
        hidden = Hidden(*(torch.from_numpy(x).to(self.processes.device) for x in about))
        last = self.encoder.n_layers
        reading = Pass(self.encoder, [self._batch(read, places, mine)], [last], context=self.processes.autocast)
        self._draw()
        with torch.enable_grad(), self.processes.autocast():
            given = reading.vectors[last].requires_grad_()
            term = self._term(given, hidden)
            loss = term.value / len(chosen)
        done = Done.of(loss, [given, *self._head_weights], [term])
        add_gradients(self._head_weights, done.gradients[1:])
        reading.backward({last: done.gradients[0]})  # type: ignore[dict-item]
        self._finish([done], counts)
        return {"loss": float(self.processes.sum_numbers(done.loss))}

    @abstractmethod
    def _term(self, vectors: Tensor, hidden: Hidden) -> Term:
        """The summed loss of the hidden subwords of a share."""

    def _draw(self) -> None:
        """Whatever all shares of an update have in common."""

    def _finish(self, done: Sequence[Done], counts: list[int]) -> None:
        """Take what the shares of an update left besides the gradients.

        Args:
            done: this process's shares.
            counts: hidden subwords of every process.
        """

    def _ids(self, update: Update) -> np.ndarray:
        pad = self._special[0]
        parts = [self.mixture.languages[lang].padded(numbers, pad) for lang, numbers in update]
        width = max(part.shape[1] for part in parts)
        return np.concatenate(
            [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=pad) for part in parts]
        )

    def _about(self, update: Update, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """The number of each block's language, and which subwords are whole words."""
        names, words = list(self.mixture.languages), np.zeros(shape, dtype=bool)
        languages = np.repeat([names.index(lang) for lang, _ in update], [len(numbers) for _, numbers in update])
        for k, (lang, numbers) in enumerate(update):
            whole = self.mixture.languages[lang].whole_words(numbers)
            first = sum(len(earlier) for _, earlier in update[:k])
            words[first : first + len(numbers), : whole.shape[1]] = whole
        return languages, words

    def _batch(self, read: np.ndarray, chosen: np.ndarray, rows: np.ndarray) -> WordBatch:
        """Some rows of what is read, whose hidden subwords are its words."""
        device, width = self.processes.device, read.shape[1]
        part = read[rows]
        inside = part != self._special[0]
        starts = chosen - rows[0] * width
        padded = not inside.all()
        packed = np.cumsum(inside) - 1
        return WordBatch(
            input_ids=torch.from_numpy(part.astype(np.int64)),
            attention_mask=torch.from_numpy(inside.astype(np.int64)) if padded else None,
            inside=torch.from_numpy(np.flatnonzero(inside)) if padded else None,
            spread=torch.from_numpy(np.maximum(packed, 0)) if padded else None,
            starts=torch.from_numpy(starts),
            packed=torch.from_numpy(packed[starts]),
            lengths=torch.ones(len(starts), dtype=torch.int64),
            word_counts=torch.from_numpy(np.bincount(starts // width, minlength=len(rows))),
        ).to(device)


class Hidden(NamedTuple):
    """The hidden subwords of a share.

    Attributes:
        answers: int64 `[n]`, what they are.
        order: int64 `[n]`, the place of each among those of the update.
        languages: int64 `[n]`, number of the language of each one's text.
        words: bool `[n]`, whether each is a whole word.
    """

    answers: Tensor
    order: Tensor
    languages: Tensor
    words: Tensor


class MaskedPrediction(HiddenPrediction):
    """The mean cross-entropy of hidden subwords.

    Args:
        model: with its head.
        encoder, mixture, share, processes: see `HiddenPrediction`.
    """

    def __init__(
        self,
        model: Any,
        encoder: HuggingFaceEncoder,
        mixture: Mixture,
        share: float,
        processes: Processes,
    ):
        super().__init__(model, encoder, mixture, share, processes, list(model.cls.parameters()))
        self._head: Any = model.cls

    def _term(self, vectors: Tensor, hidden: Hidden) -> Term:
        return Term(F.cross_entropy(self._head(vectors).float(), hidden.answers, reduction="sum"))


class MaskedSensePrediction(HiddenPrediction):
    """The same of senses of subwords, and of translations of whole words (Multi-sense, Eqs. 4 to 7).

    Selected by and predicted from the state after the head's dense layer and norm.

    Args:
        model: the encoder's, with or without a head.
        transform: what stands between its states and the scores; None for that of the head of a BERT.
        senses: predicts in place of the head's last layer.
        training: of its table.
        rows: int64 `[n_subwords]`, the number of each subword in the table; None where it has all of them.
        encoder, mixture, share, processes, visible: see `HiddenPrediction`.
    """

    def __init__(
        self, model: Any, encoder: HuggingFaceEncoder, mixture: Mixture, share: float, processes: Processes,
        senses: SenseSoftmax, training: SenseTraining, *, transform: nn.Module | None = None,
        rows: Tensor | None = None, visible: float = 0.1,
    ):  # fmt: skip
        self._transform: nn.Module = model.cls.predictions.transform if transform is None else transform
        module = nn.ModuleDict({"model": model, "transform": self._transform, "senses": senses})
        weights = list(self._transform.parameters())
        super().__init__(module, encoder, mixture, share, processes, weights, visible)
        self.senses, self.training, self._rows = senses, training, rows
        training.begin()

    def _draw(self) -> None:
        seed = torch.initial_seed() - self.processes.rank
        (self._negatives,) = self.senses.draw(np.random.default_rng([seed, 1]))

    def _term(self, vectors: Tensor, hidden: Hidden) -> Term:
        states = self._transform(vectors).float()
        answers = hidden.answers if self._rows is None else self._rows[hidden.answers]
        targets = self.training.targets({0: states.detach()}, answers, hidden.languages, hidden.words)
        loss = self.senses.loss(states, targets, 0, self._negatives)
        return Term(
            loss.value,
            loss.rows,
            (loss.classes, Selected(hidden.order, states.detach(), answers, targets.classes[:, 0])),
        )

    def _finish(self, done: Sequence[Done], counts: list[int]) -> None:
        notes = [part.terms[0].notes for part in done]
        (table,) = self.training.tables
        add_rows(table, [(classes, part.of_leaves[0]) for (classes, _), part in zip(notes, done, strict=True)])
        self.training.keep([[selected for _, selected in notes]], counts)

    def after_update(self, step: int) -> None:
        self.training.after_update(step)


def _shared_generator(processes: Processes) -> torch.Generator:
    """Random numbers that are the same in every process of an update; each knows its own seed from its rank."""
    return torch.Generator().manual_seed(torch.initial_seed() - processes.rank)
