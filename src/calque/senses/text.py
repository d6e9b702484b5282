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

#: index of out-of-vocabulary words (after those of the boundary tokens), and index of the first
#: vocabulary word
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
        sizes = sizes[inner]
        if len(inner) and sizes.max() > length:
            raise SettingError(
                f"length must be at least {sizes.max()} (the longest sentence), got {length}"
            )
        # The special token before a sentence is kept only at the beginning of a block, so any other
        # sentence adds one subword less to a block.
        begins_block, filled = np.zeros(len(inner), dtype=bool), length
        for k, size in enumerate(sizes.tolist()):
            if filled + size - 1 > length:
                begins_block[k], filled = True, size
            else:
                filled += size - 1
        skipped = (~begins_block).astype(np.int64)
        taken = sizes - skipped
        places = ranges(split.offsets[inner] + skipped, taken)
        # A subword is a whole word if a word begins there and has no other subword.
        is_word = np.zeros(len(split.ids), dtype=bool)
        word_starts = np.repeat(split.offsets[:-1], np.diff(split.word_offsets)) + split.word_starts
        is_word[word_starts[split.word_lengths == 1]] = True
        sentence_offsets = offsets_of(taken)
        starts = sentence_offsets[:-1][begins_block]
        return cls(
            split.ids[places].astype(np.int32),
            np.append(starts, sentence_offsets[-1]),
            is_word[places],
        )

    def padded(self, numbers: np.ndarray, pad: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the given blocks with padding, int32 `[n, width]`, and the mask of subwords that
        are whole words.
        """
        lengths = self.lengths[numbers]
        places = ranges(self.offsets[numbers], lengths)
        inside = np.arange(width) < lengths[:, None]
        ids = np.full(inside.shape, pad, dtype=np.int32)
        ids[inside] = self.ids[places]
        whole = np.zeros(inside.shape, dtype=bool)
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
        empty = [lang for lang, blocks in languages.items() if not len(blocks)]
        if empty or not languages:
            raise SettingError(f"there is no text in {', '.join(empty) or 'any language'}")
        self.languages, self.batch, self.seed = dict(languages), batch, seed
        n_subwords = np.array([len(blocks.ids) for blocks in languages.values()], dtype=np.float64)
        n_blocks = np.array([len(blocks) for blocks in languages.values()])
        weights = n_subwords**alpha / (n_subwords**alpha).sum()
        if alpha:
            # The probabilities refer to subwords. Convert them to blocks, whose mean length depends
            # on the language.
            weights = weights / (n_subwords / n_blocks)
        drawn = weights / weights.sum() * n_blocks.sum()
        #: number of blocks of each language that are sampled in an epoch
        self.drawn = {
            lang: max(1, round(number))
            for lang, number in zip(languages, drawn.tolist(), strict=True)
        }
        self.steps_per_epoch = max(1, sum(self.drawn.values()) // batch)

    def epoch(self, number: int) -> list[list[tuple[str, np.ndarray]]]:
        """Return the updates of epoch `number`, each as block indices for each language. The result
        depends only on `number`.
        """
        languages, blocks = [], []  # language index and block index of each sampled block
        for index, (lang, count) in enumerate(self.drawn.items()):
            languages.append(np.full(count, index))
            blocks.append(self._draw(index, len(self.languages[lang]), number * count, count))
        language, block = np.concatenate(languages), np.concatenate(blocks)
        order = np.random.default_rng([self.seed, 1, number]).permutation(len(block))
        names = list(self.languages)
        updates = []
        for start in range(0, self.steps_per_epoch * self.batch, self.batch):
            rows = order[start : start + self.batch]
            updates.append(
                [(names[k], block[rows[language[rows] == k]]) for k in np.unique(language[rows])]
            )
        return updates

    def _draw(self, index: int, n: int, start: int, count: int) -> np.ndarray:
        """Return items `start` to `start + count` of an endless sequence of random permutations of
        `n` blocks.
        """
        parts = []
        for cycle in range(start // n, (start + count - 1) // n + 1):
            order = np.random.default_rng([self.seed, 2, index, cycle]).permutation(n)
            first = cycle * n  # position of the permutation in the sequence
            parts.append(order[max(0, start - first) : start + count - first])
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
    draw = rng.random(len(chosen))  # the last 10% are not changed
    masked = ids.copy()
    masked.flat[chosen[draw < 0.8]] = mask_id
    swapped = chosen[(draw >= 0.8) & (draw < 0.9)]
    ordinary = np.setdiff1d(np.arange(vocabulary), special)
    masked.flat[swapped] = rng.choice(ordinary, size=len(swapped))
    return masked, chosen


# -- words -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Vocabulary:
    """Words to predict, sorted by decreasing frequency.

    Attributes:
        words: words to predict; the index of `words[k]` is `k + FIRST_WORD`.
        counts: number of occurrences of each index in the training text, int64 `[size]`.
        index: index of each word.
    """

    words: tuple[str, ...]
    counts: np.ndarray
    index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        index = {word: k for k, word in enumerate(self.words, FIRST_WORD)}
        object.__setattr__(self, "index", index)

    def __len__(self) -> int:
        """Number of indices, including the boundary tokens and the unknown word."""
        return len(self.counts)

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """Return the index of each word, int64 `[n]`, or `UNKNOWN` for an out-of-vocabulary
        word.
        """
        numbers = (self.index.get(word, UNKNOWN) for word in words)
        return np.fromiter(numbers, dtype=np.int64, count=len(words))

    def unigram(self) -> np.ndarray:
        """Return the unigram probability of each index with add-one smoothing, float64 `[size]`."""
        return (self.counts + 1) / (self.counts.sum() + len(self.counts))

    @property
    def fingerprint(self) -> str:
        """Hash of the words and counts."""
        text = json_text([self.words, self.counts.tolist()])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

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
        type_numbers: dict[str, int] = {}  # word types of all languages, in order of appearance
        numbered: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for lang, text in texts.items():
            _, numbers, offsets = number_words(text, lower=lower, vocabulary=type_numbers)
            numbered[lang] = numbers, offsets
        counts = np.zeros(len(type_numbers), dtype=np.int64)
        frequency = np.zeros(len(type_numbers))  # expected, up to a factor, in the sampled text
        n_sentences = 0
        for numbers, offsets in numbered.values():
            language_counts = np.bincount(numbers, minlength=len(type_numbers))
            counts += language_counts
            frequency += language_counts * float(max(1, len(numbers))) ** (alpha - 1)
            n_sentences += int((np.diff(offsets) > 0).sum())
        frequency[counts < min_count] = -1  # such words are sorted last and never predicted
        order = np.argsort(-frequency, kind="stable")
        n_words = min(size - FIRST_WORD, int((counts >= min_count).sum()))
        if not n_words:
            raise SettingError(
                f"no word occurs at least {min_count} times; lower min_count or give more text"
            )
        spelling = list(type_numbers)
        word_types = [spelling[k] for k in order.tolist()]
        # counts of `BEGIN`, `END` and `UNKNOWN`
        special_counts = np.array([n_sentences, n_sentences, counts[order[n_words:]].sum()])
        vocabulary = Vocabulary(
            tuple(word_types[:n_words]), np.concatenate([special_counts, counts[order[:n_words]]])
        )
        index = np.empty(len(order), dtype=np.int64)  # index of each word type after sorting
        index[order] = np.arange(len(order)) + FIRST_WORD
        blocks = {
            lang: _blocks(index[numbers], offsets, length)
            for lang, (numbers, offsets) in numbered.items()
        }
        return cls(vocabulary, word_types, blocks)

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
        if lower:
            # `number_words` would merge unknown words whose spellings differ in case only.
            names = [name.lower() for name in names]
        index = vocabulary.numbers(names)
        # Out-of-vocabulary words follow the vocabulary, because each is read as its characters.
        new = np.flatnonzero(index == UNKNOWN)
        index[new] = len(vocabulary) + np.arange(len(new))
        word_types = [*vocabulary.words, *(names[k] for k in new.tolist())]
        longest = int(np.diff(offsets).max(initial=0)) + 1
        return cls(vocabulary, word_types, {"": _blocks(index[numbers], offsets, longest)})


def _blocks(numbers: np.ndarray, offsets: np.ndarray, length: int) -> Blocks:
    """Add boundary tokens to each sentence, and split it into blocks with at most `length`
    predictions that overlap by one word.
    """
    ids, offsets = with_ends(numbers, np.unique(offsets))  # `np.unique` drops empty sentences
    starts, ends = offsets[:-1], offsets[1:]
    # Each direction predicts all ids of a block but one. Divide by `length`, and round up.
    n_blocks = -(-(ends - starts - 1) // length)
    block_number = ranges(np.zeros_like(n_blocks), n_blocks)  # number within the sentence
    first = np.repeat(starts, n_blocks) + block_number * length
    sizes = np.minimum(first + length + 1, np.repeat(ends, n_blocks)) - first
    return Blocks(ids[ranges(first, sizes)], offsets_of(sizes))
