"""Zero-shot transfer: learn a task from text in some languages, be tested in others. The protocol of all tasks."""

from __future__ import annotations

import itertools
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
import torch

from calque.distributed import Processes
from calque.encoders.base import TrainableEncoder, require
from calque.errors import SettingError
from calque.offsets import offsets_of, ranges
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import Statistic, measure_all
from calque.threads import Threads
from calque.training.passes import shares_at_once
from calque.training.sources import (
    FrozenSource,
    RenumberedSource,
    SubsetSource,
    TrainedSource,
    VectorSource,
    WordRows,
    trainable_copy,
    vectors_of,
)
from calque.training.supervised import Supervised, tuned_rate
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from calque.encoders.base import Encoder
    from calque.encoders.split import SplitSentences
    from calque.text import Sentences

D = TypeVar("D")
Select = Literal["source", "target", "last"]
_AT_ONCE = 128  # texts in a batch where nothing is learnt


class Answers:
    """What is to be found out about some texts, as arrays over their words and over the texts.

    Args:
        lengths: int64 `[n_texts]`, words of each.
        words: arrays `[n_words]`, by name.
        texts: arrays `[n_texts]`, by name.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        *,
        words: Mapping[str, np.ndarray] | None = None,
        texts: Mapping[str, np.ndarray] | None = None,
    ):
        self.lengths, self.words, self.texts = lengths, dict(words or {}), dict(texts or {})
        self._starts = offsets_of(lengths)[:-1]

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """Those of several texts, one after the other."""
        first = parts[0]
        return cls(
            np.concatenate([part.lengths for part in parts]),
            words={name: np.concatenate([part.words[name] for part in parts]) for name in first.words},
            texts={name: np.concatenate([part.texts[name] for part in parts]) for name in first.texts},
        )

    def of_words(self, name: str, numbers: np.ndarray) -> Tensor:
        """Answers for all words of some texts, int64 `[W]`."""
        rows = ranges(self._starts[numbers], self.lengths[numbers])
        return torch.from_numpy(self.words[name][rows].astype(np.int64))

    def of_texts(self, name: str, numbers: np.ndarray) -> Tensor:
        """Answers for some texts, int64 `[S]`."""
        return torch.from_numpy(self.texts[name][numbers].astype(np.int64))


@dataclass(frozen=True)
class Named(Generic[D]):
    """A data set, the language it is in, and what to call it."""

    name: str
    lang: str
    data: D


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
        seeds: one training run for each.
        tune: train the encoder as well.
        select: see above.
        options: settings of `Supervised` (epochs, batch, learning_rate, patience, …) instead of the task's own. Without a
            learning rate a head with its encoder learns at one that follows from the encoder's width, `tuned_rate`.
        bootstrap: samples of the intervals.
        seed: for the record.
    """

    #: name of the task, and its figures, the main one first: sums over texts `[…, k]` → `[…]`
    name: str
    statistics: Mapping[str, Statistic]

    def __init__(
        self,
        train: Sequence[Named[D]],
        tests: Sequence[Named[D]],
        *,
        dev: Sequence[Named[D]] = (),
        seeds: Sequence[int] = (0, 1, 2),
        tune: bool = False,
        select: Select = "source",
        options: Mapping[str, Any] | None = None,
        bootstrap: int = 1000,
        seed: int = 0,
    ):
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

    # -- what a task says ------------------------------------------------------------------------------------------
    @abstractmethod
    def defaults(self) -> dict[str, Any]:
        """Settings of `Supervised` that suit the task."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What else decides the scores, for the record."""

    def settings_of(self, test: Named[D]) -> dict[str, Any]:
        """The same of one test set."""
        return {}

    @abstractmethod
    def sentences(self, data: D) -> Sentences:
        """Everything that is to be encoded."""

    @abstractmethod
    def answers(self, each: Named[D]) -> Answers:
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

    def split(self, encoder: Any, data: D) -> SplitSentences:
        """The texts as subwords where the encoder learns too."""
        return encoder.split(self.sentences(data))

    def frozen(self, embeddings: Embeddings, device: torch.device) -> VectorSource:
        """The source over vectors of `sentences`."""
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
        run = Run(self, encoder, progress=progress)
        found = [run.learn(seed) for seed in self.seeds]
        tested = [run.test(learnt) for learnt in found]
        about = {
            "protocol": "zero-shot", "encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint,
            "train": [e.name for e in self.train],
            "features": "tuned" if self.tune else "frozen", "select": self.select, "seeds": self.seeds,
            "dev": self.chosen_on(), "chosen_epochs": [r.epoch for r in found],
            "dev_scores": [round(r.score, 5) for r in found], **self.settings(), **self.training(encoder),
        }  # fmt: skip
        scores = []
        for number, test in enumerate(self.tests):
            figures, own, runs, more = [], [], [], self.settings_of(test)
            for metric, statistic in self.statistics.items():
                sums = np.stack([sums[number][metric] for sums in tested], axis=1)
                values = [float(statistic(sums[:, k].sum(axis=0))) for k in range(len(found))]
                spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
                runs.append(tuple(values))
                own.append({"values": [round(value, 5) for value in values], "sd": round(spread, 5)})
                figures.append((sums.reshape(len(sums), -1), _mean_of(statistic, sums.shape[1:])))
            found_here = zip(self.statistics, measure_all(figures, samples=self.bootstrap), runs, own, strict=True)
            scores += [
                Score(self.name, test.name, (*self.sources, test.lang), metric, *measured.over_runs(values),
                      measured.texts, self.seed, about | more | each, runs=values, **measured.kept)
                for metric, measured, values, each in found_here
            ]  # fmt: skip
        return _with_gaps(scores, self.sources)


@dataclass
class Learnt:
    """A head after training, and the encoder that goes with it."""

    head: nn.Module
    encoder: Any
    epoch: int
    score: float


class Run(Generic[D]):
    """One encoder's data for a task, ready for every seed.

    Args:
        task: what is learnt.
        encoder: whose vectors are read; not changed.
        progress: show bars on standard error.
    """

    def __init__(self, task: ZeroShot[D], encoder: Encoder, *, progress: bool = False):
        require(encoder, "measured")
        self.task, self.encoder, self.processes, self.progress = task, encoder, Processes(), progress
        self._known: dict[int, Any] = {}  # vectors or subwords, by the identity of the data that they are of
        own = [task.answers(each) for each in task.train]
        self.answers = Answers.joined(own)
        # Before anything is computed: a label that nobody has learnt should be told now, not after the training.
        self._gold = [task.answers(each) for each in task.tests]
        sizes = [len(answers.lengths) for answers in own]
        self.dev = [(self._data(each), task.answers(each)) for each in task.dev]
        self.held_out = []
        kept = np.arange(sum(sizes))
        if not task.dev and task.select == "source":
            starts = offsets_of(sizes)
            self.held_out = [found for a, b in itertools.pairwise(starts) if len(found := _held_out(kept[a:b]))]
            kept = np.setdiff1d(kept, np.concatenate([np.zeros(0, dtype=np.int64), *self.held_out]))
        self.kept = kept
        langs = [task.sources.index(each.lang) for each in task.train]
        self.groups = np.repeat(langs, sizes)[kept]
        texts = [self._data(each) for each in task.train]
        self.text: Any = type(texts[0]).joined(texts)
        if not task.tune:  # the same tensors for every seed
            self.text = task.frozen(self.text, self.processes.device)
            self.dev = [(task.frozen(data, self.processes.device), answers) for data, answers in self.dev]
        self._tests: list[Any] | None = None

    def _data(self, each: Named[D]) -> Any:
        """Vectors, or subwords where they are to be computed anew."""
        if id(each.data) not in self._known:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self._known[id(each.data)] = self._read(each)
            for warning in caught:
                told = warning.message
                if isinstance(told, Warning):
                    told.args = (f"{each.name}: {told}",)
                warnings.warn(told, stacklevel=2)
        return self._known[id(each.data)]

    def _read(self, each: Named[D]) -> Any:
        if not self.task.tune:
            return self.encoder.encode(self.task.sentences(each.data), progress=self.progress)
        if not isinstance(self.encoder, TrainableEncoder):
            raise SettingError(f"{self.encoder.name} cannot be fine-tuned: use frozen features (leave out --tune)")
        split = self.task.split(self.encoder, each.data)
        if split.truncated_sentences:
            limit = self.encoder.subwords.max_length
            told = f"{split.truncated_sentences:,} texts are longer than {limit} subwords and are truncated"
            warnings.warn(told, stacklevel=2)
        return split

    def learn(self, seed: int) -> Learnt:
        """Train a new head, and a copy of the encoder if it learns too."""
        task, device = self.task, self.processes.device
        torch.manual_seed(seed)
        head = task.head(self.encoder.dim).to(device)
        supervised = Supervised(seed=seed, **task.training(self.encoder))
        encoder = self.encoder
        if task.tune:
            encoder = trainable_copy(encoder, device)  # type: ignore[arg-type]
        count = shares_at_once(encoder, device) if task.tune else 1  # type: ignore[arg-type]
        metric, statistic = next(iter(task.statistics.items()))
        with Threads(count) as threads:
            whole = TrainedSource(encoder, self.text, threads, self.processes) if task.tune else self.text  # type: ignore[arg-type]

            def select() -> float:
                watched = [(self._source(data, encoder), answers) for data, answers in self.dev]
                watched += [(self._part(numbers, encoder), self.answers) for numbers in self.held_out]
                values = [statistic(self._judged(head, *each)[metric].sum(axis=0)) for each in watched]
                return float(np.mean(np.nan_to_num(values)))

            supervised.fit(
                head, SubsetSource(whole, self.kept), lambda given: task.losses(head, given, self.answers), groups=self.groups,
                processes=self.processes, select=select if self.dev or self.held_out else None, progress=self.progress,
                title=f"{task.name} {seed}",
            )  # fmt: skip
        head.eval()
        return Learnt(head, encoder, supervised.best_epoch, supervised.best)

    def test(self, learnt: Learnt) -> list[dict[str, np.ndarray]]:
        """Sums of every test set, by figure."""
        if self._tests is None:
            self._tests = [self._data(each) for each in self.task.tests]
        tests = zip(self._tests, self._gold, strict=True)
        return [self._judged(learnt.head, self._source(data, learnt.encoder), answers) for data, answers in tests]

    def batches(self, learnt: Learnt, each: Named[D]) -> Iterator[WordRows]:
        """The texts of a data set in batches, to be read by what was learnt."""
        yield from _batches(self._source(self._data(each), learnt.encoder))

    def _source(self, data: Any, encoder: Any) -> VectorSource:
        """Vectors of some texts, as the encoder sees them now."""
        if isinstance(data, VectorSource):
            return data
        if isinstance(data, Embeddings):
            return self.task.frozen(data, self.processes.device)
        return FrozenSource(vectors_of(encoder, data), self.processes.device)

    def _part(self, numbers: np.ndarray, encoder: Any) -> VectorSource:
        """Vectors of some of the training texts."""
        if not self.task.tune:
            return SubsetSource(self.text, numbers)
        return RenumberedSource(self._source(self.text.take(numbers), encoder), numbers)

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
        return {metric: np.concatenate(found)[order].astype(np.float64) for metric, found in parts.items()}


def _held_out(numbers: np.ndarray) -> np.ndarray:
    """One in ten texts of a training text, by which the epoch is chosen; none of a single one."""
    return numbers[9::10] if len(numbers) >= 10 else numbers[-1:] if len(numbers) > 1 else numbers[:0]


def _batches(source: VectorSource) -> Iterator[WordRows]:
    """Texts of about the same length together."""
    order = np.argsort(-source.lengths, kind="stable")
    for start in range(0, len(order), _AT_ONCE):
        yield source.take(order[start : start + _AT_ONCE])


def _mean_of(statistic: Statistic, shape: tuple[int, ...]) -> Statistic:
    """The mean over seeds of a figure whose sums, `[seeds, k]`, stand in one row."""
    return lambda flat: statistic(flat.reshape(*flat.shape[:-1], *shape)).mean(-1)


def _with_gaps(scores: list[Score], sources: Sequence[str]) -> list[Score]:
    """The same, with `gap` in the settings of those in other languages."""
    found = []
    for score in scores:
        own = [s.value for s in scores if s.metric == score.metric and s.languages[-1] in sources]
        if own and score.languages[-1] not in sources:
            score = Score(**{**vars(score), "settings": {**score.settings, "gap": round(own[0] - score.value, 5)}})
        found.append(score)
    return found
