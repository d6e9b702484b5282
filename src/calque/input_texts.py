"""Load the texts and word links that commands use, and warn about skipped lines."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike

from calque.corpora.columns import HEADER
from calque.corpora.lines import BLANK
from calque.corpora.parallel import read_parallel
from calque.corpora.readers import AUTO
from calque.corpora.xml_text import CONTROL, REASONS, UNDEFINED
from calque.errors import InputError, SettingError, SkippedWarning
from calque.named import Permission
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences
from calque.text_files import NOT_UTF8, Flaw, read_lines

Say = Callable[[str], None]


def check_pairs(texts: Sequence[str], langs: Sequence[tuple[str, str]]) -> None:
    """Check that there is one language pair for each text; otherwise raise a `SettingError`."""
    if len(texts) != len(langs):
        names = ", ".join(map(str, texts))
        pairs = ", ".join("-".join(pair) for pair in langs)
        fact = f"got {len(texts)} text(s) ({names}) but {len(langs)} language pair(s) ({pairs})"
        raise SettingError(
            f"{fact}; pass one language pair for each text, e.g. --langs en de --langs en fr"
        )


def skipped(
    message: str, counts: Mapping[str, int] | None = None, first: Mapping[str, str] | None = None
) -> None:
    """Warn about skipped items even with -q, because scores do not include these items."""
    warnings.warn(SkippedWarning(message, dict(counts or {}), dict(first or {})), stacklevel=3)


# Reasons for skipping a line that are normal even in valid text. Lines skipped for any other reason
# count as unusable, unless the reader yields them as an `Omission`.
_USUAL = (
    BLANK,
    HEADER,
    "empty source",
    "empty target",
    "language missing",
    "no label",
    REASONS[CONTROL],
    REASONS[UNDEFINED],
)
#: permission to read texts in which more than a tenth of the lines are unusable
SKIP_UNUSABLE = Permission("calque_skips_unusable")


def warn_skipped(corpus: ParallelCorpus, path: str | PathLike[str]) -> None:
    """Warn about the lines of a text that were skipped.

    Raises:
        InputError: no line is usable, or more than a tenth of the lines are unusable and
            `SKIP_UNUSABLE` is not granted.
    """
    reasons = _reasons(corpus)
    if not corpus.source.lengths().any():
        raise InputError(
            f"no usable sentence pair in {len(corpus):,} lines: {reasons or 'all are empty'}",
            path=path,
        )
    # One wrong line in ten shows a wrong format rather than errors of single lines.
    usual = {*_USUAL, *corpus.omitted}
    n_unusable = sum(count for reason, count in corpus.skipped.items() if reason not in usual)
    if 10 * n_unusable > len(corpus) and not SKIP_UNUSABLE:
        fact = (
            f"{n_unusable:,} of {len(corpus):,} lines cannot be used ({reasons}), expected at most "
            f"a tenth: {_remedy(corpus)}; or skip these lines with --on-error skip"
        )
        raise InputError(fact, path=path)
    if corpus.skipped:
        message = f"{path}: skipped {sum(corpus.skipped.values()):,} unusable lines ({reasons})"
        skipped(message, corpus.skipped, corpus.first_skipped)


def _reasons(corpus: ParallelCorpus) -> str:
    """Return the number of skipped lines for each reason, and the position of the first one."""
    parts = []
    for reason, count in corpus.skipped.items():
        place = corpus.first_skipped.get(reason)
        parts.append(f"{count:,} × {reason}" + (f", first: {place}" if place is not None else ""))
    return ", ".join(parts)


def _remedy(corpus: ParallelCorpus) -> str:
    """Return advice on unusable lines: how to convert a file that is not in UTF-8, or to correct
    the file.
    """
    place = corpus.first_skipped.get(NOT_UTF8)
    if place is not None:
        file, _, _ = place.rpartition(" line ")
        for line in read_lines(file):
            if isinstance(line, Flaw) and line.reason == NOT_UTF8:
                return line.fact
    return "correct the file"


@dataclass(frozen=True)
class Words:
    """Settings for tokenisation and word alignment.

    Args:
        model: statistical aligner, one of auto, fast-align, hmm and gibbs.
        symmetrize: method that combines the links of the two alignment directions.
        pretokenized: whether the text is already tokenised, with words separated by spaces.
        limit: maximum number of sentence pairs of each file, evenly spaced over the file.
        one_based: whether word numbers in files of word links start at 1; see `WordPairs.parse`.
        format: format of parallel texts, see `read_parallel`; by default, it is detected.
    """

    model: str = "auto"
    symmetrize: str = "one-to-one"
    pretokenized: bool = False
    seed: int = 0
    limit: int | None = None
    one_based: bool | None = None
    format: str = AUTO

    @property
    def unlimited(self) -> Words:
        """Settings without `limit`. Training text must be read completely, because it determines
        which words are unseen.
        """
        return replace(self, limit=None)

    def read(self, path: str | PathLike[str], langs: tuple[str, str]) -> ParallelCorpus:
        """Read parallel text. Unusable lines become empty sentence pairs, so the line numbers of
        word link files stay valid.

        Raises:
            InputError: see `warn_skipped`.
        """
        corpus = read_parallel(
            path,
            langs=langs,
            format=self.format,
            pretokenized=self.pretokenized,
            on_error="blank",
            limit=self.limit,
        )
        warn_skipped(corpus, path)
        return corpus

    def read_all(
        self, paths: Sequence[str], langs: Sequence[tuple[str, str]]
    ) -> list[ParallelCorpus]:
        """Read several parallel texts, each with its own language pair."""
        check_pairs(paths, langs)
        return [self.read(path, pair) for path, pair in zip(paths, langs, strict=True)]

    def link(
        self, corpus: ParallelCorpus, *, extra: ParallelCorpus | None = None, progress: bool = False
    ) -> WordPairs:
        """Align the words of a corpus with the statistical aligner, which is trained on the corpus
        and on `extra`.
        """
        from calque.wordalign import align_words

        return align_words(
            corpus,
            model=self.model,
            symmetrize=self.symmetrize,
            seed=self.seed,
            extra=extra,
            progress=progress,
        )

    def open_pairs(self, path: str | PathLike[str], corpus: ParallelCorpus) -> WordPairs:
        """Read the word links of a corpus from a Pharaoh file, and check that the linked words
        exist.

        With `limit`, the file may have links for the chosen sentence pairs or for all lines of the
        text.
        """
        pairs = self.open_links(path, corpus).check(corpus, path=path)
        # Links from a file are treated like those of the aligner with this method.
        return pairs.one_to_one() if self.symmetrize == "one-to-one" else pairs

    def open_links(self, path: str | PathLike[str], corpus: ParallelCorpus) -> WordPairs:
        """Read word links from a Pharaoh file; with `limit`, return those of the chosen sentence
        pairs.
        """
        pairs = WordPairs.open(path, one_based=self.one_based)
        has_all_lines = pairs.n_sentences > len(corpus)
        if self.limit is None or corpus.lines is None or not has_all_lines:
            return pairs
        if (corpus.lines > pairs.n_sentences).any():
            return pairs  # `check` reports that the numbers differ
        return pairs.take(corpus.lines - 1)


def read_languages(
    files: Iterable[tuple[str, str]],
    *,
    format: str = AUTO,
    pretokenized: bool = False,
    limit: int | None = None,
    say: Say = lambda line: None,
) -> dict[str, Sentences]:
    """Read files, given as pairs (language, path), and concatenate the sentences of each
    language. The other arguments are those of `read_sentences`.
    """
    from calque.corpora.plain import read_sentences

    texts: dict[str, list[Sentences]] = {}
    for lang, path in files:
        text = read_sentences(
            path, lang=lang, format=format, pretokenized=pretokenized, limit=limit
        )
        texts.setdefault(lang, []).append(text)
    sentences = {lang: Sentences.joined(parts) for lang, parts in texts.items()}
    counts = ", ".join(f"{lang} {len(text):,}" for lang, text in sentences.items())
    say(f"sentences: {counts}")
    return sentences


def digest_of(sentences: Sentences) -> str:
    """Return a hash of the words and sentence boundaries of a text."""
    # The offsets distinguish equal words that are divided into other sentences.
    words, offsets = sentences.flat()
    digest = hashlib.blake2b(offsets.tobytes(), digest_size=16)
    for chunk in words.chunks:
        digest.update("\0".join(chunk.to_pylist()).encode())
    return digest.hexdigest()
