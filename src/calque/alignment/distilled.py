"""Distillation of a monolingual teacher's sentence vectors into a multilingual student."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from calque.alignment.base import Run
from calque.distributed import Processes
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_precision
from calque.encoders.sentence_store import TeacherVectors
from calque.encoders.sentence_vectors import SentencePooling, UnitLength
from calque.encoders.split import SplitSentences
from calque.encoders.subword_vectors import SubwordVectors
from calque.encoders.subwords import Subwords
from calque.errors import SettingError, check_number
from calque.spec import Count, option
from calque.text import ParallelCorpus, Sentences
from calque.training.loop import Loop, TrainingSettings, rate_by_width, training_record
from calque.training.objective import Objective
from calque.training.plan import BatchPlan
from calque.training.sources import (
    TrainedSource,
    VectorSource,
    WordRows,
    float32_copy,
    freeze_below,
)

StudentEncoder = HuggingFaceEncoder | SubwordVectors
_SMOOTHING = 1e-3  # the constant a of Arora et al. (2017), with the value used in model2vec


class Student(NamedTuple):
    """Result of distillation.

    Attributes:
        encoder, pooling: trained encoder and its sentence pooling.
        record: facts about the training for the model card.
        history: loss terms of each update.
    """

    encoder: Any
    pooling: SentencePooling
    record: Mapping[str, Any]
    history: Sequence[Mapping[str, float]]

    def write_modules(self, folder: Path) -> None:
        """Write the pooling as sentence-transformers modules to an empty folder, from which
        `encoder.save` copies the files.
        """
        self.pooling.save(self.encoder, folder)
        self.encoder.modules = folder


@dataclass(frozen=True, kw_only=True, eq=False)
class Distillation(TrainingSettings):
    """Train a student encoder to reproduce the sentence vectors of a teacher.

    For a sentence s in the teacher's language, its translation t, teacher M and student m, the loss
    is the batch mean of ‖m(s) − M(s)‖² and ‖m(t) − M(s)‖² (Reimers & Gurevych 2020, "Making
    monolingual sentence embeddings multilingual using knowledge distillation", Section 3). The
    paper also divides by the dimension, which with Adam only rescales the learning rate. If the
    teacher's vectors are L2-normalised, so are the student's vectors. If the dimensions differ, the
    student's pooling is followed by a linear layer.
    """

    towards: str = option(..., "language of the teacher.")
    ranking: float = option(
        0.0,
        "weight of the ranking loss. This loss is the cross-entropy of the correct teacher vector "
        "in a softmax over the teacher vectors of all texts in the update, with the logits cosine "
        "/ `temperature`.",
    )
    temperature: float = option(0.05, "temperature of the ranking loss.")
    negatives: Count = option(
        0,
        "number of additional teacher vectors in this softmax; each update samples them from all "
        "texts. The student does not encode the texts of these vectors, so negatives cost little "
        "time.",
    )
    source_share: float = option(
        1.0,
        "fraction of the pairs in an update for which the student also encodes the sentence in "
        "the teacher's language; 1 in the paper. If the texts of several languages share these "
        "sentences, a smaller fraction suffices.",
    )
    epochs: float = 5.0
    batch: Count = option(
        32,
        "number of sentence pairs from each parallel text, and of sentences from each monolingual "
        "text, in an update.",
    )
    accumulate: Count = option(
        1, "number of parts into which each process divides its batch, to save memory.", role="run"
    )
    precision: TrainingPrecision = option(
        "float32", 'precision of the forward pass, "float32" or "bfloat16".'
    )

    def __post_init__(self):
        super().__post_init__()
        check_number("ranking", self.ranking, least=0)
        check_number("temperature", self.temperature, above=0)
        check_number("negatives", self.negatives, least=0, whole=True)
        if self.negatives and not self.ranking:
            raise SettingError("negatives require a ranking loss; set ranking above 0")
        check_number("source_share", self.source_share, least=0, most=1)
        check_number("accumulate", self.accumulate, least=1, whole=True)
        check_precision(self.precision, TRAINING_PRECISIONS)

    def distil(
        self,
        student: StudentEncoder,
        pooling: SentencePooling,
        teacher: TeacherVectors,
        corpora: Sequence[ParallelCorpus],
        texts: Sequence[Sentences] = (),
        run: Run = Run(),
    ) -> Student:
        """Train a copy of the student.

        Args:
            student, pooling: student (an encoder or static subword vectors) and its sentence
                pooling; neither is changed.
            teacher: stored vectors of the teacher; missing vectors are computed and added.
            corpora: parallel texts, each with one side in the teacher's language.
            texts: additional monolingual texts in the teacher's language.
            run: how to run the training.

        Raises:
            SettingError: there is no training text, settings contradict each other, or `run.folder`
                contains a checkpoint of a different run.
        """
        processes = Processes(self.precision)
        objective = self.objective(
            student, pooling, teacher, corpora, texts, processes=processes, progress=run.progress
        )
        lesson = objective.lesson
        schedule = self.schedule
        if schedule.learning_rate is None:
            schedule = replace(schedule, learning_rate=rate_by_width(student.dim, 2))
        plan = BatchPlan([len(part) for part in lesson.parts], batch=self.batch, seed=self.seed)
        loop = Loop(
            objective,
            schedule=schedule,
            processes=processes,
            identity=self.settings()
            | {"encoder": student.fingerprint, "text": [lesson.fingerprint, teacher.key]},
            folder=None if run.folder is None else Path(run.folder),
            checkpoint_every=run.checkpoint_every,
            progress=run.progress,
            title="distil",
        )
        history = loop.run(plan)
        record = training_record(self.settings(), schedule, lesson.counts, history)
        tuned = objective.student
        tuned.model.eval().requires_grad_(True)
        return Student(tuned, objective.pooling.cpu().eval(), record, history)

    def objective(
        self,
        student: StudentEncoder,
        pooling: SentencePooling,
        teacher: TeacherVectors,
        corpora: Sequence[ParallelCorpus],
        texts: Sequence[Sentences] = (),
        *,
        processes: Processes,
        progress: bool = False,
    ) -> Distilling:
        """Compute the teacher's missing vectors, and return the objective for training a copy of
        the student. The arguments are those of `distil`."""
        # The teacher's language becomes the source language of every corpus.
        ours = []
        for corpus in corpora:
            ours.append(corpus if corpus.langs[0] == self.towards else corpus.swapped())
        teacher.fill(
            Sentences.joined([*(corpus.source for corpus in ours), *texts]),
            rank=processes.rank,
            world=processes.world,
            meet=processes.meet,
            progress=progress,
        )
        tuned: Any = float32_copy(cast(HuggingFaceEncoder, student), processes.device)
        tuned.model.train()
        lesson = Lesson.of(student, pooling, teacher, ours, texts)
        source: VectorSource
        if isinstance(student, SubwordVectors):
            source = _BagSource(tuned.model, lesson.table)
        else:
            freeze_below(tuned, self.freeze)
            source = TrainedSource(tuned, lesson.table, processes, budget=self.budget)
        ending = self._pooling(student, pooling, teacher).to(processes.device)
        return Distilling(tuned, ending, lesson, teacher, source, processes, self)

    def _pooling(
        self, student: StudentEncoder, pooling: SentencePooling, teacher: TeacherVectors
    ) -> SentencePooling:
        """Return a copy of the student's pooling whose output matches the teacher's dimension and
        normalisation.
        """
        after: list[nn.Module] = [
            part for part in copy.deepcopy(pooling.after) if not isinstance(part, UnitLength)
        ]
        width = pooling.full_width(student.dim)
        if width != teacher.dim:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                after.append(nn.Linear(width, teacher.dim))
            after.append(nn.Identity())  # sentence-transformers requires an activation
        if teacher.pooling.unit_length:
            after.append(UnitLength())
        return SentencePooling(
            "own",
            "subwords",
            pooling.modes,
            after=after,
            max_length=pooling.max_length,
            lower=pooling.lower,
            prompt=pooling.prompt,
        )

    def terms(self, vectors: Tensor, own: Tensor, candidates: Tensor, n: int) -> dict[str, Tensor]:
        """Return the loss terms for one part of the texts in an update.

        Args:
            vectors: student vectors of the texts in this part, `[k, dim]`.
            own: index of each text's teacher vector among the candidates, int64 `[k]`.
            candidates: distinct teacher vectors of the full update, `[m, dim]`.
            n: number of texts in the full update.
        """
        # Σ ‖m(s) − M(s)‖² / n; summed over the parts, this is the batch mean of Reimers & Gurevych.
        terms = {"mse": (vectors - candidates[own]).square().sum() / n}
        if self.ranking:
            cosines = functional.normalize(vectors) @ functional.normalize(candidates).T
            logits = cosines / self.temperature
            ranking = functional.cross_entropy(logits, own, reduction="sum") / n
            terms["ranking"] = self.ranking * ranking
        return terms

    def settings(self) -> dict[str, Any]:
        names = (
            "towards",
            "ranking",
            "temperature",
            "negatives",
            "source_share",
            "batch",
            "freeze",
            "precision",
        )
        return {"method": "distillation", **{name: getattr(self, name) for name in names}}


@dataclass
class Lesson:
    """Texts tokenised for the student, with the indices of their teacher vectors.

    Attributes:
        table: all texts. In each corpus, the texts in the teacher's language come before their
            translations.
        places: index of each text's teacher vector, or −1 for an unused text; translations have
            equal indices, int64 `[n_texts]`.
        parts: for each corpus, the text indices of each pair `[n, 2]` or of each single text `[n,
            1]`, int64.
        counts: numbers of used sentence pairs, used sentences and truncated texts, which are saved
            with the result.
    """

    table: SplitSentences
    places: np.ndarray
    parts: list[np.ndarray]
    counts: dict[str, int]

    @classmethod
    def of(
        cls,
        student: StudentEncoder,
        pooling: SentencePooling,
        teacher: TeacherVectors,
        corpora: Sequence[ParallelCorpus],
        texts: Sequence[Sentences],
    ) -> Lesson:
        """Tokenise all texts. The source sides must be in the teacher's language, and `teacher`
        must contain their vectors.
        """
        groups: list[tuple[Sentences, ...]] = [(each.source, each.target) for each in corpora]
        groups += [(text,) for text in texts]
        tables, places, parts = [], [], []
        first = 0  # index of the first text of the group in the table
        for sides in groups:
            n = len(sides[0])
            # A text is usable if it and its translation have words and subwords.
            is_usable = np.ones(n, dtype=bool)
            for side in sides:
                split = pooling.split(student, side)
                is_usable &= (side.lengths() > 0) & (np.diff(split.word_offsets) > 0)
                tables.append(split)
            usable = np.flatnonzero(is_usable)
            of_side = np.full(n, -1, dtype=np.int64)
            of_side[usable] = teacher.places(sides[0].take(usable))
            places += [of_side] * len(sides)
            parts.append(np.stack([first + k * n + usable for k in range(len(sides))], axis=1))
            first += n * len(sides)
        counts = {
            "sentence_pairs": sum(len(part) for part in parts if part.shape[1] == 2),
            "sentences": sum(len(part) for part in parts if part.shape[1] == 1),
            "texts_cut": sum(table.truncated_sentences for table in tables),
        }
        return cls(SplitSentences.joined(tables), np.concatenate(places), parts, counts)

    @property
    def fingerprint(self) -> str:
        """Hash of the texts and of the indices used for training."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.table.ids, self.table.offsets, self.table.word_starts, *self.parts):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


class Distilling(Objective[Sequence[np.ndarray]]):
    """Distillation objective. An update contains the indices of the sentence pairs of each corpus,
    for all processes.

    Args:
        pooling: module that pools the student's token vectors into sentence vectors.
        source: source of the student's token vectors.
        processes: processes of the run, each of which computes the loss for a part of the texts.
        method: distillation settings, with the function that computes the loss terms.
    """

    def __init__(
        self,
        student: StudentEncoder,
        pooling: SentencePooling,
        lesson: Lesson,
        teacher: TeacherVectors,
        source: VectorSource,
        processes: Processes,
        method: Distillation,
    ):
        self.student, self.pooling, self.lesson = student, pooling, lesson
        self.module = nn.ModuleDict({"encoder": student.model, "pooling": pooling})
        self._teacher, self._source = teacher, source
        self._processes, self._method = processes, method
        self._updates = 0
        self._places = np.unique(lesson.places[lesson.places >= 0])

    def state(self) -> dict[str, Any]:
        return {"updates": self._updates}

    def load_state(self, state: dict[str, Any]) -> None:
        self._updates = state["updates"]

    def texts(self, update: Sequence[np.ndarray]) -> np.ndarray:
        """Return the sorted indices of the texts used in an update; the selection depends on the
        update number and the seed.
        """
        rng = np.random.default_rng([self._method.seed, self._updates])
        texts = []
        for part, rows in zip(self.lesson.parts, update, strict=True):
            texts.append(part[rows, -1])
            if part.shape[1] == 2:  # also encode some of the sentences in the teacher's language
                is_drawn = rng.random(len(rows)) < self._method.source_share
                texts.append(part[rows[is_drawn], 0])
        return np.sort(np.concatenate(texts))

    def sampled_negatives(self) -> np.ndarray:
        """Return the indices of randomly sampled teacher vectors, which serve as negatives."""
        rng = np.random.default_rng([self._method.seed, self._updates, 1])
        return self._places[rng.integers(len(self._places), size=self._method.negatives)]

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        texts, negatives = self.texts(update), self.sampled_negatives()
        self._updates += 1
        # The candidates are the distinct teacher vectors of all texts and negatives. `own` is the
        # index of each text's vector among them.
        needed = np.concatenate([self.lesson.places[texts], negatives])
        places, own = np.unique(needed, return_inverse=True)
        device = self._processes.device
        candidates = torch.from_numpy(self._teacher.take(places)).to(device)
        total: dict[str, Tensor] = {}
        for part in np.array_split(self._processes.share(texts), self._method.accumulate):
            taken = self._source.take(part)
            rows = taken.rows.requires_grad_()
            own_of_part = torch.from_numpy(own[np.searchsorted(texts, taken.numbers)]).to(device)
            vectors = self.pooling(rows, taken.lengths)
            terms = self._method.terms(vectors, own_of_part, candidates, max(1, len(texts)))
            torch.stack(list(terms.values())).sum().backward()
            if rows.grad is not None:
                self._source.backward(rows.grad)
            total = {name: value.detach() + total.get(name, 0.0) for name, value in terms.items()}
        values = self._processes.sum_numbers(torch.stack(list(total.values())))
        return {"loss": float(values.sum()), **dict(zip(total, values.tolist(), strict=True))}


class _BagSource(VectorSource):
    """Source of mean subword vectors, one per text, computed from a trainable embedding table."""

    def __init__(self, model: nn.Embedding, split: SplitSentences):
        self.dim, self.model = model.embedding_dim, model
        self.lengths = np.ones(len(split), dtype=np.int64)
        self._table, self._split = model, split
        self._rows = torch.zeros(0)

    def take(self, numbers: np.ndarray) -> WordRows:
        part, device = self._split.take(numbers), self._table.weight.device
        ids, bags = (
            torch.from_numpy(array).long().to(device) for array in (part.ids, part.offsets[:-1])
        )
        self._rows = functional.embedding_bag(ids, self._table.weight, bags, mode="mean")
        return WordRows(self._rows.detach(), torch.ones(len(numbers), dtype=torch.int64), numbers)

    def backward(self, gradient: Tensor) -> None:
        self._rows.backward(gradient)


def static_student(
    tokenizer: Any,
    teacher: TeacherVectors,
    texts: Sequence[Sentences],
    *,
    lang: str = "",
    name: str = "static",
    unit: bool = True,
    progress: bool = False,
) -> SubwordVectors:
    """Build static subword vectors as in model2vec, from mean-centred teacher vectors that are
    weighted by frequency.

    The weight is a / (a + p) with a = 0.001 (Arora et al. 2017, "A simple but tough-to-beat
    baseline for sentence embeddings"), where p is the relative frequency of the subword in the
    texts, or its estimate by Zipf's law if there are no texts. The teacher's dimensions are not
    reduced, so the result can be trained on the teacher's vectors.

    Args:
        tokenizer: fast tokenizer from `transformers`.
        teacher: stored vectors of the teacher; the vectors of all subwords are added to this store.
        texts: texts in which subwords are counted.
        lang: language of the teacher.
        name, unit: see `SubwordVectors`.
        progress: whether to show a progress bar.
    """
    subwords, n = Subwords(tokenizer), len(tokenizer)
    special = set(tokenizer.all_special_ids)
    words = [
        []
        if number in special
        else tokenizer.convert_tokens_to_string([token]).replace("##", "").split()
        for number, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(n))))
    ]
    each = Sentences.of(words, lang)
    teacher.fill(each, progress=progress)
    filled = np.flatnonzero(each.lengths())
    matrix = np.zeros((n, teacher.dim), dtype=np.float32)
    matrix[filled] = teacher.take(teacher.places(each.take(filled)))
    matrix[filled] -= matrix[filled].mean(axis=0)
    start = SubwordVectors(subwords.tokenizer, torch.from_numpy(matrix), unit=unit, name=name)
    shares = 1.0 / (np.arange(n) + 2)
    if texts:
        counts = sum(np.bincount(start.split(text).ids, minlength=n) for text in texts)
        shares = np.asarray(counts, dtype=np.float64)
    weights = torch.from_numpy(_SMOOTHING / (_SMOOTHING + shares / max(1e-9, shares.sum()))).float()
    return SubwordVectors(
        subwords.tokenizer, start.model.weight.detach() * weights[:, None], unit=unit, name=name
    )
