"""Alignment by senses: an encoder goes on with its masked language model, and predicts senses and their translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from calque.alignment.base import Method
from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.encoders.base import require
from calque.encoders.checkpoint import read_language_model, weights_digest
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_training_precision
from calque.errors import SettingError, check_number
from calque.pretraining.blocks import Blocks, Mixture
from calque.pretraining.masked import Head, MaskedSensePrediction, bare_head, head_of, whole_words
from calque.pretraining.senses import Senses, SenseTraining
from calque.pretraining.softmax import SenseSoftmax
from calque.pretraining.translations import Translations
from calque.text import Sentences
from calque.training.loop import Loop, Schedule, rate_by_width
from calque.training.sources import float32_copy, freeze_below


@dataclass(kw_only=True, eq=False)
class SenseAlignment(Method):
    """Predict senses of hidden words, and the senses of their translations, from text of each language alone.

    An encoder goes on with the training that made it: subwords are hidden and predicted. But each has several output
    vectors, one for each of its senses, of which the state selects one; and a word that a dictionary translates predicts
    the sense of its translation that is nearest to its state, too (Multi-sense, Eqs. 3 to 7, there for training from
    nothing). So the contexts of a word and those of its translation become alike, sense by sense. No sentence needs a
    translation. The sense vectors begin with the encoder's own output layer, and are left behind afterwards.

    A word of several subwords has no translation: the vocabulary's numbers are of subwords.

    Args:
        towards: for the record; all languages move.
        senses, occurrences, start, axes, below: see `Senses`.
        most: translations of a word, in the order of the dictionary.
        share: of subwords that are predicted.
        visible: share of these that stand in the text as they are. In BERT's training it is a tenth. But an encoder is asked
            for vectors of words that it sees: with half of them, these are drawn to their translations much sooner.
        length: most subwords of a block; less where the encoder reads less.
        alpha: see `Mixture`; 0 gives every language an equal share, as published.
        batch: blocks in an update.
        epochs, learning_rate, warmup, decay, betas, epsilon, clip, seed: see `Schedule`; an epoch has as many blocks as
            there are of all languages.
        freeze, precision: see `Tuner`.
    """

    towards: str
    senses: int = 3
    occurrences: int = 50
    start: Literal["grouped", "kept", "fresh"] = Senses.start
    axes: int = 14
    below: float = Senses.below
    most: int = 4
    share: float = 0.15
    visible: float = 0.5
    length: int = 128
    alpha: float = 0.0
    batch: int = 32
    epochs: float = 1.0
    learning_rate: float | None = None
    warmup: float = 0.1
    decay: Literal["constant", "linear", "cosine"] = "linear"
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6
    clip: float | None = 1.0
    seed: int = 0
    freeze: int | None = None
    precision: TrainingPrecision = "float32"

    def __post_init__(self):
        self._schedule = Schedule(
            self.epochs, self.learning_rate, self.warmup, self.decay, self.betas, self.epsilon, self.clip, self.seed
        )
        names = ("senses", "occurrences", "start", "axes", "below")
        self._senses = Senses(**{name: getattr(self, name) for name in names})
        for name in ("batch", "most"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("length", self.length, least=4, whole=True)
        check_number("share", self.share, above=0, below=1)
        check_number("visible", self.visible, least=0, most=1)
        check_number("alpha", self.alpha, least=0, most=1)
        if self.freeze is not None:
            check_number("freeze", self.freeze, least=0, whole=True)
        check_training_precision(self.precision)

    def align(
        self,
        encoder: Any,
        corpus: Mapping[str, Sentences],
        pairs: Sequence[Dictionary] = (),
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
    ) -> HuggingFaceEncoder:
        """Train a copy of `encoder`.

        Args:
            encoder: of `transformers`, with a mask among its subwords; stays as it is.
            corpus: text by language.
            pairs: dictionaries between these languages.
            folder, checkpoint_every, progress: see `Tuner.tune`.

        Raises:
            SettingError: an encoder of another kind; a language without text; dictionaries without a word of the text.
        """
        self._check(encoder, corpus, pairs)
        processes = Processes(self.precision)
        torch.manual_seed(self.seed)
        tuned = float32_copy(encoder, processes.device)
        length = min(self.length, encoder.max_length)
        reader = HuggingFaceEncoder(tuned.model, encoder.tokenizer, max_length=length)
        split = {lang: reader.split(text) for lang, text in corpus.items()}
        mixture = Mixture(
            {lang: Blocks.of(of_lang, length) for lang, of_lang in split.items()}, batch=self.batch, alpha=self.alpha,
            seed=self.seed,
        )  # fmt: skip
        subwords = Subset.of(reader, mixture, pairs)
        translations = Translations(pairs, list(corpus), subwords.words, most=self.most)
        head, source = _head(encoder, subwords.counts)
        softmax = self._softmax(head, subwords).to(processes.device)
        transform = head.transform.to(processes.device).float()
        schedule = replace(self._schedule, learning_rate=self.learning_rate or rate_by_width(encoder.dim, 1.5))
        updates = max(1, round(self.epochs * mixture.steps_per_epoch))
        training = SenseTraining(softmax.senses, self._senses, updates, processes, translations, self.seed)
        tuned.model.train()
        freeze_below(tuned.model, self.freeze)
        objective = MaskedSensePrediction(
            mixture, processes, transform, softmax, training, body=tuned.model, tokenizer=encoder.tokenizer,
            share=self.share, visible=self.visible, rows=torch.from_numpy(subwords.rows).to(processes.device),
        )  # fmt: skip
        loop = Loop(
            objective,
            schedule=schedule,
            processes=processes,
            identity={**self.settings(), "encoder": encoder.fingerprint, "text": mixture.fingerprint,
                      "head": weights_digest(transform), **training.identity},
            folder=None if folder is None else Path(folder),
            checkpoint_every=checkpoint_every,
            progress=progress,
            products=TRAINING_PRECISIONS[self.precision],
        )  # fmt: skip
        self.history = loop.run(mixture)
        self.used, self.softmax = schedule, softmax
        self.counts = {
            "truncated_words": sum(of_lang.truncated_words for of_lang in split.values()),
            "translated_words": translations.words,
            "subwords": len(subwords.used),
            "senses": int(softmax.senses[0].live.sum()),
            "first_senses_from": source,
        }
        tuned.model.eval().requires_grad_(True)
        return tuned  # type: ignore[return-value]

    def _softmax(self, head: Head, subwords: Subset) -> SenseSoftmax:
        (table,) = self._senses.tables(subwords.counts[subwords.used], head.weight.shape[1])
        table.begin_with(head.weight[subwords.used].detach(), head.bias[subwords.used].detach())
        return SenseSoftmax([table], negatives=None)

    def settings(self) -> dict[str, Any]:
        of_schedule = {field.name for field in fields(Schedule)}
        names = [field.name for field in fields(self) if field.name not in of_schedule]
        return {"method": "senses", **{name: getattr(self, name) for name in names}}

    def record(self) -> dict[str, Any]:
        last = self.history[-100:]
        return {"settings": self.settings(), "schedule": vars(self.used), "counts": self.counts,
                "updates": len(self.history), "first_loss": self.history[0]["loss"],
                "last_loss": sum(line["loss"] for line in last) / len(last)}  # fmt: skip

    def _check(self, encoder: Any, corpus: Mapping[str, Sentences], dictionaries: Sequence[Dictionary]) -> None:
        require(encoder, "trained")
        tokenizer: Any = getattr(encoder, "tokenizer", None)
        ends = ("mask_token_id", "pad_token_id", "cls_token_id", "sep_token_id")
        if not isinstance(encoder, HuggingFaceEncoder) or any(getattr(tokenizer, end) is None for end in ends):
            raise SettingError(
                f"{encoder.name} is no masked language model: senses goes on with one, such as BERT or XLM-R, whose "
                "tokenizer has a mask and marks both ends of a text"
            )
        if not dictionaries:
            raise SettingError("no dictionary: it is what senses learns translations from")
        for dictionary in dictionaries:
            if missing := [lang for lang in dictionary.langs if lang not in corpus]:
                raise SettingError(
                    f"{dictionary.path or 'a dictionary'} is of {'-'.join(dictionary.langs)}, but there is no text in "
                    f"{missing[0]}"
                )
        if self.towards not in corpus:
            raise SettingError(f"towards {self.towards}: there is only text in {', '.join(corpus)}")


@dataclass(frozen=True)
class Subset:
    """The subwords that a text or a translation can be told by; a large vocabulary has many more, of other languages.

    Attributes:
        counts: int64 `[n_subwords]`, in the text.
        used: int64 `[n_used]`, those that occur there, or are words of the dictionaries.
        rows: int64 `[n_subwords]`, the number of each among these; -1 for none.
        words: words of the dictionaries that are one subword, by their number among these; the most frequent first.
    """

    counts: np.ndarray
    used: np.ndarray
    rows: np.ndarray
    words: dict[str, int]

    @classmethod
    def of(cls, reader: HuggingFaceEncoder, mixture: Mixture, dictionaries: Sequence[Dictionary]) -> Subset:
        counts = np.zeros(reader.model.get_input_embeddings().num_embeddings, dtype=np.int64)
        for blocks in mixture.languages.values():
            counts += np.bincount(blocks.ids, minlength=len(counts))
        known = whole_words(reader, dictionaries)
        used = np.union1d(np.flatnonzero(counts), np.array(list(known.values()), dtype=np.int64))
        rows = np.full(len(counts), -1, dtype=np.int64)
        rows[used] = np.arange(len(used))
        frequent = sorted(known.items(), key=lambda item: -counts[item[1]])
        return cls(counts, used, rows, {word: int(rows[number]) for word, number in frequent})


def _head(encoder: HuggingFaceEncoder, counts: np.ndarray) -> tuple[Head, str]:
    """The head that the encoder was trained with, or one from its own input embeddings where there is none; and which."""
    embeddings: Tensor = encoder.model.get_input_embeddings().weight.detach().float().cpu()
    name = str(getattr(encoder.model, "name_or_path", ""))
    model = read_language_model(name) if name else None
    head = None if model is None else head_of(model)
    if head is None or len(head.weight) != len(embeddings):
        return bare_head(embeddings, encoder.dim, torch.from_numpy(counts)), "input embeddings"
    return head, "output layer"
