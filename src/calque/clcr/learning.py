"""Parallel text, and what is learnt from its pivots: which words of a sentence are key points (extract), and their order in
another language (reorder); with what is right on held-out text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.alignment.base import Judged
from calque.clcr.encoder import Parts, Step
from calque.clcr.networks import ORDERS, AbsoluteOrder, KeyPointHead, Order
from calque.clcr.noisy_labels import FlipRates, absolute_error, flip_rates, importance
from calque.clcr.pivots import covered_words, find_pivots, words_with_vectors
from calque.clcr.transform import Transform, attention_distance
from calque.distributed import Processes
from calque.encoders.base import Encoder
from calque.errors import SettingError
from calque.linking import digest_of
from calque.nn.matched import MatchedSentences
from calque.nn.pooling import sums
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.tasks.bootstrap import ratio
from calque.text import ParallelCorpus, Sentences
from calque.training.sources import ChosenWords, SubsetSource, WordRows
from calque.training.supervised import Supervised
from calque.vectors import Embeddings

H = TypeVar("H", bound=nn.Module)
Statistic = Callable[[np.ndarray], np.ndarray]

_HIDDEN, _DROPOUT = 256, 0.1  # of the heads
_QUANTILE = 0.05  # of the words, at each end, whose labels give the flip rates
_FOLDS = 2  # parts of the text, each predicted by a classifier of the others
_AMBIGUOUS = (0.2, 0.8)
_LONGEST = 4  # n-grams
_SHARPEST = 1e-3  # τ at which the attention is to the nearest word alone
_EXAMPLES = 5  # sentences of each kind that are kept for the report
_FEWEST, _MOST = 4, 16  # key points of a sentence whose order is shown: something to order, and a matrix one can read


# -- the text -----------------------------------------------------------------------------------------------------------
@dataclass
class PairedText:
    """Sentences of a language and their translations in the pivot language.

    Attributes:
        lang: the language.
        corpus: source in `lang`, target in the pivot language; without the pairs that are too long or have an empty side.
        links: their word links, if there are any.
        vectors, pivot_vectors: of both sides, by the encoders as they were given.
        train, held_out: int64, numbers of sentence pairs in `corpus`.
        counts: pairs that are `trained` on, `held_out`, `too_long`, or `empty`: with a side that has no word, or none that its
            encoder has a vector for.
    """

    lang: str
    corpus: ParallelCorpus
    links: WordPairs | None
    vectors: Embeddings
    pivot_vectors: Embeddings
    train: np.ndarray
    held_out: np.ndarray
    counts: dict[str, int]

    @cached_property
    def fingerprint(self) -> list[str]:
        """Hashes over the words of both sides, and over which pairs are trained on."""
        trained = hashlib.blake2b(self.train.tobytes(), digest_size=16).hexdigest()
        return [digest_of(self.corpus.source), digest_of(self.corpus.target), trained]


def paired_texts(
    encoders: Mapping[str, Encoder],
    corpora: Sequence[ParallelCorpus],
    links: Sequence[WordPairs] | None,
    *,
    pivot: str,
    max_words: int | None,
    held_out: float,
    seed: int,
    progress: bool = False,
) -> list[PairedText]:
    """Lay out each corpus, and encode it.

    Args:
        corpora: each of the pivot language and another one.
        links: of each corpus; None for none.
        max_words: pairs with a longer side are left out; None keeps all.
        held_out: fraction of the pairs that is not trained on.
        seed: of which these are.

    Raises:
        SettingError: languages that do not fit, an encoder that is missing, or nothing to train on.
    """
    texts: list[PairedText] = []
    for number, corpus in enumerate(corpora):
        linked = None if links is None else links[number].check(corpus)
        if corpus.side(pivot) == "source":
            corpus, linked = corpus.swapped(), None if linked is None else linked.swapped()
        lang = corpus.langs[0]
        if missing := [each for each in corpus.langs if each not in encoders]:
            raise SettingError(f"no encoder for language {missing[0]!r}, there are those of {', '.join(encoders)}")
        if any(text.lang == lang for text in texts):
            raise SettingError(f"two corpora of {lang}-{pivot}: join them to one")
        lengths = np.stack([corpus.source.lengths(), corpus.target.lengths()])
        empty = lengths.min(0) == 0
        long = ~empty & (lengths.max(0) > (np.inf if max_words is None else max_words))
        usable = np.flatnonzero(~empty & ~long)
        corpus, linked = corpus.take(usable), None if linked is None else linked.take(usable)
        vectors = encoders[lang].encode(corpus.source, progress=progress)
        pivot_vectors = encoders[pivot].encode(corpus.target, progress=progress)
        filled = np.flatnonzero((words_with_vectors(vectors) > 0) & (words_with_vectors(pivot_vectors) > 0))
        train, kept = _divided(filled, held_out, seed)
        counts = {"trained": len(train), "held_out": len(kept), "too_long": int(long.sum()),
                  "empty": int(empty.sum()) + len(corpus) - len(filled)}  # fmt: skip
        if not len(train):
            raise SettingError(
                f"nothing to train on: of the {len(lengths[0])} sentence pairs of {lang}-{pivot}, {counts['empty']} have a side "
                f"without a word that its encoder has a vector for, {counts['too_long']} are too long"
            )
        texts.append(PairedText(lang, corpus, linked, vectors, pivot_vectors, train, kept, counts))
    return texts


def _divided(numbers: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide sentence pairs into those trained on and those held out, both in the order of the text; at least one is held
    out if there is a share."""
    n = min(len(numbers) - 1, max(1, round(share * len(numbers)))) if share and len(numbers) else 0
    kept = np.zeros(len(numbers), dtype=bool)
    kept[np.random.default_rng(seed).permutation(len(numbers))[:n]] = True
    return numbers[~kept], numbers[kept]


# -- extract -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class HeadTraining:
    """How heads are trained on stored vectors: the rate rises over the first 5% of the updates, and falls linearly after them.

    Args:
        epochs, seed: see `Supervised`.
        progress: show a bar on standard error.
    """

    epochs: float = 10.0
    seed: int = 0
    progress: bool = False

    def fit(
        self,
        make: Callable[[], H],
        embeddings: Embeddings,
        chosen: np.ndarray,
        losses: Callable[[H, WordRows, np.ndarray], Tensor],
        questions: np.ndarray,
        *,
        name: str,
    ) -> H:
        """Return the head that minimises the mean loss over all questions.

        Args:
            make: the head, with the weights to begin with; the random state is that of the seed.
            chosen: bool `[n_words]`, the words that the head sees.
            losses: of the head, for the texts given, summed over the questions of each, `[S]`; it gets the numbers of the
                words given among those chosen, int64 `[W]`.
            questions: int `[n_sentences]`; a sentence without any is left out.
        """
        asked = np.flatnonzero(questions)
        if not len(asked):
            raise SettingError(f"{name}: no sentence to learn from; there are too few links, or words without vectors")
        processes, usual = Processes.alone(), float(questions[asked].mean())
        torch.manual_seed(self.seed)
        head = make().to(processes.device)
        source = ChosenWords(embeddings, chosen, processes.device)
        Supervised(epochs=self.epochs, learning_rate=2e-3, warmup=0.05, decay="linear", seed=self.seed).fit(
            head, SubsetSource(source, asked),
            lambda given: losses(head, given, source.places(given.numbers)) / usual,
            processes=processes, progress=self.progress, title=name,
        )  # fmt: skip
        return head


def linked_words(embeddings: Embeddings, pairs: WordPairs) -> np.ndarray:
    """Return whether each word has a vector and is the source word of a link, bool `[n_words]`."""
    linked = np.zeros(embeddings.n_words, dtype=bool)
    linked[embeddings.rows(pairs.sentence, pairs.source)] = True
    return linked & covered_words(embeddings)


def train_key_points(
    embeddings: Embeddings,
    pivots: WordPairs,
    training: HeadTraining,
    *,
    confident: bool = True,
    as_published: bool = False,
) -> tuple[KeyPointHead, dict[str, int], dict[str, float]]:
    """Learn which words of a language are key points (CLCR, §3.2).

    Pivots are noisy labels: with another translation, other words would have a partner. Confident labels correct for that,
    see `noisy_labels`, where held-out labels say that there is something to correct.

    Args:
        embeddings: vectors of the sentences of one language.
        pivots: links whose source words are of that language.
        confident: weight the labels by what their flip rates say (Table 2, "Confident labels") if that lowers the mean
            absolute error of held-out labels; else take them as they are.
        as_published: estimate the rates by the minimum of predictions on the text that was trained on, and always use them.

    Returns:
        the head; the number of `words`, of those `labelled`, and of those `without_vector`; and the flip rates `positive` and
        `negative`, whether they were `used`, and the error of held-out labels `with_rates` and `without`. No rates are
        estimated unless `confident`.
    """
    linked, covered = linked_words(embeddings, pivots), covered_words(embeddings)
    labels = linked[covered]
    counts = {"words": len(labels), "labelled": int(labels.sum()), "without_vector": int((~covered).sum())}
    about: dict[str, float] = {}
    weights = np.ones(len(linked))
    if confident and len(labels):
        folds = 1 if as_published else _FOLDS
        probabilities = _predicted(embeddings, covered, linked, folds, training)[covered]
        rates = flip_rates(probabilities, labels, quantile=0.0 if as_published else _QUANTILE)
        without = absolute_error(probabilities, labels, FlipRates(0.0, 0.0))
        error = absolute_error(probabilities, labels, rates)
        used = rates.left > 0 and (as_published or error <= without)
        about = {**asdict(rates), "used": used, "with_rates": error, "without": without}
        if used:
            weights[covered] = importance(probabilities, labels, rates)
    return _classifier(embeddings, covered, linked, weights, training, "key-points"), counts, about


def _predicted(
    embeddings: Embeddings, covered: np.ndarray, linked: np.ndarray, folds: int, training: HeadTraining
) -> np.ndarray:
    """Return P̂ of each word by a plain classifier, float32 `[n_words]`: each part of the text is predicted by one that was
    trained on the others, as a classifier that has learnt a wrong label is sure of it; a single part by its own."""
    filled = _per_sentence(embeddings, covered) > 0
    folds = min(folds, int(filled.sum()))
    dealt = np.cumsum(filled) % folds  # of sentences that have something to learn from, each part gets as many
    of_word = np.repeat(dealt, np.diff(embeddings.offsets))
    out = np.zeros(embeddings.n_words, dtype=np.float32)
    for fold in range(folds):
        others = covered & (of_word != fold) if folds > 1 else covered
        head = _classifier(embeddings, others, linked, np.ones(len(linked)), training, f"key-points-{fold + 1}")
        mine = of_word == fold
        out[mine] = head.probabilities(embeddings.data)[mine]
    return out


def _classifier(
    embeddings: Embeddings,
    chosen: np.ndarray,
    linked: np.ndarray,
    weights: np.ndarray,
    training: HeadTraining,
    name: str,
) -> KeyPointHead:
    """Train a classifier of the chosen words, each with its weight."""
    labels, weighing = (torch.from_numpy(each[chosen].astype(np.float32)) for each in (linked, weights))

    def losses(head: KeyPointHead, given: WordRows, places: np.ndarray) -> Tensor:
        device, which = given.rows.device, torch.from_numpy(places)
        each = F.binary_cross_entropy_with_logits(
            head(given.rows), labels[which].to(device), weighing[which].to(device), reduction="none"
        )
        return sums(each[:, None], given.lengths)[:, 0]

    questions = _per_sentence(embeddings, chosen)
    return training.fit(
        lambda: KeyPointHead(embeddings.dim, _HIDDEN, _DROPOUT), embeddings, chosen, losses, questions, name=name
    )


def _per_sentence(embeddings: Embeddings, table: np.ndarray) -> np.ndarray:
    """Return the sums over the words of each sentence, int64 `[n_sentences, …]`."""
    running = np.concatenate([np.zeros((1, *table.shape[1:]), dtype=np.int64), np.cumsum(table, axis=0)])
    return np.diff(running[embeddings.offsets], axis=0)


def score_key_points(
    head: KeyPointHead, embeddings: Embeddings, pivots: WordPairs, *, threshold: float = 0.2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compare a classifier with the pivots of a text that it has not seen (Table 2).

    Args:
        embeddings, pivots: as in `train_key_points`.
        threshold: δ: a word with P > δ is predicted to be a pivot.

    Returns:
        the probability of each word, float32 `[n_words]`; whether it is a pivot, bool `[n_words]`; and sums of which
        `OF_KEY_POINTS` are made, int64 `[n_sentences, 6]`, over the words that have a vector: words, those predicted rightly,
        pivots predicted, words predicted to be pivots, pivots, and words whose probability is neither low nor high.
    """
    marked, probabilities = linked_words(embeddings, pivots), head.probabilities(embeddings.data)
    said, (low, high) = probabilities > threshold, _AMBIGUOUS
    between = (probabilities > low) & (probabilities < high)
    outcomes = (np.ones_like(said), said == marked, said & marked, said, marked, between)
    table = np.stack(outcomes, axis=1) & covered_words(embeddings)[:, None]
    return probabilities, marked, _per_sentence(embeddings, table)


def share(part: int, whole: int) -> Statistic:
    """Return a statistic of sums `[…, n]`: one of them divided by another, NaN where that is 0."""
    return lambda total: ratio(np.asarray(total[..., part], dtype=np.float64), total[..., whole])


#: figures of Table 2, and the fraction of words that are judged neither way, from sums of `score_key_points`
OF_KEY_POINTS: Mapping[str, Statistic] = {
    "accuracy": share(1, 0),
    "precision": share(2, 3),
    "recall": share(2, 4),
    "ambiguous": share(5, 0),
}


# -- reorder -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LinkedOrder:
    """The key points of each sentence, and the order of the words that they are linked to.

    Attributes:
        chosen: bool `[n_words]`, the words that are key points; none in sentences that have too few to be ordered.
        rows: float32 `[K, dim]`, the vectors of the key points.
        positions: int64 `[K]`, of each key point in its sentence.
        ranks: int64 `[K]`, its place among those of its sentence in the other language, from 0.
        lengths: int64 `[n_sentences]`, key points of each sentence.
        skipped: links that are not one to one, links to a word without a vector, and sentences with one key point or none.
    """

    chosen: np.ndarray
    rows: Tensor
    positions: np.ndarray
    ranks: np.ndarray
    lengths: np.ndarray
    skipped: dict[str, int]

    @classmethod
    def of(cls, embeddings: Embeddings, pairs: WordPairs) -> LinkedOrder:
        """Build from vectors of the source language and links to the other."""
        single = pairs.one_to_one()
        kept = covered_words(embeddings)[embeddings.rows(single.sentence, single.source)]
        lengths = np.bincount(single.sentence[kept], minlength=len(embeddings))
        skipped = {
            "links_not_one_to_one": len(pairs) - len(single),
            "links_without_vector": int((~kept).sum()),
            "sentences_with_fewer_than_2_key_points": int((lengths < 2).sum()),
        }
        single = single.select(kept & (lengths[single.sentence] >= 2))
        single = single.select(np.lexsort((single.source, single.sentence)))
        lengths = np.where(lengths < 2, 0, lengths)
        chosen = np.zeros(embeddings.n_words, dtype=bool)
        chosen[embeddings.rows(single.sentence, single.source)] = True
        ranks = np.empty(len(single), dtype=np.int64)
        by_target = np.lexsort((single.target, single.sentence))
        ranks[by_target] = np.arange(len(single)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        rows = torch.from_numpy(np.asarray(embeddings.data[chosen], dtype=np.float32))
        return cls(chosen, rows, single.source, ranks, lengths, skipped)


def train_order(
    embeddings: Embeddings, pivots: WordPairs, training: HeadTraining, kind: str = "relative"
) -> tuple[Order, dict[str, int]]:
    """Learn the order of the pivots of each sentence, which the other language has in the order of their partners (CLCR, §3.3).

    Args:
        embeddings: vectors of the sentences of one language.
        pivots: links whose source words are of that language, and whose target words are of the language whose order
            is wanted. Words with several links say nothing of the order and are counted.
        kind: "relative": which of two key points stands first (Eq. 8); "absolute": the place of each (Eq. 6).

    Returns:
        the model; and the number of `sentences`, of `key_points`, and of what was left out, see `LinkedOrder`.
    """
    gold = LinkedOrder.of(embeddings, pivots)
    if not gold.lengths.any():
        raise SettingError(
            f"no order can be learnt from {len(pivots)} pivots in {len(embeddings)} sentences, of which none has two: give "
            "more text, or leave the step out (steps=transform,extract)"
        )
    positions, ranks, model = torch.from_numpy(gold.positions), torch.from_numpy(gold.ranks), ORDERS[kind]

    def losses(head: Order, given: WordRows, places: np.ndarray) -> Tensor:
        which = torch.from_numpy(places)
        return head.losses(given.rows, positions[which], given.lengths, ranks[which])

    head: Order = training.fit(
        lambda: model(embeddings.dim, hidden=_HIDDEN, dropout=_DROPOUT), embeddings, gold.chosen, losses,
        model.questions(gold.lengths), name=f"order-{kind}",
    )  # fmt: skip
    return head, {"sentences": int((gold.lengths > 0).sum()), "key_points": len(gold.ranks), **gold.skipped}


def score_order(
    head: Order, embeddings: Embeddings, pivots: WordPairs, *, beams: Sequence[int] = (1, 10)
) -> dict[str, np.ndarray]:
    """Compare the order that a model gives the pivots of a text that it has not seen with that in the other language
    (Table 3).

    Args:
        embeddings, pivots: as in `train_order`.
        beams: n of the search.

    Returns:
        sums of which `OF_ORDER` are made, int64 `[n_ordered, 8]`, for the order "as it stands", and for that of each beam,
        "n = 1": see `ngram_counts`; of the sentences that have at least two key points.
    """
    gold = LinkedOrder.of(embeddings, pivots)
    orders = {"as it stands": np.arange(len(gold.ranks)) - np.repeat(offsets_of(gold.lengths)[:-1], gold.lengths)}
    rows, positions = gold.rows.to(next(head.parameters()).device), torch.from_numpy(gold.positions)
    lengths = torch.from_numpy(gold.lengths)
    orders |= {f"n = {beam}": head.search(rows, positions, lengths, beam)[0] for beam in beams}
    kept = gold.lengths > 0
    return {name: ngram_counts(order, gold.ranks, gold.lengths)[kept] for name, order in orders.items()}


def ngram_counts(order: np.ndarray, ranks: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Count the n-grams of an order that the right order has as well.

    Every key point is a symbol of its own, so an n-gram is found again where n neighbours are neighbours there too, and in
    the same order; there is nothing to clip, and both orders are of the same length.

    Args:
        order: int64 `[K]`, numbers of the key points of each sentence in the order found.
        ranks: int64 `[K]`, place of each key point in the right order.
        lengths: int64 `[n_sentences]`.

    Returns:
        int64 `[n_sentences, 8]`: n-grams found again for n = 1 to 4, and n-grams for n = 1 to 4; a sentence of fewer than n
        key points has none.
    """
    offsets = offsets_of(lengths)
    placed = ranks[np.repeat(offsets[:-1], lengths) + order]
    left = np.repeat(offsets[1:], lengths) - np.arange(len(order))  # key points from here to the end of the sentence
    owner, found = np.repeat(np.arange(len(lengths)), lengths), np.ones(len(order), dtype=bool)
    out = np.zeros((len(lengths), 2 * _LONGEST), dtype=np.int64)
    follows = np.append(placed[1:] == placed[:-1] + 1, False)
    for n in range(1, _LONGEST + 1):
        inside = left >= n
        if n > 1:
            found &= np.append(follows[n - 2 :], np.zeros(n - 2, dtype=bool))[: len(found)]
        out[:, n - 1] = np.bincount(owner[found & inside], minlength=len(lengths))
        out[:, _LONGEST + n - 1] = np.bincount(owner[inside], minlength=len(lengths))
    return out


#: Figures of Table 3 from sums of `score_order`. BLEU-n is the fraction of n-grams that are right. That is how Table 3 reads
#: ("2-gram predictions correct over half of the time" is said of 0.582): the geometric mean (Papineni et al. 2002) would be
#: √0.582 at least, as all 1-grams are right. The brevity penalty is 1.
OF_ORDER: Mapping[str, Statistic] = {f"bleu-{n}": share(n - 1, _LONGEST + n - 1) for n in (2, 3, 4)}


# -- from transforms to key points --------------------------------------------------------------------------------------
@dataclass
class Transformed:
    """What the first step gives.

    Attributes:
        encoders: of each language, fine-tuned if they can be.
        to_pivot, from_pivot: by language, the transforms into the space of the pivot language's encoder and back.
        thresholds: by language, the highest cost of a pivot, see `choose_threshold`; infinite where nothing tells.
        f1: by language, what the threshold gave on held-out text, if it was chosen there.
        history: by phase (`transform-de`, `encoder-de`, and of the pivot `encoder-en`), the metrics of every update: the
            distances `de-en`, D(T(s_de) ‖ s_en), and `en-de`, their sum `loss`, and the `temperature`. They are in units
            of the variance of a component, if the vectors were scaled.
        texts: what was trained on, and what was held out.
    """

    encoders: dict[str, Encoder]
    to_pivot: dict[str, Transform]
    from_pivot: dict[str, Transform]
    thresholds: dict[str, float]
    f1: dict[str, float]
    history: dict[str, list[dict[str, float]]]
    texts: list[PairedText] = field(repr=False)


@dataclass
class Learnt:
    """What `learn` found.

    Attributes:
        parts: of each language.
        counts: of words, sentences and key points, by language.
        rates: flip rates of the labels of P by language, see `train_key_points`.
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

    @classmethod
    def joined(cls, sides: Sequence[_Side]) -> _Side:
        """Return the sentences of several texts as one."""
        starts = np.cumsum([0, *(len(side.vectors) for side in sides)])
        pairs = [
            (side.pivots.sentence + start, side.pivots.source, side.pivots.target)
            for side, start in zip(sides, starts, strict=False)
        ]
        return cls(
            Sentences.joined([side.sentences for side in sides]),
            Embeddings.joined([side.vectors for side in sides]),
            WordPairs(*map(np.concatenate, zip(*pairs, strict=True)), n_sentences=int(starts[-1])),
        )


def learn(
    first: Transformed,
    *,
    pivot: str,
    steps: Sequence[Step],
    training: HeadTraining,
    compare: bool = False,
    as_published: bool = False,
    progress: bool = False,
) -> Learnt:
    """Learn P of every language, and R of every one but the pivot.

    Args:
        first: encoders, transforms and texts; of each text P and R are learnt from `train` and scored on `held_out`.
        steps: those wanted; with "transform" alone there is nothing to learn.
        training: how P and R are trained.
        compare: also train what Tables 2 and 3 compare with: P from labels as they are, R of places.
        as_published: see `train_key_points`.
    """
    found = Learnt({pivot: Parts()})
    by_text = {text.lang: _sides(first, text, pivot, progress) for text in first.texts}
    for lang, (n, own, of_pivot) in by_text.items():
        found.parts[lang] = Parts(first.to_pivot[lang], first.from_pivot[lang])
        found.counts[lang] = {"pivots": n}
        for transform, x, y, langs in (
            (first.to_pivot[lang], own[1], of_pivot[1], (lang, pivot)),
            (first.from_pivot[lang], of_pivot[1], own[1], (pivot, lang)),
        ):
            sums = distance_sums(x.vectors, y.vectors, transform)
            found.judged += [Judged("distance", langs, "transform", metric, sums, statistic, percent=False)
                             for metric, statistic in OF_DISTANCE.items() if len(sums)]  # fmt: skip
    languages = {pivot: [of_pivot for _, _, of_pivot in by_text.values()]}
    languages |= {lang: [own] for lang, (_, own, _) in by_text.items()}
    for lang, parts in languages.items() if "extract" in steps else ():
        learning, judging = (_Side.joined([each[k] for each in parts]) for k in range(2))
        _learn_key_points(found, lang, learning, judging, training, compare, as_published)
    for lang, (_, own, _) in by_text.items() if "reorder" in steps else ():
        learn_order(found, lang, pivot, own[0], own[1], training, compare)
    return found


def _sides(first: Transformed, text: PairedText, pivot: str, progress: bool) -> tuple[int, list[_Side], list[_Side]]:
    """Return the number of pivots of a text, its own side and that of the pivot language: what is trained on, and what is
    held out, of each."""
    vectors = first.encoders[text.lang].encode(text.corpus.source, progress=progress)
    pivot_vectors = first.encoders[pivot].encode(text.corpus.target, progress=progress)
    every = find_pivots(vectors, pivot_vectors, first.to_pivot[text.lang], first.from_pivot[text.lang])
    pairs = every.within(first.thresholds[text.lang])
    own, of_pivot = [], []
    for numbers in (text.train, text.held_out):
        corpus, some = text.corpus.take(numbers), pairs.take(numbers)
        own.append(_Side(corpus.source, vectors.take(numbers), some))
        of_pivot.append(_Side(corpus.target, pivot_vectors.take(numbers), some.swapped()))
    return len(pairs), own, of_pivot


@torch.no_grad()
def distance_sums(source: Embeddings, target: Embeddings, transform: Transform) -> np.ndarray:
    """Return for each sentence of the target the sums of its distances with τ near 0, where every word finds the nearest alone
    (Eq. 2), of those at τ = 1, of its words, and of squares of its vectors less the mean, by dimension; float64 `[n, 4]`."""
    x, y = (torch.from_numpy(np.asarray(side.data[covered_words(side)], dtype=np.float32)) for side in (source, target))
    lengths = words_with_vectors(target)
    matched = MatchedSentences(words_with_vectors(source), lengths)
    moved = transform(x)
    each = [attention_distance(moved, y, matched, temperature=tau).double().numpy() for tau in (_SHARPEST, 1.0)]
    spread = (y.double() - y.double().mean(0)).square().mean(1).numpy()
    owner = np.repeat(np.arange(len(lengths)), lengths)
    columns = (*each, np.ones(len(y)), spread)
    return np.stack([np.bincount(owner, values, minlength=len(lengths)) for values in columns], axis=1)


#: Figures of Table 1 from sums of `distance_sums`: the mean squared distance by dimension, and the same divided by the mean
#: variance of a component; and the distance at τ = 1, where models may stand in another order.
OF_DISTANCE = {"distance": share(0, 2), "relative distance": share(0, 3), "soft distance": share(1, 2)}


def _learn_key_points(
    found: Learnt, lang: str, learning: _Side, judging: _Side, training: HeadTraining, compare: bool, as_published: bool
) -> None:
    """Add P of a language, what it gets right in held-out sentences, and the first of these."""
    given = {}
    for confident in (False, True) if compare else (True,):  # what is kept comes last
        name = "confident labels" if confident else "labels as they are"
        head, counts, rates = train_key_points(
            learning.vectors, learning.pivots, training, confident=confident, as_published=as_published
        )
        given[name], _, sums = score_key_points(head, judging.vectors, judging.pivots)
        found.judged += [
            Judged("key-points", (lang, lang), name, metric, sums, statistic)
            for metric, statistic in OF_KEY_POINTS.items()
        ]
        found.rates[lang] = rates
        found.parts[lang] = replace(found.parts[lang], head=head.cpu())
        found.counts.setdefault(lang, {}).update({f"{key} of P": n for key, n in counts.items()})
    marked = linked_words(judging.vectors, judging.pivots)
    for number in range(min(_EXAMPLES, len(judging.sentences))):
        words = slice(*judging.vectors.offsets[number : number + 2])
        found.examples.append({
            "lang": lang, "sentence": number, "words": list(judging.sentences[number].words),
            "pivots": marked[words].tolist(),
            "probabilities": {name: _rounded(each[words]) for name, each in given.items()},
        })  # fmt: skip


def learn_order(
    found: Learnt, lang: str, pivot: str, learning: _Side, judging: _Side, training: HeadTraining, compare: bool
) -> None:
    """Add R of a language, what it gets right in held-out sentences, and the first of these."""
    heads = {}
    for kind in ("absolute", "relative") if compare else ("relative",):  # what is kept comes last
        heads[kind], counts = train_order(learning.vectors, learning.pivots, training, kind)
        found.counts[lang].update({f"{key} of R": n for key, n in counts.items()})
        for beam, counted in score_order(heads[kind], judging.vectors, judging.pivots).items():
            model = beam if beam == "as it stands" else f"{kind}, {beam}"
            if beam != "as it stands" or kind == "relative":
                found.judged += [
                    Judged("order", (lang, pivot), model, metric, counted, statistic)
                    for metric, statistic in OF_ORDER.items()
                ]
    found.parts[lang] = replace(found.parts[lang], order=heads["relative"].cpu())
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
    begins, found = np.concatenate([[0], np.cumsum(gold.lengths)]), []
    for number in np.flatnonzero((gold.lengths >= _FEWEST) & (gold.lengths <= _MOST))[:_EXAMPLES].tolist():
        n, own = int(gold.lengths[number]), slice(begins[number], begins[number + 1])
        positions, words = gold.positions[own], sentences[number].words
        about = {"words": [words[k] for k in positions.tolist()], "ranks": gold.ranks[own].tolist()}
        for head in heads.values():
            device = next(head.parameters()).device
            said = head(gold.rows[own].to(device), torch.from_numpy(positions), torch.tensor([n])).cpu().numpy()
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
