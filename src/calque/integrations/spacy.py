"""A spaCy pipeline component for contextual token vectors and for word links between two docs
(requires the extra `spacy`).

    nlp = spacy.blank("en")
    nlp.add_pipe("calque", config={"encoder": "mini"})

Words are all spaCy tokens except white space. If an earlier component, such as a parser or
`sentencizer`, sets sentence boundaries, each sentence is encoded separately, as during alignment;
otherwise the doc is encoded as one sentence.
"""

# `from __future__ import annotations` is omitted, because spaCy reads the argument types of a
# factory.
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from calque.errors import MissingExtraError, SettingError, check_number
from calque.linker import Link
from calque.text import Sentences
from calque.vectors import Embeddings
from calque.wordalign.similarity import cosines, link_matrix

try:
    from spacy.language import Language
    from spacy.tokens import Doc, Token
except ImportError as missing:
    raise MissingExtraError("spacy", "spacy", "the spaCy component") from missing

if TYPE_CHECKING:
    from calque.encoders import Encoder

_FOLDER = "encoder"  # subfolder of a saved pipeline


class WordVectors:
    """Component that sets `doc._.calque_vectors`, float32 `[tokens, dim]`, with zeros for white
    space and words without vectors.

    `token._.calque` is the vector of a token, and `doc._.calque_links(other)` calls
    `links_between`.

    Args:
        encoder: hub name, folder or bundled name of the encoder (see `calque.load_encoder`), which
            is loaded on first use.
        layer: number of the encoder layer; default: see `calque.load_encoder`.
        lang: language of the docs, used by encoders with language-specific parts; default: the
            language of the pipeline.
        batch_size: default number of docs that `pipe` encodes together.
    """

    def __init__(
        self,
        encoder: str,
        *,
        layer: int | None = None,
        lang: str | None = None,
        batch_size: int = 64,
    ):
        check_number("batch_size", batch_size, least=1, whole=True)
        self._name, self._layer = encoder, layer
        self._encoder: Encoder | None = None
        self.lang, self.batch_size = lang, batch_size

    @property
    def encoder(self) -> "Encoder":
        """The encoder, which is loaded on first use."""
        if self._encoder is None:
            self._encoder = _load(self._name, self._layer)
        return self._encoder

    def __call__(self, doc: Doc) -> Doc:
        self._set([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int | None = None) -> Iterator[Doc]:
        """Encode a stream of docs in batches."""
        docs = iter(stream)
        size = batch_size or self.batch_size
        while batch := list(islice(docs, size)):
            self._set(batch)
            yield from batch

    def _set(self, docs: Sequence[Doc]) -> None:
        """Encode all sentences of the docs together, and set the vectors of each doc."""
        from calque.encoders.extraction import encode_long

        parts = []  # the doc and the token indices of each sentence
        words = []
        for doc in docs:
            doc._.calque_vectors = np.zeros((len(doc), self.encoder.dim), np.float32)
            for part in _parts(doc):
                parts.append((doc, part))
                words.append([doc[token].text for token in part.tolist()])
        if not parts:
            return
        vectors = encode_long(self.encoder, Sentences.of(words, self._language(docs[0])))
        for number, (doc, part) in enumerate(parts):
            doc._.calque_vectors[part] = vectors[number]

    def _language(self, doc: Doc) -> str:
        lang = self.lang or doc.lang_
        return "" if lang == "xx" else lang  # spaCy's code for multi-language pipelines

    # -- disk --------------------------------------------------------------------------------------
    def to_disk(self, path: str | PathLike[str], *, exclude: Sequence[str] = ()) -> None:
        """Save the encoder in the pipeline's folder, with any adapters merged into its weights."""
        from calque.encoders.trainable import TrainableEncoder

        encoder = self.encoder
        if isinstance(encoder, TrainableEncoder):
            encoder = encoder.merged()
        encoder.save(Path(path) / _FOLDER)

    def from_disk(self, path: str | PathLike[str], *, exclude: Sequence[str] = ()) -> Self:
        self._encoder = _load(str((Path(path) / _FOLDER).absolute()), None)
        return self


@Language.factory(
    "calque",
    assigns=["doc._.calque_vectors", "token._.calque"],
    default_config={"encoder": "mini", "layer": None, "lang": None, "batch_size": 64},
)
def make_component(
    nlp: Language, name: str, encoder: str, layer: int | None, lang: str | None, batch_size: int
) -> WordVectors:
    """Build the component `calque`; see `WordVectors` for its configuration."""
    return WordVectors(encoder, layer=layer, lang=lang, batch_size=batch_size)


def _load(name: str, layer: int | None) -> "Encoder":
    """Load an encoder, and check that it returns word vectors."""
    from calque.encoders.base import require
    from calque.encoders.loading import load_encoder

    encoder = load_encoder(name, layer=layer)
    require(encoder, "measured")
    return encoder


def _parts(doc: Doc) -> list[np.ndarray]:
    """Return the token indices of the words of each sentence, int64; a doc without sentence
    boundaries is one sentence.
    """
    spans = doc.sents if doc.has_annotation("SENT_START") else [doc[:]]
    parts = []
    for span in spans:
        tokens = [token.i for token in span if not token.is_space]
        if tokens:
            parts.append(np.array(tokens, dtype=np.int64))
    return parts


# -- extensions of docs and tokens -----------------------------------------------------------------
def _vectors(doc: Doc) -> np.ndarray:
    """Return the vectors of a doc's tokens, float32 `[tokens, dim]`."""
    if not isinstance(doc, Doc):
        raise SettingError(
            f"expected a spaCy Doc from a pipeline with calque, got {type(doc).__name__}"
        )
    vectors = doc._.calque_vectors
    if vectors is None:
        raise SettingError(
            "this doc has no vectors; process it with a pipeline that contains the component calque"
        )
    if len(vectors) != len(doc):
        raise SettingError(
            f"the doc has {len(vectors)} vectors for {len(doc)} tokens, because it was retokenized "
            "after the component calque ran"
        )
    return vectors


def vector_of(token: Token) -> np.ndarray:
    """Return a token's contextual vector, float32 `[dim]`."""
    return _vectors(token.doc)[token.i]


def links_between(doc: Doc, other: Doc, method: str = "mutual", **options: Any) -> list[Link]:
    """Align the tokens of two docs by the cosine similarity of their vectors.

    Args:
        doc, other: a text and its translation, both processed by the component.
        method, options: see `calque.wordalign.similarity.links_from_embeddings`.

    Returns:
        sorted tuples `(source, target, score)`, which link `doc[source]` to `other[target]`.
    """
    source_tokens, source = _words_of(doc)
    target_tokens, target = _words_of(other)
    i, j, scores = link_matrix(next(cosines(source, target)), method=method, **options)
    columns = source_tokens[i].tolist(), target_tokens[j].tolist(), scores.tolist()
    return [Link(*link) for link in zip(*columns, strict=True)]


def _words_of(doc: Doc) -> tuple[np.ndarray, Embeddings]:
    """Return the indices of the tokens that have a vector, int64, and their vectors as one
    sentence.
    """
    vectors = _vectors(doc)
    tokens = np.flatnonzero(vectors.any(axis=1))
    return tokens, Embeddings(vectors[tokens], np.array([0, len(tokens)]))


if not Doc.has_extension("calque_vectors"):
    Doc.set_extension("calque_vectors", default=None)
    Doc.set_extension("calque_links", method=links_between)  # type: ignore[arg-type]
    Token.set_extension("calque", getter=vector_of)
