"""The test text of the analyses: its links and what is known of its words, and the answers that encoders give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.analyses.resampling import Resamples
from calque.analyses.words import count_forms
from calque.offsets import offsets_of
from calque.tasks.base import Score
from calque.tasks.nearest import Retrieved
from calque.tasks.overlap import first_occurrences, forms_of
from calque.tasks.retrieval import WordRetrieval
from calque.text import Sentences
from calque.vectors import Embeddings

SIDES = ("source", "target")
DEPTH = 10  # nearest words that are listed for each question: the k of the k-occurrence


class Questions:
    """What all encoders are asked, once for all of them.

    Args:
        task: retrieval on the test text, with the training text if there is one; without special subwords.
        tags: parts of speech of one side or both: the number of each word's tag (−1: not known), and the tags.

    Attributes:
        pairs: the links, one-to-one.
        unseen: bool `[n_pairs]`, links that the training text does not have; None without one.
    """

    def __init__(self, task: WordRetrieval, tags: Mapping[str, tuple[np.ndarray, Sequence[str]]] | None = None):
        self.task, self.corpus, self.tags = task, task.corpus, tags or {}
        self.langs = task.corpus.langs
        self.pairs, _ = task.links
        self.unseen = task.unseen
        self.resamples = Resamples(len(self.corpus), samples=task.bootstrap, seed=task.seed)

    def sentences(self, side: str) -> Sentences:
        return self.corpus.source if side == "source" else self.corpus.target

    @cached_property
    def offsets(self) -> Mapping[str, np.ndarray]:
        """int64 `[n_sentences + 1]` of each side: the row of each sentence's first word."""
        return {side: offsets_of(self.sentences(side).lengths()) for side in SIDES}

    @cached_property
    def rows(self) -> Mapping[str, np.ndarray]:
        """int64 `[n_pairs]` of each side: the row of each link's word."""
        words = {"source": self.pairs.source, "target": self.pairs.target}
        return {side: self.offsets[side][self.pairs.sentence] + words[side] for side in SIDES}

    @cached_property
    def forms(self) -> Mapping[str, tuple[np.ndarray, list[str]]]:
        """Lower-cased form of every word: its number, int64 `[n_words]`, and the forms."""
        return {side: forms_of(self.sentences(side)) for side in SIDES}

    @cached_property
    def counts(self) -> Mapping[str, dict[str, int]]:
        """How often each lower-cased form comes, in the test text and the training text together."""
        counts = {}
        for side in SIDES:
            counts[side] = count_forms(self.sentences(side))
            if self.task.train is not None:
                train = self.task.train.source if side == "source" else self.task.train.target
                for form, count in count_forms(train).items():
                    counts[side][form] = counts[side].get(form, 0) + count
        return counts

    @cached_property
    def first(self) -> Mapping[str, np.ndarray]:
        """bool `[n_words]` of each side: words that can be found. All, or the first of each form (not contextual)."""
        if self.task.contextual:
            return {side: np.ones(self.offsets[side][-1], dtype=bool) for side in SIDES}
        return {side: first_occurrences(self.sentences(side)) for side in SIDES}

    @property
    def selections(self) -> dict[str, np.ndarray]:
        """Which links a figure is over: bool `[n_pairs]` by the name that `WordRetrieval` gives it."""
        selections = {"all": np.ones(len(self.pairs), dtype=bool)}
        return selections if self.unseen is None else {**selections, "unseen": self.unseen}

    def ask(
        self, name: str, source: Embeddings, target: Embeddings, about: Mapping[str, Any] | None = None,
        *, depth: int = DEPTH,
    ) -> View:  # fmt: skip
        """One encoder's answers: one sweep over the similarities.

        Args:
            name: what the encoder is called.
            source, target: its vectors of both sides.
            about: what to record of it.
            depth: how many of the nearest words are listed; `hubness` needs the default, accuracy 1.
        """
        _, _, answers = self.task.ask(source, target, depth=depth)
        return View(name, source, target, answers, dict(about or {}))

    def score(
        self, metric: str, figures: tuple[float, float, float], n: int, settings: Mapping[str, Any],
        *, task: str = "retrieval", percent: bool = True,
    ) -> Score:  # fmt: skip
        """A score of this text."""
        value, low, high = (float(figure) for figure in figures)
        return Score(
            task, self.task.data, self.langs, metric, value, low, high, int(n), self.task.seed, dict(settings), percent
        )


@dataclass(frozen=True)
class View:
    """One encoder before the questions.

    Attributes:
        name: what it is called.
        source, target: its vectors of the test text.
        answers: what it found for each link.
        about: what to record of it.
    """

    name: str
    source: Embeddings
    target: Embeddings
    answers: Retrieved
    about: dict[str, Any] = field(default_factory=dict)

    def side(self, side: str) -> Embeddings:
        return self.source if side == "source" else self.target

    @cached_property
    def units(self) -> Mapping[str, np.ndarray]:
        """float32 `[n_words, dim]` of each side, rows of length 1."""
        return {side: unit_rows(self.side(side).data) for side in SIDES}

    def covered(self, side: str) -> np.ndarray:
        """bool `[n_words]`: whether the word has a vector."""
        vectors = self.side(side)
        return np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered


NOTHING = (math.nan, math.nan, math.nan)


def without_interval(value: float) -> tuple[float, float, float]:
    """A figure that no interval is known for."""
    return value, math.nan, math.nan
