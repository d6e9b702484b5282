"""What training leaves between languages, taken off: the distance of their means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calque.alignment.text_maps import moments_of
from calque.encoders.mapped import MappedEncoder
from calque.errors import SettingError
from calque.maps.linear import LinearMap

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.text import ParallelCorpus


def centred(
    encoder: Encoder, corpora: Sequence[ParallelCorpus], *, towards: str, progress: bool = False
) -> MappedEncoder:
    """The encoder, with each language's mean moved onto that of its translations in `towards`: x → x − x̄ + ȳ.

    A contrast with words of the *other* language as negatives cannot see how far the means lie apart: what moves all words
    of a language adds nearly the same to all scores that compete. Means are taken over all words of both sides of the text, so
    that what it is about falls out; where a language has several texts, each counts by its words. Vectors of `towards` stay
    as they are.

    Args:
        encoder: one that was aligned; its own layer is shifted.
        corpora: parallel texts; those without `towards` do not count.
        towards: the language whose mean the others get.
        progress: show bars on standard error.

    Raises:
        SettingError: no text has `towards` on a side.
    """
    found: dict[str, list[tuple[int, np.ndarray, np.ndarray]]] = {}
    layer = encoder.layer_numbers(None)[0]
    for corpus in corpora:
        if towards not in corpus.langs:
            continue
        sides = dict(zip(corpus.langs, (corpus.source, corpus.target), strict=True))
        means = {
            lang: by_layer[layer]
            for lang, by_layer in moments_of(
                encoder, {lang: [side] for lang, side in sides.items()}, progress=progress
            ).items()
        }
        (lang,) = set(sides) - {towards}
        found.setdefault(lang, []).append((means[lang].n, means[lang].source_mean, means[towards].source_mean))
    if not found:
        raise SettingError(f"no text has {towards} on one side, whose mean the other languages would get")
    maps = {lang: {layer: _shift(parts)} for lang, parts in found.items()}
    return MappedEncoder(encoder, maps, towards=towards, settings={"method": "centred", "towards": towards})


def _shift(parts: Sequence[tuple[int, np.ndarray, np.ndarray]]) -> LinearMap:
    """From the mean of a language in its texts to that of the other sides, each text weighted by the language's words."""
    counts = [n for n, _, _ in parts]
    own = np.average([mean for _, mean, _ in parts], axis=0, weights=counts)
    other = np.average([mean for _, _, mean in parts], axis=0, weights=counts)
    return LinearMap.from_arrays({"matrix": np.eye(len(own)), "source_mean": own, "target_mean": other}, sum(counts))
