"""The question of word retrieval: which of all words of the other language is nearest to a word?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import Neighbours, cosine_neighbours, csls_neighbours
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.storage import blocks, filled, taken
from calque.vectors import Embeddings

Candidates = Literal["all", "linked"]
Similarity = Literal["csls", "cosine"]
Uncovered = Literal["drop", "wrong"]


@dataclass(frozen=True)
class Retrieved:
    """Answers to the queries of both directions.

    Attributes:
        queries: positions, in the links that were given, of those that were asked; int64 `[n]`.
        source_hits, target_hits: bool `[n]`: the source word found its target word; the target word its
            source word.
        source_candidates, target_candidates: how many words there were to choose from.
        dropped: links that could not be asked because a word has no vector.
        target_lists, source_lists: int64 `[n, depth]`, rows of the nearest words, the nearest first; −1 where there
            are no more, or no vector.
    """

    queries: np.ndarray
    source_hits: np.ndarray
    target_hits: np.ndarray
    source_candidates: int
    target_candidates: int
    dropped: int
    target_lists: np.ndarray
    source_lists: np.ndarray

    @property
    def nearest_targets(self) -> np.ndarray:
        """int64 `[n]`, row of the target word that was found; −1 where there was no vector."""
        return self.target_lists[:, 0]

    @property
    def nearest_sources(self) -> np.ndarray:
        """The same of the source words."""
        return self.source_lists[:, 0]


def retrieve(
    source: Embeddings,
    target: Embeddings,
    pairs: WordPairs,
    *,
    candidates: Candidates = "all",
    similarity: Similarity = "csls",
    k: int = 10,
    source_words: np.ndarray | None = None,
    target_words: np.ndarray | None = None,
    uncovered: Uncovered = "drop",
    depth: int = 1,
) -> Retrieved:
    """Ask for the nearest neighbour of every linked word (Cao et al. 2020, §3.2).

    Args:
        pairs: one-to-one links between their words.
        candidates: "all" words of the other side (the paper), or only those with a link (its code).
        similarity: CSLS with neighbourhood `k`, whose hubness terms are taken over the same candidates; or
            cosine. Equal similarities go to the word that comes first.
        source_words, target_words: bool `[n_words]`, words that exist for this question (candidates and
            queries).
        uncovered: what to do with a link to a word without a vector: "drop" and count it, or count it as
            "wrong", which makes encoders of different coverage comparable.
        depth: how many of the nearest words to list for each query.

    Raises:
        SettingError: a value that is not one of these, links that are not one-to-one, or that point outside.
    """
    for name, value, known in (
        ("candidates", candidates, ("all", "linked")),
        ("similarity", similarity, ("csls", "cosine")),
        ("uncovered", uncovered, ("drop", "wrong")),
    ):
        if value not in known:
            raise SettingError(f"{name}={value!r}, expected one of {', '.join(known)}")
    if not len(source) == len(target) == pairs.n_sentences:
        raise SettingError(
            f"links of {pairs.n_sentences} sentence pairs, but vectors of {len(source)} and {len(target)} sentences"
        )
    ends, pools = [], []
    for side, words, chosen in ((source, pairs.source, source_words), (target, pairs.target, target_words)):
        ends.append(_rows(side, pairs.sentence, words))
        pools.append(np.ones(side.n_words, dtype=bool) if chosen is None else np.array(chosen, dtype=bool))
    asked = np.concatenate(
        [np.zeros(0, np.int64),
         *(np.flatnonzero(pools[0][ends[0][some]] & pools[1][ends[1][some]]) + some.start for some in blocks(len(pairs)))]
    )  # fmt: skip
    rows = [taken(row, asked) for row in ends]
    has_vector = np.ones(len(asked), dtype=bool)
    for side, pool, row in zip((source, target), pools, rows, strict=True):
        if side.covered is not None:
            pool &= side.covered
            has_vector &= side.covered[row]
    if candidates == "linked":
        for pool, row in zip(pools, rows, strict=True):
            linked = np.zeros_like(pool)
            linked[row[has_vector]] = True
            pool &= linked
    neighbours = _search(source, target, pools, [row[has_vector] for row in rows], similarity, k, depth)
    kept = np.flatnonzero(has_vector) if uncovered == "drop" else np.arange(len(asked))
    queries, places = asked[kept], np.flatnonzero(has_vector[kept])
    lists = [np.full((len(queries), depth), -1, dtype=np.int64) for _ in rows]
    for answer, pool, best in zip(lists, reversed(pools), (neighbours.targets, neighbours.sources), strict=True):
        if best.shape[1]:
            answer[places, : best.shape[1]] = np.where(best >= 0, np.flatnonzero(pool)[best], -1)
    return Retrieved(
        queries=queries,
        source_hits=lists[0][:, 0] == rows[1][kept],
        target_hits=lists[1][:, 0] == rows[0][kept],
        source_candidates=int(pools[0].sum()),
        target_candidates=int(pools[1].sum()),
        dropped=int((~has_vector).sum()),
        target_lists=lists[0],
        source_lists=lists[1],
    )


def _rows(side: Embeddings, sentence: np.ndarray, word: np.ndarray) -> np.ndarray:
    """The row of each linked word, int64 `[n]`.

    Raises:
        SettingError: there is no such word, or a word comes twice.
    """
    lengths, met = np.diff(side.offsets), np.zeros(side.n_words, dtype=bool)

    def rows(some: slice) -> np.ndarray:
        if (word[some] >= lengths[sentence[some]]).any():
            raise SettingError("a link points beyond the end of its sentence; was the text tokenised differently?")
        met[found := side.rows(sentence[some], word[some])] = True
        return found

    row = filled(len(word), np.int64, rows)
    if np.count_nonzero(met) != len(row):
        raise SettingError("links are not one-to-one: call one_to_one() on them first")
    return row


def _search(source, target, pools, rows, similarity: Similarity, k: int, depth: int) -> Neighbours:
    vectors, queries = [], []
    for side, pool, row in zip((source, target), pools, rows, strict=True):
        chosen = np.flatnonzero(pool)
        vectors.append(unit_rows(side.data, None if len(chosen) == side.n_words else chosen))
        queries.append(np.searchsorted(chosen, row))
    asked: Any = {"source_queries": queries[0], "target_queries": queries[1], "n_best": depth}
    if similarity == "cosine":
        return cosine_neighbours(*vectors, **asked)
    return csls_neighbours(*vectors, k=k, **asked)
