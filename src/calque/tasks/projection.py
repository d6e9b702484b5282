"""Label projection, a baseline for zero-shot transfer: tag the source side of parallel text,
project the tags onto the target side (Yarowsky, Ngai and Wicentowski 2001), and train on the
projected tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from calque.annotated import Labels, TaggedText
from calque.errors import SettingError
from calque.input_texts import Say
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.spans import span_table
from calque.tasks.base import Evidence, Score, Task
from calque.tasks.datasets import Dataset
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

_STRETCH = 2  # maximum length of a projection relative to its span; one additional word is allowed


class Tagger(Protocol):
    """Tagging task that is trained on labelled text; `calque.tasks.tagging:Tagging` is one."""

    name: str
    train: list[Dataset[TaggedText]]

    def tag(self, encoder: Encoder, sentences: Sentences, *, progress: bool = False) -> TaggedText:
        """Return the predicted tags of sentences."""
        ...

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the scores of the task."""
        ...


def project_spans(source: TaggedText, pairs: WordPairs, target: Sentences) -> TaggedText:
    """Project BIO spans across word links, and return the tagged target sentences.

    The projection of a span is the range from the first to the last target word linked to the span.
    A sentence is skipped if a span of n words has no link or a projection of more than 2n + 1
    words, or if projections overlap, because a partially tagged sentence would be a wrong training
    example.
    """
    spans = _spans_of_sentences(source)
    linked = _linked_positions(pairs)
    rows: list[int] = []
    tags: list[str] = []
    for sentence, length in enumerate(target.lengths().tolist()):
        sentence_tags = _projected_spans(spans[sentence], linked, sentence, length)
        if sentence_tags:
            rows.append(sentence)
            tags += sentence_tags
    return _tagged(rows, tags, target)


def _spans_of_sentences(text: TaggedText) -> dict[int, list[tuple[int, int, str]]]:
    """Return the spans of each sentence: the positions of the first word and of the end, and the
    type. Sentences without spans have an empty list.
    """
    offsets = offsets_of(text.sentences.lengths())
    table = span_table(text.tags.codes, text.tags.names, offsets)
    owner = np.searchsorted(offsets, table.start, side="right") - 1
    starts, ends = table.start - offsets[owner], table.end - offsets[owner]
    spans: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for sentence, start, end, type_index in zip(
        owner.tolist(), starts.tolist(), ends.tolist(), table.type, strict=True
    ):
        spans[sentence].append((start, end, table.types[type_index]))
    return spans


def _projected_spans(
    spans: Sequence[tuple[int, int, str]],
    linked: Mapping[tuple[int, int], list[int]],
    sentence: int,
    length: int,
) -> list[str]:
    """Return the projected BIO tags of a target sentence of `length` words, or an empty list if a
    span has no valid projection.
    """
    tags = ["O"] * length
    for start, end, span_type in spans:
        target_words: list[int] = []
        for position in range(start, end):
            target_words += linked[sentence, position]
        if not target_words:
            return []
        first, last = min(target_words), max(target_words)
        is_too_long = last - first >= _STRETCH * (end - start) + 1
        overlaps = set(tags[first : last + 1]) != {"O"}
        if is_too_long or overlaps:
            return []
        tags[first : last + 1] = [f"B-{span_type}"] + [f"I-{span_type}"] * (last - first)
    return tags


def project_tags(source: TaggedText, pairs: WordPairs, target: Sentences) -> TaggedText:
    """Project word tags across word links, and return the tagged target sentences.

    A target word receives the most frequent tag of its linked words. A word without links receives
    the most frequent projected tag of its word type. Sentences are skipped if a word receives no
    tag.
    """
    offsets = offsets_of(source.sentences.lengths()).tolist()
    linked = _linked_positions(pairs.swapped())  # source words of each target word
    tags_of_type: dict[str, Counter[str]] = defaultdict(Counter)
    projected_tags: list[list[str | None]] = []  # None for words without links
    for sentence, words in enumerate(target):
        sentence_tags: list[str | None] = []
        for position, word in enumerate(words.words):
            linked_tags = Counter(
                source.tags[offsets[sentence] + linked_word]
                for linked_word in linked[sentence, position]
            )
            tag = _most_frequent(linked_tags)
            sentence_tags.append(tag)
            if tag is not None:
                tags_of_type[word][tag] += 1
        projected_tags.append(sentence_tags)
    rows, tags = [], []
    for sentence, words in enumerate(target):
        # A word without links gets the most frequent tag of its type elsewhere in the text.
        filled = [
            tag or _most_frequent(tags_of_type[word])
            for tag, word in zip(projected_tags[sentence], words.words, strict=True)
        ]
        if filled and None not in filled:
            rows.append(sentence)
            tags += filled
    return _tagged(rows, tags, target)


def projected(
    tagger: Tagger,
    encoder: Encoder,
    corpus: ParallelCorpus,
    pairs: WordPairs,
    *,
    progress: bool = False,
) -> Dataset[TaggedText]:
    """Train the tagger, tag the source side of parallel text, and project the tags across the word
    links. Return the tagged target side as training text.

    Args:
        tagger: tagging task whose training text is in one of the two languages of the corpus.

    Raises:
        SettingError: the training text is in neither language of the corpus, or no sentence
            received tags.
    """
    if corpus.side(tagger.train[0].lang) == "target":
        corpus, pairs = corpus.swapped(), pairs.swapped()
    tagged = tagger.tag(encoder, corpus.source, progress=progress)
    project = project_tags if tagger.name == "pos" else project_spans
    text = project(tagged, pairs, corpus.target)
    if not len(text):
        raise SettingError(
            "no tags could be projected across the word links; check that the links match the text"
        )
    n_skipped = int((corpus.target.lengths() > 0).sum()) - len(text)
    name = f"projected ({len(text):,} sentences, {n_skipped:,} skipped)"
    return Dataset(name, corpus.langs[1], text)


class LabelProjection(Task):
    """Train a tagger on projected labels in each target language, and test it in this language.

    Args:
        make: function that builds the tagging task from training and test sets.
        corpora: name, content and word links of each parallel text.
    """

    def __init__(
        self,
        make: Callable[..., Tagger],
        train: Sequence[Dataset[TaggedText]],
        tests: Sequence[Dataset[TaggedText]],
        corpora: Sequence[tuple[str, ParallelCorpus, WordPairs]],
        say: Say = lambda line: None,
    ):
        self.make, self.say = make, say
        self.train, self.tests, self.corpora = list(train), list(tests), list(corpora)

    def evidence(self, encoder: Encoder) -> Evidence | None:
        """Return the parallel texts with their word links."""
        corpora = [corpus for _, corpus, _ in self.corpora]
        return Evidence(corpora, [pairs for _, _, pairs in self.corpora])

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the scores for all test sets in the target languages.

        Raises:
            SettingError: no test set is in a target language.
        """
        scores: list[Score] = []
        for name, corpus, pairs in self.corpora:
            # The first tagger needs no test set; a test set is required, so the training text
            # stands in.
            tagger = self.make(self.train, self.train, tune=False)
            train = projected(tagger, encoder, corpus, pairs, progress=progress)
            self.say(f"{name}: {train.name}")
            # The projected text is in one language, so only test sets in this language are
            # zero-shot.
            tests = [test for test in self.tests if test.lang == train.lang]
            if not tests:
                continue
            settings = {
                "protocol": "projection",
                "text": train.name,
                "train": [dataset.name for dataset in self.train],
            }
            for score in self.make([train], tests).evaluate(encoder, progress=progress):
                scores.append(score.about(**settings))
        if not scores:
            raise SettingError(
                "at least one test set (--test) must be in a target language of --project, got none"
            )
        return scores


def _linked_positions(pairs: WordPairs) -> dict[tuple[int, int], list[int]]:
    """Return the positions of the target words linked to each source word, keyed by sentence index
    and source position. Words without links have an empty list.
    """
    linked: dict[tuple[int, int], list[int]] = defaultdict(list)
    for sentence, source, target in zip(
        pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True
    ):
        linked[sentence, source].append(target)
    return linked


def _most_frequent(tags: Counter[str]) -> str | None:
    """Return the most frequent tag, or None if there are no tags; ties go to the first tag in
    alphabetical order.
    """
    return min(tags, key=lambda tag: (-tags[tag], tag), default=None)


def _tagged(rows: list[int], tags: list[str], target: Sentences) -> TaggedText:
    """Return the target sentences `rows`, with the tags of all their words."""
    return TaggedText(target.take(np.array(rows, dtype=np.int64)), Labels.of(tags))
