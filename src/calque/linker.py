"""Align the words of sentence pairs with an encoder or with the saved tables of a statistical
aligner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.storage import mapped_array
from calque.text import ParallelCorpus
from calque.wordalign.similarity import (
    MEMORY,
    STORED,
    Similarities,
    check_extraction,
    cosines,
    links_from_matrices,
)
from calque.wordalign.statistical import WordAligner, is_aligner
from calque.wordalign.symmetrization import check_method

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

BLOCK = 1 << 11  # number of sentence pairs whose vectors are held in memory at a time


class Link(NamedTuple):
    """Link between two words: their positions, starting at 0, and a score between 0 and 1.

    The score is the posterior of a statistical aligner, or the score of an extraction method
    (`calque.wordalign.similarity`).
    """

    source: int
    target: int
    score: float


class Linker:
    """Word aligner for sentence pairs that uses an encoder or the saved tables of a statistical
    aligner.

    Args:
        model: an encoder or its name (see `load_encoder`), a `WordAligner`, or a file written by
            `calque words --tables`.
        langs: source and target language, required by encoders with separate components for each
            language.
        method: method that extracts links from cosines, "mutual" or "softmax" (encoders only);
            default: the encoder's own method `pivots` if it has one, otherwise "mutual".
        symmetrize: method that combines the links of the two alignment directions (tables only);
            default: "one-to-one".
        options: further arguments to the extraction method, such as `{"threshold": 0.01}`.
        load: further arguments to `load_encoder`, such as `layer`.

    Raises:
        SettingError: `method` or `symmetrize` is unknown, an option does not apply to the model, or
            the encoder has no word vectors.

    Example:
        >>> from calque import Linker
        >>> Linker("mini").link(["Madrid"], ["Madrid"])
        [Link(source=0, target=0, score=1.0)]
    """

    def __init__(
        self,
        model: str | PathLike[str] | Encoder | WordAligner,
        *,
        langs: tuple[str, str] | None = None,
        method: str | None = None,
        symmetrize: str | None = None,
        options: dict[str, Any] | None = None,
        **load: Any,
    ):
        # Exactly one of the two is set.
        self.aligner, self.encoder = _opened(model, load, method)
        self.method = "mutual" if method is None else method
        self.symmetrize = "one-to-one" if symmetrize is None else symmetrize
        self.options = {} if options is None else dict(options)
        check_extraction(self.method)
        check_method(self.symmetrize)
        # An encoder's own extraction method is used unless another method is requested.
        self._pivots = getattr(self.encoder, "pivots", None) if method is None else None
        if self.aligner is None:
            if symmetrize is not None:
                raise SettingError(
                    "symmetrize applies only to aligner tables, got an encoder; omit symmetrize"
                )
            self.langs = langs or ("", "")
        else:
            if method is not None or options or load:
                raise SettingError(
                    "method, options and layers apply only to encoders, got the tables of an "
                    "aligner; omit these arguments"
                )
            self.langs = _languages_of_tables(self.aligner, langs)

    def link(self, source: Sequence[str], target: Sequence[str]) -> list[Link]:
        """Return the sorted links between the words of two sentences."""
        return next(self.links([(source, target)]))

    def links(
        self, pairs: Iterable[tuple[Sequence[str], Sequence[str]]], *, block: int = BLOCK
    ) -> Iterator[list[Link]]:
        """Yield the sorted links of each sentence pair; the vectors of only `block` sentence pairs
        are in memory at a time.
        """
        # The pairs may be a long stream, so they are taken block by block.
        remaining = iter(pairs)
        while batch := list(islice(remaining, block)):
            sources = [source for source, _ in batch]
            targets = [target for _, target in batch]
            aligned = self.align(ParallelCorpus.of(sources, targets, self.langs))
            scores = np.ones(len(aligned)) if aligned.posterior is None else aligned.posterior
            columns = (aligned.source.tolist(), aligned.target.tolist(), scores.tolist())
            links = [Link(i, j, score) for i, j, score in zip(*columns, strict=True)]
            for start, end in pairwise(aligned.offsets().tolist()):
                yield sorted(links[start:end])

    def align(self, corpus: ParallelCorpus) -> WordPairs:
        """Return the word links of a corpus whose vectors fit in memory."""
        if self.aligner is not None:
            return self.aligner.align(corpus, symmetrize=self.symmetrize)
        if self._pivots is not None:
            return self._pivots(corpus)
        return links_from_matrices(
            self._matrices(corpus), len(corpus), method=self.method, **self.options
        )

    def aligned(self, corpus: ParallelCorpus) -> Iterator[WordPairs]:
        """Yield the word links of a corpus in blocks, to limit memory use; each block numbers its
        sentence pairs from 0.
        """
        if self.aligner is not None:
            yield from self.aligner.aligned(corpus, symmetrize=self.symmetrize)
            return
        for first in range(0, len(corpus), BLOCK):
            yield self.align(corpus[first : first + BLOCK])

    def similarities(self, corpus: ParallelCorpus) -> Similarities:
        """Return word similarities for use as `prior` in `calque.align_words`; large arrays are
        stored in a temporary file.

        Raises:
            SettingError: the model is a statistical aligner, which has no vectors.
        """
        n_source, n_target = corpus.source.lengths(), corpus.target.lengths()
        data = mapped_array((int((n_source * n_target).sum()),), STORED, MEMORY)
        start = 0
        for first in range(0, len(corpus), BLOCK):
            for matrix in self._matrices(corpus[first : first + BLOCK]):
                data[start : start + matrix.size] = matrix.ravel()
                start += matrix.size
        return Similarities(data, n_source, n_target)

    def similarity(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        """Return cosines between two sentences' words, float32 `[source words, target words]`; NaN
        for words without a vector.

        Raises:
            SettingError: the model is a statistical aligner, which has no vectors.
        """
        return next(self._matrices(ParallelCorpus.of([source], [target], self.langs)))

    def _matrices(self, corpus: ParallelCorpus) -> Iterator[np.ndarray]:
        if self.encoder is None:
            raise SettingError(
                "a statistical aligner has no vectors; build the Linker from an encoder"
            )
        return cosines(self.encoder.encode(corpus.source), self.encoder.encode(corpus.target))


def _languages_of_tables(aligner: WordAligner, langs: tuple[str, str] | None) -> tuple[str, str]:
    """Return the languages of an aligner's tables; raise a `SettingError` if `langs` differs."""
    if langs not in (None, aligner.langs):
        raise SettingError(
            f"langs must be the tables' languages, {'-'.join(aligner.langs)}, got {langs}"
        )
    return aligner.langs


def _opened(
    model: str | PathLike[str] | Encoder | WordAligner, load: dict[str, Any], method: str | None
) -> tuple[WordAligner | None, Encoder | None]:
    """Return (aligner, None) or (None, encoder); load `model` if it is a name or a file."""
    if isinstance(model, WordAligner):
        return model, None
    if isinstance(model, str | PathLike) and is_aligner(fspath(model)):
        return WordAligner.open(model), None
    # These modules import PyTorch, which statistical aligners do not need.
    from calque.encoders.base import require
    from calque.encoders.loading import load_encoder

    if isinstance(model, str | PathLike):
        model = load_encoder(model, **load)
    elif load:
        raise SettingError(
            f"{', '.join(load)}: allowed only for encoders passed by name, got a loaded encoder"
        )
    if method is not None or not hasattr(model, "pivots"):
        require(model, "measured")
    return None, model
