"""Data for the analyses: test items and properties of their words, retrieval results of encoders,
and findings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import rankdata

from calque.algebra.normalize import unit_rows
from calque.annotated import TaggedText
from calque.offsets import offsets_of
from calque.storage import json_text
from calque.tasks.base import Score
from calque.tasks.overlap import covered_words, word_types
from calque.tasks.retrieval import Retrieved, WordRetrieval
from calque.text import Sentences
from calque.vectors import Embeddings

SIDES = ("source", "target")
DEPTH = (
    10  # number of nearest words retrieved for each query; also the k of the hubness measure N_k
)
NOTHING = (math.nan, math.nan, math.nan)  # value and interval of a finding that has no score


@dataclass(frozen=True)
class Finding:
    """Result of an analysis: a score, or results for individual words.

    Attributes:
        analysis: name of the analysis, a key of `calque.analyses.table.ANALYSES`.
        encoder: name of the encoder; None if several encoders are compared.
        score: the score; its value is NaN if the finding consists of `items`.
        group: group of test items, such as "NOUN" or "2–3"; None if the finding is about all test
            items.
        x: position on the axis of the plot, for example the midpoint of a bin or the index of a
            layer.
        items: results for individual words, from the analyses `examples` and `points`.
    """

    analysis: str
    encoder: str | None
    score: Score
    group: str | None = None
    x: float | None = None
    items: Sequence[dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entries of `Score.to_dict` and the other attributes of the finding as a
        JSON-compatible dictionary.
        """
        about = {
            "analysis": self.analysis,
            "encoder": self.encoder,
            "group": self.group,
            "x": self.x,
        }
        return {
            **self.score.to_dict(),
            **about,
            **({} if self.items is None else {"items": list(self.items)}),
        }

    def to_json(self) -> str:
        """Return the finding as one line of JSON."""
        return json_text(self.to_dict(), ensure_ascii=False)


class Questions:
    """Test items that all encoders share.

    Args:
        task: word retrieval on the test text, optionally with a training text.
        tags: part-of-speech tags of one or both sides: the index of each word's tag (−1 if
            unknown), and the tag names.

    Attributes:
        pairs: one-to-one links of the test text.
        unseen: mask of links that are not in the training text, bool `[n_pairs]`; None if there is
            no training text.
    """

    def __init__(
        self,
        task: WordRetrieval,
        tags: Mapping[str, tuple[np.ndarray, Sequence[str]]] | None = None,
    ):
        self.task, self.corpus, self.tags = task, task.corpus, tags or {}
        self.langs = task.corpus.langs
        self.pairs, _ = task.links
        self.unseen = task.unseen

    def sentences(self, side: str) -> Sentences:
        return self.corpus.source if side == "source" else self.corpus.target

    @cached_property
    def offsets(self) -> Mapping[str, np.ndarray]:
        """Index of each sentence's first word in the text, then the total number of words, int64
        `[n_sentences + 1]` per side.
        """
        return {side: offsets_of(self.sentences(side).lengths()) for side in SIDES}

    @cached_property
    def rows(self) -> Mapping[str, np.ndarray]:
        """Index of each link's word among all words of the text, int64 `[n_pairs]` per side."""
        words = {"source": self.pairs.source, "target": self.pairs.target}
        return {side: self.offsets[side][self.pairs.sentence] + words[side] for side in SIDES}

    @cached_property
    def types(self) -> Mapping[str, tuple[np.ndarray, list[str]]]:
        """Index of each word's lower-cased word type, int64 `[n_words]`, and the list of word
        types, per side.
        """
        return {side: word_types(self.sentences(side)) for side in SIDES}

    def of_links(self, side: str, values: Sequence[Any]) -> np.ndarray:
        """Return the value of each link's word type on one side, `[n_pairs]`, from one value per
        word type.
        """
        numbers = self.types[side][0][self.rows[side]]
        return np.array(values)[numbers] if len(values) else np.zeros(0)

    @cached_property
    def counts(self) -> Mapping[str, Counter[str]]:
        """Number of occurrences of each lower-cased word type in the test and training text
        combined, per side.
        """
        counts: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        for text in (self.corpus, self.task.train):
            for side in SIDES if text is not None else ():
                numbers, types = word_types(getattr(text, side))
                counts[side].update(
                    dict(
                        zip(types, np.bincount(numbers, minlength=len(types)).tolist(), strict=True)
                    )
                )
        return counts

    @property
    def selections(self) -> dict[str, np.ndarray]:
        """Masks of the links that `WordRetrieval` scores, bool `[n_pairs]`: "all" and, with a
        training text, "unseen".
        """
        selections = {"all": np.ones(len(self.pairs), dtype=bool)}
        return selections if self.unseen is None else {**selections, "unseen": self.unseen}

    def ask(
        self,
        name: str,
        source: Embeddings,
        target: Embeddings,
        about: Mapping[str, Any] | None = None,
        *,
        depth: int = DEPTH,
    ) -> View:
        """Retrieve the `depth` nearest words of each query with one encoder's vectors. `hubness`
        requires the default depth.
        """
        return View(
            name, source, target, self.task.retrieve(source, target, depth=depth), dict(about or {})
        )

    @cached_property
    def sentence_of(self) -> Mapping[str, np.ndarray]:
        """Index of each word's sentence, int64 `[n_words]` per side."""
        return {
            side: np.repeat(np.arange(len(self.corpus)), np.diff(self.offsets[side]))
            for side in SIDES
        }

    def summed(self, sentence: np.ndarray, *columns: np.ndarray) -> np.ndarray:
        """Sum columns `[n]` by sentence, float64 `[n_sentences, n_columns]`; `sentence` contains
        each item's sentence index.
        """
        n = len(self.corpus)
        return np.stack(
            [np.bincount(sentence, weights=weights, minlength=n) for weights in columns], axis=1
        )

    def finding(
        self,
        analysis: str,
        view: View | None,
        metric: str,
        figures: float | tuple[float, float, float],
        n: int,
        about: Mapping[str, Any] | None = None,
        *,
        group: str | None = None,
        x: float | None = None,
        items: Sequence[dict[str, Any]] | None = None,
        task: str | None = None,
        percent: bool = True,
    ) -> Finding:
        """Build a finding about this test text.

        Args:
            view: results of the encoder; None if several encoders are compared.
            figures: value with both ends of its interval, or only the value.
            about: additional settings to record.
            task: name of the measure; default: the task of this test text.
        """
        value, low, high = figures if isinstance(figures, tuple) else (figures, math.nan, math.nan)
        name, settings = (None, {}) if view is None else (view.name, view.about)
        score = Score(
            task or self.task.name,
            self.task.data,
            self.langs,
            metric,
            float(value),
            float(low),
            float(high),
            int(n),
            self.task.seed,
            {**settings, **dict(about or {})},
            percent,
        )
        return Finding(analysis, name, score, group, x, items)


@dataclass(frozen=True)
class View:
    """One encoder's vectors and retrieval results on the test items.

    Attributes:
        name: name of the encoder.
        source, target: word vectors of the test text.
        answers: results of word retrieval.
        about: settings recorded with the scores.
    """

    name: str
    source: Embeddings
    target: Embeddings
    answers: Retrieved
    about: dict[str, Any] = field(default_factory=dict)

    def only(self, asked: np.ndarray) -> View:
        """Return the results for the links selected by the mask `asked`, bool `[n_pairs]`."""
        answers, some = self.answers, asked[self.answers.queries]
        of_queries = ("queries", "source_hits", "target_hits", "source_lists", "target_lists")
        return replace(
            self,
            answers=replace(answers, **{name: getattr(answers, name)[some] for name in of_queries}),
        )

    def side(self, side: str) -> Embeddings:
        return self.source if side == "source" else self.target

    @cached_property
    def units(self) -> Mapping[str, np.ndarray]:
        """L2-normalised word vectors, float32 `[n_words, dim]` per side."""
        return {side: unit_rows(self.side(side).data) for side in SIDES}

    def covered(self, side: str) -> np.ndarray:
        """Return the mask of words that have a vector, bool `[n_words]`."""
        return covered_words(self.side(side))


def frequency_ranks(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the frequency rank of each word type; rank 1 is the most frequent. Equally frequent
    word types share their mean rank, because the many word types that occur only once have no
    natural order."""
    return dict(zip(counts, rankdata([-count for count in counts.values()]).tolist(), strict=True))


def tags_for(sentences: Sentences, tagged: TaggedText) -> np.ndarray:
    """Copy the tags of a tagged text to the matching sentences of another text.

    Two sentences match if they are equal without white space. If the texts are tokenised
    differently, a word gets the tag of the tagged word that contains its first character.

    Returns:
        index of each word's tag in `tagged.tags.names`, int32 `[n_words]`; −1 if `tagged` does not
        contain the sentence.
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
