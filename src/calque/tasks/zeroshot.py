"""Zero-shot transfer: learn a task from text in some languages, be tested in others. The protocol of all tasks."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch

from calque.distributed import Processes
from calque.encoders.base import require
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.tasks.base import Languages, Score, Task
from calque.tasks.bootstrap import Statistic, measure_all, over_groups
from calque.tasks.datasets import Answers, Dataset, read_datasets, warn_of_shared
from calque.training.sources import (
    FrozenSource,
    SubsetSource,
    TrainedSource,
    VectorSource,
    WordRows,
    float32_copy,
    vectors_of,
)
from calque.training.supervised import Supervised, tuned_rate

if TYPE_CHECKING:
    from torch import Tensor, nn

    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs
    from calque.text import Sentences

D = TypeVar("D")
Select = Literal["source", "target", "last"]
_AT_ONCE = 128  # texts in a batch where nothing is learnt


@dataclass
class Learnt:
    """A head after training, and the encoder that goes with it.

    Attributes:
        epoch, score: what was chosen, and how well it did on development text.
    """

    head: nn.Module
    encoder: Any
    epoch: int
    score: float


class ZeroShot(Task, Generic[D]):
    """Trains a head with several seeds on text in the source languages and tests it on each test set.

    With frozen features the words are encoded once and every seed learns from the same vectors. With `tune` the encoder
    learns too, a fresh copy for each seed. Which side an alignment moves is the encoder's matter: one that is mapped
    towards the target's language moves the text that is learnt from (Kulshreshtha et al. 2020), one that is mapped towards
    the source's language moves what is tested. The state that is tested is the one after the epoch with the best score on
    development text (`select`):

    - "source": the mean over the development texts in the source languages, or over one in ten texts of each training
      text where there is none. Nothing of the target languages is seen.
    - "target": the mean over all development texts, those in the source languages and those in the others, as Cao et
      al. (2020, §3.5) choose; with text in the other languages alone it is the choice of Kulshreshtha et al. (2020,
      §4.2). A leak, so every score says it.
    - "last": no choice.

    Args:
        train: text to learn from; several for several source languages at once.
        tests: what to test on.
        dev: text to select on.
        seeds: one training run for each; default: 0 to 4, and 0 to 2 with `tune`.
        tune: train the encoder as well.
        select: see above.
        options: settings of `Supervised` (epochs, batch, learning_rate, patience, …) instead of the task's own. Without a
            learning rate a head with its encoder learns at one that follows from the encoder's width, `tuned_rate`.
        bootstrap: samples of the intervals.
        seed: for the record.

    Attributes:
        name: of the task.
        statistics: its figures, the main one first: sums over texts `[…, k]` → `[…]`.
        sources: the languages that are learnt from.
        checkpoints: a folder for the checkpoints of the trainings; None for none.
        protocol: zero-shot, or "ceiling" where the training text is in the language of the tests; for the record.
    """

    name: str
    statistics: Mapping[str, Statistic]
    checkpoints: Path | None = None
    protocol = "zero-shot"
    files = ("test", "train", "dev", "ceiling")
    languages: ClassVar[Languages] = "files"
    #: default number of epochs of a head on frozen vectors, and of a head with its encoder
    epochs: ClassVar[tuple[int, int]] = (15, 3)
    #: tasks that the class serves, if there are several: its first argument then
    names: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        train: Sequence[Dataset[D]],
        tests: Sequence[Dataset[D]],
        *,
        dev: Sequence[Dataset[D]] = (),
        seeds: Sequence[int] | None = None,
        tune: bool = False,
        select: Select = "source",
        options: Mapping[str, Any] | None = None,
        bootstrap: int = 1000,
        seed: int = 0,
    ):
        seeds = range(3 if tune else 5) if seeds is None else seeds
        if not train or not tests or not seeds:
            raise SettingError("training text, test text and at least one seed are needed")
        if select not in ("source", "target", "last"):
            raise SettingError(f"select is source, target or last, got {select!r}")
        for each in (*train, *tests, *dev):
            if not len(each.data) or not self.sentences(each.data).lengths().any():  # type: ignore[arg-type]
                raise SettingError(f"{each.name}: has no texts")
        self.train, self.tests, self.tune, self.select = list(train), list(tests), tune, select
        self.seeds, self.bootstrap, self.seed = list(seeds), bootstrap, seed
        self.options = {**self.defaults(), **({"learning_rate": None} if tune else {}), **dict(options or {})}
        self.sources = list(dict.fromkeys(each.lang for each in train))
        foreign = [each for each in dev if each.lang not in self.sources]
        self.dev = {"source": [each for each in dev if each.lang in self.sources], "target": list(dev)}.get(select, [])
        if select == "source" and dev and not self.dev:
            raise SettingError(
                f"development text in {', '.join(dict.fromkeys(each.lang for each in dev))} only, and the epoch is chosen in "
                f"{', '.join(self.sources)}: give text in it, or set select=target"
            )
        if select == "target" and not foreign:
            raise SettingError("select=target needs development text in a language that is not trained on")

    # -- from files ------------------------------------------------------------------------------------------------
    @staticmethod
    @abstractmethod
    def read(path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise") -> Any:
        """A data set from a file; further keyword-only parameters are options of the task."""

    @classmethod
    def takes(cls) -> list[Callable[..., Any]]:
        return [cls.from_files, cls.read, cls, Supervised]

    @classmethod
    def from_files(
        cls,
        inputs: Inputs,
        *,
        seeds: int | None = None,
        tune: bool = False,
        select: Select = "source",
        on_error: Literal["raise", "skip"] = "raise",
        **own: Any,
    ) -> list[Task]:
        """The task, and for each language of `--ceiling` the same task learnt from that text (translate-train); or the task
        learnt from labels that are projected over parallel text (`--project`).

        Args:
            inputs: files; the language of each is in its name or stands before it.
            seeds: training runs, with the seeds 0, 1, …; default: see the class.
            tune, select: see the class.
            on_error: "raise", or "skip" to leave out what cannot be read.
            own: of `read`, of `Supervised`, and of the task itself.
        """
        if not inputs.train:
            raise SettingError(f"{inputs.task} needs training text: --train FILE")
        if inputs.ceiling and inputs.project:
            raise SettingError("--ceiling and --project cannot be combined: leave one out")
        options = {name: own.pop(name) for name in inspect.signature(Supervised).parameters if name in own}
        offered = {"on_error": on_error, "pretokenized": inputs.words.pretokenized, **own}
        reading = {name: offered[name] for name in inspect.signature(cls.read).parameters if name in offered}
        read, known, limit = partial(cls.read, **reading), {}, inputs.words.limit
        train, tests, dev, ceiling = (
            read_datasets(files, read, most, known, inputs.say)
            for files, most in (
                (inputs.train, limit), (inputs.test, inputs.test_limit), (inputs.dev, inputs.test_limit), (inputs.ceiling, limit),
            )
        )  # fmt: skip
        for each in tests:
            warn_of_shared(each, [*train, *(text for text in ceiling if text.lang == each.lang)])
        make = partial(
            cls, *((inputs.task,) if cls.names else ()), tune=tune, seeds=None if seeds is None else range(seeds),
            options=options,
            **{name: value for name, value in own.items() if name not in reading},
        )  # fmt: skip
        if inputs.project:
            return [cls.projected(inputs, make, train, tests)]
        tasks: list[Task] = [make(train, tests, dev=dev, select=select)]
        for lang in dict.fromkeys(each.lang for each in ceiling):
            learnt, tested, watched = ([each for each in some if each.lang == lang] for some in (ceiling, tests, dev))
            if not tested:
                langs = ", ".join(dict.fromkeys(each.lang for each in tests))
                raise SettingError(f"--ceiling has text in {lang}, but the tests are in {langs}")
            # Development text of a target language is in the ceiling's own language.
            tasks.append(make(learnt, tested, dev=watched, select="source" if select == "target" else select))
            tasks[-1].protocol = "ceiling"  # type: ignore[attr-defined]
        return tasks

    @classmethod
    def projected(cls, inputs: Inputs, make: Callable[..., Any], train: Sequence[Dataset[D]], tests: Any) -> Task:
        """The task learnt from projected labels.

        Raises:
            SettingError: the labels of this task are not those of words.
        """
        raise SettingError(f"labels can only be projected for tags of words, not for {inputs.task}")

    # -- what a task says of itself: its head, its losses and its figures ----------------------------------------------
    def defaults(self) -> dict[str, Any]:
        """Return settings of `Supervised` that suit the task."""
        if self.tune:
            return {"epochs": self.epochs[1], "batch": 32, "warmup": 0.1, "decay": "linear", "clip": 1.0}
        return {"epochs": self.epochs[0], "batch": 32, "learning_rate": 1e-3, "patience": 4}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What else decides the scores, for the record."""

    def settings_of(self, test: Dataset[D]) -> dict[str, Any]:
        """The same of one test set."""
        return {}

    def groups(self, data: D) -> Sequence[Hashable]:
        """Return what the texts have in common, `[S]`: texts of one group, such as questions on one passage, are resampled
        together. Empty where each text is on its own."""
        return ()

    @abstractmethod
    def sentences(self, data: D) -> Sentences:
        """Everything that is to be encoded."""

    @abstractmethod
    def answers(self, each: Dataset[D]) -> Answers:
        """The right answers, as numbers that mean the same in every data set."""

    @abstractmethod
    def head(self, dim: int) -> nn.Module:
        """A new head on vectors of `dim` dimensions."""

    @abstractmethod
    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        """`[S]`, for the texts that are given."""

    @abstractmethod
    def judge(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        """Sums of which the statistics are made, float `[S, k]` by figure, for the texts that are given."""

    def training(self, encoder: Encoder) -> dict[str, Any]:
        """Settings of `Supervised` for this encoder."""
        known = self.options.get("learning_rate") is not None or not self.tune
        return self.options if known else {**self.options, "learning_rate": tuned_rate(encoder.dim)}

    def split(self, encoder: Any, data: D) -> Any:
        """The texts as subwords where the encoder learns too."""
        return encoder.split(self.sentences(data))

    def encoded(self, encoder: Encoder, data: D, *, progress: bool = False) -> Any:
        """What an encoder makes of the texts, where it does not learn: `Embeddings`, or what `frozen` reads."""
        return encoder.encode(self.sentences(data), progress=progress)

    def frozen(self, embeddings: Any, device: torch.device) -> VectorSource:
        """The source over what `encoded` gave."""
        return FrozenSource(embeddings, device)

    def chosen_on(self) -> list[str] | str:
        """By which texts the epoch is chosen."""
        if self.dev:
            return [each.name for each in self.dev]
        return "one in ten training texts" if self.select == "source" else "the last one"

    # -- the protocol ----------------------------------------------------------------------------------------------
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Scores of every test set, the main figure first: mean over the seeds, with an interval that holds other seeds and
        other texts (`Measured.over_runs`); with one seed it can hold texts only.

        `settings` has the value of every seed, their standard deviation and the epochs chosen; `gap` is by how much the
        first test set in a source language is better, where there is one.
        """
        experiment = Experiment(self, encoder, progress=progress)
        runs = [experiment.learn(seed) for seed in self.seeds]
        tested = [experiment.test(learnt) for learnt in runs]
        about = {
            "protocol": self.protocol, "encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint,
            "train": [e.name for e in self.train],
            "features": "tuned" if self.tune else "frozen", "select": self.select, "seeds": self.seeds,
            "dev": self.chosen_on(), "chosen_epochs": [run.epoch for run in runs],
            "dev_scores": [round(run.score, 5) for run in runs], **self.settings(), **self.training(encoder),
        }  # fmt: skip
        scores = []
        for number, test in enumerate(self.tests):
            figures, values, spreads, groups = [], [], [], self.groups(test.data)
            questions = len(next(iter(tested[0][number].values())))
            for metric, statistic in self.statistics.items():
                sums = np.stack([sums[number][metric] for sums in tested], axis=1)
                values.append(tuple(float(statistic(sums[:, k].sum(axis=0))) for k in range(len(runs))))
                spread = float(np.std(values[-1], ddof=1)) if len(runs) > 1 else 0.0
                spreads.append({"values": [round(value, 5) for value in values[-1]], "sd": round(spread, 5)})
                flat = over_groups(sums.reshape(questions, -1), groups)
                figures.append((flat, _mean_of(statistic, sums.shape[1:])))
            measures = zip(self.statistics, measure_all(figures, samples=self.bootstrap), values, spreads, strict=True)
            scores += [
                Score(self.name, test.name, (*self.sources, test.lang), metric, *measured.over_runs(of_runs),
                      questions, self.seed, about | self.settings_of(test) | spread, runs=of_runs,
                      **measured.kept)
                for metric, measured, of_runs, spread in measures
            ]  # fmt: skip
        return _with_gaps(scores, self.sources)


def _mean_of(statistic: Statistic, shape: tuple[int, ...]) -> Statistic:
    """The mean over seeds of a figure whose sums, `[seeds, k]`, stand in one row."""
    return lambda flat: statistic(flat.reshape(*flat.shape[:-1], *shape)).mean(-1)


def _with_gaps(scores: list[Score], sources: Sequence[str]) -> list[Score]:
    """The same, with `gap` in the settings of those in other languages."""
    with_gaps = []
    for score in scores:
        at_home = [s.value for s in scores if s.metric == score.metric and s.languages[-1] in sources]
        if at_home and score.languages[-1] not in sources:
            score = score.about(gap=round(at_home[0] - score.value, 5))
        with_gaps.append(score)
    return with_gaps


class Experiment(Generic[D]):
    """One encoder's data for a task, ready for every seed.

    Args:
        encoder: whose vectors are read; not changed.
    """

    def __init__(self, task: ZeroShot[D], encoder: Encoder, *, progress: bool = False):
        require(encoder, "measured", task.rows)
        self.task, self.encoder, self.processes, self.progress = task, encoder, Processes(), progress
        self._known: dict[int, Any] = {}  # vectors or subwords, by the identity of the data that they are of
        answers_by_text = [task.answers(each) for each in task.train]
        self.answers = type(answers_by_text[0]).joined(answers_by_text)
        # Before anything is computed: a label that nobody has learnt should be told now, not after the training.
        self._gold = [task.answers(each) for each in task.tests]
        sizes = [len(answers.lengths) for answers in answers_by_text]
        self.dev = [(self._data(each), task.answers(each)) for each in task.dev]
        self.held_out = []
        trained = np.arange(sum(sizes))
        if not task.dev and task.select == "source":
            starts = offsets_of(sizes)
            self.held_out = [numbers for a, b in itertools.pairwise(starts) if len(numbers := _held_out(trained[a:b]))]
            trained = np.setdiff1d(trained, np.concatenate([np.zeros(0, dtype=np.int64), *self.held_out]))
        self.kept = trained
        langs = [task.sources.index(each.lang) for each in task.train]
        self.groups = np.repeat(langs, sizes)[trained]
        texts = [self._data(each) for each in task.train]
        self.text: Any = type(texts[0]).joined(texts)
        if not task.tune:  # the same tensors for every seed
            self.text = task.frozen(self.text, self.processes.device)
            self.dev = [(task.frozen(data, self.processes.device), answers) for data, answers in self.dev]
        self._tests: list[Any] | None = None

    def _data(self, each: Dataset[D]) -> Any:
        """Vectors, or subwords where they are to be computed anew."""
        if id(each.data) not in self._known:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self._known[id(each.data)] = self._read(each)
            for warning in caught:
                warning.message.args = (f"{each.name}: {warning.message}",)  # type: ignore[union-attr]
                warnings.warn(warning.message, stacklevel=2)
        return self._known[id(each.data)]

    def _read(self, each: Dataset[D]) -> Any:
        if not self.task.tune:
            return self.task.encoded(self.encoder, each.data, progress=self.progress)
        if not isinstance(self.encoder, TrainableEncoder):
            raise SettingError(f"{self.encoder.name} cannot be fine-tuned: use frozen features (leave out --tune)")
        split = self.task.split(self.encoder, each.data)
        if split.truncated_sentences:
            limit = self.encoder.max_length
            message = f"{split.truncated_sentences:,} texts are longer than {limit} subwords and are truncated"
            warnings.warn(message, stacklevel=2)
        return split

    def _key(self, seed: int) -> str:
        """Return a hash over all that a training depends on: settings, encoder, texts and their gold answers."""
        task, digest = self.task, hashlib.blake2b(digest_size=16)
        for each in (*task.train, *task.dev):
            digest.update(repr([sentence.words for sentence in task.sentences(each.data)]).encode("utf-8", "replace"))
            gold = task.answers(each)
            for name, values in {**gold.words, **gold.texts}.items():
                digest.update(repr((name, np.asarray(values).tolist())).encode("utf-8", "replace"))
        about = [task.name, seed, self.encoder.fingerprint, task.select, task.settings(), task.training(self.encoder)]
        digest.update(json.dumps(about, sort_keys=True, default=str).encode())
        return digest.hexdigest()

    def learn(self, seed: int) -> Learnt:
        """Train a new head, and a copy of the encoder if it learns too."""
        task, device = self.task, self.processes.device
        torch.manual_seed(seed)
        head = task.head(self.encoder.dim).to(device)
        supervised = Supervised(seed=seed, **task.training(self.encoder))
        encoder = float32_copy(self.encoder, device) if task.tune else self.encoder  # type: ignore[arg-type]
        metric, statistic = next(iter(task.statistics.items()))
        source = TrainedSource(encoder, self.text, self.processes) if task.tune else self.text  # type: ignore[arg-type]

        def select() -> float:
            watched = [(self._source(data, encoder), answers) for data, answers in self.dev]
            watched += [(self.source_of(numbers, encoder), self.answers) for numbers in self.held_out]
            values = [statistic(self._judged(head, *each)[metric].sum(axis=0)) for each in watched]
            return float(np.mean(np.nan_to_num(values)))

        supervised.fit(
            head, SubsetSource(source, self.kept), lambda given: task.losses(head, given, self.answers), groups=self.groups,
            processes=self.processes, select=select if self.dev or self.held_out else None,
            folder=None if task.checkpoints is None else task.checkpoints / self._key(seed),
            progress=self.progress, title=f"{task.name} {seed}",
        )  # fmt: skip
        head.eval()
        return Learnt(head, encoder, supervised.best_epoch, supervised.best)

    def test(self, learnt: Learnt) -> list[dict[str, np.ndarray]]:
        """Sums of every test set, by figure."""
        if self._tests is None:
            self._tests = [self._data(each) for each in self.task.tests]
        tests = zip(self._tests, self._gold, strict=True)
        return [self._judged(learnt.head, self._source(data, learnt.encoder), answers) for data, answers in tests]

    def batches(self, learnt: Learnt, each: Dataset[D]) -> Iterator[WordRows]:
        """The texts of a data set in batches, to be read by what was learnt."""
        yield from _batches(self._source(self._data(each), learnt.encoder))

    def _source(self, data: Any, encoder: Any) -> VectorSource:
        """Vectors of some texts, as the encoder sees them now."""
        if isinstance(data, VectorSource):
            return data
        if not self.task.tune:
            return self.task.frozen(data, self.processes.device)
        return FrozenSource(vectors_of(encoder, data), self.processes.device)

    def source_of(self, numbers: np.ndarray, encoder: Any) -> VectorSource:
        """Vectors of some of the training texts."""
        if not self.task.tune:
            return SubsetSource(self.text, numbers)
        return FrozenSource(vectors_of(encoder, self.text.take(numbers)), self.processes.device, numbers)

    @torch.no_grad()
    def _judged(self, head: nn.Module, source: VectorSource, answers: Answers) -> dict[str, np.ndarray]:
        """Sums of all texts, in their order, `[S, k]`."""
        numbers: list[np.ndarray] = []
        parts: dict[str, list[np.ndarray]] = {}
        for given in _batches(source):
            numbers.append(given.numbers)
            for metric, sums in self.task.judge(head, given, answers).items():
                parts.setdefault(metric, []).append(sums)
        order = np.argsort(np.concatenate(numbers))
        return {metric: np.concatenate(batches)[order].astype(np.float64) for metric, batches in parts.items()}


def _held_out(numbers: np.ndarray) -> np.ndarray:
    """One in ten texts of a training text, by which the epoch is chosen; none of a single one."""
    return numbers[9::10] if len(numbers) >= 10 else numbers[-1:] if len(numbers) > 1 else numbers[:0]


def _batches(source: VectorSource) -> Iterator[WordRows]:
    """Texts of about the same length together."""
    order = np.argsort(-source.lengths, kind="stable")
    for start in range(0, len(order), _AT_ONCE):
        yield source.take(order[start : start + _AT_ONCE])
