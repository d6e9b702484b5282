"""Similarities of the words of a text by an encoder that learnt from the rest of it: it does not know a sentence pair's own links
by heart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calque.alignment.contrastive import Contrastive
from calque.errors import SettingError, check_number
from calque.linker import Linker
from calque.training.loop import rate_by_width
from calque.wordalign.similarity import Similarities

if TYPE_CHECKING:
    from calque.alignment.tuner import Tuner
    from calque.encoders.trainable import TrainableEncoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus


class HeldOut:
    """A prior of the statistical aligners from an encoder that is aligned on the very text, cross-fitted: the similarities of
    each part of the text are those of a copy of the encoder that was aligned on the links of the other parts alone.

    Sentence pairs are dealt out to the parts in turn, those with equal source sentences to the same one, in all texts alike, so
    that a copy has seen none of its source sentences. Equal arguments give equal numbers.

    Args:
        encoder: is copied and stays as it is.
        corpora: texts whose similarities can be asked for; they may be in different languages, and one alone will do.
        pairs: the links of each.
        parts: how many; as many trainings are run.
        tuner: the method; None for contrast with small batches for a small text, see `small`.
        progress: show the bars of the trainings on standard error.

    Raises:
        SettingError: fewer different source sentences than parts, or a part without which there are no links.

    Example:
        `calque.align_words(corpus, model="gibbs", prior=HeldOut(encoder, [corpus], [calque.align_words(corpus)]))`
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
            raise SettingError(f"{len(corpora)} texts and links of {len(pairs)}: give each text its links")
        part_of = deal(corpora, parts)
        tuner = tuner or small(encoder, common(corpora))
        found: list[list[np.ndarray]] = [[np.zeros((0, 0), np.float32)] * len(corpus) for corpus in corpora]
        for part in range(parts):
            others = [np.flatnonzero(numbers != part) for numbers in part_of]
            learnt = [(c.take(rows), p.take(rows)) for c, p, rows in zip(corpora, pairs, others, strict=True)]
            learnt = [(corpus, links) for corpus, links in learnt if len(links)]
            if not learnt:
                raise SettingError(f"no links outside part {part + 1} of {parts}: take fewer parts, or more text")
            aligned = tuner.tune(
                encoder, [text for text, _ in learnt], [links for _, links in learnt], progress=progress
            )
            for corpus, numbers, matrices in zip(corpora, part_of, found, strict=True):
                rows = np.flatnonzero(numbers == part)
                similar = Linker(aligned, langs=corpus.langs).similarities(corpus.take(rows))
                for row, matrix in zip(rows.tolist(), similar, strict=True):
                    matrices[row] = matrix
        self.similarities = [Similarities.of(matrices) for matrices in found]
        self._where = {
            pair: (k, row)
            for k, corpus in reversed(list(enumerate(corpora)))
            for row, pair in enumerate(_words(corpus))
        }

    def __call__(self, corpus: ParallelCorpus) -> Similarities:
        """The similarities of some of the sentence pairs of these texts, in any order.

        Raises:
            SettingError: a sentence pair of another text.
        """
        found = [self._where.get(pair) for pair in _words(corpus)]
        if None in found:
            raise SettingError(
                f"sentence pair {found.index(None) + 1:,} is not of the text that the encoder was aligned on part by part: "
                "take an encoder as it is for further text"
            )
        return Similarities.of(self.similarities[k][row] for k, row in filter(None, found))


def deal(corpora: Sequence[ParallelCorpus], parts: int) -> list[np.ndarray]:
    """The part of each sentence pair of each text, int64 `[n_sentences]`: the n-th different source sentence is of part n modulo
    `parts`.

    Raises:
        SettingError: fewer different source sentences than parts.
    """
    number: dict[tuple[str, ...], int] = {}
    dealt = [
        np.array([number.setdefault(sentence.words, len(number)) for sentence in corpus.source], dtype=np.int64) % parts
        for corpus in corpora
    ]
    if len(number) < parts:
        raise SettingError(f"{parts} parts of {len(number):,} different source sentences: take fewer parts")
    return dealt


def small(encoder: TrainableEncoder, towards: str, *, seed: int = 0) -> Contrastive:
    """Contrast for a few hundred sentence pairs: small batches, six passes, and half the usual rate of a narrow encoder."""
    return Contrastive(towards=towards, epochs=6, batch=8, learning_rate=rate_by_width(encoder.dim, 5 / 3), seed=seed)


def common(corpora: Sequence[ParallelCorpus]) -> str:
    """The language that all texts have; the source language of the first where they have two in common.

    Raises:
        SettingError: they have none.
    """
    for lang in corpora[0].langs:
        if all(lang in corpus.langs for corpus in corpora):
            return lang
    said = ", ".join("-".join(corpus.langs) for corpus in corpora)
    raise SettingError(f"texts in {said} have no language in common, and the encoder is aligned towards one")


def _words(corpus: ParallelCorpus) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The words of each sentence pair."""
    return [(a.words, b.words) for a, b in zip(corpus.source, corpus.target, strict=True)]
