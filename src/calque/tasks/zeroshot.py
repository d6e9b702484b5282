"""Zero-shot transfer: learn a task from text in some languages, be tested in others. The protocol of all tasks."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from calque.errors import SettingError
from calque.tasks.base import Languages, Score, Task
from calque.tasks.bootstrap import Statistic, measure_all, over_groups
from calque.tasks.datasets import Dataset, read_datasets, warn_of_shared
from calque.tasks.experiment import Experiment, Select, TrainedTask

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs
    from calque.training.realignment import Realignment

D = TypeVar("D")


class ZeroShot(TrainedTask[D], Generic[D]):
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
        realign: aligns the encoder before, beside or behind its training; needs `tune`.
        save_head: a new folder for the head with the best held-out score and its encoder; `write` writes it.
        options: settings of `Supervised` (epochs, batch, learning_rate, patience, …) instead of the task's own. Without a
            learning rate a head with its encoder learns at one that follows from the encoder's width, `tuned_rate`.
        bootstrap: samples of the intervals.
        seed: for the record.
    """

    files = ("test", "train", "dev", "realign")
    languages: ClassVar[Languages] = "files"
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
        realign: Realignment | None = None,
        save_head: str | Path | None = None,
        options: Mapping[str, Any] | None = None,
        bootstrap: int = 1000,
        seed: int = 0,
    ):
        if realign is not None and not tune:
            raise SettingError("an encoder is realigned in the run that trains it: add tune=True (--tune)")
        self.realign, self.save_head = realign, None if save_head is None else Path(save_head)
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
        return [cls.from_files, cls.read, cls]

    @classmethod
    def from_files(
        cls,
        inputs: Inputs,
        *,
        seeds: int | None = None,
        tune: bool = False,
        select: Select = "source",
        save_head: str | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        epochs: float | None = None,
        batch: int | None = None,
        learning_rate: float | None = None,
        patience: int | None = None,
        warmup: float | None = None,
        decay: Literal["constant", "linear", "cosine"] | None = None,
        clip: float | None = None,
        per_epoch: int | None = None,
        **own: Any,
    ) -> list[Task]:
        """The task; or the same learnt from labels that are projected over parallel text (`--project`).

        Args:
            inputs: files; the language of each is in its name or stands before it.
            seeds: training runs, with the seeds 0, 1, …; default: see the class.
            tune, select, save_head: see the class.
            on_error: "raise", or "skip" to leave out what cannot be read.
            epochs, batch, learning_rate, patience, warmup, decay, clip, per_epoch: settings of `Supervised`.
            own: of `read`, and of the task itself.
        """
        if not inputs.train:
            raise SettingError(f"{inputs.task} needs training text: --train FILE")
        for name, value in (("realign", inputs.realign), ("save-head", save_head)):
            if value and inputs.project:
                raise SettingError(f"--{name} and --project cannot be combined: leave one out")
        options = {"epochs": epochs, "batch": batch, "learning_rate": learning_rate, "patience": patience, "warmup": warmup,
                   "decay": decay, "clip": clip, "per_epoch": per_epoch}  # fmt: skip
        offered = {"on_error": on_error, "pretokenized": inputs.words.pretokenized, **own}
        reading = {name: offered[name] for name in inspect.signature(cls.read).parameters if name in offered}
        read, known, limit = partial(cls.read, **reading), {}, inputs.words.limit
        train, tests, dev = (
            read_datasets(files, read, most, known, inputs.say)
            for files, most in (
                (inputs.train, limit),
                (inputs.test, inputs.test_limit),
                (inputs.dev, inputs.test_limit),
            )
        )
        for each in tests:
            warn_of_shared(each, train)
        make = partial(
            cls, *((inputs.task,) if cls.names else ()), tune=tune, seeds=None if seeds is None else range(seeds),
            options={name: value for name, value in options.items() if value is not None},
            **{name: value for name, value in own.items() if name not in reading},
        )  # fmt: skip
        if inputs.project:
            return [cls.projected(inputs, make, train, tests)]
        return [make(train, tests, dev=dev, select=select, realign=inputs.realign, save_head=save_head)]

    @classmethod
    def projected(cls, inputs: Inputs, make: Callable[..., Any], train: Sequence[Dataset[D]], tests: Any) -> Task:
        """The task learnt from projected labels.

        Raises:
            SettingError: the labels of this task are not those of words.
        """
        raise SettingError(f"labels can only be projected for tags of words, not for {inputs.task}")

    # -- the protocol ----------------------------------------------------------------------------------------------
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Scores of every test set, the main figure first: mean over the seeds, with an interval that holds other seeds and
        other texts (`Measured.over_runs`); with one seed it can hold texts only.

        `settings` has the value of every seed, their standard deviation and the epochs chosen; `gap` is by how much the
        first test set in a source language is better, where there is one.
        """
        experiment = Experiment(self, encoder, progress=progress)
        runs = [experiment.learn(seed, runs=len(self.seeds) - k) for k, seed in enumerate(self.seeds)]
        if self.save_head is not None:
            self.best = max(runs, key=lambda run: run.score)
        tested = [experiment.test(learnt) for learnt in runs]
        about = {
            "protocol": "zero-shot", "encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint,
            "train": [e.name for e in self.train],
            "features": "tuned" if self.tune else "frozen", "select": self.select, "seeds": self.seeds,
            "dev": self.chosen_on(), "chosen_epochs": [run.epoch for run in runs],
            "dev_scores": [round(run.score, 5) for run in runs], **self.settings(), **self.training(encoder),
            **({} if self.realign is None else self.realign.settings()),
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
