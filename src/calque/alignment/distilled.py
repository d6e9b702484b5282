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

from calque.alignment.distilling import Distilling, Lesson, LinkedWords, Taught, source_of
from calque.distributed import Processes
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_precision
from calque.encoders.sentence_store import TeacherVectors
from calque.encoders.sentence_vectors import SentencePooling, UnitLength
from calque.encoders.subword_vectors import SubwordVectors
from calque.encoders.subwords import Subwords
from calque.errors import SettingError, check_number
from calque.text import ParallelCorpus, Sentences
from calque.training.loop import Loop, Schedule, rate_by_width
from calque.training.plan import BatchPlan
from calque.training.sources import float32_copy, freeze_below

_SMOOTHING = 1e-3  # of Arora et al. (2017), as in model2vec


class Student(NamedTuple):
    """What distillation gives: an encoder, and how it makes a sentence's vector."""

    encoder: Any
    pooling: SentencePooling

    def write_modules(self, folder: Path) -> None:
        """Write the pooling as modules of sentence-transformers into an empty folder, from where the encoder copies them
        whenever it is saved."""
        self.pooling.save(self.encoder, folder)
        self.encoder.modules = folder


@dataclass(kw_only=True, eq=False)
class Distillation:
    """Trains the sentence vectors of a student to be those of a teacher.

    For a sentence s in the teacher's language, its translation t, teacher M and student m it minimises the mean over a batch
    of ‖m(s) − M(s)‖² and ‖m(t) − M(s)‖² (Reimers & Gurevych 2020, "Making monolingual sentence embeddings multilingual using
    knowledge distillation", Section 3; they divide by the number of dimensions, which with Adam changes the rate alone).
    Where the teacher's vectors have length 1, so have the student's; where they have another number of dimensions, a linear
    layer follows the student's pooling.

    With `words`, a weight, it learns words as well: for the links (i, j) of the batch, a word i of s and the word j of t that
    translates it, weight times the mean of ‖h(m_i(s)) − M_i(s)‖² and ‖h(m_j(t)) − M_i(s)‖², and of `ranking`, all of length 1.
    M_i is the teacher's vector of a word in its sentence, and h a linear layer where the number of dimensions
    differs; it is not kept, for the student's words are those of its own layer. Of text in the teacher's language alone, all
    words are learnt. Sentences and words are read separately: as a text, and word by word. This is ours.

    Args:
        towards: the teacher's language.
        ranking: weight of −log of the share that the own teacher vector has among those of all texts of the update, by
            softmax of cosines / `temperature`: the cross entropy of the own teacher vector.
        temperature: of that.
        negatives: teacher vectors drawn from those of the whole text in each update, as further candidates of `ranking`: the
            student reads nothing for them, so they cost next to nothing.
        source_share: of the pairs of an update, the share whose sentence in the teacher's language the student reads, too, 1 as
            published: texts of several languages have it in common, so a part of it teaches as much.
        words: weight of words, 0 for none.
        epochs, learning_rate, seed: see `Schedule`.
        batch: sentence pairs of each language, or sentences of text in one language, in an update.
        freeze, accumulate, precision: see `Tuner`.
    """

    decay: ClassVar[Literal["constant", "linear", "cosine"]] = "linear"
    clip: ClassVar[float | None] = 1.0
    epsilon: ClassVar[float] = 1e-9
    warmup: ClassVar[float] = 0.1
    budget: ClassVar[int] = 1024

    towards: str
    ranking: float = 0.0
    temperature: float = 0.05
    negatives: int = 0
    source_share: float = 1.0
    words: float = 0.0
    epochs: float = 5.0
    learning_rate: float | None = None
    seed: int = 0
    batch: int = 32
    freeze: int | None = None
    accumulate: int = 1
    precision: TrainingPrecision = "float32"

    def __post_init__(self):
        self.schedule = Schedule(
            self.epochs, self.learning_rate, self.warmup, self.decay, epsilon=self.epsilon, clip=self.clip, seed=self.seed
        )  # fmt: skip
        for name in ("ranking", "words"):
            check_number(name, getattr(self, name), least=0)
        check_number("temperature", self.temperature, above=0)
        check_number("negatives", self.negatives, least=0, whole=True)
        if self.negatives and not self.ranking:
            raise SettingError("negatives are for ranking: give it a weight, too")
        check_number("source_share", self.source_share, least=0, most=1)
        for name in ("batch", "accumulate"):
            check_number(name, getattr(self, name), least=1, whole=True)
        if self.freeze is not None:
            check_number("freeze", self.freeze, least=0, whole=True)
        check_precision(self.precision, TRAINING_PRECISIONS)

    def distil(
        self,
        student: HuggingFaceEncoder | SubwordVectors,
        pooling: SentencePooling,
        teacher: TeacherVectors,
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
        processes = Processes(self.precision)
        counts = None if folder is None else Path(folder) / "counts.json"
        objective = self.objective(
            student, pooling, teacher, corpora, texts, words, processes=processes, counts=counts, progress=progress
        )
        lessons = [each for each in (objective.sentences, objective.words) if each is not None]
        schedule = self.schedule
        if schedule.learning_rate is None:
            schedule = replace(schedule, learning_rate=rate_by_width(student.dim, 2))
        plan = BatchPlan(
            [np.zeros(len(part)) for part in lessons[0].lesson.parts], batch=self.batch, seed=self.seed, window=1
        )
        taught = {each.prefix or "text": [each.lesson.fingerprint, each.teacher.key] for each in lessons}
        loop = Loop(
            objective, schedule=schedule, processes=processes,
            identity=self.settings() | {"encoder": student.fingerprint} | taught,
            folder=None if folder is None else Path(folder), checkpoint_every=checkpoint_every, progress=progress,
            title="distil",
        )  # fmt: skip
        self.history = loop.run(plan)
        self.used = schedule
        self.counts = {name: count for each in lessons for name, count in each.lesson.counts.items()}
        tuned = objective.student
        tuned.model.eval().requires_grad_(True)
        return Student(tuned, cast(SentencePooling, objective.sentences.head).cpu().eval())

    def objective(
        self,
        student: HuggingFaceEncoder | SubwordVectors,
        pooling: SentencePooling,
        teacher: TeacherVectors,
        corpora: Sequence[ParallelCorpus],
        texts: Sequence[Sentences] = (),
        words: LinkedWords | None = None,
        *,
        processes: Processes,
        counts: Path | None = None,
        progress: bool = False,
    ) -> Distilling:
        """Return the loss of an update of a copy of the student, after the teacher has read what it does not know yet.

        Arguments not listed here are those of `distil`.

        Args:
            counts: see `TeacherVectors.fill`.
        """
        static = isinstance(student, SubwordVectors)
        if (words is not None) != (self.words > 0) or (static and self.words):
            fact = "static vectors know no context" if static else "linked words and a weight of words go together"
            raise SettingError(f"words={self.words}: {fact}; leave out words")
        ours = [corpus if corpus.langs[0] == self.towards else corpus.swapped() for corpus in corpora]
        reading: dict[str, Any] = {"rank": processes.rank, "world": processes.world, "meet": processes.meet}
        reading |= {"counts": counts, "progress": progress}
        self.computed = teacher.fill(Sentences.joined([*(corpus.source for corpus in ours), *texts]), **reading)
        tuned: Any = float32_copy(cast(HuggingFaceEncoder, student), processes.device)
        tuned.model.train()
        if not static:
            freeze_below(tuned.model, self.freeze)
        lesson = Lesson.of_sentences(student, pooling, teacher, ours, texts)
        source = source_of(tuned, lesson.table, processes, self.budget)
        ending = self._pooling(student, pooling, teacher).to(processes.device)
        taught, of_words = Taught(lesson, teacher, source, ending), None
        if words is not None:
            words = words.towards(self.towards)
            self.words_computed = words.teacher.fill(words.read, **reading)
            lesson = Lesson.of_words(cast(HuggingFaceEncoder, student), words, [*map(len, ours), *map(len, texts)])
            source = source_of(tuned, lesson.table, processes, self.budget)
            head = self._linear(student.dim, words.teacher.dim) if student.dim != words.teacher.dim else []
            ending = nn.Sequential(*head[:1], UnitLength()).to(processes.device)
            of_words = Taught(lesson, words.teacher, source, ending, weight=self.words, prefix="words_")
        return Distilling(
            tuned, taught, of_words, processes, terms=self.terms, accumulate=self.accumulate, negatives=self.negatives,
            source_share=self.source_share, seed=self.seed,
        )  # fmt: skip

    def _pooling(
        self, student: HuggingFaceEncoder | SubwordVectors, pooling: SentencePooling, teacher: TeacherVectors
    ) -> SentencePooling:
        """Return a copy of the student's pooling that ends in vectors like the teacher's."""
        after: list[nn.Module] = [part for part in copy.deepcopy(pooling.after) if not isinstance(part, UnitLength)]
        if (width := pooling.width(student.dim)) != teacher.dim:
            after += self._linear(width, teacher.dim)
        if teacher.pooling is not None and any(
            isinstance(part, UnitLength) for part in list(teacher.pooling.after)[-1:]
        ):
            after.append(UnitLength())
        return SentencePooling(
            "own", "subwords", pooling.modes, after=after, max_length=pooling.max_length, lower=pooling.lower,
            prompt=pooling.prompt,
        )  # fmt: skip

    def _linear(self, width: int, dim: int) -> list[nn.Module]:
        """Return a linear layer, and the activation that sentence-transformers needs beside it."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return [nn.Linear(width, dim), nn.Identity()]

    def terms(self, vectors: Tensor, own: Tensor, candidates: Tensor, n: int) -> dict[str, Tensor]:
        """Return a share of the loss.

        Args:
            vectors: the student's `[k, dim]`, of some texts of an update, or of words.
            own: int64 `[k]`, which candidate is the teacher's vector of each.
            candidates: the teacher's distinct vectors of the whole update, `[m, dim]`.
            n: texts, or words, of the whole update.
        """
        found = {"mse": (vectors - candidates[own]).square().sum() / n}
        if self.ranking:
            scores = functional.normalize(vectors) @ functional.normalize(candidates).T / self.temperature
            found["ranking"] = self.ranking * functional.cross_entropy(scores, own, reduction="sum") / n
        return found

    def settings(self) -> dict[str, Any]:
        """What the result depends on, for the record and the identity of checkpoints; the schedule stands beside it."""
        names = ("towards", "ranking", "temperature", "negatives", "source_share", "batch", "freeze", "precision")
        words = {"words": self.words} if self.words else {}
        return {"method": "distillation", **{name: getattr(self, name) for name in names}, **words}

    def record(self) -> dict[str, Any]:
        """What the model card tells of the last `distil`."""
        return {"settings": self.settings(), "schedule": vars(self.used), "counts": dict(self.counts),
                "updates": len(self.history), "first_loss": self.history[0]["loss"],
                "last_loss": self.history[-1]["loss"]}  # fmt: skip


def static_student(
    tokenizer: Any, teacher: TeacherVectors, texts: Sequence[Sentences], *, lang: str = "", name: str = "static",
    unit: bool = True, progress: bool = False,
) -> SubwordVectors:  # fmt: skip
    """Return static vectors by model2vec's recipe: the teacher's vector of each subword alone, less the mean, times a weight that
    is small for frequent ones.

    The weight is a / (a + p) with a = 0.001 (Arora et al. 2017, "A simple but tough-to-beat baseline for sentence embeddings"),
    p being the subword's share of the text or, without text, of what Zipf's law gives its number in the vocabulary. Vectors
    keep the teacher's dimensions: no principal components are taken, so that they can be trained to be its own.

    Args:
        tokenizer: a fast one of `transformers`.
        teacher: gets the vectors of all subwords.
        texts: to count subwords in.
        lang: of the teacher.
        name, unit: see `SubwordVectors`.
        progress: show a bar.
    """
    subwords, n = Subwords(tokenizer), len(tokenizer)
    special = set(tokenizer.all_special_ids)
    words = [
        [] if number in special else tokenizer.convert_tokens_to_string([token]).replace("##", "").split()
        for number, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(n))))
    ]
    known = Sentences.of(words, lang)
    teacher.fill(known, progress=progress)
    filled = np.flatnonzero(known.lengths())
    matrix = np.zeros((n, teacher.dim), dtype=np.float32)
    matrix[filled] = teacher.take(teacher.places(known.take(filled)))
    matrix[filled] -= matrix[filled].mean(axis=0)
    start = SubwordVectors(subwords.tokenizer, torch.from_numpy(matrix), unit=unit, name=name)
    shares = 1.0 / (np.arange(n) + 2)
    if texts:
        counts = sum(np.bincount(start.split(text).ids, minlength=n) for text in texts)
        shares = np.asarray(counts, dtype=np.float64)
    weights = torch.from_numpy(_SMOOTHING / (_SMOOTHING + shares / max(1e-9, shares.sum()))).float()
    return SubwordVectors(subwords.tokenizer, start.model.weight.detach() * weights[:, None], unit=unit, name=name)
