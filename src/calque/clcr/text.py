"""Parallel text of the pivot language and others, with the vectors of its words: what can be learnt from, what is held out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calque.clcr.pivots import words_with_vectors
from calque.encoders.base import Encoder
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.vectors import Embeddings


@dataclass
class PairedText:
    """Sentences of a language and their translations in the pivot language.

    Attributes:
        lang: the language.
        corpus: source in `lang`, target in the pivot language; without the pairs that are too long or have an empty side.
        links: their word links, if there are any.
        vectors, pivot_vectors: of both sides, by the encoders as they were given.
        train, held_out: int64, numbers of sentence pairs in `corpus`.
        counts: pairs that are `trained` on, `held_out`, `too_long`, or `empty`: with a side that has no word, or none that its
            encoder has a vector for.
    """

    lang: str
    corpus: ParallelCorpus
    links: WordPairs | None
    vectors: Embeddings
    pivot_vectors: Embeddings
    train: np.ndarray
    held_out: np.ndarray
    counts: dict[str, int]

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
        corpora: each of the pivot language and another one.
        links: of each corpus; None for none.
        max_words: pairs with a longer side are left out; None keeps all.
        held_out: fraction of the pairs that is not trained on.
        seed: of which these are.

    Raises:
        SettingError: languages that do not fit, an encoder that is missing, or nothing to train on.
    """
    if not corpora:
        raise SettingError("no parallel text to train on")
    if links is not None and len(links) != len(corpora):
        raise SettingError(f"{len(corpora)} corpora with {len(links)} sets of word pairs")
    texts: list[PairedText] = []
    for number, corpus in enumerate(corpora):
        if corpus.langs[0] == corpus.langs[1]:
            raise SettingError(f"a corpus of {' and '.join(corpus.langs)}: parallel text has two languages")
        linked = None if links is None else links[number].check(corpus)
        if corpus.side(pivot) == "source":
            corpus, linked = corpus.swapped(), None if linked is None else linked.swapped()
        lang = corpus.langs[0]
        for each in corpus.langs:
            if each not in encoders:
                raise SettingError(f"no encoder for language {each!r}, there are those of {', '.join(encoders)}")
        if any(text.lang == lang for text in texts):
            raise SettingError(f"two corpora of {lang}-{pivot}: join them to one")
        lengths = np.stack([corpus.source.lengths(), corpus.target.lengths()])
        empty = lengths.min(0) == 0
        long = ~empty & (lengths.max(0) > (np.inf if max_words is None else max_words))
        usable = np.flatnonzero(~empty & ~long)
        corpus, linked = corpus.take(usable), None if linked is None else linked.take(usable)
        vectors = encoders[lang].encode(corpus.source, progress=progress)
        pivot_vectors = encoders[pivot].encode(corpus.target, progress=progress)
        filled = np.flatnonzero((words_with_vectors(vectors) > 0) & (words_with_vectors(pivot_vectors) > 0))
        train, kept = _divided(filled, held_out, seed)
        counts = {"trained": len(train), "held_out": len(kept), "too_long": int(long.sum()),
                  "empty": int(empty.sum()) + len(corpus) - len(filled)}  # fmt: skip
        if not len(train):
            raise SettingError(
                f"nothing to train on: of the {len(lengths[0])} sentence pairs of {lang}-{pivot}, {counts['empty']} have a side "
                f"without a word that its encoder has a vector for, {counts['too_long']} are too long"
            )
        texts.append(PairedText(lang, corpus, linked, vectors, pivot_vectors, train, kept, counts))
    return texts


def _divided(numbers: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide sentence pairs into those trained on and those held out, both in the order of the text; at least one is held
    out if there is a share."""
    n = min(len(numbers) - 1, max(1, round(share * len(numbers)))) if share and len(numbers) else 0
    kept = np.zeros(len(numbers), dtype=bool)
    kept[np.random.default_rng(seed).permutation(len(numbers))[:n]] = True
    return numbers[~kept], numbers[kept]
