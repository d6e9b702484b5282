"""Find the nearest words in another language to a word in a sentence, before and after
alignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.errors import SettingError
from calque.runs.settings import NeighbourSettings

if TYPE_CHECKING:
    from calque.encoders import Encoder
    from calque.text import Sentences

BEFORE, AFTER = "before", "after"


def neighbours(
    settings: NeighbourSettings, load: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Find the words of a text whose vectors have the highest cosine similarity to the vector of a
    given word.

    Args:
        settings: an `encoder` with maps is compared with its base encoder.
        load: keyword arguments of `load_encoder`; an aligned encoder with maps is loaded with its
            saved settings instead.

    Returns:
        a dictionary with the query, and with its nearest words in the lists `before` and (with an
        aligned encoder) `after`. Each word has `word`, `sentence` and `place` (its position in the
        sentence); nearest words have cosines `before` and `after`.

    Raises:
        SettingError: the word is not in its sentence or has no vector, or there are no sentences to
            search.
    """
    from calque.encoders.base import require

    if not settings.sentence2 and settings.text2 is None:
        raise SettingError("there is no text to search; give --sentence2 or --text2")
    encoders = _encoders(settings.encoder, settings.aligned, dict(load or {}))
    for loaded in encoders.values():
        require(loaded, "measured")
    vectors: dict[str, np.ndarray] = {}
    words: list[str] = []
    place = 0
    for name, loaded in encoders.items():
        words, place, vectors[name] = query_vector(loaded, settings)
    # the nearest occurrence of each word type, by encoder
    best: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in encoders}
    sentences = _divided(settings.sentence2 or (), settings.lang2, settings.pretokenized)
    for block in chain([sentences], _text(settings)):
        for occurrence in _occurrences(block, encoders, vectors):
            word = occurrence["word"]
            for name, nearby in best.items():
                if word not in nearby or nearby[word][name] < occurrence[name]:
                    nearby[word] = occurrence
    nearest = {}
    for name, nearby in best.items():
        ordered = sorted(nearby.values(), key=lambda occurrence: -occurrence[name])
        nearest[name] = ordered[: settings.k]
    return {
        "word": words[place],
        "sentence": words,
        "place": place,
        "lang": settings.lang1,
        "lang2": settings.lang2,
        **nearest,
    }


def _occurrences(
    sentences: Sentences, encoders: Mapping[str, Encoder], vectors: Mapping[str, np.ndarray]
) -> Iterator[dict[str, Any]]:
    """Yield every word for which all encoders have a vector, with its cosine similarity to the
    query vector of each encoder.
    """
    from calque.algebra.normalize import unit_rows

    encoded = {name: loaded.encode(sentences) for name, loaded in encoders.items()}
    cosines = {
        name: unit_rows(embeddings.data) @ vectors[name] for name, embeddings in encoded.items()
    }
    covered = np.ones(encoded[BEFORE].n_words, dtype=bool)
    for embeddings in encoded.values():
        if embeddings.covered is not None:
            covered &= embeddings.covered
    row = 0  # index of the word in the block
    for sentence in sentences:
        words = sentence.words
        for place, word in enumerate(words):
            if covered[row]:
                similar = {name: float(cosines[name][row]) for name in encoders}
                yield {"word": word, "sentence": words, "place": place, **similar}
            row += 1


def query_vector(
    encoder: Encoder, settings: NeighbourSettings
) -> tuple[list[str], int, np.ndarray]:
    """Return the words of a sentence, the position of the query word, and the L2-normalised vector
    of the query word, `[dim]`.
    """
    from calque.algebra.normalize import unit_rows

    query = _divided([settings.sentence1], settings.lang1, settings.pretokenized)
    words = list(query[0].words)
    place = _place(settings.word1, words)
    vector = unit_rows(encoder.encode(query).data[place : place + 1])[0]
    if not vector.any():
        raise SettingError(f"{encoder.name} has no vector for {words[place]!r}")
    return words, place, vector


def table(result: Mapping[str, Any]) -> str:
    """Format the result of `neighbours` as text."""
    lines = [f"{result['word']} ({result['lang']}): {_marked(result)}"]
    names = [name for name in (BEFORE, AFTER) if name in result]
    cosine = "cosine before → after alignment" if len(names) > 1 else "cosine"
    for name in names:
        when = f", {name} alignment" if len(names) > 1 else ""
        lines += ["", f"nearest in {result['lang2']}{when} (rank, word, {cosine}):"]
        nearest = result[name]
        if not nearest:
            lines.append("  no word has a vector")
        width = max((len(occurrence["word"]) for occurrence in nearest), default=0)
        for rank, occurrence in enumerate(nearest, 1):
            cosines = " → ".join(f"{occurrence[encoder]:6.3f}" for encoder in names)
            word = f"{occurrence['word']:{width}}"
            lines.append(f"{rank:3}  {word}  {cosines}  {_marked(occurrence)}")
    return "\n".join(lines)


def _marked(occurrence: Mapping[str, Any]) -> str:
    """Return a sentence with the word in brackets; of a long sentence, only eight words on each
    side are kept.
    """
    place, words = occurrence["place"], list(occurrence["sentence"])
    words[place] = f"[{words[place]}]"
    first, end = max(0, place - 8), place + 9
    shown = words[first:end]
    if first:
        shown.insert(0, "…")
    if end < len(words):
        shown.append("…")
    return " ".join(shown)


def _encoders(encoder: str, aligned: str | None, load: dict[str, Any]) -> dict[str, Encoder]:
    """Return the encoder before alignment and, if there is one, the encoder after alignment."""
    from calque.encoders import load_encoder
    from calque.encoders.mapped import MappedEncoder
    from calque.encoders.static import StaticEncoder

    if aligned is None:
        loaded = load_encoder(encoder, **load)
        if isinstance(loaded, MappedEncoder):
            return {BEFORE: loaded.without_maps(), AFTER: loaded}
        if isinstance(loaded, StaticEncoder) and loaded.maps:
            return {BEFORE: loaded.replace(maps=None), AFTER: loaded}
        return {BEFORE: loaded}
    after = load_encoder(aligned)
    if isinstance(after, MappedEncoder):
        load = {"layer": after.layers[-1], **load}
    elif load:
        after = load_encoder(aligned, **load)
    return {BEFORE: load_encoder(encoder, **load), AFTER: after}


def _divided(sentences: Sequence[str], lang: str, pretokenized: bool) -> Sentences:
    """Split sentences into words, at spaces if they are pretokenized."""
    from calque.segment import split_words
    from calque.text import Sentences

    if pretokenized:
        return Sentences.of([text.split() for text in sentences], lang)
    return Sentences.of([split_words(text, lang) for text in sentences], lang)


def _text(settings: NeighbourSettings) -> Iterator[Sentences]:
    """Read the text to search in blocks; there are none if the settings name no text."""
    from calque.corpora.plain import stream_sentences

    if settings.text2 is None:
        return iter(())
    return stream_sentences(
        settings.text2,
        lang=settings.lang2,
        format=settings.text_format,
        pretokenized=settings.pretokenized,
        limit=settings.limit,
        block=2048,
    )


def _place(word: str, words: Sequence[str]) -> int:
    """Return the position of the word in the sentence; if there is no exact match, ignore case."""
    if word in words:
        return words.index(word)
    lowered = [other.lower() for other in words]
    if word.lower() in lowered:
        return lowered.index(word.lower())
    raise SettingError(
        f"{word!r} is not a word of the sentence; the words are: {' | '.join(words)}"
    )
