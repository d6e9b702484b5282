"""Split words into subwords with a tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.corpora.languages import TWO_LETTERS
from calque.encoders.split import SplitSentences
from calque.errors import SettingError
from calque.offsets import offsets_of, ranges
from calque.segment import language_parts
from calque.text import Sentence, Sentences, number_words

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer
    from transformers import PreTrainedTokenizerFast

_LOCK = RLock()  # held while settings are changed, because threads may share a tokenizer
_CHUNK = 512  # number of words passed to the tokenizer in one call

# Language tokens of M2M100 (__en__), mBART (en_XX; the region is ignored) and NLLB (eng_Latn).
_LANGUAGE = re.compile(r"__(\w+)__|([a-z]{2,3})_[A-Z]{2}|([a-z]{3}_[A-Z][a-z]{3})")
_SCORE = re.compile(r"(?<=[ ,\[:])-?\d+\.\d{13,}(?:e-?\d+)?")


def stable_text(backend: Tokenizer) -> str:
    """Return a tokenizer as JSON for hashing. Unigram scores are rounded to 12 digits, because
    their last bit can change when `tokenizers` reads a file."""
    return _SCORE.sub(lambda score: f"{float(score[0]):.12g}", backend.to_str())


class Subwords:
    """Subword splitter that applies a fast `transformers` tokenizer to each word separately.

    Each distinct word of a text is split once, as in `tokenizer(words, is_split_into_words=True)`,
    with three differences:

    - A word is split as it would be *after a space*. Byte-level BPE (RoBERTa, GPT-2, …) includes
      the space in the subword, so a plain call on a list of words would join them. This is
      equivalent to `add_prefix_space=True`; see `_needs_space`.
    - A word that spells a special token (`[SEP]`, `</s>`) is split like other words
      (`split_special_tokens=True`), or becomes the unknown token.
    - A sentence that exceeds the length limit is truncated after the last word that fits
      completely.

    For models with language tokens (M2M100, NLLB, mBART), each sentence gets the language token for
    its `lang`, which is a two-letter code or the model's own code. Without `lang`, the token of the
    tokenizer's `src_lang` is used.

    Args:
        tokenizer: fast `transformers` tokenizer, whose settings are not changed.
        max_length: maximum number of subwords in a sentence, including special tokens; default: the
            tokenizer's limit.
        vocabulary: number of embeddings in the model, for checking subword ids; None if there is no
            model.
        special: whether to add special tokens and apply a length limit.

    Raises:
        SettingError: the tokenizer is not a fast tokenizer, or `max_length` leaves no space for a
            word.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        *,
        max_length: int | None = None,
        vocabulary: int | None = None,
        special: bool = True,
    ):
        if not getattr(tokenizer, "is_fast", False):
            fact = (
                f"{type(tokenizer).__name__} is a slow tokenizer, which does not report word "
                "boundaries"
            )
            raise SettingError(f"{fact}; use a fast tokenizer, which has a tokenizer.json")
        self.tokenizer = tokenizer
        self.backend: Tokenizer = tokenizer.backend_tokenizer  # type: ignore[assignment]
        self.prefix = self.suffix = np.zeros(0, np.int32)
        self.max_length: int | None = None
        if special:
            self.prefix, self.suffix = frame_of(tokenizer)
            limit = tokenizer.model_max_length if max_length is None else max_length
            if limit < 1_000_000:  # transformers writes "no limit" as 1e30
                self.max_length = int(limit)
        self.languages, self._language_place = self._language_tokens()
        n_special = len(self.prefix) + len(self.suffix)
        if self.max_length is not None and self.max_length <= n_special:
            raise SettingError(
                f"max_length must exceed the {n_special} special tokens, got {self.max_length}"
            )
        self.pad_id = int(tokenizer.pad_token_id or 0)  # type: ignore[arg-type]
        self.unk_id: int | None = tokenizer.unk_token_id  # type: ignore[assignment]
        self._special_ids = np.array(
            sorted(set(tokenizer.all_special_ids) - {self.unk_id}), dtype=np.int32
        )
        self.needs_space = self._needs_space()
        self.vocabulary = vocabulary

    # -- language tokens ---------------------------------------------------------------------------
    def _language_tokens(self) -> tuple[dict[str, int], int]:
        """Return the ids of language tokens by name, and the position of the language token in a
        sentence (from the end if negative). The dictionary is empty if the tokenizer adds no
        language token."""
        known: dict[str, int] = {}
        for number, token in sorted(self.backend.get_added_tokens_decoder().items()):
            match = _LANGUAGE.fullmatch(token.content)
            if match is None:
                continue
            code = next(filter(None, match.groups()))  # such as "eng_Latn"
            base, *script = code.split("_")
            two_letters = TWO_LETTERS.get(base, base)
            known[token.content] = number
            for name in (base, two_letters, "-".join([two_letters, *script]).lower()):
                known.setdefault(name, number)
        # The tokenizer adds the token of its default language.
        frame = [*self.prefix.tolist(), *self.suffix.tolist()]
        for place, number in enumerate(frame):
            if number in known.values():
                known[""] = number
                return known, place if place < len(self.prefix) else place - len(frame)
        return {}, 0

    def put_languages(
        self, ids: np.ndarray, offsets: np.ndarray, langs: str | Sequence[str]
    ) -> None:
        """Set the language token of each sentence in place if the tokenizer has language tokens.

        Args:
            ids, offsets: subword ids, which are modified in place, and sentence offsets, as in
                `SplitSentences`.
            langs: language of each sentence, or one language for all sentences.
        """
        if not self.languages:
            return
        if isinstance(langs, str):
            langs = [langs]
        tokens = {lang: self._token_of(lang) for lang in dict.fromkeys(langs)}
        # A place before the words counts from the start of a sentence, another one from its end.
        place = self._language_place
        edges = offsets[:-1] if place >= 0 else offsets[1:]
        ids[edges + place] = [tokens[lang] for lang in langs]

    def _token_of(self, lang: str) -> int:
        """Return the id of a language's token, looked up by the full name, by language and script,
        or by language.
        """
        language, *rest = language_parts(lang)
        names = [lang, "-".join([language, *rest])]
        has_script = any(len(part) == 4 for part in rest)
        scripts_differ = any(name.startswith(f"{language}-") for name in self.languages)
        if not (has_script and scripts_differ):
            names.append(language)  # without the region and the script
        for name in names:
            if name in self.languages:
                return self.languages[name]
        tokens = [name for name in self.languages if _LANGUAGE.fullmatch(name)]
        listed = ", ".join(tokens[:20])
        if len(tokens) > 20:
            listed += f", … ({len(tokens)} in all)"
        raise SettingError(
            f"there is no token for the language {lang!r}; use one of {listed}, or a two-letter "
            "code"
        )

    # -- tokenizer ---------------------------------------------------------------------------------
    def _needs_space(self) -> bool:
        """Return whether a single word needs a preceding space to be split as it would be in a
        text.
        """

        def ids_of(text: str | list[str]) -> list[int]:
            is_list = not isinstance(text, str)
            return self.backend.encode(text, is_pretokenized=is_list, add_special_tokens=False).ids

        votes = 0
        with as_words(self.backend):
            for word in PROBES:
                after_space = ids_of(f"{word} {word}")[len(ids_of(word)) :]
                votes += ids_of([" " + word]) == after_space
                votes -= ids_of([word]) == after_space
        return votes > 0

    def _spaced(self, words: Iterable[str]) -> list[str]:
        """Return the words, each preceded by a space if the tokenizer needs one."""
        if not self.needs_space:
            return list(words)
        return [f" {word}" if word and not word[0].isspace() else word for word in words]

    def _split_types(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of distinct words, int32, and the number of ids of each word,
        int64 `[len(words)]`.
        """
        words = self._spaced(map(without_surrogates, words))
        chunks = [words[start : start + _CHUNK] for start in range(0, len(words), _CHUNK)]
        with as_words(self.backend):
            encodings = self.backend.encode_batch(
                chunks, is_pretokenized=True, add_special_tokens=False
            )
        ids, _ = flat_ids(encodings)
        owners: list[int] = []  # index of each subword's word
        for number, encoding in enumerate(encodings):
            # Only special tokens have no word, and none were added.
            owners += [number * _CHUNK + word for word in encoding.word_ids if word is not None]
        owner = np.array(owners, dtype=np.int64)
        special = np.isin(ids, self._special_ids)
        if special.any():  # Unigram vocabularies contain </s> as an ordinary piece
            if self.unk_id is not None and self.unk_id not in self._special_ids:
                ids[special] = self.unk_id
            else:
                ids, owner = ids[~special], owner[~special]
        counts = np.bincount(owner, minlength=len(words))
        self._check(ids)
        return ids, counts

    def _check(self, ids: np.ndarray) -> None:
        if self.vocabulary is not None and len(ids) and ids.max() >= self.vocabulary:
            fact = (
                f"the tokenizer returns the id {ids.max()}, but the model has only "
                f"{self.vocabulary} embeddings"
            )
            raise SettingError(f"{fact}; use the model's own tokenizer")

    # -- sentences ---------------------------------------------------------------------------------
    def split(self, sentences: Iterable[Sentence | Sequence[str]]) -> SplitSentences:
        """Split sentences into subwords; this is fastest for a `Sentences` object."""
        if self.languages and not isinstance(sentences, Sentences):
            sentences = list(sentences)  # read twice: for the words and for the languages
        # Each distinct word is split once: word type t has `type_lengths[t]` ids in `type_ids`.
        types, numbers, word_offsets = number_words(sentences)
        type_ids, type_lengths = self._split_types(types)
        lengths, counts = type_lengths[numbers], np.diff(word_offsets)
        n_empty = int((lengths == 0).sum())
        ends = offsets_of(lengths)
        word_starts = ends[:-1] - np.repeat(ends[word_offsets[:-1]], counts) + len(self.prefix)
        lost = np.zeros(len(lengths), dtype=bool)
        if self.max_length is not None:  # drop a word that exceeds the limit, and all later words
            lost = (word_starts + lengths > self.max_length - len(self.suffix)) & (lengths > 0)
            lengths = np.where(lost, 0, lengths)
        ends = offsets_of(lengths)
        n_special = len(self.prefix) + len(self.suffix)
        offsets = offsets_of(ends[word_offsets[1:]] - ends[word_offsets[:-1]] + n_special)
        # Copy the ids of each word's type to the word's place, and put special tokens around them.
        ids = np.empty(offsets[-1], dtype=np.int32)
        places = ranges(np.repeat(offsets[:-1], counts) + word_starts, lengths)
        ids[places] = type_ids[ranges(offsets_of(type_lengths)[numbers], lengths)]
        ids[offsets[:-1, None] + np.arange(len(self.prefix))] = self.prefix
        ids[offsets[1:, None] + np.arange(-len(self.suffix), 0)] = self.suffix
        if isinstance(sentences, Sentences):
            self.put_languages(ids, offsets, sentences.lang)
        elif self.languages:
            langs = [getattr(sentence, "lang", "") for sentence in sentences]
            self.put_languages(ids, offsets, langs)
        lost_before = offsets_of(lost)
        is_truncated = lost_before[word_offsets[1:]] > lost_before[word_offsets[:-1]]
        return SplitSentences(
            ids,
            offsets,
            word_offsets,
            np.where(lengths > 0, word_starts, 0).astype(np.int32),
            lengths.astype(np.int32),
            truncated_words=int(lost.sum()),
            empty_words=n_empty,
            pad_id=self.pad_id,
            truncated_sentences=int(is_truncated.sum()),
        )

    def split_texts(
        self, texts: Sequence[str], *, limit: int | None = None, lang: str = "", lower: bool = False
    ) -> SplitSentences:
        """Split texts with a plain call to the tokenizer; every subword, including special tokens,
        is a "word" of the result.

        A special token in a text, such as [SEP], remains a special token unless the tokenizer's
        `split_special_tokens` is set, as in sentence-transformers.

        Args:
            limit: maximum number of subwords in a text; the end of a longer text is dropped, or its
                beginning if the tokenizer's `truncation_side` is "left".
            lower: whether the text, except special tokens, is lower-cased first.
        """
        blind = bool(getattr(self.tokenizer, "split_special_tokens", False))
        with as_words(self.backend, blind=blind), lowered(self.backend, lower):
            if limit is not None:
                shortest = len(self.prefix) + len(self.suffix) + 1
                self.backend.enable_truncation(
                    max(limit, shortest), direction=self.tokenizer.truncation_side
                )
            encodings = self.backend.encode_batch([without_surrogates(text) for text in texts])
        return self._whole(encodings, lang).each_subword()

    def single_subwords(self, words: Sequence[str]) -> np.ndarray:
        """Return the subword id of each word that is a single subword, int64 `[n]`, or −1 for other
        words and special tokens.
        """
        split = self.split([[word] for word in words])
        ids = split.ids[split.offsets[:-1] + split.word_starts]
        special = np.array(sorted(self.tokenizer.all_special_ids))
        is_single = (split.word_lengths == 1) & ~np.isin(ids, special)
        return np.where(is_single, ids, -1).astype(np.int64)

    def _whole(self, encodings: Sequence[Encoding], lang: str) -> SplitSentences:
        """Convert the tokenizer's encodings of texts; the only "word" of each text is its first
        subword.
        """
        n = len(encodings)
        ids, lengths = flat_ids(encodings)
        offsets = offsets_of(lengths)
        self._check(ids)
        self.put_languages(ids, offsets, lang)
        return SplitSentences(
            ids,
            offsets,
            word_offsets=np.arange(n + 1),
            word_starts=np.zeros(n, dtype=np.int32),
            word_lengths=np.ones(n, dtype=np.int32),
            truncated_sentences=sum(bool(encoding.overflowing) for encoding in encodings),
            pad_id=self.pad_id,
        )

    def with_first(self, texts: Sequence[Sentences], *, segments: bool = False) -> SplitSentences:
        """Split texts, or pairs of texts joined into one sequence; the only "word" of a sequence is
        its first special token.

        A pair that exceeds the length limit is truncated at the end of its longer text.

        Args:
            texts: one column of texts, or two columns for pairs.
            segments: whether the model has segment (token type) embeddings.
        """
        columns: list[list[list[str]]] = []
        for column in texts:
            columns.append([self._spaced(map(without_surrogates, text.words)) for text in column])
        inputs: Any = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        with as_words(self.backend):
            if self.max_length is not None:
                self.backend.enable_truncation(self.max_length)
            encodings = self.backend.encode_batch(inputs, is_pretokenized=True)
        if any(encoding.special_tokens_mask[:1] != [1] for encoding in encodings):
            name = type(self.tokenizer).__name__
            fact = (
                f"head cls requires a special token before each text, but {name} adds no such token"
            )
            raise SettingError(f"{fact}; use head mean or bilstm")
        split = self._whole(encodings, texts[0].lang)
        if not segments:
            return split
        type_ids = [np.array(encoding.type_ids, dtype=np.int32) for encoding in encodings]
        flat_types = np.concatenate([np.zeros(0, dtype=np.int32), *type_ids])
        return replace(split, segments=flat_types) if flat_types.any() else split


def flat_ids(encodings: Sequence[Encoding]) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated ids of a tokenizer's encodings, int32, and the number of ids of each
    encoding, int64.
    """
    ids: list[int] = []
    lengths = np.zeros(len(encodings), dtype=np.int64)
    for number, encoding in enumerate(encodings):
        encoding_ids = encoding.ids  # a new list on each access
        lengths[number] = len(encoding_ids)
        ids += encoding_ids
    return np.array(ids, dtype=np.int32), lengths


def without_surrogates(word: str) -> str:
    """Replace lone surrogates, which cannot be encoded in UTF-8, with U+FFFD."""
    return word.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


#: words used to test a tokenizer; its vocabulary must contain at least one of them
PROBES = ("the", "in", "a", "e", "1", "de", "и", "ve", "的")


@contextmanager
def as_words(backend: Tokenizer, *, blind: bool = True) -> Iterator[None]:
    """Disable the tokenizer's truncation and padding inside the `with` block. If `blind`, special
    tokens written in a text are split like other words."""
    with _LOCK:
        truncation, padding = backend.truncation, backend.padding
        special = backend.encode_special_tokens
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


@contextmanager
def lowered(backend: Tokenizer, wanted: bool) -> Iterator[None]:
    """Lower-case all text inside the `with` block if `wanted` is set, in the same way as
    sentence-transformers 6.
    """
    from tokenizers import normalizers

    before = backend.normalizer
    steps: Any = before
    parts = list(steps) if isinstance(before, normalizers.Sequence) else [before]
    wanted = wanted and not any(isinstance(part, normalizers.Lowercase) for part in parts)
    with _LOCK:
        if wanted:
            backend.normalizer = normalizers.Sequence(
                [normalizers.Lowercase(), *([] if before is None else [before])]
            )
        try:
            yield
        finally:
            if wanted:
                backend.normalizer = before  # type: ignore[assignment]


def frame_of(tokenizer: PreTrainedTokenizerFast) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of the special tokens that the tokenizer adds before and after a text, int32,
    as found for a test word.
    """
    backend = tokenizer.backend_tokenizer
    with as_words(backend):
        examples = (backend.encode([word], is_pretokenized=True) for word in PROBES)
        encoding = next(
            (encoding for encoding in examples if not all(encoding.special_tokens_mask)), None
        )
    name = type(tokenizer).__name__
    if encoding is None:
        raise SettingError(f"{name} returns no subwords for any test word, such as 'the'")
    ids = np.array(encoding.ids, dtype=np.int32)
    places = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)  # of the word's subwords
    if places[-1] - places[0] >= len(places):
        raise SettingError(
            f"{name} adds special tokens inside a sentence, not only before and after it"
        )
    return ids[: places[0]], ids[places[-1] + 1 :]
