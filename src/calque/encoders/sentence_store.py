"""Vectors of sentences on disk, each computed once: a teacher's vectors are read in every epoch and run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from calque.encoders.base import Encoder
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.errors import InputError
from calque.progress import bar
from calque.segment import splitter
from calque.text import Sentences
from calque.vectors import map_arrays, write_arrays

_BLOCK = 4096  # sentences of a file: what a stop may cost


class TeacherVectors:
    """Vectors of texts in a folder, found by encoder and text; whatever is there is not computed again.

    A text is known by 64 bits of a hash of its words: of ten million texts, two share them with a chance of 3 in a million.

    Args:
        folder: where the files are; those of other encoders may stand beside them.
        encoder: the teacher.
        pooling: how it makes a sentence's vector.

    Attributes:
        key: hash over all that decides a vector but the text.
    """

    def __init__(self, folder: str | PathLike[str], encoder: Encoder, pooling: SentencePooling):
        self.encoder, self.pooling = encoder, pooling
        self.key = _key(encoder, pooling)
        self.folder = Path(folder) / self.key
        self._read()

    def _read(self) -> None:
        """Map all files that are there."""
        texts = [np.zeros(0, dtype=np.int64)]
        self._parts: list[np.ndarray] = []
        for path in sorted(self.folder.glob("*.safetensors")):
            arrays, _ = map_arrays(path)
            if set(arrays) != {"texts", "vectors"} or len(arrays["texts"]) != len(arrays["vectors"]):
                raise InputError("not vectors of sentences; delete it, and they are computed anew", path=path)
            texts.append(np.asarray(arrays["texts"]))
            self._parts.append(arrays["vectors"])
        self._starts = np.cumsum([0, *map(len, self._parts)])
        known = np.concatenate(texts)
        self._order = np.argsort(known, kind="stable")
        self._sorted = known[self._order]

    def __len__(self) -> int:
        """Number of texts that are there."""
        return len(self._sorted)

    @property
    def dim(self) -> int:
        """Dimensions of a vector; 0 while there is none."""
        return self._parts[0].shape[1] if self._parts else 0

    def fill(
        self,
        sentences: Sentences,
        *,
        rank: int = 0,
        world: int = 1,
        meet: Callable[[], None] = lambda: None,
        progress: bool = False,
    ) -> int:
        """Compute what is missing, in files that appear atomically; a run that was stopped goes on behind the last.

        Args:
            sentences: the texts, divided at spaces alone; an empty one gets no vector.
            rank, world: which part of the work is this process's.
            meet: waits for the other processes.
            progress: show a bar on standard error.

        Returns:
            how many there were to compute.
        """
        texts, filled = digests(sentences), np.flatnonzero(sentences.lengths())
        fresh, first = np.unique(texts[filled], return_index=True)
        first = np.sort(filled[first[~np.isin(fresh, self._sorted)]])
        meet()  # none writes before all know what is missing
        blocks = [first[start : start + _BLOCK] for start in range(0, len(first), _BLOCK)][rank::world]
        with bar(sum(map(len, blocks)), unit="sentence", title="teacher", show=progress and not rank) as shown:
            for rows in blocks:
                vectors = self._compute(sentences.take(rows))
                self.folder.mkdir(parents=True, exist_ok=True)
                write_arrays(
                    self.folder / f"{_hex(texts[rows])}.safetensors", {"texts": texts[rows], "vectors": vectors}
                )
                shown.update(len(rows))
        meet()
        self._read()
        return len(first)

    def _compute(self, sentences: Sentences) -> np.ndarray:
        """Return the vectors of a file, `[n_sentences, dim]`."""
        if self.pooling.unit == "words":  # into which the encoder's text is divided
            split = splitter(sentences.lang, pretokenized=False)
            words = [split(" ".join(sentence.words)) for sentence in sentences]
            sentences = Sentences.of(words, sentences.lang)
        return sentence_vectors(self.encoder, sentences, self.pooling).data

    def places(self, sentences: Sentences) -> np.ndarray:
        """Return where the vectors of some texts are, all of which must be there, int64; equal texts have equal places."""
        texts = digests(sentences)
        assert np.isin(texts, self._sorted).all()
        return self._order[np.searchsorted(self._sorted, texts)]

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return vectors by their places, float32 `[n, dim]`."""
        result = np.empty((len(places), self.dim), dtype=np.float32)
        part = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(part):
            rows = np.flatnonzero(part == number)
            result[rows] = self._parts[number][places[rows] - self._starts[number]]
        return result


def digests(sentences: Iterable) -> np.ndarray:
    """Return 64 bits of a hash of each sentence's text, int64 `[n_sentences]`."""
    hashes = [hashlib.blake2b(" ".join(s.words).encode(), digest_size=8).digest() for s in sentences]
    return np.frombuffer(b"".join(hashes), dtype="<i8")


def _hex(numbers: np.ndarray) -> str:
    return hashlib.blake2b(numbers.tobytes(), digest_size=8).hexdigest()


def _key(encoder: Encoder, pooling: SentencePooling) -> str:
    """Return a hash over all that decides a sentence's vector but its text."""
    about = [encoder.fingerprint, pooling.unit, pooling.modes, pooling.max_length, pooling.lower, pooling.prompt]
    digest = hashlib.blake2b(json.dumps([*about, str(pooling.after)]).encode(), digest_size=12)
    for weight in pooling.state_dict().values():
        digest.update(weight.detach().cpu().contiguous().to(torch.float32).numpy().tobytes())
    return digest.hexdigest()
