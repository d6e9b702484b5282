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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, get_args

import numpy as np
import torch

from calque.distributed import Processes
from calque.encoders.base import require
from calque.encoders.readings import StackedLayers, layer_dim, layers_of
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.nn.mixture import Norm, ScalarMix
from calque.offsets import offsets_of
from calque.spec import Layer, Option
from calque.storage import json_text
from calque.tasks.base import Languages, Score, Task, about_encoder
from calque.tasks.bootstrap import Statistic, measure_all, over_groups
from calque.tasks.datasets import Answers, D, Dataset, read_datasets, warn_of_shared
from calque.tasks.reading import BestLayer, Layers, Mixture, messages, reading_of
from calque.tasks.reporting import NOT_CONVERGED, TRAINED_HEADS
from calque.training.sources import (
    FrozenSource,
    LayerSource,
    MixedSource,
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

Select = Literal["source", "target", "last"]
_BATCH = 128  # batch size for evaluation, in texts
# What `ZeroShot.encoded` or `ZeroShot.split` returns for a data set: vectors, or subwords if the
# encoder is fine-tuned. Each task chooses its own type; it has a method `joined`.
Encoded = Any


@dataclass
class Trained:
    """Trained task head with its encoder.

    Attributes:
        epoch, score: selected epoch, and its score on development text.
        mix: mixture of layers that was trained with the head; None if one layer is read.
        epochs: number of training epochs.
        has_converged: see `Supervised`.
    """

    head: nn.Module
    encoder: Encoder
    epoch: int
    score: float
    mix: ScalarMix | None = None
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
        layers: layers on which the task head is trained: "mix" for a learned mixture of all layers
            (`ScalarMix`; Peters et al. 2018), "best" for the layer and the pooling with the best
            score on development text in the source languages, or the layers to choose from;
            default: the encoder's own layer. The layer is chosen with the first seed, and never
            with text in other languages.
        poolings: poolings of a word's subwords to choose from with "best"; default: that of the
            encoder, mean and last. For "mix", one pooling.
        mix_norm: normalisation of the layers before they are mixed; see `ScalarMix`.
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
    #: default number of epochs for a task head on frozen vectors, and for a task head that is
    #: trained with its encoder
    epochs: ClassVar[tuple[int, int]] = (15, 3)
    #: task names, for a class that implements several tasks and receives the name as its first
    #: argument
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
        layers: Layers = None,
        poolings: Sequence[str] | None = None,
        mix_norm: Norm = "standard",
        bootstrap: int = 1000,
        seed: int = 0,
    ):
        if seeds is None:
            seeds = range(3) if tune else range(5)
        if not train or not tests or not seeds:
            raise SettingError(
                "there must be at least one training text, one test set and one seed"
            )
        if select not in get_args(Select):
            raise SettingError(f"select must be source, target or last, got {select!r}")
        for dataset in (*train, *tests, *dev):
            self._check_has_text(dataset)
        self.train, self.tests, self.tune, self.select = list(train), list(tests), tune, select
        self.seeds, self.bootstrap, self.seed = list(seeds), bootstrap, seed
        self.reading = reading_of(layers, poolings, mix_norm, tune=tune)
        self._check_reading()
        self.options = self._training_options(options or {})
        self.sources = list(dict.fromkeys(dataset.lang for dataset in train))
        self.dev = self._development(dev)

    def _training_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for `Supervised`: the task's defaults, overridden by `options`."""
        settings = self.defaults()
        if self.tune:
            # A rate of None stands for `tuned_rate`, which depends on the encoder's dimension.
            settings["learning_rate"] = None
        return {**settings, **options}

    def _check_reading(self) -> None:
        """Raise a `SettingError` if the layer to read cannot be chosen with the other settings."""
        if not isinstance(self.reading, BestLayer):
            return
        if self.tune:
            raise SettingError(
                "layers=best chooses a layer with frozen vectors, so it cannot be combined with "
                "tune; choose the layer without tune and set it with layer, or use layers=mix"
            )
        # The choice must not use target-language text, and the last epoch has no score.
        if self.select != "source":
            raise SettingError(
                "layers=best chooses the layer by the score on development text in the training "
                f"languages, which requires select=source, got {self.select}; use layers=mix, or "
                "set one layer with layer"
            )

    def _check_has_text(self, dataset: Dataset[D]) -> None:
        if not len(dataset.data) or not self.sentences(dataset.data).lengths().any():
            raise SettingError(f"{dataset.name} contains no texts")

    def _development(self, dev: Sequence[Dataset[D]]) -> list[Dataset[D]]:
        """Return the development texts that `select` uses.

        Raises:
            SettingError: `select` requires other development texts.
        """
        in_sources = [dataset for dataset in dev if dataset.lang in self.sources]
        if self.select == "last":
            return []
        # `select=target` without such text would be `select=source` under a misleading name.
        if self.select == "target":
            if len(in_sources) == len(dev):
                raise SettingError(
                    "select=target requires development text in a language without training text"
                )
            return list(dev)
        if dev and not in_sources:
            langs = ", ".join(dict.fromkeys(dataset.lang for dataset in dev))
            raise SettingError(
                f"select=source requires development text in {', '.join(self.sources)}, got text "
                f"only in {langs}; add such text, or set select=target"
            )
        return in_sources

    # -- from files --------------------------------------------------------------------------------
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
        seeds: Annotated[
            int | None,
            Option(
                "Number of training runs, each with a different seed; default: 5, or 3 with `tune`."
            ),
        ] = None,
        tune: Annotated[
            bool,
            Option(
                "Train the encoder together with the task head; otherwise, the encoder is frozen."
            ),
        ] = False,
        select: Annotated[
            Select,
            Option(
                "Epoch to use: the best on source-language text (source; default), the best "
                "on average over all languages of --dev (target; the table then states that "
                "target-language labels were used), or the last epoch (last)."
            ),
        ] = "source",
        layers: Annotated[
            str | Layer | Sequence[Layer] | None,
            Option(
                "Layers that the task head reads: a learned mixture (mix), the best on "
                "development text in the training languages (best), or the layers to choose "
                "from (4,8,12 or 0-12); default: the encoder's own layer."
            ),
        ] = None,
        poolings: Annotated[
            Sequence[Literal["last", "first", "mean"]] | None,
            Option(
                "Poolings of a word's subwords to choose from with --layers best; default: that "
                "of the encoder, mean and last."
            ),
        ] = None,
        mix_norm: Annotated[
            Norm,
            Option(
                "Normalisation of each layer before it is mixed: layer normalisation, then "
                "standardised dimensions (standard; default, without the second step if --tune is "
                "set), layer normalisation (layer), or none. The paper describes the last two."
            ),
        ] = "standard",
        on_error: Annotated[
            Literal["raise", "skip"],
            Option(
                "Handling of text that cannot be read: stop with an error (raise; default) or "
                "skip the text (skip)."
            ),
        ] = "raise",
        **options: Any,
    ) -> list[Task]:
        """Return the task. For each language in `--ceiling`, also return a task that is trained on
        the ceiling text (translate-train). With `--project`, return only the task that trains on
        labels projected across parallel text.

        Args:
            inputs: input files, with the language in the file name or before the path.
            options: options for `read`, for `Supervised` and for the task's class.
        """
        if not inputs.train:
            raise SettingError(f"{inputs.task} requires training text; set --train FILE")
        if inputs.ceiling and inputs.project:
            raise SettingError("--ceiling and --project cannot be combined; remove one of them")
        # Each option belongs to training, to the reader, or otherwise to the task's class.
        training_options = _accepted_by(Supervised, options)
        pretokenized = inputs.words.pretokenized
        read_options = _accepted_by(
            cls.read, {"on_error": on_error, "pretokenized": pretokenized, **options}
        )
        task_options = {**options}
        for name in (*training_options, *read_options):
            task_options.pop(name, None)

        # All files share one cache, because a file may be used for development and for testing.
        read_files = partial(
            read_datasets, read=partial(cls.read, **read_options), cache={}, say=inputs.say
        )
        train = read_files(inputs.train, max_texts=inputs.words.limit)
        tests = read_files(inputs.test, max_texts=inputs.test_limit)
        dev = read_files(inputs.dev, max_texts=inputs.test_limit)
        ceiling = read_files(inputs.ceiling, max_texts=inputs.words.limit)
        for test in tests:
            warn_of_shared(test, [*train, *_in_language(ceiling, test.lang)])

        # A class that implements several tasks takes the task's name as its first argument.
        first_arguments: tuple[Any, ...] = (inputs.task,) if cls.names else ()
        make = partial(
            cls,
            *first_arguments,
            tune=tune,
            seeds=None if seeds is None else range(seeds),
            options=training_options,
            layers=layers,
            poolings=poolings,
            mix_norm=mix_norm,
            **task_options,
        )
        if inputs.project:
            return [cls.projected(inputs, make, train, tests)]
        tasks: list[Task] = [make(train, tests, dev=dev, select=select)]
        # A ceiling task is trained on the target language, so its training and development
        # languages are the same.
        ceiling_select = "source" if select == "target" else select
        return tasks + cls._ceilings(partial(make, select=ceiling_select), ceiling, tests, dev)

    @classmethod
    def _ceilings(
        cls,
        make: Callable[..., ZeroShot[D]],
        ceiling: Sequence[Dataset[D]],
        tests: Sequence[Dataset[D]],
        dev: Sequence[Dataset[D]],
    ) -> list[Task]:
        """Return a task for each language of the ceiling texts, trained and tested in this
        language.

        Args:
            make: function that builds the task from training, test and development sets.

        Raises:
            SettingError: a ceiling text is in a language without a test set.
        """
        tasks: list[Task] = []
        for lang in dict.fromkeys(dataset.lang for dataset in ceiling):
            tests_in_language = _in_language(tests, lang)
            if not tests_in_language:
                langs = ", ".join(dict.fromkeys(dataset.lang for dataset in tests))
                raise SettingError(
                    f"--ceiling must be in a language of the test sets ({langs}), got {lang}"
                )
            task = make(_in_language(ceiling, lang), tests_in_language, dev=_in_language(dev, lang))
            task.protocol = "ceiling"
            tasks.append(task)
        return tasks

    @classmethod
    def projected(
        cls,
        inputs: Inputs,
        make: Callable[..., Any],
        train: Sequence[Dataset[D]],
        tests: Sequence[Dataset[D]],
    ) -> Task:
        """Return the task that trains on projected labels. Only word tagging tasks implement this
        method.

        Args:
            make: function that builds the task from training and test sets.
        """
        raise SettingError(f"--project requires a word tagging task, got {inputs.task}")

    # -- defined by each task: head, losses and scores ---------------------------------------------
    def defaults(self) -> dict[str, Any]:
        """Return the task's default settings for `Supervised`."""
        frozen_epochs, tuned_epochs = self.epochs
        if self.tune:
            return {
                "epochs": tuned_epochs,
                "batch": 32,
                "warmup": 0.1,
                "decay": "linear",
                "clip": 1.0,
            }
        return {"epochs": frozen_epochs, "batch": 32, "learning_rate": 1e-3, "patience": 4}

    @abstractmethod
    def settings(self) -> dict[str, object]:
        """Return further settings that are recorded with the scores."""

    def settings_of(self, test: Dataset[D]) -> dict[str, object]:
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
    def answers(self, dataset: Dataset[D]) -> Answers:
        """Return the gold answers as numbers that have the same meaning in every data set."""

    @abstractmethod
    def head(self, dim: int) -> nn.Module:
        """Return a new task head for vectors with `dim` dimensions."""

    @abstractmethod
    def losses(self, head: nn.Module, batch: WordRows, answers: Answers) -> Tensor:
        """Return the loss of each text in a batch, `[S]`."""

    @abstractmethod
    def counts(self, head: nn.Module, batch: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        """Return the counts of each text in a batch, float `[S, k]`, keyed by metric. `statistics`
        maps their sum to the score.
        """

    def training(self, encoder: Encoder) -> dict[str, Any]:
        """Return the settings for `Supervised` that are used with this encoder."""
        if self.tune and self.options.get("learning_rate") is None:
            return {**self.options, "learning_rate": tuned_rate(encoder.dim)}
        return self.options

    def split(self, encoder: Any, data: D) -> Encoded:
        """Split the texts into subwords for fine-tuning the encoder."""
        return encoder.split(self.sentences(data))

    def encoded(self, encoder: Encoder, data: D, *, progress: bool = False) -> Encoded:
        """Encode the texts with a frozen encoder, and return the vectors that `frozen` takes as
        input.
        """
        return encoder.encode(self.sentences(data), progress=progress)

    def frozen(self, embeddings: Encoded, device: torch.device) -> VectorSource:
        """Return a source that yields batches of the vectors returned by `encoded`."""
        return FrozenSource(embeddings, device)

    # -- the protocol ------------------------------------------------------------------------------
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the scores on every test set, the main score first. A score is the mean over
        seeds, with a confidence interval over seeds and texts (`Measured.over_runs`). With only one
        seed, the interval is over texts. If a source language has a
        test set, each score in another language records a `gap`: the score on the first such test
        set minus the score itself. If a task head has not converged or has learned nothing, the
        scores record the reasons as `warnings`.
        """
        # The texts are encoded once; all seeds train on the same vectors.
        experiment = self.experiment(encoder, progress=progress)
        runs = [experiment.train(seed) for seed in self.seeds]
        settings = {**self._record(encoder, runs), **experiment.about_reading(runs)}
        scores: list[Score] = []
        for number, test in enumerate(self.tests):
            scores += self._scores(test, experiment.test_runs(runs, number), settings)
        reasons = self._reasons_against(runs, scores)
        if reasons:
            scores = [score.about(warnings=reasons) for score in scores]
        return self._with_gaps(scores)

    def experiment(self, encoder: Encoder, *, progress: bool = False) -> Experiment[D]:
        """Return the experiment with one encoder. The layer to read is chosen if `layers` requires
        it, which trains a task head on each candidate layer.
        """
        if self.reading is None:
            return Experiment(self, encoder, progress=progress)
        require(encoder, "measured", self.rows)
        if isinstance(self.reading, Mixture):
            prepared = self.reading.prepared(encoder)
            return Experiment(
                self, prepared, layers=layers_of(prepared), mixed=True, progress=progress
            )
        choice = self._chosen_layer(self.reading, encoder, progress=progress)
        chosen = dict(self.reading.candidates(encoder))[choice.pooling]
        return Experiment(self, chosen, layers=[choice.layer], choice=choice, progress=progress)

    def _chosen_layer(self, reading: BestLayer, encoder: Encoder, *, progress: bool) -> LayerChoice:
        """Choose the layer and the pooling by the scores on development text of task heads that are
        trained with the first seed; ties go to the lower layer.
        """
        layers = layers_of(encoder, reading.layers)
        scores: dict[str | None, list[float]] = {}
        for pooling, candidate in reading.candidates(encoder):
            # All layers come from one forward pass.
            experiment = Experiment(self, candidate, layers=layers, progress=progress)
            if not experiment.dev and not experiment.held_out:
                raise SettingError(
                    "layers=best requires development text or at least two training texts"
                )
            scores[pooling] = [
                experiment.train(self.seeds[0], index).score for index in range(len(layers))
            ]
        pooling = max(scores, key=lambda name: max(scores[name]))
        best = scores[pooling].index(max(scores[pooling]))
        return LayerChoice(layers[best], pooling, layers, scores)

    def news(self, scores: Sequence[Score]) -> list[str]:
        return messages(self.name, scores[0].settings) if scores else []

    def _record(self, encoder: Encoder, runs: Sequence[Trained]) -> dict[str, object]:
        """Return the settings that are recorded with all scores."""
        return {
            "protocol": self.protocol,
            **about_encoder(encoder),
            "train": [dataset.name for dataset in self.train],
            "train_texts": [len(dataset.data) for dataset in self.train],
            "features": "tuned" if self.tune else "frozen",
            "select": self.select,
            "seeds": self.seeds,
            "dev": self._dev_names(),
            "chosen_epochs": [run.epoch for run in runs],
            "trained_epochs": [run.epochs for run in runs],
            "converged": [run.has_converged for run in runs],
            "dev_scores": [round(run.score, 5) for run in runs],
            **self.settings(),
            **self.training(encoder),
        }

    def _dev_names(self) -> list[str] | str:
        """Return the names of the development texts, or a description of what replaces them."""
        if self.dev:
            return [dataset.name for dataset in self.dev]
        return "one in ten training texts" if self.select == "source" else "the last one"

    def _scores(
        self,
        test: Dataset[D],
        counts_by_run: Sequence[Mapping[str, np.ndarray]],
        settings: Mapping[str, object],
    ) -> list[Score]:
        """Compute the scores on one test set from the counts of its texts, `[S, k]`, in each run
        and for each metric.
        """
        groups = self.groups(test.data)
        n_texts = len(next(iter(counts_by_run[0].values())))
        values_by_metric: dict[str, tuple[float, ...]] = {}
        statistics = []
        for metric, statistic in self.statistics.items():
            counts = np.stack([counts[metric] for counts in counts_by_run], axis=1)  # [S, runs, k]
            totals = [counts[:, run].sum(axis=0) for run in range(len(counts_by_run))]
            values_by_metric[metric] = tuple(float(statistic(total)) for total in totals)
            # The bootstrap resamples rows, so the counts of all runs form one row for each text.
            flat_counts = over_groups(counts.reshape(n_texts, -1), groups)
            statistics.append((flat_counts, _mean_over_runs(statistic, counts.shape[1:])))
        measured = measure_all(statistics, samples=self.bootstrap)
        scores = []
        for (metric, values), value in zip(values_by_metric.items(), measured, strict=True):
            deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            record = {
                **settings,
                **self.settings_of(test),
                "values": [round(run_value, 5) for run_value in values],
                "sd": round(deviation, 5),
            }
            scores.append(
                value.over_runs(values).score(
                    task=self.name,
                    data=test.name,
                    languages=(*self.sources, test.lang),
                    metric=metric,
                    n=n_texts,
                    seed=self.seed,
                    settings=record,
                    runs=values,
                )
            )
        return scores

    def _with_gaps(self, scores: Sequence[Score]) -> list[Score]:
        """Record the gap of each score in another language: the score of the same metric on the
        first test set in a source language, minus the score itself.
        """
        value_in_source: dict[str, float] = {}
        for score in scores:
            if score.languages[-1] in self.sources:
                value_in_source.setdefault(score.metric, score.value)
        with_gaps = []
        for score in scores:
            if score.languages[-1] not in self.sources and score.metric in value_in_source:
                gap = value_in_source[score.metric] - score.value
                score = score.about(gap=round(gap, 5))
            with_gaps.append(score)
        return with_gaps

    def _reasons_against(self, runs: Sequence[Trained], scores: Sequence[Score]) -> list[str]:
        """Return the reasons why the scores do not show how well the encoder can be used for this
        task.
        """
        reasons = []
        # More training would change the score, so it says little about the encoder.
        if not all(run.has_converged for run in runs):
            reasons.append(NOT_CONVERGED)
        main = next(iter(self.statistics))
        # A run that learned nothing lowers the mean, without being a property of the encoder.
        values = np.array([score.runs for score in scores if score.metric == main])  # [tests, runs]
        if (values == 0).all(axis=0).any():
            reasons.append(f"nothing learned: {main} is 0.0 on every test set")
        return reasons


def _accepted_by(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are parameters of a function, in the order of its parameters."""
    parameters = inspect.signature(function).parameters
    return {name: options[name] for name in parameters if name in options}


def _in_language(datasets: Sequence[Dataset[D]], lang: str) -> list[Dataset[D]]:
    return [dataset for dataset in datasets if dataset.lang == lang]


def _mean_over_runs(statistic: Statistic, shape: tuple[int, ...]) -> Statistic:
    """Return the statistic averaged over training runs, as a function of flat counts.

    Args:
        shape: number of runs, and number of counts of each run. The rows of the returned
            statistic's input are the flattened counts of all runs, `[runs * k]`.
    """

    def mean(flat_counts: np.ndarray) -> np.ndarray:
        counts = flat_counts.reshape(*flat_counts.shape[:-1], *shape)
        return statistic(counts).mean(-1)

    return mean


@dataclass(frozen=True)
class LayerChoice:
    """Layer and pooling that were chosen on development text.

    Attributes:
        layer, pooling: chosen layer, and chosen pooling (None if the encoder has none).
        layers: candidate layers.
        scores: score on development text of each layer, keyed by pooling.
    """

    layer: int
    pooling: str | None
    layers: Sequence[int]
    scores: Mapping[str | None, Sequence[float]]

    def record(self) -> dict[str, object]:
        """Return the settings that are recorded with the scores."""
        rounded = {
            str(pooling): [round(score, 5) for score in of_layers]
            for pooling, of_layers in self.scores.items()
        }
        return {
            "read_layers": list(self.layers),
            "read_layer": self.layer,
            "read_pooling": self.pooling,
            "layer_scores": rounded,
        }


class Experiment(Generic[D]):
    """Vectors and gold answers of a task for one encoder, which all seeds share. The encoder is not
    changed.

    Args:
        layers: layers of the encoder to read, whose vectors are computed side by side; default: the
            vectors that `encode` returns.
        mixed: whether a mixture of `layers` is trained with each task head. Otherwise, each task
            head is trained on one of the layers.
        choice: how the layer was chosen, for the record.
    """

    def __init__(
        self,
        task: ZeroShot[D],
        encoder: Encoder,
        *,
        layers: Sequence[int] | None = None,
        mixed: bool = False,
        choice: LayerChoice | None = None,
        progress: bool = False,
    ):
        require(encoder, "measured", task.rows)
        self.task, self.encoder, self.progress = task, encoder, progress
        self.layers, self.mixed, self.choice = layers, mixed, choice
        #: number of dimensions of the vectors that a task head receives
        self.dim = encoder.dim if layers is None else layer_dim(encoder)
        self.processes = Processes()
        self._cache: dict[int, Encoded] = {}  # keyed by the `id` of the data
        answers = [task.answers(dataset) for dataset in task.train]
        self.answers = type(answers[0]).joined(answers)
        # Unknown labels raise an error here, before training.
        self._gold = [task.answers(dataset) for dataset in task.tests]
        self.dev = [(self._data(dataset), task.answers(dataset)) for dataset in task.dev]

        # Texts are numbered across the training sets.
        sizes = [len(answers_of_set.lengths) for answers_of_set in answers]
        self.held_out = self._held_out_texts(sizes)
        held_out = np.concatenate([np.zeros(0, dtype=np.int64), *self.held_out])
        self.trained_numbers = np.setdiff1d(np.arange(sum(sizes)), held_out)
        # Index of each text's source language, between which `per_epoch` divides an epoch.
        langs = [task.sources.index(dataset.lang) for dataset in task.train]
        self.groups = np.repeat(langs, sizes)[self.trained_numbers]

        texts = [self._data(dataset) for dataset in task.train]
        self.text: Encoded = type(texts[0]).joined(texts)
        if layers is not None:
            self._cache.clear()  # the vectors of many layers take much memory
        if not task.tune:  # all seeds share the same tensors
            device = self.processes.device
            self.text = task.frozen(self.text, device)
            self.dev = [(task.frozen(data, device), gold) for data, gold in self.dev]

    def _held_out_texts(self, sizes: Sequence[int]) -> list[np.ndarray]:
        """Return the indices of the texts that are held out of each training set for selecting the
        epoch; the list is empty if there are development texts, or if the last epoch is tested.

        Args:
            sizes: number of texts in each training set.
        """
        if self.task.dev or self.task.select != "source":
            return []
        held_out = []
        for start, end in itertools.pairwise(offsets_of(sizes)):
            numbers = _held_out(np.arange(start, end))
            if len(numbers):
                held_out.append(numbers)
        return held_out

    def _data(self, dataset: Dataset[D]) -> Encoded:
        """Return the vectors of a data set, or its subwords if the encoder is fine-tuned."""
        key = id(dataset.data)
        if key not in self._cache:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self._cache[key] = self._encode(dataset)
            # Repeat the warnings with the name of the data set.
            for warning in caught:
                warning.message.args = (f"{dataset.name}: {warning.message}",)  # type: ignore[union-attr]
                warnings.warn(warning.message, stacklevel=2)
        return self._cache[key]

    def _encode(self, dataset: Dataset[D]) -> Encoded:
        if not self.task.tune:
            encoder = self.encoder
            if self.layers is not None:
                encoder = StackedLayers(encoder, self.layers)
            return self.task.encoded(encoder, dataset.data, progress=self.progress)
        if not isinstance(self.encoder, TrainableEncoder):
            raise SettingError(
                f"{self.encoder.name} cannot be fine-tuned; use frozen vectors (remove --tune)"
            )
        split = self.task.split(self.encoder, dataset.data)
        if split.truncated_sentences:
            limit = f"{self.encoder.max_length} subwords"
            warnings.warn(
                f"{split.truncated_sentences:,} texts exceed {limit} and are truncated",
                stacklevel=2,
            )
        return split

    def _key(self, seed: int, index: int) -> str:
        """Return a hash of everything that affects training: settings, encoder, layer, texts and
        gold answers.
        """
        task = self.task
        # A checkpoint must not be resumed with other data, which would mix two trainings.
        digest = hashlib.blake2b(digest_size=16)

        def update(value: object) -> None:
            digest.update(repr(value).encode("utf-8", "replace"))

        for dataset in (*task.train, *task.dev):
            update([sentence.words for sentence in task.sentences(dataset.data)])
            gold = task.answers(dataset)
            for name, values in {**gold.words, **gold.texts}.items():
                update((name, np.asarray(values).tolist()))
        settings = [
            task.name,
            seed,
            self.encoder.fingerprint,
            task.select,
            task.settings(),
            task.training(self.encoder),
        ]
        if self.mixed:
            assert task.reading is not None
            settings += [task.reading.settings(), self.layers]
        elif self.layers is not None:
            settings.append(self.layers[index])
        digest.update(json_text(settings, undefined="name", sort_keys=True, default=str).encode())
        return digest.hexdigest()

    def train(self, seed: int, index: int = 0) -> Trained:
        """Train a new task head and, with `tune`, a copy of the encoder.

        Args:
            index: index of the layer to train on among `layers`, without effect on mixtures.
        """
        task, device = self.task, self.processes.device
        torch.manual_seed(seed)
        # The head is initialised on the CPU, so that it does not depend on the device.
        head = task.head(self.dim).to(device)
        supervised = Supervised(seed=seed, **task.training(self.encoder))
        encoder = self.encoder
        source = self.text
        if task.tune:
            assert isinstance(encoder, TrainableEncoder)  # checked by `_encode`
            encoder = float32_copy(encoder, device)
            source = TrainedSource(encoder, self.text, self.processes, layers=self.layers)
        mix = self._mixture()
        source = self._read(source, mix, index)
        select, folder = None, None
        if self.dev or self.held_out:
            select = partial(self._dev_score, head, encoder, mix, index)
        if task.checkpoints is not None:
            folder = task.checkpoints / self._key(seed, index)
        supervised.fit(
            head,
            SubsetSource(source, self.trained_numbers),
            lambda batch: task.losses(head, batch, self.answers),
            groups=self.groups,
            processes=self.processes,
            select=select,
            folder=folder,
            progress=self.progress,
            title=f"{task.name} {seed}",
        )
        head.eval()
        return Trained(
            head,
            encoder,
            epoch=supervised.best_epoch,
            score=supervised.best,
            mix=mix,
            epochs=supervised.trained_epochs,
            has_converged=supervised.has_converged,
        )

    def _mixture(self) -> ScalarMix | None:
        """Return a new mixture of the layers if the task reads one."""
        if not self.mixed:
            return None
        assert self.layers is not None
        assert isinstance(self.task.reading, Mixture)
        mix = ScalarMix(len(self.layers), self.dim, norm=self.task.reading.norm)
        mix.to(self.processes.device)
        if mix.norm == "standard":
            trained_texts = SubsetSource(self.text, self.trained_numbers)
            mix.measure(batch.rows for batch in _batches(trained_texts))
        return mix

    def _read(self, source: VectorSource, mix: ScalarMix | None, index: int) -> VectorSource:
        """Return a source of the vectors that the task head receives: the mixture of the layers, or
        the layer with an index among `layers`.
        """
        if mix is not None:
            return MixedSource(source, mix)
        if self.layers is not None and len(self.layers) > 1:
            return LayerSource(source, index, self.dim)
        return source

    def about_reading(self, runs: Sequence[Trained]) -> dict[str, object]:
        """Return the settings that describe the layers that the task heads read."""
        if self.task.reading is None:
            return {}
        about = self.task.reading.settings()
        if self.choice is not None:
            return {**about, **self.choice.record()}
        mixtures = [run.mix for run in runs if run.mix is not None]
        assert self.layers is not None
        return {
            **about,
            "read_layers": list(self.layers),
            "read_pooling": getattr(self.encoder, "pooling", None),
            "mix_weights": [
                [round(weight, 4) for weight in mix.weights().tolist()] for mix in mixtures
            ],
            "mix_gamma": [round(mix.gamma.item(), 4) for mix in mixtures],
        }

    def _dev_score(
        self, head: nn.Module, encoder: Encoder, mix: ScalarMix | None, index: int
    ) -> float:
        """Return the mean of the main metric over the development texts, or over the texts held out
        of each training set; an undefined score counts as 0.
        """
        texts = [(self._source(data, encoder), gold) for data, gold in self.dev]
        for numbers in self.held_out:
            texts.append((self._source_of(numbers, encoder), self.answers))
        metric, statistic = next(iter(self.task.statistics.items()))
        scores = []
        for source, gold in texts:
            counts = self._counts(head, self._read(source, mix, index), gold)[metric]
            scores.append(statistic(counts.sum(axis=0)))
        return float(np.mean(np.nan_to_num(scores)))

    def test(self, trained: Trained) -> list[dict[str, np.ndarray]]:
        """Return a dictionary for every test set, which maps each metric to its counts."""
        return [self.test_runs([trained], number)[0] for number in range(len(self.task.tests))]

    def test_runs(self, runs: Sequence[Trained], number: int) -> list[dict[str, np.ndarray]]:
        """Return a dictionary for every trained model, which maps each metric to its counts on one
        test set.
        """
        test, gold = self.task.tests[number], self._gold[number]
        data = self._data(test)
        counts = []
        for run in runs:
            source = self._read(self._source(data, run.encoder), run.mix, 0)
            counts.append(self._counts(run.head, source, gold))
        if self.layers is not None:
            self._cache.clear()  # the vectors of many layers take much memory
        return counts

    def batches(self, trained: Trained, dataset: Dataset[D]) -> Iterator[WordRows]:
        """Return the batches of a data set, with vectors from the encoder of a trained model."""
        source = self._source(self._data(dataset), trained.encoder)
        return _batches(self._read(source, trained.mix, 0))

    def _source(self, data: Encoded, encoder: Encoder) -> VectorSource:
        """Return a source of batches from vectors, or from subwords and the encoder that is trained
        with the head.
        """
        device = self.processes.device
        if isinstance(data, VectorSource):
            return data
        if self.task.tune:
            assert isinstance(encoder, TrainableEncoder)
            return FrozenSource(vectors_of(encoder, data, self.layers), device)
        return self.task.frozen(data, device)

    def _source_of(self, numbers: np.ndarray, encoder: Encoder) -> VectorSource:
        """Return a source of batches from the training texts with these indices."""
        if not self.task.tune:
            return SubsetSource(self.text, numbers)
        assert isinstance(encoder, TrainableEncoder)
        vectors = vectors_of(encoder, self.text.take(numbers), self.layers)
        return FrozenSource(vectors, self.processes.device, numbers)

    @torch.no_grad()
    def _counts(
        self, head: nn.Module, source: VectorSource, answers: Answers
    ) -> dict[str, np.ndarray]:
        """Return the counts for all texts in their original order, `[S, k]`, keyed by metric."""
        numbers: list[np.ndarray] = []
        counts_by_metric: dict[str, list[np.ndarray]] = {}
        for batch in _batches(source):
            numbers.append(batch.numbers)
            for metric, counts in self.task.counts(head, batch, answers).items():
                counts_by_metric.setdefault(metric, []).append(counts)
        # Batches are sorted by length; the bootstrap needs the original order of the texts.
        order = np.argsort(np.concatenate(numbers))
        return {
            metric: np.concatenate(counts)[order].astype(np.float64)
            for metric, counts in counts_by_metric.items()
        }


def _held_out(numbers: np.ndarray) -> np.ndarray:
    """Hold out every tenth text for selecting the epoch. Of 2 to 9 texts, hold out the last one.
    Never hold out a single text.
    """
    if len(numbers) >= 10:
        return numbers[9::10]
    if len(numbers) > 1:
        return numbers[-1:]
    return numbers[:0]


def _batches(source: VectorSource) -> Iterator[WordRows]:
    """Yield batches of texts with similar lengths."""
    # Texts of similar length need little padding, and the longest come first, so a lack of memory
    # shows at once.
    order = np.argsort(-source.lengths, kind="stable")
    for start in range(0, len(order), _BATCH):
        yield source.take(order[start : start + _BATCH])
