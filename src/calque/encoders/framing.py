"""The special subwords that a tokenizer puts around a text, or around and between two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calque.errors import SettingError
from calque.offsets import offsets_of, ranges

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: words to try a tokenizer out with, one of which it should know
PROBES = ("the", "in", "a", "e", "1", "de", "и", "ve", "的")


class Frame(NamedTuple):
    """The special subwords around one text or around two, and the segments (`token_type_ids`) of everything.

    Attributes:
        special: ids before, between and after the texts.
        segments: of the same subwords.
        texts: the segment of each text.
    """

    special: list[np.ndarray]
    segments: list[np.ndarray]
    texts: list[int]


@contextmanager
def as_words(backend: Tokenizer) -> Iterator[None]:
    """The tokenizer without truncation and padding, and blind to special subwords in the text."""
    truncation, padding, special = backend.truncation, backend.padding, backend.encode_special_tokens
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    try:
        yield
    finally:
        backend.encode_special_tokens = special
        if truncation is not None:
            backend.enable_truncation(**truncation)
        if padding is not None:
            backend.enable_padding(**padding)


def frame_of(tokenizer: Any, columns: int = 1) -> Frame:
    """What the tokenizer itself puts around texts, read off one example. Where it has something for one text and nothing
    for two, the second one gets the end of the first once more.

    Raises:
        SettingError: it puts something inside a text, or knows none of the words tried.
    """
    backend = tokenizer.backend_tokenizer
    with as_words(backend):
        for word in PROBES:
            encoding = backend.encode(*[[word]] * columns, is_pretokenized=True)
            owner = np.array([-1 if text is None else text for text in encoding.sequence_ids])
            places = [np.flatnonzero(owner == text) for text in range(columns)]
            if all(map(len, places)):
                break
        else:
            raise SettingError(f"{type(tokenizer).__name__} maps every probe word to nothing")
    if any(place[-1] - place[0] >= len(place) for place in places):
        raise SettingError(
            f"{type(tokenizer).__name__} puts special subwords inside a sentence, expected them at its ends only"
        )
    if not places[0][0] and columns == 2:
        begin, end = frame_of(tokenizer).special
        return Frame([begin, end, end], [np.zeros_like(part) for part in (begin, end, end)], [0, 0])
    ids, kinds = np.array(encoding.ids, dtype=np.int32), np.array(encoding.type_ids, dtype=np.int32)
    edges = [0, *(edge for place in places for edge in (place[0], place[-1] + 1)), len(ids)]
    cuts = [slice(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    return Frame([ids[cut] for cut in cuts], [kinds[cut] for cut in cuts], [int(kinds[place[0]]) for place in places])


class Piece(NamedTuple):
    """A run of subwords for each of n sequences, cut out of some ids.

    Attributes:
        ids: int32, of all of them.
        starts, sizes: int64 `[n]`, where in `ids` each run begins, and how long it is.
    """

    ids: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


def framed(frame: Frame, pieces: Sequence[Piece]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences of one text or two with the special subwords around and between them.

    Args:
        frame: for as many texts as there are pieces.
        pieces: the runs of the first text of each sequence, and those of the second.

    Returns:
        ids and segments, int32 `[n_subwords]`, and the offsets of the sequences, int64 `[n + 1]`.
    """
    n = len(pieces[0].sizes)
    offsets = offsets_of(sum((piece.sizes for piece in pieces), np.full(n, sum(map(len, frame.special)))))
    ids, kinds = np.empty(offsets[-1], dtype=np.int32), np.empty(offsets[-1], dtype=np.int32)
    place = offsets[:-1].copy()
    for number, special in enumerate(frame.special):
        where = ranges(place, np.full(n, len(special)))
        ids[where], kinds[where] = np.tile(special, n), np.tile(frame.segments[number], n)
        place = place + len(special)
        if number < len(pieces):
            piece = pieces[number]
            where = ranges(place, piece.sizes)
            ids[where] = piece.ids[ranges(piece.starts, piece.sizes)]
            kinds[where] = frame.texts[number]
            place = place + piece.sizes
    return ids, kinds, offsets
