"""From transforms to key points: pivots of the text, and P and R learnt from them, with what they get right on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calque.alignment.clcr import extracting, reordering
from calque.alignment.clcr.extracting import Extracting, KeyPointScores, score_key_points
from calque.alignment.clcr.judged import Judged, distances
from calque.alignment.clcr.linked import LinkedOrder
from calque.alignment.clcr.reordering import OrderScores, Reordering, score_order
from calque.alignment.clcr.shown import key_point_examples, order_examples
from calque.alignment.clcr.step import Transformed
from calque.alignment.clcr.text import PairedText
from calque.encoders.key_point_parts import Parts
from calque.encoders.key_points import Step
from calque.nn.pivots import find_pivots
from calque.pairs import WordPairs
from calque.text import Sentences
from calque.vectors import Embeddings


@dataclass
class Learnt:
    """What `learn` found.

    Attributes:
        parts: of each language.
        counts: of words, sentences and key points, by language.
        judged: figures of Tables 2 and 3.
        examples: sentences with the probability of each word, and matrices of their order (Figures 2 and 3), see
            `key_point_examples` and `order_examples`.
    """

    parts: dict[str, Parts]
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    judged: list[Judged] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Pivoted:
    """A text with its vectors by the encoders as they are now, and its pivots (source in the language)."""

    text: PairedText
    vectors: Embeddings
    pivot_vectors: Embeddings
    pairs: WordPairs


def learn(
    first: Transformed,
    *,
    pivot: str,
    steps: Sequence[Step],
    extract: Extracting,
    reorder: Reordering,
    threshold: float = 0.2,
    compare: bool = False,
    progress: bool = False,
) -> Learnt:
    """Learn P of every language, and R of every one but the pivot.

    Args:
        first: encoders, transforms and texts; of each text P and R are learnt from `train` and judged on `held_out`.
        pivot: the pivot language.
        steps: those wanted; with "transform" alone there is nothing to learn.
        extract, reorder: how P and R are trained; their folders get one more level for each language.
        threshold: δ that P is judged with.
        compare: also train what Tables 2 and 3 compare with: P from labels as they are, R of the other kind.
        progress: show bars.

    Raises:
        SettingError: nothing is left to learn from.
    """
    found = Learnt({pivot: Parts()})
    for lang, transform in first.to_pivot.items():
        found.parts[lang] = Parts(transform, first.from_pivot[lang])
    found.judged += distances(first, pivot)
    if "extract" not in steps:
        return found
    pivoted = [_pivoted(first, text, pivot, progress) for text in first.texts]
    found.counts = {each.text.lang: {"pivots": len(each.pairs)} for each in pivoted}
    for lang, sides in {pivot: pivoted, **{each.text.lang: [each] for each in pivoted}}.items():
        learning, judging = (_side(sides, which, swapped=lang == pivot) for which in ("train", "held_out"))
        scores = _learn_key_points(found, lang, learning, judging, extract, threshold, compare)
        found.examples += key_point_examples(lang, _held_out(sides, swapped=lang == pivot), scores)
    if "reorder" in steps:
        for each in pivoted:
            _learn_order(found, each, pivot, reorder, compare)
    return found


def _pivoted(first: Transformed, text: PairedText, pivot: str, progress: bool) -> _Pivoted:
    vectors = first.encoders[text.lang].encode(text.corpus.source, progress=progress)
    pivot_vectors = first.encoders[pivot].encode(text.corpus.target, progress=progress)
    every = find_pivots(vectors, pivot_vectors, first.to_pivot[text.lang], first.from_pivot[text.lang])
    return _Pivoted(text, vectors, pivot_vectors, every.within(first.thresholds[text.lang]))


def _side(sides: Sequence[_Pivoted], which: str, *, swapped: bool) -> tuple[Embeddings, WordPairs]:
    """Vectors of one language in some sentences of all texts, and their pivots with that language as the source."""
    vectors, sentence, source, target, start = [], [], [], [], 0
    for each in sides:
        numbers = getattr(each.text, which)
        part = (each.pivot_vectors if swapped else each.vectors).take(numbers)
        pairs = each.pairs.take(numbers)
        pairs = pairs.swapped() if swapped else pairs
        vectors.append(part)
        sentence.append(pairs.sentence + start)
        source.append(pairs.source)
        target.append(pairs.target)
        start += len(part)
    joined = WordPairs(*map(np.concatenate, (sentence, source, target)), n_sentences=start)
    return Embeddings.joined(vectors), joined


def _held_out(sides: Sequence[_Pivoted], *, swapped: bool) -> Sentences:
    """Sentences whose vectors `_side` gives."""
    corpora = [each.text.corpus.take(each.text.held_out) for each in sides]
    return Sentences.joined([corpus.target if swapped else corpus.source for corpus in corpora])


def _learn_key_points(
    found: Learnt,
    lang: str,
    learning: tuple[Embeddings, WordPairs],
    judging: tuple[Embeddings, WordPairs],
    how: Extracting,
    threshold: float,
    compare: bool,
) -> dict[str, KeyPointScores]:
    """Adds P of a language; gives what each of the classifiers says of `judging`, by the name of its labels."""
    judged: dict[str, KeyPointScores] = {}
    kinds = (not how.confident, how.confident) if compare else (how.confident,)
    for confident in kinds:  # what is kept comes last
        name = "confident labels" if confident else "labels as they are"
        trained = replace(
            how, confident=confident, training=_inside(how.training, f"{lang}-{name.partition(' ')[0]}")
        ).train(*learning)
        judged[name] = score_key_points(trained.head, *judging, threshold=threshold)
        found.judged += [
            Judged("key-points", (lang, lang), name, metric, judged[name].counts, statistic)
            for metric, statistic in extracting.STATISTICS.items()
        ]
        if confident == how.confident:
            found.parts[lang] = replace(found.parts[lang], head=trained.head.cpu())
            found.counts.setdefault(lang, {}).update({f"{key} of P": n for key, n in trained.counts.items()})
    return judged


def _learn_order(found: Learnt, each: _Pivoted, pivot: str, how: Reordering, compare: bool) -> None:
    lang = each.text.lang
    learning, judging = (_side([each], which, swapped=False) for which in ("train", "held_out"))
    other = "absolute" if how.kind == "relative" else "relative"
    heads = {}
    for kind in (other, how.kind) if compare else (how.kind,):
        trained = replace(how, kind=kind, training=_inside(how.training, lang)).train(*learning)
        heads[kind] = trained.head
        scores: OrderScores = score_order(trained.head, *judging)
        for beam, counts in scores.counts.items():
            model = beam if beam == "as it stands" else f"{kind}, {beam}"
            if beam != "as it stands" or kind == how.kind:
                found.judged += [
                    Judged("order", (lang, pivot), model, metric, counts, statistic)
                    for metric, statistic in reordering.STATISTICS.items()
                ]
        if kind == how.kind:
            found.parts[lang] = replace(found.parts[lang], order=trained.head.cpu())
            found.counts[lang].update({f"{key} of R": n for key, n in trained.counts.items()})
    gold, sentences = LinkedOrder.of(*judging), _held_out([each], swapped=False)
    found.examples += order_examples(lang, sentences, judging[0], gold, heads)


def _inside(training: Any, name: str) -> Any:
    """The same training with a folder of its own."""
    return training if training.folder is None else replace(training, folder=training.folder / name)
