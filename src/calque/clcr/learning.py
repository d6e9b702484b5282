"""Parallel text, and heads trained on its pivots: classifiers of key points (extract) and models of their order in
another language (reorder), with held-out scores."""

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

from calque.alignment.base import HeldOutScore
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
        lang: language of the source side.
        corpus: parallel text from `lang` to the pivot language, without pairs that are too long or have an empty side.
        links: alignment links of the corpus, if given.
        vectors, pivot_vectors: vectors of both sides, by the encoders before training.
        train, held_out: indices of sentence pairs in `corpus`, int64.
        counts: number of pairs `trained` on, `held_out`, `too_long` and `empty`; a pair is empty if one side has no
            word with a vector.
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
        """Hashes of the words of both sides, and of the indices of the training pairs."""
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
    """Prepare each corpus for training, and encode it.

    Args:
        corpora: parallel texts, each between the pivot language and another.
        links: alignment links of each corpus; None for none.
        max_words: maximum number of words of either side; longer pairs are left out. None keeps all pairs.
        held_out: fraction of the pairs held out from training.
        seed: random seed of the choice of held-out pairs.

    Raises:
        SettingError: languages that do not match, a missing encoder, or nothing to train on.
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
    """Split sentence pairs into training and held-out pairs, both in text order; a positive share holds out at least
    one pair."""
    n = min(len(numbers) - 1, max(1, round(share * len(numbers)))) if share and len(numbers) else 0
    kept = np.zeros(len(numbers), dtype=bool)
    kept[np.random.default_rng(seed).permutation(len(numbers))[:n]] = True
    return numbers[~kept], numbers[kept]


# -- extract -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class HeadTraining:
    """Training of heads on stored vectors; the learning rate rises over the first 5% of the updates and then falls
    linearly.

    Args:
        epochs, seed: see `Supervised`.
        progress: show a progress bar on standard error.
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
        """Return a head trained to minimise the mean loss over all predictions.

        Args:
            make: function that builds the initial head; the random state is set from the seed.
            chosen: mask of the words that the head reads, bool `[n_words]`.
            losses: function of the head, the vectors of a batch, and the indices of its words among the chosen words,
                int64 `[W]`; returns the loss summed over the predictions of each text, `[S]`.
            questions: number of predictions of each sentence, int `[n_sentences]`; sentences with 0 are left out.
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
    """Return the mask of words that have a vector and are the source word of a link, bool `[n_words]`."""
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
    """Train a classifier of the key points of a language (CLCR, §3.2).

    Pivots are noisy labels: with another translation, other words would have a partner. Confident labels correct for
    this noise (see `noisy_labels`), if held-out labels show that a correction is needed.

    Args:
        embeddings: vectors of the sentences of one language.
        pivots: links whose source words are of that language.
        confident: weight the labels by their flip rates (Table 2, "Confident labels") if the weights do not raise the
            mean absolute error of held-out labels; else leave them unweighted.
        as_published: estimate the rates from the minimum of predictions on the training text, and always use them.

    Returns:
        the head; the number of `words`, of `labelled` words and of words `without_vector`; and, if `confident`, the
        flip rates `positive` and `negative`, whether they were `used`, and the error of held-out labels `with_rates`
        and `without` them.
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
    """Return P̂ of each word by a plain classifier, float32 `[n_words]`. Each fold is predicted by a classifier trained
    on the other folds, since a classifier is confident of wrong labels in its training text. A single fold is
    predicted by its own classifier."""
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
    """Train a classifier on the chosen words, with a weight for each word."""
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
    """Return the sums of a table over the words of each sentence, int64 `[n_sentences, …]`."""
    running = np.concatenate([np.zeros((1, *table.shape[1:]), dtype=np.int64), np.cumsum(table, axis=0)])
    return np.diff(running[embeddings.offsets], axis=0)


def score_key_points(
    head: KeyPointHead, embeddings: Embeddings, pivots: WordPairs, *, threshold: float = 0.2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Score a classifier against the pivots of held-out text (Table 2).

    Args:
        embeddings, pivots: as in `train_key_points`.
        threshold: threshold δ: words with P > δ are predicted to be pivots.

    Returns:
        the probability of each word, float32 `[n_words]`; the mask of pivots, bool `[n_words]`; and the counts that
        `OF_KEY_POINTS` uses, int64 `[n_sentences, 6]`, over words with a vector: words, correct predictions, correctly
        predicted pivots, predicted pivots, pivots, and words whose probability is neither low nor high.
    """
    marked, probabilities = linked_words(embeddings, pivots), head.probabilities(embeddings.data)
    said, (low, high) = probabilities > threshold, _AMBIGUOUS
    between = (probabilities > low) & (probabilities < high)
    outcomes = (np.ones_like(said), said == marked, said & marked, said, marked, between)
    table = np.stack(outcomes, axis=1) & covered_words(embeddings)[:, None]
    return probabilities, marked, _per_sentence(embeddings, table)


def share(part: int, whole: int) -> Statistic:
    """Return a statistic of sums `[…, n]`: column `part` divided by column `whole`, NaN where `whole` is 0."""
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
    """Key points of each sentence, and the order of their linked words in the other language.

    Attributes:
        chosen: mask of key points, bool `[n_words]`; empty in sentences with fewer than two key points.
        rows: vectors of the key points, float32 `[K, dim]`.
        positions: index of each key point in its sentence, int64 `[K]`.
        ranks: place of each key point among its sentence's key points in the other language, from 0, int64 `[K]`.
        lengths: number of key points of each sentence, int64 `[n_sentences]`.
        skipped: number of links that are not one-to-one, of links to a word without a vector, and of sentences with
            fewer than two key points.
    """

    chosen: np.ndarray
    rows: Tensor
    positions: np.ndarray
    ranks: np.ndarray
    lengths: np.ndarray
    skipped: dict[str, int]

    @classmethod
    def of(cls, embeddings: Embeddings, pairs: WordPairs) -> LinkedOrder:
        """Build from vectors of the source language and links to the other language."""
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
    """Train a model of the order of each sentence's pivots in the other language (CLCR, §3.3).

    Args:
        embeddings: vectors of the sentences of one language.
        pivots: links from that language to the language whose order is predicted. Words with several links are counted
            and left out.
        kind: "relative" predicts which of two key points is first (Eq. 8); "absolute" predicts the place of each (Eq.
            6).

    Returns:
        the model; and the number of `sentences`, of `key_points`, and of skipped items, see `LinkedOrder`.
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
    """Score the predicted order of the pivots of held-out text against their order in the other language (Table 3).

    Args:
        embeddings, pivots: as in `train_order`.
        beams: beam sizes n of the search.

    Returns:
        the counts that `OF_ORDER` uses, int64 `[n_ordered, 8]`, see `ngram_counts`: of the source order under "as it
        stands", and of each beam under "n = 1" etc. Only sentences with at least two key points are counted.
    """
    gold = LinkedOrder.of(embeddings, pivots)
    orders = {"as it stands": np.arange(len(gold.ranks)) - np.repeat(offsets_of(gold.lengths)[:-1], gold.lengths)}
    rows, positions = gold.rows.to(next(head.parameters()).device), torch.from_numpy(gold.positions)
    lengths = torch.from_numpy(gold.lengths)
    orders |= {f"n = {beam}": head.search(rows, positions, lengths, beam)[0] for beam in beams}
    kept = gold.lengths > 0
    return {name: ngram_counts(order, gold.ranks, gold.lengths)[kept] for name, order in orders.items()}


def ngram_counts(order: np.ndarray, ranks: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Count the n-grams of an order that also occur in the gold order.

    Every key point is a distinct symbol, so an n-gram matches if its key points are also adjacent and in the same order
    in the gold order. No count needs clipping, and both orders have the same length.

    Args:
        order: indices of the key points of each sentence in the predicted order, int64 `[K]`.
        ranks: place of each key point in the gold order, int64 `[K]`.
        lengths: number of key points of each sentence, int64 `[n_sentences]`.

    Returns:
        int64 `[n_sentences, 8]`: number of matching n-grams for n = 1 to 4, then number of all n-grams for n = 1 to 4;
        a sentence with fewer than n key points has no n-grams.
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
    """Result of the first step.

    Attributes:
        encoders: encoder of each language, fine-tuned if it is trainable.
        to_pivot, from_pivot: by language, the transforms into the space of the pivot language's encoder and back.
        thresholds: by language, the maximum cost of a pivot, see `choose_threshold`; infinite without held-out links.
        f1: by language, the F1 of the threshold on held-out text, if it was chosen there.
        history: metrics of every update by phase (`transform-de`, `encoder-de`, and `encoder-en` for the pivot): the
            distances `de-en`, D(T(s_de) ‖ s_en), and `en-de`, their sum `loss`, and the `temperature`. For scaled
            vectors, the unit of the distances is the variance of a component.
        texts: parallel texts, with their training and held-out pairs.
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
    """Result of `learn`.

    Attributes:
        parts: trained parts of each language.
        counts: number of words, sentences and key points, by language.
        rates: flip rates of the labels of P by language, see `train_key_points`.
        held_out_scores: scores of Table 1 ("distance"), 2 ("key-points", with the language twice) and 3 ("order").
        examples: held-out sentences with the probability of each word, and matrices of their order (Figures 2 and 3).
    """

    parts: dict[str, Parts]
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    held_out_scores: list[HeldOutScore] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Side:
    """Sentences of a language, with their vectors and their pivots, which have that language as the source."""

    sentences: Sentences
    vectors: Embeddings
    pivots: WordPairs

    @classmethod
    def joined(cls, sides: Sequence[_Side]) -> _Side:
        """Concatenate the sentences of several texts."""
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
    """Train P of every language, and R of every language but the pivot.

    Args:
        first: encoders, transforms and texts; P and R are trained on `train` and scored on `held_out` of each text.
        steps: steps to train; "transform" alone trains nothing.
        training: settings for training P and R.
        compare: also train the baselines of Tables 2 and 3: P on uncorrected labels, and R of places.
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
            found.held_out_scores += [HeldOutScore("distance", langs, "transform", metric, sums, statistic, percent=False)
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
    """Return the number of pivots of a text, and the training and held-out sides of its own language and of the pivot
    language."""
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
    """Return sums over the words of each target sentence, float64 `[n, 4]`: distances with τ near 0, which match only
    the nearest word (Eq. 2); distances at τ = 1; numbers of words; and squared deviations of vectors from the mean,
    per dimension."""
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
    """Add P of a language, its held-out scores and the first held-out examples."""
    given = {}
    for confident in (False, True) if compare else (True,):  # what is kept comes last
        name = "confident labels" if confident else "labels as they are"
        head, counts, rates = train_key_points(
            learning.vectors, learning.pivots, training, confident=confident, as_published=as_published
        )
        given[name], _, sums = score_key_points(head, judging.vectors, judging.pivots)
        found.held_out_scores += [
            HeldOutScore("key-points", (lang, lang), name, metric, sums, statistic)
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
    """Add R of a language, its held-out scores and the first held-out examples."""
    heads = {}
    for kind in ("absolute", "relative") if compare else ("relative",):  # what is kept comes last
        heads[kind], counts = train_order(learning.vectors, learning.pivots, training, kind)
        found.counts[lang].update({f"{key} of R": n for key, n in counts.items()})
        for beam, counted in score_order(heads[kind], judging.vectors, judging.pivots).items():
            model = beam if beam == "as it stands" else f"{kind}, {beam}"
            if beam != "as it stands" or kind == "relative":
                found.held_out_scores += [
                    HeldOutScore("order", (lang, pivot), model, metric, counted, statistic)
                    for metric, statistic in OF_ORDER.items()
                ]
    found.parts[lang] = replace(found.parts[lang], order=heads["relative"].cpu())
    found.examples += order_examples(lang, judging.sentences, judging.vectors, judging.pivots, heads)


@torch.no_grad()
def order_examples(
    lang: str, sentences: Sentences, vectors: Embeddings, pivots: WordPairs, heads: Mapping[str, Order]
) -> list[dict[str, Any]]:
    """Return the first sentences with a few key points, with their gold and predicted orders (Figure 3).

    Args:
        sentences, vectors, pivots: sentences of a text, their vectors, and their pivots.
        heads: trained models by kind, in evaluation mode.

    Returns:
        for each sentence, its key points `words`, in sentence order, and their places in the other language `ranks`,
        from 0. For n key points, two `[n][n]` tables: `places` holds the probability of each place, and `before` the
        probability that the row's key point precedes the column's key point (0.5 on the diagonal).
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
