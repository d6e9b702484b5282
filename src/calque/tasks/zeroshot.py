"""Zero-shot transfer: train on text in some languages, test on others. All tasks share this protocol."""

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
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, get_args

import numpy as np
import torch

from calque.distributed import Processes
from calque.encoders.base import require
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.tasks.base import Languages, Score, Task, about_encoder
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
_BATCH = 128  # number of texts of a batch without training


@dataclass
class Trained:
    """A trained head and its encoder, the selected epoch, and the score of this epoch on development text."""

    head: nn.Module
    encoder: Any
    epoch: int
    score: float


class ZeroShot(Task, Generic[D]):
    """Train a head with several seeds on text in the source languages and test it on each test set.

    With frozen features the words are encoded once, and every seed is trained on the same vectors. With `tune` a fresh
    copy of the encoder is trained for each seed. The encoder decides which side an alignment maps: an encoder mapped
    towards the target language maps the training text (Kulshreshtha et al. 2020), an encoder mapped towards the source
    language maps the test text. The tested epoch has the best mean score on development texts (`select`):

    - "source": texts in the source languages, or one tenth of each training text if there are none.
    - "target": all texts, in source and target languages (Cao et al. 2020, §3.5) or in the target languages only
      (Kulshreshtha et al. 2020, §4.2). This uses target data, so every score records it.
    - "last": none; the last epoch is tested.

    Args:
        train: training texts, in one or several source languages.
        tests: test sets.
        dev: development texts that select the epoch.
        seeds: seeds of the training runs; default: 0 to 4, or 0 to 2 with `tune`.
        tune: train the encoder as well.
        options: settings of `Supervised` (epochs, batch, learning_rate, patience, …) that replace those of the task. With
            `tune` the default learning rate depends on the width of the encoder, see `tuned_rate`.
        bootstrap: number of bootstrap samples of the intervals.
        seed: seed in the record.

    Attributes:
        statistics: scores of the task, the main score first: functions of sums over texts, `[…, k]` → `[…]`.
        sources: languages of the training texts.
        checkpoints: folder for training checkpoints; None: no checkpoints.
        protocol: zero-shot, or "ceiling" if the training text is in the language of the tests.
    """

    name: str
    statistics: Mapping[str, Statistic]
    checkpoints: Path | None = None
    protocol = "zero-shot"
    files = ("test", "train", "dev", "ceiling")
    languages: ClassVar[Languages] = "files"
    #: default number of epochs of a head on frozen vectors, and of a head with its encoder
    epochs: ClassVar[tuple[int, int]] = (15, 3)
    #: names of the tasks if the class implements several; the first argument of the class is then one of them
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
        if select not in get_args(Select):
            raise SettingError(f"select must be source, target or last, got {select!r}")
        for each in (*train, *tests, *dev):
            if not len(each.data) or not self.sentences(each.data).lengths().any():  # type: ignore[arg-type]
                raise SettingError(f"{each.name}: has no texts")
        self.train, self.tests, self.tune, self.select = list(train), list(tests), tune, select
        self.seeds, self.bootstrap, self.seed = list(seeds), bootstrap, seed
        self.options = {**self.defaults(), **({"learning_rate": None} if tune else {}), **dict(options or {})}
        self.sources = list(dict.fromkeys(each.lang for each in train))
        known = [each for each in dev if each.lang in self.sources]
        self.dev = {"source": known, "target": list(dev), "last": []}[select]
        if select == "source" and dev and not known:
            raise SettingError(
                f"development text in {', '.join(dict.fromkeys(each.lang for each in dev))} only, and the epoch is chosen in "
                f"{', '.join(self.sources)}: give text in it, or set select=target"
            )
        if select == "target" and len(known) == len(dev):
            raise SettingError("select=target needs development text in a language that is not trained on")

    # -- from files ------------------------------------------------------------------------------------------------
    @staticmethod
    @abstractmethod
    def read(path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise") -> Any:
        """Read a data set from a file; further keyword-only parameters are options of the task."""

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
        """Return the task, and for each language of `--ceiling` the same task trained on that text (translate-train). With
        `--project` return the task trained on labels projected over parallel text.

        Args:
            inputs: files; the language of each is in its name or before it.
            seeds: number of training runs, with the seeds 0, 1, …; default: see the class.
            tune, select: see the class.
            on_error: "raise", or "skip" to leave out lines that cannot be read.
            own: options of `read`, of `Supervised`, and of the task itself.
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
            read_datasets(files, read, max_texts, known, inputs.say)
            for files, max_texts in (
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
            own_train, own_tests, own_dev = ([e for e in some if e.lang == lang] for some in (ceiling, tests, dev))
            if not own_tests:
                langs = ", ".join(dict.fromkeys(each.lang for each in tests))
                raise SettingError(f"--ceiling has text in {lang}, but the tests are in {langs}")
            # Development text of a target language is in the language of its ceiling.
            tasks.append(make(own_train, own_tests, dev=own_dev, select="source" if select == "target" else select))
            tasks[-1].protocol = "ceiling"  # type: ignore[attr-defined]
        return tasks

    @classmethod
    def projected(cls, inputs: Inputs, make: Callable[..., Any], train: Sequence[Dataset[D]], tests: Any) -> Task:
        """Return the task trained on projected labels; only tasks whose labels are tags of words have one."""
        raise SettingError(f"labels can only be projected for tags of words, not for {inputs.task}")

    # -- what each task defines: head, losses and scores -----------------------------------------------------------
    def defaults(self) -> dict[str, Any]:
        """Return settings of `Supervised` that suit the task."""
        if self.tune:
            return {"epochs": self.epochs[1], "batch": 32, "warmup": 0.1, "decay": "linear", "clip": 1.0}
        return {"epochs": self.epochs[0], "batch": 32, "learning_rate": 1e-3, "patience": 4}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return further settings that determine the scores, for the record."""

    def settings_of(self, test: Dataset[D]) -> dict[str, Any]:
        """Return further settings of one test set."""
        return {}

    def groups(self, data: D) -> Sequence[Hashable]:
        """Return the group of each text, `[S]`, or nothing if each text is a group. Texts of one group, such as questions on one
        passage, are resampled together."""
        return ()

    @abstractmethod
    def sentences(self, data: D) -> Sentences:
        """Return all sentences to encode."""

    @abstractmethod
    def answers(self, each: Dataset[D]) -> Answers:
        """Return the gold answers as numbers with the same meaning in every data set."""

    @abstractmethod
    def head(self, dim: int) -> nn.Module:
        """Return a new head for vectors of `dim` dimensions."""

    @abstractmethod
    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        """Return the loss of each given text, `[S]`."""

    @abstractmethod
    def counts(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        """Return the counts from which `statistics` compute each score for the given texts, float `[S, k]` by score."""

    def training(self, encoder: Encoder) -> dict[str, Any]:
        """Return settings of `Supervised` for this encoder."""
        known = self.options.get("learning_rate") is not None or not self.tune
        return self.options if known else {**self.options, "learning_rate": tuned_rate(encoder.dim)}

    def split(self, encoder: Any, data: D) -> Any:
        """Return the texts as subwords, for training the encoder."""
        return encoder.split(self.sentences(data))

    def encoded(self, encoder: Encoder, data: D, *, progress: bool = False) -> Any:
        """Return the vectors of a frozen encoder, as `frozen` takes them."""
        return encoder.encode(self.sentences(data), progress=progress)

    def frozen(self, embeddings: Any, device: torch.device) -> VectorSource:
        """Return a source of batches over the result of `encoded`."""
        return FrozenSource(embeddings, device)

    # -- the protocol ----------------------------------------------------------------------------------------------
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the scores of every test set, the main score first: mean over the seeds, with an interval over seeds and
        texts (`Measured.over_runs`). With one seed the interval covers texts only.

        `gap` in the settings is the difference to the first test set in a source language, if there is one.
        """
        experiment = Experiment(self, encoder, progress=progress)
        runs = [experiment.train(seed) for seed in self.seeds]
        tested = [experiment.test(run) for run in runs]
        without_dev = "one in ten training texts" if self.select == "source" else "the last one"
        about = {
            "protocol": self.protocol, **about_encoder(encoder), "train": [e.name for e in self.train],
            "features": "tuned" if self.tune else "frozen", "select": self.select, "seeds": self.seeds,
            "dev": [e.name for e in self.dev] or without_dev, "chosen_epochs": [run.epoch for run in runs],
            "dev_scores": [round(run.score, 5) for run in runs], **self.settings(), **self.training(encoder),
        }  # fmt: skip
        scores: list[Score] = []
        for number, test in enumerate(self.tests):
            figures, values, groups = [], [], self.groups(test.data)
            n = len(next(iter(tested[0][number].values())))
            for metric, statistic in self.statistics.items():
                sums = np.stack([sums[number][metric] for sums in tested], axis=1)
                values.append(tuple(float(statistic(sums[:, k].sum(axis=0))) for k in range(len(runs))))
                flat = over_groups(sums.reshape(n, -1), groups)
                figures.append((flat, _mean_of(statistic, sums.shape[1:])))
            measures = zip(self.statistics, measure_all(figures, samples=self.bootstrap), values, strict=True)
            for metric, measured, of_runs in measures:
                sd = float(np.std(of_runs, ddof=1)) if len(runs) > 1 else 0.0
                spread = {"values": [round(value, 5) for value in of_runs], "sd": round(sd, 5)}
                scores.append(Score(
                    self.name, test.name, (*self.sources, test.lang), metric, *measured.over_runs(of_runs), n, self.seed,
                    about | self.settings_of(test) | spread, runs=of_runs, **measured.kept,
                ))  # fmt: skip
        in_source: dict[str, float] = {}
        for score in scores:
            if score.languages[-1] in self.sources:
                in_source.setdefault(score.metric, score.value)
        return [
            score if score.languages[-1] in self.sources or score.metric not in in_source
            else score.about(gap=round(in_source[score.metric] - score.value, 5))
            for score in scores
        ]  # fmt: skip


def _mean_of(statistic: Statistic, shape: tuple[int, ...]) -> Statistic:
    """Return the mean over seeds of a score whose sums, `[seeds, k]`, are in one row."""
    return lambda flat: statistic(flat.reshape(*flat.shape[:-1], *shape)).mean(-1)


class Experiment(Generic[D]):
    """Vectors and gold answers of a task for one encoder, which are shared by all seeds; the encoder is not changed."""

    def __init__(self, task: ZeroShot[D], encoder: Encoder, *, progress: bool = False):
        require(encoder, "measured", task.rows)
        self.task, self.encoder, self.processes, self.progress = task, encoder, Processes(), progress
        self._known: dict[int, Any] = {}  # vectors or subwords by `id` of their data set
        answers_by_text = [task.answers(each) for each in task.train]
        self.answers = type(answers_by_text[0]).joined(answers_by_text)
        self._gold = [task.answers(each) for each in task.tests]  # an unknown label is an error before the training
        sizes = [len(answers.lengths) for answers in answers_by_text]
        self.dev = [(self._data(each), task.answers(each)) for each in task.dev]
        self.held_out, self.kept = [], np.arange(sum(sizes))
        if not task.dev and task.select == "source":
            parts = (_held_out(np.arange(a, b)) for a, b in itertools.pairwise(offsets_of(sizes)))
            self.held_out = [numbers for numbers in parts if len(numbers)]
            self.kept = np.setdiff1d(self.kept, np.concatenate([np.zeros(0, dtype=np.int64), *self.held_out]))
        langs = [task.sources.index(each.lang) for each in task.train]
        self.groups = np.repeat(langs, sizes)[self.kept]
        texts = [self._data(each) for each in task.train]
        self.text: Any = type(texts[0]).joined(texts)
        if not task.tune:  # every seed uses the same tensors
            self.text = task.frozen(self.text, self.processes.device)
            self.dev = [(task.frozen(data, self.processes.device), answers) for data, answers in self.dev]
        self._tests: list[Any] | None = None

    def _data(self, each: Dataset[D]) -> Any:
        """Return vectors, or subwords if the vectors must be computed again."""
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
            limit = f"{self.encoder.max_length} subwords"
            warnings.warn(f"{split.truncated_sentences:,} texts exceed {limit} and are truncated", stacklevel=2)
        return split

    def _key(self, seed: int) -> str:
        """Return a hash over everything that affects the training: settings, encoder, texts and gold answers."""
        task, digest = self.task, hashlib.blake2b(digest_size=16)
        for each in (*task.train, *task.dev):
            digest.update(repr([sentence.words for sentence in task.sentences(each.data)]).encode("utf-8", "replace"))
            gold = task.answers(each)
            for name, values in {**gold.words, **gold.texts}.items():
                digest.update(repr((name, np.asarray(values).tolist())).encode("utf-8", "replace"))
        about = [task.name, seed, self.encoder.fingerprint, task.select, task.settings(), task.training(self.encoder)]
        digest.update(json.dumps(about, sort_keys=True, default=str).encode())
        return digest.hexdigest()

    def train(self, seed: int) -> Trained:
        """Train a new head, and with `tune` a copy of the encoder."""
        task, device = self.task, self.processes.device
        torch.manual_seed(seed)
        head = task.head(self.encoder.dim).to(device)
        supervised = Supervised(seed=seed, **task.training(self.encoder))
        encoder = float32_copy(self.encoder, device) if task.tune else self.encoder  # type: ignore[arg-type]
        metric, statistic = next(iter(task.statistics.items()))
        source = TrainedSource(encoder, self.text, self.processes) if task.tune else self.text  # type: ignore[arg-type]

        def select() -> float:
            texts = [(self._source(data, encoder), answers) for data, answers in self.dev]
            texts += [(self._source_of(numbers, encoder), self.answers) for numbers in self.held_out]
            values = [statistic(self._counts(head, *each)[metric].sum(axis=0)) for each in texts]
            return float(np.mean(np.nan_to_num(values)))

        supervised.fit(
            head, SubsetSource(source, self.kept), lambda given: task.losses(head, given, self.answers), groups=self.groups,
            processes=self.processes, select=select if self.dev or self.held_out else None,
            folder=None if task.checkpoints is None else task.checkpoints / self._key(seed),
            progress=self.progress, title=f"{task.name} {seed}",
        )  # fmt: skip
        head.eval()
        return Trained(head, encoder, supervised.best_epoch, supervised.best)

    def test(self, trained: Trained) -> list[dict[str, np.ndarray]]:
        """Return the counts of every test set by score."""
        if self._tests is None:
            self._tests = [self._data(each) for each in self.task.tests]
        tests = zip(self._tests, self._gold, strict=True)
        return [self._counts(trained.head, self._source(data, trained.encoder), answers) for data, answers in tests]

    def batches(self, trained: Trained, each: Dataset[D]) -> Iterator[WordRows]:
        """Return the batches of a data set for a trained head."""
        return _batches(self._source(self._data(each), trained.encoder))

    def _source(self, data: Any, encoder: Any) -> VectorSource:
        if isinstance(data, VectorSource):
            return data
        device = self.processes.device
        return FrozenSource(vectors_of(encoder, data), device) if self.task.tune else self.task.frozen(data, device)

    def _source_of(self, numbers: np.ndarray, encoder: Any) -> VectorSource:
        """Return a source of some training texts."""
        if not self.task.tune:
            return SubsetSource(self.text, numbers)
        return FrozenSource(vectors_of(encoder, self.text.take(numbers)), self.processes.device, numbers)

    @torch.no_grad()
    def _counts(self, head: nn.Module, source: VectorSource, answers: Answers) -> dict[str, np.ndarray]:
        """Return the counts of all texts in their order, `[S, k]` by score."""
        numbers: list[np.ndarray] = []
        parts: dict[str, list[np.ndarray]] = {}
        for given in _batches(source):
            numbers.append(given.numbers)
            for metric, sums in self.task.counts(head, given, answers).items():
                parts.setdefault(metric, []).append(sums)
        order = np.argsort(np.concatenate(numbers))
        return {metric: np.concatenate(batches)[order].astype(np.float64) for metric, batches in parts.items()}


def _held_out(numbers: np.ndarray) -> np.ndarray:
    """Return every tenth text, to select the epoch; the last of fewer than ten texts, and none of one."""
    return numbers[9::10] if len(numbers) >= 10 else numbers[-1:] if len(numbers) > 1 else numbers[:0]


def _batches(source: VectorSource) -> Iterator[WordRows]:
    """Yield batches of texts of similar length."""
    order = np.argsort(-source.lengths, kind="stable")
    for start in range(0, len(order), _BATCH):
        yield source.take(order[start : start + _BATCH])
