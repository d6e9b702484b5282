"""What is the same for every language model that is trained from text alone; and sense-aware training (Multi-sense, §3)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_precision
from calque.errors import SettingError, check_number
from calque.linking import Say
from calque.senses.clusters import ENOUGH, FEWEST_WORDS, split_words
from calque.senses.sense_table import SenseTable, Softmax, Targets, nearest
from calque.senses.text import Mixture
from calque.text import Sentences
from calque.training.loop import Loop, Schedule
from calque.training.objective import Objective

_RECENT = 60  # states kept of each word that may have several senses, where senses are grouped
_WHITEN = 0.5  # how far axes of a large variance are scaled down, where senses are grouped


@dataclass(frozen=True, kw_only=True)
class Senses:
    """How senses are found while a language model is trained. In brackets: the paper's names (Tables 6 to 8).

    Args:
        senses: S, senses of a word at most (n_context).
        occurrences: that a word needs in the training text for each sense; 0 gives all words S, as published.
        warmup: updates with one sense (contextual_warmup; 20,000 of 600,000 or 1,000,000 as published); None: half of all
            where senses are grouped from what the model knows by then, else a tenth, 20,000 at most.
        start: how the other senses begin then: "fresh" (SaELMo) and "kept" (SaBERT), see `SenseTable.open`; with
            "grouped", as many as the last states of a word are found to have, with the means of their states as centres and
            copied vectors, see `group`. Random centres are all alike, so that the first to be selected often takes all.
            "grouped" also departs from the paper in the projection (`SenseTable.project`: centred, and axes divided by the
            root of their deviation), and both directions of an ELMo select one sense together instead of each for itself.
        rate: α, of the centres (sense_learning_rate, context_rep_lr).
        spread: σ of the centres at the beginning, which the paper does not give. A centre that is small beside α times a
            state turns to the first state that selects it at once.
        axes: d′, of the projection (cluster_proj_dim, pca_dim).
        queue: Q, states that the projection is made from (pca_sample).
        project_every: M, updates from one projection to the next, which the paper does not give.
        below: β, a sense selected less often is pruned (remove_less_frequent_contexts); 0 prunes none.
        prune_every: E, updates from one pruning to the next, which the paper does not give.

    Raises:
        SettingError: a number that cannot be; one sense only, which is the plain model.
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
            raise SettingError("one sense is what a plain language model has: leave the senses out, or name 2 or more")
        check_number("senses", self.senses, least=2, most=50, whole=True)
        check_number("occurrences", self.occurrences, least=0, whole=True)
        if self.warmup is not None:
            check_number("warmup", self.warmup, least=0, whole=True)
        if self.start not in ("grouped", "kept", "fresh"):
            raise SettingError(f"start is grouped, kept or fresh, got {self.start!r}")
        if self.warmup == 0 and self.grouped:
            raise SettingError("nothing can be grouped without a warm-up: name 1 update or more, or another start")
        check_number("rate", self.rate, above=0, most=1)
        check_number("spread", self.spread, above=0)
        for name in ("axes", "queue", "project_every", "prune_every"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("below", self.below, least=0, below=1)

    @property
    def grouped(self) -> bool:
        return self.start == "grouped"

    def tables(self, counts: np.ndarray, dim: int, number: int = 1) -> list[SenseTable]:
        """Return tables for words with these counts in the training text, int `[n_words]`: one, or one for each direction."""
        several = np.where(counts > 0, self.senses, 1)
        if self.occurrences:
            several = np.clip(counts // self.occurrences, 1, self.senses)
        slots = np.where(several > 1, several + 1, 1) if self.start == "fresh" else several
        kept: dict[str, Any] = {"recent": _RECENT, "kinds": number} if self.grouped else {}
        how = {"axes": self.axes, "queue": self.queue, "spread": self.spread, **kept}
        return [SenseTable(slots, dim, **how) for _ in range(number)]

    def warmup_of(self, updates: int) -> int:
        """Updates with one sense, of so many."""
        if self.warmup is not None:
            return self.warmup
        return max(1, updates // 2) if self.grouped else min(20_000, max(1, updates // 10))


class Translations:
    """The translations of each word of a joint vocabulary, by the language of the text that it stands in.

    A dictionary counts in both directions, and without regard to capitals: an entry speaks of all forms of its word, and its
    translation is the other word as it is written, or else its most frequent form. A word is no translation of itself, but
    its form with other capitals may be: by an entry `bank bank`, `bank` and `Bank` translate each other in both languages.

    Args:
        dictionaries: between languages of the text.
        languages: of the text, in the order of their numbers.
        vocabulary: number of each word that can be predicted, the most frequent first.
        most: translations of a word into each other language; those that stand first in the dictionary are taken.

    Attributes:
        words: how many words have a translation, by language.

    Raises:
        SettingError: a dictionary of another language, or without a pair of words of the vocabulary.
    """

    def __init__(
        self,
        dictionaries: Sequence[Dictionary],
        languages: Sequence[str],
        vocabulary: Mapping[str, int],
        *,
        most: int = 4,
    ):
        self.languages = list(languages)
        forms: dict[str, list[int]] = {}
        for word, number in vocabulary.items():
            forms.setdefault(word.lower(), []).append(number)
        n, size = len(self.languages), max(vocabulary.values(), default=-1) + 1
        nothing = np.full((max(1, n - 1), most), -1, dtype=np.int64)
        rows: dict[tuple[int, int], np.ndarray] = {}  # of a language's word: by other language, its translations
        for dictionary in dictionaries:
            place, langs = dictionary.path or "the dictionary", dictionary.langs
            if not set(langs) <= set(self.languages):
                raise SettingError(f"{place} is of {'-'.join(langs)}, but the text is in {', '.join(self.languages)}")
            if langs[0] == langs[1]:
                raise SettingError(f"{place} is of {'-'.join(langs)}: expected two different languages")
            first, second = (self.languages.index(lang) for lang in langs)
            columns, pairs = (dictionary.source, dictionary.target), 0
            for source, other, words, translated in ((first, second, *columns), (second, first, *columns[::-1])):
                for word, translation in zip(words, translated, strict=True):
                    wanted = (vocabulary.get(translation), *forms.get(translation.lower(), ()))
                    for number in forms.get(word.lower(), ()):
                        right = next((k for k in wanted if k not in (None, number)), None)
                        if right is None:
                            continue
                        pairs += 1
                        several = rows.setdefault((source, number), nothing.copy())[other - (other > source)]
                        free = np.flatnonzero(several < 0)
                        if right not in several and len(free):
                            several[free[0]] = right
            if not pairs:
                raise SettingError(
                    f"{place}: none of its {len(dictionary):,} pairs of different words is in the vocabulary of the text; "
                    f"is it of {' and '.join(langs)}?"
                )
        index, keys = np.zeros((n, size + 1), dtype=np.int64), sorted(rows)  # the last column: of all other numbers
        for k, (source, number) in enumerate(keys, 1):
            index[source, number] = k
        self.words = {lang: int((index[k] > 0).sum()) for k, lang in enumerate(self.languages)}
        self._index = torch.from_numpy(index)
        self._rows = torch.from_numpy(np.stack([nothing, *(rows[key] for key in keys)]))

    @property
    def fingerprint(self) -> str:
        """Hash of what translates what."""
        parts = [part.cpu().numpy().tobytes() for part in (self._index, self._rows)]
        return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()

    def to(self, device: torch.device) -> Translations:
        """Move the tables to a device."""
        self._index, self._rows = self._index.to(device), self._rows.to(device)
        return self

    def of(self, languages: Tensor, words: Tensor) -> Tensor:
        """Return the translations of words in text.

        Args:
            languages: int64 `[n]`, of the text that each word stands in.
            words: int64 `[n]`; a number that the vocabulary has not has no translations.

        Returns:
            int64 `[n, n_languages - 1, most]`, into the other languages in their order; −1 for none.
        """
        return self._rows[self._index[languages, words.clamp(max=self._index.shape[1] - 1)]]


class Selected(NamedTuple):
    """Which senses this process selected in an update, in the order of the text."""

    states: Tensor  # `[n, dim]`, by which they were selected
    words: Tensor  # int64 `[n]`
    classes: Tensor  # int64 `[n]`
    contexts: Tensor | None = None  # `[n, dim]`, states that predict the words; None where they are the same
    unread: Tensor | None = None  # bool `[n]`, which words their context has not read; None for all


class SenseTraining:
    """Selects senses during an update, and lets centres, projection and senses in use follow after it.

    All processes select by the centres as they were before the update. What they selected is brought together in the order of
    the text, so that the tables are the same everywhere.

    Args:
        tables: one, or one for each direction.
        settings: see `Senses`.
        updates: of the whole training.
        processes: of this run.
        translations: of the words, by language; None predicts none.
        seed: of the grouping.
    """

    def __init__(
        self, tables: Sequence[SenseTable], settings: Senses, updates: int, processes: Processes,
        translations: Translations | None = None, seed: int = 0,
    ):  # fmt: skip
        self.tables, self.settings, self.processes = list(tables), settings, processes
        self.translations = None if translations is None else translations.to(processes.device)
        self._warmup, self._seed = settings.warmup_of(updates), seed
        self._pending: list[tuple[Selected, list[int]]] = []
        if self._warmup == 0:  # all senses are in use at once
            self._open()

    def targets(
        self, states: Mapping[int, Tensor], words: Tensor, languages: Tensor, whole: Tensor | None = None
    ) -> Targets:
        """Return the sense of each word that its own state selects, and those of its translations (Eq. 7).

        Of each other language the nearest sense of all of the word's translations is taken; with several languages, Eq. 6
        is their mean.

        Args:
            states: `[n, dim]`, of the words themselves, by the number of the table that they are compared in; no gradient
                comes from them.
            words: int64 `[n]`.
            languages: int64 `[n]`, of the text that each stands in.
            whole: bool `[n]`, which of them have translations at all; None for all.
        """
        own = self._nearest(states, words[:, None])
        dtype = self.tables[0].centres.dtype
        if self.translations is None:
            return Targets(own[:, None], torch.ones_like(own[:, None], dtype=dtype))
        translations = self.translations.of(languages, words)
        if whole is not None:
            translations = translations.masked_fill(~whole[:, None, None], -1)
        found = torch.stack([self._nearest(states, several) for several in translations.unbind(1)], dim=1)
        for k in range(1, found.shape[1]):  # a form that two languages share is one class
            again = (found[:, k, None] == found[:, :k]).any(1)
            found[:, k] = found[:, k].masked_fill(again, -1)
        exists = found >= 0
        number = exists.sum(1, keepdim=True)
        weights = torch.where(exists, 0.5 / number.clamp(min=1), 0.0)
        first = torch.where(number > 0, 0.5, 1.0)
        return Targets(torch.cat([own[:, None], found], dim=1), torch.cat([first, weights], dim=1).to(dtype))

    def _nearest(self, states: Mapping[int, Tensor], words: Tensor) -> Tensor:
        return nearest([self.tables[side].compared(of_side, words) for side, of_side in states.items()])

    def keep(self, selected: Sequence[Selected | None], counts: list[int]) -> None:
        """Keep what was selected in an update until its end.

        Args:
            selected: for each table what this process selected; None where it has no text.
            counts: number of predictions of every process, for each table.
        """
        nothing = [
            Selected(t.centres[:0], t.counts[:0], t.counts[:0], t.centres[:0] if len(self.tables) > 1 else None)
            for t in self.tables
        ]
        self._pending = [(part or none, counts) for part, none in zip(selected, nothing, strict=True)]

    def after_update(self, step: int) -> None:
        """Let the tables follow, once the weights are those after `step` updates."""
        settings = self.settings
        for table, (selected, counts) in zip(self.tables, self._pending, strict=True):
            states = self.processes.gather_rows(selected.states.detach().float(), counts)
            unread = torch.ones_like(selected.words) if selected.unread is None else selected.unread
            numbers = torch.stack([selected.words, selected.classes, unread], dim=1)
            words, classes, unread = self.processes.gather_rows(numbers, counts).unbind(1)
            table.follow(states, classes, settings.rate)
            table.remember(states)
            if settings.grouped and step <= self._warmup:
                contexts = [] if selected.contexts is None else [selected.contexts.detach().float()]
                kinds = [*(self.processes.gather_rows(part, counts) for part in contexts), states]
                table.keep_recent(torch.stack(kinds, dim=1), words.masked_fill(unread == 0, -1))
            if step % settings.project_every == 0:
                self._project(table)
        self._pending = []
        if step == self._warmup:
            self._open()
        elif step > self._warmup and settings.below and step % settings.prune_every == 0:
            for table in self.tables:
                table.prune(settings.below)

    def _project(self, table: SenseTable) -> None:
        table.project(centred=self.settings.grouped, whiten=_WHITEN if self.settings.grouped else 0.0)

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
    """Divide the last states of each word that may have several senses, and put the centres of its senses there.

    Words are divided by the states that predict them, those of several tables side by side, see `split_words`. A centre is
    the mean of the states by which senses are selected. A word with fewer than `ENOUGH` states keeps one sense, and so do
    all where there are fewer than `FEWEST_WORDS` others.

    Args:
        tables: of one model; the states that they keep are of the same occurrences. The first kind predicts the word, the
            last selects its sense.
        seed: of the division.

    Returns:
        bool `[n_classes]`, the senses that have states.
    """
    first = tables[0]
    live = torch.zeros_like(first.live)
    live[first.index[:, 0]] = True
    kept = first.n_recent.clamp(max=first.recent.shape[1]).tolist()
    asked = [place for place, n in enumerate(kept) if n >= ENOUGH]
    if len(asked) < FEWEST_WORDS:
        return live
    words = first.several[asked].tolist()
    vectors = [torch.cat([t.recent[place, : kept[place], 0] for t in tables], dim=1).cpu().numpy() for place in asked]
    most = (first.index[words] >= 0).sum(1).cpu().numpy()
    for place, word, labels in zip(asked, words, split_words(vectors, most=most, seed=seed), strict=True):
        for sense in range(int(labels.max()) + 1):
            number = first.index[word, sense]
            live[number] = True
            members = torch.from_numpy(np.flatnonzero(labels == sense)).to(live.device)
            for table in tables:
                table.centres[number] = table.recent[place, members, -1].mean(0)
    return live


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
        model: the trained model.
        softmax: what predicts, where that is not the model's own head.
        translations: of the words, once a training with dictionaries has begun; None without.
        mixture, history: of the training: what was seen, and how it went.
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
        if self.senses is not None and (warmup := self.senses.warmup_of(self.updates)) >= self.updates:
            raise SettingError(
                f"the warm-up of {warmup:,} updates with one sense leaves none of {self.updates:,} to learn senses in: "
                "train longer, or shorten the warm-up"
            )
        self.softmax: Softmax | None = None
        self.translations: Translations | None = None
        rate = self.default_rate() if self.learning_rate is None else self.learning_rate
        # The number of epochs is known when there is text.
        self._schedule = Schedule(
            1.0, rate, self.warmup, self.decay, epsilon=1e-6, clip=self.clip, seed=self.seed
        )  # fmt: skip

    # -- what differs ------------------------------------------------------------------------------------------------------
    @abstractmethod
    def default_rate(self) -> float:
        """Return the learning rate where the user names none."""

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
    def sizes(self) -> tuple[int, int]:
        """Number of words or subwords that are predicted, and of the encoder's parameters."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the encoder, and what predicts beside it."""

    @abstractmethod
    def card(self, record: Mapping[str, Any]) -> tuple[list[str], str, list[str]]:
        """Return of the model card: lines of the front matter, what the model is, and what else is in the folder."""

    def settings(self) -> dict[str, Any]:
        """Return what the result depends on."""
        return {} if self.senses is None else {"senses": asdict(self.senses)}

    # -- what is shared ----------------------------------------------------------------------------------------------------
    def _sense_training(
        self, languages: Sequence[str], words: Callable[[], Mapping[str, int]], dictionaries: Sequence[Dictionary],
        processes: Processes,
    ) -> SenseTraining | None:  # fmt: skip
        """Return what selects the senses of the softmax; None without senses.

        Args:
            words: gives the number of each word that can be translated, the most frequent first.
        """
        if self.senses is None or self.softmax is None:
            if dictionaries:
                raise SettingError("a dictionary translates senses: say how many a word has at most, 2 or more")
            return None
        if dictionaries:
            self.translations = Translations(dictionaries, languages, words())
        return SenseTraining(self.softmax.senses, self.senses, self.updates, processes, self.translations, self.seed)

    def _run(
        self, objective: Prediction, *, identity: Mapping[str, Any], folder: str | Path | None, **options: Any
    ) -> None:
        """Train.

        Args:
            identity: what a checkpoint depends on besides the settings, the text and the translations.
            folder, options: see `Loop`.
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
            counts = [int(sizes[part].sum()) for part in np.array_split(np.arange(len(sizes)), self.processes.world)]
            self.training.keep(selected, counts)
        return {"loss": float(self.processes.sum_numbers(loss.detach()))}

    def after_update(self, step: int) -> None:
        if self.training is not None:
            self.training.after_update(step)
