"""Data for the analyses: test items and properties of their words, retrieval results of encoders,
and findings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

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
    items: Sequence[Mapping[str, object]] | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the entries of `Score.to_dict` and the other attributes of the finding as a
        JSON-compatible dictionary.
        """
        plain = self.score.to_dict()
        plain |= {
            "analysis": self.analysis,
            "encoder": self.encoder,
            "group": self.group,
            "x": self.x,
        }
        if self.items is not None:
            plain["items"] = list(self.items)
        return plain

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
        unseen: mask of unseen links, see `calque.tasks.overlap.unseen_pairs`, bool `[n_pairs]`;
            None if there is no training text.
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

    def of_links(self, side: str, values: Sequence[float]) -> np.ndarray:
        """Return the value of each link's word type on one side, `[n_pairs]`, from one value per
        word type.
        """
        # Values are computed once per type, of which there are far fewer than tokens.
        numbers = self.types[side][0][self.rows[side]]
        return np.array(values)[numbers] if len(values) else np.zeros(0)

    @cached_property
    def counts(self) -> Mapping[str, Counter[str]]:
        """Number of occurrences of each lower-cased word type in the test and training text
        combined, per side.
        """
        # Test text alone is too small for frequencies: most types occur once.
        counts: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        texts = [self.corpus]
        if self.task.train is not None:
            texts.append(self.task.train)
        for text in texts:
            for side, sentences in (("source", text.source), ("target", text.target)):
                numbers, types = word_types(sentences)
                n_occurrences = np.bincount(numbers, minlength=len(types)).tolist()
                counts[side].update(dict(zip(types, n_occurrences, strict=True)))
        return counts

    @property
    def selections(self) -> dict[str, np.ndarray]:
        """Masks of the links that `WordRetrieval` scores, bool `[n_pairs]`: "all" and, with a
        training text, "unseen".
        """
        selections = {"all": np.ones(len(self.pairs), dtype=bool)}
        if self.unseen is not None:
            selections["unseen"] = self.unseen
        return selections

    def ask(
        self,
        name: str,
        source: Embeddings,
        target: Embeddings,
        about: Mapping[str, object] | None = None,
        *,
        depth: int = DEPTH,
    ) -> View:
        """Retrieve the `depth` nearest words of each query with one encoder's vectors. `hubness`
        requires the default depth.
        """
        answers = self.task.retrieve(source, target, depth=depth)
        return View(name, source, target, answers, dict(about or {}))

    @cached_property
    def sentence_of(self) -> Mapping[str, np.ndarray]:
        """Index of each word's sentence, int64 `[n_words]` per side."""
        numbers = np.arange(len(self.corpus))
        return {side: np.repeat(numbers, np.diff(self.offsets[side])) for side in SIDES}

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
        about: Mapping[str, object] | None = None,
        *,
        group: str | None = None,
        x: float | None = None,
        items: Sequence[Mapping[str, object]] | None = None,
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
        if isinstance(figures, tuple):
            value, low, high = figures
        else:
            value, low, high = figures, math.nan, math.nan
        name: str | None = None
        settings: dict[str, object] = {}
        if view is not None:
            name, settings = view.name, view.about
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
            {**settings, **(about or {})},
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
    about: dict[str, object] = field(default_factory=dict)

    def only(self, selected: np.ndarray) -> View:
        """Return the results for the links selected by a mask, bool `[n_pairs]`."""
        answers = self.answers
        rows = selected[answers.queries]  # the arrays below have one row for each query
        return replace(
            self,
            answers=replace(
                answers,
                queries=answers.queries[rows],
                source_hits=answers.source_hits[rows],
                target_hits=answers.target_hits[rows],
                source_lists=answers.source_lists[rows],
                target_lists=answers.target_lists[rows],
            ),
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
    ranks = rankdata([-count for count in counts.values()])
    return dict(zip(counts, ranks.tolist(), strict=True))


def tags_for(sentences: Sentences, tagged: TaggedText) -> np.ndarray:
    """Copy the tags of a tagged text to the matching sentences of another text.

    Two sentences match if they are equal without white space. If the texts are tokenised
    differently, a word gets the tag of the tagged word that contains its first character.

    Returns:
        index of each word's tag in `tagged.tags.names`, int32 `[n_words]`; −1 if `tagged` does not
        contain the sentence.
    """
    starts = offsets_of(tagged.sentences.lengths()).tolist()
    # The words of each tagged sentence, and the index of its first word, keyed by its characters.
    tagged_words: dict[str, tuple[tuple[str, ...], int]] = {}
    for number, sentence in enumerate(tagged.sentences):
        tagged_words.setdefault("".join(sentence.words), (sentence.words, starts[number]))
    tags = [np.zeros(0, dtype=np.int32)]
    for sentence in sentences:
        words, start = tagged_words.get("".join(sentence.words), ((), 0))
        if not words:
            tags.append(np.full(len(sentence), -1, dtype=np.int32))
        elif words == sentence.words:
            tags.append(tagged.tags.codes[start : start + len(words)])
        else:
            # Find the tagged word that contains the first character of each word.
            ends = np.cumsum([len(word) for word in words])
            first_characters = np.cumsum([0, *(len(word) for word in sentence.words[:-1])])
            positions = np.searchsorted(ends, first_characters, side="right")
            tags.append(tagged.tags.codes[start + positions])
    return np.concatenate(tags).astype(np.int32)
