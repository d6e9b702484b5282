"""Which word translates which: statistical alignment of parallel text, links from word vectors, symmetrisation."""

from __future__ import annotations

from calque.wordalign.agreement import HmmSettings
from calque.wordalign.diagonal import FastAlignSettings
from calque.wordalign.filtering import LinkFilter
from calque.wordalign.pivoting import Pivoted, pivoted
from calque.wordalign.sampler import GibbsSettings
from calque.wordalign.similarity import links_from_embeddings
from calque.wordalign.statistical import WordAligner, align_words
from calque.wordalign.switching import CodeSwitch
from calque.wordalign.symmetrize import symmetrize
from calque.wordalign.translations import Translations
from calque.wordalign.vocabulary import Classes

__all__ = [
    "Classes",
    "CodeSwitch",
    "FastAlignSettings",
    "GibbsSettings",
    "HmmSettings",
    "LinkFilter",
    "Pivoted",
    "Translations",
    "WordAligner",
    "align_words",
    "links_from_embeddings",
    "pivoted",
    "symmetrize",
]
