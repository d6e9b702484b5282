"""Sense-aware language models: what is added to an ELMo or a BERT while it is trained (Multi-sense, §3)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.errors import SettingError, check_number
from calque.senses.clusters import ENOUGH, FEWEST_WORDS, split_words
from calque.senses.sense_table import SenseTable, nearest
from calque.senses.softmax import Targets

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

    A dictionary counts in both directions. A word that the vocabulary has not as it is written is looked for without
    regard to capitals, so that an entry `haus` is found for `Haus`. A word is no translation of itself, but its form with
    other capitals may be: by an entry `bank bank`, `bank` and `Bank` translate each other in both languages.

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
        folded: dict[str, list[str]] = {}
        for word in vocabulary:
            folded.setdefault(word.lower(), []).append(word)
        n, size = len(self.languages), max(vocabulary.values(), default=-1) + 1
        nothing = np.full((max(1, n - 1), most), -1, dtype=np.int64)
        rows: dict[tuple[int, int], np.ndarray] = {}  # of a language's word: by other language, its translations
        for dictionary in dictionaries:
            ends = self._ends(dictionary)
            columns, pairs = (dictionary.source, dictionary.target), 0
            for side in (0, 1):
                exact, source, other = set(columns[side]), ends[side], ends[1 - side]
                for word, translation in zip(columns[side], columns[1 - side], strict=True):
                    wanted = _forms(translation, vocabulary, folded)[: None if word == translation else 1]
                    for form in _forms(word, vocabulary, folded):
                        other_forms = [vocabulary[each] for each in wanted if each != form]
                        if not other_forms or (form != word and form in exact):
                            continue
                        pairs, number, right = pairs + 1, vocabulary[form], other_forms[0]
                        several = rows.setdefault((source, number), nothing.copy())[other - (other > source)]
                        free = np.flatnonzero(several < 0)
                        if right not in several and len(free):
                            several[free[0]] = right
            if not pairs:
                raise SettingError(
                    f"{dictionary.path or 'the dictionary'}: none of its {len(dictionary):,} pairs of different words is "
                    f"in the vocabulary of the text; is it of {' and '.join(dictionary.langs)}?"
                )
        place, keys = np.zeros((n, size + 1), dtype=np.int64), sorted(rows)  # the last column: of all other numbers
        for k, (source, number) in enumerate(keys, 1):
            place[source, number] = k
        self.words = {lang: int((place[k] > 0).sum()) for k, lang in enumerate(self.languages)}
        self._place = torch.from_numpy(place)
        self._rows = torch.from_numpy(np.stack([nothing, *(rows[key] for key in keys)]))

    def _ends(self, dictionary: Dictionary) -> list[int]:
        """The numbers of its two languages."""
        place, langs = dictionary.path or "a dictionary", dictionary.langs
        if not set(langs) <= set(self.languages):
            raise SettingError(f"{place} is of {'-'.join(langs)}, but the text is in {', '.join(self.languages)}")
        if langs[0] == langs[1]:
            raise SettingError(f"{place} is of {'-'.join(langs)}: expected two different languages")
        return [self.languages.index(lang) for lang in langs]

    @property
    def fingerprint(self) -> str:
        """Hash of what translates what."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self._place, self._rows):
            digest.update(part.cpu().numpy().tobytes())
        return digest.hexdigest()

    def to(self, device: torch.device) -> Translations:
        """The same on a device."""
        self._place, self._rows = self._place.to(device), self._rows.to(device)
        return self

    def of(self, languages: Tensor, words: Tensor) -> Tensor:
        """Translations of words in text.

        Args:
            languages: int64 `[n]`, of the text that each word stands in.
            words: int64 `[n]`; a number that the vocabulary has not has no translations.

        Returns:
            int64 `[n, n_languages - 1, most]`, into the other languages in their order; −1 for none.
        """
        return self._rows[self._place[languages, words.clamp(max=self._place.shape[1] - 1)]]


def _forms(word: str, vocabulary: Mapping[str, int], folded: Mapping[str, list[str]]) -> list[str]:
    """Return the word as it is written, then its forms with other capitals, the most frequent first."""
    return ([word] if word in vocabulary else []) + [form for form in folded.get(word.lower(), ()) if form != word]


class Selected(NamedTuple):
    """Which senses this process selected in an update, in the order of the text.

    Attributes:
        states: `[n, dim]`, by which they were selected.
        words: int64 `[n]`.
        classes: int64 `[n]`.
        contexts: `[n, dim]`, states that predict the words; None where they are the same.
        unread: bool `[n]`, which words their context has not read; None for all.
    """

    states: Tensor
    words: Tensor
    classes: Tensor
    contexts: Tensor | None = None
    unread: Tensor | None = None


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

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint depends on besides the settings and the text."""
        return {} if self.translations is None else {"translations": self.translations.fingerprint}

    def targets(
        self,
        states: Mapping[int, Tensor],
        words: Tensor,
        languages: Tensor,
        whole: Tensor | None = None,
    ) -> Targets:
        """The sense of each word that its own state selects, and those of its translations (Eq. 7).

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
            table.remember(states, words)
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
        live = None
        if self.settings.grouped:
            for table in self.tables:
                self._project(table)
            live = group(self.tables, seed=self._seed)
        for table in self.tables:
            table.open(start="copied" if self.settings.grouped else self.settings.start, live=live)

    def begin(self) -> None:
        """Before the first update: without a warm-up all senses are in use at once."""
        if self._warmup == 0:
            self._open()


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
