"""Test items of the analyses: links and word properties, retrieval results of each encoder, and findings."""

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
DEPTH = 10  # number of nearest words listed for each query: the k of the k-occurrence
NOTHING = (math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Finding:
    """One score of an analysis, or its results word by word.

    Attributes:
        analysis: a key of `calque.analyses.table.ANALYSES`.
        encoder: name of the encoder; None if several are compared.
        score: the score; NaN for a finding that consists of `items`.
        group: group of test items, such as "NOUN" or "2–3"; None for all.
        x: position on the axis: middle of a bin, index of a layer, or number of sentence pairs.
        items: the entries of `examples` and `points`, one object each.
    """

    analysis: str
    encoder: str | None
    score: Score
    group: str | None = None
    x: float | None = None
    items: Sequence[dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: those of `Score.to_dict` and the other attributes."""
        about = {"analysis": self.analysis, "encoder": self.encoder, "group": self.group, "x": self.x}
        return {**self.score.to_dict(), **about, **({} if self.items is None else {"items": list(self.items)})}

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


class Questions:
    """Test items that all encoders share.

    Args:
        task: word retrieval on the test text, with an optional training text.
        tags: parts of speech of one or both sides: the index of each word's tag (−1: unknown), and the tag names.

    Attributes:
        pairs: the links, one-to-one.
        unseen: bool `[n_pairs]`, mask of links absent from the training text; None without a training text.
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
        """Row of each sentence's first word, int64 `[n_sentences + 1]` for each side."""
        return {side: offsets_of(self.sentences(side).lengths()) for side in SIDES}

    @cached_property
    def rows(self) -> Mapping[str, np.ndarray]:
        """Row of each link's word, int64 `[n_pairs]` for each side."""
        words = {"source": self.pairs.source, "target": self.pairs.target}
        return {side: self.offsets[side][self.pairs.sentence] + words[side] for side in SIDES}

    @cached_property
    def forms(self) -> Mapping[str, tuple[np.ndarray, list[str]]]:
        """Index of every word's lower-cased word type, int64 `[n_words]`, and the word types."""
        return {side: forms_of(self.sentences(side)) for side in SIDES}

    @cached_property
    def counts(self) -> Mapping[str, dict[str, int]]:
        """Frequency of each lower-cased word type in test and training text together."""
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
        """Mask of candidate words, bool `[n_words]` for each side: all words, or the first token of each word type."""
        if self.task.contextual:
            return {side: np.ones(self.offsets[side][-1], dtype=bool) for side in SIDES}
        return {side: first_occurrences(self.sentences(side)) for side in SIDES}

    @property
    def selections(self) -> dict[str, np.ndarray]:
        """Mask of the links behind each score, bool `[n_pairs]`, by the name of the score in `WordRetrieval`."""
        selections = {"all": np.ones(len(self.pairs), dtype=bool)}
        return selections if self.unseen is None else {**selections, "unseen": self.unseen}

    def ask(
        self, name: str, source: Embeddings, target: Embeddings, about: Mapping[str, Any] | None = None,
        *, depth: int = DEPTH,
    ) -> View:  # fmt: skip
        """Return one encoder's retrieval results, computed in one pass over the similarities.

        Args:
            depth: number of nearest words listed; `hubness` needs the default, accuracy needs 1.
        """
        _, _, answers = self.task.ask(source, target, depth=depth)
        return View(name, source, target, answers, dict(about or {}))

    @cached_property
    def sentence_of(self) -> Mapping[str, np.ndarray]:
        """Index of each word's sentence, int64 `[n_words]` for each side."""
        return {side: np.repeat(np.arange(len(self.corpus)), np.diff(self.offsets[side])) for side in SIDES}

    def summed(self, sentence: np.ndarray, *columns: np.ndarray) -> np.ndarray:
        """Sum columns `[n]` within each sentence; return float64 `[n_sentences, n_columns]`.

        Args:
            sentence: index of each row's sentence, int64 `[n]`.
        """
        n = len(self.corpus)
        return np.stack([np.bincount(sentence, weights=weights, minlength=n) for weights in columns], axis=1)

    def finding(
        self, analysis: str, view: View | None, metric: str, figures: float | tuple[float, float, float], n: int,
        about: Mapping[str, Any] | None = None, *, group: str | None = None, x: float | None = None,
        items: Sequence[dict[str, Any]] | None = None, task: str = "retrieval", percent: bool = True,
    ) -> Finding:  # fmt: skip
        """Build a finding about this test text.

        Args:
            view: the encoder's view; None for several encoders.
            figures: value and ends of the interval, or a single value.
            about: settings recorded in addition to those of the view.
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
    """One encoder's vectors and retrieval results on the test items.

    Attributes:
        name: name of the encoder.
        source, target: word vectors of the test text.
        answers: retrieval results of each link.
        about: settings recorded with the scores.
    """

    name: str
    source: Embeddings
    target: Embeddings
    answers: Retrieved
    about: dict[str, Any] = field(default_factory=dict)

    def only(self, asked: np.ndarray) -> View:
        """Return the results of a subset of links, selected by the mask `asked`, bool `[n_pairs]`."""
        answers, some = self.answers, asked[self.answers.queries]
        arrays = {name: value[some] for name, value in vars(answers).items() if isinstance(value, np.ndarray)}
        return replace(self, answers=replace(answers, **arrays))

    def side(self, side: str) -> Embeddings:
        return self.source if side == "source" else self.target

    @cached_property
    def units(self) -> Mapping[str, np.ndarray]:
        """L2-normalised word vectors, float32 `[n_words, dim]` for each side."""
        return {side: unit_rows(self.side(side).data) for side in SIDES}

    def covered(self, side: str) -> np.ndarray:
        """Mask of words that have a vector, bool `[n_words]`."""
        vectors = self.side(side)
        return np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered


def count_forms(sentences: Sentences) -> dict[str, int]:
    """Count each lower-cased word type in a text."""
    numbers, forms = forms_of(sentences)
    return dict(zip(forms, np.bincount(numbers, minlength=len(forms)).tolist(), strict=True))


def frequency_ranks(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the frequency rank of each word type, 1 for the most frequent. Ties share their mean rank, because the many
    word types that occur once have no natural order."""
    return dict(zip(counts, rankdata([-count for count in counts.values()]).tolist(), strict=True))


def tags_for(sentences: Sentences, tagged: TaggedText) -> np.ndarray:
    """Copy the tags of a tagged text to the same sentences of another text.

    Sentences are matched by their characters without white space. If the two texts are tokenised differently, a word takes
    the tag of the tagged word that contains its first character.

    Args:
        tagged: tagged text that contains the sentences.

    Returns:
        index in `tagged.tags.names` for every word of `sentences`, −1 if the sentence is missing; int32 `[n_words]`.
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
