"""Choose the layer and the pooling with which a command reads an encoder."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.distributed import is_first
from calque.encoders.base import E
from calque.errors import SettingError
from calque.input_texts import Say, Words, digest_of
from calque.storage import json_text, read_json_object, write_text

if TYPE_CHECKING:
    from calque.analyses.reading import Reading, Unit
    from calque.encoders import Encoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus

#: value of `layer` or `pooling` that stands for a choice by parallel text
AUTO = "auto"
#: maximum number of sentence pairs on which the aligner is trained if only the sample needs links
ALIGNED = 5_000
_NAMES = ("layer", "pooling")


@dataclass(frozen=True)
class Wish:
    """How the user wants an encoder to be read.

    Attributes:
        load: keyword arguments of `load_encoder`, without names that are to be chosen.
        auto: which of "layer" and "pooling" the user set to auto.
        usual: whether names that are neither given nor saved with the encoder are chosen, too.
        pooling: pooling that replaces the default pooling of an encoder that saves none; if it is
            set, nothing is chosen unless the user asks for it.
    """

    load: Mapping[str, Any]
    auto: frozenset[str] = frozenset()
    usual: bool = False
    pooling: str = ""

    @classmethod
    def of(cls, load: Mapping[str, Any] | None, *, usual: bool = False, pooling: str = "") -> Wish:
        """Separate the names that are set to auto from the other arguments of `load_encoder`."""
        given = dict(load or {})
        auto = frozenset(name for name in _NAMES if given.get(name) == AUTO)
        rest = {name: value for name, value in given.items() if name not in auto}
        return cls(rest, auto, usual, pooling)

    def without_choice(self) -> Wish:
        """Return this wish where there is no parallel text to choose by.

        Raises:
            SettingError: the user set a name to auto.
        """
        for name in sorted(self.auto):
            raise SettingError(
                f"--{name} auto needs parallel text to choose by; give the number of a layer or the "
                "name of a pooling, or leave out this option"
            )
        return replace(self, usual=False)

    def free(self, encoder: Encoder) -> frozenset[str]:
        """Return which of "layer" and "pooling" are to be chosen for a loaded encoder."""
        chooses = self.usual and (not self.pooling or bool(self.auto))
        if not chooses:
            return self.auto
        given = self.load.keys() | getattr(encoder, "saved", frozenset())
        return self.auto | (frozenset(_NAMES) - given)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Hide the warning about a decoder's default layer in the `with` block if the layer may be
        chosen afterwards; `keep` gives the warning if it is not.
        """
        from calque.encoders.layers import DefaultLayerWarning

        with warnings.catch_warnings():
            if self.may_choose:
                warnings.simplefilter("ignore", DefaultLayerWarning)
            yield

    @property
    def may_choose(self) -> bool:
        """True if the layer of an encoder that records none is chosen."""
        return self.usual or "layer" in self.auto

    def keep(self, encoder: E) -> E:
        """Return an encoder whose layer is not chosen, after a warning if its layer is the default
        layer of a decoder.
        """
        if self.may_choose:
            for each in getattr(encoder, "encoders", {"": encoder}).values():
                if getattr(each, "uses_decoder_layer", False):
                    each.warn_of_default_layer()
        return encoder


def read_encoder(
    encoder: E,
    wish: Wish,
    texts: Callable[[], tuple[Sequence[ParallelCorpus], Sequence[WordPairs]]],
    *,
    unit: Unit,
    folder: Path | None = None,
    say: Say = lambda line: None,
) -> tuple[E, Reading | None]:
    """Return an encoder that is read as the user wishes, and the choice, if there was one.

    Args:
        encoder: encoder that was loaded with `wish.load`.
        texts: function that returns the training texts and their word links; it is called only if
            there is something to choose.
        unit: what is measured, see `choose_reading`.
        folder: folder of a run that can be interrupted; the choice is stored there, and read again
            for the same encoder, texts and links.
    """
    from calque.analyses.reading import Reading, choose_reading, why_fixed
    from calque.encoders.huggingface import HuggingFaceEncoder, with_default_pooling
    from calque.nn.pooling import POOLINGS

    free = wish.free(encoder)
    if not free:
        if "pooling" not in wish.load:
            encoder = with_default_pooling(encoder, wish.pooling)
        return wish.keep(encoder), None
    reason = why_fixed(encoder)
    if reason or not isinstance(encoder, HuggingFaceEncoder):
        if wish.auto:
            say(f"{encoder.name} keeps its layer and pooling, because {reason}")
        return wish.keep(encoder), None
    corpora, links = texts()
    layers = None if "layer" in free else [encoder.layer]
    poolings = POOLINGS if "pooling" in free else [encoder.pooling]
    place = None
    if folder is not None:
        about = [encoder.fingerprint, unit, sorted(free)]
        place = folder / f"reading-{_digest(about, corpora, links)}.json"
    if place is not None and place.is_file():
        reading = Reading.from_record(
            read_json_object(place, "this file was not written by calque")
        )
    else:
        reading = choose_reading(
            encoder, corpora, links, unit=unit, layers=layers, poolings=poolings
        )
        if place is not None and is_first():
            place.parent.mkdir(parents=True, exist_ok=True)
            write_text(place, json_text(reading.record(), indent=2) + "\n")
    say(reading.line)
    return reading.apply(encoder), reading


def _digest(
    about: Sequence[Any], corpora: Sequence[ParallelCorpus], links: Sequence[WordPairs]
) -> str:
    """Return a hash of settings, texts and word links."""
    digest = hashlib.blake2b(json_text(about).encode(), digest_size=16)
    for corpus in corpora:
        digest.update((digest_of(corpus.source) + digest_of(corpus.target)).encode())
    for pairs in links:
        for column in (pairs.sentence, pairs.source, pairs.target):
            digest.update(np.ascontiguousarray(column, dtype=np.int64).tobytes())
    return digest.hexdigest()


def linked_sample(
    corpora: Sequence[ParallelCorpus], words: Words
) -> tuple[list[ParallelCorpus], list[WordPairs]]:
    """Return at most 5,000 evenly spaced sentence pairs of each text, and their word links by the
    statistical aligner, for commands that do not link the whole text.
    """
    # The fastest aligner is good enough to compare readings by.
    model = "fast-align" if words.model == "auto" else words.model
    one_to_one = replace(words, model=model, symmetrize="one-to-one")
    samples, links = [], []
    for corpus in corpora:
        if len(corpus) > ALIGNED:
            rows = np.linspace(0, len(corpus) - 1, ALIGNED).round().astype(np.int64)
            corpus = corpus.take(rows)
        samples.append(corpus)
        links.append(one_to_one.link(corpus))
    return samples, links
