"""Vectors of sentences or of their words on disk, each computed once: what a teacher says is asked again in every epoch and
every run."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from calque.encoders.base import Encoder
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.errors import InputError
from calque.offsets import offsets_of, ranges
from calque.progress import bar
from calque.segment import splitter
from calque.storage import write_text
from calque.text import Sentences
from calque.vectors import map_arrays, write_arrays

_BLOCK = 4096  # sentences of a file: what a stop may cost


class _Store(ABC):
    """Vectors of texts in a folder, found by encoder and text; whatever is there is not computed again.

    A text is known by 64 bits of a hash of its words: of ten million texts, two share them with a chance of 3 in a million.

    Attributes:
        key: hash over all that decides a vector but the text.
    """

    encoder: Encoder
    key: str
    folder: Path
    _what: str  # is kept, for messages
    _names: tuple[str, ...]  # of the arrays of a file besides `texts` and `vectors`
    _between = " "  # words of a text, where it is hashed

    @abstractmethod
    def _compute(self, sentences: Sentences) -> dict[str, np.ndarray]:
        """The arrays of a file, but for `texts`; `vectors` has the rows."""

    @abstractmethod
    def _keep(self, parts: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Take in what is there."""

    def _read(self) -> None:
        """Map all files that are there."""
        self._parts: list[np.ndarray] = []
        texts, parts = [], []
        for path in sorted(self.folder.glob("*.safetensors")):
            arrays, _ = map_arrays(path)
            if set(arrays) != {"texts", "vectors", *self._names} or not self._is_whole(arrays):
                raise InputError(f"not vectors of {self._what}; delete it, and they are computed anew", path=path)
            texts.append(np.asarray(arrays["texts"]))
            self._parts.append(arrays["vectors"])
            parts.append(arrays)
        self._starts = np.cumsum([0, *map(len, self._parts)])
        known = np.concatenate(texts) if texts else np.zeros(0, dtype=np.int64)
        self._order = np.argsort(known, kind="stable")
        self._sorted = known[self._order]
        self._keep(parts)

    @abstractmethod
    def _is_whole(self, arrays: Mapping[str, np.ndarray]) -> bool:
        """Whether the arrays of a file fit each other."""

    def __len__(self) -> int:
        """Texts that are there."""
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
        counts: Path | None = None,
    ) -> int:
        """Compute what is missing, in files that come whole or not at all; a run that was stopped goes on behind the last.

        Args:
            sentences: the texts, divided at spaces alone; an empty one gets no vector.
            rank, world: which part of the work is this process's.
            meet: waits for the other processes.
            progress: show a bar on standard error.
            counts: JSON file in which a run that is stopped and resumed finds how many there were when it began.

        Returns:
            how many there were to compute.
        """
        texts, filled = digests(sentences, self._between), np.flatnonzero(sentences.lengths())
        fresh, first = np.unique(texts[filled], return_index=True)
        first = np.sort(filled[first[~self._known(fresh)]])
        found = 0 if counts is None else _first_count(counts, f"{self.key} {_hex(fresh)}", len(first), write=not rank)
        meet()  # none writes before all know what is missing
        blocks = [first[start : start + _BLOCK] for start in range(0, len(first), _BLOCK)][rank::world]
        with bar(sum(map(len, blocks)), unit="sentence", title="teacher", show=progress and not rank) as shown:
            for rows in blocks:
                arrays = self._compute(sentences.take(rows))
                self.folder.mkdir(parents=True, exist_ok=True)
                write_arrays(self.folder / f"{_hex(texts[rows])}.safetensors", {"texts": texts[rows], **arrays})
                shown.update(len(rows))
        meet()
        self._read()
        return max(found, len(first))

    def _known(self, texts: np.ndarray) -> np.ndarray:
        """bool `[n]`: there is a vector."""
        places = np.searchsorted(self._sorted, texts)
        found = self._sorted[np.minimum(places, len(self._sorted) - 1)] if len(self._sorted) else ~texts
        return found == texts

    def _place(self, sentences: Sentences) -> np.ndarray:
        """Which of the texts that are there some texts are, int64 `[n]`; all must be there."""
        texts = digests(sentences, self._between)
        assert self._known(texts).all()
        return self._order[np.searchsorted(self._sorted, texts)]

    def take(self, places: np.ndarray) -> np.ndarray:
        """Vectors by their places, float32 `[n, dim]`."""
        result = np.empty((len(places), self.dim), dtype=np.float32)
        part = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(part):
            rows = np.flatnonzero(part == number)
            result[rows] = self._parts[number][places[rows] - self._starts[number]]
        return result


class SentenceStore(_Store):
    """Vectors of sentences in a folder.

    Args:
        folder: where the files are; those of other encoders may stand beside them.
        encoder: the teacher.
        pooling: how it makes a sentence's vector.
    """

    _what, _names = "sentences", ()

    def __init__(self, folder: str | PathLike[str], encoder: Encoder, pooling: SentencePooling):
        self.encoder, self.pooling = encoder, pooling
        self.key = _key(encoder, pooling)
        self.folder = Path(folder) / self.key
        self._read()

    def _is_whole(self, arrays: Mapping[str, np.ndarray]) -> bool:
        return len(arrays["texts"]) == len(arrays["vectors"])

    def _keep(self, parts: Sequence[Mapping[str, np.ndarray]]) -> None:
        pass

    def _compute(self, sentences: Sentences) -> dict[str, np.ndarray]:
        return {"vectors": sentence_vectors(self.encoder, self._read_by(sentences), self.pooling).data}

    def _read_by(self, sentences: Sentences) -> Sentences:
        """Text divided at spaces alone, as the encoder reads it: into words where its vectors are of words."""
        if self.pooling.unit == "subwords":
            return sentences
        split = splitter(sentences.lang, pretokenized=False)
        return Sentences.of([split(" ".join(sentence.words)) for sentence in sentences], sentences.lang)

    def places(self, sentences: Sentences) -> np.ndarray:
        """Where the vectors of some texts are, int64 `[n]`; equal texts have one place. All must be there."""
        return self._place(sentences)


class WordStore(_Store):
    """Vectors of the words of sentences, in context, in a folder: a row for each word, in float32.

    Args:
        folder: where the files are; vectors of sentences, or of other encoders, may stand beside them.
        encoder: the teacher; its layer and pooling say what a word's vector is.
    """

    _what, _names, _between = "words", ("sizes", "covered"), "\0"

    def __init__(self, folder: str | PathLike[str], encoder: Encoder):
        self.encoder = encoder
        self.key = f"{encoder.fingerprint}-words"
        self.folder = Path(folder) / self.key
        self._read()

    def _is_whole(self, arrays: Mapping[str, np.ndarray]) -> bool:
        return len(arrays["texts"]) == len(arrays["sizes"]) and (
            arrays["sizes"].sum() == len(arrays["vectors"]) == len(arrays["covered"])
        )

    def _keep(self, parts: Sequence[Mapping[str, np.ndarray]]) -> None:
        empty = np.zeros(0, dtype=np.int64)
        self._first = offsets_of(np.concatenate([empty, *(part["sizes"] for part in parts)]))
        self._covered = np.concatenate([empty.astype(bool), *(part["covered"] for part in parts)]).astype(bool)

    def _compute(self, sentences: Sentences) -> dict[str, np.ndarray]:
        found = self.encoder.encode(sentences)
        covered = np.ones(found.n_words, dtype=bool) if found.covered is None else np.asarray(found.covered)
        data = np.ascontiguousarray(found.data, dtype=np.float32)
        return {"vectors": data, "sizes": np.diff(found.offsets), "covered": covered}

    def places(self, sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
        """Where the vectors of some texts' words are. All texts but empty ones must be there.

        Returns:
            places of all words, int64 `[n_words]`, equal for the same word of equal texts; and which have a vector.
        """
        lengths = sentences.lengths()
        filled = np.flatnonzero(lengths)
        places = ranges(self._first[self._place(sentences.take(filled))], lengths[filled])
        return places, self._covered[places]


def digests(sentences: Iterable, between: str = " ") -> np.ndarray:
    """64 bits of a hash of each sentence's words, with `between` between them, int64 `[n_sentences]`."""
    return np.array(
        [
            int.from_bytes(
                hashlib.blake2b(between.join(s.words).encode(), digest_size=8).digest(), "little", signed=True
            )
            for s in sentences
        ],
        dtype=np.int64,
    )


def _hex(numbers: np.ndarray) -> str:
    return hashlib.blake2b(numbers.tobytes(), digest_size=8).hexdigest()


def _first_count(path: Path, name: str, count: int, *, write: bool) -> int:
    """Return the number that a file has under a name; `count` where it has none, which it then gets."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if write and name not in known:
        write_text(path, json.dumps({**known, name: count}) + "\n")
    return known.get(name, count)


def _key(encoder: Encoder, pooling: SentencePooling) -> str:
    """Hash over all that decides a sentence's vector but its text."""
    about = [encoder.fingerprint, pooling.unit, pooling.modes, pooling.max_length, pooling.lower, pooling.prompt]
    digest = hashlib.blake2b(json.dumps([*about, str(pooling.after)]).encode(), digest_size=12)
    for weight in pooling.state_dict().values():
        digest.update(weight.detach().cpu().contiguous().to(torch.float32).numpy().tobytes())
    return digest.hexdigest()
