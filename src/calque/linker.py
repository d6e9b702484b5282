"""Word links of sentence pairs as they come, by an encoder's vectors or by tables that were learnt before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.storage import room
from calque.text import ParallelCorpus
from calque.wordalign.similarity import MEMORY, STORED, Similarities, check_extraction, cosines, links_from_matrices
from calque.wordalign.statistical import WordAligner, is_aligner
from calque.wordalign.symmetrization import check_method

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

BLOCK = 1 << 11  # sentence pairs whose vectors are held at a time


class Link(NamedTuple):
    """A link of two words.

    Attributes:
        source, target: their numbers in their sentences, counted from 0.
        score: how sure it is, 0 to 1: a probability of a statistical aligner; of an encoder what its method says (see
            `calque.wordalign.similarity`).
    """

    source: int
    target: int
    score: float


class Linker:
    """Links the words of sentence pairs, one pair at a time: what it links with is loaded once.

    Args:
        model: an encoder or its name (see `calque.load_encoder`), or a `WordAligner` or the file that `calque words --tables`
            wrote.
        langs: languages of the two sides, for an encoder that has one part for each. Those of tables are known.
        method: with an encoder, how links are made of its cosines: "mutual" or "softmax"; None for the encoder's own `pivots`, if
            it has these, else "mutual".
        symmetrize: with tables, how their two directions are joined; "one-to-one" by default.
        options: with an encoder, further arguments of the method, such as `{"threshold": 0.01}`.
        load: further arguments of `load_encoder`, such as `layer`.

    Raises:
        SettingError: an option of the other kind, no such method or symmetrisation, or an encoder of something else than words.

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
        self.aligner, self.encoder = _opened(model, load, method)
        self._pivots = getattr(self.encoder, "pivots", None) if method is None else None
        self.method, self.symmetrize, self.options = method or "mutual", symmetrize or "one-to-one", dict(options or {})
        if self.encoder is None and (method is not None or options or load):
            raise SettingError(
                "method, options and layers are an encoder's, and this is an aligner's tables: leave them out"
            )
        if self.aligner is None and symmetrize is not None:
            raise SettingError("symmetrize joins the two directions of tables, and this is an encoder: leave it out")
        check_extraction(self.method)
        check_method(self.symmetrize)
        if self.aligner is not None and langs not in (None, self.aligner.langs):
            raise SettingError(f"langs={langs}, but the tables are for {'-'.join(self.aligner.langs)}")
        self.langs = langs or (("", "") if self.aligner is None else self.aligner.langs)

    def __repr__(self) -> str:
        return f"Linker({self.aligner if self.encoder is None else self.encoder.name})"

    def link(self, source: Sequence[str], target: Sequence[str]) -> list[Link]:
        """The links of one sentence pair, sorted.

        Args:
            source, target: its words.

        Raises:
            SettingError: a sentence is one string.
        """
        return next(self.links([(source, target)]))

    def links(
        self, pairs: Iterable[tuple[Sequence[str], Sequence[str]]], *, block: int = BLOCK
    ) -> Iterator[list[Link]]:
        """The links of many sentence pairs, as they come; never more than a block of them is held.

        Args:
            pairs: the words of each source sentence and of its translation.
            block: sentence pairs of a block.

        Yields:
            the links of each sentence pair, sorted.
        """
        rest = iter(pairs)
        while some := list(islice(rest, block)):
            found = self.align(ParallelCorpus.of([a for a, _ in some], [b for _, b in some], self.langs))
            score = np.ones(len(found)) if found.posterior is None else found.posterior
            links = [
                Link(*each) for each in zip(found.source.tolist(), found.target.tolist(), score.tolist(), strict=True)
            ]
            offsets = found.offsets().tolist()
            yield from (sorted(links[a:b]) for a, b in pairwise(offsets))

    def align(self, corpus: ParallelCorpus) -> WordPairs:
        """The links of a text that is small enough for its vectors to be held at once."""
        if self.aligner is not None:
            return self.aligner.align(corpus, symmetrize=self.symmetrize)
        if self._pivots is not None:
            return self._pivots(corpus)
        return links_from_matrices(self._matrices(corpus), len(corpus), method=self.method, **self.options)

    def aligned(self, corpus: ParallelCorpus, *, block: int = BLOCK) -> Iterator[WordPairs]:
        """The links of a text in parts: no more than the vectors of a block of sentence pairs are in memory.

        Args:
            corpus: the text.
            block: sentence pairs of a block.

        Yields:
            links of one block after the other; its sentence pairs count from 0.
        """
        if self.aligner is not None:
            yield from self.aligner.aligned(corpus, symmetrize=self.symmetrize)
            return
        for first in range(0, len(corpus), block):
            yield self.align(corpus[first : first + block])

    def similarities(self, corpus: ParallelCorpus, *, block: int = BLOCK) -> Similarities:
        """Those of a text, for `prior` of `calque.align_words`: in memory, or in a file without a name if they are very many.

        Raises:
            SettingError: tables have no vectors.
        """
        sizes = corpus.source.lengths(), corpus.target.lengths()
        data, at = room((int((sizes[0] * sizes[1]).sum()),), STORED, MEMORY), 0
        for first in range(0, len(corpus), block):
            for matrix in self._matrices(corpus[first : first + block]):
                data[at : at + matrix.size] = matrix.ravel()
                at += matrix.size
        return Similarities(data, *sizes)

    def similarity(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        """The cosines of the words of a sentence pair, float32 `[source words, target words]`; NaN for a word without a vector.

        Raises:
            SettingError: tables have no vectors.
        """
        return next(self._matrices(ParallelCorpus.of([source], [target], self.langs)))

    def _matrices(self, corpus: ParallelCorpus) -> Iterator[np.ndarray]:
        if self.encoder is None:
            raise SettingError("an aligner's tables have no vectors to compare: make a Linker of an encoder")
        return cosines(self.encoder.encode(corpus.source), self.encoder.encode(corpus.target))


def _opened(model: Any, load: dict[str, Any], method: str | None) -> tuple[WordAligner | None, Encoder | None]:
    """What links: tables, or else an encoder of words."""
    if isinstance(model, WordAligner):
        return model, None
    if isinstance(model, str | PathLike) and is_aligner(fspath(model)):
        return WordAligner.open(model), None
    from calque.encoders.base import require  # with PyTorch, which tables do without
    from calque.encoders.loading import load_encoder

    if isinstance(model, str | PathLike):
        model = load_encoder(model, **load)
    elif load:
        raise SettingError(f"{', '.join(load)}: for an encoder that is named, and this one is loaded: leave it out")
    if method is not None or not hasattr(model, "pivots"):
        require(model, "measured")
    return None, model
