"""Word vectors of sentences, in memory or memory-mapped from safetensors files."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from os import PathLike, fspath
from typing import Literal

import numpy as np

from calque.errors import CalqueWarning, InputError, similar_path
from calque.offsets import offsets_of, ranges
from calque.storage import json_text, reserve, whole
from calque.text_files import Flaw, flaw_of_bytes

# names of data types in safetensors files
_DTYPES = {
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "I64": np.int64,
    "BOOL": np.bool_,
}
_ROWS = 4096  # number of word vectors allocated at a time
_NAMES = {np.dtype(value): key for key, value in _DTYPES.items()}


class Embeddings:
    """One vector for each word in a list of sentences.

    Args:
        data: vectors of all words, `[n_words, dim]`, float16, float32 or float64.
        offsets: int64 `[n_sentences + 1]`; the vectors of sentence `i` are
            `data[offsets[i]:offsets[i + 1]]`.
        covered: mask of the words that have a vector, bool `[n_words]`, or None if all words have a
            vector. Words that were truncated, or that the tokenizer drops, have a zero vector.
    """

    def __init__(self, data: np.ndarray, offsets: np.ndarray, covered: np.ndarray | None = None):
        offsets = np.asarray(offsets, dtype=np.int64)
        _check_offsets(offsets, data)
        if covered is not None and covered.shape != (len(data),):
            raise InputError(f"covered must have the shape ({len(data)},), got {covered.shape}")
        self.data, self.offsets = data, offsets
        self.covered = None if covered is None or covered.all() else covered

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.offsets) - 1

    def __getitem__(self, sentence: int) -> np.ndarray:
        """Return the vectors of one sentence, `[words, dim]`."""
        if sentence < 0:
            sentence += len(self)
        return self.data[self.offsets[sentence] : self.offsets[sentence + 1]]

    @property
    def dim(self) -> int:
        return self.data.shape[1]

    @property
    def n_words(self) -> int:
        return self.data.shape[0]

    def rows(self, sentence: np.ndarray, word: np.ndarray) -> np.ndarray:
        """Return the row in `data` of each word, given its sentence and its position in the
        sentence, int64 `[n]`.
        """
        return self.offsets[sentence] + word

    def take(self, sentences: np.ndarray) -> Embeddings:
        """Return a copy of the vectors of the sentences at the given indices."""
        lengths = np.diff(self.offsets)[sentences]
        rows = ranges(self.offsets[sentences], lengths)
        covered = None if self.covered is None else self.covered[rows]
        return Embeddings(self.data[rows], offsets_of(lengths), covered)

    def sentence_means(self) -> np.ndarray:
        """Return the mean vector of each sentence's covered words, float64 `[n_sentences, dim]`.

        The vector of a sentence without covered words is zero.
        """
        lengths = np.diff(self.offsets)
        counts = lengths  # number of covered words in each sentence
        if self.covered is not None:
            sentence = np.repeat(np.arange(len(self)), lengths)
            counts = np.bincount(sentence[self.covered], minlength=len(self))
        sums = np.zeros((len(self), self.dim))
        has_words = lengths > 0  # for an empty sentence, reduceat would return the next vector
        if has_words.any():
            starts = self.offsets[:-1][has_words]
            sums[has_words] = np.add.reduceat(self.data, starts, axis=0, dtype=np.float64)
        if not np.isfinite(sums).all():
            raise InputError("word vectors contain NaN or infinity: encode the text again")
        return sums / np.maximum(counts, 1)[:, None]

    @classmethod
    def joined(cls, parts: Sequence[Embeddings]) -> Embeddings:
        """Concatenate several `Embeddings`."""
        if len(parts) == 1:
            return parts[0]
        covered = None
        if any(part.covered is not None for part in parts):
            masks = []
            for part in parts:
                # Parts without a mask are complete.
                is_complete = part.covered is None
                masks.append(np.ones(part.n_words, bool) if is_complete else part.covered)
            covered = np.concatenate(masks)
        offsets = offsets_of(np.concatenate([np.diff(part.offsets) for part in parts]))
        return cls(np.concatenate([part.data for part in parts]), offsets, covered)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file with `data`, `offsets` and `covered` (unless None), which `open`
        memory-maps.
        """
        arrays = {"data": self.data, "offsets": self.offsets}
        if self.covered is not None:
            arrays["covered"] = self.covered
        write_arrays(path, arrays)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Embeddings:
        """Open saved vectors as a memory-mapped file."""
        arrays, _ = map_arrays(path)
        if "data" not in arrays or "offsets" not in arrays:
            raise InputError(
                "not word vectors saved by calque (the tensor data or offsets is missing)",
                path=path,
            )
        try:
            return cls(arrays["data"], np.asarray(arrays["offsets"]), arrays.get("covered"))
        except InputError as error:
            raise InputError(error.fact, path=path) from error


def _check_offsets(offsets: np.ndarray, data: np.ndarray) -> None:
    """Raise an `InputError` if offsets do not divide the rows of `data` into sentences."""
    are_offsets = offsets.ndim == 1 and len(offsets) > 0 and offsets[0] == 0
    if data.ndim != 2 or not are_offsets or offsets[-1] != len(data):
        raise InputError(
            f"vectors of shape {tuple(data.shape)} do not match offsets that end at "
            f"{offsets.ravel()[-1:].tolist()}"
        )
    if (np.diff(offsets) < 0).any():
        raise InputError(
            "offsets must not decrease; expected the number of words before each sentence"
        )


@contextmanager
def filling(
    path: str | PathLike[str],
    shapes: Mapping[str, tuple[tuple[int, ...], np.dtype | type]],
    metadata: dict[str, str] | None = None,
) -> Iterator[dict[str, np.memmap]]:
    """Create a safetensors file, and yield memory-mapped arrays for the block to fill; the file
    gets its final name at the end.

    Disk space is allocated first. The arrays must not be used after the block; `map_arrays` opens
    the finished file.

    Raises:
        OutputError: the disk is full, or the file cannot be written; no incomplete file is left
            behind.
    """
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    # The header states where each array begins and ends, counted from the end of the header.
    position = 0
    for name, (shape, dtype) in shapes.items():
        end = position + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        header[name] = {
            "dtype": _NAMES[np.dtype(dtype)],
            "shape": list(shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json_text(header).encode()
    text += b" " * (-(len(text) + 8) % 64)  # aligns the arrays to 64 bytes
    with whole(path) as part:
        with open(part, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.flush()
            reserve(file, 8 + len(text) + position)
        file, arrays, _ = _mapped(part, "r+")
        yield arrays
        file.flush()
        arrays.clear()


def write_arrays(
    path: str | PathLike[str],
    arrays: Mapping[str, np.ndarray],
    metadata: dict[str, str] | None = None,
) -> None:
    """Write a safetensors file atomically; the arrays may be memory-mapped from the file that is
    replaced.
    """
    shapes = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    with filling(path, shapes, metadata) as mapped:
        for name, array in arrays.items():
            mapped[name][...] = array


def map_arrays(path: str | PathLike[str]) -> tuple[dict[str, np.memmap], dict[str, str]]:
    """Memory-map every tensor of a safetensors file.

    Returns:
        arrays by name, and the metadata of the file.

    Raises:
        InputError: the file is not a valid safetensors file, or uses a data type that NumPy does
            not support, such as bfloat16.
    """
    try:
        _, arrays, metadata = _mapped(path, "r")
    except FileNotFoundError as error:
        raise InputError(f"no such file{similar_path(path)}", path=path) from error
    except (
        OSError,
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        OverflowError,
        RecursionError,
    ) as error:
        fact = f"not a safetensors file that can be mapped ({type(error).__name__}: {error!s:.200})"
        raise InputError(f"{fact}; copy or create it again", path=path) from error
    return arrays, metadata


def _mapped(
    path: str | PathLike[str], mode: Literal["r", "r+"]
) -> tuple[np.memmap, dict[str, np.memmap], dict[str, str]]:
    """Return the bytes of a safetensors file, its tensors (views of these bytes), and its
    metadata.
    """
    file = np.memmap(fspath(path), mode=mode)
    start = 8 + int.from_bytes(file[:8].tobytes(), "little")
    header = json.loads(file[8:start].tobytes())
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise ValueError("the metadata must be an object with text values")
    # A file that was truncated or extended is refused even if its header is intact.
    size = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if size != len(file) - start:
        raise ValueError("the size of the file differs from the size in its header")
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = file[start + begin : start + end].view(_DTYPES[entry["dtype"]])
        arrays[name] = data.reshape(entry["shape"])
    return file, arrays, metadata


# -- word2vec text ---------------------------------------------------------------------------------
def read_rows(
    lines: Iterable[bytes],
    path: str | PathLike[str],
    n: int | None,
    dim: int,
    limit: int | None = None,
    *,
    skip: Callable[[Flaw], None] | None = None,
) -> tuple[list[str], np.ndarray]:
    """Read words and their vectors, float32 `[n_words, dim]`, from the lines that follow the header
    of a word2vec file.

    Args:
        path: path of the file, for use in messages.
        n: number of words stated in the header; None if the file has no header. Words in excess of
            this number are also read.
        limit: maximum number of lines to read.
        skip: function that receives the `Flaw` of each line without a usable word, which is
            skipped. By default, every word is used, and bytes that are not UTF-8 are replaced by
            U+FFFD.

    Raises:
        InputError: a line is malformed, or there are fewer than `n` words.
    """
    words: list[str] = []
    blocks: list[np.ndarray] = []
    n_rows = 0  # number of lines with a vector, including skipped lines
    first = line = 1 if n is None else 2
    for line, text in enumerate(islice(lines, limit), start=first):
        if not text.strip():
            continue
        n_rows += 1
        word, numbers = _fields(text, dim, line, path)
        if skip is not None:
            flaw = _flaw_of_word(word, line, dim)
            if flaw is not None:
                skip(flaw)
                continue
        # Blocks of rows grow with the file, because its number of words may be unknown.
        row = len(words) % _ROWS
        if row == 0:
            blocks.append(np.empty((_ROWS, dim), dtype=np.float32))
        name = word.decode("utf-8", "replace")
        try:
            _read_numbers(numbers, name, out=blocks[-1][row])
        except InputError as error:
            raise InputError(error.fact, path=path, line=line) from None
        words.append(name)
    _check_row_count(n_rows, n, limit, path, line)
    if skip is not None:
        _warn_of_more_rows(n_rows, n, path)
    if not blocks:
        return words, np.empty((0, dim), dtype=np.float32)
    return words, np.concatenate(blocks)[: len(words)]


def _fields(
    text: bytes, dim: int, line: int, path: str | PathLike[str]
) -> tuple[bytes, list[bytes]]:
    """Return the word and the `dim` numbers in a line of word vectors."""
    # The numbers are the last `dim` fields, because words may contain spaces.
    word, *numbers = text.replace(b"\t", b" ").rstrip(b" \r\n").rsplit(b" ", dim)
    if len(numbers) != dim:
        raise InputError(
            f"expected a word and {dim} numbers, got {len(numbers) + 1} fields",
            path=path,
            line=line,
        )
    return word.strip(b" "), numbers


def _check_row_count(
    n_rows: int, n: int | None, limit: int | None, path: str | PathLike[str], last_line: int
) -> None:
    """Raise an `InputError` if a file has fewer vectors than the `n` that its header declares, or
    none.
    """
    n_expected = 1 if n is None else max(n, 1)
    if limit:
        n_expected = min(n_expected, limit)
    if n_rows < n_expected:
        fact = f"the header declares {n or 'no'} words, but the file ends after {n_rows}"
        raise InputError(fact, path=path, line=last_line)


def _warn_of_more_rows(n_rows: int, n: int | None, path: str | PathLike[str]) -> None:
    """Warn if a file has more vectors than the `n` that its header declares."""
    if n is not None and n_rows > n:
        message = (
            f"{fspath(path)}: the header declares {n:,} words, but the file has {n_rows:,}; all of "
            "them are used"
        )
        warnings.warn(CalqueWarning(message), stacklevel=4)


def _read_numbers(numbers: Sequence[bytes], word: str, out: np.ndarray) -> None:
    """Write the vector of a word to `out`, float32 `[dim]`.

    Raises:
        InputError: a field contains no number, or a number is not finite as float32.
    """
    try:
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, see below
            out[:] = np.fromiter(map(float, numbers), dtype=np.float64, count=len(numbers))
    except ValueError as error:
        raise InputError(
            f"invalid number in the vector of {word[:40]!r} ({error}); is this a word vector file?"
        ) from None
    if not np.isfinite(out).all():
        raise InputError(f"the vector of {word[:40]!r} is not finite")


def _flaw_of_word(word: bytes, line: int, dim: int) -> Flaw | None:
    """Return a `Flaw` if a line of word vectors has no usable word."""
    if not word:
        fact = "the vector has no word before its numbers, expected one; correct the line"
        return Flaw(line, "no word", fact)
    if b" " in word and _is_float(word.rpartition(b" ")[2]):
        shown = word[:40].decode("utf-8", "replace")
        fact = f"more than {dim} numbers after the word {shown!r}; does the header match?"
        return Flaw(line, "more numbers than dimensions", fact)
    return flaw_of_bytes(word, line)


def _is_float(field: bytes) -> bool:
    """Return whether a field contains a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True
