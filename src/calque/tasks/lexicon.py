"""Bilingual lexicon induction: word translation by nearest neighbours among word type vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import numpy as np
import torch

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import full_precision, largest_products
from calque.anchors import Anchors, anchors_of
from calque.corpora import read_dictionary
from calque.corpora.languages import language_and_path
from calque.encoders.base import require
from calque.errors import SettingError, check_number
from calque.input_texts import check_pairs, read_languages, skipped
from calque.progress import bar
from calque.spec import Count, Option
from calque.tasks.base import Score, Task, about_encoder
from calque.tasks.bootstrap import accuracy, measure_all
from calque.tasks.overlap import covered_words
from calque.tasks.reporting import LEXICON
from calque.text import Sentences

if TYPE_CHECKING:
    from calque.annotated import Dictionary
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs

_CELLS = 40_000_000  # maximum number of similarity values in memory
_MAX_CANDIDATES = 200_000  # default number of candidates, as in MUSE and vecmap
# number of candidates whose neighbourhoods are searched between two updates of the progress bar
_BLOCK = 8192
_TIE = 1e-6  # similarities that differ by less count as equal, because they are computed in float32

CandidateWords = Literal["all", "dictionary"]


class Lexicon(Task):
    """Translate the source words of a dictionary by the nearest word types of the target language.

    Precision at k is the fraction of source words with a gold translation among the k nearest words
    (Conneau et al. 2018a). The mean reciprocal rank uses the rank of the best gold translation
    (Glavaš et al. 2019). If a word has several entries, all of their translations count as correct.
    An entry that is listed several times counts once, even if only `lower` makes two entries equal;
    `repeated` counts such entries. `left_out` counts the entries that are skipped because a word
    has no vector.

    The words of the target language that are searched are the *candidates*. CSLS also searches the
    neighbourhood of each candidate among the source words, which are chosen in the same way:

    - with `texts`, the word types of the text;
    - without `texts`, if the encoder has a list of words for each language (static vectors), the
      words of this list;
    - otherwise, the words of the dictionary.

    At most `max_candidates` words are used, the most frequent ones. A list of static vectors is
    assumed to be sorted by frequency.

    Args:
        dictionary: word pairs to test.
        texts: text in each language, by language code. The vector of a word is the mean over its
            occurrences in the text. If None, every word is encoded as a one-word sentence, which
            suits static vectors.
        candidates: "all" words of the text or of the static vectors, or only the words of the
            "dictionary", which makes the search much easier.
        max_candidates: maximum number of candidates, and of source words among which CSLS
            neighbourhoods are searched.
        similarity: similarity measure, "csls" or "cosine".
        lower: whether to merge words that differ only in case, in the texts or static vectors and
            in the dictionary. The texts are encoded in their original case. Of several static
            vectors of a word, the first is used. This option is meant for lower-cased dictionaries.
        k: number of nearest neighbours in CSLS.
        bootstrap: number of bootstrap samples for the confidence intervals.
        seed, data: seed and name of the dictionary, both recorded with the scores.
    """

    reporting = LEXICON

    def __init__(
        self,
        dictionary: Dictionary,
        *,
        texts: Mapping[str, Sentences] | None = None,
        candidates: CandidateWords = "all",
        max_candidates: int = _MAX_CANDIDATES,
        similarity: Literal["csls", "cosine"] = "csls",
        lower: bool = False,
        k: int = 10,
        bootstrap: int = 1000,
        seed: int = 0,
        data: str = "",
    ):
        if similarity not in ("csls", "cosine"):
            raise SettingError(f"similarity must be csls or cosine, got {similarity!r}")
        if candidates not in get_args(CandidateWords):
            raise SettingError(
                f"candidates must be one of {', '.join(get_args(CandidateWords))}, got "
                f"{candidates!r}"
            )
        if texts is not None and candidates == "dictionary":
            raise SettingError(
                "candidates=dictionary cannot be combined with texts, whose words are the "
                "candidates"
            )
        if texts is not None and set(dictionary.langs) - set(texts):
            raise SettingError(
                f"texts must be in {', '.join(dictionary.langs)}, got {', '.join(sorted(texts))}"
            )
        for name, number in (("max_candidates", max_candidates), ("k", k)):
            check_number(name, number, least=1, whole=True)
        self.lower = lower
        self.dictionary = distinct_entries(dictionary, lower=lower)
        self.repeated = len(dictionary) - len(self.dictionary)
        self.texts, self.candidates, self.max_candidates = texts, candidates, max_candidates
        self.similarity, self.k = similarity, k
        self.bootstrap, self.seed, self.data = bootstrap, seed, data

    @classmethod
    def from_files(  # type: ignore[override]
        cls,
        inputs: Inputs,
        *,
        similarity: Annotated[
            Literal["csls", "cosine"], Option("Similarity measure: csls (default) or cosine.")
        ] = "csls",
        candidates: Annotated[
            CandidateWords,
            Option(
                "Words among which translations are searched: all words (all; default), or only "
                "the words of the dictionary (dictionary), which makes the search much easier."
            ),
        ] = "all",
        max_candidates: Annotated[
            Count,
            Option(
                "Maximum number of candidates, and of source words among which CSLS "
                "neighbourhoods are searched."
            ),
        ] = _MAX_CANDIDATES,
        entries: Annotated[
            Sequence[int],
            Option(
                "Range of source words to test, in dictionary order: the first index and, "
                "optionally, the end (exclusive)."
            ),
        ] = (0,),
        lower: Annotated[bool, Option("Compare lower-cased words.")] = False,
        on_error: Annotated[
            Literal["raise", "skip"],
            Option(
                "Handling of dictionary lines that are not word pairs: stop with an error "
                "(raise; default) or skip the line (skip)."
            ),
        ] = "raise",
    ) -> list[Task]:
        """Build the task from files.

        Args:
            inputs: a dictionary, its languages, and optionally text in each language (`de=FILE` if
                FILE has no language code).
        """
        if not inputs.langs:
            raise SettingError(f"{inputs.task} requires --langs, e.g. --langs en de")
        test = inputs.only("test")
        check_pairs(inputs.test, inputs.langs)
        (langs,) = inputs.langs
        if not 1 <= len(entries) <= 2:
            raise SettingError(f"entries must be [first] or [first, end], got {list(entries)}")
        start = entries[0]
        stop = entries[1] if len(entries) > 1 else None
        dictionary = read_dictionary(test, langs=langs, on_error=on_error)
        dictionary = by_frequency(dictionary, start, stop)
        texts = None
        if inputs.text:
            words = inputs.words
            texts = read_languages(
                [language_and_path(file) for file in inputs.text],
                pretokenized=words.pretokenized,
                limit=words.limit,
                say=inputs.say,
            )
        task = cls(
            dictionary,
            texts=texts,
            candidates=candidates,
            max_candidates=max_candidates,
            similarity=similarity,
            lower=lower,
            data=Path(test).name,
        )
        end = "" if stop is None else stop
        # Scores on different ranges or texts must not be compared, so both are recorded.
        task.notes = {
            "entries": f"{start}-{end}",
            "text": [Path(file).name for file in inputs.text],
            "text_sentences": [len(text) for text in (texts or {}).values()],
        }
        return [task]

    def news(self, scores: Sequence[Score]) -> Iterator[str]:
        left_out = scores[0].settings["left_out"]
        path = self.dictionary.path
        yield f"{path}: {scores[0].n:,} source words"
        if self.repeated:
            yield f"{path}: {self.repeated:,} repeated entries count once"
        if left_out:
            skipped(
                f"{path}: {left_out:,} of {len(self.dictionary):,} entries skipped because a word "
                "has no vector"
            )

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the precision at 1, 5 and 10, and the mean reciprocal rank.

        Raises:
            SettingError: no entry has a vector for both words.
        """
        require(encoder, "measured", self.rows)
        source, target = self._sides(encoder, progress=progress)
        gold, left_out = self._gold(source, target)
        if not gold:
            raise SettingError(self._nothing_to_measure())
        ranks = self._ranks(source.vectors, target.vectors, gold, progress=progress)
        about = {
            "similarity": self.similarity,
            "k": self.k,
            "anchors": self.texts is not None,
            "lower": self.lower,
            "candidates": len(target.vectors),
            "candidates_from": target.origin,
            "max_candidates": self.max_candidates,
            "source_words": len(source.vectors),
            "entries_tested": len(self.dictionary) - left_out,
            "left_out": left_out,
            "repeated": self.repeated,
            "source_words_without_vector": source.n_missing,
            "target_words_without_vector": target.n_missing,
            **about_encoder(encoder),
        }
        # Contribution of each source word to a metric, which is its mean over source words.
        contributions = {
            "p@1": ranks <= 1,
            "p@5": ranks <= 5,
            "p@10": ranks <= 10,
            "mrr": 1 / ranks,
        }
        statistics = [
            (np.stack([values, np.ones(len(ranks))], axis=1), accuracy)
            for values in contributions.values()
        ]
        measured = measure_all(statistics, samples=self.bootstrap)
        return [
            value.score(
                task="lexicon",
                data=self.data,
                languages=self.dictionary.langs,
                metric=metric,
                n=len(ranks),
                seed=self.seed,
                settings=about,
            )
            for metric, value in zip(contributions, measured, strict=True)
        ]

    def _nothing_to_measure(self) -> str:
        """Return the error message for a dictionary without a usable entry."""
        name = self.dictionary.path or self.data or "the dictionary"
        if self.texts is None:
            lacking = "consists of two words with vectors"
        else:
            lacking = f"is in the texts in {' and '.join(self.dictionary.langs)}"
        fact = f"{name}: none of its {len(self.dictionary):,} entries {lacking}"
        return f"{fact}, so there is nothing to measure; check the languages"

    # -- words and their vectors -------------------------------------------------------------------
    def anchors(self, encoder: Encoder, *, progress: bool = False) -> tuple[Anchors, Anchors]:
        """Return the word types of the texts in both languages with their vectors; without texts,
        those of the dictionary.
        """
        anchors = []
        words_by_language = zip(
            self.dictionary.langs, (self.dictionary.source, self.dictionary.target), strict=True
        )
        for lang, words in words_by_language:
            if self.texts is None:
                text = one_word_sentences(dict.fromkeys(words), lang)
            else:
                text = self.texts[lang]
            # The text is encoded in its original case; only the word types are lower-cased.
            embeddings = encoder.encode(text, progress=progress)
            if self.lower:
                text = _lower_cased(text)
            anchors.append(anchors_of(text, embeddings, most=self.max_candidates))
        return anchors[0], anchors[1]

    def _sides(self, encoder: Encoder, *, progress: bool) -> tuple[_Words, _Words]:
        """Return the words of both languages with their vectors."""
        source_words, target_words = self.dictionary.source, self.dictionary.target
        # Both languages need a list; otherwise, the sides would differ in how words were chosen.
        if self.texts is None and self.candidates == "all":
            source_lang, target_lang = self.dictionary.langs
            source_list = _stored_words(encoder, source_lang)
            target_list = _stored_words(encoder, target_lang)
            if source_list is not None and target_list is not None:
                encode = partial(self._stored_side, encoder, progress=progress)
                return (
                    encode(source_lang, source_list, source_words),
                    encode(target_lang, target_list, target_words),
                )
        origin = "dictionary" if self.texts is None else "text"
        source, target = self.anchors(encoder, progress=progress)
        return _with_rows(source, source_words, origin), _with_rows(target, target_words, origin)

    def _stored_side(
        self,
        encoder: Encoder,
        lang: str,
        stored: Sequence[str],
        dictionary_words: Sequence[str],
        *,
        progress: bool,
    ) -> _Words:
        """Return the most frequent of the words that the encoder stores for a language, with their
        vectors.

        A dictionary word that the encoder stores only in lower case has the vector of this
        spelling. A word that is stored itself, but is not among the most frequent words, is left
        out.
        """
        spelling_of = self._frequent_spellings(stored)
        rows = {word: row for row, word in enumerate(spelling_of)}
        row_of = {word: rows.get(word) for word in dictionary_words}
        # A word that is stored, but too rare, must not borrow the vector of another spelling.
        all_stored = set(stored)
        absent = []
        for word in row_of:
            if word not in all_stored and word not in rows and word.lower() in rows:
                absent.append(word)
        if absent:
            # The encoder decides whether it falls back to the lower-cased spelling.
            covered = covered_words(encoder.encode(one_word_sentences(absent, lang)))
            for word, has_vector in zip(absent, covered, strict=True):
                if has_vector:
                    row_of[word] = rows[word.lower()]
        sentences = one_word_sentences(spelling_of.values(), lang)
        embeddings = encoder.encode(sentences, progress=progress)
        return _Words(embeddings.data, row_of, "vectors")

    def _frequent_spellings(self, stored: Sequence[str]) -> dict[str, str]:
        """Return the `max_candidates` most frequent words of a sorted list. The dictionary maps a
        word, lower-cased if `lower` is set, to its most frequent spelling.
        """
        spelling_of: dict[str, str] = {}
        for word in stored:
            spelling_of.setdefault(word.lower() if self.lower else word, word)
            if len(spelling_of) == self.max_candidates:
                break
        return spelling_of

    def _gold(self, source: _Words, target: _Words) -> tuple[dict[int, list[int]], int]:
        """Return the distinct rows of the gold translations of each source row, and the number of
        entries without vectors.
        """
        gold: dict[int, set[int]] = {}
        left_out = 0
        for word, translation in zip(self.dictionary.source, self.dictionary.target, strict=True):
            row, translation_row = source.row_of[word], target.row_of[translation]
            if row is None or translation_row is None:
                left_out += 1
            else:
                gold.setdefault(row, set()).add(translation_row)
        return {row: sorted(gold[row]) for row in sorted(gold)}, left_out

    # -- search ------------------------------------------------------------------------------------
    def _ranks(
        self,
        source: np.ndarray,
        target: np.ndarray,
        gold: Mapping[int, list[int]],
        *,
        progress: bool,
    ) -> np.ndarray:
        """Return the rank of each source word's best gold translation, counted from 1, float64
        `[n_queries]`.
        """
        # Only the queries are ranked, but the hubness of a candidate depends on all source words.
        x, y = torch.from_numpy(unit_rows(source)), torch.from_numpy(unit_rows(target))
        hubness = torch.zeros(len(y))
        if self.similarity == "csls":
            hubness = _hubness(y, x, self.k, progress=progress)
        queries, ranks = list(gold), []
        # A block of queries is compared with all candidates at once, within the memory limit.
        block_size = max(1, _CELLS // len(y))
        for start in range(0, len(queries), block_size):
            block = queries[start : start + block_size]
            # CSLS(x, y) = 2·cos(x, y) − r(x) − r(y) (Conneau et al. 2018a, Eq. 3). The term r(x) is
            # the same for all candidates of a query, so it does not change the ranks.
            with full_precision():
                similarities = (2 * x[block] @ y.T).sub_(hubness)
            for query, candidate_scores in zip(block, similarities, strict=True):
                gold_scores = candidate_scores[gold[query]]
                threshold = gold_scores.max() - _TIE
                # Candidates with the same similarity are ranked before the gold word, so a tie
                # counts as wrong. Other gold words are not.
                n_above = int((candidate_scores >= threshold).sum())
                n_gold_above = int((gold_scores >= threshold).sum())
                ranks.append(n_above - n_gold_above + 1)
        return np.array(ranks, dtype=np.float64)


@dataclass(frozen=True)
class _Words:
    """Words of one language.

    Attributes:
        vectors: vectors of the words, `[n_words, dim]`.
        row_of: row of each dictionary word in `vectors`, or None for a word without a vector.
        origin: where the words come from: "text", "vectors" (the list of static vectors) or
            "dictionary".
    """

    vectors: np.ndarray
    row_of: Mapping[str, int | None]
    origin: str

    @property
    def n_missing(self) -> int:
        """Number of dictionary words without a vector."""
        return sum(row is None for row in self.row_of.values())


def _with_rows(anchors: Anchors, dictionary_words: Sequence[str], origin: str) -> _Words:
    rows = {word: row for row, word in enumerate(anchors.words)}
    row_of = {word: rows.get(word) for word in dictionary_words}
    return _Words(anchors.vectors, row_of, origin)


def _stored_words(encoder: Encoder, lang: str) -> Sequence[str] | None:
    """Return the words that an encoder stores for a language, or None if it has no such list."""
    # Encoders from other packages need not be subclasses of `Encoder`.
    return encoder.stored_words(lang) if hasattr(encoder, "stored_words") else None


def _hubness(y: torch.Tensor, x: torch.Tensor, k: int, *, progress: bool) -> torch.Tensor:
    """Return the mean cosine of each row of `y` with its `k` nearest rows of `x`, float32
    `[len(y)]`.
    """
    hubness = torch.zeros(len(y))
    show = progress and len(y) > _BLOCK
    with bar(len(y), unit="word", title="neighbourhoods", show=show) as counter:
        for start in range(0, len(y), _BLOCK):
            products, _ = largest_products(y[start : start + _BLOCK], x, k)
            means = torch.from_numpy(products.mean(axis=1, dtype=np.float64))
            hubness[start : start + _BLOCK] = means.float()
            counter.update(len(products))
    return hubness


def one_word_sentences(words: Iterable[str], lang: str) -> Sentences:
    """Return a text with one sentence for each word."""
    return Sentences.of([[word] for word in words], lang)


def _lower_cased(text: Sentences) -> Sentences:
    sentences = ([word.lower() for word in sentence.words] for sentence in text)
    return Sentences.of(sentences, text.lang)


def distinct_entries(dictionary: Dictionary, *, lower: bool = False) -> Dictionary:
    """Return a dictionary without repeated entries, in the order of their first occurrence.

    Args:
        dictionary: dictionary in which an entry can be listed several times.
        lower: whether to convert the words to lower case first, which can make entries equal.
    """
    pairs = list(zip(dictionary.source, dictionary.target, strict=True))
    if lower:
        pairs = [(word.lower(), translation.lower()) for word, translation in pairs]
    pairs = list(dict.fromkeys(pairs))
    source = tuple(word for word, _ in pairs)
    target = tuple(translation for _, translation in pairs)
    return replace(dictionary, source=source, target=target)


def by_frequency(dictionary: Dictionary, start: int, stop: int | None) -> Dictionary:
    """Return the entries whose source word has an index from `start` to `stop` (exclusive) in
    dictionary order.

    Raises:
        SettingError: the dictionary has no source words in this range.
    """
    # Published dictionaries list words by frequency; MUSE tests on a range of them.
    source_words = list(dict.fromkeys(dictionary.source))
    if stop is None:
        stop = len(source_words)
    chosen = {word for index, word in enumerate(source_words) if start <= index < stop}
    if not chosen:
        name = dictionary.path or "dictionary"
        raise SettingError(
            f"{name}: entries must be within its {len(source_words):,} source words, got {start} "
            f"to {stop}"
        )
    pairs = zip(dictionary.source, dictionary.target, strict=True)
    kept = [(word, translation) for word, translation in pairs if word in chosen]
    source = tuple(word for word, _ in kept)
    target = tuple(translation for _, translation in kept)
    return replace(dictionary, source=source, target=target)
