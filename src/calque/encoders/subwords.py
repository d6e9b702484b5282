"""Words to subwords and back: the only place that knows how a tokenizer cuts a word."""

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

_LOCK = RLock()  # several threads may read text, while settings of a tokenizer change
_CHUNK = 512  # words handed to the tokenizer as one pretokenised sentence: its cost per call is spread over them

# Token of a language in M2M100 (__en__), mBART (en_XX, of which the region says nothing) and NLLB (eng_Latn).
_LANGUAGE = re.compile(r"__(\w+)__|([a-z]{2,3})_[A-Z]{2}|([a-z]{3}_[A-Z][a-z]{3})")
_SCORE = re.compile(r"(?<=[ ,\[:])-?\d+\.\d{13,}(?:e-?\d+)?")


def stable_text(backend: Any) -> str:
    """Return a tokenizer as JSON text for a hash. The library `tokenizers` may change the last bit of a Unigram score when it
    reads a file. Scores are rounded to 12 digits, so that a saved tokenizer has the same hash as the one in memory."""
    return _SCORE.sub(lambda found: f"{float(found[0]):.12g}", backend.to_str())


class Subwords:
    """Splits words with a fast `transformers` tokenizer; exact, because each word is split on its own.

    That is what `tokenizer(words, is_split_into_words=True)` does too, so each distinct word of a text is split once, and
    sentences are gathered from its ids. Three things differ from a plain call on purpose:

    - A word is split as it is *after a space*. Byte-level BPE (RoBERTa, GPT-2, ModernBERT, …) writes the space into
      the subword, and a plain call on a list of words would glue the words together; this equals loading the tokenizer
      with `add_prefix_space=True`. Whether it is needed is found out by splitting a few words both ways.
    - A word of the text that spells a special subword (`[SEP]`, `</s>`) is split like any other word
      (`split_special_tokens=True`); should a special id still come out, the unknown subword takes its place.
    - A sentence over the length limit ends with the last word that fits in wholly: half a word has no exact vector.

    A model that reads the language of a text by a token around it (M2M100, NLLB, mBART) gets that of each sentence's own
    language: of its `lang`, by two letters or as the model has it. Without a `lang` it is the tokenizer's own, `src_lang`.

    Args:
        tokenizer: any fast tokenizer of `transformers`. Its own settings are left as they are.
        max_length: most subwords of a sentence, special ones included; None for the tokenizer's own limit.
        vocabulary: subwords that the model knows; None if there is no model.

    Raises:
        SettingError: a slow tokenizer, or a limit that leaves no room for a word.
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
        self.max_length = int(limit) if limit < 1_000_000 else None  # "no limit" is written as 1e30
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
        """Return the ids of the languages' tokens by name, and the place in a sentence of the token of its own language, from
        the end if negative. There are no names where the tokenizer puts no such token around a text."""
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
        """Put the tokens of languages into sentences, in place of the tokenizer's own; nothing where it has none.

        Args:
            ids, offsets: of `SplitSentences`.
            langs: of each sentence, or of all.

        Raises:
            SettingError: there is no token for a language.
        """
        if self.languages:
            langs = [langs] if isinstance(langs, str) else langs
            known = {lang: self._token_of(lang) for lang in langs}
            place = self._language_place
            ids[(offsets[:-1] if place >= 0 else offsets[1:]) + place] = [known[lang] for lang in langs]

    def _token_of(self, lang: str) -> int:
        """Return the id of a language's token: of the name as it is, or of the language in this script, or of the language."""
        language, *rest = language_parts(lang)
        names = [lang, "-".join([language, *rest])]
        if not any(len(part) == 4 and name.startswith(f"{language}-") for part in rest for name in self.languages):
            names.append(language)  # whatever the region; of another script only where tokens have none
        for name in names:
            if name in self.languages:
                return self.languages[name]
        tokens = [name for name in self.languages if _LANGUAGE.fullmatch(name)]
        some = ", ".join(tokens[:20]) + (f", … ({len(tokens)} in all)" if len(tokens) > 20 else "")
        raise SettingError(f"there is no token for the language {lang!r}, expected one of {some}, or two letters")

    # -- what the tokenizer does ----------------------------------------------------------------------------------
    def _needs_space(self) -> bool:
        """Return whether a word is cut as inside a text only if a space stands before it."""
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
        """Return the ids of distinct words, one after the other, int32; and how many each has, int64 `[len(words)]`."""
        if self.needs_space:
            words = [word if not word or word[0].isspace() else " " + word for word in words]
        chunks = [words[start : start + _CHUNK] for start in range(0, len(words), _CHUNK)]
        with as_words(self.backend):
            try:
                encodings = self.backend.encode_batch(chunks, is_pretokenized=True, add_special_tokens=False)
            except (UnicodeEncodeError, TypeError):  # a lone surrogate has no UTF-8: it reads as U+FFFD
                chunks = [[_without_surrogates(word) for word in chunk] for chunk in chunks]
                encodings = self.backend.encode_batch(chunks, is_pretokenized=True, add_special_tokens=False)
        ids = np.array([i for encoding in encodings for i in encoding.ids], dtype=np.int32)
        counts = np.concatenate([
            np.zeros(0, dtype=np.int64),
            *(np.bincount(np.array(encoding.word_ids, dtype=np.int64), minlength=len(chunk))
              for encoding, chunk in zip(encodings, chunks, strict=True)),
        ])  # fmt: skip
        special = np.isin(ids, self._special_ids)
        if special.any():  # Unigram vocabularies list </s> as an ordinary piece
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
        """Cut sentences into subwords.

        Args:
            sentences: `Sentences` of a corpus (fastest), or any iterable of `Sentence` or of lists of words.
            whole: whatever their length, for whoever cuts them to it.
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
        """Cut sentences of any length into subwords without special ones.

        Returns:
            ids of their subwords, int32; the sentences' offsets in these, int64 `[n_sentences + 1]`; and how many each word has,
            int64 `[n_words]`.
        """
        types, numbers, word_offsets = number_words(sentences)
        table, sizes = self._split_types(types)
        starts, nothing = offsets_of(sizes)[numbers], np.zeros(0, dtype=np.int32)
        ids, offsets, _ = laid_out(table, starts, sizes[numbers], word_offsets, nothing, nothing)
        return ids, offsets, sizes[numbers]

    def split_texts(self, texts: Sequence[str], *, limit: int | None = None, lang: str = "") -> SplitSentences:
        """Cut texts as the tokenizer itself does; every subword is a "word" of the result, the special ones included.

        A special subword that a text spells, such as [SEP], is that special subword, as in sentence-transformers. A text that
        is too long loses its end.

        Args:
            texts: what is said, spaces and all.
            limit: most subwords of a text, special ones included; None for no limit.
            lang: language of all of them.
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
        """Cut each text, or pair of texts in one sequence, whose only word is the first special subword.

        A pair that is too long loses subwords at the end of its longer text until it fits.

        Args:
            texts: one column or two.
            segments: the model tells the two texts apart by segment embeddings.

        Raises:
            SettingError: nothing stands before the first text that could stand for the whole.
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
                # What is over comes off the longer text; both get half where both are longer than that.
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


#: words to try a tokenizer out with, one of which it should know
PROBES = ("the", "in", "a", "e", "1", "de", "и", "ve", "的")


class Frame(NamedTuple):
    """Special subwords around one text or around two.

    Attributes:
        special: ids before, between and after the texts.
        segments: int32, segment (`token_type_ids`) of each of these and of each text, in the order of the sequence.
    """

    special: list[np.ndarray]
    segments: np.ndarray


@contextmanager
def as_words(backend: Tokenizer, *, blind: bool = True) -> Iterator[None]:
    """Use the tokenizer without truncation and padding, and (`blind`) without special subwords that a text spells."""
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
    """Return what the tokenizer itself puts around texts, read off one example. Where it has something for one text and nothing
    for two, the second one gets the end of the first once more.

    Raises:
        SettingError: it puts something inside a text, or knows none of the words tried.
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
            f"{type(tokenizer).__name__} puts special subwords inside a sentence, expected them at its ends only"
        )
    if not places[0][0] and columns == 2:
        begin, end = frame_of(tokenizer).special
        return Frame([begin, end, end], np.zeros(5, dtype=np.int32))
    ids, kinds = np.array(encoding.ids, dtype=np.int32), [*encoding.type_ids, 0]
    edges = [0, *(edge for place in places for edge in (place[0], place[-1] + 1)), len(ids)]
    special = [ids[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    return Frame(special, np.array([kinds[edge] for edge in edges[:-1]], dtype=np.int32))
