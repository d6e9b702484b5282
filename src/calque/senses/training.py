"""Pretrain language models on text, optionally with senses (Multi-sense, §3)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

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
from calque.spec import Count, Documented, SeedNumber, option
from calque.text import Sentences
from calque.training.loop import Loop, Schedule
from calque.training.objective import Objective

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

_RECENT = 60  # maximum number of recent states to cluster for each word
# maximum number of translations of a word per language; the first dictionary entries are used
_TRANSLATIONS = 4
_WHITEN = 0.5  # with start="grouped", axes are divided by this power of their standard deviation

#: block indices of an update for each language
Update = list[tuple[str, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Senses(Documented):
    """Settings for training a language model with senses; their names in the paper (Tables 6 to 8)
    are in brackets.

    Raises:
        SettingError: a value is invalid.
    """

    senses: int = option(5, "maximum number S of senses per word (n_context).")
    occurrences: int = option(
        100,
        "number of times that a word must occur in the training text for each of its senses; with "
        "0, all words have S senses, as in the paper.",
    )
    warmup: int | None = option(
        None,
        "number of updates during which each word has one sense (contextual_warmup; 20,000 in the "
        'paper). Default: half of all updates with start="grouped", otherwise a tenth, but at '
        "most 20,000.",
    )
    start: Literal["grouped", "kept", "fresh"] = option(
        "grouped",
        'initialisation of all senses but the first: "fresh" (SaELMo) or "kept" (SaBERT); or '
        '"grouped", which clusters the recent states of each word. With random centres, the first '
        'centre often attracts all states. "grouped" also mean-centres the states before the '
        "projection, divides the axes by the square root of their standard deviation, and makes "
        "both directions of ELMo select the same sense.",
    )
    rate: float = option(
        0.01, "learning rate α of the centres (sense_learning_rate, context_rep_lr)."
    )
    spread: float = option(
        0.01,
        "standard deviation σ of the initial centres (not given in the paper). If a centre is "
        "small compared with α times a state, the first state that selects it determines its "
        "direction.",
    )
    axes: int = option(16, "dimension d′ of the projection (cluster_proj_dim, pca_dim).")
    queue: int = option(
        20_000, "number Q of states from which the projection is computed (pca_sample)."
    )
    project_every: int = option(
        100, "number M of updates between computations of the projection (not given in the paper)."
    )
    below: float = option(
        0.1,
        "a sense with less than this fraction β of its word's selections is pruned "
        "(remove_less_frequent_contexts).",
    )
    prune_every: int = option(500, "number E of updates between prunings (not given in the paper).")

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
        if self.occurrences:
            n_senses = np.clip(counts // self.occurrences, 1, self.senses)
        else:
            n_senses = np.where(counts > 0, self.senses, 1)
        if self.start == "fresh":
            # One more sense for the warm-up, which `SenseTable.open` deactivates (n_context = 6 for
            # 5 senses, Appendix D.1).
            n_senses = np.where(n_senses > 1, n_senses + 1, 1)
        recent, states_per_use = 0, 1
        if self.grouped:
            # With two tables (ELMo), the state that predicts a word differs from the state that
            # selects its sense, so both are stored.
            recent, states_per_use = _RECENT, number
        return [
            SenseTable(
                n_senses,
                dim,
                axes=self.axes,
                queue=self.queue,
                spread=self.spread,
                recent=recent,
                states_per_use=states_per_use,
            )
            for _ in range(number)
        ]

    def warmup_of(self, updates: int) -> int:
        """Return the number of warm-up updates, during which each word has one sense."""
        if self.warmup is not None:
            return self.warmup
        if self.grouped:
            return max(1, updates // 2)
        return min(20_000, max(1, updates // 10))


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
        # One column for each language other than that of the text.
        self._no_translations = np.full(
            (max(1, len(self.languages) - 1), _TRANSLATIONS), -1, dtype=np.int64
        )
        # translations of each word, keyed by the index of its language and the index of the word
        rows: dict[tuple[int, int], np.ndarray] = {}
        spellings: dict[str, list[int]] = {}
        for word, number in vocabulary.items():
            spellings.setdefault(word.lower(), []).append(number)
        for dictionary in dictionaries:
            first, second = self._language_indices(dictionary)
            source, target = dictionary.source, dictionary.target
            forward = list(_translated(source, target, vocabulary, spellings))
            backward = list(_translated(target, source, vocabulary, spellings))
            if not forward and not backward:
                raise SettingError(
                    f"{_place(dictionary)}: none of the {len(dictionary):,} pairs has two "
                    "different words of the vocabulary; are the languages "
                    f"{' and '.join(dictionary.langs)}?"
                )
            self._add(rows, first, second, forward)
            self._add(rows, second, first, backward)
        # `index` maps a language and a word to a row; row 0 has no translations. The last column
        # stands for words with larger indices, which have no translations.
        n_words = max(vocabulary.values(), default=-1) + 1
        index = np.zeros((len(self.languages), n_words + 1), dtype=np.int64)
        keys = sorted(rows)
        for row, (language, word) in enumerate(keys, 1):
            index[language, word] = row
        self.words = {lang: int((index[k] > 0).sum()) for k, lang in enumerate(self.languages)}
        self._index = torch.from_numpy(index)
        self._rows = torch.from_numpy(
            np.stack([self._no_translations, *(rows[key] for key in keys)])
        )

    def _language_indices(self, dictionary: Dictionary) -> tuple[int, int]:
        """Return the indices of the dictionary's two languages."""
        source, target = dictionary.langs
        if source == target or not {source, target} <= set(self.languages):
            raise SettingError(
                f"{_place(dictionary)} must be between two different languages of the text "
                f"({', '.join(self.languages)}), got {source}-{target}"
            )
        return self.languages.index(source), self.languages.index(target)

    def _add(
        self,
        rows: dict[tuple[int, int], np.ndarray],
        source: int,
        target: int,
        pairs: Sequence[tuple[int, int]],
    ) -> None:
        """Add pairs of words to `rows`, in dictionary order, until a row is full."""
        # A word has no translations into its own language, so later languages move up by one.
        column = target - 1 if target > source else target
        for word, translation in pairs:
            if (source, word) not in rows:
                rows[source, word] = self._no_translations.copy()
            row = rows[source, word][column]
            if translation not in row and row[-1] < 0:
                row[np.argmax(row < 0)] = translation

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


def _place(dictionary: Dictionary) -> str:
    return dictionary.path or "the dictionary"


def _translated(
    words: Sequence[str],
    translations: Sequence[str],
    vocabulary: Mapping[str, int],
    spellings: Mapping[str, Sequence[int]],
) -> Iterator[tuple[int, int]]:
    """Yield the index of every spelling of each word, and the index of its translation.

    Args:
        words, translations: columns of a dictionary.
        vocabulary: index of each word.
        spellings: indices of all spellings of each lower-cased word, the most frequent first.
    """
    for word, translation in zip(words, translations, strict=True):
        candidates = list(spellings.get(translation.lower(), ()))
        if translation in vocabulary:
            candidates.insert(0, vocabulary[translation])
        for number in spellings.get(word.lower(), ()):
            # A word that both languages share is not its own translation.
            others = [candidate for candidate in candidates if candidate != number]
            if others:
                yield number, others[0]


class Selected(NamedTuple):
    """Senses that this process's predictions selected, in text order.

    Attributes:
        states: hidden states, `[n, k · dim]`: the state that predicts the word, and, if another
            state selects the sense, that state (last).
        numbers: the word, its class (the selected sense), and whether the state is independent of
            the word itself (for BERT: whether the word is masked), int64 `[n, 3]`.
    """

    states: Tensor
    numbers: Tensor


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
        self._pending: list[Selected] = []
        self._counts: list[int] = []
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
        sense = self._nearest(states, words[:, None])[:, None]
        dtype = self.tables[0].centres.dtype
        if self.translations is None:
            return Targets(sense, torch.ones_like(sense, dtype=dtype))
        translations = self.translations.of(languages, words)  # [n, n_languages - 1, t]
        if whole is not None:
            translations = translations.masked_fill(~whole[:, None, None], -1)
        # The nearest sense of a translation into each other language (§3.2), [n, n_languages - 1].
        translated = torch.stack(
            [self._nearest(states, candidates) for candidates in translations.unbind(1)], dim=1
        )
        # A word that two languages share is a single class, and counts once.
        for k in range(1, translated.shape[1]):
            repeated = (translated[:, k, None] == translated[:, :k]).any(1)
            translated[:, k] = translated[:, k].masked_fill(repeated, -1)
        # Eq. 7: half of the weight for the sense itself, and half for its translations, if any.
        exists = translated >= 0
        number = exists.sum(1, keepdim=True)
        sense_weight = torch.where(number > 0, 0.5, 1.0)
        translation_weights = torch.where(exists, 0.5 / number.clamp(min=1), 0.0)
        return Targets(
            torch.cat([sense, translated], dim=1),
            torch.cat([sense_weight, translation_weights], dim=1).to(dtype),
        )

    def _nearest(self, states: Mapping[int, Tensor], words: Tensor) -> Tensor:
        return nearest(
            [self.tables[side].compare(side_states, words) for side, side_states in states.items()]
        )

    def keep(self, selected: Sequence[Selected | None], counts: list[int]) -> None:
        """Store the selections for each table (None if this process has no text) and each process's
        number of predictions.
        """
        self._counts, self._pending = counts, []
        for table, part in zip(self.tables, selected, strict=True):
            if part is None:  # no rows, but the width that the other processes gather
                part = Selected(
                    table.centres[:0].repeat(1, len(self.tables)),
                    table.counts[:0, None].repeat(1, 3),
                )
            self._pending.append(part)

    def after_update(self, step: int) -> None:
        """Update the tables after update `step` of the weights."""
        settings = self.settings
        for table, part in zip(self.tables, self._pending, strict=True):
            states = self.processes.gather_rows(part.states, self._counts)
            numbers = self.processes.gather_rows(part.numbers, self._counts)
            words, classes, independent = numbers.unbind(1)
            selecting = states[:, -table.dim :]
            table.follow(selecting, classes, settings.rate)  # Algorithm 1
            table.remember(selecting)  # Algorithm 2
            if settings.grouped and step <= self._warmup:
                # Only states that do not depend on the word itself can distinguish its senses.
                table.keep_recent(
                    states.unflatten(1, (-1, table.dim)), words.masked_fill(independent == 0, -1)
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
        if self.settings.grouped:
            table.project(centred=True, whiten=_WHITEN)
        else:
            table.project()

    def _open(self) -> None:
        """End the warm-up."""
        if not self.settings.grouped:
            for table in self.tables:
                table.open(start=self.settings.start)
            return
        for table in self.tables:
            self._project(table)
        live = group(self.tables, seed=self._seed)
        for table in self.tables:
            table.open(start="copied", live=live)


@torch.no_grad()
def group(tables: Sequence[SenseTable], *, seed: int) -> Tensor:
    """Cluster the recent states of each word that may have several senses, set the centres of the
    senses, and return the mask of active senses, bool `[n_classes]`.

    `split_words` clusters the states that predict a word (the first of the states that are stored
    for each use, concatenated over tables). The centre of a sense is the mean of the states that
    select it (the last ones). Words with fewer than `MIN_VECTORS` states keep one sense. If fewer
    than `FEWEST_WORDS` words have enough states, all words keep one sense.
    """
    first = tables[0]
    live = torch.zeros_like(first.live)
    live[first.index[:, 0]] = True
    n_states = first.n_recent.clamp(max=first.recent.shape[1]).tolist()
    # indices of words in `several`
    places = [place for place, n in enumerate(n_states) if n >= MIN_VECTORS]
    if len(places) < FEWEST_WORDS:
        return live
    vectors = []
    for place in places:
        predicting = [table.recent[place, : n_states[place], 0] for table in tables]
        vectors.append(torch.cat(predicting, dim=1).cpu().numpy())
    words = first.several[places].tolist()
    max_senses = (first.index[words] >= 0).sum(1).cpu().numpy()
    word_labels = split_words(vectors, max_senses=max_senses, seed=seed)
    for place, word, labels in zip(places, words, word_labels, strict=True):
        for sense in range(int(labels.max()) + 1):
            number = first.index[word, sense]
            live[number] = True
            members = torch.from_numpy(np.flatnonzero(labels == sense)).to(live.device)
            for table in tables:
                table.centres[number] = table.recent[place, members, -1].mean(0)
    return live


@dataclass(frozen=True, kw_only=True)
class Pretrained(ABC):
    """Trained language model.

    Attributes:
        encoder: encoder that shares the weights of the model.
        model: the language model.
        softmax: output layer that replaces the model's own head; None if that head is used.
        settings: settings that determine the result.
        lower: whether all text is lower-cased.
        translations: translations from dictionaries; None if there are no dictionaries.
        mixture, history: sampler of the blocks, and metrics of each update.
    """

    encoder: Encoder
    model: nn.Module
    softmax: Softmax | None
    settings: Mapping[str, Any]
    lower: bool
    translations: Translations | None
    mixture: Mixture
    history: Sequence[Mapping[str, float]]

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Vocabulary size and number of parameters of the encoder."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the encoder and its output layer."""


@dataclass(frozen=True, kw_only=True)
class LanguageModel(Documented, ABC):
    """Settings for a language model and its training. Training does not change them.

    Attributes:
        unit: unit of the text (words or subwords).
    """

    unit: ClassVar[str]
    dim: Count = option(128, "hidden size of the model.")
    length: Count = option(
        128,
        "maximum number of subwords per block (BERT truncates longer sentences) or words per "
        "sentence (ELMo splits them).",
    )
    alpha: float = option(
        0.5,
        "exponent of sampling: a language with n subwords or words is sampled with probability ∝ "
        "n^alpha.",
    )
    batch: Count = option(64, "number of blocks (BERT) or sentences (ELMo) in an update.")
    updates: Count = option(10_000, "number of updates.")
    learning_rate: float | None = option(
        None, "maximum learning rate; the default depends on the model."
    )
    warmup: float = option(
        0.0, "fraction of the updates during which the learning rate increases linearly from 0."
    )
    decay: Literal["constant", "linear", "cosine"] = option(
        "constant", "schedule of the learning rate after the warm-up: constant, linear or cosine."
    )
    clip: float | None = option(None, "maximum norm of the gradient; default: no limit.")
    seed: SeedNumber = option(0, "random seed.")
    precision: TrainingPrecision = option(
        "float32", 'precision of the forward passes: "float32" or "bfloat16".'
    )
    senses: Senses | None = option(None, "sense settings; default: the model has no senses.")
    lower: bool = option(
        False,
        "whether to lower-case all text, both in training and in the saved encoder.",
        "--lower-case/--keep-case",
    )

    def __post_init__(self):
        for name in ("dim", "batch", "updates", "length"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("alpha", self.alpha, least=0, most=1)
        check_precision(self.precision, TRAINING_PRECISIONS)
        if self.senses is not None:
            warmup = self.senses.warmup_of(self.updates)
            if warmup >= self.updates:
                raise SettingError(
                    f"the warm-up for senses must be shorter than the training of {self.updates:,} "
                    f"updates, got {warmup:,}; train longer, or shorten the warm-up"
                )
        _ = self.schedule  # checks its values

    @property
    def schedule(self) -> Schedule:
        """Schedule of one epoch. `_run` sets the number of epochs, which depends on the text."""
        rate = self.default_rate() if self.learning_rate is None else self.learning_rate
        return Schedule(
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
    ) -> Pretrained:
        """Train a new encoder. For `folder`, `checkpoint_every` and `progress`, see `Loop`.

        Args:
            texts: sentences, keyed by language.
            dictionaries: dictionaries between languages of the text, for predicting senses of
                translations.
            say: function that prints messages.
        """

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the result."""
        return {} if self.senses is None else {"senses": asdict(self.senses)}

    def _translations(
        self,
        dictionaries: Sequence[Dictionary],
        languages: Sequence[str],
        vocabulary: Mapping[str, int],
    ) -> Translations | None:
        """Return the translations in the dictionaries, or None if there are no dictionaries."""
        if not dictionaries:
            return None
        if self.senses is None:
            raise SettingError(
                "dictionaries need senses; set the maximum number of senses per word (at least 2)"
            )
        return Translations(dictionaries, languages, vocabulary)

    def _sense_training(
        self, softmax: Softmax | None, translations: Translations | None, processes: Processes
    ) -> SenseTraining | None:
        """Return the object that trains the senses of `softmax`, or None if the model has no
        senses.
        """
        if self.senses is None or softmax is None:
            return None
        return SenseTraining(
            softmax.senses, self.senses, self.updates, processes, translations, self.seed
        )

    def _run(
        self,
        objective: Prediction,
        *,
        settings: Mapping[str, Any],
        identity: Mapping[str, Any],
        folder: str | Path | None,
        **options: Any,
    ) -> list[dict[str, float]]:
        """Train the model, and return the metrics of each update.

        Args:
            settings, identity: settings and data that, with the text and the translations, identify
                the checkpoints.
            options: arguments of `Loop`.
        """
        mixture, training = objective.mixture, objective.training
        identity = {**settings, "text": mixture.fingerprint, **identity}
        if training is not None and training.translations is not None:
            identity["translations"] = training.translations.fingerprint
        loop = Loop(
            objective,
            schedule=replace(self.schedule, epochs=self.updates / mixture.steps_per_epoch),
            processes=objective.processes,
            identity=identity,
            folder=None if folder is None else Path(folder),
            title="pretrain",
            **options,
        )
        return loop.run(mixture)


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
        self.module, self.mixture = module, mixture
        self.processes, self.training = processes, training

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
            shards = np.array_split(sizes, self.processes.world)
            self.training.keep(selected, [int(shard.sum()) for shard in shards])
        return {"loss": float(self.processes.sum_numbers(loss.detach()))}

    def after_update(self, step: int) -> None:
        if self.training is not None:
            self.training.after_update(step)
