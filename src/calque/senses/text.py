"""Training text for language models: blocks of subwords, masking, word vocabularies, and sampling
of blocks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calque.encoders.split import SplitSentences
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.senses.elmo import END, with_ends
from calque.storage import json_text
from calque.text import Sentence, Sentences, number_words

# : index of out-of-vocabulary words (after those of the boundary tokens), and index of the first
# vocabulary word
UNKNOWN, FIRST_WORD = END + 1, END + 2
VOCABULARY_FILE = "vocabulary.json"


@dataclass(frozen=True)
class Blocks:
    """Blocks of sentences with special tokens at the start, at the end and between sentences.

    Attributes:
        ids: subword ids of all blocks, int32 `[n_subwords]`.
        offsets: offsets of the blocks in `ids`, int64 `[n_blocks + 1]`.
        words: mask of subwords that are whole words, bool `[n_subwords]`; None if unknown.
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
        """Pack sentences in order into blocks of at most `length` subwords.

        Raises:
            SettingError: a sentence is longer than a block.
        """
        sizes = np.diff(split.offsets)
        inner = np.flatnonzero(sizes > 2)  # sentences with words
        if len(inner) and sizes[inner].max() > length:
            raise SettingError(
                f"length must be at least {sizes[inner].max()} (the longest sentence), got {length}"
            )
        # The special token before a sentence is kept only at the beginning of a block.
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
        return cls(
            ids, np.append(starts, ends[-1] if len(ends) else 0).astype(np.int64), whole[places]
        )

    def padded(self, numbers: np.ndarray, pad: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the given blocks with padding, int32 `[n, width]`, and the mask of subwords that
        are whole words.
        """
        lengths = self.lengths[numbers]
        inside, places = np.arange(width) < lengths[:, None], ranges(self.offsets[numbers], lengths)
        ids, whole = np.full(inside.shape, pad, dtype=np.int32), np.zeros(inside.shape, dtype=bool)
        ids[inside] = self.ids[places]
        if self.words is not None:
            whole[inside] = self.words[places]
        return ids, whole

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the concatenated ids of the given blocks."""
        return self.ids[ranges(self.offsets[numbers], self.lengths[numbers])]


class Mixture:
    """Samples blocks of text for each update.

    A language with n subwords is sampled with probability ∝ n^alpha (Conneau and Lample 2019,
    §3.1). With alpha = 0, the same number of blocks is sampled in each language, as in Multi-sense,
    §3.2. All blocks of a language are sampled once, in random order, before any block is sampled
    again. An epoch contains as many blocks as the whole text.

    Args:
        languages: blocks, keyed by language.
        batch: number of blocks in an update.
        alpha: exponent of the language sizes.
        seed: seed for the random order.
    """

    def __init__(
        self, languages: Mapping[str, Blocks], *, batch: int, alpha: float = 0.5, seed: int = 0
    ):
        empty = [name for name, blocks in languages.items() if not len(blocks)]
        if empty or not languages:
            raise SettingError(f"there is no text in {', '.join(empty) or 'any language'}")
        self.languages, self.batch, self.seed = dict(languages), batch, seed
        sizes = np.array([len(blocks.ids) for blocks in languages.values()], dtype=np.float64)
        chance = sizes**alpha / (sizes**alpha).sum()
        total = sum(map(len, languages.values()))
        # The probabilities refer to subwords. Convert them to blocks, whose mean length depends on
        # the language.
        mean = sizes / np.array([len(blocks) for blocks in languages.values()]) if alpha else 1.0
        drawn = chance / mean / (chance / mean).sum() * total
        self.drawn = dict(
            zip(languages, np.maximum(1, np.round(drawn)).astype(int).tolist(), strict=True)
        )
        self.steps_per_epoch = max(1, sum(self.drawn.values()) // batch)

    def epoch(self, number: int) -> list[list[tuple[str, np.ndarray]]]:
        """Return the updates of epoch `number`, each as block indices for each language. The result
        depends only on `number`.
        """
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
            updates.append(
                [(labels[k], block[rows[language[rows] == k]]) for k in np.unique(language[rows])]
            )
        return updates

    def _draw(self, index: int, n: int, start: int, count: int) -> np.ndarray:
        """Return items `start` to `start + count` of an endless sequence of random permutations of
        `n` blocks.
        """
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
            for part in (name.encode(), blocks.ids.tobytes(), blocks.offsets.tobytes()):
                digest.update(part)
        return digest.hexdigest()


def mask(
    ids: np.ndarray,
    special: Sequence[int],
    *,
    mask_id: int,
    vocabulary: int,
    share: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose random subwords, and replace 80% with the mask token and 10% with random subwords
    (Devlin et al. 2019, §3.1).

    Args:
        ids: subword ids, `[n, length]`.
        special: ids that are never chosen (padding and boundary tokens).
        share: fraction of subwords to choose.

    Returns:
        the masked ids, `[n, length]`, and the flat positions of the chosen subwords, `[n_chosen]`.
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


# -- words
# --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Vocabulary:
    """Words to predict, sorted by decreasing frequency.

    Attributes:
        words: words to predict; the index of `words[k]` is `k + FIRST_WORD`.
        counts: number of occurrences of each index in the training text, int64 `[size]`.
    """

    words: tuple[str, ...]
    counts: np.ndarray
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        object.__setattr__(
            self, "_numbers", {word: k for k, word in enumerate(self.words, FIRST_WORD)}
        )

    def __len__(self) -> int:
        """Number of indices, including the boundary tokens and the unknown word."""
        return len(self.counts)

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """Return the index of each word, int64 `[n]`, or `UNKNOWN` for an out-of-vocabulary
        word.
        """
        return np.fromiter(
            (self._numbers.get(word, UNKNOWN) for word in words), dtype=np.int64, count=len(words)
        )

    def unigram(self) -> np.ndarray:
        """Return the unigram probability of each index with add-one smoothing, float64 `[size]`."""
        return (self.counts + 1) / (self.counts.sum() + len(self.counts))

    @property
    def fingerprint(self) -> str:
        return hashlib.blake2b(
            json_text([self.words, self.counts.tolist()]).encode(), digest_size=16
        ).hexdigest()

    def save(self, folder: Path) -> None:
        about = {"words": self.words, "counts": self.counts.tolist()}
        (folder / VOCABULARY_FILE).write_text(
            json_text(about, ensure_ascii=False), encoding="utf-8"
        )

    @classmethod
    def open(cls, folder: Path) -> Vocabulary:
        try:
            about = json.loads((folder / VOCABULARY_FILE).read_text(encoding="utf-8"))
            vocabulary = cls(tuple(about["words"]), np.array(about["counts"], dtype=np.int64))
            if len(vocabulary.counts) != len(vocabulary.words) + FIRST_WORD:
                raise ValueError(
                    f"{len(vocabulary.counts)} counts for {len(vocabulary.words)} words"
                )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"this is not a vocabulary ({error})", path=folder / VOCABULARY_FILE
            ) from error
        return vocabulary


@dataclass(frozen=True)
class WordText:
    """Text in several languages, converted to indices of word types.

    Attributes:
        vocabulary: words to predict.
        word_types: all word types in the text, starting with the vocabulary; the index of
            `word_types[k]` is `k + FIRST_WORD`.
        blocks: word-type indices of each language, int32; each block is a sentence with boundary
            tokens, or a part of a sentence.
    """

    vocabulary: Vocabulary
    word_types: list[str]
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
        """Build the vocabulary of a text, and convert its words to indices.

        Empty sentences are dropped. A sentence with more than `length` words is split into parts
        that overlap by one word, so each word is predicted once in each direction.

        Args:
            texts: sentences, keyed by language.
            size: maximum vocabulary size, including the `FIRST_WORD` indices that are not words.
            min_count: a word must occur at least this often to be predicted.
            length: maximum number of predictions per block in each direction.
            alpha: sampling exponent of `Mixture`; it affects the frequencies by which words are
                sorted.
            lower: whether to lower-case all words.

        Raises:
            SettingError: no word is frequent enough.
        """
        word_types: dict[str, int] = {}
        numbered: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for lang, text in texts.items():
            _, numbers, offsets = number_words(text, lower=lower, vocabulary=word_types)
            numbered[lang] = numbers, offsets
        counts, seen = np.zeros(len(word_types), dtype=np.int64), np.zeros(len(word_types))
        for numbers, _ in numbered.values():
            occurred = np.bincount(numbers, minlength=len(word_types))
            counts += occurred
            seen += occurred * float(max(1, len(numbers))) ** (alpha - 1)
        seen[counts < min_count] = -1  # such words are sorted last and never predicted
        order = np.argsort(-seen, kind="stable")
        n_words = min(size - FIRST_WORD, int((counts >= min_count).sum()))
        if not n_words:
            raise SettingError(
                f"no word occurs at least {min_count} times; lower min_count or give more text"
            )
        spelled = list(word_types)
        names = [spelled[k] for k in order.tolist()]
        sentences = sum(int((np.diff(offsets) > 0).sum()) for _, offsets in numbered.values())
        ends = np.array([sentences, sentences, counts[order[n_words:]].sum()])
        vocabulary = Vocabulary(
            tuple(names[:n_words]), np.concatenate([ends, counts[order[:n_words]]])
        )
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) + FIRST_WORD
        return cls(
            vocabulary,
            names,
            {lang: _blocks(rank[n], offsets, length) for lang, (n, offsets) in numbered.items()},
        )

    @classmethod
    def seen_by(
        cls,
        vocabulary: Vocabulary,
        sentences: Iterable[Sentence | Sequence[str]],
        *,
        lower: bool = False,
    ) -> WordText:
        """Convert other sentences to indices in an existing vocabulary, with one block per sentence
        and "" as the language.
        """
        names, numbers, offsets = number_words(sentences)
        # Lower-cased here and not in `number_words`, because unknown words whose spellings differ
        # keep separate indices.
        names = [name.lower() for name in names] if lower else names
        known = vocabulary.numbers(names)
        new = np.flatnonzero(known == UNKNOWN)
        known[new] = len(vocabulary) + np.arange(len(new))
        word_types = [*vocabulary.words, *(names[k] for k in new.tolist())]
        longest = int(np.diff(offsets).max(initial=0)) + 1
        return cls(vocabulary, word_types, {"": _blocks(known[numbers], offsets, longest)})


def _blocks(numbers: np.ndarray, offsets: np.ndarray, length: int) -> Blocks:
    ids, offsets = with_ends(numbers, np.unique(offsets))  # `np.unique` drops empty sentences
    lengths, starts, ends = np.diff(offsets), offsets[:-1], offsets[1:]
    parts = -(-(lengths - 1) // length)
    first = np.repeat(starts, parts) + ranges(np.zeros_like(parts), parts) * length
    sizes = np.minimum(first + length + 1, np.repeat(ends, parts)) - first
    return Blocks(ids[ranges(first, sizes)], offsets_of(sizes))
