"""Text for pretraining: blocks of subwords, sentences as numbers of words, and which of them make up which update."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calque.encoders.split import SplitSentences, number_words
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.senses.elmo import BEGIN, END
from calque.text import Sentence, Sentences

#: after the numbers of the ends of a sentence: that of all words that are not predicted; then come the words
UNKNOWN, FIRST_WORD = END + 1, END + 2
VOCABULARY_FILE = "vocabulary.json"


@dataclass(frozen=True)
class Blocks:
    """Runs of sentences, each block begun and ended by the special subwords and split by the last of them.

    Attributes:
        ids: int32 `[n_subwords]`, of all blocks one after the other.
        offsets: int64 `[n_blocks + 1]`.
        words: bool `[n_subwords]`, which of them are whole words; None where that is not known.
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @classmethod
    def of(cls, split: SplitSentences, length: int) -> Blocks:
        """Pack sentences in their order, as many as fit into `length` subwords; none is cut.

        Args:
            split: sentences between a special subword each, none longer than `length`.
            length: most subwords of a block.
        """
        sizes = np.diff(split.offsets)
        inner = np.flatnonzero(sizes > 2)  # without the empty ones
        if len(inner) and sizes[inner].max() > length:
            raise SettingError(f"a sentence of {sizes[inner].max()} subwords does not fit into blocks of {length}")
        # A sentence after the first of its block brings its own end, but needs no beginning.
        first, filled = np.zeros(len(inner), dtype=bool), length
        for k, size in enumerate(sizes[inner].tolist()):
            if filled + size - 1 > length:
                first[k], filled = True, size
            else:
                filled += size - 1
        skipped = (~first).astype(np.int64)
        taken = sizes[inner] - skipped
        places = ranges(split.offsets[inner] + skipped, taken)
        ids = split.ids[places].astype(np.int32)
        whole = np.zeros(len(split.ids), dtype=bool)
        begins = np.repeat(split.offsets[:-1], np.diff(split.word_offsets)) + split.word_starts
        whole[begins[split.word_lengths == 1]] = True
        ends = np.cumsum(taken)
        starts = (ends - taken)[first]
        return cls(ids, np.append(starts, ends[-1] if len(ends) else 0).astype(np.int64), whole[places])

    def padded(self, numbers: np.ndarray, pad: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return some blocks, int32 `[n, width]`, and the mask of those of their subwords that are whole words."""
        lengths = self.lengths[numbers]
        inside, places = np.arange(width) < lengths[:, None], ranges(self.offsets[numbers], lengths)
        ids, whole = np.full(inside.shape, pad, dtype=np.int32), np.zeros(inside.shape, dtype=bool)
        ids[inside] = self.ids[places]
        if self.words is not None:
            whole[inside] = self.words[places]
        return ids, whole

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the ids of some blocks, all in a row."""
        return self.ids[ranges(self.offsets[numbers], self.lengths[numbers])]


class Mixture:
    """Which blocks make up which update.

    A language with n subwords is drawn with probability ∝ n^alpha (Conneau and Lample 2019, §3.1): 1 leaves the text as
    it is, 0 gives every language the same number of blocks (of sentences, where each is one: Multi-sense, §3.2). Each
    language's blocks come in a random order, and all of them before any comes again. An epoch has as many blocks as there are.

    Args:
        languages: blocks by language.
        batch: blocks in an update.
        alpha: exponent.
        seed: of the order.
    """

    def __init__(self, languages: Mapping[str, Blocks], *, batch: int, alpha: float = 0.5, seed: int = 0):
        empty = [name for name, blocks in languages.items() if not len(blocks)]
        if empty or not languages:
            raise SettingError(f"no text in {', '.join(empty) or 'any language'}")
        if batch < 1 or not 0 <= alpha <= 1:
            raise SettingError(f"batch must be at least 1 and alpha between 0 and 1, got {batch} and {alpha}")
        self.languages, self.batch, self.seed = dict(languages), batch, seed
        sizes = np.array([len(blocks.ids) for blocks in languages.values()], dtype=np.float64)
        chance = sizes**alpha / (sizes**alpha).sum()
        total = sum(map(len, languages.values()))
        # Other shares are of subwords; blocks of one language may be shorter than another's.
        mean = sizes / np.array([len(blocks) for blocks in languages.values()]) if alpha else 1.0
        drawn = chance / mean / (chance / mean).sum() * total
        self.drawn = dict(zip(languages, np.maximum(1, np.round(drawn)).astype(int).tolist(), strict=True))
        self.steps_per_epoch = max(1, sum(self.drawn.values()) // batch)

    def epoch(self, number: int) -> list[list[tuple[str, np.ndarray]]]:
        """The updates of an epoch, each as numbers of blocks by language; a pure function of `number`."""
        names, chosen = [], []
        for index, (name, count) in enumerate(self.drawn.items()):
            names.append(np.full(count, index))
            chosen.append(self._draw(index, len(self.languages[name]), number * count, count))
        language, block = np.concatenate(names), np.concatenate(chosen)
        order = np.random.default_rng([self.seed, 1, number]).permutation(len(block))
        labels = list(self.languages)
        updates = []
        for start in range(0, self.steps_per_epoch * self.batch, self.batch):
            rows = order[start : start + self.batch]
            updates.append([(labels[k], block[rows[language[rows] == k]]) for k in np.unique(language[rows])])
        return updates

    def _draw(self, index: int, n: int, start: int, count: int) -> np.ndarray:
        """Places `start` to `start + count` in an endless row of permutations of `n`."""
        parts = []
        for cycle in range(start // n, (start + count - 1) // n + 1):
            order = np.random.default_rng([self.seed, 2, index, cycle]).permutation(n)
            parts.append(order[max(0, start - cycle * n) : start + count - cycle * n])
        return np.concatenate(parts)

    @property
    def fingerprint(self) -> str:
        """Hash of the text."""
        digest = hashlib.blake2b(digest_size=16)
        for name, blocks in self.languages.items():
            digest.update(name.encode())
            digest.update(blocks.ids.tobytes())
            digest.update(blocks.offsets.tobytes())
        return digest.hexdigest()


def mask(
    ids: np.ndarray, special: Sequence[int], *, mask_id: int, vocabulary: int, share: float, rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Hide subwords that are then to be guessed (Devlin et al. 2019, §3.1).

    Of the chosen ones four fifths become the mask, a tenth any subword of the vocabulary, and a tenth stays.

    Args:
        ids: `[n, length]`.
        special: ids that are never chosen: padding and the ends.
        mask_id: of the mask.
        vocabulary: number of subwords.
        share: of the subwords to choose.

    Returns:
        the text to read, `[n, length]`, and flat positions of the chosen subwords, `[n_chosen]`.
    """
    possible = np.flatnonzero(~np.isin(ids, special))
    chosen = np.sort(rng.choice(possible, size=max(1, round(share * len(possible))), replace=False))
    read = ids.copy()
    fate = rng.random(len(chosen))
    ordinary = np.setdiff1d(np.arange(vocabulary), special)
    read.flat[chosen[fate < 0.8]] = mask_id
    swapped = chosen[(fate >= 0.8) & (fate < 0.9)]
    read.flat[swapped] = rng.choice(ordinary, size=len(swapped))
    return read, chosen


# -- words -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Vocabulary:
    """The words that are predicted, the frequent ones first, as the sampling of negatives expects it.

    Attributes:
        words: number `k + FIRST_WORD` is `words[k]`.
        counts: int64 `[size]`, how often each number occurs in the training text.
    """

    words: tuple[str, ...]
    counts: np.ndarray
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "_numbers", {word: k for k, word in enumerate(self.words, FIRST_WORD)})

    def __len__(self) -> int:
        """With both ends and the unknown word."""
        return len(self.counts)

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """The number of each word, or that of the unknown one, int64 `[n]`."""
        return np.fromiter((self._numbers.get(word, UNKNOWN) for word in words), dtype=np.int64, count=len(words))

    def unigram(self) -> np.ndarray:
        """Probability of each number by its count alone, with one added, float64 `[size]`."""
        return (self.counts + 1) / (self.counts.sum() + len(self.counts))

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(json.dumps(self.words).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.counts).tobytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write to a folder that `open` reads."""
        about = {"words": self.words, "counts": self.counts.tolist()}
        (folder / VOCABULARY_FILE).write_text(json.dumps(about, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def open(cls, folder: Path) -> Vocabulary:
        try:
            about = json.loads((folder / VOCABULARY_FILE).read_text(encoding="utf-8"))
            vocabulary = cls(tuple(about["words"]), np.array(about["counts"], dtype=np.int64))
            if len(vocabulary.counts) != len(vocabulary.words) + FIRST_WORD:
                raise ValueError(f"{len(vocabulary.counts)} counts of {len(vocabulary.words)} words")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"no vocabulary ({error})", path=folder / VOCABULARY_FILE) from error
        return vocabulary


@dataclass(frozen=True)
class WordText:
    """Text of several languages as numbers of word forms, seen through one vocabulary.

    Attributes:
        vocabulary: what is predicted.
        forms: every form of the text; those of the vocabulary first, so that number n of the vocabulary and of the text
            is the same word: `forms[n - FIRST_WORD]`.
        blocks: by language, int32 numbers of forms; a block is a sentence with both ends, or a part of one.
    """

    vocabulary: Vocabulary
    forms: list[str]
    blocks: dict[str, Blocks]

    @classmethod
    def of(
        cls,
        texts: Mapping[str, Sentences],
        *,
        size: int,
        min_count: int = 1,
        length: int = 128,
        alpha: float = 1.0,
        lower: bool = False,
    ) -> WordText:
        """Count and number the words of a text.

        A sentence without words is left out. One with more than `length` words is cut into parts that share the word where
        they meet, so that each word is still predicted once from each side.

        Args:
            texts: sentences by language.
            size: most numbers of the vocabulary, `FIRST_WORD` of which are no words.
            min_count: occurrences below which a word is not predicted.
            length: most predictions in each direction from one part of a sentence.
            alpha: as in `Mixture`; so that words are ordered by how often they are seen in training.
            lower: read all words in lower case.

        Raises:
            SettingError: no word is left, or a number cannot be.
        """
        if size <= FIRST_WORD or min_count < 1 or length < 1:
            raise SettingError(
                f"a vocabulary of {size} with words from {min_count} times on, in parts of {length} words: expected more "
                f"than {FIRST_WORD}, and at least 1 of the others"
            )
        numbered = {lang: number_words(text) for lang, text in texts.items()}
        forms: dict[str, int] = {}
        local = {
            lang: np.array(
                [forms.setdefault(name.lower() if lower else name, len(forms)) for name in names], dtype=np.int64
            )
            for lang, (names, _, _) in numbered.items()
        }
        counts, seen = np.zeros(len(forms), dtype=np.int64), np.zeros(len(forms))
        for lang, (names, numbers, _) in numbered.items():
            occurred = np.bincount(numbers, minlength=len(names))
            np.add.at(counts, local[lang], occurred)  # several forms of a text may be one in lower case
            np.add.at(seen, local[lang], occurred * float(max(1, len(numbers))) ** (alpha - 1))
        seen[counts < min_count] = -1  # last, and never predicted
        order = np.argsort(-seen, kind="stable")
        n_words = min(size - FIRST_WORD, int((counts >= min_count).sum()))
        if not n_words:
            raise SettingError(f"no word occurs {min_count} times or more: there is nothing to predict")
        names = list(forms)
        names = [names[k] for k in order.tolist()]
        sentences = sum(int((np.diff(offsets) > 0).sum()) for _, _, offsets in numbered.values())
        ends = np.array([sentences, sentences, counts[order[n_words:]].sum()])
        vocabulary = Vocabulary(tuple(names[:n_words]), np.concatenate([ends, counts[order[:n_words]]]))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) + FIRST_WORD
        blocks = {
            lang: _blocks(rank[local[lang]][numbers], offsets, length)
            for lang, (_, numbers, offsets) in numbered.items()
        }
        return cls(vocabulary, names, blocks)

    @classmethod
    def seen_by(
        cls, vocabulary: Vocabulary, sentences: Iterable[Sentence | Sequence[str]], *, lower: bool = False
    ) -> WordText:
        """Another text, such as one held out; one block a sentence, all under the language ""."""
        names, numbers, offsets = number_words(sentences)
        names = [name.lower() for name in names] if lower else names
        known = vocabulary.numbers(names)
        new = np.flatnonzero(known == UNKNOWN)
        known[new] = len(vocabulary) + np.arange(len(new))
        forms = [*vocabulary.words, *(names[k] for k in new.tolist())]
        longest = int(np.diff(offsets).max(initial=0)) + 1
        return cls(vocabulary, forms, {"": _blocks(known[numbers], offsets, longest)})


def _blocks(numbers: np.ndarray, offsets: np.ndarray, length: int) -> Blocks:
    lengths = np.diff(offsets)
    filled = lengths > 0
    lengths = lengths[filled] + 2
    ends = np.cumsum(lengths)
    starts = ends - lengths
    ids = np.full(int(lengths.sum()), END, dtype=np.int32)
    ids[starts] = BEGIN
    ids[ranges(starts + 1, lengths - 2)] = numbers
    parts = -(-(lengths - 1) // length)
    first = np.repeat(starts, parts) + ranges(np.zeros_like(parts), parts) * length
    sizes = np.minimum(first + length + 1, np.repeat(ends, parts)) - first
    return Blocks(ids[ranges(first, sizes)], offsets_of(sizes))
