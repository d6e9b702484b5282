"""Distillation: a student of many languages learns the sentence vectors of a teacher that knows one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from calque.alignment.distilled_words import LinkedWords, TaughtWords, WordLoss
from calque.alignment.distilling import DistilledText, Distilling
from calque.distributed import Processes
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_training_precision
from calque.encoders.sentence_store import SentenceStore
from calque.encoders.sentence_vectors import SentencePooling, UnitLength
from calque.encoders.subword_vectors import SubwordVectors
from calque.errors import SettingError, check_number
from calque.text import ParallelCorpus, Sentences
from calque.training.loop import Loop, Schedule, rate_by_width
from calque.training.plan import BatchPlan
from calque.training.sources import float32_copy, freeze_below

Loss = Literal["mse", "cosine"]


class Student(NamedTuple):
    """What distillation gives: an encoder, and how it makes a sentence's vector."""

    encoder: Any
    pooling: SentencePooling

    def write_modules(self, folder: Path) -> None:
        """Write the pooling as modules of sentence-transformers into an empty folder, from where the encoder copies them
        whenever it is saved."""
        self.pooling.write_modules(folder, self.encoder.dim, max_length=self.encoder.max_length)
        self.encoder.modules = folder


@dataclass(kw_only=True, eq=False)
class Distillation:
    """Trains the sentence vectors of a student to be those of a teacher.

    For a sentence s in the teacher's language, its translation t, teacher M and student m it minimises the mean over a batch
    of ‖m(s) − M(s)‖² and ‖m(t) − M(s)‖² (Reimers & Gurevych 2020, "Making monolingual sentence embeddings multilingual using
    knowledge distillation", Section 3; they divide by the number of dimensions, which with Adam changes the rate alone).
    Where the teacher's vectors have length 1, so have the student's.

    With `words`, a weight, it learns words as well: for the links (i, j) of the batch, a word i of s and the word j of t that
    translates it, weight times the mean of ‖h(m_i(s)) − M_i(s)‖² and ‖h(m_j(t)) − M_i(s)‖² (or what `loss` and `ranking` say),
    all of length 1. M_i is the teacher's vector of a word in its sentence, and h a linear layer where the number of dimensions
    differs; it is not kept, for the student's words are those of its own layer. Of text in the teacher's language alone, all
    words are learnt. Sentences and words are read separately: as a text, and word by word. This is ours.

    Args:
        towards: the teacher's language.
        loss: "mse", as published, or "cosine": 1 − cos.
        ranking: weight of −log of the share that the own teacher vector has among those of all texts of the update, by
            softmax of cosines / `temperature`: what is near each other is told apart.
        temperature: of that.
        negatives: teacher vectors drawn from those of the whole text in each update, for `ranking` to tell the own one apart
            from, beside the update's: the student reads nothing for them, so they cost next to nothing.
        source_share: of the pairs of an update, the share whose sentence in the teacher's language the student reads, too, 1 as
            published: texts of several languages have it in common, so a part of it teaches as much.
        dense: a linear layer from the student's vector to the teacher's number of dimensions: None where they differ, or where
            the student's vector is several one behind the other, as long as the teacher's only by chance.
        words: weight of words, 0 for none.
        epochs, learning_rate, warmup, decay, clip, seed: see `Schedule`.
        batch: sentence pairs of each language, or sentences of text in one language, in an update.
        freeze, accumulate, budget, precision: see `Tuner`.
    """

    epsilon: ClassVar[float] = 1e-9

    towards: str
    loss: Loss = "mse"
    ranking: float = 0.0
    temperature: float = 0.05
    negatives: int = 0
    source_share: float = 1.0
    dense: bool | None = None
    words: float = 0.0
    epochs: float = 5.0
    learning_rate: float | None = None
    warmup: float = 0.1
    decay: Literal["constant", "linear", "cosine"] = "linear"
    clip: float | None = 1.0
    seed: int = 0
    batch: int = 32
    freeze: int | None = None
    accumulate: int = 1
    budget: int = 1024
    precision: TrainingPrecision = "float32"

    def __post_init__(self):
        self.schedule = Schedule(
            self.epochs,
            self.learning_rate,
            self.warmup,
            self.decay,
            epsilon=self.epsilon,
            clip=self.clip,
            seed=self.seed,
        )
        if self.loss not in ("mse", "cosine"):
            raise SettingError(f"loss is mse or cosine, got {self.loss!r}")
        check_number("ranking", self.ranking, least=0)
        check_number("words", self.words, least=0)
        check_number("temperature", self.temperature, above=0)
        check_number("negatives", self.negatives, least=0, whole=True)
        if self.negatives and not self.ranking:
            raise SettingError("negatives are for ranking: give it a weight, too")
        check_number("source_share", self.source_share, least=0, most=1)
        for name in ("batch", "accumulate", "budget"):
            check_number(name, getattr(self, name), least=1, whole=True)
        if self.freeze is not None:
            check_number("freeze", self.freeze, least=0, whole=True)
        check_training_precision(self.precision)

    def distil(
        self,
        student: HuggingFaceEncoder | SubwordVectors,
        pooling: SentencePooling,
        teacher: SentenceStore,
        corpora: Sequence[ParallelCorpus],
        texts: Sequence[Sentences] = (),
        *,
        words: LinkedWords | None = None,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
    ) -> Student:
        """Train a copy of the student.

        Args:
            student, pooling: stay as they are; static vectors of subwords learn, too.
            teacher: gets the vectors that it does not have yet.
            corpora: parallel text, one side of each in the teacher's language.
            texts: more text in the teacher's language.
            words: the same text divided into words, with links; if the weight of words is above 0.
            folder: where checkpoints and metrics go; a run that was stopped there is continued, bit by bit the same.
            checkpoint_every: updates between checkpoints, 0 for none; one is also written every minute.
            progress: show bars on standard error.

        Raises:
            SettingError: nothing to train on, settings that do not fit together, or a checkpoint of another run in `folder`.
        """
        static = isinstance(student, SubwordVectors)
        if (words is not None) != (self.words > 0) or (static and self.words):
            fact = "static vectors know no context" if static else "linked words and a weight of words go together"
            raise SettingError(f"words={self.words}: {fact}; leave out words")
        processes = Processes(self.precision)
        ours = [corpus if corpus.langs[0] == self.towards else corpus.swapped() for corpus in corpora]
        read = Sentences.joined([*(corpus.source for corpus in ours), *texts])
        share: dict[str, Any] = {"rank": processes.rank, "world": processes.world, "meet": processes.meet}
        share["counts"] = None if folder is None else Path(folder) / "counts.json"
        self.computed = teacher.fill(read, progress=progress, **share)
        text = DistilledText(student, pooling, teacher, ours, texts)
        tuned: Any = float32_copy(cast(HuggingFaceEncoder, student), processes.device)
        tuned.model.train()
        if not static:
            freeze_below(tuned.model, self.freeze)
        ending = self._pooling(student, pooling, teacher).to(processes.device)
        schedule = self.schedule
        if schedule.learning_rate is None:
            schedule = replace(schedule, learning_rate=rate_by_width(student.dim, 2))
        plan = BatchPlan([np.zeros(len(part)) for part in text.parts], batch=self.batch, seed=self.seed, window=1)
        identity = self.settings() | {
            "encoder": student.fingerprint, "text": text.fingerprint, "teacher": teacher.key
        }  # fmt: skip
        taught = None
        if words is not None:
            words = words.towards(self.towards)
            self.words_computed = words.teacher.fill(words.read, progress=progress, **share)
            taught = TaughtWords(cast(HuggingFaceEncoder, student), words, [*map(len, ours), *map(len, texts)])
            identity |= {"words": [self.words, taught.fingerprint, words.teacher.key]}
        of_words = None
        if words is not None and taught is not None:
            head = self._head(student.dim, words.teacher.dim).to(processes.device)
            of_words = WordLoss(
                tuned, head, taught, words.teacher, processes, terms=self.terms, weight=self.words,
                budget=self.budget, accumulate=self.accumulate,
            )  # fmt: skip
        objective = Distilling(
            tuned, ending, text, teacher, processes, terms=self.terms, budget=self.budget,
            accumulate=self.accumulate, negatives=self.negatives, source_share=self.source_share, seed=self.seed,
            words=of_words,
        )  # fmt: skip
        loop = Loop(
            objective,
            schedule=schedule,
            processes=processes,
            identity=identity,
            folder=None if folder is None else Path(folder),
            checkpoint_every=checkpoint_every,
            progress=progress,
            products=TRAINING_PRECISIONS[self.precision],
            title="distil",
        )
        self.history = loop.run(plan)
        self.used, self.counts = schedule, dict(text.counts)
        if taught is not None:
            self.counts |= {"words": len(taught.words), "links_without_vector": taught.without_vector}
        tuned.model.eval().requires_grad_(True)
        return Student(tuned, ending.cpu().eval())

    def _pooling(
        self, student: HuggingFaceEncoder | SubwordVectors, pooling: SentencePooling, teacher: SentenceStore
    ) -> SentencePooling:
        """A copy of the student's pooling that ends in vectors like the teacher's."""
        width = _width(pooling, student.dim)
        after: list[nn.Module] = [part for part in copy.deepcopy(pooling.after) if not isinstance(part, UnitLength)]
        joined = len(pooling.modes) > 1 and not any(isinstance(part, nn.Linear) for part in after)
        dense = self.dense if self.dense is not None else joined or width != teacher.dim
        if not dense and width != teacher.dim:
            raise SettingError(
                f"the student's vectors have {width} dimensions, the teacher's {teacher.dim}: leave dense as None"
            )
        if dense:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                after += [nn.Linear(width, teacher.dim), nn.Identity()]
        if any(isinstance(part, UnitLength) for part in list(teacher.pooling.after)[-1:]):
            after.append(UnitLength())
        return SentencePooling(
            "own", "subwords", pooling.modes, after=after, max_length=pooling.max_length, lower=pooling.lower,
            prompt=pooling.prompt,
        )  # fmt: skip

    def _head(self, width: int, dim: int) -> nn.Module:
        """From the student's word vectors to the teacher's."""
        if self.dense is False and width != dim:
            raise SettingError(f"the student's words have {width} dimensions, the teacher's {dim}: leave dense as None")
        if not (self.dense or width != dim):
            return UnitLength()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return nn.Sequential(nn.Linear(width, dim), UnitLength())

    def terms(self, vectors: Tensor, own: Tensor, candidates: Tensor, n: int) -> dict[str, Tensor]:
        """A share of the loss.

        Args:
            vectors: the student's `[k, dim]`, of some texts of an update, or of words.
            own: int64 `[k]`, which candidate is the teacher's vector of each.
            candidates: the teacher's distinct vectors of the whole update, `[m, dim]`.
            n: texts, or words, of the whole update.
        """
        wanted = candidates[own]
        if self.loss == "mse":
            found = {"mse": (vectors - wanted).square().sum() / n}
        else:
            found = {"cosine": (1 - functional.cosine_similarity(vectors, wanted)).sum() / n}
        if self.ranking:
            scores = functional.normalize(vectors) @ functional.normalize(candidates).T / self.temperature
            found["ranking"] = self.ranking * functional.cross_entropy(scores, own, reduction="sum") / n
        return found

    def settings(self) -> dict[str, Any]:
        """What the result depends on, for the record and the identity of checkpoints; the schedule stands beside it."""
        names = (
            "towards", "loss", "ranking", "temperature", "negatives", "source_share", "dense", "batch", "freeze", "precision"
        )  # fmt: skip
        words = {"words": self.words} if self.words else {}
        return {"method": "distillation", **{name: getattr(self, name) for name in names}, **words}

    def record(self) -> dict[str, Any]:
        """What the model card tells of the last `distil`."""
        return {"settings": self.settings(), "schedule": vars(self.used), "counts": dict(self.counts),
                "updates": len(self.history), "first_loss": self.history[0]["loss"],
                "last_loss": self.history[-1]["loss"]}  # fmt: skip


def _width(pooling: SentencePooling, dim: int) -> int:
    """Dimensions of the vectors that a pooling gives for an encoder of `dim`."""
    layers = [part for part in pooling.after if isinstance(part, nn.Linear)]
    return layers[-1].out_features if layers else dim * len(pooling.modes)
