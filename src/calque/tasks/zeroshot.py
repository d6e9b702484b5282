"""Zero-shot transfer: learn a task from text in some languages, be tested in others. The protocol of all tasks."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
import torch

from calque.distributed import Processes
from calque.encoders.batches import ranges
from calque.errors import SettingError
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import interval
from calque.threads import Threads
from calque.training.passes import shares_at_once
from calque.training.supervised import (
    FrozenVectors,
    Source,
    Supervised,
    TrainedVectors,
    Vectors,
    trainable_copy,
    vectors_of,
)
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from calque.encoders.base import Encoder
    from calque.encoders.subwords import SplitSentences
    from calque.text import Sentences

D = TypeVar("D")
Statistic = Callable[[np.ndarray], np.ndarray]
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
        self._starts = np.cumsum(lengths) - lengths

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
    learns too, a fresh copy for each seed. The state that is tested is the one after the epoch with the best score on
    development text (`select`):

    - "source": development text in the source languages, or one in ten training texts where there is none. Nothing of
      the target languages is seen.
    - "target": the mean over the development texts in the other languages, as Cao et al. (2020) choose; a leak, so
      every score says it.
    - "last": no choice.

    Args:
        train: text to learn from; several for several source languages at once.
        tests: what to test on.
        dev: text to select on.
        seeds: one training run for each.
        tune: train the encoder as well.
        select: see above.
        options: settings of `Supervised` (epochs, batch, learning_rate, patience, …) instead of the task's own.
        bootstrap, seed: samples and seed of the intervals.
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
            raise SettingError("there must be something to train on, something to test on, and a seed")
        if select not in ("source", "target", "last"):
            raise SettingError(f"select is source, target or last, got {select!r}")
        for each in (*train, *tests, *dev):
            if not len(each.data):  # type: ignore[arg-type]
                raise SettingError(f"{each.name}: no text in it")
        self.train, self.tests, self.tune, self.select = list(train), list(tests), tune, select
        self.seeds, self.bootstrap, self.seed = list(seeds), bootstrap, seed
        self.options = {**self.defaults(), **dict(options or {})}
        self.sources = list(dict.fromkeys(each.lang for each in train))
        wanted = {"source": True, "target": False}.get(select)
        self.dev = [] if wanted is None else [each for each in dev if (each.lang in self.sources) == wanted]
        if select == "target" and not self.dev:
            raise SettingError("select=target needs development text in a language that is not trained on")

    # -- what a task says ------------------------------------------------------------------------------------------
    @abstractmethod
    def defaults(self) -> dict[str, Any]:
        """Settings of `Supervised` that suit the task."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What else decides the scores, for the record."""

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
    def losses(self, head: nn.Module, given: Vectors, answers: Answers) -> Tensor:
        """`[S]`, for the texts that are given."""

    @abstractmethod
    def judge(self, head: nn.Module, given: Vectors, answers: Answers) -> dict[str, np.ndarray]:
        """Sums of which the statistics are made, float `[S, k]` by figure, for the texts that are given."""

    def split(self, encoder: Any, data: D) -> SplitSentences:
        """The texts as subwords where the encoder learns too."""
        return encoder.subwords.split(self.sentences(data))

    def frozen(self, embeddings: Embeddings, device: torch.device) -> Source:
        """The source over vectors of `sentences`."""
        return FrozenVectors(embeddings, device)

    # -- the protocol ----------------------------------------------------------------------------------------------
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Scores of every test set, the main figure first: mean over the seeds, with a bootstrap interval over texts.

        `settings` has the value of every seed, their standard deviation and the epochs chosen; `gap` is by how much the
        first test set in a source language is better, where there is one.
        """
        run = Run(self, encoder, progress=progress)
        found = [run.learn(seed) for seed in self.seeds]
        tested = [run.test(learnt) for learnt in found]
        about = {
            "encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "train": [e.name for e in self.train],
            "features": "tuned" if self.tune else "frozen", "select": self.select, "seeds": self.seeds,
            "dev": [e.name for e in self.dev] or "one in ten training texts", "chosen_epochs": [r.epoch for r in found],
            "dev_scores": [round(r.score, 5) for r in found], **self.settings(), **self.options,
        }  # fmt: skip
        scores = []
        for number, test in enumerate(self.tests):
            for metric, statistic in self.statistics.items():
                sums = np.stack([sums[number][metric] for sums in tested], axis=1)
                values = [float(statistic(sums[:, k].sum(axis=0))) for k in range(len(found))]
                figures = interval(
                    sums.reshape(len(sums), -1),
                    lambda flat, f=statistic, shape=sums.shape[1:]: f(flat.reshape(*flat.shape[:-1], *shape)).mean(-1),
                    samples=self.bootstrap,
                    seed=self.seed,
                )
                spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
                own = {"values": [round(value, 5) for value in values], "sd": round(spread, 5)}
                langs = (*self.sources, test.lang)
                score = Score(self.name, test.name, langs, metric, *figures, len(sums), self.seed, about | own)
                scores.append(score)
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
        self.task, self.encoder, self.processes, self.progress = task, encoder, Processes(), progress
        answers = Answers.joined([task.answers(each) for each in task.train])
        kept = np.arange(len(answers.lengths))
        self.dev = [(self._data(each), task.answers(each)) for each in task.dev]
        self.held_out = None
        if not task.dev and task.select == "source" and len(kept) > 1:
            self.held_out = kept[kept % 10 == 9] if len(kept) >= 10 else kept[-1:]
            kept = np.setdiff1d(kept, self.held_out)
        self.answers, self.kept = answers, kept
        self.texts = [self._data(each) for each in task.train]
        self._tests: list[tuple[Any, Answers]] | None = None

    def _data(self, each: Named[D]) -> Any:
        """Vectors, or subwords where they are to be computed anew."""
        if self.task.tune:
            if not hasattr(self.encoder, "subwords"):
                raise SettingError(f"{self.encoder.name} has no weights that could learn: use frozen features")
            return self.task.split(self.encoder, each.data)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            return self.encoder.encode(self.task.sentences(each.data), progress=self.progress)

    def learn(self, seed: int) -> Learnt:
        """Train a new head, and a copy of the encoder if it learns too."""
        task, device = self.task, self.processes.device
        torch.manual_seed(seed)
        head = task.head(self.encoder.dim).to(device)
        supervised = Supervised(seed=seed, **task.options)
        encoder = self.encoder
        if task.tune:
            encoder = trainable_copy(encoder, device)  # type: ignore[arg-type]
        count = shares_at_once(encoder, device) if task.tune else 1  # type: ignore[arg-type]
        with Threads(count) as threads:
            whole = self._source(_joined(self.texts), encoder, threads)

            def select() -> float:
                watched = [(self._source(d, encoder), a, None) for d, a in self.dev]
                if self.held_out is not None:
                    frozen = self._source(_joined(self.texts), encoder) if task.tune else whole
                    watched = [(frozen, self.answers, self.held_out)]
                metric, statistic = next(iter(task.statistics.items()))
                values = [statistic(self._judged(head, s, a, n)[metric].sum(axis=0)) for s, a, n in watched]
                return float(np.mean(np.nan_to_num(values)))

            supervised.fit(
                head, _Some(whole, self.kept), lambda given: task.losses(head, given, self.answers),
                processes=self.processes, select=select if task.select != "last" else None, progress=self.progress,
                title=f"{task.name} {seed}",
            )  # fmt: skip
        head.eval()
        return Learnt(head, encoder, supervised.best_epoch, supervised.best)

    def test(self, learnt: Learnt) -> list[dict[str, np.ndarray]]:
        """Sums of every test set, by figure."""
        if self._tests is None:
            self._tests = [(self._data(each), self.task.answers(each)) for each in self.task.tests]
        return [self._judged(learnt.head, self._source(d, learnt.encoder), a) for d, a in self._tests]

    def batches(self, learnt: Learnt, each: Named[D]) -> Iterator[Vectors]:
        """The texts of a data set in batches, to be read by what was learnt."""
        yield from _batches(self._source(self._data(each), learnt.encoder))

    def _source(self, data: Any, encoder: Any, threads: Threads | None = None) -> Source:
        """Vectors of some texts; with threads those that an encoder gives while it learns."""
        if isinstance(data, Embeddings):
            return self.task.frozen(data, self.processes.device)
        if threads is not None:
            return TrainedVectors(encoder, data, threads, self.processes)
        return FrozenVectors(vectors_of(encoder, data), self.processes.device)

    @torch.no_grad()
    def _judged(
        self, head: nn.Module, source: Source, answers: Answers, numbers: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Sums of all texts, in their order, `[S, k]`."""
        numbers = np.arange(len(source.lengths)) if numbers is None else numbers
        place = np.zeros(len(source.lengths), dtype=np.int64)
        place[numbers] = np.arange(len(numbers))
        found: dict[str, np.ndarray] = {}
        for given in _batches(source, numbers):
            for metric, sums in self.task.judge(head, given, answers).items():
                if metric not in found:
                    found[metric] = np.zeros((len(numbers), sums.shape[1]))
                found[metric][place[given.numbers]] = sums
        return found


def _batches(source: Source, numbers: np.ndarray | None = None) -> Iterator[Vectors]:
    """Texts of about the same length together."""
    numbers = np.arange(len(source.lengths)) if numbers is None else numbers
    order = numbers[np.argsort(-source.lengths[numbers], kind="stable")]
    for start in range(0, len(order), _AT_ONCE):
        yield source.take(order[start : start + _AT_ONCE])


class _Some(Source):
    """Some texts of a source, by new numbers; `take` says the old ones."""

    def __init__(self, whole: Source, kept: np.ndarray):
        self._whole, self._kept = whole, kept
        self.dim, self.lengths, self.model = whole.dim, whole.lengths[kept], whole.model
        self.products, self.threads = whole.products, whole.threads

    def take(self, numbers: np.ndarray) -> Vectors:
        return self._whole.take(self._kept[numbers])

    def backward(self, gradient: Tensor) -> None:
        self._whole.backward(gradient)


def _joined(parts: list[Any]) -> Any:
    """Several texts' vectors, or subwords, as one."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Embeddings):
        offsets = np.concatenate([[0], *(np.diff(part.offsets) for part in parts)]).cumsum()
        return Embeddings(np.concatenate([part.data for part in parts]), offsets)
    return type(parts[0]).joined(parts)


def _with_gaps(scores: list[Score], sources: Sequence[str]) -> list[Score]:
    """The same, with `gap` in the settings of those in other languages."""
    found = []
    for score in scores:
        own = [s.value for s in scores if s.metric == score.metric and s.languages[-1] in sources]
        if own and score.languages[-1] not in sources:
            score = Score(**{**vars(score), "settings": {**score.settings, "gap": round(own[0] - score.value, 5)}})
        found.append(score)
    return found
