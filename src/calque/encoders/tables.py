"""Tables of static word vectors: a vector for each word, and for other words what their n-grams give; and their files."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from io import BufferedIOBase, FileIO
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from calque.corpora.lines import LONGEST_LINE, unpacked
from calque.errors import InputError
from calque.offsets import offsets_of

_EOS = "</s>"  # the one word that fastText gives no character n-grams
_BLOCK = 4096


class WordTable:
    """Words and their vectors; of a fastText model also vectors of character n-grams.

    In a fastText model a word's vector is the mean of its own row and those of its n-grams. Any word has n-grams, so words
    outside the vocabulary get a vector too (Bojanowski et al. 2017, §3.2). N-grams have no names: FNV-1a, as fastText computes
    it, says which of the `bucket` rows after the words is theirs.

    Args:
        words: in the order of the file, which is that of frequency in the usual ones.
        matrix: float32 `[rows, dim]`; the first rows belong to the words.
        bucket: number of rows that n-grams share; None if the table is no fastText model.
        minn, maxn: shortest and longest n-gram in characters, the markers < and > of the word's ends
            included; `maxn` 0 for a model without n-grams.

    Attributes:
        dim: dimensions of a vector.
    """

    def __init__(
        self, words: list[str], matrix: np.ndarray, *, bucket: int | None = None, minn: int = 0, maxn: int = 0
    ):
        self.words, self.matrix, self.dim = words, matrix, matrix.shape[1]
        self.bucket, self.minn, self.maxn = bucket, minn, maxn
        self.index: dict[str, int] = {}
        for number, word in enumerate(words):
            self.index.setdefault(word, number)  # of a word that comes twice, the first counts

    def __len__(self) -> int:
        return len(self.words)

    def lookup(self, forms: Sequence[str], *, lower: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Return vectors of word forms.

        Args:
            lower: try the lower-cased form where the form itself is not in the table.

        Returns:
            float32 `[n, dim]`, zero where there is none, and bool `[n]`, whether there is one.
        """
        numbers = np.array([self._number(form, lower) for form in forms], dtype=np.int64)
        vectors = np.zeros((len(forms), self.dim), dtype=np.float32)
        known = numbers >= 0
        vectors[known] = self._vectors(numbers[known])
        if self.bucket is not None:
            places = np.flatnonzero(~known)
            rows = [self.ngrams(str(forms[place])) for place in places.tolist()]
            guessed = places[np.array([bool(numbers) for numbers in rows], dtype=bool)]
            vectors[guessed] = self._means([numbers for numbers in rows if numbers])
            known[guessed] = True
        return vectors, known

    def blocks(self, limit: int) -> Iterator[np.ndarray]:
        """Yield vectors of the first `limit` words, some at a time."""
        for start in range(0, min(limit, len(self)), _BLOCK):
            yield self._vectors(np.arange(start, min(start + _BLOCK, limit, len(self))))

    def settings(self) -> dict[str, Any]:
        """Return what a file has to keep besides words and matrix."""
        if self.bucket is None:
            return {"kind": "plain"}
        return {"kind": "subwords", "bucket": self.bucket, "minn": self.minn, "maxn": self.maxn}

    def digest(self) -> bytes:
        """Return a hash of everything that determines the vectors."""
        digest, settings = hashlib.blake2b(digest_size=16), self.settings()
        digest.update(repr((settings.pop("kind"), self.matrix.shape, sorted(settings.items()))).encode())
        digest.update("\n".join(self.words).encode("utf-8", "surrogatepass"))
        for start in range(0, len(self.matrix), 65536):
            digest.update(np.ascontiguousarray(self.matrix[start : start + 65536]).tobytes())
        return digest.digest()

    def _number(self, form: str, lower: bool) -> int:
        number = self.index.get(form, -1)
        return self.index.get(form.lower(), -1) if number < 0 and lower else number

    def _vectors(self, numbers: np.ndarray) -> np.ndarray:
        """Return vectors of words of the table."""
        if self.bucket is None:
            return np.asarray(self.matrix[numbers], dtype=np.float32)
        return self._means([[number, *self.ngrams(self.words[number])] for number in numbers.tolist()])

    def _means(self, rows: list[list[int]]) -> np.ndarray:
        """Return the mean of each list of matrix rows; no list is empty."""
        means = np.empty((len(rows), self.dim), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            lengths = np.array([len(numbers) for numbers in part])
            gathered = self.matrix[np.concatenate([np.array(numbers, dtype=np.int64) for numbers in part])]
            sums = np.add.reduceat(gathered, offsets_of(lengths)[:-1], axis=0, dtype=np.float64)
            means[start : start + len(part)] = sums / lengths[:, None]
        return means

    def ngrams(self, word: str) -> list[int]:
        """Return the rows of the word's n-grams, one for each occurrence (fastText, `Dictionary::computeSubwords`)."""
        if word == _EOS or not self.bucket or not self.maxn:
            return []
        characters = [character.encode("utf-8", "surrogatepass") for character in f"<{word}>"]
        rows, first = [], len(self.words)
        for start in range(len(characters)):
            value = 2166136261
            for size in range(1, min(self.maxn, len(characters) - start) + 1):
                for byte in characters[start + size - 1]:
                    if byte > 127:
                        byte |= 0xFFFFFF00  # fastText widens a *signed* char before the exclusive or
                    value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
                if size < self.minn or (size == 1 and start in (0, len(characters) - 1)):
                    continue  # neither too short nor a bare < or >
                rows.append(first + value % self.bucket)
        return rows


_FASTTEXT = struct.pack("<i", 793712314)  # the first bytes of fastText's saved models
_MOST_DIMENSIONS = 65_536  # a file that promises more is damaged


def read_table(path: str | PathLike[str], *, limit: int | None = None) -> WordTable:
    """Read word vectors, whatever their format.

    - word2vec text and fastText `.vec`: a line `words dimensions`, then a line per word (without the first
      line: GloVe);
    - word2vec binary: the same first line, then word, space, little-endian float32;
    - a fastText model (`.bin`): mapped into memory where it is not compressed, so that only rows in use are
      read.

    Args:
        path: the file; gzip, zstd, xz and bzip2 are known by their first bytes.
        limit: read only so many words, the most frequent in the usual files. A fastText model is read whole.

    Raises:
        InputError: with the line, if the format has lines, that is not what it should be.
    """
    with unpacked(path) as file:
        if file.peek(4)[:4] == _FASTTEXT:  # type: ignore[attr-defined]
            return _read_fasttext(file, path)
        first = file.readline(LONGEST_LINE)
        fields = first.split()
        if len(fields) == 2 and all(field.isdigit() for field in fields):
            if max(map(len, fields)) > 18:  # Python refuses to read numbers of thousands of digits
                fact = "the first line promises more words or dimensions than a file can hold"
                raise InputError(fact, path=path, line=1)
            n, dim = (int(field) for field in fields)
            if not (n and 0 < dim <= _MOST_DIMENSIONS):
                fact = f"{n} words of {dim} dimensions are promised, expected at least one of each"
                raise InputError(fact, path=path, line=1)
            if any(byte < 32 and byte not in b"\t\n\r" for byte in file.peek(4096)[:4096]):  # type: ignore[attr-defined]
                return _read_binary(file, path, n, dim, limit)
            return _read_text(chain(file), path, n, dim, limit)
        if not 2 <= len(fields) <= _MOST_DIMENSIONS or b"\x00" in first:
            fact = "no word vectors: the first line is neither `words dimensions` nor a word and its numbers"
            raise InputError(fact, path=path, line=1)
        return _read_text(chain([first], file), path, None, len(fields) - 1, limit)


# -- word2vec and its relatives ------------------------------------------------------------------------------
def _read_text(lines: Iterator[bytes], path, n: int | None, dim: int, limit: int | None) -> WordTable:
    words: list[str] = []
    blocks: list[np.ndarray] = []
    block = np.empty((0, dim), dtype=np.float32)
    most = min(x for x in (n, limit, 1 << 40) if x is not None)
    first = line = 1 if n is None else 2
    for line, text in enumerate(islice(lines, most), start=first):
        # The numbers are the last `dim` fields: a few files have words with a space in them.
        fields = text.decode("utf-8", "replace").rstrip(" \r\n").rsplit(" ", dim)
        if len(fields) != dim + 1:
            raise InputError(f"a word and {dim} numbers are expected, got {len(fields)} fields", path=path, line=line)
        if (place := len(words) % _BLOCK) == 0:
            blocks.append(block := np.empty((min(_BLOCK, most - len(words)), dim), dtype=np.float32))
        try:
            with np.errstate(over="ignore"):  # what float32 cannot hold is found just below
                block[place] = np.fromiter(map(float, fields[1:]), dtype=np.float64, count=dim)
        except ValueError as error:
            fact = f"not a number in the vector of {fields[0][:40]!r} ({error}); is this a file of word vectors?"
            raise InputError(fact, path=path, line=line) from None
        if not np.isfinite(block[place]).all():
            raise InputError(f"the vector of {fields[0][:40]!r} is not finite", path=path, line=line)
        words.append(fields[0])
    if n is not None and len(words) < most:
        fact = f"the first line promises {n} words, but the file ends after {len(words)}"
        raise InputError(fact, path=path, line=line)
    if n is not None and most == n and next(lines, b"").strip():
        raise InputError(f"the first line promises {n} words, but there are more", path=path, line=line + 1)
    if not words:
        raise InputError("no word in it", path=path)
    return WordTable(words, np.concatenate(blocks)[: len(words)])


def _read_binary(file: BufferedIOBase, path, n: int, dim: int, limit: int | None) -> WordTable:
    words: list[str] = []
    blocks: list[np.ndarray] = []
    n = n if limit is None else min(n, limit)
    for start in range(0, n, _BLOCK):
        rows = []
        for number in range(start, min(start + _BLOCK, n)):
            word, data = _until(file, b" "), file.read(4 * dim)
            if len(data) != 4 * dim or word is None:
                raise InputError(f"{n} words are promised, but word {number + 1} is incomplete", path=path)
            words.append(word.lstrip(b"\n").decode("utf-8", "replace"))
            rows.append(np.frombuffer(data, dtype="<f4"))
        block = np.stack(rows).astype(np.float32, copy=False)
        if not np.isfinite(block).all():
            wrong = start + int(np.flatnonzero(~np.isfinite(block).all(axis=1))[0])
            raise InputError(f"the vector of word {wrong + 1} is not finite; is the file damaged?", path=path)
        blocks.append(block)
    return WordTable(words, np.concatenate(blocks))


def _until(file: BufferedIOBase, mark: bytes) -> bytes | None:
    """Return the bytes before the next `mark`, and pass over that; None if none comes within 64 KiB."""
    found = bytearray()
    while len(found) < 1 << 16 and (byte := file.read(1)):
        if byte == mark:
            return bytes(found)
        found += byte
    return None


# -- fastText models -----------------------------------------------------------------------------------------
def _read_fasttext(file: BufferedIOBase, path: str | PathLike[str]) -> WordTable:
    """Return the input side of a model as `FastText::saveModel` writes it: arguments, dictionary, input matrix."""

    def take(form: str) -> tuple:
        size = struct.calcsize("<" + form)
        data = file.read(size)
        if len(data) != size:
            raise InputError("the fastText model ends too early; was it copied whole?", path=path)
        return struct.unpack("<" + form, data)

    _, version = take("ii")
    if version not in (11, 12):
        raise InputError(f"a fastText model of version {version}, expected 11 or 12", path=path)
    arguments = take("12i")
    dim, model, bucket, minn, maxn = arguments[0], arguments[7], *arguments[8:11]
    take("d")
    if version == 11 and model == 3:
        maxn = 0  # a classifier of that version had no n-grams, whatever the file says
    entries, n_words, _, _, pruned = take("iiiqq")
    if not (0 < dim < 1 << 20 and 0 <= n_words <= entries and bucket >= 0):
        raise InputError("a fastText model whose dictionary makes no sense; is it damaged?", path=path)
    words = []
    for _ in range(entries):
        word = _until(file, b"\0")
        _, label = take("qb")
        if not label:
            words.append((word or b"").decode("utf-8", "replace"))
    if len(words) != n_words:
        raise InputError(f"{n_words} words are promised, {len(words)} are there; is it damaged?", path=path)
    (quantised,) = take("b")
    if quantised or pruned > 0:
        fact = "a quantised fastText model (.ftz), which holds no whole vectors"
        raise InputError(f"{fact}; use the .bin or .vec file it was made from", path=path)
    rows, columns = take("qq")
    if columns != dim or rows < n_words + (bucket if maxn else 0):
        fact = f"an input matrix of {rows} by {columns} does not fit {n_words} words"
        raise InputError(f"{fact}; is it damaged?", path=path)
    if isinstance(getattr(file, "raw", None), FileIO):  # only rows in use are read
        place, size = file.tell(), Path(path).stat().st_size
        whole = size >= place + rows * dim * 4
        matrix = np.memmap(path, "<f4", "r", place, (rows, dim)) if whole else None
    else:
        data = file.read(rows * dim * 4)
        matrix = np.frombuffer(data, dtype="<f4").reshape(rows, dim) if len(data) == rows * dim * 4 else None
    if matrix is None:
        raise InputError("the fastText model ends within its vectors; was it copied whole?", path=path)
    return WordTable(words, matrix, bucket=bucket, minn=minn, maxn=maxn)
