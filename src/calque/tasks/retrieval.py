"""Contextual word retrieval: is the nearest word in the other language the correct translation in
context?
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours, csls_neighbours
from calque.encoders.base import require
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.spec import Option
from calque.tasks.base import Score, Task, about_encoder
from calque.tasks.bootstrap import accuracy, measure_all
from calque.tasks.overlap import (
    covered_words,
    first_occurrences,
    identical_words,
    seen_pairs,
    shared_sentences,
    warn_of_overlap,
    word_types,
)
from calque.tasks.reporting import RETRIEVAL
from calque.text import Sentences
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs
    from calque.text import ParallelCorpus


Candidates = Literal["all", "linked"]
Similarity = Literal["csls", "cosine"]
Contextual = Annotated[
    bool,
    Option(
        "Use only the first occurrence of each word type; by default, all occurrences are used.",
        flags=("--contextual/--non-contextual",),
    ),
]


class WordRetrieval(Task):
    """Accuracy of contextual word retrieval (Cao et al. 2020, §3.2 and §5.1).

    Each linked word of a test text is a query, and the candidates are the words of all sentences on
    the other side. Token-level accuracy (`accuracy`) is the fraction of queries whose nearest
    neighbour is the linked token, averaged over both directions. It is computed over all links and,
    with a training text, also over unseen links. A link is unseen if it connects two different
    lower-cased word types that are never linked in the training text. If available, accuracy over
    unseen links is the main score, because neither memorised pairs nor a shared vocabulary can
    raise it.

    Type-level accuracy (`form`) counts a query as correct if the lower-cased word type of the
    nearest neighbour is correct. A loss that separates tokens of the same word type raises only
    token-level accuracy.

    Args:
        corpus: parallel test text.
        pairs: word links of the test text. If None, the statistical aligner is run on the test text
            alone, so the links do not depend on the encoder's training text. Links that share a
            word are always dropped.
        train: training text on which the encoder was aligned.
        train_pairs: word links of the training text. If None, the aligner is run on test and
            training text together. This finds more links in the training text, so more pairs count
            as seen.
        contextual: if False, only the first occurrence of each word type is used as a candidate and
            a query.
        candidates, similarity, k: see `retrieve`.
        special: whether to treat the boundary tokens of a sentence ([CLS], [SEP]) as linked words,
            as in the code of Cao et al. This raises the accuracy over all links. Links of boundary
            tokens are never counted as unseen.
        model, symmetrize: model and symmetrisation method of the statistical aligner.
        bootstrap: number of bootstrap samples for the confidence intervals; sentences are
            resampled, not words.
        seed: seed of the statistical aligner.
        data: name of the test text, which is recorded with the scores.

    Raises:
        SettingError: the arguments cannot be combined.
        InputError: links refer to words that do not exist in the text.
    """

    name = "retrieval"
    reporting = RETRIEVAL

    def __init__(
        self,
        corpus: ParallelCorpus,
        pairs: WordPairs | None = None,
        *,
        train: ParallelCorpus | None = None,
        train_pairs: WordPairs | None = None,
        contextual: bool = True,
        candidates: Candidates = "all",
        similarity: Similarity = "csls",
        k: int = 10,
        special: bool = False,
        model: str = "auto",
        symmetrize: str = "one-to-one",
        bootstrap: int = 1000,
        seed: int = 0,
        data: str = "",
    ):
        if train_pairs is not None and train is None:
            raise SettingError(
                "train_pairs requires train; set train to the text of these word links"
            )
        if train is not None and train.langs != corpus.langs:
            raise SettingError(
                f"train must be in the languages of the test text, {corpus.langs}, got "
                f"{train.langs}"
            )
        for given, text in ((pairs, corpus), (train_pairs, train)):
            if given is not None and text is not None:
                given.check(text)
        self.corpus, self.train, self._given = corpus, train, (pairs, train_pairs)
        self.contextual, self.k, self.special = contextual, k, special
        self.candidates: Candidates = candidates
        self.similarity: Similarity = similarity
        self.model, self.symmetrize = model, symmetrize
        self.bootstrap, self.seed, self.data = bootstrap, seed, data

    @classmethod
    def from_files(  # type: ignore[override]
        cls,
        inputs: Inputs,
        *,
        candidates: Candidates = "all",
        similarity: Similarity = "csls",
        contextual: Contextual = True,
    ) -> list[Task]:
        """Return one task per test text."""
        tasks: list[Task] = []
        for one in inputs.each():
            task = cls.read(
                one, candidates=candidates, similarity=similarity, contextual=contextual
            )
            if task.train is not None:
                warn_of_overlap(task.data, shared_sentences(task.corpus, task.train), one.train[0])
                task.notes = {
                    "train": [Path(one.train[0]).name]
                }  # recorded because it determines the unseen pairs
            tasks.append(task)
        return tasks

    @classmethod
    def read(cls, one: Inputs, **options: Any) -> WordRetrieval:
        """Build the task for one item of `Inputs.each`. A limit on the number of texts applies only
        to the test text.
        """
        (test,), (langs,), words, train, train_pairs = one.test, one.langs, one.words, None, None
        corpus = words.read(test, langs)
        pairs = words.open_pairs(one.links[0], corpus) if one.links else None
        if one.train:
            train = words.unlimited.read(one.train[0], langs)
            train_pairs = (
                words.unlimited.open_pairs(one.train_links[0], train) if one.train_links else None
            )
        return cls(
            corpus,
            pairs,
            train=train,
            train_pairs=train_pairs,
            model=words.model,
            symmetrize=words.symmetrize,
            data=test,
            seed=words.seed,
            **options,
        )

    # -- queries
    # ----------------------------------------------------------------------------------------------
    @cached_property
    def links(self) -> tuple[WordPairs, WordPairs | None]:
        """One-to-one links of the test text and links of the training text, computed by the aligner
        if they are not set.
        """
        from calque.wordalign import align_words

        pairs, train_pairs = self._given
        options: Any = {"model": self.model, "symmetrize": self.symmetrize, "seed": self.seed}
        if pairs is None:
            pairs = align_words(self.corpus, **options)
        if (
            self.train is not None and train_pairs is None
        ):  # aligning both texts together improves the training links
            both = align_words(self.corpus + self.train, **options)
            train_pairs = both.slice(len(self.corpus), len(self.corpus) + len(self.train))
        return pairs.one_to_one(), train_pairs

    @cached_property
    def _seen(self) -> np.ndarray | None:
        """Mask of links whose word types are linked in the training text, bool `[n_pairs]`; None if
        there is no such text.
        """
        pairs, train_pairs = self.links
        if self.train is None or train_pairs is None:
            return None
        return seen_pairs(self.corpus, pairs, self.train, train_pairs)

    @cached_property
    def unseen(self) -> np.ndarray | None:
        """Mask of links between two different word types that are never linked in the training
        text, bool `[n_pairs]`; None if there is no training text."""
        return (
            None
            if self._seen is None
            else ~self._seen & ~identical_words(self.corpus, self.links[0])
        )

    @cached_property
    def _queries(self) -> tuple[WordPairs, np.ndarray | None]:
        """Links whose words are the queries, and the mask of unseen links. With `special`, every
        sentence has a boundary token before its first word and after its last word. Links between
        boundary tokens never count as unseen."""
        pairs, unseen = self.links[0], self.unseen
        if not self.special:
            return pairs, unseen
        n = pairs.n_sentences
        sentence = np.concatenate([pairs.sentence, np.arange(n), np.arange(n)])
        order = np.argsort(sentence, kind="stable")
        source, target = (
            np.concatenate([words + 1, np.zeros(n, dtype=np.int64), side.lengths() - 1])[order]
            for words, side in zip((pairs.source, pairs.target), self._sides, strict=True)
        )
        if unseen is not None:
            unseen = np.concatenate([unseen, np.zeros(2 * n, dtype=bool)])[order]
        return WordPairs(sentence[order], source, target, n_sentences=n), unseen

    @cached_property
    def _counts(self) -> dict[str, Any]:
        """Recorded settings and counts that do not depend on the encoder."""
        pairs, given, symmetrize = self.links[0], self._given[0], self.symmetrize
        symmetrize = symmetrize if symmetrize == "one-to-one" else f"{symmetrize}, one-to-one"
        counts: dict[str, Any] = {
            "links": "given" if given is not None else f"{self.model}, from the test text",
            "symmetrize": symmetrize if given is None else "one-to-one of those given",
            "links_not_one_to_one": 0 if given is None else len(given.distinct()) - len(pairs),
            "identical_forms": int(identical_words(self.corpus, pairs).sum()),
        }
        if self.train is not None and self._seen is not None:
            counts["seen_in_training"] = int(self._seen.sum())
            counts["training_sentence_pairs"] = len(self.train)
            counts["test_sentences_in_training"] = int(
                shared_sentences(self.corpus, self.train).sum()
            )
        return counts

    @cached_property
    def _sides(self) -> list[Sentences]:
        """Both sides of the test text. With `special`, each sentence includes its two boundary
        tokens.
        """
        sides = [self.corpus.source, self.corpus.target]
        if not self.special:
            return sides
        return [
            Sentences.of((("[CLS]", *each.words, "[SEP]") for each in side), side.lang)
            for side in sides
        ]

    @cached_property
    def _types(self) -> list[np.ndarray]:
        return [word_types(side)[0] for side in self._sides]

    def news(self, scores: Sequence[Score]) -> Iterable[str]:
        """Return a message about the origin of the test links."""
        links = scores[0].settings["links"]
        yield (
            f"{self.data}: word links "
            f"{'from files' if links == 'given' else f'from the statistical aligner ({links})'}"
        )

    @property
    def _name(self) -> str:
        return self.corpus.path or self.data or "the test text"

    # -- scores
    # ----------------------------------------------------------------------------------------------
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Encode both sides and compute the scores.

        Returns:
            token-level accuracy, then type-level accuracy. If there is a training text, scores over
            unseen links precede scores over all links. The mean of both directions precedes the
            score of each direction.

        Raises:
            SettingError: the test text has no links, or no link has a vector for both words.
        """
        require(encoder, "measured", self.rows)
        if not len(self.links[0]) and not self.special:
            raise SettingError(
                f"{self._name}: no word links in {len(self.corpus):,} sentence pairs, so there is "
                "nothing to measure; check "
                "that the text is not empty and that its two sides are translations of each other"
            )
        encode = (
            partial(with_special_tokens, encoder)
            if self.special
            else partial(encoder.encode, progress=progress)
        )
        source, target = (encode(side) for side in (self.corpus.source, self.corpus.target))
        return self.evaluate_embeddings(source, target, about=about_encoder(encoder))

    def retrieve(
        self,
        source: Embeddings,
        target: Embeddings,
        *,
        similarity: Similarity | None = None,
        depth: int = 1,
    ) -> Retrieved:
        """Retrieve the words nearest to each linked word, see the function `retrieve`.

        Args:
            source, target: vectors of all words on each side of the test text; with `special`, see
                `with_special_tokens`.

        Raises:
            SettingError: the vectors do not match the words of the test text.
        """
        for name, vectors, side in zip(
            ("source", "target"), (source, target), self._sides, strict=True
        ):
            if not np.array_equal(np.diff(vectors.offsets), side.lengths()):
                raise SettingError(
                    f"{vectors.n_words} {name} vectors in {len(vectors)} sentences, but the test "
                    "text has "
                    f"{int(side.lengths().sum())} words in {len(side)} sentences"
                )
        first = [None if self.contextual else first_occurrences(side) for side in self._sides]
        return retrieve(
            source,
            target,
            self._queries[0],
            candidates=self.candidates,
            similarity=similarity or self.similarity,
            k=self.k,
            source_words=first[0],
            target_words=first[1],
            depth=depth,
        )

    def evaluate_embeddings(
        self,
        source: Embeddings,
        target: Embeddings,
        *,
        about: dict[str, Any] | None = None,
        found: Retrieved | None = None,
    ) -> list[Score]:
        """Compute the scores from precomputed word vectors, such as those of a particular layer.

        Args:
            about: settings of the encoder that are recorded with the scores.
            found: result of `retrieve` for these vectors; it is computed if None.

        Raises:
            SettingError: the vectors do not match the words of the test text, or no link has a
                vector for both words.
        """
        found = self.retrieve(source, target) if found is None else found
        if not len(found.queries):
            fact = (
                f"{self._name}: none of its {len(self._queries[0]):,} word links connects two "
                "words with vectors"
            )
            raise SettingError(f"{fact}, so there is nothing to measure")
        settings = {
            "contextual": self.contextual,
            "candidates": self.candidates,
            "similarity": self.similarity,
            "k": self.k if self.similarity == "csls" else None,
            "special": self.special,
            **self._counts,
            "source_candidates": int(found.source_pool.sum()),
            "target_candidates": int(found.target_pool.sum()),
            "source_words_without_vector": int((~covered_words(source)).sum()),
            "target_words_without_vector": int((~covered_words(target)).sum()),
            "links_without_vector": found.dropped,
            "bootstrap": self.bootstrap,
            **(about or {}),
        }
        sums = self._sums(found, source, target)
        measured = dict(
            zip(
                sums,
                measure_all([(each, accuracy) for each in sums.values()], samples=self.bootstrap),
                strict=True,
            )
        )
        scores = []
        for metric, each in measured.items():
            kind, selection = metric.split(".")[:2]
            directions = {way: measured[f"{kind}.{selection}.{way}"].value for way in self._ways}
            record = {"queries": selection, "directions": directions, **settings}
            n = int(sums[f"{kind}.{selection}.{self._ways[0]}"][:, 1].sum())
            scores.append(
                Score(
                    self.name,
                    self.data,
                    self.corpus.langs,
                    metric,
                    *each.ends,
                    n,
                    self.seed,
                    record,
                    **each.kept,
                )
            )
        return scores

    @property
    def _ways(self) -> tuple[str, str]:
        return "-".join(self.corpus.langs), "-".join(self.corpus.langs[::-1])

    def _sums(
        self, found: Retrieved, source: Embeddings, target: Embeddings
    ) -> dict[str, np.ndarray]:
        """Return the number of correct answers and of queries in each sentence, `[n_sentences, 2]`,
        keyed by metric. For each accuracy and selection of links, there is one metric for both
        directions together and one for each direction."""
        pairs, unseen = self._queries
        sentence, queries = pairs.sentence[found.queries], found.queries
        hits = {"accuracy": [found.source_hits, found.target_hits], "form": []}
        for types, side, words, nearest in (
            (self._types[1], target, pairs.target, found.target_lists[:, 0]),
            (self._types[0], source, pairs.source, found.source_lists[:, 0]),
        ):
            linked = side.rows(sentence, words[queries])
            hits["form"].append((nearest >= 0) & (types[nearest] == types[linked]))
        selections = {} if unseen is None else {"unseen": unseen[queries]}
        selections["all"] = np.ones(len(queries), dtype=bool)
        sums = {}
        for kind, (forward, backward) in hits.items():
            for name, chosen in selections.items():
                right, left, n = (
                    np.bincount(sentence[mask], minlength=pairs.n_sentences)
                    for mask in (chosen & forward, chosen & backward, chosen)
                )
                sums[f"{kind}.{name}"] = np.stack([right + left, 2 * n], axis=1)
                for way, each in zip(self._ways, (right, left), strict=True):
                    sums[f"{kind}.{name}.{way}"] = np.stack([each, n], axis=1)
        return sums


def with_special_tokens(encoder: Encoder, sentences: Sentences) -> Embeddings:
    """Return the word vectors of sentences, including the boundary tokens ([CLS], [SEP]) around
    each sentence.

    Raises:
        SettingError: the encoder has no boundary tokens.
    """
    from calque.encoders.trainable import TrainableEncoder
    from calque.training.sources import vectors_of

    if not isinstance(encoder, TrainableEncoder) or not encoder.has_special_tokens:
        raise SettingError(
            f"special=True requires an encoder with special tokens, got {encoder.name}"
        )
    split = encoder.split(sentences).with_special()
    vectors = vectors_of(encoder, split, budget=encoder.budget)
    return Embeddings(vectors.data, split.word_offsets, split.covered)


# -- search
# --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Retrieved:
    """Words nearest to each query, in both directions.

    Attributes:
        queries: index of each query's link in the links passed to `retrieve`, int64 `[n]`.
        source_hits, target_hits: whether the word nearest to the source (target) word is its linked
            word, bool `[n]`.
        source_pool, target_pool: masks of the candidate words, bool `[n_words]`.
        dropped: number of links that are not queries because one of their words has no vector.
        target_lists, source_lists: word indices of the nearest target (source) words, padded with
            −1, int64 `[n, depth]`.
    """

    queries: np.ndarray
    source_hits: np.ndarray
    target_hits: np.ndarray
    source_pool: np.ndarray
    target_pool: np.ndarray
    dropped: int
    target_lists: np.ndarray
    source_lists: np.ndarray


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
    depth: int = 1,
) -> Retrieved:
    """Retrieve the nearest neighbours of every linked word (Cao et al. 2020, §3.2).

    Args:
        pairs: one-to-one word links.
        candidates: "all" words on the other side, as in the paper; or only the "linked" words, as
            in the paper's code.
        similarity: "cosine", or "csls" with `k` neighbours. The hubness terms of CSLS are computed
            over the candidates. Ties go to the first word.
        source_words, target_words: mask of words that may be candidates and queries, bool
            `[n_words]`; default: all words.
        depth: number of nearest words to return per query.

    Raises:
        SettingError: an argument has an unknown value, the links are not one-to-one, or a linked
            word does not exist.
    """
    for name, value, known in (
        ("candidates", candidates, Candidates),
        ("similarity", similarity, Similarity),
    ):
        if value not in get_args(known):
            raise SettingError(f"{name} must be one of {', '.join(get_args(known))}, got {value!r}")
    sides, rows, pools = (source, target), [], []
    for side, words, chosen in (
        (source, pairs.source, source_words),
        (target, pairs.target, target_words),
    ):
        if len(side) != pairs.n_sentences or (words >= np.diff(side.offsets)[pairs.sentence]).any():
            raise SettingError(
                "links and vectors must refer to the same words; was the text tokenised "
                "differently?"
            )
        rows.append(side.rows(pairs.sentence, words))
        if len(np.unique(rows[-1])) != len(words):
            raise SettingError("links must be one-to-one; call links.one_to_one() first")
        pools.append(
            np.ones(side.n_words, dtype=bool) if chosen is None else np.array(chosen, dtype=bool)
        )
    allowed = np.flatnonzero(pools[0][rows[0]] & pools[1][rows[1]])
    for side, pool in zip(sides, pools, strict=True):
        pool &= covered_words(side)
    queries = allowed[pools[0][rows[0][allowed]] & pools[1][rows[1][allowed]]]
    rows = [row[queries] for row in rows]
    if candidates == "linked":
        for pool, row in zip(pools, rows, strict=True):
            pool[:] = False
            pool[row] = True
    members = [np.flatnonzero(pool) for pool in pools]
    vectors, places = [], []
    for side, chosen, row in zip(sides, members, rows, strict=True):
        vectors.append(unit_rows(side.data, None if len(chosen) == side.n_words else chosen))
        places.append(np.searchsorted(chosen, row))
    search: Any = cosine_neighbours if similarity == "cosine" else partial(csls_neighbours, k=k)
    neighbours = search(*vectors, source_queries=places[0], target_queries=places[1], n_best=depth)
    lists = [np.full((len(queries), depth), -1, dtype=np.int64) for _ in rows]
    for listed, chosen, best in zip(
        lists, reversed(members), (neighbours.targets, neighbours.sources), strict=True
    ):
        if best.shape[1]:
            listed[:, : best.shape[1]] = np.where(best >= 0, chosen[best], -1)
    return Retrieved(
        queries=queries,
        source_hits=lists[0][:, 0] == rows[1],
        target_hits=lists[1][:, 0] == rows[0],
        source_pool=pools[0],
        target_pool=pools[1],
        dropped=len(allowed) - len(queries),
        target_lists=lists[0],
        source_lists=lists[1],
    )
