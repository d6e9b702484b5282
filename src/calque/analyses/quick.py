"""What is measured before alignment, in seconds: the features that advice is made from."""

from __future__ import annotations

import math

import numpy as np

from calque.analyses.consistency import consistency
from calque.analyses.finding import Finding
from calque.analyses.isometry import isometry
from calque.analyses.language import language
from calque.analyses.questions import SIDES, Questions, View
from calque.encoders.base import Encoder
from calque.pairs import WordPairs
from calque.tasks.retrieval import WordRetrieval
from calque.text import ParallelCorpus

SAMPLE = 500  # sentence pairs: the more words there are, the harder it is to find one, so it is always as many
LINKED = 5000  # sentence pairs of which words are linked, the sample among them


def sample_first(corpus: ParallelCorpus) -> ParallelCorpus:
    """At most `LINKED` sentence pairs, at even distances, in an order in which the first `SAMPLE` are at even distances
    among them. Pairs with an empty side are left out."""
    rows = np.flatnonzero((corpus.source.lengths() > 0) & (corpus.target.lengths() > 0))
    rows = rows[_even(len(rows), LINKED)]
    first = _even(len(rows), SAMPLE)
    others = np.ones(len(rows), dtype=bool)
    others[first] = False
    return corpus.take(np.concatenate([rows[first], rows[others]]))


def _even(n: int, most: int) -> np.ndarray:
    return np.arange(n) if n <= most else np.arange(most) * n // most


def measured(encoder: Encoder, corpus: ParallelCorpus, pairs: WordPairs, *, seed: int = 0) -> dict[str, float]:
    """Features of an encoder and a text, by the names of `calque.analyses.advice.FEATURES`, as far as the text has them:
    word retrieval, same-language consistency, isometry and the probe for language, without intervals, on the first
    `SAMPLE` sentence pairs.

    Args:
        encoder: before alignment.
        corpus: what it may be aligned on, as `sample_first` gives it.
        pairs: its word links.
        seed: of the probe's words.

    Raises:
        SettingError: no words are linked.
    """
    sample = corpus[:SAMPLE]
    task = WordRetrieval(sample, pairs.slice(0, len(sample)), bootstrap=0, seed=seed, data=corpus.path or "the text")
    questions = Questions(task)
    source, target = (encoder.encode(questions.sentences(side)) for side in SIDES)
    asked = task.ask(source, target)
    scores = {score.metric: score.value for score in task.evaluate_embeddings(source, target, asked=asked)}
    view = View(encoder.name, source, target, asked[2])
    same = {finding.group: finding for finding in consistency(questions, view)}
    shape = {finding.score.metric: finding for finding in isometry(questions, view)}
    told = {finding.score.metric: finding for finding in language(questions, view, seed=seed)}
    values = {
        "accuracy": scores["accuracy.all"],
        "form": scores["form.all"],
        "consistency.source": _value(same.get(corpus.langs[0])),
        "consistency.target": _value(same.get(corpus.langs[1])),
        "isometry": _value(shape.get("relational-similarity")),
        "probe": _value(told.get("probe-accuracy")),
    }
    return {name: float(value) for name, value in values.items() if not math.isnan(value)}


def _value(finding: Finding | None) -> float:
    return math.nan if finding is None else finding.score.value
