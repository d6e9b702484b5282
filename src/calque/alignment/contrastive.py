"""Alignment by contrast: a word is to be nearer to its translation than to all other words of the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor
from torch.nn import functional

from calque.alignment.losses import Same, info_nce, neighbours_lost
from calque.alignment.tuner import Tuner
from calque.alignment.update import GroupVectors
from calque.distributed import Processes
from calque.encoders.split import number_words
from calque.errors import SettingError, check_number
from calque.pairs import WordPairs
from calque.storage import blocks, filled
from calque.text import ParallelCorpus, Sentences
from calque.training.loop import rate_by_width


@dataclass(kw_only=True, eq=False)
class Contrastive(Tuner):
    """InfoNCE over the linked words of a batch, in both directions.

    With unit vectors x of the source words, y of the words they are linked to and temperature τ it minimises, for each
    corpus and layer, the mean over pairs k and both directions of

        −log exp(x_k·y_k/τ) / (Σ_j exp(x_k·y_j/τ) + [strong] Σ_{j≠k} exp(x_k·x_j/τ))

    (van den Oord et al. 2018, "Representation learning with contrastive predictive coding"; both languages' words as
    negatives after Wang et al. 2021, "Improving pre-trained multilingual models with vocabulary expansion", and Hu et
    al. 2021, "Explicit alignment objectives for multilingual bidirectional encoders").

    A batch often has several pairs of the *same* two words, which are negatives of each other there: the formula pushes
    equal words of a language apart. `same` says what else they can be, and `keep` holds on to what the language `towards`
    had to say before.

    Args:
        towards: the language that the regularisers keep in place.
        temperature: τ.
        strong: both languages' words are negatives, not the other language's only.
        same: what pairs of equal words (in lower case) are to each other: "negative", as published; "ignored", left out of the
            denominator; "one", positives by the log of the sum of their exponentials; "each", positives by the mean over
            them of −log (Khosla et al. 2020, "Supervised contrastive learning", Eq. 2).
        same_share: weight of the loss with `same`, between 0 and 1; the rest is the loss where they are negatives.
        weight: of the mean squared distance ‖f − f0‖² of the words in language `towards` to the frozen encoder's; the mean is
            over words and dimensions.
        keep: weight of the mean divergence of a word's neighbours in language `towards` from those in the frozen encoder,
            see `neighbours_lost`.
        sentences: weight of the same loss over the sentence pairs of each corpus, a sentence being the mean of its words: each
            is to be nearer to its translation than to all others of the batch (translation ranking, Feng et al. 2022,
            "Language-agnostic BERT sentence embedding", Eqs. 1–2, without their margin).
        layers: layers that the loss reads; None: the encoder's own layer.
        epochs, learning_rate, warmup, decay, betas, epsilon, clip, seed: see `Schedule`.
        batch, special, max_words, freeze, accumulate, budget, precision, reference: see `Tuner`.
    """

    temperature: float = 0.05
    strong: bool = False
    same: Same = "each"
    same_share: float = 0.5
    weight: float = 0.0
    keep: float = 0.2
    sentences: float = 0.0
    epochs: float = 2.0
    decay: Literal["constant", "linear", "cosine"] = "linear"
    clip: float | None = 1.0
    batch: int = 32
    special: bool = False

    terms_over_all = ("contrast", "keep", "sentences")

    def __post_init__(self):
        check_number("temperature", self.temperature, above=0)
        check_number("weight", self.weight, least=0)
        check_number("keep", self.keep, least=0)
        check_number("sentences", self.sentences, least=0)
        if self.same not in (allowed := ("negative", "ignored", "one", "each")):
            raise SettingError(f"same is {', '.join(allowed[:-1])} or {allowed[-1]}, got {self.same!r}")
        check_number("same_share", self.same_share, least=0, most=1)
        super().__post_init__()

    def default_rate(self, dim: int) -> float:
        # 2e-3 was best on held-out text for 128 dimensions (docs/results.md); 5e-5 is the usual choice for 768.
        return rate_by_width(dim, 2)

    @property
    def needs_reference(self) -> bool:
        return self.weight > 0 or self.keep > 0

    @property
    def reads_sentences(self) -> bool:
        return self.sentences > 0

    def kinds(self) -> Callable[[ParallelCorpus, WordPairs], np.ndarray] | None:
        return None if self.same == "negative" or not self.same_share else equal_pairs

    def loss(self, groups: list[GroupVectors], processes: Processes) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        for group in groups:
            for name, value in self._of_group(group, processes).items():
                terms[name] = terms[name] + value if name in terms else value
        return terms

    def _of_group(self, group: GroupVectors, processes: Processes) -> dict[str, Tensor]:
        def of_all(counts: list[int], *rows: Tensor) -> list[Tensor]:
            return [processes.gather_rows(each, counts) for each in rows]

        x, y = (
            functional.normalize(rows, dim=1) for rows in of_all(group.pairs_of_process, group.source, group.target)
        )
        kinds = group.kinds
        if kinds is not None:
            (kinds,) = of_all(group.pairs_of_process, kinds)
            kinds = kinds.squeeze(1)
        answers: dict[Same, float] = {"negative": 1.0}
        if self.same != "negative":
            answers = {"negative": 1 - self.same_share, self.same: self.same_share}
        terms = {
            "contrast": info_nce(x, y, temperature=self.temperature, strong=self.strong, kinds=kinds, same=answers)
        }
        if group.reference is not None and self.weight:
            # Summed here and divided by everyone's number of elements: a mean over all processes.
            distance = (group.regularised - group.reference).square().sum()
            terms["stay"] = self.weight * distance / max(1, group.n_regularised * group.regularised.shape[1])
        if group.reference is not None and self.keep:
            now, before = of_all(group.words_of_process, group.regularised, group.reference)
            terms["keep"] = self.keep * neighbours_lost(now, before, temperature=self.temperature)
        if group.sentences is not None:
            x, y = (functional.normalize(rows, dim=1) for rows in of_all(group.sentences_of_process, *group.sentences))
            terms["sentences"] = self.sentences * info_nce(x, y, temperature=self.temperature, strong=False)
        return terms


def equal_pairs(corpus: ParallelCorpus, pairs: WordPairs) -> np.ndarray:
    """Number the linked pairs so that pairs of the same two words (in lower case) have the same number.

    Returns:
        int64 `[n_pairs]`, from 0 on.
    """
    source = _word_types(corpus.source, pairs.sentence, pairs.source)
    target = _word_types(corpus.target, pairs.sentence, pairs.target)
    width = int(target.max(initial=0)) + 1
    known = np.zeros(0, dtype=np.int64)
    for some in blocks(len(source)):
        known = np.union1d(known, source[some] * width + target[some])
    return filled(len(source), np.int64, lambda some: np.searchsorted(known, source[some] * width + target[some]))


def _word_types(sentences: Sentences, sentence: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Return the number of each linked word's type in lower case, int64 `[n]`, in alphabetical order."""
    types, numbers, offsets = number_words(sentences)
    lowered = [each.lower() for each in types]
    order = {each: number for number, each in enumerate(sorted(set(lowered)))}
    table = np.array([order[each] for each in lowered], dtype=np.int64)
    return filled(len(word), np.int64, lambda some: table[numbers[offsets[sentence[some]] + word[some]]])
