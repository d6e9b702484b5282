"""Parallel text of the pivot language and others, with the vectors of its words: what can be learnt from, what is held out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from calque.encoders.base import Encoder
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.vectors import Embeddings


@dataclass
class Counts:
    """What of a corpus is used, and what is left out, for the record.

    Attributes:
        sentence_pairs: trained on.
        held_out: for the choice of a threshold.
        empty: pairs with a side that has no word, or none that its encoder has a vector for.
        too_long: pairs with a side of more words than asked for.
        words_without_vector: in the other pairs, by language.
    """

    sentence_pairs: int = 0
    held_out: int = 0
    empty: int = 0
    too_long: int = 0
    words_without_vector: dict[str, int] = field(default_factory=dict)


@dataclass
class PairedText:
    """Sentences of a language and their translations in the pivot language.

    Attributes:
        lang: the language.
        corpus: source in `lang`, target in the pivot language; without the pairs that are too long or have an empty side.
        links: their word links, if there are any.
        vectors, pivot_vectors: of both sides, by the encoders as they were given.
        train, held_out: int64, numbers of sentence pairs in `corpus`.
        counts: what was left out.
    """

    lang: str
    corpus: ParallelCorpus
    links: WordPairs | None
    vectors: Embeddings
    pivot_vectors: Embeddings
    train: np.ndarray
    held_out: np.ndarray
    counts: Counts

    @cached_property
    def fingerprint(self) -> str:
        """Hash over the words, and over which pairs are trained on."""
        digest = hashlib.blake2b(digest_size=16)
        for side in (self.corpus.source, self.corpus.target):
            words, offsets = side.flat()
            digest.update(offsets.tobytes())
            for chunk in words.chunks:
                digest.update("\0".join(chunk.to_pylist()).encode())
        digest.update(self.train.tobytes())
        return digest.hexdigest()


def paired_texts(
    encoders: Mapping[str, Encoder],
    corpora: Sequence[ParallelCorpus],
    links: Sequence[WordPairs] | None,
    *,
    pivot: str,
    max_words: int | None,
    held_out: float,
    seed: int,
    progress: bool = False,
) -> list[PairedText]:
    """Lay out each corpus, and encode it.

    Args:
        encoders: by language.
        corpora: each of the pivot language and another one.
        links: of each corpus; None for none.
        pivot: the pivot language.
        max_words: pairs with a longer side are left out; None keeps all.
        held_out: share of the pairs that is not trained on.
        seed: of which these are.
        progress: show bars of the encoders.

    Raises:
        SettingError: languages that do not fit, an encoder that is missing, or nothing to train on.
    """
    _check_languages(encoders, corpora, pivot)
    if links is not None and len(links) != len(corpora):
        raise SettingError(f"{len(corpora)} corpora with {len(links)} sets of word pairs")
    texts = []
    for number, corpus in enumerate(corpora):
        linked = None if links is None else links[number].check(corpus)
        if corpus.side(pivot) == "source":
            corpus, linked = corpus.swapped(), None if linked is None else linked.swapped()
        lang = corpus.langs[0]
        counts = Counts()
        usable = _usable(corpus, max_words, counts)
        corpus, linked = corpus.take(usable), None if linked is None else linked.take(usable)
        vectors = encoders[lang].encode(corpus.source, progress=progress)
        pivot_vectors = encoders[pivot].encode(corpus.target, progress=progress)
        sizes = words_with_vectors(vectors), words_with_vectors(pivot_vectors)
        filled = np.flatnonzero((sizes[0] > 0) & (sizes[1] > 0))
        counts.empty += len(corpus) - len(filled)
        counts.words_without_vector = {
            lang: vectors.n_words - int(sizes[0].sum()), pivot: pivot_vectors.n_words - int(sizes[1].sum())
        }  # fmt: skip
        train, kept = _divided(filled, held_out, seed)
        counts.sentence_pairs, counts.held_out = len(train), len(kept)
        if not len(train):
            raise SettingError(
                f"nothing to train on: of the {counts.empty + counts.too_long + len(filled)} sentence pairs of {lang}-{pivot}, "
                f"{counts.empty} have a side without a word that its encoder has a vector for, {counts.too_long} are too long"
            )
        texts.append(PairedText(lang, corpus, linked, vectors, pivot_vectors, train, kept, counts))
    return texts


def words_with_vectors(vectors: Embeddings) -> np.ndarray:
    """How many words of each sentence have a vector, int64 `[n_sentences]`."""
    if vectors.covered is None:
        return np.diff(vectors.offsets)
    return np.diff(offsets_of(vectors.covered)[vectors.offsets])


def covered_words(vectors: Embeddings) -> np.ndarray:
    """Which words have a vector, bool `[n_words]`."""
    return np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered


def _check_languages(encoders: Mapping[str, Encoder], corpora: Sequence[ParallelCorpus], pivot: str) -> None:
    if not corpora:
        raise SettingError("no parallel text to train on")
    seen: set[str] = set()
    for corpus in corpora:
        one, other = corpus.langs
        if one == other:
            raise SettingError(f"a corpus of {one} and {other}: parallel text has two languages")
        corpus.side(pivot)  # says what is wrong
        for lang in corpus.langs:
            if lang not in encoders:
                raise SettingError(f"no encoder for language {lang!r}, there are those of {', '.join(encoders)}")
        lang = one if other == pivot else other
        if lang in seen:
            raise SettingError(f"two corpora of {lang}-{pivot}: join them to one")
        seen.add(lang)


def _usable(corpus: ParallelCorpus, max_words: int | None, counts: Counts) -> np.ndarray:
    lengths = np.stack([corpus.source.lengths(), corpus.target.lengths()])
    empty = lengths.min(0) == 0
    long = ~empty & (lengths.max(0) > (np.inf if max_words is None else max_words))
    counts.empty, counts.too_long = int(empty.sum()), int(long.sum())
    return np.flatnonzero(~empty & ~long)


def _divided(numbers: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What is trained on and what is held out, both in the order of the text; at least one pair if there is a share."""
    n = min(len(numbers) - 1, max(1, round(share * len(numbers)))) if share and len(numbers) else 0
    kept = np.zeros(len(numbers), dtype=bool)
    kept[np.random.default_rng(seed).permutation(len(numbers))[:n]] = True
    return numbers[~kept], numbers[kept]
