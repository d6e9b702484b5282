"""From transforms to key points: pivots of the text, and P and R learnt from them, with what they get right on held-out text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from calque.alignment.base import Judged
from calque.clcr import extracting, reordering
from calque.clcr.encoder import Parts, Step
from calque.clcr.extracting import Extracting, KeyPointScores, score_key_points, share
from calque.clcr.networks import AbsoluteOrder, Order
from calque.clcr.pivots import covered_words, find_pivots, words_with_vectors
from calque.clcr.reordering import LinkedOrder, Reordering, chosen_rows, score_order
from calque.clcr.step import Transformed
from calque.clcr.text import PairedText
from calque.clcr.transform import Transform, attention_distance
from calque.nn.matched import MatchedSentences
from calque.pairs import WordPairs
from calque.text import Sentences
from calque.vectors import Embeddings

_SHARPEST = 1e-3  # τ at which the attention is to the nearest word alone
_EXAMPLES = 5  # sentences of each kind that are kept for the report
_FEWEST, _MOST = 4, 16  # key points of a sentence whose order is shown: something to order, and a matrix one can read


@dataclass
class Learnt:
    """What `learn` found.

    Attributes:
        parts: of each language.
        counts: of words, sentences and key points, by language.
        rates: flip rates of the labels of P by language, see `Trained`.
        judged: figures of Table 1 ("distance"), 2 ("key-points", with the language twice) and 3 ("order").
        examples: held-out sentences with the probability of each word, and matrices of their order (Figures 2 and 3).
    """

    parts: dict[str, Parts]
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    judged: list[Judged] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Side:
    """Sentences of a language, with their vectors and their pivots, which have that language as the source."""

    sentences: Sentences
    vectors: Embeddings
    pivots: WordPairs


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
        first: encoders, transforms and texts; of each text P and R are learnt from `train` and scored on `held_out`.
        steps: those wanted; with "transform" alone there is nothing to learn.
        extract, reorder: how P and R are trained.
        threshold: δ that P is scored with.
        compare: also train what Tables 2 and 3 compare with: P from labels as they are, R of the other kind.

    Raises:
        SettingError: nothing is left to learn from.
    """
    found = Learnt({pivot: Parts()})
    for lang, transform in first.to_pivot.items():
        found.parts[lang] = Parts(transform, first.from_pivot[lang])
    found.judged += [each for text in first.texts if len(text.held_out) for each in _distances(first, text, pivot)]
    if "extract" not in steps:
        return found
    by_text = [_sides(first, text, pivot, progress) for text in first.texts]
    found.counts = {text.lang: {"pivots": sides["pivots"]} for text, sides in zip(first.texts, by_text, strict=True)}
    languages = {pivot: [sides["pivot"] for sides in by_text]}
    languages |= {text.lang: [sides["own"]] for text, sides in zip(first.texts, by_text, strict=True)}
    for lang, parts in languages.items():
        learning, judging = (_joined([each[k] for each in parts]) for k in range(2))
        _learn_key_points(found, lang, learning, judging, extract, threshold, compare)
    if "reorder" in steps:
        for text, sides in zip(first.texts, by_text, strict=True):
            learning, judging = sides["own"]
            _learn_order(found, text.lang, pivot, learning, judging, reorder, compare)
    return found


def _sides(first: Transformed, text: PairedText, pivot: str, progress: bool) -> dict[str, Any]:
    """Return the number of `pivots` of a text, and its `own` side and that of the `pivot` language: what is trained on,
    and what is held out."""
    vectors = first.encoders[text.lang].encode(text.corpus.source, progress=progress)
    pivot_vectors = first.encoders[pivot].encode(text.corpus.target, progress=progress)
    every = find_pivots(vectors, pivot_vectors, first.to_pivot[text.lang], first.from_pivot[text.lang])
    pairs = every.within(first.thresholds[text.lang])
    found: dict[str, Any] = {"pivots": len(pairs), "own": [], "pivot": []}
    for numbers in (text.train, text.held_out):
        corpus, some = text.corpus.take(numbers), pairs.take(numbers)
        found["own"].append(_Side(corpus.source, vectors.take(numbers), some))
        found["pivot"].append(_Side(corpus.target, pivot_vectors.take(numbers), some.swapped()))
    return found


def _joined(sides: Sequence[_Side]) -> _Side:
    """Return the sentences of several texts as one."""
    pairs, start = [], 0
    for side in sides:
        pairs.append((side.pivots.sentence + start, side.pivots.source, side.pivots.target))
        start += len(side.vectors)
    joined = WordPairs(*map(np.concatenate, zip(*pairs, strict=True)), n_sentences=start)
    return _Side(
        Sentences.joined([side.sentences for side in sides]),
        Embeddings.joined([side.vectors for side in sides]),
        joined,
    )


# -- Table 1 -----------------------------------------------------------------------------------------------------------
def _distances(first: Transformed, text: PairedText, pivot: str) -> list[Judged]:
    """Return D(T(s¹) ‖ s²) and D(T(s²) ‖ s¹) of held-out sentences, where every word finds the nearest alone (Eq. 2 with τ
    near 0): the mean squared distance by dimension, and the same divided by the mean variance of a component; and "soft", the
    distance at τ = 1. Models may stand in another order there."""
    source = first.encoders[text.lang].encode(text.corpus.source.take(text.held_out))
    target = first.encoders[pivot].encode(text.corpus.target.take(text.held_out))
    found = []
    for x, y, transform, langs in (
        (source, target, first.to_pivot[text.lang], (text.lang, pivot)),
        (target, source, first.from_pivot[text.lang], (pivot, text.lang)),
    ):
        sums = _distance_sums(x, y, transform)
        for metric, columns in {"distance": (0, 2), "relative distance": (0, 3), "soft distance": (1, 2)}.items():
            found.append(Judged("distance", langs, "transform", metric, sums, share(*columns), percent=False))
    return found


@torch.no_grad()
def _distance_sums(source: Embeddings, target: Embeddings, transform: Transform) -> np.ndarray:
    """Return for each sentence of the target the sums of its distances with τ near 0, of those at τ = 1, of its words, and of
    squares of its vectors less the mean, by dimension; float64 `[n, 4]`."""
    x, y = (torch.from_numpy(np.asarray(side.data[covered_words(side)], dtype=np.float32)) for side in (source, target))
    lengths = words_with_vectors(target)
    matched = MatchedSentences(words_with_vectors(source), lengths)
    moved = transform(x)
    each = [attention_distance(moved, y, matched, temperature=tau).double().numpy() for tau in (_SHARPEST, 1.0)]
    spread = (y.double() - y.double().mean(0)).square().mean(1).numpy()
    owner = np.repeat(np.arange(len(lengths)), lengths)
    columns = (*each, np.ones(len(y)), spread)
    return np.stack([np.bincount(owner, values, minlength=len(lengths)) for values in columns], axis=1)


# -- P and R -----------------------------------------------------------------------------------------------------------
def _learn_key_points(
    found: Learnt, lang: str, learning: _Side, judging: _Side, how: Extracting, threshold: float, compare: bool
) -> None:
    """Add P of a language, what it gets right in held-out sentences, and the first of these."""
    scores: dict[str, KeyPointScores] = {}
    kinds = (not how.confident, how.confident) if compare else (how.confident,)
    for confident in kinds:  # what is kept comes last
        name = "confident labels" if confident else "labels as they are"
        trained = replace(how, confident=confident).train(learning.vectors, learning.pivots)
        scores[name] = score_key_points(trained.head, judging.vectors, judging.pivots, threshold=threshold)
        found.judged += [
            Judged("key-points", (lang, lang), name, metric, scores[name].counts, statistic)
            for metric, statistic in extracting.STATISTICS.items()
        ]
        if confident == how.confident:
            found.rates[lang] = trained.rates
            found.parts[lang] = replace(found.parts[lang], head=trained.head.cpu())
            found.counts.setdefault(lang, {}).update({f"{key} of P": n for key, n in trained.counts.items()})
    for number in range(min(_EXAMPLES, len(judging.sentences))):
        words = slice(*judging.vectors.offsets[number : number + 2])
        found.examples.append({
            "lang": lang, "sentence": number, "words": list(judging.sentences[number].words),
            "pivots": next(iter(scores.values())).marked[words].tolist(),
            "probabilities": {name: _rounded(each.probabilities[words]) for name, each in scores.items()},
        })  # fmt: skip


def _learn_order(
    found: Learnt, lang: str, pivot: str, learning: _Side, judging: _Side, how: Reordering, compare: bool
) -> None:
    """Add R of a language, what it gets right in held-out sentences, and the first of these."""
    other = "absolute" if how.kind == "relative" else "relative"
    heads = {}
    for kind in (other, how.kind) if compare else (how.kind,):
        trained = replace(how, kind=kind).train(learning.vectors, learning.pivots)
        heads[kind] = trained.head
        for beam, counts in score_order(trained.head, judging.vectors, judging.pivots).items():
            model = beam if beam == "as it stands" else f"{kind}, {beam}"
            if beam != "as it stands" or kind == how.kind:
                found.judged += [
                    Judged("order", (lang, pivot), model, metric, counts, statistic)
                    for metric, statistic in reordering.STATISTICS.items()
                ]
        if kind == how.kind:
            found.parts[lang] = replace(found.parts[lang], order=trained.head.cpu())
            found.counts[lang].update({f"{key} of R": n for key, n in trained.counts.items()})
    found.examples += order_examples(lang, judging.sentences, judging.vectors, judging.pivots, heads)


@torch.no_grad()
def order_examples(
    lang: str, sentences: Sentences, vectors: Embeddings, pivots: WordPairs, heads: Mapping[str, Order]
) -> list[dict[str, Any]]:
    """Return the first sentences that have a few key points to order, with what was found (Figure 3).

    Args:
        sentences, vectors, pivots: a text, its vectors, and its pivots.
        heads: what was trained, by its kind; in evaluation mode.

    Returns:
        of each its `words` that are key points, in the order of the sentence; the place of each in the other language,
        `ranks`, from 0; and, of the n key points, `[n][n]`: how probable each place is, `places`, and how probable it is
        that that of the row stands before that of the column, `before` (0.5 on the diagonal).
    """
    gold = LinkedOrder.of(vectors, pivots)
    rows, begins = chosen_rows(vectors, gold), np.concatenate([[0], np.cumsum(gold.lengths)])
    found = []
    for number in np.flatnonzero((gold.lengths >= _FEWEST) & (gold.lengths <= _MOST))[:_EXAMPLES].tolist():
        n, own = int(gold.lengths[number]), slice(begins[number], begins[number + 1])
        positions, words = gold.positions[own], sentences[number].words
        about = {"words": [words[k] for k in positions.tolist()], "ranks": gold.ranks[own].tolist()}
        for head in heads.values():
            device = next(head.parameters()).device
            said = head(rows[own].to(device), torch.from_numpy(positions), torch.tensor([n])).cpu().numpy()
            if isinstance(head, AbsoluteOrder):
                about["places"] = _rounded(np.exp(said)[:, np.minimum(np.arange(n), head.most - 1)])
            else:
                table = np.zeros((n, n))
                table[np.triu_indices(n, 1)] = said
                about["before"] = _rounded(1.0 / (1.0 + np.exp(table.T - table)))
        found.append({"lang": lang, "sentence": number, **about})
    return found


def _rounded(values: np.ndarray) -> list[Any]:
    return values.astype(np.float64).round(3).tolist()
