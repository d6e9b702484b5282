"""Label projection, a baseline for zero-shot transfer: tag the source side of parallel text,
project the tags onto the target side (Yarowsky, Ngai and Wicentowski 2001), and train on the
projected tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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

_STRETCH = 2  # maximum length of a projection relative to its span; one additional word is allowed


def project_spans(source: TaggedText, pairs: WordPairs, target: Sentences) -> TaggedText:
    """Project BIO spans across word links, and return the tagged target sentences.

    The projection of a span is the range from the first to the last target word linked to the span.
    A sentence is skipped if a span of n words has no link or a projection of more than 2n + 1
    words, or if projections overlap, because a partially tagged sentence would be a wrong training
    example.
    """
    offsets = offsets_of(source.sentences.lengths())
    table = span_table(source.tags.codes, source.tags.names, offsets)
    owner = np.searchsorted(offsets, table.start, side="right") - 1
    spans: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for sentence, start, end, kind in zip(owner, table.start, table.end, table.type, strict=True):
        spans[int(sentence)].append(
            (int(start - offsets[sentence]), int(end - offsets[sentence]), table.types[kind])
        )
    linked = _links(pairs)
    rows: list[int] = []
    tags: list[str] = []
    for sentence, length in enumerate(target.lengths().tolist()):
        labels = ["O"] * length
        for start, end, kind in spans.get(sentence, ()):
            words = [j for i in range(start, end) for j in linked[sentence, i]]
            first, last = (min(words), max(words)) if words else (0, -1)
            if (
                not words
                or last - first >= _STRETCH * (end - start) + 1
                or set(labels[first : last + 1]) != {"O"}
            ):
                break
            labels[first : last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
        else:
            if length:
                rows.append(sentence)
                tags += labels
    return _tagged(rows, tags, target)


def project_tags(source: TaggedText, pairs: WordPairs, target: Sentences) -> TaggedText:
    """Project word tags across word links, and return the tagged target sentences.

    A target word receives the most frequent tag of its linked words. A word without links receives
    the most frequent projected tag of its word type. Sentences are skipped if a word receives no
    tag.
    """
    offsets = offsets_of(source.sentences.lengths())
    linked = _links(pairs.swapped())
    of_type: dict[str, Counter[str]] = defaultdict(Counter)
    projected = []
    for sentence, (words, start) in enumerate(zip(target, offsets.tolist(), strict=False)):
        several = (
            Counter(source.tags[start + i] for i in linked[sentence, j]) for j in range(len(words))
        )
        projected.append(
            [(word, _most_frequent(tags)) for word, tags in zip(words.words, several, strict=True)]
        )
        for word, tag in projected[-1]:
            if tag is not None:
                of_type[word][tag] += 1
    rows, tags = [], []
    for sentence, pairs_of_sentence in enumerate(projected):
        filled = [tag or _most_frequent(of_type[word]) for word, tag in pairs_of_sentence]
        if filled and None not in filled:
            rows.append(sentence)
            tags += filled
    return _tagged(rows, tags, target)


def projected(
    tagger: Any,
    encoder: Encoder,
    corpus: ParallelCorpus,
    pairs: WordPairs,
    *,
    progress: bool = False,
) -> Dataset[TaggedText]:
    """Train the tagger, tag the source side of parallel text, and project the tags across the word
    links. Return the tagged target side as training text.

    Args:
        tagger: `Tagging` task whose training text is in one of the two languages of the corpus.

    Raises:
        SettingError: the training text is in neither language of the corpus, or no sentence
            received tags.
    """
    if corpus.side(tagger.train[0].lang) == "target":
        corpus, pairs = corpus.swapped(), pairs.swapped()
    tagged = tagger.tag(encoder, corpus.source, progress=progress)
    text = (project_tags if tagger.name == "pos" else project_spans)(tagged, pairs, corpus.target)
    if not len(text):
        raise SettingError(
            "no tags could be projected across the word links; check that the links match the text"
        )
    skipped = int((corpus.target.lengths() > 0).sum()) - len(text)
    return Dataset(
        f"projected ({len(text):,} sentences, {skipped:,} skipped)", corpus.langs[1], text
    )


class LabelProjection(Task):
    """Train a tagger on projected labels in each target language, and test it in this language.

    Args:
        make: function that builds the tagging task from training and test sets.
        corpora: name, content and word links of each parallel text.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        train: Sequence[Dataset[TaggedText]],
        tests: Sequence[Dataset[TaggedText]],
        corpora: Sequence[tuple[str, ParallelCorpus, WordPairs]],
        say: Say = lambda line: None,
    ):
        self.make, self.train, self.tests, self.corpora, self.say = (
            make,
            list(train),
            list(tests),
            list(corpora),
            say,
        )

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the scores for all test sets in the target languages.

        Raises:
            SettingError: no test set is in a target language.
        """
        scores: list[Score] = []
        for name, corpus, pairs in self.corpora:
            tagger = self.make(self.train, self.train, tune=False)
            train = projected(tagger, encoder, corpus, pairs, progress=progress)
            self.say(f"{name}: {train.name}")
            if tests := [each for each in self.tests if each.lang == train.lang]:
                about = {
                    "protocol": "projection",
                    "text": train.name,
                    "train": [each.name for each in self.train],
                }
                found = self.make([train], tests).evaluate(encoder, progress=progress)
                scores += [score.about(**about) for score in found]
        if not scores:
            raise SettingError(
                "at least one test set (--test) must be in a target language of --project, got none"
            )
        return scores


def _links(pairs: WordPairs) -> dict[tuple[int, int], list[int]]:
    """Return the indices of the target words linked to each source word, keyed by sentence index
    and source word index.
    """
    linked: dict[tuple[int, int], list[int]] = defaultdict(list)
    for sentence, i, j in zip(
        pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True
    ):
        linked[sentence, i].append(j)
    return linked


def _most_frequent(tags: Counter[str]) -> str | None:
    """Return the most frequent tag; ties go to the first tag in alphabetical order."""
    return min(tags, key=lambda tag: (-tags[tag], tag)) if tags else None


def _tagged(rows: list[int], tags: list[str], target: Sentences) -> TaggedText:
    return TaggedText(target.take(np.array(rows, dtype=np.int64)), Labels.of(tags))
