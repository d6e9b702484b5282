"""calque aligns the languages of a multilingual encoder.

It measures how close the contextual vectors of words are to those of their translations, aligns the
encoder with little supervision, and returns an encoder that transfers better across languages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calque.named import exported
from calque.version import VERSION

if TYPE_CHECKING:
    from calque.alignment.contrastive import Contrastive as Contrastive
    from calque.alignment.driver import align as align
    from calque.alignment.finetune import FineTune as FineTune
    from calque.alignment.held_out import HeldOut as HeldOut
    from calque.analyses.reading import Reading as Reading
    from calque.analyses.reading import choose_reading as choose_reading
    from calque.corpora import read_parallel as read_parallel
    from calque.encoders import Encoder as Encoder
    from calque.encoders import load_encoder as load_encoder
    from calque.encoders.mapped import MappedEncoder as MappedEncoder
    from calque.encoders.sentence_vectors import SentencePooling as SentencePooling
    from calque.encoders.sentence_vectors import sentence_vectors as sentence_vectors
    from calque.encoders.static import load_static as load_static
    from calque.errors import CalqueError as CalqueError
    from calque.linker import Link as Link
    from calque.linker import Linker as Linker
    from calque.maps import LinearMap as LinearMap
    from calque.maps import NormalizedRotation as NormalizedRotation
    from calque.maps import Rotation as Rotation
    from calque.pairs import WordPairs as WordPairs
    from calque.segment import split_words as split_words
    from calque.tasks import Score as Score
    from calque.tasks import SentenceRetrieval as SentenceRetrieval
    from calque.tasks import WordAlignment as WordAlignment
    from calque.tasks import WordRetrieval as WordRetrieval
    from calque.text import ParallelCorpus as ParallelCorpus
    from calque.text import Sentence as Sentence
    from calque.text import Sentences as Sentences
    from calque.vectors import Embeddings as Embeddings
    from calque.wordalign import WordAligner as WordAligner
    from calque.wordalign import align_words as align_words

__version__ = VERSION

# Names are imported on first use, which keeps `import calque` and `calque --help` fast.
NAMES = {
    "alignment.contrastive": "Contrastive",
    "alignment.driver": "align",
    "alignment.finetune": "FineTune",
    "alignment.held_out": "HeldOut",
    "analyses.reading": "Reading choose_reading",
    "corpora": "read_parallel",
    "encoders": "Encoder load_encoder",
    "encoders.mapped": "MappedEncoder",
    "encoders.sentence_vectors": "SentencePooling sentence_vectors",
    "encoders.static": "load_static",
    "errors": "CalqueError",
    "linker": "Link Linker",
    "maps": "LinearMap NormalizedRotation Rotation",
    "pairs": "WordPairs",
    "segment": "split_words",
    "tasks": "Score SentenceRetrieval WordAlignment WordRetrieval",
    "text": "ParallelCorpus Sentence Sentences",
    "vectors": "Embeddings",
    "wordalign": "WordAligner align_words",
}
__getattr__ = exported(__name__, NAMES)
__all__ = sorted(" ".join(NAMES.values()).split())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
