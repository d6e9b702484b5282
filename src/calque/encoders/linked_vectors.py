"""Statistics of the vectors of linked words or of sentence pairs, from which maps are fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from calque.algebra.procrustes import Moments
from calque.maps import VectorMap
from calque.maps.shrinkage import (
    FOLDS,
    HeldOut,
    Shrinkage,
    choose_shrinkage,
    merged,
    way_to_identity,
)
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

Unit = Literal["words", "sentences"]
_SAMPLED = 400  # number of sentence pairs whose vectors are kept for comparing shrinkages


class LinkedVectors:
    """Moments of the vectors of linked words, or of sentence means, in parallel texts of one
    language pair.

    The texts are encoded once, and the moments do not grow with them. To choose a shrinkage, the
    moments are kept separately for each fold of sentences, together with the vectors of at most
    `_SAMPLED` evenly spaced sentence pairs. Whether linked words are retrieved is tested on links
    between word types that differ and are not linked in another fold, because other pairs can be
    memorised.

    Args:
        texts: parallel texts in the same two languages, source language first.
        links: word links of each text.
        layers: layers of the encoder.
        unit: whether a vector represents a word or a sentence.
        shrinkage: see `fit`.
    """

    def __init__(
        self,
        texts: Sequence[ParallelCorpus],
        links: Sequence[WordPairs],
        *,
        dim: int,
        layers: Sequence[int],
        unit: Unit,
        shrinkage: Shrinkage,
    ):
        self.texts, self.links = list(texts), list(links)
        self.unit: Unit = unit
        self.shrinkage: Shrinkage = shrinkage
        n_sentences = sum(map(len, texts))
        n_folds = FOLDS if shrinkage == "auto" else 1
        rng = np.random.default_rng(0)
        self._fold = rng.integers(n_folds, size=n_sentences, dtype=np.int8)
        self._sampled = np.zeros(n_sentences, dtype=bool)
        if shrinkage == "auto":
            n_sampled = min(_SAMPLED, n_sentences)
            self._sampled[np.linspace(0, n_sentences - 1, n_sampled).astype(int)] = True
        self.moments: dict[int, list[Moments]] = {}
        self._samples: dict[int, dict[Unit, HeldOut]] = {}
        for layer in layers:
            self.moments[layer] = [Moments(dim, dim) for _ in range(n_folds)]
            self._samples[layer] = {"words": HeldOut("words"), "sentences": HeldOut("sentences")}

    @property
    def n_pairs(self) -> int:
        """Number of pairs of vectors that have been added for each layer."""
        return sum(moments.n for moments in next(iter(self.moments.values())))

    def encode(
        self, encoder: Encoder, *, block: int, done: Callable[[int], object] = lambda n: None
    ) -> None:
        """Add the vectors of all texts, encoding `block` sentence pairs at a time, and call `done`
        with the number of pairs of each block.
        """
        layers = list(self.moments)
        queries = self._queries()
        start = 0  # number of the block's first sentence pair, counted over all texts
        for text, links in zip(self.texts, self.links, strict=True):
            for at in range(0, len(text), block):
                part = text[at : at + block]
                linked = links.slice(at, at + block) if self.unit == "words" else None
                source = encoder.encode_layers(part.source, layers)
                target = encoder.encode_layers(part.target, layers)
                for layer in layers:
                    self._add(layer, source[layer], target[layer], linked, start, queries)
                start += len(part)
                done(len(part))

    def _queries(self) -> np.ndarray:
        """Return the mask of the links that are queries, over the links of all texts, bool
        `[n_links]`; all false if no links are used.
        """
        if self.unit == "sentences" or self.shrinkage != "auto":
            return np.zeros(sum(map(len, self.links)), dtype=bool)
        return unseen_elsewhere(self.texts, self.links, self._fold, self._sampled)

    def _add(
        self,
        layer: int,
        source: Embeddings,
        target: Embeddings,
        links: WordPairs | None,
        start: int,
        queries: np.ndarray,
    ) -> None:
        """Add the vectors of one block of sentence pairs, the first of which has number `start`."""
        x, y, kept = paired(source, target, links)
        sentence = start + (kept if links is None else links.sentence[kept])
        folds = self.moments[layer]
        for number, moments in enumerate(folds):
            if len(folds) == 1:
                moments.update(x, y)
            else:
                rows = self._fold[sentence] == number
                moments.update(x[rows], y[rows])
        if self.shrinkage != "auto":
            return
        rows = self._sampled[sentence]
        chosen = sentence[rows]
        sample = self._samples[layer]
        if links is None:
            sample["sentences"].add(x[rows], y[rows], self._fold[chosen], chosen)
            return
        first_link = self._links_before(start)
        is_query = queries[first_link + kept[rows]]
        sample["words"].add(x[rows], y[rows], self._fold[chosen], chosen, is_query)
        # Maps of words also change the mean vectors of sentences, which must not become worse.
        x, y, kept = paired(source, target, None)
        sentence = start + kept
        rows = self._sampled[sentence]
        chosen = sentence[rows]
        sample["sentences"].add(x[rows], y[rows], self._fold[chosen], chosen)

    def _links_before(self, start: int) -> int:
        """Return the number of links of the sentence pairs before number `start`."""
        n_links = 0
        for text, links in zip(self.texts, self.links, strict=True):
            if start < len(text):
                return n_links + int(np.searchsorted(links.sentence, start))
            start -= len(text)
            n_links += len(links)
        return n_links

    def fit(self, layer: int, make: Callable[..., VectorMap]) -> tuple[VectorMap, dict[str, Any]]:
        """Fit the map of a layer, and return it with a record of the fit.

        Args:
            make: function that returns a new map, and has the argument `shrinkage` unless the
                shrinkage is 0.
        """
        moments = merged(self.moments[layer])
        if len(self.moments[layer]) == 1:
            (moments,) = self.moments[layer]
        if self.shrinkage == 0:
            return make().fit_moments(moments), {}
        shrinkage, held_out = self.shrinkage, {}
        if shrinkage == "auto":
            choice = choose_shrinkage(
                lambda value: make(shrinkage=value),
                self.moments[layer],
                list(self._samples[layer].values()),
            )
            shrinkage, held_out = choice.shrinkage, choice.record()
        fitted = make(shrinkage=shrinkage).fit_moments(moments)
        record = {
            "pairs": moments.n,
            "dim": len(moments.source_mean),
            "shrinkage": shrinkage,
            "to_identity": round(way_to_identity(fitted, make().fit_moments(moments)), 4),
            **held_out,
        }
        return fitted, record


def paired(
    source: Embeddings, target: Embeddings, pairs: WordPairs | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the vectors `[n, dim]` of linked words (or of sentences if `pairs` is None) that have
    vectors on both sides, and the indices of these links or sentences, int64 `[n]`.
    """
    if pairs is None:
        x, y = source.sentence_means(), target.sentence_means()
        both = x.any(axis=1) & y.any(axis=1)
        return x[both], y[both], np.flatnonzero(both)
    source_rows = source.rows(pairs.sentence, pairs.source)
    target_rows = target.rows(pairs.sentence, pairs.target)
    both = np.ones(len(source_rows), dtype=bool)
    if source.covered is not None:
        both &= source.covered[source_rows]
    if target.covered is not None:
        both &= target.covered[target_rows]
    x, y = source.data[source_rows[both]], target.data[target_rows[both]]
    return x, y, np.flatnonzero(both)


def unseen_elsewhere(
    texts: Sequence[ParallelCorpus],
    links: Sequence[WordPairs],
    fold: np.ndarray,
    sampled: np.ndarray,
) -> np.ndarray:
    """Return the mask of the links of sampled sentences whose lower-cased word types differ and are
    not linked to each other in any other fold, bool `[n_links]`, over the links of all texts.

    Args:
        fold: fold of each sentence pair, over all texts, int8 `[n_sentences]`.
        sampled: mask of the sampled sentence pairs, bool `[n_sentences]`.
    """
    # Only pairs of types that occur in the sample are kept in memory.
    folds_of: dict[tuple[str, str], set[int]] = {}
    for sentence, types in _pair_types(texts, links):
        if sampled[sentence] and types[0] != types[1]:
            folds_of[types] = set()
    for sentence, types in _pair_types(texts, links):
        if types in folds_of:
            folds_of[types].add(int(fold[sentence]))
    unseen = []
    for sentence, types in _pair_types(texts, links):
        unseen.append(bool(sampled[sentence]) and len(folds_of.get(types, ())) == 1)
    return np.array(unseen, dtype=bool)


def _pair_types(
    texts: Sequence[ParallelCorpus], links: Sequence[WordPairs]
) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the number of the sentence pair and the lower-cased word types of each link."""
    start = 0
    for text, linked in zip(texts, links, strict=True):
        offsets = linked.offsets()
        sides: zip[tuple[Any, Any]] = zip(text.source, text.target, strict=True)
        for number, (source, target) in enumerate(sides):
            for link in range(offsets[number], offsets[number + 1]):
                source_word = source.words[linked.source[link]].lower()
                target_word = target.words[linked.target[link]].lower()
                yield start + number, (source_word, target_word)
        start += len(text)
