"""calque makes a multilingual encoder speak one language inside.

It measures how well words that translate each other lie together in context, aligns the encoder with little
supervision, and hands back an encoder that transfers better from one language to all others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from calque.version import VERSION

__version__ = VERSION

# Name → module. Loaded on first use, so that `import calque` and `calque --help` stay quick.
_EXPORTS = {
    "CalqueError": "calque.errors",
    "Contrastive": "calque.alignment.contrastive",
    "Embeddings": "calque.vectors",
    "Encoder": "calque.encoders",
    "FineTune": "calque.alignment.finetune",
    "HeldOut": "calque.alignment.held_out",
    "LinearMap": "calque.maps",
    "Link": "calque.linker",
    "Linker": "calque.linker",
    "MappedEncoder": "calque.encoders.mapped",
    "NormalizedRotation": "calque.maps",
    "ParallelCorpus": "calque.text",
    "Rotation": "calque.maps",
    "Score": "calque.tasks",
    "Sentence": "calque.text",
    "SentenceRetrieval": "calque.tasks",
    "Sentences": "calque.text",
    "WordAligner": "calque.wordalign",
    "WordAlignment": "calque.tasks",
    "WordPairs": "calque.pairs",
    "WordRetrieval": "calque.tasks",
    "align_words": "calque.wordalign",
    "load_encoder": "calque.encoders",
    "load_static": "calque.encoders.static",
    "read_parallel": "calque.corpora",
    "split_words": "calque.segment",
}

__all__ = [
    "CalqueError",
    "Contrastive",
    "Embeddings",
    "Encoder",
    "FineTune",
    "HeldOut",
    "LinearMap",
    "Link",
    "Linker",
    "MappedEncoder",
    "NormalizedRotation",
    "ParallelCorpus",
    "Rotation",
    "Score",
    "Sentence",
    "SentenceRetrieval",
    "Sentences",
    "WordAligner",
    "WordAlignment",
    "WordPairs",
    "WordRetrieval",
    "align_words",
    "load_encoder",
    "load_static",
    "read_parallel",
    "split_words",
]

if TYPE_CHECKING:
    from calque.alignment.contrastive import Contrastive
    from calque.alignment.finetune import FineTune
    from calque.alignment.held_out import HeldOut
    from calque.corpora import read_parallel
    from calque.encoders import Encoder, load_encoder
    from calque.encoders.mapped import MappedEncoder
    from calque.encoders.static import load_static
    from calque.errors import CalqueError
    from calque.linker import Link, Linker
    from calque.maps import LinearMap, NormalizedRotation, Rotation
    from calque.pairs import WordPairs
    from calque.segment import split_words
    from calque.tasks import Score, SentenceRetrieval, WordAlignment, WordRetrieval
    from calque.text import ParallelCorpus, Sentence, Sentences
    from calque.vectors import Embeddings
    from calque.wordalign import WordAligner, align_words


def __getattr__(name: str):
    if name not in _EXPORTS:
        raise AttributeError(f"module 'calque' has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
