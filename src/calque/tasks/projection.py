"""Label projection, the baseline of zero-shot transfer: project the tags of a source tagger over parallel text (Yarowsky, Ngai
and Wicentowski 2001), and train on the result."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calque.annotated import Labels, TaggedText
from calque.errors import SettingError
from calque.input_texts import Say
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.spans import span_table
from calque.tasks.base import Score, Task
from calque.tasks.datasets import Dataset
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

_STRETCH = 2  # maximum ratio of the lengths of a projection and its span, plus one word


class Projected(NamedTuple):
    """Result of a projection.

    Attributes:
        text: tagged target sentences.
        sentences: indices of these sentences in the corpus, int64.
        left_out: number of sentences with spans or words that could not be projected.
    """

    text: TaggedText
    sentences: np.ndarray
    left_out: int


def project_spans(source: TaggedText, pairs: WordPairs, target: Sentences) -> Projected:
    """Project spans over word links.

    The projection of a span is the range from the first to the last linked word. A sentence is skipped if a span has no link,
    if a projection is more than twice as long (plus one word), or if projections overlap, because partly tagged sentences would
    be wrong examples.

    Args:
        source: tagged sentences (BIO).
        pairs: word links.
        target: translations of the sentences.
    """
    offsets = offsets_of(source.sentences.lengths())
    table = span_table(source.tags.codes, source.tags.names, offsets)
    owner = np.searchsorted(offsets, table.start, side="right") - 1
    spans: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for sentence, start, end, kind in zip(owner, table.start, table.end, table.type, strict=True):
        spans[int(sentence)].append((int(start - offsets[sentence]), int(end - offsets[sentence]), table.types[kind]))
    reached = _links(pairs)
    rows: list[int] = []
    tags: list[str] = []
    for sentence, length in enumerate(target.lengths().tolist()):
        labels = ["O"] * length
        for start, end, kind in spans.get(sentence, ()):
            words = [j for i in range(start, end) for j in reached[sentence].get(i, ())]
            first, last = (min(words), max(words)) if words else (0, -1)
            if not words or last - first >= _STRETCH * (end - start) + 1 or set(labels[first : last + 1]) != {"O"}:
                break
            labels[first : last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
        else:
            if length:
                rows.append(sentence)
                tags += labels
    return _projected(rows, tags, target)


def project_tags(source: TaggedText, pairs: WordPairs, target: Sentences) -> Projected:
    """Project tags of words over word links.

    A word gets the most frequent tag of its linked words, or without links the most frequent tag of its type in the text.
    Sentences with a word that has neither are skipped.
    """
    offsets = offsets_of(source.sentences.lengths())
    linked = _links(pairs.swapped())
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    tags_by_sentence: list[list[str | None]] = []
    words = [sentence.words for sentence in target]
    for sentence, forms in enumerate(words):
        several = (
            Counter(source.tags[int(offsets[sentence]) + i] for i in linked[sentence].get(j, ()))
            for j in range(len(forms))
        )
        tags_by_sentence.append([_most(tags) for tags in several])
        for form, tag in zip(forms, tags_by_sentence[-1], strict=True):
            if tag is not None:
                seen[form][tag] += 1
    rows, tags = [], []
    for sentence, (forms, sentence_tags) in enumerate(zip(words, tags_by_sentence, strict=True)):
        filled = [tag or _most(seen[form]) for form, tag in zip(forms, sentence_tags, strict=True)]
        if filled and None not in filled:
            rows.append(sentence)
            tags += filled
    return _projected(rows, tags, target)


def projected(
    tagger: Any,
    encoder: Encoder,
    corpus: ParallelCorpus,
    pairs: WordPairs,
    *,
    seed: int = 0,
    progress: bool = False,
) -> Dataset[TaggedText]:
    """Return training text in the target language: train the tagger on source text, tag the source side of parallel text, and
    project the tags.

    Args:
        tagger: `Tagging` task with training text in the language of one side of the corpus.
        encoder: encoder of the frozen vectors.
        corpus, pairs: parallel text and its word links.

    Raises:
        SettingError: the training text is in neither language, or nothing can be projected.
    """
    if corpus.side(tagger.train[0].lang) == "target":
        corpus, pairs = corpus.swapped(), pairs.swapped()
    tagged = tagger.tag(encoder, corpus.source, seed=seed, progress=progress)
    projection = (project_tags if tagger.name == "pos" else project_spans)(tagged, pairs, corpus.target)
    if not len(projection.text):
        raise SettingError("no tags could be projected over the word links: is this the right parallel text?")
    name = f"projected ({len(projection.text):,} sentences, {projection.left_out:,} skipped)"
    return Dataset(name, corpus.langs[1], projection.text)


class LabelProjection(Task):
    """Task that trains on projected labels, and tests in each target language.

    Args:
        make: function that builds the tagging task from training and test texts.
        corpora: name, text and links of each parallel text.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        train: Sequence[Dataset[TaggedText]],
        tests: Sequence[Dataset[TaggedText]],
        corpora: Sequence[tuple[str, ParallelCorpus, WordPairs]],
        say: Say = lambda line: None,
    ):
        self.make, self.train, self.tests, self.corpora, self.say = make, list(train), list(tests), list(corpora), say

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the scores of the test sets in the target languages.

        Raises:
            SettingError: there is no such test set.
        """
        scores: list[Score] = []
        for name, corpus, pairs in self.corpora:
            tagger = self.make(self.train, self.train, tune=False)
            learnt = projected(tagger, encoder, corpus, pairs, progress=progress)
            self.say(f"{name}: {learnt.name}")
            if tests := [each for each in self.tests if each.lang == learnt.lang]:
                scores_here = self.make([learnt], tests).evaluate(encoder, progress=progress)
                about = {"protocol": "projection", "text": learnt.name, "train": [each.name for each in self.train]}
                scores += [score.about(**about) for score in scores_here]
        if not scores:
            raise SettingError("no test set is in a language of --project")
        return scores


def _links(pairs: WordPairs) -> dict[int, dict[int, list[int]]]:
    """Return the linked target words of each sentence and source word."""
    linked: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for sentence, i, j in zip(pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True):
        linked[sentence][i].append(j)
    return linked


def _most(tags: Counter[str]) -> str | None:
    """Return the most frequent tag; of several the first in alphabetical order."""
    return min(tags, key=lambda tag: (-tags[tag], tag)) if tags else None


def _projected(kept: list[int], tags: list[str], target: Sentences) -> Projected:
    rows = np.array(kept, dtype=np.int64)
    text = TaggedText(target.take(rows), Labels.of(tags))
    return Projected(text, rows, int((target.lengths() > 0).sum()) - len(kept))
