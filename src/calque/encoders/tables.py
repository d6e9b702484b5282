"""Tables of static word vectors: a vector for each word, and for other words what their n-grams give."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from calque.offsets import offsets_of

_EOS = "</s>"  # the one word that fastText gives no character n-grams
_BLOCK = 4096


class WordTable(ABC):
    """Words and their vectors.

    Attributes:
        words: in the order of the file, which is that of frequency in the usual ones.
        dim: dimensions of a vector.
        kind: name of the subclass in files.
        matrix: float32 `[rows, dim]`; the first rows belong to the words.
    """

    kind: str

    def __init__(self, words: list[str], matrix: np.ndarray):
        self.words, self.matrix, self.dim = words, matrix, matrix.shape[1]
        self.index: dict[str, int] = {}
        for number, word in enumerate(words):
            self.index.setdefault(word, number)  # of a word that comes twice, the first counts

    def __len__(self) -> int:
        return len(self.words)

    def lookup(self, forms: Sequence[str], *, lower: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of word forms.

        Args:
            forms: the forms.
            lower: try the lower-cased form where the form itself is not in the table.

        Returns:
            float32 `[n, dim]`, zero where there is none, and bool `[n]`, whether there is one.
        """
        numbers = np.array([self._number(form, lower) for form in forms], dtype=np.int64)
        vectors = np.zeros((len(forms), self.dim), dtype=np.float32)
        known = numbers >= 0
        vectors[known] = self._vectors(numbers[known])
        return vectors, known | self._guess(forms, np.flatnonzero(~known), vectors)

    def blocks(self, limit: int) -> Iterator[np.ndarray]:
        """Vectors of the first `limit` words, some at a time."""
        for start in range(0, min(limit, len(self)), _BLOCK):
            yield self._vectors(np.arange(start, min(start + _BLOCK, limit, len(self))))

    def _number(self, form: str, lower: bool) -> int:
        number = self.index.get(form, -1)
        return self.index.get(form.lower(), -1) if number < 0 and lower else number

    @abstractmethod
    def _vectors(self, numbers: np.ndarray) -> np.ndarray:
        """Vectors of words of the table."""

    def _guess(self, forms: Sequence[str], places: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Fill in vectors of forms outside the table, if there is a way; bool `[n]`, where there was."""
        return np.zeros(len(forms), dtype=bool)

    def settings(self) -> dict[str, int]:
        """Numbers that a file has to keep besides words and matrix."""
        return {}

    def digest(self) -> bytes:
        """Hash of everything that decides the vectors."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.kind, self.matrix.shape, sorted(self.settings().items()))).encode())
        digest.update("\n".join(self.words).encode("utf-8", "surrogatepass"))
        for start in range(0, len(self.matrix), 65536):
            digest.update(np.ascontiguousarray(self.matrix[start : start + 65536]).tobytes())
        return digest.digest()


class PlainTable(WordTable):
    """One vector per word, and none for other words."""

    kind = "plain"

    def _vectors(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(self.matrix[numbers], dtype=np.float32)


class SubwordTable(WordTable):
    """A fastText model: a word's vector is the mean of its own row and those of its character n-grams.

    Any word has n-grams, so words outside the vocabulary get a vector too (Bojanowski et al. 2017, §3.2).
    N-grams have no names: FNV-1a, as fastText computes it, says which of the `bucket` rows after the words
    is theirs.

    Args:
        words, matrix: see `WordTable`; the matrix has `bucket` rows after those of the words.
        bucket: number of rows that n-grams share.
        minn, maxn: shortest and longest n-gram in characters, the markers < and > of the word's ends
            included; `maxn` 0 for a model without n-grams.
    """

    kind = "subwords"

    def __init__(self, words: list[str], matrix: np.ndarray, *, bucket: int, minn: int, maxn: int):
        super().__init__(words, matrix)
        self.bucket, self.minn, self.maxn = bucket, minn, maxn

    def settings(self) -> dict[str, int]:
        return {"bucket": self.bucket, "minn": self.minn, "maxn": self.maxn}

    def _vectors(self, numbers: np.ndarray) -> np.ndarray:
        return self._means([[number, *self.ngrams(self.words[number])] for number in numbers.tolist()])

    def _guess(self, forms: Sequence[str], places: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        rows = [self.ngrams(str(forms[place])) for place in places.tolist()]
        has_ngrams = np.array([bool(numbers) for numbers in rows], dtype=bool)
        guessed = np.zeros(len(forms), dtype=bool)
        guessed[places[has_ngrams]] = True
        vectors[guessed] = self._means([numbers for numbers in rows if numbers])
        return guessed

    def _means(self, rows: list[list[int]]) -> np.ndarray:
        """Mean of each list of matrix rows; no list is empty."""
        means = np.empty((len(rows), self.dim), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            lengths = np.array([len(numbers) for numbers in part])
            gathered = self.matrix[np.concatenate([np.array(numbers, dtype=np.int64) for numbers in part])]
            sums = np.add.reduceat(gathered, offsets_of(lengths)[:-1], axis=0, dtype=np.float64)
            means[start : start + len(part)] = sums / lengths[:, None]
        return means

    def ngrams(self, word: str) -> list[int]:
        """Rows of the word's n-grams, one for each occurrence (fastText, `Dictionary::computeSubwords`)."""
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
