"""Compute anchors, the mean vectors of word types."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from calque.anchors import Anchors, AnchorSums
from calque.encoders.base import Encoder, require
from calque.encoders.extraction import UncoveredWordsWarning
from calque.encoders.static import StaticEncoder
from calque.errors import InputError, SettingError
from calque.progress import bar
from calque.storage import json_text
from calque.text import Sentences

_SAVE_EVERY = 60.0  # seconds between writes of the partial sums


def compute_anchors(
    encoder: Encoder,
    text: Sentences | Iterable[Sentences],
    layers: Sequence[int] | None = None,
    *,
    at_least: int = 1,
    most: int | None = None,
    **options: Any,
) -> dict[int, Anchors]:
    """Return the mean vector of each word type in a text, keyed by layer. The text is encoded block
    by block.

    Args:
        text: text in one language; see `sum_anchors`.
        layers: layer numbers; negative numbers count from the last layer. Default: the vectors of
            `encode`; their key is the number of the encoder's layer, or −1 if the encoder combines
            several layers or is built on another encoder.
        at_least: minimum number of times that a word must occur.
        most: maximum number of words; the most frequent words are kept.
        options: further arguments of `sum_anchors`.
    """
    return sum_anchors(encoder, text, layers, **options).finish(at_least=at_least, most=most)


def sum_anchors(
    encoder: Encoder,
    text: Sentences | Iterable[Sentences],
    layers: Sequence[int] | None = None,
    *,
    vocabulary: Iterable[str] | None = None,
    most_occurrences: int | None = None,
    block: int = 2048,
    partial: str | PathLike[str] | None = None,
    earlier: str | PathLike[str] | None = None,
    seed: int = 0,
    progress: bool = False,
) -> AnchorSums:
    """Return the sums from which anchors are computed; `AnchorSums.merge` adds up the sums of
    several processes.

    A sentence is not encoded if each of its words is outside `vocabulary` or has reached
    `most_occurrences`. If anchors are needed only for the words of a dictionary, only part of the
    text is therefore encoded.

    Args:
        encoder, layers: see `compute_anchors`.
        text: text in one language, or an iterable of its blocks.
        vocabulary, most_occurrences: see `AnchorSums`.
        block, seed: number of sentences encoded at a time, and a number that is recorded in
            `partial` only to distinguish runs.
        partial: file for partial sums, written every minute; a call with the same arguments resumes
            from this file.
        earlier: file written by an earlier call, from which the sums are read if `partial` does not
            exist.

    Raises:
        SettingError: the text has several languages, the encoder lacks a layer, or a file of sums
            was written by a different run.
    """
    require(encoder, "measured")
    if layers is not None:
        numbers = sorted(set(encoder.layer_numbers(layers)))
    elif encoder.layer is None or encoder.base is not None:
        # -1 also for an encoder with maps, because no further maps can be fitted to its layers
        numbers = [-1]
    else:
        numbers = [encoder.layer]
    if isinstance(text, Sentences):
        blocks = (text[start : start + block] for start in range(0, len(text), block))
    else:
        blocks = iter(text)
    first = next(blocks, Sentences.of([]))  # its language is that of the whole text
    words = None if vocabulary is None else list(dict.fromkeys(vocabulary))
    sums = AnchorSums(
        encoder.dim,
        layers=numbers,
        vocabulary=words,
        most_occurrences=most_occurrences,
        lang=first.lang,
    )
    about = {"encoder": encoder.name}
    if partial is not None:
        # The constants keep the hashes of earlier versions valid.
        settings = json_text([numbers, words, most_occurrences, 0, [0, 1], seed, first.lang])
        about["settings"] = hashlib.blake2b(settings.encode(), digest_size=16).hexdigest()
        about["fingerprint"] = encoder.fingerprint
    state = _Resumed(sums, partial, earlier, about)
    sums = state.sums
    total = len(text) if isinstance(text, Sentences) else None
    counter = bar(total, unit=" sentences", title="anchors", show=progress, initial=state.n_resumed)
    with counter, warnings.catch_warnings():
        # A single warning at the end replaces one per block.
        warnings.simplefilter("ignore", UncoveredWordsWarning)
        for part in chain([first], blocks):
            if part.lang != sums.lang:
                raise SettingError(
                    f"the text must be in one language, got {sums.lang!r} and {part.lang!r}"
                )
            if state.contains(part):
                continue
            _add_block(sums, encoder, part, None if layers is None else numbers)
            state.save_sometimes()
            counter.update(len(part))
    state.save()
    if sums.uncovered:
        fact = f"{sums.uncovered:,} words have no vector and are not counted"
        reason = "they exceed the limit of subwords per sentence, or the tokenizer drops them"
        warnings.warn(f"{fact}: {reason}", UncoveredWordsWarning, stacklevel=2)
    return sums


class _Resumed:
    """Sums of a text that is read block by block, and the file from which an interrupted run
    resumes.

    Args:
        sums: empty sums, which are used if there is no file.
        path, earlier: `partial` and `earlier` of `sum_anchors`.
        about: record of the run, saved with the sums.

    Attributes:
        sums: sums read from the file, or else the empty sums.
        n_resumed: number of sentences whose sums were read from the file.
    """

    def __init__(
        self,
        sums: AnchorSums,
        path: str | PathLike[str] | None,
        earlier: str | PathLike[str] | None,
        about: dict[str, str],
    ):
        self.sums, self._path, self._about = sums, path, about
        self._source = path  # the file that the sums are read from
        self._resumed_hash = ""  # hash of the text whose sums were read
        if path is not None:
            source = path if earlier is None or Path(path).exists() else earlier
            if Path(source).exists():
                self.sums, self._resumed_hash = _saved_sums(source, about)
            self._source = source
        self.n_resumed = self.sums.n_sentences
        self._n_read = 0
        self._hash = hashlib.blake2b(digest_size=16)  # hash of the text read so far
        self._saved_at = time.monotonic()

    def contains(self, block: Sentences) -> bool:
        """Advance by one block of the text, and return whether the file's sums contain the block.

        Raises:
            SettingError: the sums in the file belong to another text.
        """
        start = self._n_read
        self._n_read += len(block)
        if self._path is None:
            return False
        self._hash.update(block.lengths().tobytes())
        self._hash.update("\n".join(block.flat()[0].to_pylist()).encode())
        if start >= self.n_resumed:
            return False
        # The file's sums end with a block, where the hashes of both texts must be equal.
        is_last = self._n_read == self.n_resumed
        is_different = is_last and self._hash.hexdigest() != self._resumed_hash
        if self._n_read > self.n_resumed or is_different:
            raise SettingError(f"{self._source} contains sums from another text; remove the file")
        return True

    def save_sometimes(self) -> None:
        """Count the current block as done, and save the sums if the last time was a minute ago."""
        # The number includes sentences that are not encoded, so that an interrupted run resumes
        # after them.
        self.sums.n_sentences = self._n_read
        if time.monotonic() - self._saved_at >= _SAVE_EVERY:
            self._write()

    def save(self) -> None:
        """Save the sums of the whole text; raise SettingError if the file's text is longer."""
        if self._n_read < self.n_resumed:
            raise SettingError(f"{self._source} contains sums from a longer text; remove the file")
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            record = {**self._about, "text": self._hash.hexdigest()}
            self.sums.save(self._path, note=json_text(record))
            self._saved_at = time.monotonic()


def _saved_sums(path: str | PathLike[str], about: Mapping[str, str]) -> tuple[AnchorSums, str]:
    """Return the sums in a file and the hash of their text; raise SettingError if another run wrote
    the file.
    """
    recorded = pass_of(path)
    if any(recorded.get(name) != about[name] for name in ("fingerprint", "settings")):
        raise SettingError(
            f"{path} has sums from another run (encoder or settings differ); remove the file"
        )
    return AnchorSums.open(path), recorded["text"]


def _add_block(
    sums: AnchorSums, encoder: Encoder, sentences: Sentences, layers: Sequence[int] | None
) -> None:
    """Encode the sentences that contain a word whose occurrences are still needed, and add their
    vectors to the sums.
    """
    wanted = np.flatnonzero(sums.wanted(sentences))
    chosen = sentences if len(wanted) == len(sentences) else sentences.take(wanted)
    if not len(chosen):
        return
    if layers is None:
        sums.add(chosen, encoder.encode(chosen))
    else:
        sums.add(chosen, encoder.encode_layers(chosen, layers))


def pass_of(path: str | PathLike[str]) -> dict[str, str]:
    """Return the encoder's name and the hashes that `sum_anchors` wrote to a file, or an empty
    dictionary if there are none.
    """
    note = AnchorSums.note_of(path)
    try:
        about = json.loads(note) if note.startswith("{") else {}
        if not all(isinstance(value, str) for value in about.values()):
            raise ValueError("its values must be text")
        return about
    except (ValueError, RecursionError) as error:
        raise InputError(
            "the record of the run is corrupt; compute the sums again", path=path
        ) from error


def table_anchors(
    encoder: StaticEncoder, lang: str, *, most: int | None = None, also: Iterable[str] = ()
) -> dict[int, Anchors]:
    """Return the static word vectors of a language as anchors with a count of 0; maps and
    `encoder.sentence` are not applied.

    Args:
        most: maximum number of words, taken from the start of the table.
        also: additional words, which get an anchor if the table contains them.
    """
    table = encoder.tables.get(lang, encoder.tables.get(""))
    if table is None:
        raise SettingError(
            f"there are no word vectors for language {lang!r}; use one of {sorted(encoder.tables)}"
        )
    others = [word for word in also if word in table.index]
    words = [word for word in dict.fromkeys([*table.words[:most], *others]) if word]
    plain = encoder.replace(sentence=None, maps=None)
    encoded = plain.encode(Sentences.of([[word] for word in words], lang))
    covered = np.arange(len(words))
    if encoded.covered is not None:
        covered = np.flatnonzero(encoded.covered)
    vectors = np.asarray(encoded.data)[covered]
    counts = np.zeros(len(covered), dtype=np.int64)
    return {0: Anchors(tuple(words[k] for k in covered), vectors, counts, lang)}


def frequent_words(sentences: Sentences, most: int, also: Iterable[str] = ()) -> list[str]:
    """Return the `most` most frequent words in a text, followed by the words in `also`."""
    counted = sentences.flat()[0].value_counts()
    counts = counted.field("counts").to_numpy(zero_copy_only=False)
    order = np.argsort(-counts, kind="stable")[:most]
    types = counted.field("values")
    frequent = [types[int(k)].as_py() for k in order]
    return list(dict.fromkeys([*frequent, *also]))
