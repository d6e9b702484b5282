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
from calque.clcr.pivots import covered_words, find_pivots, float32_rows, words_with_vectors
from calque.clcr.transform import Transform, attention_distance
from calque.distributed import Processes
from calque.encoders.base import Encoder
from calque.errors import SettingError
from calque.input_texts import digest_of
from calque.nn.matched import MatchedSentences
from calque.nn.pooling import sums
from calque.offsets import offsets_of, ranges
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
# number of folds of the text; each fold is predicted by a classifier trained on the others
_FOLDS = 2
_AMBIGUOUS = (0.2, 0.8)  # probabilities between these two are called ambiguous
_LONGEST = 4  # maximum n-gram length
_SHARPEST = 1e-3  # with this τ, attention selects the nearest word
_AS_IT_STANDS = "as it stands"  # name of the source order among the scored orders


# -- the text --------------------------------------------------------------------------------------
@dataclass(frozen=True)
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
        corpus_links = None if links is None else links[number].check(corpus)
        if corpus.side(pivot) == "source":
            corpus = corpus.swapped()
            corpus_links = None if corpus_links is None else corpus_links.swapped()
        lang = corpus.langs[0]
        missing = [name for name in corpus.langs if name not in encoders]
        if missing:
            raise SettingError(
                f"there is no encoder for language {missing[0]!r}, only for {', '.join(encoders)}"
            )
        if any(text.lang == lang for text in texts):
            raise SettingError(
                f"every language must have one corpus, got two for {lang}-{pivot}; concatenate them"
            )
        text = _paired_text(
            encoders,
            corpus,
            corpus_links,
            max_words=max_words,
            held_out=held_out,
            seed=seed,
            progress=progress,
        )
        texts.append(text)
    return texts


def _paired_text(
    encoders: Mapping[str, Encoder],
    corpus: ParallelCorpus,
    links: WordPairs | None,
    *,
    max_words: int | None,
    held_out: float,
    seed: int,
    progress: bool,
) -> PairedText:
    """Encode and split one corpus, whose target language is the pivot language; see
    `paired_texts`.
    """
    lang, pivot = corpus.langs
    n_pairs = len(corpus)
    lengths = np.stack([corpus.source.lengths(), corpus.target.lengths()])
    is_empty = lengths.min(0) == 0
    is_long = np.zeros(n_pairs, dtype=bool)
    if max_words is not None:
        is_long = ~is_empty & (lengths.max(0) > max_words)
    usable = np.flatnonzero(~is_empty & ~is_long)
    corpus = corpus.take(usable)
    links = None if links is None else links.take(usable)

    vectors = encoders[lang].encode(corpus.source, progress=progress)
    pivot_vectors = encoders[pivot].encode(corpus.target, progress=progress)
    # The encoders can drop all words of a sentence, so its pair cannot be used either.
    filled = np.flatnonzero(
        (words_with_vectors(vectors) > 0) & (words_with_vectors(pivot_vectors) > 0)
    )
    n_held_out = 0
    if held_out and len(filled):
        n_held_out = min(len(filled) - 1, max(1, round(held_out * len(filled))))
    shuffled = np.random.default_rng(seed).permutation(filled)
    counts = {
        "trained": len(filled) - n_held_out,
        "held_out": n_held_out,
        "too_long": int(is_long.sum()),
        "empty": int(is_empty.sum()) + len(corpus) - len(filled),
    }
    if not counts["trained"]:
        raise SettingError(
            f"there is nothing to train on: of {n_pairs} pairs for {lang}-{pivot}, "
            f"{counts['empty']} have a side "
            f"without word vectors, and {counts['too_long']} are too long"
        )
    return PairedText(
        lang,
        corpus,
        links,
        vectors,
        pivot_vectors,
        train=np.sort(shuffled[n_held_out:]),
        held_out=np.sort(shuffled[:n_held_out]),
        counts=counts,
    )


# -- extract ---------------------------------------------------------------------------------------
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
        processes = Processes.alone()
        torch.manual_seed(self.seed)
        head = make().to(processes.device)
        source = ChosenWords(embeddings, chosen, processes.device)
        # Sentences have different numbers of predictions. Dividing by the mean number makes the
        # mean over sentences equal to the mean over predictions.
        mean_predictions = float(predictions[used].mean())

        def scaled_losses(batch: WordRows) -> Tensor:
            return losses(head, batch, source.places(batch.numbers)) / mean_predictions

        training = Supervised(
            epochs=self.epochs, learning_rate=2e-3, warmup=0.05, decay="linear", seed=self.seed
        )
        training.fit(
            head,
            SubsetSource(source, used),
            scaled_losses,
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
    n_words = int(covered.sum())
    counts = {
        "words": n_words,
        "labelled": int(linked.sum()),
        "without_vector": len(covered) - n_words,
    }
    weights = np.ones(len(linked))
    rates: dict[str, float] = {}
    if confident and n_words:
        weights, rates = _confident_weights(embeddings, covered, linked, training, as_published)
    head = _classifier(embeddings, covered, linked, weights, training, "key-points")
    return head, counts, rates


def _confident_weights(
    embeddings: Embeddings,
    covered: np.ndarray,
    linked: np.ndarray,
    training: HeadTraining,
    as_published: bool,
) -> tuple[np.ndarray, dict[str, float]]:
    """Return the weights of the labels, float64 `[n_words]`, and the flip rates and errors that
    `train_key_points` returns. If a correction does not help, all weights are 1.
    """
    n_folds = 1 if as_published else _FOLDS
    quantile = 0.0 if as_published else _QUANTILE
    probabilities = _predicted(embeddings, covered, linked, n_folds, training)[covered]
    labels = linked[covered]
    rates = flip_rates(probabilities, labels, quantile=quantile)
    error_without = absolute_error(probabilities, labels, FlipRates(0.0, 0.0))
    error_with = absolute_error(probabilities, labels, rates)
    helps = as_published or error_with <= error_without
    is_used = rates.youden_index > 0 and helps
    weights = np.ones(len(linked))
    if is_used:
        weights[covered] = importance(probabilities, labels, rates)
    return weights, {
        **asdict(rates),
        "used": is_used,
        "with_rates": error_with,
        "without": error_without,
    }


def _predicted(
    embeddings: Embeddings,
    covered: np.ndarray,
    linked: np.ndarray,
    n_folds: int,
    training: HeadTraining,
) -> np.ndarray:
    """Return P̂ of each word, predicted by an unweighted classifier, float32 `[n_words]`. Each fold
    is predicted by a classifier trained on the other folds, because a classifier also fits the
    wrong labels in its training text. With a single fold, the classifier is trained on that fold
    itself."""
    is_filled = _per_sentence(embeddings, covered) > 0
    n_folds = min(n_folds, int(is_filled.sum()))
    # Only sentences with covered words are counted, so all folds have about the same number of such
    # sentences.
    fold_of_sentence = np.cumsum(is_filled) % n_folds
    fold_of_word = np.repeat(fold_of_sentence, np.diff(embeddings.offsets))
    probabilities = np.zeros(embeddings.n_words, dtype=np.float32)
    weights = np.ones(len(linked))
    for fold in range(n_folds):
        in_fold = fold_of_word == fold
        trained_on = covered & ~in_fold if n_folds > 1 else covered
        name = f"key-points-{fold + 1}"
        head = _classifier(embeddings, trained_on, linked, weights, training, name)
        probabilities[in_fold] = head.probabilities(embeddings.data)[in_fold]
    return probabilities


def _classifier(
    embeddings: Embeddings,
    chosen: np.ndarray,
    linked: np.ndarray,
    weights: np.ndarray,
    training: HeadTraining,
    name: str,
) -> KeyPointHead:
    """Train a classifier on the chosen words, using a separate weight for each word."""
    labels = torch.from_numpy(linked[chosen].astype(np.float32))
    label_weights = torch.from_numpy(weights[chosen].astype(np.float32))

    def losses(head: KeyPointHead, batch: WordRows, places: np.ndarray) -> Tensor:
        device, words = batch.rows.device, torch.from_numpy(places)
        word_losses = F.binary_cross_entropy_with_logits(
            head(batch.rows),
            labels[words].to(device),
            label_weights[words].to(device),
            reduction="none",
        )
        return sums(word_losses[:, None], batch.lengths)[:, 0]

    return training.fit(
        lambda: KeyPointHead(embeddings.dim, _HIDDEN, _DROPOUT),
        embeddings,
        chosen,
        losses,
        predictions=_per_sentence(embeddings, chosen),
        name=name,
    )


def _per_sentence(embeddings: Embeddings, table: np.ndarray) -> np.ndarray:
    """Return the sum of a table's rows over the words of each sentence, int64 `[n_sentences,
    …]`.
    """
    # Differences of running sums, because np.add.reduceat does not sum empty sentences to 0.
    running = np.zeros((len(table) + 1, *table.shape[1:]), dtype=np.int64)
    np.cumsum(table, axis=0, out=running[1:])
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
    is_pivot = linked_words(embeddings, pivots)
    probabilities = head.probabilities(embeddings.data)
    is_predicted = probabilities > threshold
    low, high = _AMBIGUOUS
    columns = (
        np.ones_like(is_pivot),
        is_predicted == is_pivot,
        is_predicted & is_pivot,
        is_predicted,
        is_pivot,
        (probabilities > low) & (probabilities < high),
    )
    table = np.stack(columns, axis=1) & covered_words(embeddings)[:, None]
    return probabilities, _per_sentence(embeddings, table)


def fraction(part: int, whole: int) -> Statistic:
    """Return a function that divides column `part` of an array of sums by column `whole`; the
    result is NaN if `whole` is 0.
    """

    def statistic(total: np.ndarray) -> np.ndarray:
        return ratio(np.asarray(total[..., part], dtype=np.float64), total[..., whole])

    return statistic


#: functions that compute the scores in Table 2 and the fraction of ambiguous words from summed
#: counts of `score_key_points`
OF_KEY_POINTS: Mapping[str, Statistic] = {
    "accuracy": fraction(1, 0),
    "precision": fraction(2, 3),
    "recall": fraction(2, 4),
    "ambiguous": fraction(5, 0),
}


# -- reorder ---------------------------------------------------------------------------------------
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
        has_vector = covered_words(embeddings)[embeddings.rows(single.sentence, single.source)]
        lengths = np.bincount(single.sentence[has_vector], minlength=len(embeddings))
        skipped = {
            "links_not_one_to_one": len(pairs) - len(single),
            "links_without_vector": int((~has_vector).sum()),
            "sentences_with_fewer_than_2_key_points": int((lengths < 2).sum()),
        }
        kept = single.select(has_vector & (lengths[single.sentence] >= 2))
        # key points in source order, as the rows of `embeddings` are
        kept = kept.select(np.lexsort((kept.source, kept.sentence)))
        lengths = np.where(lengths < 2, 0, lengths)
        chosen = linked_words(embeddings, kept)
        ranks = np.empty(len(kept), dtype=np.int64)
        by_target = np.lexsort((kept.target, kept.sentence))
        ranks[by_target] = _places(lengths)
        return cls(chosen, float32_rows(embeddings, chosen), kept.source, ranks, lengths, skipped)


def _places(lengths: np.ndarray) -> np.ndarray:
    """Return the index of each key point among the key points of its sentence, int64 `[K]`."""
    return ranges(np.zeros_like(lengths), lengths)


def train_order(
    embeddings: Embeddings, pivots: WordPairs, training: HeadTraining, order_type: str = "relative"
) -> tuple[Order, dict[str, int]]:
    """Train a model that predicts the order of each sentence's pivots in the other language (CLCR,
    §3.3).

    Args:
        embeddings, pivots: vectors of sentences, and links from their language to the language
            whose order is predicted.
        order_type: "relative" predicts which of two key points comes first (Eq. 8); "absolute"
            predicts the rank of each key point (Eq. 6).

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
    order_class = ORDERS[order_type]
    positions, ranks = torch.from_numpy(gold.positions), torch.from_numpy(gold.ranks)

    def losses(head: Order, batch: WordRows, places: np.ndarray) -> Tensor:
        words = torch.from_numpy(places)
        return head.losses(batch.rows, positions[words], batch.lengths, ranks[words])

    head: Order = training.fit(
        lambda: order_class(embeddings.dim, hidden=_HIDDEN, dropout=_DROPOUT),
        embeddings,
        gold.chosen,
        losses,
        predictions=order_class.n_predictions(gold.lengths),
        name=f"order-{order_type}",
    )
    counts = {
        "sentences": int((gold.lengths > 0).sum()),
        "key_points": len(gold.ranks),
        **gold.skipped,
    }
    return head, counts


def score_order(head: Order, embeddings: Embeddings, pivots: WordPairs) -> dict[str, np.ndarray]:
    """Score the predicted order of the pivots in held-out text against their order in the other
    language (Table 3).

    Returns:
        counts for `OF_ORDER`, int64 `[n_ordered, 8]` (see `ngram_counts`), under the keys "as it
        stands" for the source order, and "n = 1" and "n = 10" for beam sizes 1 and 10. Sentences
        with fewer than two key points are left out.
    """
    gold = LinkedOrder.of(embeddings, pivots)
    rows = gold.rows.to(next(head.parameters()).device)
    positions, lengths = torch.from_numpy(gold.positions), torch.from_numpy(gold.lengths)
    orders = {_AS_IT_STANDS: _places(gold.lengths)}
    for beam in (1, 10):
        orders[f"n = {beam}"], _ = head.search(rows, positions, lengths, beam)
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
    offsets, n_sentences = offsets_of(lengths), len(lengths)
    sentence = np.repeat(np.arange(n_sentences), lengths)
    # gold rank of the key point at each place of the predicted order
    gold_ranks = ranks[np.repeat(offsets[:-1], lengths) + order]
    # number of key points from each place to the end of its sentence
    n_remaining = np.repeat(offsets[1:], lengths) - np.arange(len(order))
    is_followed = np.append(gold_ranks[1:] == gold_ranks[:-1] + 1, False)
    is_matching = np.ones(len(order), dtype=bool)  # of the n-gram that starts at each place
    matching, total = [], []
    for n in range(1, _LONGEST + 1):
        if n > 1:
            # An n-gram matches if its first n - 1 items match, and its last item follows them.
            last_follows = np.append(is_followed[n - 2 :], np.zeros(n - 2, dtype=bool))
            is_matching &= last_follows[: len(order)]
        is_complete = n_remaining >= n
        matching.append(np.bincount(sentence[is_matching & is_complete], minlength=n_sentences))
        total.append(np.bincount(sentence[is_complete], minlength=n_sentences))
    return np.stack([*matching, *total], axis=1)


#: Functions that compute the scores in Table 3 from summed counts of `score_order`. BLEU-n is the
#: fraction of matching n-grams, not the geometric mean of Papineni et al. (2002). The paper calls a
#: score of 0.582 "2-gram predictions correct over half of the time". The geometric mean would be
#: √0.582, because all 1-grams match. The brevity penalty is 1.
OF_ORDER: Mapping[str, Statistic] = {
    f"bleu-{n}": fraction(n - 1, _LONGEST + n - 1) for n in (2, 3, 4)
}


# -- from transforms to key points -----------------------------------------------------------------
@dataclass(frozen=True)
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
    """Result of `train_parts`, to which each trained module is added.

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

    def add_scores(
        self,
        table: str,
        langs: tuple[str, str],
        model: str,
        counts: np.ndarray,
        statistics: Mapping[str, Statistic],
    ) -> None:
        """Add the held-out scores of a model."""
        percent = table != "distance"
        for metric, statistic in statistics.items():
            score = HeldOutScore(table, langs, model, metric, counts, statistic, percent=percent)
            self.scores.append(score)


@dataclass(frozen=True)
class _PivotVectors:
    """Vectors and pivots of the sentences in one language; the pivots map from this language to the
    other.
    """

    vectors: Embeddings
    pivots: WordPairs

    @classmethod
    def joined(cls, parts: Sequence[_PivotVectors]) -> _PivotVectors:
        """Concatenate the sentences of several texts."""
        starts = offsets_of([len(part.vectors) for part in parts])
        sentences = [
            part.pivots.sentence + start for part, start in zip(parts, starts[:-1], strict=True)
        ]
        pivots = WordPairs(
            np.concatenate(sentences),
            np.concatenate([part.pivots.source for part in parts]),
            np.concatenate([part.pivots.target for part in parts]),
            n_sentences=int(starts[-1]),
        )
        return cls(Embeddings.joined([part.vectors for part in parts]), pivots)


@dataclass(frozen=True)
class _Pivots:
    """Pivots of the training pairs and of the held-out pairs of a text, in both directions.

    Attributes:
        number: number of pivots in the whole text.
        train, held_out: from the text's language to the pivot language.
        pivot_train, pivot_held_out: from the pivot language to the text's language.
    """

    number: int
    train: _PivotVectors
    held_out: _PivotVectors
    pivot_train: _PivotVectors
    pivot_held_out: _PivotVectors


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
    trained = TrainedParts({pivot: Parts()})
    pivots_of = {text.lang: _text_pivots(first, text, pivot, progress) for text in first.texts}
    for lang, pivots in pivots_of.items():
        to_pivot, from_pivot = first.to_pivot[lang], first.from_pivot[lang]
        trained.parts[lang] = Parts(to_pivot, from_pivot)
        trained.counts[lang] = {"pivots": pivots.number}
        x, y = pivots.held_out.vectors, pivots.pivot_held_out.vectors
        if len(x):
            sums_to, sums_from = distance_sums(x, y, to_pivot), distance_sums(y, x, from_pivot)
            trained.add_scores("distance", (lang, pivot), "transform", sums_to, OF_DISTANCE)
            trained.add_scores("distance", (pivot, lang), "transform", sums_from, OF_DISTANCE)
    if "extract" in steps:
        # P of the pivot language is trained on the sentences of all texts together.
        train = _PivotVectors.joined([pivots.pivot_train for pivots in pivots_of.values()])
        held_out = _PivotVectors.joined([pivots.pivot_held_out for pivots in pivots_of.values()])
        _add_key_points(trained, pivot, train, held_out, training, compare, as_published)
        for lang, pivots in pivots_of.items():
            _add_key_points(
                trained, lang, pivots.train, pivots.held_out, training, compare, as_published
            )
    if "reorder" in steps:
        for lang, pivots in pivots_of.items():
            _add_order(trained, lang, pivot, pivots.train, pivots.held_out, training, compare)
    return trained


def _text_pivots(first: Transformed, text: PairedText, pivot: str, progress: bool) -> _Pivots:
    """Encode a text with the encoders of the first step, and return its pivots."""
    vectors = first.encoders[text.lang].encode(text.corpus.source, progress=progress)
    pivot_vectors = first.encoders[pivot].encode(text.corpus.target, progress=progress)
    candidates = find_pivots(
        vectors, pivot_vectors, first.to_pivot[text.lang], first.from_pivot[text.lang]
    )
    pairs = candidates.within(first.thresholds[text.lang])
    train, held_out = pairs.take(text.train), pairs.take(text.held_out)
    return _Pivots(
        len(pairs),
        train=_PivotVectors(vectors.take(text.train), train),
        held_out=_PivotVectors(vectors.take(text.held_out), held_out),
        pivot_train=_PivotVectors(pivot_vectors.take(text.train), train.swapped()),
        pivot_held_out=_PivotVectors(pivot_vectors.take(text.held_out), held_out.swapped()),
    )


@torch.no_grad()
def distance_sums(source: Embeddings, target: Embeddings, transform: Transform) -> np.ndarray:
    """Return four sums over the words of each target sentence, float64 `[n, 4]`: the distance with
    τ near 0, which matches only the nearest word (Eq. 2); the distance at τ = 1; the number of
    words; and the squared deviation of the vectors from the mean, per dimension."""
    x = float32_rows(source, covered_words(source))
    y = float32_rows(target, covered_words(target))
    lengths = words_with_vectors(target)
    matched = MatchedSentences(words_with_vectors(source), lengths)
    mapped_x = transform(x)
    nearest = attention_distance(mapped_x, y, matched, temperature=_SHARPEST)
    soft = attention_distance(mapped_x, y, matched, temperature=1.0)
    deviation = (y.double() - y.double().mean(0)).square().mean(1)
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    columns = (nearest.double(), soft.double(), torch.ones(len(y)), deviation)
    return np.stack(
        [np.bincount(sentence, values.numpy(), minlength=len(lengths)) for values in columns],
        axis=1,
    )


#: Functions that compute the scores in Table 1 from `distance_sums`. "distance" is the mean squared
#: distance per dimension, and "relative distance" divides it by the mean variance. "soft distance"
#: is computed at τ = 1, and may rank models differently.
OF_DISTANCE = {
    "distance": fraction(0, 2),
    "relative distance": fraction(0, 3),
    "soft distance": fraction(1, 2),
}


def _add_key_points(
    trained: TrainedParts,
    lang: str,
    train: _PivotVectors,
    held_out: _PivotVectors,
    training: HeadTraining,
    compare: bool,
    as_published: bool,
) -> None:
    """Train the key-point classifier P for a language, and add P and its held-out scores to
    `trained`.
    """
    # The last head replaces the others, so the one with confident labels is kept.
    for confident in (False, True) if compare else (True,):
        model = "confident labels" if confident else "labels as they are"
        head, counts, trained.rates[lang] = train_key_points(
            train.vectors, train.pivots, training, confident=confident, as_published=as_published
        )
        _, score_counts = score_key_points(head, held_out.vectors, held_out.pivots)
        trained.add_scores("key-points", (lang, lang), model, score_counts, OF_KEY_POINTS)
        trained.parts[lang] = replace(trained.parts[lang], head=head.cpu())
        lang_counts = trained.counts.setdefault(lang, {})
        lang_counts.update({f"{name} of P": count for name, count in counts.items()})


def _add_order(
    trained: TrainedParts,
    lang: str,
    pivot: str,
    train: _PivotVectors,
    held_out: _PivotVectors,
    training: HeadTraining,
    compare: bool,
) -> None:
    """Train the order model R for a language, and add R and its held-out scores to `trained`."""
    # The last head replaces the others, so the relative model is kept.
    for order_type in ("absolute", "relative") if compare else ("relative",):
        head, counts = train_order(train.vectors, train.pivots, training, order_type)
        lang_counts = trained.counts[lang]
        lang_counts.update({f"{name} of R": count for name, count in counts.items()})
        scored = score_order(head, held_out.vectors, held_out.pivots)
        # The source order does not depend on the model, so its scores are added only once.
        source_order = scored.pop(_AS_IT_STANDS)
        if order_type == "relative":
            trained.add_scores("order", (lang, pivot), _AS_IT_STANDS, source_order, OF_ORDER)
        for beam, score_counts in scored.items():
            model = f"{order_type}, {beam}"
            trained.add_scores("order", (lang, pivot), model, score_counts, OF_ORDER)
        trained.parts[lang] = replace(trained.parts[lang], order=head.cpu())
