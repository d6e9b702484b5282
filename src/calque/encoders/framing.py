"""The special subwords that a tokenizer puts around a text, or around and between two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calque.errors import SettingError

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
