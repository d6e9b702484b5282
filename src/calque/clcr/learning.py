"""Train and score two heads on the pivots of parallel text: a key-point classifier (extract), and a
model of the order of key points in another language (reorder)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.alignment.base import HeldOutScore
from calque.clcr.encoder import Parts, Step
from calque.clcr.networks import ORDERS, KeyPointHead, Order
from calque.clcr.noisy_labels import FlipRates, absolute_error, flip_rates, importance
from calque.clcr.pivots import covered_words, find_pivots, words_with_vectors
from calque.clcr.transform import Transform, attention_distance
from calque.distributed import Processes
from calque.encoders.base import Encoder
from calque.errors import SettingError
from calque.input_texts import digest_of
from calque.nn.matched import MatchedSentences
from calque.nn.pooling import sums
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.tasks.bootstrap import ratio
from calque.text import ParallelCorpus
from calque.training.sources import ChosenWords, SubsetSource, WordRows
from calque.training.supervised import Supervised
from calque.vectors import Embeddings

H = TypeVar("H", bound=nn.Module)
Statistic = Callable[[np.ndarray], np.ndarray]

_HIDDEN, _DROPOUT = 256, 0.1  # hidden size and dropout of the heads
# fraction of words, those with the lowest or highest P, from which each flip rate is estimated
_QUANTILE = 0.05
_FOLDS = (
    2  # number of folds of the text; each fold is predicted by a classifier trained on the others
)
_AMBIGUOUS = (0.2, 0.8)  # probabilities between these two are called ambiguous
_LONGEST = 4  # maximum n-gram length
_SHARPEST = 1e-3  # with this τ, attention selects the nearest word


# -- the text
# --------------------------------------------------------------------------------------------------
@dataclass
class PairedText:
    """Sentences in one language and their translations into the pivot language.

    Attributes:
        lang: language of the source side.
        corpus: parallel text from `lang` to the pivot language, without pairs that are too long or
            have an empty side.
        links: word alignments of the corpus, if given.
        vectors, pivot_vectors: vectors of the two sides, computed by the encoders before training.
        train, held_out: indices of the training and held-out sentence pairs in `corpus`, int64.
        counts: number of pairs that are used for training (`trained`), `held_out`, `too_long` or
            `empty`; a pair is empty if either side has no word with a vector.
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
    """Encode each corpus, and split its sentence pairs into training and held-out pairs.

    Args:
        corpora: parallel texts, each between the pivot language and another language.
        links: word alignments of each corpus, if given.
        max_words: maximum number of words on each side; longer pairs are left out.
        held_out: fraction of pairs to hold out from training; if it is positive, at least one pair
            is held out.
        seed: seed for the random choice of held-out pairs.

    Raises:
        SettingError: the languages do not match, an encoder is missing, or there are no pairs to
            train on.
    """
    texts: list[PairedText] = []
    for number, corpus in enumerate(corpora):
        linked = None if links is None else links[number].check(corpus)
        if corpus.side(pivot) == "source":
            corpus, linked = corpus.swapped(), None if linked is None else linked.swapped()
        lang = corpus.langs[0]
        if missing := [each for each in corpus.langs if each not in encoders]:
            raise SettingError(
                f"there is no encoder for language {missing[0]!r}, only for {', '.join(encoders)}"
            )
        if any(text.lang == lang for text in texts):
            raise SettingError(
                f"every language must have one corpus, got two for {lang}-{pivot}; concatenate them"
            )
        lengths = np.stack([corpus.source.lengths(), corpus.target.lengths()])
        empty = lengths.min(0) == 0
        long = ~empty & (lengths.max(0) > (np.inf if max_words is None else max_words))
        usable = np.flatnonzero(~empty & ~long)
        corpus, linked = corpus.take(usable), None if linked is None else linked.take(usable)
        vectors = encoders[lang].encode(corpus.source, progress=progress)
        pivot_vectors = encoders[pivot].encode(corpus.target, progress=progress)
        filled = np.flatnonzero(
            (words_with_vectors(vectors) > 0) & (words_with_vectors(pivot_vectors) > 0)
        )
        n = (
            min(len(filled) - 1, max(1, round(held_out * len(filled))))
            if held_out and len(filled)
            else 0
        )
        shuffled = np.random.default_rng(seed).permutation(filled)
        train, kept = np.sort(shuffled[n:]), np.sort(shuffled[:n])
        counts = {
            "trained": len(train),
            "held_out": len(kept),
            "too_long": int(long.sum()),
            "empty": int(empty.sum()) + len(corpus) - len(filled),
        }
        if not len(train):
            raise SettingError(
                f"there is nothing to train on: of {len(lengths[0])} pairs for {lang}-{pivot}, "
                f"{counts['empty']} have a side "
                f"without word vectors, and {counts['too_long']} are too long"
            )
        texts.append(PairedText(lang, corpus, linked, vectors, pivot_vectors, train, kept, counts))
    return texts


# -- extract
# --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class HeadTraining:
    """Training settings for heads on stored vectors. The learning rate rises over the first 5% of
    the updates and then falls linearly."""

    epochs: float = 10.0
    seed: int = 0
    progress: bool = False

    def fit(
        self,
        make: Callable[[], H],
        embeddings: Embeddings,
        chosen: np.ndarray,
        losses: Callable[[H, WordRows, np.ndarray], Tensor],
        predictions: np.ndarray,
        *,
        name: str,
    ) -> H:
        """Build a head, and train it to minimise the mean loss over all predictions.

        Args:
            make: function that builds the initial head; it is called after the random seed is set.
            chosen: mask of the words whose vectors are passed to the head, bool `[n_words]`.
            losses: function that takes the head, the vectors of a batch, and the indices of the
                batch's words among the chosen words, int64 `[W]`; it returns the loss for each
                sentence, summed over the predictions, `[S]`.
            predictions: number of predictions for each sentence, int `[n_sentences]`; sentences
                without predictions are left out.
        """
        used = np.flatnonzero(predictions)
        if not len(used):
            raise SettingError(
                f"{name}: no sentence can be used for training; add links, or vectors for more "
                "words"
            )
        processes, usual = Processes.alone(), float(predictions[used].mean())
        torch.manual_seed(self.seed)
        head = make().to(processes.device)
        source = ChosenWords(embeddings, chosen, processes.device)
        Supervised(
            epochs=self.epochs, learning_rate=2e-3, warmup=0.05, decay="linear", seed=self.seed
        ).fit(
            head,
            SubsetSource(source, used),
            lambda given: losses(head, given, source.places(given.numbers)) / usual,
            processes=processes,
            progress=self.progress,
            title=name,
        )
        return head


def linked_words(embeddings: Embeddings, pairs: WordPairs) -> np.ndarray:
    """Return the mask of words that have a vector and are the source word of a link, bool
    `[n_words]`.
    """
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
    """Train a key-point classifier for one language (CLCR, §3.2).

    Pivots are noisy labels, because with a different translation, different words would be pivots.
    Confident labels correct for this noise (see `noisy_labels`) if scores on held-out labels show
    that a correction helps.

    Args:
        embeddings, pivots: vectors of sentences in one language, and links with this language as
            their source side.
        confident: whether to weight the labels by their estimated flip rates (Table 2, "Confident
            labels"). The weights are not used if they raise the mean absolute error on held-out
            labels.
        as_published: whether to always use flip rates, estimated by the minima of P̂ on the
            training text as in the paper.

    Returns:
        the head; a dict with the number of words with a vector (`words`), of pivots (`labelled`)
        and of words `without_vector`; and, if `confident`, a dict with the flip rates, whether they
        were `used`, and errors `with_rates` and `without` them.
    """
    linked, covered = linked_words(embeddings, pivots), covered_words(embeddings)
    labels = linked[covered]
    counts = {
        "words": len(labels),
        "labelled": int(labels.sum()),
        "without_vector": int((~covered).sum()),
    }
    about: dict[str, float] = {}
    weights = np.ones(len(linked))
    if confident and len(labels):
        probabilities = _predicted(
            embeddings, covered, linked, 1 if as_published else _FOLDS, training
        )[covered]
        rates = flip_rates(probabilities, labels, quantile=0.0 if as_published else _QUANTILE)
        without = absolute_error(probabilities, labels, FlipRates(0.0, 0.0))
        error = absolute_error(probabilities, labels, rates)
        used = rates.left > 0 and (as_published or error <= without)
        about = {**asdict(rates), "used": used, "with_rates": error, "without": without}
        if used:
            weights[covered] = importance(probabilities, labels, rates)
    return _classifier(embeddings, covered, linked, weights, training, "key-points"), counts, about


def _predicted(
    embeddings: Embeddings,
    covered: np.ndarray,
    linked: np.ndarray,
    folds: int,
    training: HeadTraining,
) -> np.ndarray:
    """Return P̂ of each word, predicted by an unweighted classifier, float32 `[n_words]`. Each fold
    is predicted by a classifier trained on the other folds, because a classifier also fits the
    wrong labels in its training text. With a single fold, the classifier is trained on that fold
    itself."""
    filled = _per_sentence(embeddings, covered) > 0
    folds = min(folds, int(filled.sum()))
    # Only sentences with covered words are counted, so all folds have about the same number of such
    # sentences.
    fold_of_word = np.repeat(np.cumsum(filled) % folds, np.diff(embeddings.offsets))
    out, weights = np.zeros(embeddings.n_words, dtype=np.float32), np.ones(len(linked))
    for fold in range(folds):
        mine = fold_of_word == fold
        others = covered & ~mine if folds > 1 else covered
        head = _classifier(embeddings, others, linked, weights, training, f"key-points-{fold + 1}")
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
    """Train a classifier on the chosen words, using a separate weight for each word."""
    labels, weight_of = (
        torch.from_numpy(each[chosen].astype(np.float32)) for each in (linked, weights)
    )

    def losses(head: KeyPointHead, given: WordRows, places: np.ndarray) -> Tensor:
        device, which = given.rows.device, torch.from_numpy(places)
        each = F.binary_cross_entropy_with_logits(
            head(given.rows),
            labels[which].to(device),
            weight_of[which].to(device),
            reduction="none",
        )
        return sums(each[:, None], given.lengths)[:, 0]

    predictions = _per_sentence(embeddings, chosen)
    return training.fit(
        lambda: KeyPointHead(embeddings.dim, _HIDDEN, _DROPOUT),
        embeddings,
        chosen,
        losses,
        predictions,
        name=name,
    )


def _per_sentence(embeddings: Embeddings, table: np.ndarray) -> np.ndarray:
    """Return the sum of a table's rows over the words of each sentence, int64 `[n_sentences,
    …]`.
    """
    running = np.concatenate(
        [np.zeros((1, *table.shape[1:]), dtype=np.int64), np.cumsum(table, axis=0)]
    )
    return np.diff(running[embeddings.offsets], axis=0)


def score_key_points(
    head: KeyPointHead, embeddings: Embeddings, pivots: WordPairs, *, threshold: float = 0.2
) -> tuple[np.ndarray, np.ndarray]:
    """Score a classifier against the pivots of held-out text (Table 2).

    Args:
        embeddings, pivots: as in `train_key_points`.
        threshold: threshold δ; words with P > δ are predicted to be pivots.

    Returns:
        the probability of each word, float32 `[n_words]`; and the counts for `OF_KEY_POINTS`, int64
        `[n_sentences, 6]`. The columns are the number of words with a vector and, among these
        words, the number of correct predictions, of correctly predicted pivots, of predicted
        pivots, of pivots, and of words whose probability is neither low nor high.
    """
    pivot, probabilities = linked_words(embeddings, pivots), head.probabilities(embeddings.data)
    predicted, (low, high) = probabilities > threshold, _AMBIGUOUS
    between = (probabilities > low) & (probabilities < high)
    outcomes = (
        np.ones_like(pivot),
        predicted == pivot,
        predicted & pivot,
        predicted,
        pivot,
        between,
    )
    table = np.stack(outcomes, axis=1) & covered_words(embeddings)[:, None]
    return probabilities, _per_sentence(embeddings, table)


def fraction(part: int, whole: int) -> Statistic:
    """Return a function that divides column `part` of an array of sums by column `whole`; the
    result is NaN if `whole` is 0.
    """
    return lambda total: ratio(np.asarray(total[..., part], dtype=np.float64), total[..., whole])


# : functions that compute the scores in Table 2 and the fraction of ambiguous words from summed
# counts of `score_key_points`
OF_KEY_POINTS: Mapping[str, Statistic] = {
    "accuracy": fraction(1, 0),
    "precision": fraction(2, 3),
    "recall": fraction(2, 4),
    "ambiguous": fraction(5, 0),
}


# -- reorder
# --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LinkedOrder:
    """Key points of each sentence, which are its linked words, with their order in the other
    language.

    Attributes:
        chosen: mask of key points, bool `[n_words]`; sentences with fewer than two key points are
            left out.
        rows: vectors of the key points, float32 `[K, dim]`.
        positions: index of each key point's word in its sentence, int64 `[K]`.
        ranks: rank of each key point, from 0, among the key points of its sentence in the other
            language, int64 `[K]`.
        lengths: number of key points in each sentence, int64 `[n_sentences]`.
        skipped: number of links that are not one-to-one, of links whose source word has no vector,
            and of sentences with fewer than two key points.
    """

    chosen: np.ndarray
    rows: Tensor
    positions: np.ndarray
    ranks: np.ndarray
    lengths: np.ndarray
    skipped: dict[str, int]

    @classmethod
    def of(cls, embeddings: Embeddings, pairs: WordPairs) -> LinkedOrder:
        """Build the key points from vectors in the source language and links to the other
        language.
        """
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
        chosen = linked_words(embeddings, single)
        ranks = np.empty(len(single), dtype=np.int64)
        by_target = np.lexsort((single.target, single.sentence))
        ranks[by_target] = np.arange(len(single)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        rows = torch.from_numpy(np.asarray(embeddings.data[chosen], dtype=np.float32))
        return cls(chosen, rows, single.source, ranks, lengths, skipped)


def train_order(
    embeddings: Embeddings, pivots: WordPairs, training: HeadTraining, kind: str = "relative"
) -> tuple[Order, dict[str, int]]:
    """Train a model that predicts the order of each sentence's pivots in the other language (CLCR,
    §3.3).

    Args:
        embeddings, pivots: vectors of sentences, and links from their language to the language
            whose order is predicted.
        kind: "relative" predicts which of two key points comes first (Eq. 8); "absolute" predicts
            the rank of each key point (Eq. 6).

    Returns:
        the model, and the numbers of sentences, key points, skipped links and skipped sentences
        (see `LinkedOrder`).
    """
    gold = LinkedOrder.of(embeddings, pivots)
    if not gold.lengths.any():
        raise SettingError(
            f"the order model requires a sentence with two pivots, got {len(pivots)} pivots in "
            f"{len(embeddings)} sentences; "
            "give more text, or leave out reordering (steps=transform,extract)"
        )
    positions, ranks, model = (
        torch.from_numpy(gold.positions),
        torch.from_numpy(gold.ranks),
        ORDERS[kind],
    )

    def losses(head: Order, given: WordRows, places: np.ndarray) -> Tensor:
        which = torch.from_numpy(places)
        return head.losses(given.rows, positions[which], given.lengths, ranks[which])

    head: Order = training.fit(
        lambda: model(embeddings.dim, hidden=_HIDDEN, dropout=_DROPOUT),
        embeddings,
        gold.chosen,
        losses,
        model.n_predictions(gold.lengths),
        name=f"order-{kind}",
    )
    return head, {
        "sentences": int((gold.lengths > 0).sum()),
        "key_points": len(gold.ranks),
        **gold.skipped,
    }


def score_order(head: Order, embeddings: Embeddings, pivots: WordPairs) -> dict[str, np.ndarray]:
    """Score the predicted order of the pivots in held-out text against their order in the other
    language (Table 3).

    Returns:
        counts for `OF_ORDER`, int64 `[n_ordered, 8]` (see `ngram_counts`), under the keys "as it
        stands" for the source order, and "n = 1" and "n = 10" for beam sizes 1 and 10. Sentences
        with fewer than two key points are left out.
    """
    gold = LinkedOrder.of(embeddings, pivots)
    orders = {
        "as it stands": np.arange(len(gold.ranks))
        - np.repeat(offsets_of(gold.lengths)[:-1], gold.lengths)
    }
    rows, positions = gold.rows.to(next(head.parameters()).device), torch.from_numpy(gold.positions)
    lengths = torch.from_numpy(gold.lengths)
    orders |= {f"n = {beam}": head.search(rows, positions, lengths, beam)[0] for beam in (1, 10)}
    kept = gold.lengths > 0
    return {
        name: ngram_counts(order, gold.ranks, gold.lengths)[kept] for name, order in orders.items()
    }


def ngram_counts(order: np.ndarray, ranks: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Count the n-grams of a predicted order that also occur in the gold order.

    All key points of a sentence are distinct, so an n-gram matches if its key points are adjacent,
    in the same sequence, in the gold order. No count needs clipping, and both orders have the same
    length.

    Args:
        order: indices of each sentence's key points in the predicted order, int64 `[K]`.
        ranks, lengths: as in `LinkedOrder`.

    Returns:
        the number of matching n-grams for n = 1 to 4, followed by the number of all n-grams, int64
        `[n_sentences, 8]`.
    """
    offsets = offsets_of(lengths)
    placed = ranks[np.repeat(offsets[:-1], lengths) + order]
    left = np.repeat(offsets[1:], lengths) - np.arange(
        len(order)
    )  # number of key points from this one to the end
    owner, found = np.repeat(np.arange(len(lengths)), lengths), np.ones(len(order), dtype=bool)
    follows = np.append(placed[1:] == placed[:-1] + 1, False)
    matching, all_of = [], []
    for n in range(1, _LONGEST + 1):
        if n > 1:
            found &= np.append(follows[n - 2 :], np.zeros(n - 2, dtype=bool))[: len(found)]
        matching.append(np.bincount(owner[found & (left >= n)], minlength=len(lengths)))
        all_of.append(np.bincount(owner[left >= n], minlength=len(lengths)))
    return np.stack([*matching, *all_of], axis=1)


# : Functions that compute the scores in Table 3 from summed counts of `score_order`. BLEU-n is the
# fraction of matching n-grams, : not the geometric mean of Papineni et al. (2002). The paper calls
# a score of 0.582 "2-gram predictions correct over half of : the time". The geometric mean would be
# √0.582, because all 1-grams match. The brevity penalty is 1.
OF_ORDER: Mapping[str, Statistic] = {
    f"bleu-{n}": fraction(n - 1, _LONGEST + n - 1) for n in (2, 3, 4)
}


# -- from transforms to key points
# -------------------------------------------------------------------------------------
@dataclass
class Transformed:
    """Result of the first step, transform.

    Attributes:
        encoders: encoder for each language, which is fine-tuned if it is trainable.
        to_pivot, from_pivot: transforms for each language into the space of the pivot language's
            encoder, and back.
        thresholds: maximum cost of a pivot in each language (see `choose_threshold`); infinite
            without held-out links.
        f1: F1 at the threshold on the held-out text of each language; languages without held-out
            links have no entry.
        history: metrics of every update, keyed by phase, for example `transform-de` or
            `encoder-de`. The metrics are the distances `de-en` (D(T(s_de) ‖ s_en)) and `en-de`
            between scaled vectors, their sum `loss`, and `temperature`.
    """

    encoders: dict[str, Encoder]
    to_pivot: dict[str, Transform]
    from_pivot: dict[str, Transform]
    thresholds: dict[str, float]
    f1: dict[str, float]
    history: dict[str, list[dict[str, float]]]
    texts: list[PairedText] = field(repr=False)


@dataclass
class TrainedParts:
    """Result of `train_parts`.

    Attributes:
        parts, counts: trained modules for each language, and number of words, sentences and key
            points in each language.
        rates: flip rates of the labels for P in each language, see `train_key_points`.
        scores: scores in Table 1 ("distance"), Table 2 ("key-points"; both `langs` are equal) and
            Table 3 ("order").
    """

    parts: dict[str, Parts]
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    scores: list[HeldOutScore] = field(default_factory=list)

    def score(
        self,
        table: str,
        langs: tuple[str, str],
        model: str,
        counts: np.ndarray,
        statistics: Mapping[str, Statistic],
    ) -> None:
        """Add the held-out scores of a model."""
        self.scores += [
            HeldOutScore(
                table, langs, model, metric, counts, statistic, percent=table != "distance"
            )
            for metric, statistic in statistics.items()
        ]


@dataclass(frozen=True)
class _Side:
    """Vectors and pivots of the sentences in one language; the pivots map from this language to the
    other.
    """

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
            Embeddings.joined([side.vectors for side in sides]),
            WordPairs(*map(np.concatenate, zip(*pairs, strict=True)), n_sentences=int(starts[-1])),
        )


def train_parts(
    first: Transformed,
    *,
    pivot: str,
    steps: Sequence[Step],
    training: HeadTraining,
    compare: bool = False,
    as_published: bool = False,
    progress: bool = False,
) -> TrainedParts:
    """Train the classifier P for every language, and the order model R for every language except
    the pivot language.

    Args:
        first: result of the first step. Its texts contain pairs for training P and R, and held-out
            pairs for the scores.
        steps: steps to train; with only "transform", no head is trained.
        compare, as_published: see `KeyPointAlignment`.
    """
    found = TrainedParts({pivot: Parts()})
    by_text = {text.lang: _sides(first, text, pivot, progress) for text in first.texts}
    for lang, (n, own, of_pivot) in by_text.items():
        there, back = first.to_pivot[lang], first.from_pivot[lang]
        found.parts[lang], found.counts[lang] = Parts(there, back), {"pivots": n}
        x, y = own[1].vectors, of_pivot[1].vectors
        if len(x):
            found.score(
                "distance", (lang, pivot), "transform", distance_sums(x, y, there), OF_DISTANCE
            )
            found.score(
                "distance", (pivot, lang), "transform", distance_sums(y, x, back), OF_DISTANCE
            )
    languages = {pivot: [of_pivot for _, _, of_pivot in by_text.values()]}
    languages |= {lang: [own] for lang, (_, own, _) in by_text.items()}
    for lang, parts in languages.items() if "extract" in steps else ():
        train, held_out = (_Side.joined([each[k] for each in parts]) for k in range(2))
        _add_key_points(found, lang, train, held_out, training, compare, as_published)
    for lang, (_, own, _) in by_text.items() if "reorder" in steps else ():
        _add_order(found, lang, pivot, own[0], own[1], training, compare)
    return found


def _sides(
    first: Transformed, text: PairedText, pivot: str, progress: bool
) -> tuple[int, list[_Side], list[_Side]]:
    """Return the number of pivots in a text, the training and held-out data in the text's non-pivot
    language, and the training and held-out data in the pivot language."""
    vectors = first.encoders[text.lang].encode(text.corpus.source, progress=progress)
    pivot_vectors = first.encoders[pivot].encode(text.corpus.target, progress=progress)
    every = find_pivots(
        vectors, pivot_vectors, first.to_pivot[text.lang], first.from_pivot[text.lang]
    )
    pairs = every.within(first.thresholds[text.lang])
    own, of_pivot = [], []
    for numbers in (text.train, text.held_out):
        some = pairs.take(numbers)
        own.append(_Side(vectors.take(numbers), some))
        of_pivot.append(_Side(pivot_vectors.take(numbers), some.swapped()))
    return len(pairs), own, of_pivot


@torch.no_grad()
def distance_sums(source: Embeddings, target: Embeddings, transform: Transform) -> np.ndarray:
    """Return four sums over the words of each target sentence, float64 `[n, 4]`: the distance with
    τ near 0, which matches only the nearest word (Eq. 2); the distance at τ = 1; the number of
    words; and the squared deviation of the vectors from the mean, per dimension."""
    x, y = (
        torch.from_numpy(np.asarray(side.data[covered_words(side)], dtype=np.float32))
        for side in (source, target)
    )
    lengths = words_with_vectors(target)
    matched = MatchedSentences(words_with_vectors(source), lengths)
    moved = transform(x)
    each = [
        attention_distance(moved, y, matched, temperature=tau).double().numpy()
        for tau in (_SHARPEST, 1.0)
    ]
    spread = (y.double() - y.double().mean(0)).square().mean(1).numpy()
    owner = np.repeat(np.arange(len(lengths)), lengths)
    columns = (*each, np.ones(len(y)), spread)
    return np.stack(
        [np.bincount(owner, values, minlength=len(lengths)) for values in columns], axis=1
    )


# : Functions that compute the scores in Table 1 from `distance_sums`. "distance" is the mean
# squared distance per dimension, and : "relative distance" divides it by the mean variance. "soft
# distance" is computed at τ = 1, and may rank models differently.
OF_DISTANCE = {
    "distance": fraction(0, 2),
    "relative distance": fraction(0, 3),
    "soft distance": fraction(1, 2),
}


def _add_key_points(
    found: TrainedParts,
    lang: str,
    train: _Side,
    held_out: _Side,
    training: HeadTraining,
    compare: bool,
    as_published: bool,
) -> None:
    """Train the key-point classifier P for a language, and add P and its held-out scores to
    `found`.
    """
    for confident in (False, True) if compare else (True,):  # only the last head is kept
        name = "confident labels" if confident else "labels as they are"
        head, counts, found.rates[lang] = train_key_points(
            train.vectors, train.pivots, training, confident=confident, as_published=as_published
        )
        counted = score_key_points(head, held_out.vectors, held_out.pivots)[1]
        found.score("key-points", (lang, lang), name, counted, OF_KEY_POINTS)
        found.parts[lang] = replace(found.parts[lang], head=head.cpu())
        found.counts.setdefault(lang, {}).update({f"{key} of P": n for key, n in counts.items()})


def _add_order(
    found: TrainedParts,
    lang: str,
    pivot: str,
    train: _Side,
    held_out: _Side,
    training: HeadTraining,
    compare: bool,
) -> None:
    """Train the order model R for a language, and add R and its held-out scores to `found`."""
    heads = {}
    for kind in ("absolute", "relative") if compare else ("relative",):
        heads[kind], counts = train_order(train.vectors, train.pivots, training, kind)
        found.counts[lang].update({f"{key} of R": n for key, n in counts.items()})
        for beam, counted in score_order(heads[kind], held_out.vectors, held_out.pivots).items():
            if beam != "as it stands":
                found.score("order", (lang, pivot), f"{kind}, {beam}", counted, OF_ORDER)
            elif kind == "relative":
                found.score("order", (lang, pivot), beam, counted, OF_ORDER)
    found.parts[lang] = replace(found.parts[lang], order=heads["relative"].cpu())
