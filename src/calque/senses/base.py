"""What is the same for every language model that is trained from text alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.encoders.numerics import TrainingPrecision, check_training_precision
from calque.errors import SettingError, check_number
from calque.linking import Say
from calque.senses.softmax import Softmax
from calque.senses.text import Blocks, Mixture
from calque.senses.training import Selected, Senses, SenseTraining, Translations
from calque.text import Sentences
from calque.training.loop import Loop, Schedule
from calque.training.objective import Objective

#: numbers of blocks by language
Update = list[tuple[str, np.ndarray]]


@dataclass(kw_only=True, eq=False)
class LanguageModel(ABC):
    """Settings of a language model and of its training.

    Args:
        dim: size of the model.
        length: most subwords of a training block; or words beyond which a sentence is cut, see `WordText`.
        alpha: how far small languages are seen more often than they occur, see `Mixture`.
        batch: blocks, or sentences, in an update.
        updates: how many.
        learning_rate: the highest; None leaves the choice to the model.
        warmup, decay, clip, seed: see `Schedule`.
        precision: as for `Tuner`.
        senses: how senses of words are found and predicted; None predicts words.
        lower: read all text in lower case; the encoder that is saved does so, too.

    Attributes:
        unit: what text is counted in.
        model: the trained model, with what predicts.
        translations: of the words, once a training with dictionaries has begun; None without.
    """

    unit: ClassVar[str]
    dim: int = 128
    length: int = 128
    alpha: float = 0.5
    batch: int = 64
    updates: int = 10_000
    learning_rate: float | None = None
    warmup: float = 0.0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    clip: float | None = None
    seed: int = 0
    precision: TrainingPrecision = "float32"
    senses: Senses | None = None
    lower: bool = False

    def __post_init__(self):
        for name in ("dim", "batch", "updates", "length"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("alpha", self.alpha, least=0, most=1)
        check_training_precision(self.precision)
        self.translations: Translations | None = None
        rate = self.default_rate() if self.learning_rate is None else self.learning_rate
        # The number of epochs is known when there is text.
        self._schedule = Schedule(
            1.0, rate, self.warmup, self.decay, epsilon=1e-6, clip=self.clip, seed=self.seed
        )  # fmt: skip

    # -- what differs ------------------------------------------------------------------------------------------------------
    @abstractmethod
    def default_rate(self) -> float:
        """Learning rate where the user names none."""

    @abstractmethod
    def train(
        self, texts: Mapping[str, Sentences], *, dictionaries: Sequence[Dictionary] = (), folder: str | Path | None = None,
        checkpoint_every: int = 200, progress: bool = False, say: Say = lambda line: None,
    ) -> Any:  # fmt: skip
        """Return a new encoder.

        Args:
            texts: sentences by language.
            dictionaries: between these languages; for senses.
            folder, checkpoint_every, progress: see `Tuner.tune`.
            say: gets news.
        """

    @property
    @abstractmethod
    def softmax(self) -> Softmax | None:
        """What predicts, where that is not the model's own head."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Number of words or subwords that are predicted, and of the encoder's parameters."""

    @abstractmethod
    def size(self, sentences: Sentences, blocks: Blocks) -> int:
        """The size of a language's text, in `unit`."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the encoder, and what predicts beside it."""

    @abstractmethod
    def card(self, record: Mapping[str, Any], senses: Sequence[str]) -> tuple[list[str], list[str]]:
        """Lines of the model card's front matter, and those that say what the model is; `senses` among them."""

    def settings(self) -> dict[str, Any]:
        """What the result depends on."""
        return {} if self.senses is None else {"senses": asdict(self.senses)}

    # -- what is shared ----------------------------------------------------------------------------------------------------
    def _sense_training(
        self, softmax: Softmax | None, languages: Sequence[str], words: Callable[[], Mapping[str, int]],
        dictionaries: Sequence[Dictionary], processes: Processes,
    ) -> SenseTraining | None:  # fmt: skip
        """Return what selects the senses of a softmax; None without senses.

        Args:
            words: gives the number of each word that can be translated, the most frequent first.
        """
        if self.senses is None or softmax is None:
            if dictionaries:
                raise SettingError("a dictionary translates senses: say how many a word has at most, 2 or more")
            return None
        if dictionaries:
            self.translations = Translations(dictionaries, languages, words())
        return SenseTraining(softmax.senses, self.senses, self.updates, processes, self.translations, self.seed)

    def _run(
        self, objective: Prediction, *, identity: Mapping[str, Any], folder: str | Path | None, **options: Any
    ) -> None:
        """Train; `mixture` and `history` tell afterwards what was seen and how it went.

        Args:
            identity: what a checkpoint depends on besides the settings and the text.
            folder, options: see `Loop`.
        """
        mixture = self.mixture = objective.mixture
        about = {} if objective.training is None else objective.training.identity
        loop = Loop(
            objective,
            schedule=replace(self._schedule, epochs=self.updates / mixture.steps_per_epoch),
            processes=objective.processes,
            identity={**self.settings(), "text": mixture.fingerprint, **identity, **about},
            folder=None if folder is None else Path(folder),
            title="pretrain",
            **options,
        )
        self.history = loop.run(mixture)


class Prediction(Objective[Update]):
    """The mean cross-entropy of predicted words or subwords; or of their senses and those of their translations (Multi-sense,
    Eqs. 4 to 7).

    Args:
        module: all that is trained.
        mixture: whose blocks the updates name.
        processes: of this run.
        training: of the tables of senses; None for a model of words.
    """

    def __init__(self, module: nn.Module, mixture: Mixture, processes: Processes, training: SenseTraining | None):
        self.module, self.mixture, self.processes, self.training = module, mixture, processes, training
        if training is not None:
            training.begin()

    def _languages(self, update: Update) -> np.ndarray:
        """Return the index of the language of each block of an update."""
        names = list(self.mixture.languages)
        return np.repeat([names.index(lang) for lang, _ in update], [len(numbers) for _, numbers in update])

    def _finish(self, loss: Tensor, selected: Sequence[Selected | None], sizes: np.ndarray) -> dict[str, float]:
        """Keep what an update selected, and return the terms of its loss.

        Args:
            selected: by this process, for each table; None where it has no text.
            sizes: int64 `[n]`, number of predictions of each block.
        """
        if self.training is not None:
            counts = [int(sizes[part].sum()) for part in self.processes.shares(np.arange(len(sizes)))]
            self.training.keep(selected, counts)
        return {"loss": float(self.processes.sum_numbers(loss.detach()))}

    def after_update(self, step: int) -> None:
        if self.training is not None:
            self.training.after_update(step)
