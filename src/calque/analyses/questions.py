"""The test text of the analyses: its links and what is known of its words, the answers that encoders give, and findings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import rankdata

from calque.algebra.normalize import unit_rows
from calque.annotated import TaggedText
from calque.offsets import offsets_of
from calque.tasks.base import Score
from calque.tasks.overlap import first_occurrences, forms_of
from calque.tasks.retrieval import Retrieved, WordRetrieval
from calque.text import Sentences
from calque.vectors import Embeddings

SIDES = ("source", "target")
DEPTH = 10  # nearest words that are listed for each question: the k of the k-occurrence
NOTHING = (math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Finding:
    """One figure of an analysis, or what it found word by word.

    Attributes:
        analysis: one of `calque.analyses.table.ANALYSES`.
        encoder: what the encoder is called; None where several are compared.
        score: the figure; NaN, with `items`, where there is none.
        group: what the figure is over, such as "NOUN" or "2–3"; None for everything.
        x: where it stands on an axis: middle of a bin, layer, number of sentence pairs.
        items: of `examples` and `points`: one object each.
    """

    analysis: str
    encoder: str | None
    score: Score
    group: str | None = None
    x: float | None = None
    items: Sequence[dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON: what `Score.to_dict` gives, and the rest beside it."""
        about = {"analysis": self.analysis, "encoder": self.encoder, "group": self.group, "x": self.x}
        return {**self.score.to_dict(), **about, **({} if self.items is None else {"items": list(self.items)})}

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


class Questions:
    """What all encoders are asked, once for all of them.

    Args:
        task: retrieval on the test text, with the training text if there is one.
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
            depth: how many of the nearest words are listed; `hubness` needs the default, accuracy 1.
        """
        _, _, answers = self.task.ask(source, target, depth=depth)
        return View(name, source, target, answers, dict(about or {}))

    @cached_property
    def sentence_of(self) -> Mapping[str, np.ndarray]:
        """int64 `[n_words]` of each side: the sentence that each word is in."""
        return {side: np.repeat(np.arange(len(self.corpus)), np.diff(self.offsets[side])) for side in SIDES}

    def summed(self, sentence: np.ndarray, *columns: np.ndarray) -> np.ndarray:
        """Return columns `[n]` summed over those of each sentence, float64 `[n_sentences, n_columns]`.

        Args:
            sentence: int64 `[n]`.
        """
        n = len(self.corpus)
        return np.stack([np.bincount(sentence, weights=weights, minlength=n) for weights in columns], axis=1)

    def finding(
        self, analysis: str, view: View | None, metric: str, figures: float | tuple[float, float, float], n: int,
        about: Mapping[str, Any] | None = None, *, group: str | None = None, x: float | None = None,
        items: Sequence[dict[str, Any]] | None = None, task: str = "retrieval", percent: bool = True,
    ) -> Finding:  # fmt: skip
        """Return a finding of this text.

        Args:
            view: the encoder that it is of; None for several.
            figures: value and ends of its interval, or the value of a figure without one.
            about: settings beside those of the view.
        """
        value, low, high = figures if isinstance(figures, tuple) else (figures, math.nan, math.nan)
        name, settings = (None, {}) if view is None else (view.name, view.about)
        score = Score(
            task, self.task.data, self.langs, metric, float(value), float(low), float(high), int(n), self.task.seed,
            {**settings, **dict(about or {})}, percent,
        )  # fmt: skip
        return Finding(analysis, name, score, group, x, items)


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

    def only(self, asked: np.ndarray) -> View:
        """Return the answers to some links alone, where `asked`, bool `[n_pairs]`, is true."""
        answers, some = self.answers, asked[self.answers.queries]
        arrays = {name: value[some] for name, value in vars(answers).items() if isinstance(value, np.ndarray)}
        return replace(self, answers=replace(answers, **arrays))

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


def count_forms(sentences: Sentences) -> dict[str, int]:
    """How often each lower-cased form comes in a text."""
    numbers, forms = forms_of(sentences)
    return dict(zip(forms, np.bincount(numbers, minlength=len(forms)).tolist(), strict=True))


def frequency_ranks(counts: Mapping[str, int]) -> dict[str, float]:
    """Rank of each form by its frequency: 1 for the most frequent. Forms that are equally frequent share the mean of
    their ranks, without which the order of the many words that come once would be an accident."""
    return dict(zip(counts, rankdata([-count for count in counts.values()]).tolist(), strict=True))


def tags_for(sentences: Sentences, tagged: TaggedText) -> np.ndarray:
    """Tags of a tagged text for the same sentences in another place.

    A sentence is found by its characters, white space aside. Where it is divided into other words there, a word has the
    tag of the word in which it begins.

    Args:
        tagged: a text that has them among its own.

    Returns:
        for every word of `sentences` the number of its tag in `tagged.tags.names`, −1 where the sentence is not there;
        int32 `[n_words]`.
    """
    starts = offsets_of(tagged.sentences.lengths())
    places: dict[str, tuple[tuple[str, ...], int]] = {}
    for number, sentence in enumerate(tagged.sentences):
        places.setdefault("".join(sentence.words), (sentence.words, int(starts[number])))
    tags: list[np.ndarray] = []
    for sentence in sentences:
        words, start = places.get("".join(sentence.words), ((), 0))
        if not words:
            tags.append(np.full(len(sentence), -1, dtype=np.int32))
        elif words == sentence.words:
            tags.append(tagged.tags.codes[start : start + len(words)])
        else:
            ends = np.cumsum([len(word) for word in words])
            begins = np.cumsum([0, *(len(word) for word in sentence.words[:-1])])
            tags.append(tagged.tags.codes[start + np.searchsorted(ends, begins, side="right")])
    return np.concatenate(tags).astype(np.int32) if tags else np.zeros(0, dtype=np.int32)
