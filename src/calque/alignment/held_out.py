"""Cross-fitted similarities: each part of a text is scored by an encoder that was aligned on the
other parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calque.alignment.base import Run
from calque.alignment.contrastive import Contrastive
from calque.alignment.data import LinkedText
from calque.errors import SettingError, check_number
from calque.linker import Linker
from calque.training.loop import rate_by_width
from calque.wordalign.similarity import Similarities

if TYPE_CHECKING:
    from calque.alignment.tuner import Tuner
    from calque.encoders.trainable import TrainableEncoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus


#: words of the source and of the target sentence
_Pair = tuple[tuple[str, ...], tuple[str, ...]]


class HeldOut:
    """Cross-fitted prior for the statistical aligners. The similarities for each part of the text
    are computed by a copy of the encoder that was aligned on the links of the other parts.

    Sentence pairs are assigned to the parts in turn. Pairs with equal source sentences go to the
    same part, so no copy is trained on a source sentence for which it computes similarities. The
    result is deterministic.

    Args:
        encoder: encoder to copy; it is not changed.
        corpora: one or more texts, which may be in different languages.
        pairs: word links of each text.
        parts: number of parts; one copy is trained for each part.
        tuner: alignment method; default: contrastive alignment with small batches, see `small`.
        progress: whether to show progress bars during training.

    Raises:
        SettingError: there are fewer distinct source sentences than parts, or all links are in one
            part.

    Example:
        `calque.align_words(corpus, model="gibbs", prior=HeldOut(encoder, [corpus],
        [calque.align_words(corpus)]))`
    """

    def __init__(
        self,
        encoder: TrainableEncoder,
        corpora: Sequence[ParallelCorpus],
        pairs: Sequence[WordPairs],
        *,
        parts: int = 3,
        tuner: Tuner | None = None,
        progress: bool = False,
    ):
        check_number("parts", parts, least=2, whole=True)
        if not corpora or len(corpora) != len(pairs):
            raise SettingError(
                f"each text must have word links, got {len(corpora)} texts but links for "
                f"{len(pairs)}"
            )
        part_of = deal(corpora, parts)
        tuner = tuner or small(encoder, common(corpora))
        # matrices of similarities by text and sentence pair
        matrices: list[list[np.ndarray]] = [
            [np.zeros((0, 0), np.float32)] * len(corpus) for corpus in corpora
        ]
        for part in range(parts):
            others = [np.flatnonzero(numbers != part) for numbers in part_of]
            training = _selected(corpora, pairs, others)
            if training is None:
                raise SettingError(
                    f"all word links are in part {part + 1} of {parts}; try fewer parts or more "
                    "text"
                )
            aligned = tuner.fit(encoder, training, Run(progress=progress)).encoder
            for corpus, numbers, of_corpus in zip(corpora, part_of, matrices, strict=True):
                rows = np.flatnonzero(numbers == part)
                similarities = Linker(aligned, langs=corpus.langs).similarities(corpus.take(rows))
                for row, matrix in zip(rows.tolist(), similarities, strict=True):
                    of_corpus[row] = matrix
        self.similarities = [Similarities.of(of_corpus) for of_corpus in matrices]
        # The first occurrence of a sentence pair counts.
        self._places: dict[_Pair, tuple[int, int]] = {}
        for number, corpus in enumerate(corpora):
            for row, pair in enumerate(_words(corpus)):
                self._places.setdefault(pair, (number, row))

    def __call__(self, corpus: ParallelCorpus) -> Similarities:
        """Return the similarities of sentence pairs from the texts passed to the constructor, in
        any order.

        Raises:
            SettingError: a sentence pair does not occur in these texts.
        """
        matrices = []
        for number, pair in enumerate(_words(corpus), start=1):
            if pair not in self._places:
                raise SettingError(
                    f"sentence pair {number:,} is not from the text that the encoder was aligned "
                    "on; for other text, try `calque.Linker(encoder).similarities`"
                )
            text, row = self._places[pair]
            matrices.append(self.similarities[text][row])
        return Similarities.of(matrices)


def _selected(
    corpora: Sequence[ParallelCorpus], pairs: Sequence[WordPairs], rows: Sequence[np.ndarray]
) -> LinkedText | None:
    """Return the sentence pairs with the given indices of each text; None if they have no links."""
    texts, links = [], []
    for corpus, of_corpus, numbers in zip(corpora, pairs, rows, strict=True):
        selected = of_corpus.take(numbers)
        if len(selected):
            texts.append(corpus.take(numbers))
            links.append(selected)
    return LinkedText(tuple(texts), tuple(links)) if texts else None


def deal(corpora: Sequence[ParallelCorpus], parts: int) -> list[np.ndarray]:
    """Return, for each text, the index of the part that contains each sentence pair, int64
    `[n_sentences]`. The n-th distinct source sentence belongs to part n modulo `parts`.

    Raises:
        SettingError: there are fewer distinct source sentences than parts.
    """
    ids: dict[tuple[str, ...], int] = {}
    part_of = []
    for corpus in corpora:
        numbers = [ids.setdefault(sentence.words, len(ids)) for sentence in corpus.source]
        part_of.append(np.array(numbers, dtype=np.int64) % parts)
    if len(ids) < parts:
        raise SettingError(
            f"parts must be at most {len(ids):,}, the number of distinct source sentences, got "
            f"{parts}"
        )
    return part_of


def small(encoder: TrainableEncoder, towards: str, *, seed: int = 0) -> Contrastive:
    """Return contrastive alignment with settings for a few hundred sentence pairs: small batches,
    six epochs, and about half the default learning rate."""
    return Contrastive(
        towards=towards,
        epochs=6,
        batch=8,
        learning_rate=rate_by_width(encoder.dim, 5 / 3),
        held_out=0,  # the similarities of the other part are not worth a tenth of this part
        seed=seed,
    )


def common(corpora: Sequence[ParallelCorpus]) -> str:
    """Return the language that all texts share, or the source language of the first text if they
    share both languages.

    Raises:
        SettingError: the texts have no common language.
    """
    for lang in corpora[0].langs:
        if all(lang in corpus.langs for corpus in corpora):
            return lang
    got = ", ".join("-".join(corpus.langs) for corpus in corpora)
    raise SettingError(f"the texts must have a language in common, got {got}")


def _words(corpus: ParallelCorpus) -> list[_Pair]:
    """Return the words of each sentence pair."""
    return [(a.words, b.words) for a, b in zip(corpus.source, corpus.target, strict=True)]
