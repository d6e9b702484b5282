"""Text from files, word links, and word of what was skipped: what every command begins with."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING

from calque.corpora.parallel import read_parallel
from calque.errors import InputError, SettingError, SkippedWarning
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.wordalign.filtering import LinkFilter

Say = Callable[[str], None]


def skipped(message: str, counts: Mapping[str, int] | None = None, first: Mapping[str, str] | None = None) -> None:
    """Warn of what was left out: what a figure is not about must be known, also where news are not wanted."""
    warnings.warn(SkippedWarning(message, dict(counts or {}), dict(first or {})), stacklevel=3)


def skipped_lines(counts: Mapping[str, int], first: Mapping[str, str]) -> str:
    """What was skipped and why, with the first place of each reason."""
    return ", ".join(
        f"{count:,} × {reason}{f', first: {first[reason]}' if reason in first else ''}"
        for reason, count in counts.items()
    )


@dataclass(frozen=True)
class Words:
    """How words are found and linked.

    Args:
        model: statistical aligner: auto, fast-align, hmm or gibbs.
        symmetrize: how its two directions are joined.
        pretokenized: the text's words are separated by white space.
        seed: of the Gibbs sampler.
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
            InputError: there is no usable line.
        """
        corpus = read_parallel(path, langs=langs, pretokenized=self.pretokenized, on_error="blank", limit=self.limit)
        reasons = skipped_lines(corpus.skipped, corpus.first_skipped)
        if not corpus.source.lengths().any():
            fact = f"no usable sentence pair in {len(corpus):,} lines: {reasons or 'all are empty'}"
            raise InputError(fact, path=path)
        if corpus.skipped:
            lost = sum(corpus.skipped.values())
            skipped(f"{path}: {lost:,} unusable lines skipped ({reasons})", corpus.skipped, corpus.first_skipped)
        return corpus

    def read_all(self, paths: Sequence[str], langs: Sequence[tuple[str, str]]) -> list[ParallelCorpus]:
        """Several texts, each with its languages; one pair of languages serves all texts."""
        if len(langs) == 1:
            langs = list(langs) * len(paths)
        if len(paths) != len(langs):
            raise SettingError(f"{len(paths)} texts but {len(langs)} pairs of --langs: give one pair per text")
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


def read_filter(
    langs: Sequence[tuple[str, str]],
    *,
    min_posterior: float | None = None,
    dictionaries: Sequence[str] = (),
    keep_unlisted: bool = False,
) -> LinkFilter:
    """A filter of links, with its dictionaries from files.

    Args:
        langs: the languages of the texts; a dictionary that does not name its own (`en-de=FILE`) is of these, if they are
            the same two for all texts.
        min_posterior, keep_unlisted: see `LinkFilter`.
        dictionaries: files.

    Raises:
        SettingError: the languages of a dictionary are not known.
    """
    from calque.corpora.languages import pair_and_path
    from calque.corpora.plain import read_dictionary
    from calque.wordalign.filtering import LinkFilter

    read, pairs = [], list(dict.fromkeys(langs))
    for named in dictionaries:
        pair, path = pair_and_path(named)
        if pair is None and len(pairs) != 1:
            a, b = pairs[0]
            raise SettingError(
                f"--link-dictionary {named}: which languages? Say them before the name, as in {a}-{b}={named}"
            )
        read.append(read_dictionary(path, langs=pairs[0] if pair is None else pair))
    return LinkFilter(min_posterior, tuple(read), keep_unlisted)


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
