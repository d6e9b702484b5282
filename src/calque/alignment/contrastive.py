"""Contrastive alignment (InfoNCE over linked words)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.nn.functional import kl_div, normalize

from calque.alignment.tuner import Tuner
from calque.alignment.update import LinkedBatch
from calque.errors import check_number
from calque.pairs import WordPairs
from calque.spec import Count, option
from calque.text import ParallelCorpus, Sentences, number_words

#: limits of the default number of sentence pairs from each text in an update
SMALLEST_BATCH, LARGEST_BATCH = 8, 32
#: number of updates below which the default batch is smaller
FEWEST_UPDATES = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrastive(Tuner):
    """Contrastive alignment with the InfoNCE loss over the linked words of a batch, in both
    directions.

    Let x be the L2-normalised vectors of the source words, y those of the linked target words, and
    τ the temperature. The loss for each corpus and layer is the mean, over all pairs k and both
    directions, of

        −log exp(x_k·y_k/τ) / Σ_j exp(x_k·y_j/τ)

    (van den Oord et al. 2018, "Representation learning with contrastive predictive coding").

    A batch often contains several pairs of the *same* two words. In this formula, these pairs are
    negatives of each other, so occurrences of the same word are pushed apart. `same_share` is the
    weight of a loss in which such pairs are positives, and `similarity_distillation` preserves the
    similarities between words of the language `towards`.
    """

    temperature: float = option(0.05, "temperature τ of the softmax.")
    same_share: float = option(
        0.5,
        "weight, from 0 to 1, of a loss in which all pairs of the same two lower-cased words are "
        'positives (Khosla et al. 2020, "Supervised contrastive learning", Eq. 2). The standard '
        "InfoNCE loss, in which these pairs are negatives, has the weight 1 − `same_share`.",
    )
    similarity_distillation: float = option(
        0.2,
        "weight of the divergence between the trained and the frozen encoder's similarities of "
        'words in the language `towards` (Fang et al. 2021, "SEED", Eq. 3).',
    )
    sentences: float = option(
        0.0,
        "weight of a contrastive loss over sentence pairs, computed from mean word vectors "
        '(translation ranking, Feng et al. 2022, "Language-agnostic BERT sentence embedding", '
        "Eqs. 1–2, without their margin).",
    )
    epochs: float = 2.0
    batch: Count | None = option(  # type: ignore[assignment]
        None,
        f"number of sentence pairs from each parallel text in an update; default: {LARGEST_BATCH}, "
        f"or fewer on short texts, down to {SMALLEST_BATCH}, so that there are at least "
        f"{FEWEST_UPDATES} updates.",
    )

    def __post_init__(self):
        check_number("temperature", self.temperature, above=0)
        for name in ("similarity_distillation", "sentences"):
            check_number(name, getattr(self, name), least=0)
        check_number("same_share", self.same_share, least=0, most=1)
        super().__post_init__()

    @property
    def needs_reference(self) -> bool:
        return self.similarity_distillation > 0

    @property
    def reads_sentences(self) -> bool:
        return self.sentences > 0

    def batch_for(self, sizes: Sequence[int]) -> int:
        if self.batch is not None:
            return self.batch
        possible = int(self.epochs * max(sizes, default=0) / FEWEST_UPDATES)
        return max(SMALLEST_BATCH, min(possible, LARGEST_BATCH))

    def kinds(self) -> Callable[[ParallelCorpus, WordPairs], np.ndarray] | None:
        return number_word_pairs if self.same_share else None

    def loss(self, batch: LinkedBatch) -> dict[str, Tensor]:
        x, y = normalize(batch.source), normalize(batch.target)
        terms = {
            "contrast": info_nce(
                x, y, temperature=self.temperature, kinds=batch.kinds, share=self.same_share
            )
        }
        if batch.reference is not None and self.similarity_distillation:
            divergence = similarity_divergence(
                batch.regularised, batch.reference, temperature=self.temperature
            )
            terms["similarity"] = self.similarity_distillation * divergence
        if batch.sentences is not None:
            x, y = map(normalize, batch.sentences)
            terms["sentences"] = self.sentences * info_nce(x, y, temperature=self.temperature)
        return terms


def info_nce(
    x: Tensor, y: Tensor, *, temperature: float, kinds: Tensor | None = None, share: float = 0.0
) -> Tensor:
    """Return the InfoNCE loss, averaged over both directions, or 0 if there are no rows.

    Args:
        x, y: L2-normalised vectors `[n, dim]`; row k of `x` and row k of `y` are translations of
            each other.
        temperature: temperature τ.
        kinds: id of each row's pair of word types, int64 `[n]`, or −1 for a row without an id;
            default: no rows share an id.
        share: weight of the loss in which rows with the same id are positives. The loss in which
            these rows are negatives has the weight 1 − `share`.
    """
    if not len(x):
        return (x.sum() + y.sum()) * 0.0
    scores = x @ y.T / temperature
    total = scores.new_zeros(())
    # source to target, and target to source
    for log_p in (scores.log_softmax(dim=1), scores.T.log_softmax(dim=1)):
        partner = log_p.diagonal()
        if kinds is not None and share:
            # Khosla et al. (2020), Eq. 2: all pairs of the same two words are positives.
            equal = (kinds[:, None] == kinds) & (kinds >= 0)
            equal.fill_diagonal_(True)
            among_equal = (log_p * (equal / equal.sum(dim=1, keepdim=True))).sum(dim=1)
            total = total - (share * among_equal + (1 - share) * partner).mean() / 2
        else:
            total = total - partner.mean() / 2
    return total


def similarity_divergence(now: Tensor, before: Tensor, *, temperature: float) -> Tensor:
    """Return the mean divergence between each row's similarities to the other rows before and after
    training.

    Let p_ij and q_ij be the softmax over j ≠ i of cosine(i, j)/τ before and after training. The
    divergence is the mean over i of Σ_j p_ij log(p_ij / q_ij), which is 0 if the similarities do
    not change (relational distillation, Park et al. 2019; Fang et al. 2021, "SEED", Eq. 3).

    Args:
        now, before: vectors of the same words after and before training `[n, dim]`; if n is below
            3, the result is 0.
        temperature: temperature τ.
    """
    n = len(now)
    if n < 3:
        return now.sum() * 0.0
    log_q = _log_similarities(now, temperature)
    log_p = _log_similarities(before, temperature)
    return kl_div(log_q, log_p, reduction="batchmean", log_target=True)


def _log_similarities(vectors: Tensor, temperature: float) -> Tensor:
    """Return the logarithm of the softmax, over j ≠ i, of cosine(i, j)/τ, `[n, n − 1]`."""
    rows = normalize(vectors)
    n = len(rows)
    # Remove the diagonal: in the flattened matrix, every (n + 1)-th entry is on the diagonal.
    cosines = (rows @ rows.T).flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
    return (cosines / temperature).log_softmax(1)


def number_word_pairs(corpus: ParallelCorpus, pairs: WordPairs) -> np.ndarray:
    """Return an id for each linked pair, int64 `[n_pairs]`; pairs of the same two lower-cased words
    have equal ids.
    """

    def types_of(sentences: Sentences, word: np.ndarray) -> np.ndarray:
        _, numbers, offsets = number_words(sentences, lower=True)
        return numbers[offsets[pairs.sentence] + word]

    source, target = types_of(corpus.source, pairs.source), types_of(corpus.target, pairs.target)
    width = int(target.max(initial=0)) + 1
    return np.unique(source * width + target, return_inverse=True)[1].reshape(-1)
