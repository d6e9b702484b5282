"""Text from files, word links, and word of what was skipped: what every command begins with."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike

from calque.corpora.lines import BLANK, Flaw, read_lines
from calque.corpora.parallel import read_parallel
from calque.errors import InputError, SettingError, SkippedWarning
from calque.named import Permission
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences

Say = Callable[[str], None]


def check_pairs(texts: Sequence[str], langs: Sequence[tuple[str, str]]) -> None:
    """Check that each text has its own pair of languages: one pair for all would label some texts wrongly.

    Raises:
        SettingError: with the texts and the languages.
    """
    if len(texts) != len(langs):
        named, pairs = ", ".join(map(str, texts)), ", ".join("-".join(pair) for pair in langs)
        fact = f"{len(texts)} text(s) ({named}) and {len(langs)} pair(s) of --langs ({pairs})"
        raise SettingError(f"{fact}: give one pair for each text, as --langs en de --langs en fr")


def skipped(message: str, counts: Mapping[str, int] | None = None, first: Mapping[str, str] | None = None) -> None:
    """Warn of what was left out: what a figure is not about must be known, also where news are not wanted."""
    warnings.warn(SkippedWarning(message, dict(counts or {}), dict(first or {})), stacklevel=3)


def skipped_lines(counts: Mapping[str, int], first: Mapping[str, str]) -> str:
    """What was skipped and why, with the first place of each reason."""
    return ", ".join(
        f"{count:,} × {reason}{f', first: {first[reason]}' if reason in first else ''}"
        for reason, count in counts.items()
    )


#: reasons that a whole text has, too; lines skipped for any other cannot be used
_USUAL = (
    BLANK,
    "empty source",
    "empty target",
    "obsolete",
    "fuzzy",
    "plural",
    "untranslated",
    "language missing",
    "no label",
)
#: to read texts of which more than a tenth cannot be used
SKIP_UNUSABLE = Permission("calque_skips_unusable")


def tell_skipped(corpus: ParallelCorpus, path: str | PathLike[str]) -> None:
    """Warn of lines of a text that were skipped.

    Raises:
        InputError: more than a tenth of the lines cannot be used, and that is not permitted (`SKIP_UNUSABLE`).
    """
    reasons = skipped_lines(corpus.skipped, corpus.first_skipped)
    unusable = sum(count for reason, count in corpus.skipped.items() if reason not in _USUAL)
    if 10 * unusable > len(corpus) and not SKIP_UNUSABLE:
        what = f"{unusable:,} of {len(corpus):,} lines cannot be used ({reasons}), expected at most a tenth"
        remedy = "correct the file"
        if coded := corpus.first_skipped.get("not UTF-8"):
            flaws = (line for line in read_lines(coded.rpartition(" line ")[0]) if isinstance(line, Flaw))
            remedy = next((flaw.fact for flaw in flaws if flaw.reason == "not UTF-8"), remedy)
        raise InputError(f"{what}: {remedy}; or go on without these lines by --on-error skip", path=path)
    if corpus.skipped:
        lost = sum(corpus.skipped.values())
        skipped(f"{path}: {lost:,} unusable lines skipped ({reasons})", corpus.skipped, corpus.first_skipped)


@dataclass(frozen=True)
class Words:
    """How words are found and linked.

    Args:
        model: statistical aligner: auto, fast-align, hmm or gibbs.
        symmetrize: how its two directions are joined.
        pretokenized: the text's words are separated by white space.
        limit: read only so many sentence pairs of each file.
    """

    model: str = "auto"
    symmetrize: str = "one-to-one"
    pretokenized: bool = False
    seed: int = 0
    limit: int | None = None

    @property
    def unlimited(self) -> Words:
        """The same for text that no limit may cut, such as what an encoder has seen in training."""
        return replace(self, limit=None)

    def read(self, path: str | PathLike[str], langs: tuple[str, str]) -> ParallelCorpus:
        """One parallel text; unusable lines become empty sentence pairs, so that links keep their line, and a warning
        counts them.

        Raises:
            InputError: there is no usable line, or see `tell_skipped`.
        """
        corpus = read_parallel(path, langs=langs, pretokenized=self.pretokenized, on_error="blank", limit=self.limit)
        if not corpus.source.lengths().any():
            reasons = skipped_lines(corpus.skipped, corpus.first_skipped) or "all are empty"
            raise InputError(f"no usable sentence pair in {len(corpus):,} lines: {reasons}", path=path)
        tell_skipped(corpus, path)
        return corpus

    def read_all(self, paths: Sequence[str], langs: Sequence[tuple[str, str]]) -> list[ParallelCorpus]:
        """Read several texts, each with its own pair of languages."""
        check_pairs(paths, langs)
        return [self.read(path, pair) for path, pair in zip(paths, langs, strict=True)]

    def link(self, corpus: ParallelCorpus, *, extra: ParallelCorpus | None = None, progress: bool = False) -> WordPairs:
        """Word pairs of a corpus by the statistical aligner, which may learn from extra text in the same languages."""
        from calque.wordalign import align_words

        return align_words(
            corpus, extra=extra, model=self.model, symmetrize=self.symmetrize, seed=self.seed, progress=progress
        )

    def open_pairs(self, path: str | PathLike[str], corpus: ParallelCorpus) -> WordPairs:
        """Word pairs from a Pharaoh file, cut at the limit and checked against the text."""
        pairs = WordPairs.open(path)
        if self.limit is not None:
            pairs = pairs.slice(0, len(corpus))
        pairs = pairs.check(corpus, path=path)
        return pairs.one_to_one() if self.symmetrize == "one-to-one" else pairs


def read_languages(
    files: Iterable[tuple[str, str]], *, pretokenized: bool = False, limit: int | None = None,
    say: Say = lambda line: None,
) -> dict[str, Sentences]:  # fmt: skip
    """Files with their languages, several of a language joined, as sentences by language."""
    from calque.corpora.plain import read_sentences

    parts: dict[str, list[Sentences]] = {}
    for lang, path in files:
        parts.setdefault(lang, []).append(read_sentences(path, lang=lang, pretokenized=pretokenized, limit=limit))
    sentences = {lang: Sentences.joined(several) for lang, several in parts.items()}
    say(f"sentences: {', '.join(f'{lang} {len(text):,}' for lang, text in sentences.items())}")
    return sentences


def digest_of(sentences: Sentences) -> str:
    """Hash over the words of a text."""
    words, offsets = sentences.flat()
    digest = hashlib.blake2b(offsets.tobytes(), digest_size=16)
    for chunk in words.chunks:
        digest.update("\0".join(chunk.to_pylist()).encode())
    return digest.hexdigest()
