"""Sense-aware language models: what is added to an ELMo or a BERT while it is trained (Multi-sense, §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from calque.distributed import Processes
from calque.errors import SettingError, check_number
from calque.senses.grouping import group
from calque.senses.sense_table import SenseTable, nearest
from calque.senses.softmax import Targets
from calque.senses.translations import Translations

_RECENT = 60  # states kept of each word that may have several senses, where senses are grouped


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
            copied vectors, see `grouping.group`. Random centres are all alike, so that the first to be selected often takes all.
        whiten: how far axes of a large variance are scaled down, see `SenseTable.project`; 0 as published.
        centred: compare states and centres after subtracting the mean of the queue, see `SenseTable.project`.
        joint: of an ELMo, select by the states of both directions together, one sense for both, instead of each for itself.
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
    whiten: float = 0.5
    centred: bool = True
    joint: bool = True
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
        if self.warmup == 0 and self.start == "grouped":
            raise SettingError("nothing can be grouped without a warm-up: name 1 update or more, or another start")
        check_number("whiten", self.whiten, least=0, most=1)
        check_number("rate", self.rate, above=0, most=1)
        check_number("spread", self.spread, above=0)
        for name in ("axes", "queue", "project_every", "prune_every"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("below", self.below, least=0, below=1)

    def tables(self, counts: np.ndarray, dim: int, number: int = 1) -> list[SenseTable]:
        """Return tables for words with these counts in the training text, int `[n_words]`: one, or one for each direction."""
        several = np.where(counts > 0, self.senses, 1)
        if self.occurrences:
            several = np.clip(counts // self.occurrences, 1, self.senses)
        slots = np.where(several > 1, several + 1, 1) if self.start == "fresh" else several
        kept: dict[str, Any] = {"recent": _RECENT, "kinds": number} if self.start == "grouped" else {}
        how = {"axes": self.axes, "queue": self.queue, "spread": self.spread, **kept}
        return [SenseTable(slots, dim, **how) for _ in range(number)]

    def warmup_of(self, updates: int) -> int:
        """Updates with one sense, of so many."""
        if self.warmup is not None:
            return self.warmup
        return max(1, updates // 2) if self.start == "grouped" else min(20_000, max(1, updates // 10))


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
            if settings.start == "grouped" and step <= self._warmup:
                contexts = [] if selected.contexts is None else [selected.contexts.detach().float()]
                kinds = [*(self.processes.gather_rows(part, counts) for part in contexts), states]
                table.keep_recent(torch.stack(kinds, dim=1), words.masked_fill(unread == 0, -1))
            if step % settings.project_every == 0:
                table.project(centred=settings.centred, whiten=settings.whiten)
        self._pending = []
        if step == self._warmup:
            self._open()
        elif step > self._warmup and settings.below and step % settings.prune_every == 0:
            for table in self.tables:
                table.prune(settings.below)

    def _open(self) -> None:
        settings = self.settings
        if settings.start != "grouped":
            for table in self.tables:
                table.open(start=settings.start)
            return
        together = [self.tables] if settings.joint else [[table] for table in self.tables]
        for tables in together:
            for table in tables:
                table.project(centred=settings.centred, whiten=settings.whiten)
            live = group(tables, seed=self._seed)
            for table in tables:
                table.open(start="copied", live=live)

    def begin(self) -> None:
        """Before the first update: without a warm-up all senses are in use at once."""
        if self._warmup == 0:
            self._open()
