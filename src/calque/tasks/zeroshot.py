"""Zero-shot transfer: train on text in some languages, and test in other languages. All trained
tasks use this protocol.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
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
from calque.storage import json_text
from calque.tasks.base import Languages, Score, Task, about_encoder
from calque.tasks.bootstrap import Statistic, measure_all, over_groups
from calque.tasks.datasets import Answers, Dataset, read_datasets, warn_of_shared
from calque.tasks.reporting import NOT_CONVERGED, TRAINED_HEADS
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
_BATCH = 128  # batch size for evaluation, in texts


@dataclass
class Trained:
    """Trained task head with its encoder.

    Attributes:
        epoch, score: selected epoch, and its score on development text.
        epochs: number of training epochs.
        has_converged: see `Supervised`.
    """

    head: nn.Module
    encoder: Any
    epoch: int
    score: float
    epochs: int = 0
    has_converged: bool = True


class ZeroShot(Task, Generic[D]):
    """Train a task head with several seeds on text in the source languages, and test it on each
    test set.

    By default, the words are encoded once, and the task heads for all seeds are trained on the same
    frozen vectors. With `tune`, a copy of the encoder is fine-tuned for each seed. Which texts are
    mapped depends on the encoder: an encoder mapped towards the target language maps the training
    text (Kulshreshtha et al. 2020); an encoder mapped towards the source language maps the test
    text. The epoch with the best mean score on development texts is tested. `select` sets the
    development texts:

    - "source": texts in the source languages. If there are none, one tenth of each training text is
      held out.
    - "target": all development texts, in source and target languages (Cao et al. 2020, §3.5) or
      only in the target languages (Kulshreshtha et al. 2020, §4.2). As this option uses
      target-language data, `select` is recorded with every score.
    - "last": no texts; the last epoch is tested.

    Args:
        train: training texts in one or more source languages.
        tests: test sets.
        dev: development texts for selecting the epoch.
        seeds: one seed for each training run; default: 0 to 4, or 0 to 2 with `tune`.
        tune: whether to fine-tune the encoder together with the task head.
        options: settings for `Supervised` (epochs, batch, learning_rate, patience, …) that override
            the task's defaults. With `tune`, the default learning rate depends on the encoder's
            dimension, see `tuned_rate`.
        bootstrap: number of bootstrap samples for the confidence intervals.
        seed: seed that is recorded with the scores.

    Attributes:
        statistics: functions from counts summed over texts, `[…, k]`, to scores, `[…]`, keyed by
            metric; main metric first.
        sources: languages of the training texts.
        checkpoints: folder for training checkpoints. If None, no checkpoints are saved.
        protocol: "zero-shot", or "ceiling" if the training text is in the language of the test
            sets.
    """

    name: str
    statistics: Mapping[str, Statistic]
    checkpoints: Path | None = None
    protocol = "zero-shot"
    files = ("test", "train", "dev", "ceiling")
    languages: ClassVar[Languages] = "files"
    reporting = TRAINED_HEADS
    # : default number of epochs for a task head on frozen vectors, and for a task head that is
    # trained with its encoder
    epochs: ClassVar[tuple[int, int]] = (15, 3)
    # : task names, for a class that implements several tasks and receives the name as its first
    # argument
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
            raise SettingError(
                "there must be at least one training text, one test set and one seed"
            )
        if select not in get_args(Select):
            raise SettingError(f"select must be source, target or last, got {select!r}")
        for each in (*train, *tests, *dev):
            if not len(each.data) or not self.sentences(each.data).lengths().any():  # type: ignore[arg-type]
                raise SettingError(f"{each.name} contains no texts")
        self.train, self.tests, self.tune, self.select = list(train), list(tests), tune, select
        self.seeds, self.bootstrap, self.seed = list(seeds), bootstrap, seed
        self.options = {
            **self.defaults(),
            **({"learning_rate": None} if tune else {}),
            **dict(options or {}),
        }
        self.sources = list(dict.fromkeys(each.lang for each in train))
        known = [each for each in dev if each.lang in self.sources]
        self.dev = {"source": known, "target": list(dev), "last": []}[select]
        if select == "source" and dev and not known:
            raise SettingError(
                f"select=source requires development text in {', '.join(self.sources)}, got text "
                "only in "
                f"{', '.join(dict.fromkeys(each.lang for each in dev))}; add such text, or set "
                "select=target"
            )
        if select == "target" and len(known) == len(dev):
            raise SettingError(
                "select=target requires development text in a language without training text"
            )

    # -- from files
    # ----------------------------------------------------------------------------------------------
    @staticmethod
    @abstractmethod
    def read(path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise") -> Any:
        """Read a data set from a file. Further keyword-only parameters in a subclass become options
        of the task.
        """

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
        """Return the task. For each language in `--ceiling`, also return a task that is trained on
        the ceiling text (translate-train). With `--project`, return only the task that trains on
        labels projected across parallel text.

        Args:
            inputs: input files, with the language in the file name or before the path.
            seeds: number of training runs, which use the seeds 0, 1, …; default: see the class.
            tune, select: see the class.
            on_error: how to treat invalid lines: "raise" an error, or "skip" the line.
            own: options for `read`, for `Supervised` and for the task's class.
        """
        if not inputs.train:
            raise SettingError(f"{inputs.task} requires training text; set --train FILE")
        if inputs.ceiling and inputs.project:
            raise SettingError("--ceiling and --project cannot be combined; remove one of them")
        options = {
            name: own.pop(name) for name in inspect.signature(Supervised).parameters if name in own
        }
        offered = {"on_error": on_error, "pretokenized": inputs.words.pretokenized, **own}
        reading = {
            name: offered[name]
            for name in inspect.signature(cls.read).parameters
            if name in offered
        }
        read, known, limit = partial(cls.read, **reading), {}, inputs.words.limit
        train, tests, dev, ceiling = (
            read_datasets(files, read, max_texts, known, inputs.say)
            for files, max_texts in (
                (inputs.train, limit),
                (inputs.test, inputs.test_limit),
                (inputs.dev, inputs.test_limit),
                (inputs.ceiling, limit),
            )
        )
        for each in tests:
            warn_of_shared(each, [*train, *(text for text in ceiling if text.lang == each.lang)])
        make = partial(
            cls,
            *((inputs.task,) if cls.names else ()),
            tune=tune,
            seeds=None if seeds is None else range(seeds),
            options=options,
            **{name: value for name, value in own.items() if name not in reading},
        )
        if inputs.project:
            return [cls.projected(inputs, make, train, tests)]
        tasks: list[Task] = [make(train, tests, dev=dev, select=select)]
        for lang in dict.fromkeys(each.lang for each in ceiling):
            own_train, own_tests, own_dev = (
                [e for e in some if e.lang == lang] for some in (ceiling, tests, dev)
            )
            if not own_tests:
                langs = ", ".join(dict.fromkeys(each.lang for each in tests))
                raise SettingError(
                    f"--ceiling must be in a language of the test sets ({langs}), got {lang}"
                )
            # The ceiling task is trained on the target language, so its training and development
            # languages are the same.
            tasks.append(
                make(
                    own_train,
                    own_tests,
                    dev=own_dev,
                    select="source" if select == "target" else select,
                )
            )
            tasks[-1].protocol = "ceiling"  # type: ignore[attr-defined]
        return tasks

    @classmethod
    def projected(
        cls, inputs: Inputs, make: Callable[..., Any], train: Sequence[Dataset[D]], tests: Any
    ) -> Task:
        """Return the task that trains on projected labels. Only word tagging tasks implement this
        method.
        """
        raise SettingError(f"--project requires a word tagging task, got {inputs.task}")

    # -- defined by each task: head, losses and scores
    # --------------------------------------------------------------
    def defaults(self) -> dict[str, Any]:
        """Return the task's default settings for `Supervised`."""
        if self.tune:
            return {
                "epochs": self.epochs[1],
                "batch": 32,
                "warmup": 0.1,
                "decay": "linear",
                "clip": 1.0,
            }
        return {"epochs": self.epochs[0], "batch": 32, "learning_rate": 1e-3, "patience": 4}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return further settings that are recorded with the scores."""

    def settings_of(self, test: Dataset[D]) -> dict[str, Any]:
        """Return further settings that are recorded with the scores on one test set."""
        return {}

    def groups(self, data: D) -> Sequence[Hashable]:
        """Return the group of each text, `[S]`, or an empty sequence if each text is its own group.
        The bootstrap resamples all texts of a group together, for example all questions on one
        passage."""
        return ()

    @abstractmethod
    def sentences(self, data: D) -> Sentences:
        """Return all sentences to encode."""

    @abstractmethod
    def answers(self, each: Dataset[D]) -> Answers:
        """Return the gold answers as numbers that have the same meaning in every data set."""

    @abstractmethod
    def head(self, dim: int) -> nn.Module:
        """Return a new task head for vectors with `dim` dimensions."""

    @abstractmethod
    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        """Return the loss of each given text, `[S]`."""

    @abstractmethod
    def counts(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        """For each metric, return the counts of each text, float `[S, k]`. `statistics` maps their
        sum to the score.
        """

    def training(self, encoder: Encoder) -> dict[str, Any]:
        """Return the settings for `Supervised` that are used with this encoder."""
        known = self.options.get("learning_rate") is not None or not self.tune
        return self.options if known else {**self.options, "learning_rate": tuned_rate(encoder.dim)}

    def split(self, encoder: Any, data: D) -> Any:
        """Split the texts into subwords for fine-tuning the encoder."""
        return encoder.split(self.sentences(data))

    def encoded(self, encoder: Encoder, data: D, *, progress: bool = False) -> Any:
        """Encode the texts with a frozen encoder, and return the vectors that `frozen` takes as
        input.
        """
        return encoder.encode(self.sentences(data), progress=progress)

    def frozen(self, embeddings: Any, device: torch.device) -> VectorSource:
        """Return a source that yields batches of the vectors returned by `encoded`."""
        return FrozenSource(embeddings, device)

    # -- the protocol
    # ----------------------------------------------------------------------------------------------
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the scores on every test set, the main score first. A score is the mean over
        seeds, with a confidence interval over seeds and texts (`Measured.over_runs`). With only one
        seed, the interval is over texts. If a source language has a
        test set, each score in another language records a `gap`: the score on the first such test
        set minus the score itself. If a task head has not converged or has learned nothing, the
        scores record the reasons as `warnings`.
        """
        experiment = Experiment(self, encoder, progress=progress)
        runs = [experiment.train(seed) for seed in self.seeds]
        tested = [experiment.test(run) for run in runs]
        without_dev = "one in ten training texts" if self.select == "source" else "the last one"
        about = {
            "protocol": self.protocol,
            **about_encoder(encoder),
            "train": [e.name for e in self.train],
            "train_texts": [len(e.data) for e in self.train],  # type: ignore[arg-type]
            "features": "tuned" if self.tune else "frozen",
            "select": self.select,
            "seeds": self.seeds,
            "dev": [e.name for e in self.dev] or without_dev,
            "chosen_epochs": [run.epoch for run in runs],
            "trained_epochs": [run.epochs for run in runs],
            "converged": [run.has_converged for run in runs],
            "dev_scores": [round(run.score, 5) for run in runs],
            **self.settings(),
            **self.training(encoder),
        }
        scores: list[Score] = []
        for number, test in enumerate(self.tests):
            figures, values, groups = [], [], self.groups(test.data)
            n = len(next(iter(tested[0][number].values())))
            for metric, statistic in self.statistics.items():
                sums = np.stack([sums[number][metric] for sums in tested], axis=1)
                values.append(
                    tuple(float(statistic(sums[:, k].sum(axis=0))) for k in range(len(runs)))
                )
                flat = over_groups(sums.reshape(n, -1), groups)
                figures.append((flat, _mean_of(statistic, sums.shape[1:])))
            measures = zip(
                self.statistics, measure_all(figures, samples=self.bootstrap), values, strict=True
            )
            for metric, measured, of_runs in measures:
                sd = float(np.std(of_runs, ddof=1)) if len(runs) > 1 else 0.0
                spread = {"values": [round(value, 5) for value in of_runs], "sd": round(sd, 5)}
                scores.append(
                    Score(
                        self.name,
                        test.name,
                        (*self.sources, test.lang),
                        metric,
                        *measured.over_runs(of_runs),
                        n,
                        self.seed,
                        about | self.settings_of(test) | spread,
                        runs=of_runs,
                        **measured.kept,
                    )
                )
        if reasons := self._reasons_against(runs, scores):
            scores = [score.about(warnings=reasons) for score in scores]
        in_source: dict[str, float] = {}
        for score in scores:
            if score.languages[-1] in self.sources:
                in_source.setdefault(score.metric, score.value)
        return [
            score
            if score.languages[-1] in self.sources or score.metric not in in_source
            else score.about(gap=round(in_source[score.metric] - score.value, 5))
            for score in scores
        ]

    def _reasons_against(self, runs: Sequence[Trained], scores: Sequence[Score]) -> list[str]:
        """Return the reasons why the scores do not show how well the encoder can be used for this
        task.
        """
        main = next(iter(self.statistics))
        values = np.array([score.runs for score in scores if score.metric == main])  # [tests, runs]
        reasons = {
            NOT_CONVERGED: not all(run.has_converged for run in runs),
            f"nothing learned: {main} is 0.0 on every test set": bool(
                (values == 0).all(axis=0).any()
            ),
        }
        return [reason for reason, applies in reasons.items() if applies]


def _mean_of(statistic: Statistic, shape: tuple[int, ...]) -> Statistic:
    """Return the statistic averaged over seeds; its input rows contain the flattened sums of all
    seeds, `[seeds, k]`.
    """
    return lambda flat: statistic(flat.reshape(*flat.shape[:-1], *shape)).mean(-1)


class Experiment(Generic[D]):
    """Vectors and gold answers of a task for one encoder, which all seeds share. The encoder is not
    changed.
    """

    def __init__(self, task: ZeroShot[D], encoder: Encoder, *, progress: bool = False):
        require(encoder, "measured", task.rows)
        self.task, self.encoder, self.processes, self.progress = (
            task,
            encoder,
            Processes(),
            progress,
        )
        self._known: dict[int, Any] = {}  # vectors or subwords, keyed by the `id` of the data
        answers_by_text = [task.answers(each) for each in task.train]
        self.answers = type(answers_by_text[0]).joined(answers_by_text)
        self._gold = [
            task.answers(each) for each in task.tests
        ]  # unknown labels raise an error before training
        sizes = [len(answers.lengths) for answers in answers_by_text]
        self.dev = [(self._data(each), task.answers(each)) for each in task.dev]
        self.held_out, self.kept = [], np.arange(sum(sizes))
        if not task.dev and task.select == "source":
            parts = (_held_out(np.arange(a, b)) for a, b in itertools.pairwise(offsets_of(sizes)))
            self.held_out = [numbers for numbers in parts if len(numbers)]
            self.kept = np.setdiff1d(
                self.kept, np.concatenate([np.zeros(0, dtype=np.int64), *self.held_out])
            )
        langs = [task.sources.index(each.lang) for each in task.train]
        self.groups = np.repeat(langs, sizes)[self.kept]
        texts = [self._data(each) for each in task.train]
        self.text: Any = type(texts[0]).joined(texts)
        if not task.tune:  # all seeds share the same tensors
            self.text = task.frozen(self.text, self.processes.device)
            self.dev = [
                (task.frozen(data, self.processes.device), answers) for data, answers in self.dev
            ]
        self._tests: list[Any] | None = None

    def _data(self, each: Dataset[D]) -> Any:
        """Return the vectors of a data set, or its subwords if the encoder is fine-tuned."""
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
            raise SettingError(
                f"{self.encoder.name} cannot be fine-tuned; use frozen vectors (remove --tune)"
            )
        split = self.task.split(self.encoder, each.data)
        if split.truncated_sentences:
            limit = f"{self.encoder.max_length} subwords"
            warnings.warn(
                f"{split.truncated_sentences:,} texts exceed {limit} and are truncated",
                stacklevel=2,
            )
        return split

    def _key(self, seed: int) -> str:
        """Return a hash of everything that affects training: settings, encoder, texts and gold
        answers.
        """
        task, digest = self.task, hashlib.blake2b(digest_size=16)
        for each in (*task.train, *task.dev):
            digest.update(
                repr([sentence.words for sentence in task.sentences(each.data)]).encode(
                    "utf-8", "replace"
                )
            )
            gold = task.answers(each)
            for name, values in {**gold.words, **gold.texts}.items():
                digest.update(repr((name, np.asarray(values).tolist())).encode("utf-8", "replace"))
        about = [
            task.name,
            seed,
            self.encoder.fingerprint,
            task.select,
            task.settings(),
            task.training(self.encoder),
        ]
        digest.update(json_text(about, undefined="name", sort_keys=True, default=str).encode())
        return digest.hexdigest()

    def train(self, seed: int) -> Trained:
        """Train a new task head and, with `tune`, a copy of the encoder."""
        task, device = self.task, self.processes.device
        torch.manual_seed(seed)
        head = task.head(self.encoder.dim).to(device)
        supervised = Supervised(seed=seed, **task.training(self.encoder))
        encoder = float32_copy(self.encoder, device) if task.tune else self.encoder  # type: ignore[arg-type]
        metric, statistic = next(iter(task.statistics.items()))
        source = TrainedSource(encoder, self.text, self.processes) if task.tune else self.text  # type: ignore[arg-type]

        def select() -> float:
            texts = [(self._source(data, encoder), answers) for data, answers in self.dev]
            texts += [
                (self._source_of(numbers, encoder), self.answers) for numbers in self.held_out
            ]
            values = [statistic(self._counts(head, *each)[metric].sum(axis=0)) for each in texts]
            return float(np.mean(np.nan_to_num(values)))

        supervised.fit(
            head,
            SubsetSource(source, self.kept),
            lambda given: task.losses(head, given, self.answers),
            groups=self.groups,
            processes=self.processes,
            select=select if self.dev or self.held_out else None,
            folder=None if task.checkpoints is None else task.checkpoints / self._key(seed),
            progress=self.progress,
            title=f"{task.name} {seed}",
        )
        head.eval()
        epochs, has_converged = supervised.trained_epochs, supervised.has_converged
        return Trained(head, encoder, supervised.best_epoch, supervised.best, epochs, has_converged)

    def test(self, trained: Trained) -> list[dict[str, np.ndarray]]:
        """Return a dictionary for every test set, which maps each metric to its counts."""
        if self._tests is None:
            self._tests = [self._data(each) for each in self.task.tests]
        tests = zip(self._tests, self._gold, strict=True)
        return [
            self._counts(trained.head, self._source(data, trained.encoder), answers)
            for data, answers in tests
        ]

    def batches(self, trained: Trained, each: Dataset[D]) -> Iterator[WordRows]:
        """Return the batches of a data set, with vectors from the encoder of a trained model."""
        return _batches(self._source(self._data(each), trained.encoder))

    def _source(self, data: Any, encoder: Any) -> VectorSource:
        if isinstance(data, VectorSource):
            return data
        device = self.processes.device
        return (
            FrozenSource(vectors_of(encoder, data), device)
            if self.task.tune
            else self.task.frozen(data, device)
        )

    def _source_of(self, numbers: np.ndarray, encoder: Any) -> VectorSource:
        """Return a source of batches from the training texts with these indices."""
        if not self.task.tune:
            return SubsetSource(self.text, numbers)
        return FrozenSource(
            vectors_of(encoder, self.text.take(numbers)), self.processes.device, numbers
        )

    @torch.no_grad()
    def _counts(
        self, head: nn.Module, source: VectorSource, answers: Answers
    ) -> dict[str, np.ndarray]:
        """Return the counts for all texts in their original order, `[S, k]`, keyed by metric."""
        numbers: list[np.ndarray] = []
        parts: dict[str, list[np.ndarray]] = {}
        for given in _batches(source):
            numbers.append(given.numbers)
            for metric, sums in self.task.counts(head, given, answers).items():
                parts.setdefault(metric, []).append(sums)
        order = np.argsort(np.concatenate(numbers))
        return {
            metric: np.concatenate(batches)[order].astype(np.float64)
            for metric, batches in parts.items()
        }


def _held_out(numbers: np.ndarray) -> np.ndarray:
    """Hold out every tenth text for selecting the epoch. Of 2 to 9 texts, hold out the last one.
    Never hold out a single text.
    """
    return (
        numbers[9::10] if len(numbers) >= 10 else numbers[-1:] if len(numbers) > 1 else numbers[:0]
    )


def _batches(source: VectorSource) -> Iterator[WordRows]:
    """Yield batches of texts with similar lengths."""
    order = np.argsort(-source.lengths, kind="stable")
    for start in range(0, len(order), _BATCH):
        yield source.take(order[start : start + _BATCH])
