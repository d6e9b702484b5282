"""Word alignment: statistical aligners, link extraction from word vectors, and symmetrisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calque.named import exported

if TYPE_CHECKING:
    from calque.wordalign.fast_align import FastAlignSettings as FastAlignSettings
    from calque.wordalign.gibbs import GibbsSettings as GibbsSettings
    from calque.wordalign.hmm import HmmSettings as HmmSettings
    from calque.wordalign.similarity import Similarities as Similarities
    from calque.wordalign.similarity import links_from_embeddings as links_from_embeddings
    from calque.wordalign.statistical import WordAligner as WordAligner
    from calque.wordalign.statistical import align_words as align_words
    from calque.wordalign.symmetrization import symmetrize as symmetrize
    from calque.wordalign.vocabulary import Classes as Classes

# Modules are imported at first use, because Numba and the compiled loops load slowly.
__getattr__ = exported(
    __name__,
    {
        "fast_align": "FastAlignSettings",
        "gibbs": "GibbsSettings",
        "hmm": "HmmSettings",
        "similarity": "Similarities links_from_embeddings",
        "statistical": "WordAligner align_words",
        "symmetrization": "symmetrize",
        "vocabulary": "Classes",
    },
)
