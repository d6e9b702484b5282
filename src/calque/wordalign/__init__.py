"""Which word translates which: statistical alignment of parallel text, links from word vectors, symmetrisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calque.named import exported

if TYPE_CHECKING:
    from calque.wordalign.fast_align import FastAlignSettings
    from calque.wordalign.gibbs import GibbsSettings
    from calque.wordalign.hmm import HmmSettings
    from calque.wordalign.matrices import Similarities
    from calque.wordalign.similarity import links_from_embeddings
    from calque.wordalign.statistical import WordAligner, align_words
    from calque.wordalign.symmetrization import symmetrize
    from calque.wordalign.vocabulary import Classes

# Imported when first asked for: a command that reads or links text need not know how everything else is read or linked.
__getattr__ = exported(
    __name__,
    {
        "Classes": "calque.wordalign.vocabulary:Classes",
        "FastAlignSettings": "calque.wordalign.fast_align:FastAlignSettings",
        "GibbsSettings": "calque.wordalign.gibbs:GibbsSettings",
        "HmmSettings": "calque.wordalign.hmm:HmmSettings",
        "Similarities": "calque.wordalign.matrices:Similarities",
        "WordAligner": "calque.wordalign.statistical:WordAligner",
        "align_words": "calque.wordalign.statistical:align_words",
        "links_from_embeddings": "calque.wordalign.similarity:links_from_embeddings",
        "symmetrize": "calque.wordalign.symmetrization:symmetrize",
    },
)

__all__ = [
    "Classes",
    "FastAlignSettings",
    "GibbsSettings",
    "HmmSettings",
    "Similarities",
    "WordAligner",
    "align_words",
    "links_from_embeddings",
    "symmetrize",
]
