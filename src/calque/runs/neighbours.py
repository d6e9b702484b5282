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


def neighbours(how: NeighbourSettings, load: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Find the words of a text whose vectors have the highest cosine similarity to the vector of a
    given word.

    Args:
        how: settings; an `encoder` with maps is compared with its base encoder.
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
    from calque.algebra.normalize import unit_rows
    from calque.encoders.base import require

    if not how.sentence2 and how.text2 is None:
        raise SettingError("there is no text to search; give --sentence2 or --text2")
    encoders = _encoders(how.encoder, how.aligned, dict(load or {}))
    for loaded in encoders.values():
        require(loaded, "measured")
    queries = {name: query_vector(loaded, how) for name, loaded in encoders.items()}
    words, place, _ = queries[BEFORE]
    vectors = {name: vector for name, (_, _, vector) in queries.items()}
    best: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in encoders}
    for block in chain([_divided(how.sentence2 or (), how.lang2, how.pretokenized)], _text(how)):
        encoded = {name: loaded.encode(block) for name, loaded in encoders.items()}
        cosines = {name: unit_rows(encoded[name].data) @ vectors[name] for name in encoders}
        covered = [each.covered for each in encoded.values() if each.covered is not None]
        known = np.logical_and.reduce([np.ones(encoded[BEFORE].n_words, dtype=bool), *covered])
        places = [(sentence.words, number) for sentence in block for number in range(len(sentence))]
        for row in np.flatnonzero(known):
            words2, number = places[row]
            similar = {name: float(cosines[name][row]) for name in encoders}
            about = {"word": words2[number], "sentence": words2, "place": number, **similar}
            for name, nearby in best.items():
                if about["word"] not in nearby or nearby[about["word"]][name] < similar[name]:
                    nearby[about["word"]] = about
    nearest = {
        name: sorted(nearby.values(), key=lambda about: -about[name])[: how.k]
        for name, nearby in best.items()
    }
    return {
        "word": words[place],
        "sentence": words,
        "place": place,
        "lang": how.lang1,
        "lang2": how.lang2,
        **nearest,
    }


def query_vector(encoder: Encoder, how: NeighbourSettings) -> tuple[list[str], int, np.ndarray]:
    """Return the words of a sentence, the position of the query word, and the L2-normalised vector
    of the query word.
    """
    from calque.algebra.normalize import unit_rows

    query = _divided([how.sentence1], how.lang1, how.pretokenized)
    words = list(query[0].words)
    place = _place(how.word1, words)
    vector = unit_rows(encoder.encode(query).data[place : place + 1])[0]
    if not vector.any():
        raise SettingError(f"{encoder.name} has no vector for {words[place]!r}")
    return words, place, vector


def table(found: Mapping[str, Any]) -> str:
    """Format the result of `neighbours` as text."""
    lines = [f"{found['word']} ({found['lang']}): {_marked(found)}"]
    both = AFTER in found
    for name in (BEFORE, AFTER) if both else (BEFORE,):
        cosine = "cosine before → after alignment" if both else "cosine"
        lines += [
            "",
            f"nearest in {found['lang2']}{f', {name} alignment' if both else ''} (rank, word, "
            f"{cosine}):",
        ]
        if not found[name]:
            lines.append("  no word has a vector")
        width = max((len(about["word"]) for about in found[name]), default=0)
        for rank, about in enumerate(found[name], 1):
            cosines = " → ".join(f"{about[each]:6.3f}" for each in (BEFORE, AFTER) if each in about)
            lines.append(f"{rank:3}  {about['word']:{width}}  {cosines}  {_marked(about)}")
    return "\n".join(lines)


def _marked(about: Mapping[str, Any]) -> str:
    """Return a sentence with the word in brackets; of a long sentence, only eight words on each
    side are kept.
    """
    place, words = about["place"], list(about["sentence"])
    first, last = max(0, place - 8), place + 9
    marked = [f"[{word}]" if number == place else word for number, word in enumerate(words)]
    return " ".join(
        [*(["…"] if first else []), *marked[first:last], *(["…"] if last < len(words) else [])]
    )


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
    from calque.segment import split_words
    from calque.text import Sentences

    return Sentences.of(
        [text.split() if pretokenized else split_words(text, lang) for text in sentences], lang
    )


def _text(how: NeighbourSettings) -> Iterator[Sentences]:
    from calque.corpora.plain import stream_sentences

    if how.text2 is None:
        return iter(())
    return stream_sentences(
        how.text2,
        lang=how.lang2,
        format=how.text_format,
        pretokenized=how.pretokenized,
        limit=how.limit,
        block=2048,
    )


def _place(word: str, words: Sequence[str]) -> int:
    """Return the position of the word in the sentence; if there is no exact match, ignore case."""
    for wanted, among in ((word, list(words)), (word.lower(), [each.lower() for each in words])):
        if wanted in among:
            return among.index(wanted)
    raise SettingError(
        f"{word!r} is not a word of the sentence; the words are: {' | '.join(words)}"
    )
