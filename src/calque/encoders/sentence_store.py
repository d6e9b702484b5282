"""On-disk cache of a teacher's sentence vectors."""

from __future__ import annotations

import hashlib
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
from calque.storage import json_text, read_json_object, write_text
from calque.text import Sentences
from calque.vectors import map_arrays, write_arrays

_BLOCK = 4096  # number of sentences per file


class TeacherVectors:
    """Cache of sentence vectors in a folder, keyed by encoder and text. Cached vectors are not
    computed again.

    Texts are identified by a 64-bit hash of their words; for ten million texts, the probability of
    a collision is 3e-6.

    Args:
        folder: folder for the files; it can also contain the files of other encoders.
        encoder: teacher encoder.
        pooling: sentence pooling used with the teacher.
        counts: file in which a run records how many vectors existed when it began, so that
            `computed` includes the vectors that it computed before it was interrupted.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        encoder: Encoder,
        pooling: SentencePooling,
        *,
        counts: Path | None = None,
    ):
        self.encoder, self.pooling = encoder, pooling
        self.key = _key(encoder, pooling)
        self.folder = Path(folder) / self.key
        self._read()
        self._counts = counts
        self._before = self._recorded()

    @property
    def computed(self) -> int:
        """Number of vectors that this run has computed."""
        return len(self) - self._before

    def _recorded(self) -> int:
        """Return the number of vectors that existed when the run began."""
        if self._counts is None or not self._counts.is_file():
            return len(self)
        try:
            before = read_json_object(self._counts, "not a file of counts").get(self.key)
        except InputError:  # a corrupt file affects only the record of the run
            return len(self)
        return before if isinstance(before, int) and 0 <= before <= len(self) else len(self)

    def _read(self) -> None:
        """Memory-map all existing files."""
        texts = [np.zeros(0, dtype=np.int64)]
        self._parts: list[np.ndarray] = []
        for path in sorted(self.folder.glob("*.safetensors")):
            arrays, _ = map_arrays(path)
            if set(arrays) != {"texts", "vectors"} or len(arrays["texts"]) != len(
                arrays["vectors"]
            ):
                raise InputError(
                    "not a file of sentence vectors; delete it to compute the vectors again",
                    path=path,
                )
            texts.append(np.asarray(arrays["texts"]))
            self._parts.append(arrays["vectors"])
        self._starts = np.cumsum([0, *map(len, self._parts)])
        known = np.concatenate(texts)
        self._order = np.argsort(known, kind="stable")
        self._sorted = known[self._order]

    def __len__(self) -> int:
        return len(self._sorted)

    @property
    def dim(self) -> int:
        """Number of dimensions of a vector; 0 if there are no vectors."""
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
        """Compute and write the missing vectors, and return their number. An interrupted run
        resumes after the last saved file.

        Args:
            sentences: texts, split at spaces; an empty text gets no vector.
            rank, world: rank of this process and number of processes.
            meet: function that waits until all processes have called it (a barrier).
        """
        texts, filled = digests(sentences), np.flatnonzero(sentences.lengths())
        fresh, first = np.unique(texts[filled], return_index=True)
        first = np.sort(filled[first[~np.isin(fresh, self._sorted)]])
        if len(first) and not rank and self._counts is not None:
            write_text(self._counts, json_text({self.key: self._before}) + "\n")
        meet()  # all processes must list the missing texts before any process writes
        blocks = [first[start : start + _BLOCK] for start in range(0, len(first), _BLOCK)][
            rank::world
        ]
        with bar(
            sum(map(len, blocks)), unit="sentence", title="teacher", show=progress and not rank
        ) as counter:
            for rows in blocks:
                part = sentences.take(rows)
                if self.pooling.unit == "words":  # split the text into words as the encoder expects
                    split = splitter(part.lang, pretokenized=False)
                    part = Sentences.of(
                        [split(" ".join(sentence.words)) for sentence in part], part.lang
                    )
                vectors = sentence_vectors(self.encoder, part, self.pooling).data
                self.folder.mkdir(parents=True, exist_ok=True)
                name = hashlib.blake2b(texts[rows].tobytes(), digest_size=8).hexdigest()
                write_arrays(
                    self.folder / f"{name}.safetensors", {"texts": texts[rows], "vectors": vectors}
                )
                counter.update(len(rows))
        meet()
        self._read()
        return len(first)

    def places(self, sentences: Sentences) -> np.ndarray:
        """Return the index of each text's vector, int64. All vectors must exist; equal texts have
        equal indices.
        """
        texts = digests(sentences)
        assert np.isin(texts, self._sorted).all()
        return self._order[np.searchsorted(self._sorted, texts)]

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return the vectors at the given indices, float32 `[n, dim]`."""
        result = np.empty((len(places), self.dim), dtype=np.float32)
        part = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(part):
            rows = np.flatnonzero(part == number)
            result[rows] = self._parts[number][places[rows] - self._starts[number]]
        return result


def digests(sentences: Iterable) -> np.ndarray:
    """Return a 64-bit hash of each sentence's text, int64 `[n_sentences]`."""
    hashes = [
        hashlib.blake2b(" ".join(s.words).encode(), digest_size=8).digest() for s in sentences
    ]
    return np.frombuffer(b"".join(hashes), dtype="<i8")


def _key(encoder: Encoder, pooling: SentencePooling) -> str:
    """Return a hash of everything that determines a sentence vector except the text."""
    about = [
        encoder.fingerprint,
        pooling.unit,
        pooling.modes,
        pooling.max_length,
        pooling.lower,
        pooling.prompt,
    ]
    about += [] if pooling.truncate is None else [pooling.truncate]
    about += (
        ["left"]
        if getattr(getattr(encoder, "tokenizer", None), "truncation_side", "right") == "left"
        else []
    )
    digest = hashlib.blake2b(json_text([*about, str(pooling.after)]).encode(), digest_size=12)
    for weight in pooling.state_dict().values():
        digest.update(weight.detach().cpu().contiguous().to(torch.float32).numpy().tobytes())
    return digest.hexdigest()
