"""Split words into subwords with a tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calque.corpora.languages import TWO_LETTERS
from calque.encoders.split import SplitSentences, laid_out, number_words
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.segment import language_parts
from calque.text import Sentence, Sentences

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_LOCK = RLock()  # tokenizer settings are changed and threads may share a tokenizer
_CHUNK = 512  # number of words passed to the tokenizer in one call

# Language tokens of M2M100 (__en__), mBART (en_XX, whose region has no meaning) and NLLB (eng_Latn).
_LANGUAGE = re.compile(r"__(\w+)__|([a-z]{2,3})_[A-Z]{2}|([a-z]{3}_[A-Z][a-z]{3})")
_SCORE = re.compile(r"(?<=[ ,\[:])-?\d+\.\d{13,}(?:e-?\d+)?")


def stable_text(backend: Any) -> str:
    """Return a tokenizer as JSON for hashing. Unigram scores are rounded to 12 digits, because `tokenizers` can change their last
    bit when it reads a file."""
    return _SCORE.sub(lambda found: f"{float(found[0]):.12g}", backend.to_str())


class Subwords:
    """Splits words with a fast `transformers` tokenizer, each word separately.

    Each distinct word of a text is split once, as in `tokenizer(words, is_split_into_words=True)`, with three differences:

    - A word is split as *after a space*. Byte-level BPE (RoBERTa, GPT-2, ModernBERT, …) includes the space in the subword, and a
      plain call on a list of words would join the words. This equals `add_prefix_space=True`, and is tested on a few words.
    - A word that spells a special token (`[SEP]`, `</s>`) is split like any other word (`split_special_tokens=True`), or becomes
      the unknown token.
    - A sentence over the length limit ends with the last whole word.

    A model with a language token around each text (M2M100, NLLB, mBART) gets the token of the sentence's `lang`, given by two
    letters or by the model's code; without `lang`, that of the tokenizer's `src_lang`.

    Args:
        tokenizer: fast tokenizer of `transformers`, whose settings are not changed.
        max_length: maximum number of subwords of a sentence including special tokens; None for the tokenizer's limit.
        vocabulary: number of embeddings of the model; None without a model.

    Raises:
        SettingError: the tokenizer is slow, or the limit leaves no room for a word.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        *,
        max_length: int | None = None,
        vocabulary: int | None = None,
    ):
        if not getattr(tokenizer, "is_fast", False):
            raise SettingError(
                f"{type(tokenizer).__name__} is a slow tokenizer, which does not report how it splits words; "
                "expected a fast one: save it with a tokenizer.json, or choose an encoder that has one"
            )
        self.tokenizer = tokenizer
        self.backend: Tokenizer = tokenizer.backend_tokenizer  # type: ignore[assignment]
        self.prefix, self.suffix = frame_of(tokenizer).special
        self.languages, self._language_place = self._language_tokens()
        limit = tokenizer.model_max_length if max_length is None else max_length
        self.max_length = int(limit) if limit < 1_000_000 else None  # transformers writes "no limit" as 1e30
        if self.max_length is not None and self.max_length <= len(self.prefix) + len(self.suffix):
            raise SettingError(
                f"max_length={self.max_length} leaves no room for a word beside "
                f"{len(self.prefix) + len(self.suffix)} special subwords"
            )
        self.pad_id = int(tokenizer.pad_token_id or 0)  # type: ignore[arg-type]
        self.unk_id: int | None = tokenizer.unk_token_id  # type: ignore[assignment]
        self._special_ids = np.array(sorted(set(tokenizer.all_special_ids) - {self.unk_id}), dtype=np.int32)
        self.needs_space = self._needs_space()
        self.vocabulary = vocabulary

    # -- tokens of languages ---------------------------------------------------------------------------------------
    def _language_tokens(self) -> tuple[dict[str, int], int]:
        """Return the ids of language tokens by name, and the position of the language token in a sentence (from the end if
        negative). There are no names if the tokenizer adds no language token."""
        known: dict[str, int] = {}
        for number, token in sorted(self.backend.get_added_tokens_decoder().items()):
            if found := _LANGUAGE.fullmatch(token.content):
                base, *script = next(filter(None, found.groups())).split("_")
                two = TWO_LETTERS.get(base, base)
                known[token.content] = number
                for name in (base, two, "-".join([two, *script]).lower()):
                    known.setdefault(name, number)
        frame = [*self.prefix.tolist(), *self.suffix.tolist()]
        place = next((place for place, number in enumerate(frame) if number in known.values()), None)
        if place is None:
            return {}, 0
        known[""] = frame[place]
        return known, place if place < len(self.prefix) else place - len(frame)

    def put_languages(self, ids: np.ndarray, offsets: np.ndarray, langs: str | Sequence[str]) -> None:
        """Replace the language tokens of sentences by those of their languages, if the tokenizer has any.

        Args:
            ids, offsets: subwords and offsets of `SplitSentences`.
            langs: language of each sentence, or of all.

        Raises:
            SettingError: there is no token for a language.
        """
        if self.languages:
            langs = [langs] if isinstance(langs, str) else langs
            known = {lang: self._token_of(lang) for lang in langs}
            place = self._language_place
            ids[(offsets[:-1] if place >= 0 else offsets[1:]) + place] = [known[lang] for lang in langs]

    def _token_of(self, lang: str) -> int:
        """Return the id of a language's token, looked up by the whole name, by language and script, and by language."""
        language, *rest = language_parts(lang)
        names = [lang, "-".join([language, *rest])]
        if not any(len(part) == 4 and name.startswith(f"{language}-") for part in rest for name in self.languages):
            names.append(language)  # any region; other scripts only if tokens have no script
        for name in names:
            if name in self.languages:
                return self.languages[name]
        tokens = [name for name in self.languages if _LANGUAGE.fullmatch(name)]
        some = ", ".join(tokens[:20]) + (f", … ({len(tokens)} in all)" if len(tokens) > 20 else "")
        raise SettingError(f"there is no token for the language {lang!r}, expected one of {some}, or two letters")

    # -- tokenizer --------------------------------------------------------------------------------------------
    def _needs_space(self) -> bool:
        """Return whether a word must follow a space to be split as inside a text."""
        votes = 0
        with as_words(self.backend):

            def ids(text, pretokenized):
                return self.backend.encode(text, is_pretokenized=pretokenized, add_special_tokens=False).ids

            for word in PROBES:
                after_space = ids(f"{word} {word}", False)[len(ids(word, False)) :]
                plain, spaced = ids([word], True), ids([" " + word], True)
                votes += (spaced == after_space) - (plain == after_space)
        return votes > 0

    def _split_types(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of distinct words, int32, and their number for each word, int64 `[len(words)]`."""
        if self.needs_space:
            words = [word if not word or word[0].isspace() else " " + word for word in words]
        chunks = [words[start : start + _CHUNK] for start in range(0, len(words), _CHUNK)]
        with as_words(self.backend):
            try:
                encodings = self.backend.encode_batch(chunks, is_pretokenized=True, add_special_tokens=False)
            except (UnicodeEncodeError, TypeError):  # lone surrogates have no UTF-8 and become U+FFFD
                chunks = [[_without_surrogates(word) for word in chunk] for chunk in chunks]
                encodings = self.backend.encode_batch(chunks, is_pretokenized=True, add_special_tokens=False)
        ids = np.array([i for encoding in encodings for i in encoding.ids], dtype=np.int32)
        counts = np.concatenate([
            np.zeros(0, dtype=np.int64),
            *(np.bincount(np.array(encoding.word_ids, dtype=np.int64), minlength=len(chunk))
              for encoding, chunk in zip(encodings, chunks, strict=True)),
        ])  # fmt: skip
        special = np.isin(ids, self._special_ids)
        if special.any():  # Unigram vocabularies contain </s> as an ordinary piece
            if self.unk_id is not None and self.unk_id not in self._special_ids:
                ids[special] = self.unk_id
            else:
                owner = np.repeat(np.arange(len(counts)), counts)
                ids, counts = ids[~special], counts - np.bincount(owner[special], minlength=len(counts))
        self._check(ids)
        return ids, counts

    def _check(self, ids: np.ndarray) -> None:
        if self.vocabulary is not None and len(ids) and ids.max() >= self.vocabulary:
            raise SettingError(
                f"the tokenizer gives subword {ids.max()}, but the model has {self.vocabulary}: "
                "they do not belong together"
            )

    # -- sentences -------------------------------------------------------------------------------------------------
    def split(self, sentences: Iterable[Sentence | Sequence[str]], *, whole: bool = False) -> SplitSentences:
        """Split sentences into subwords.

        Args:
            sentences: `Sentences` of a corpus (fastest), or an iterable of `Sentence` or of lists of words.
            whole: ignore the length limit.
        """
        sentences = sentences if isinstance(sentences, Sentences) or not self.languages else list(sentences)
        limit = None if whole else self.max_length
        types, numbers, word_offsets = number_words(sentences)
        table, sizes = self._split_types(types)
        lengths, starts = sizes[numbers], offsets_of(sizes)[numbers]
        empty = int((lengths == 0).sum())
        ends = offsets_of(lengths)
        totals = ends[word_offsets[1:]] - ends[word_offsets[:-1]]
        truncated_words = truncated_sentences = 0
        n_special = len(self.prefix) + len(self.suffix)
        if limit is not None and (over := totals > limit - n_special).any():
            before = np.repeat(ends[word_offsets[:-1]], np.diff(word_offsets))
            room = ends[1:] - before <= limit - n_special
            truncated_words, truncated_sentences = int((~room & (lengths > 0)).sum()), int(over.sum())
            lengths = np.where(room, lengths, 0)
        ids, offsets, word_starts = laid_out(table, starts, lengths, word_offsets, self.prefix, self.suffix)
        if self.languages:
            langs = sentences.lang if isinstance(sentences, Sentences) else [getattr(s, "lang", "") for s in sentences]
            self.put_languages(ids, offsets, langs)
        return SplitSentences(
            ids, offsets, word_offsets, word_starts, lengths.astype(np.int32), truncated_words=truncated_words,
            empty_words=empty, truncated_sentences=truncated_sentences, pad_id=self.pad_id,
        )  # fmt: skip

    def bare(self, sentences: Iterable[Sentence | Sequence[str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Split sentences of any length into subwords without special tokens.

        Returns:
            subword ids, int32; offsets of the sentences, int64 `[n_sentences + 1]`; number of subwords of each word, int64
            `[n_words]`.
        """
        types, numbers, word_offsets = number_words(sentences)
        table, sizes = self._split_types(types)
        starts, nothing = offsets_of(sizes)[numbers], np.zeros(0, dtype=np.int32)
        ids, offsets, _ = laid_out(table, starts, sizes[numbers], word_offsets, nothing, nothing)
        return ids, offsets, sizes[numbers]

    def split_texts(self, texts: Sequence[str], *, limit: int | None = None, lang: str = "") -> SplitSentences:
        """Split texts by a plain call of the tokenizer; every subword is a "word" of the result, including special tokens.

        A special token spelt in a text, such as [SEP], is a special token, as in sentence-transformers. Long texts are truncated.

        Args:
            texts: texts with their spaces.
            limit: maximum number of subwords of a text including special tokens, or None.
            lang: language of the texts.
        """
        with as_words(self.backend, blind=False):
            if limit is not None:
                self.backend.enable_truncation(max(limit, len(self.prefix) + len(self.suffix) + 1))
            encodings = self.backend.encode_batch(list(map(_without_surrogates, texts)))
        offsets = offsets_of([len(encoding.ids) for encoding in encodings])
        ids = np.array([i for encoding in encodings for i in encoding.ids], dtype=np.int32)
        self._check(ids)
        self.put_languages(ids, offsets, lang)
        starts = np.arange(len(ids)) - np.repeat(offsets[:-1], np.diff(offsets))
        return SplitSentences(
            ids, offsets, offsets, starts.astype(np.int32), np.ones(len(ids), dtype=np.int32),
            truncated_sentences=sum(bool(encoding.overflowing) for encoding in encodings), pad_id=self.pad_id,
        )  # fmt: skip

    def with_first(self, texts: Sequence[Sentences], *, segments: bool = False) -> SplitSentences:
        """Split each text, or pair of texts in one sequence, with the first special token as the only word.

        A pair that is too long loses subwords at the end of its longer text.

        Args:
            texts: one or two columns of texts.
            segments: whether the model has segment embeddings.

        Raises:
            SettingError: the tokenizer puts no special token before a text.
        """
        frame = frame_of(self.tokenizer, len(texts))
        if not len(frame.special[0]):
            raise SettingError(
                f"head cls reads the special subword before a text, and {type(self.tokenizer).__name__} puts none there: "
                "take head mean or bilstm"
            )
        splits = [self.split(column) for column in texts]
        ends = len(self.prefix), len(self.prefix) + len(self.suffix)
        sizes = np.stack([split.lengths - ends[1] for split in splits])
        cut = splits[0].truncated_sentences if len(splits) == 1 else 0
        if self.max_length is not None:
            room = self.max_length - sum(map(len, frame.special))
            cut_sizes = np.minimum(sizes, room)
            if len(splits) == 2:
                # The longer text is truncated first; if both are longer than half, both get half.
                cut_sizes[0] = np.minimum(sizes[0], np.maximum(room - sizes[1], room // 2))
                cut_sizes[1] = np.minimum(sizes[1], room - cut_sizes[0])
            cut, sizes = int((cut_sizes < sizes).any(axis=0).sum()), cut_sizes
        n = len(splits[0])
        rows, kinds = [], []
        for k in range(n):
            starts = [split.offsets[k] + ends[0] for split in splits]
            parts = [split.ids[a : a + size[k]] for split, a, size in zip(splits, starts, sizes, strict=True)]
            around = [part for pair in zip(frame.special, [*parts, parts[0][:0]], strict=True) for part in pair]
            rows.append(np.concatenate(around))
            kinds.append(np.repeat(frame.segments, list(map(len, around[:-1]))))
        ids, offsets = np.concatenate([self.prefix[:0], *rows]), offsets_of(list(map(len, rows)))
        segment = np.concatenate([self.prefix[:0], *kinds])
        self.put_languages(ids, offsets, texts[0].lang)
        return SplitSentences(
            ids, offsets, np.arange(n + 1), np.zeros(n, dtype=np.int32), np.ones(n, dtype=np.int32),
            truncated_sentences=cut, pad_id=splits[0].pad_id, segments=segment if segments and segment.any() else None,
        )  # fmt: skip


def _without_surrogates(word: str) -> str:
    return word.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


#: words for testing a tokenizer, of which it should know one
PROBES = ("the", "in", "a", "e", "1", "de", "и", "ve", "的")


class Frame(NamedTuple):
    """Special tokens around one text or two.

    Attributes:
        special: ids before, between and after the texts.
        segments: segments (`token_type_ids`) of special tokens and texts in the order of the sequence, int32.
    """

    special: list[np.ndarray]
    segments: np.ndarray


@contextmanager
def as_words(backend: Tokenizer, *, blind: bool = True) -> Iterator[None]:
    """Use the tokenizer without truncation and padding during the block, and (`blind`) without special tokens spelt in the
    text."""
    with _LOCK:
        truncation, padding, special = backend.truncation, backend.padding, backend.encode_special_tokens
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = blind or special
        try:
            yield
        finally:
            backend.encode_special_tokens = special
            backend.no_truncation()
            if truncation is not None:
                backend.enable_truncation(**truncation)
            if padding is not None:
                backend.enable_padding(**padding)


def frame_of(tokenizer: Any, columns: int = 1) -> Frame:
    """Return the special tokens that the tokenizer puts around texts, taken from an example. If it has no template for two
    texts, the second text gets the end of the first again.

    Raises:
        SettingError: the tokenizer adds tokens inside a text, or knows none of the probe words.
    """
    backend = tokenizer.backend_tokenizer
    with as_words(backend):
        for word in PROBES:
            encoding = backend.encode(*[[word]] * columns, is_pretokenized=True)
            owner = np.array([-1 if text is None else text for text in encoding.sequence_ids])
            places = [np.flatnonzero(owner == text) for text in range(columns)]
            if all(map(len, places)):
                break
        else:
            raise SettingError(f"{type(tokenizer).__name__} maps every probe word to nothing")
    if any(place[-1] - place[0] >= len(place) for place in places):
        raise SettingError(
            f"{type(tokenizer).__name__} puts special tokens inside a sentence, expected them at its ends only"
        )
    if not places[0][0] and columns == 2:
        begin, end = frame_of(tokenizer).special
        return Frame([begin, end, end], np.zeros(5, dtype=np.int32))
    ids, kinds = np.array(encoding.ids, dtype=np.int32), [*encoding.type_ids, 0]
    edges = [0, *(edge for place in places for edge in (place[0], place[-1] + 1)), len(ids)]
    special = [ids[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    return Frame(special, np.array([kinds[edge] for edge in edges[:-1]], dtype=np.int32))
