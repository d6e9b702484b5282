"""Pretrain language models on text, optionally with senses (Multi-sense, §3)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_precision
from calque.errors import SettingError, check_number
from calque.input_texts import Say
from calque.senses.clusters import FEWEST_WORDS, MIN_VECTORS, split_words
from calque.senses.sense_table import SenseTable, Softmax, Targets, nearest
from calque.senses.text import Mixture
from calque.text import Sentences
from calque.training.loop import Loop, Schedule
from calque.training.objective import Objective

_RECENT = 60  # maximum number of recent states to cluster for each word
# maximum number of translations of a word per language; the first dictionary entries are used
_TRANSLATIONS = 4
_WHITEN = 0.5  # with start="grouped", axes are divided by this power of their standard deviation


@dataclass(frozen=True, kw_only=True)
class Senses:
    """Settings for training a language model with senses; their names in the paper (Tables 6 to 8)
    are in brackets.

    Args:
        senses: maximum number S of senses per word (n_context).
        occurrences: number of times that a word must occur in the training text for each of its
            senses; with 0, all words have S senses, as in the paper.
        warmup: number of updates during which each word has one sense (contextual_warmup; 20,000 in
            the paper). Default: half of all updates with start="grouped", otherwise a tenth, but at
            most 20,000.
        start: initialisation of all senses but the first: "fresh" (SaELMo) or "kept" (SaBERT), see
            `SenseTable.open`; or "grouped", which clusters the recent states of each word, see
            `group`. With random centres, the first centre often attracts all states. "grouped" also
            mean-centres the states before the projection, divides the axes by the square root of
            their standard deviation, and makes both directions of ELMo select the same sense.
        rate: learning rate α of the centres (sense_learning_rate, context_rep_lr).
        spread: standard deviation σ of the initial centres (not given in the paper). If a centre is
            small compared with α times a state, the first state that selects it determines its
            direction.
        axes: dimension d′ of the projection (cluster_proj_dim, pca_dim).
        queue: number Q of states from which the projection is computed (pca_sample).
        project_every: number M of updates between computations of the projection (not given in the
            paper).
        below: a sense with less than this fraction β of its word's selections is pruned
            (remove_less_frequent_contexts).
        prune_every: number E of updates between prunings (not given in the paper).

    Raises:
        SettingError: a value is invalid.
    """

    senses: int = 5
    occurrences: int = 100
    warmup: int | None = None
    start: Literal["grouped", "kept", "fresh"] = "grouped"
    rate: float = 0.01
    spread: float = 0.01
    axes: int = 16
    queue: int = 20_000
    project_every: int = 100
    below: float = 0.1
    prune_every: int = 500

    def __post_init__(self):
        if self.senses == 1:
            raise SettingError(
                "senses must be at least 2, got 1; omit senses for a model with one sense per word"
            )
        check_number("senses", self.senses, least=2, most=50, whole=True)
        check_number("occurrences", self.occurrences, least=0, whole=True)
        if self.warmup is not None:
            check_number("warmup", self.warmup, least=0, whole=True)
        if self.start not in ("grouped", "kept", "fresh"):
            raise SettingError(f"start must be grouped, kept or fresh, got {self.start!r}")
        if self.warmup == 0 and self.grouped:
            raise SettingError(
                "warmup must be at least 1 with start=grouped, got 0; try another start"
            )
        check_number("rate", self.rate, above=0, most=1)
        check_number("spread", self.spread, above=0)
        for name in ("axes", "queue", "project_every", "prune_every"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("below", self.below, least=0, below=1)

    @property
    def grouped(self) -> bool:
        return self.start == "grouped"

    def tables(self, counts: np.ndarray, dim: int, number: int = 1) -> list[SenseTable]:
        """Return `number` tables for the words with the frequencies `counts` in the training text,
        int `[n_words]`.
        """
        several = np.where(counts > 0, self.senses, 1)
        if self.occurrences:
            several = np.clip(counts // self.occurrences, 1, self.senses)
        slots = np.where(several > 1, several + 1, 1) if self.start == "fresh" else several
        kept: dict[str, Any] = {"recent": _RECENT, "kinds": number} if self.grouped else {}
        how = {"axes": self.axes, "queue": self.queue, "spread": self.spread, **kept}
        return [SenseTable(slots, dim, **how) for _ in range(number)]

    def warmup_of(self, updates: int) -> int:
        """Return the number of warm-up updates, during which each word has one sense."""
        if self.warmup is not None:
            return self.warmup
        return max(1, updates // 2) if self.grouped else min(20_000, max(1, updates // 10))


class Translations:
    """Translations of each word in a joint vocabulary, depending on the language of the text in
    which the word occurs.

    Dictionaries are used in both directions. Case is ignored: an entry applies to all spellings of
    its word, and the translation has the spelling in the dictionary, or else its most frequent
    spelling. A word is never its own translation, but the same word in another case may be. `words`
    maps each language to the number of words with a translation.

    Args:
        dictionaries: dictionaries between languages of the text.
        languages: languages of the text.
        vocabulary: index of each word that can be predicted, with the most frequent word first.

    Raises:
        SettingError: a dictionary has a language that the text lacks, or it has no pair of words in
            the vocabulary.
    """

    def __init__(
        self,
        dictionaries: Sequence[Dictionary],
        languages: Sequence[str],
        vocabulary: Mapping[str, int],
    ):
        self.languages = list(languages)
        forms: dict[str, list[int]] = {}
        for word, number in vocabulary.items():
            forms.setdefault(word.lower(), []).append(number)
        n, size = len(self.languages), max(vocabulary.values(), default=-1) + 1
        nothing = np.full((max(1, n - 1), _TRANSLATIONS), -1, dtype=np.int64)
        rows: dict[
            tuple[int, int], np.ndarray
        ] = {}  # keyed by language and word, `[n_languages - 1, _TRANSLATIONS]`
        for dictionary in dictionaries:
            place, langs = dictionary.path or "the dictionary", dictionary.langs
            if not set(langs) <= set(self.languages) or langs[0] == langs[1]:
                text = ", ".join(self.languages)
                raise SettingError(
                    f"{place} must be between two different languages of the text ({text}), got "
                    f"{'-'.join(langs)}"
                )
            first, second = (self.languages.index(lang) for lang in langs)
            columns, pairs = (dictionary.source, dictionary.target), 0
            for source, other, words, translated in (
                (first, second, *columns),
                (second, first, *columns[::-1]),
            ):
                for word, translation in zip(words, translated, strict=True):
                    wanted = (vocabulary.get(translation), *forms.get(translation.lower(), ()))
                    for number in forms.get(word.lower(), ()):
                        right = next((k for k in wanted if k not in (None, number)), None)
                        if right is not None:
                            pairs += 1
                            several = rows.setdefault((source, number), nothing.copy())[
                                other - (other > source)
                            ]
                            if right not in several and several[-1] < 0:
                                several[np.argmax(several < 0)] = right
            if not pairs:
                raise SettingError(
                    f"{place}: none of the {len(dictionary):,} pairs has two different words of "
                    "the vocabulary; "
                    f"are the languages {' and '.join(langs)}?"
                )
        # The last column stands for words with larger indices, which have no translations.
        index, keys = np.zeros((n, size + 1), dtype=np.int64), sorted(rows)
        for k, (source, number) in enumerate(keys, 1):
            index[source, number] = k
        self.words = {lang: int((index[k] > 0).sum()) for k, lang in enumerate(self.languages)}
        self._index = torch.from_numpy(index)
        self._rows = torch.from_numpy(np.stack([nothing, *(rows[key] for key in keys)]))

    @property
    def fingerprint(self) -> str:
        """Hash of the translations."""
        parts = [part.cpu().numpy().tobytes() for part in (self._index, self._rows)]
        return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()

    def to(self, device: torch.device) -> Translations:
        """Move the tables to a device."""
        self._index, self._rows = self._index.to(device), self._rows.to(device)
        return self

    def of(self, languages: Tensor, words: Tensor) -> Tensor:
        """Return the translations of words in texts in the given languages, int64 `[n, n_languages
        - 1, t]`, padded with −1.
        """
        return self._rows[self._index[languages, words.clamp(max=self._index.shape[1] - 1)]]


# : Hidden states `[n, kinds · dim]` of this process's predictions, in text order; they predict the
# word and select its sense. : The second tensor, int64 `[n, 3]`, contains the word, its class (the
# selected sense) and a mask flag for each prediction.
Selected = tuple[Tensor, Tensor]


class SenseTraining:
    """Selects senses during an update, and updates the centres, the projection and the active
    senses afterwards.

    All processes select senses with the centres from before the update. The selections are gathered
    in the order of the text, so the tables (one, or one for each direction) are identical in all
    processes.
    """

    def __init__(
        self,
        tables: Sequence[SenseTable],
        settings: Senses,
        updates: int,
        processes: Processes,
        translations: Translations | None = None,
        seed: int = 0,
    ):
        self.tables, self.settings, self.processes = list(tables), settings, processes
        self.translations = None if translations is None else translations.to(processes.device)
        self._warmup, self._seed = settings.warmup_of(updates), seed
        self._pending: list[tuple[Selected, list[int]]] = []
        if self._warmup == 0:
            self._open()

    def targets(
        self,
        states: Mapping[int, Tensor],
        words: Tensor,
        languages: Tensor,
        whole: Tensor | None = None,
    ) -> Targets:
        """Return the sense that each state selects, and senses of translations with half of the
        total weight (Eq. 7).

        For each other language, the nearest sense among all translations of the word is selected.
        If there are several such languages, they share the weight of the translations equally, so
        Eq. 6 becomes a mean.

        Args:
            states: states that select senses, `[n, dim]`, keyed by the index of the table with
                which they are compared.
            words, languages: index of each word, and index of its text's language, int64 `[n]`.
            whole: mask of words that may have translations, bool `[n]`; default: all words.
        """
        own = self._nearest(states, words[:, None])
        dtype = self.tables[0].centres.dtype
        if self.translations is None:
            return Targets(own[:, None], torch.ones_like(own[:, None], dtype=dtype))
        translations = self.translations.of(languages, words)
        if whole is not None:
            translations = translations.masked_fill(~whole[:, None, None], -1)
        found = torch.stack(
            [self._nearest(states, several) for several in translations.unbind(1)], dim=1
        )
        for k in range(1, found.shape[1]):  # a word that two languages share is a single class
            again = (found[:, k, None] == found[:, :k]).any(1)
            found[:, k] = found[:, k].masked_fill(again, -1)
        exists = found >= 0
        number = exists.sum(1, keepdim=True)
        weights = torch.where(exists, 0.5 / number.clamp(min=1), 0.0)
        first = torch.where(number > 0, 0.5, 1.0)
        return Targets(
            torch.cat([own[:, None], found], dim=1), torch.cat([first, weights], dim=1).to(dtype)
        )

    def _nearest(self, states: Mapping[int, Tensor], words: Tensor) -> Tensor:
        return nearest(
            [self.tables[side].compared(of_side, words) for side, of_side in states.items()]
        )

    def keep(self, selected: Sequence[Selected | None], counts: list[int]) -> None:
        """Store the selections for each table (None if this process has no text) and each process's
        number of predictions.
        """
        nothing = [
            (t.centres[:0].repeat(1, len(self.tables)), t.counts[:0, None].repeat(1, 3))
            for t in self.tables
        ]
        self._pending = [
            (part or none, counts) for part, none in zip(selected, nothing, strict=True)
        ]

    def after_update(self, step: int) -> None:
        """Update the tables after update `step` of the weights."""
        settings = self.settings
        for table, (selected, counts) in zip(self.tables, self._pending, strict=True):
            kinds, numbers = (self.processes.gather_rows(part, counts) for part in selected)
            words, classes, masked = numbers.unbind(1)
            table.follow(kinds[:, -table.dim :], classes, settings.rate)
            table.remember(kinds[:, -table.dim :])
            if settings.grouped and step <= self._warmup:
                table.keep_recent(
                    kinds.unflatten(1, (-1, table.dim)), words.masked_fill(masked == 0, -1)
                )
            if step % settings.project_every == 0:
                self._project(table)
        self._pending = []
        if step == self._warmup:
            self._open()
        elif step > self._warmup and settings.below and step % settings.prune_every == 0:
            for table in self.tables:
                table.prune(settings.below)

    def _project(self, table: SenseTable) -> None:
        table.project(
            centred=self.settings.grouped, whiten=_WHITEN if self.settings.grouped else 0.0
        )

    def _open(self) -> None:
        live, start = None, self.settings.start
        if start == "grouped":
            for table in self.tables:
                self._project(table)
            live, start = group(self.tables, seed=self._seed), "copied"
        for table in self.tables:
            table.open(start=start, live=live)


@torch.no_grad()
def group(tables: Sequence[SenseTable], *, seed: int) -> torch.Tensor:
    """Cluster the recent states of each word that may have several senses, set the centres of the
    senses, and return the mask of active senses, bool `[n_classes]`.

    `split_words` clusters the states that predict a word (index 0 of `kinds`, concatenated over
    tables). The centre of a sense is the mean of the states that select it (the last ones). Words
    with fewer than `MIN_VECTORS` states keep one sense. If fewer than `FEWEST_WORDS` words have
    enough states, all words keep one sense.
    """
    first = tables[0]
    live = torch.zeros_like(first.live)
    live[first.index[:, 0]] = True
    kept = first.n_recent.clamp(max=first.recent.shape[1]).tolist()
    chosen = [place for place, n in enumerate(kept) if n >= MIN_VECTORS]
    if len(chosen) < FEWEST_WORDS:
        return live
    words = first.several[chosen].tolist()
    vectors = [
        torch.cat([t.recent[place, : kept[place], 0] for t in tables], dim=1).cpu().numpy()
        for place in chosen
    ]
    limits = (first.index[words] >= 0).sum(1).cpu().numpy()
    for place, word, labels in zip(
        chosen, words, split_words(vectors, max_senses=limits, seed=seed), strict=True
    ):
        for sense in range(int(labels.max()) + 1):
            number = first.index[word, sense]
            live[number] = True
            members = torch.from_numpy(np.flatnonzero(labels == sense)).to(live.device)
            for table in tables:
                table.centres[number] = table.recent[place, members, -1].mean(0)
    return live


#: block indices of an update for each language
Update = list[tuple[str, np.ndarray]]


@dataclass(kw_only=True, eq=False)
class LanguageModel(ABC):
    """Settings for a language model and its training.

    Args:
        dim: hidden size of the model.
        length: maximum number of subwords per block (BERT truncates longer sentences) or words per
            sentence (ELMo splits them).
        alpha: exponent of sampling: a language with n subwords or words is sampled with probability
            ∝ n^alpha.
        batch: number of blocks (BERT) or sentences (ELMo) in an update.
        updates: number of updates.
        learning_rate: maximum learning rate; default: `default_rate()`.
        warmup, decay, clip, seed: see `Schedule`.
        precision: precision of the forward passes: "float32" or "bfloat16".
        senses: sense settings; if None, the model has no senses.
        lower: whether to lower-case all text, both in training and in the saved encoder.

    Attributes:
        unit: unit of the text (words or subwords).
        model: the trained model.
        softmax: output layer that replaces the model's own head; None if that head is used.
        translations: translations from dictionaries; None if there are no dictionaries.
        mixture, history: sampler of the blocks, and metrics of each update.
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
        check_precision(self.precision, TRAINING_PRECISIONS)
        if (
            self.senses is not None
            and (warmup := self.senses.warmup_of(self.updates)) >= self.updates
        ):
            raise SettingError(
                f"the warm-up for senses must be shorter than the training of {self.updates:,} "
                f"updates, got {warmup:,}; "
                "train longer, or shorten the warm-up"
            )
        self.softmax: Softmax | None = None
        self.translations: Translations | None = None
        rate = self.default_rate() if self.learning_rate is None else self.learning_rate
        # `_run` sets the number of epochs, which depends on the text.
        self._schedule = Schedule(
            1.0, rate, self.warmup, self.decay, epsilon=1e-6, clip=self.clip, seed=self.seed
        )

    @abstractmethod
    def default_rate(self) -> float:
        """Return the default learning rate."""

    @abstractmethod
    def train(
        self,
        texts: Mapping[str, Sentences],
        *,
        dictionaries: Sequence[Dictionary] = (),
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
        say: Say = lambda line: None,
    ) -> Any:
        """Train and return a new encoder. For `folder`, `checkpoint_every` and `progress`, see
        `Loop`.

        Args:
            texts: sentences, keyed by language.
            dictionaries: dictionaries between languages of the text, for predicting senses of
                translations.
            say: function that prints messages.
        """

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Vocabulary size and number of parameters of the encoder."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the encoder and its output layer."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the result."""
        return {} if self.senses is None else {"senses": asdict(self.senses)}

    def _sense_training(
        self,
        languages: Sequence[str],
        words: Callable[[], Mapping[str, int]],
        dictionaries: Sequence[Dictionary],
        processes: Processes,
    ) -> SenseTraining | None:
        """Return the object that trains the senses of `softmax`, or None if the model has no
        senses.
        """
        if self.senses is None or self.softmax is None:
            if dictionaries:
                raise SettingError(
                    "dictionaries need senses; set the maximum number of senses per word (at least "
                    "2)"
                )
            return None
        if dictionaries:
            self.translations = Translations(dictionaries, languages, words())
        return SenseTraining(
            self.softmax.senses, self.senses, self.updates, processes, self.translations, self.seed
        )

    def _run(
        self,
        objective: Prediction,
        *,
        identity: Mapping[str, Any],
        folder: str | Path | None,
        **options: Any,
    ) -> None:
        """Train the model. Checkpoints are identified by the settings, the text, the translations
        and `identity`.
        """
        mixture = self.mixture = objective.mixture
        about = {} if self.translations is None else {"translations": self.translations.fingerprint}
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
    """Mean cross-entropy of predicted words or subwords. With `training`, the predicted classes are
    their senses and the senses of their translations (Multi-sense, Eqs. 4 to 7)."""

    def __init__(
        self,
        module: nn.Module,
        mixture: Mixture,
        processes: Processes,
        training: SenseTraining | None,
    ):
        self.module, self.mixture, self.processes, self.training = (
            module,
            mixture,
            processes,
            training,
        )

    def _languages(self, update: Update) -> np.ndarray:
        """Return the language index of each block in an update."""
        names = list(self.mixture.languages)
        return np.repeat(
            [names.index(lang) for lang, _ in update], [len(numbers) for _, numbers in update]
        )

    def _finish(
        self, loss: Tensor, selected: Sequence[Selected | None], sizes: np.ndarray
    ) -> dict[str, float]:
        """Store the selections for each table, and return the loss. `sizes` is the number of
        predictions in each block.
        """
        if self.training is not None:
            counts = [
                int(sizes[part].sum())
                for part in np.array_split(np.arange(len(sizes)), self.processes.world)
            ]
            self.training.keep(selected, counts)
        return {"loss": float(self.processes.sum_numbers(loss.detach()))}

    def after_update(self, step: int) -> None:
        if self.training is not None:
            self.training.after_update(step)
