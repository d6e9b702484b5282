"""Contextual word retrieval: is the nearest word in the other language the correct translation in
context?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from calque.tasks.base import Evidence, Score, Task, about_encoder
from calque.tasks.bootstrap import accuracy, measure_all
from calque.tasks.overlap import (
    covered_words,
    first_occurrences,
    identical_words,
    seen_pairs,
    shared_sentences,
    unseen_pairs,
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
    lower-cased word types that are never linked in the training text (see `unseen_pairs`). If
    available, accuracy over unseen links is the main score, because neither memorised pairs nor a
    shared vocabulary can raise it.

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
        if pairs is not None:
            pairs.check(corpus)
        if train is not None and train_pairs is not None:
            train_pairs.check(train)
        self.corpus, self.train = corpus, train
        self._input_pairs, self._input_train_pairs = pairs, train_pairs
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
        candidates: Annotated[
            Candidates,
            Option(
                "Words among which translations are searched: all words (all; default) or "
                "only linked words (linked)."
            ),
        ] = "all",
        similarity: Annotated[
            Similarity, Option("Similarity measure: csls (default) or cosine.")
        ] = "csls",
        contextual: Contextual = True,
    ) -> list[Task]:
        """Return one task per test text."""
        tasks: list[Task] = []
        for text_inputs in inputs.per_test_text():
            task = cls.read(
                text_inputs, candidates=candidates, similarity=similarity, contextual=contextual
            )
            if task.train is not None:
                train_path = text_inputs.train[0]
                warn_of_overlap(task.data, shared_sentences(task.corpus, task.train), train_path)
                # The training text is recorded because it determines the unseen pairs.
                task.notes = {"train": [Path(train_path).name]}
            tasks.append(task)
        return tasks

    @classmethod
    def read(cls, inputs: Inputs, **options: Any) -> WordRetrieval:
        """Build the task for one item of `Inputs.per_test_text`. A limit on the number of texts
        applies only to the test text.
        """
        (test,) = inputs.test
        (langs,) = inputs.langs
        words = inputs.words
        corpus = words.read(test, langs)
        pairs = words.open_pairs(inputs.links[0], corpus) if inputs.links else None
        # A smaller training text would have fewer linked pairs, so
        # more test pairs would count as unseen.
        train = train_pairs = None
        if inputs.train:
            train = words.unlimited.read(inputs.train[0], langs)
            if inputs.train_links:
                train_pairs = words.unlimited.open_pairs(inputs.train_links[0], train)
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

    # -- queries -----------------------------------------------------------------------------------
    @cached_property
    def links(self) -> tuple[WordPairs, WordPairs | None]:
        """One-to-one links of the test text and links of the training text, computed by the aligner
        if they are not set.
        """
        from calque.wordalign import align_words

        align = partial(align_words, model=self.model, symmetrize=self.symmetrize, seed=self.seed)
        pairs, train_pairs = self._input_pairs, self._input_train_pairs
        if pairs is None:
            pairs = align(self.corpus)
        if self.train is not None and train_pairs is None:
            # Aligning both texts together improves the training links.
            links_of_both = align(self.corpus + self.train)
            start = len(self.corpus)
            train_pairs = links_of_both.slice(start, start + len(self.train))
        return pairs.one_to_one(), train_pairs

    @cached_property
    def unseen(self) -> np.ndarray | None:
        """Mask of the links that count as unseen, bool `[n_pairs]`; None if there is no training
        text. `unseen_pairs` defines when a link is unseen.
        """
        pairs, train_pairs = self.links
        if self.train is None or train_pairs is None:
            return None
        return unseen_pairs(self.corpus, pairs, self.train, train_pairs)

    @cached_property
    def _queries(self) -> tuple[WordPairs, np.ndarray | None]:
        """Links whose words are the queries, and the mask of unseen links. With `special`, every
        sentence has a boundary token before its first word and after its last word. Links between
        boundary tokens never count as unseen."""
        pairs, unseen = self.links[0], self.unseen
        if not self.special:
            return pairs, unseen
        n = pairs.n_sentences
        # After the word links come n links from [CLS] to [CLS], then n links from [SEP] to [SEP].
        sentence = np.concatenate([pairs.sentence, np.arange(n), np.arange(n)])
        order = np.argsort(sentence, kind="stable")
        positions = []
        for words, side in zip((pairs.source, pairs.target), self._sides, strict=True):
            first, last = np.zeros(n, dtype=np.int64), side.lengths() - 1
            # [CLS] moves every word of its sentence by one position.
            positions.append(np.concatenate([words + 1, first, last])[order])
        if unseen is not None:
            unseen = np.concatenate([unseen, np.zeros(2 * n, dtype=bool)])[order]
        return WordPairs(sentence[order], *positions, n_sentences=n), unseen

    @cached_property
    def _record(self) -> dict[str, object]:
        """Recorded settings and counts that do not depend on the encoder."""
        pairs, train_pairs = self.links
        if self._input_pairs is None:
            symmetrize = self.symmetrize
            if symmetrize != "one-to-one":
                symmetrize = f"{symmetrize}, one-to-one"
            record: dict[str, object] = {
                "links": f"{self.model}, from the test text",
                "symmetrize": symmetrize,
                "links_not_one_to_one": 0,
            }
        else:
            record = {
                "links": "given",
                "symmetrize": "one-to-one of those given",
                "links_not_one_to_one": len(self._input_pairs.distinct()) - len(pairs),
            }
        record["identical_forms"] = int(identical_words(self.corpus, pairs).sum())
        if self.train is not None and train_pairs is not None:
            seen = seen_pairs(self.corpus, pairs, self.train, train_pairs)
            shared = shared_sentences(self.corpus, self.train)
            record["seen_in_training"] = int(seen.sum())
            record["training_sentence_pairs"] = len(self.train)
            record["test_sentences_in_training"] = int(shared.sum())
        return record

    @cached_property
    def _sides(self) -> list[Sentences]:
        """Both sides of the test text. With `special`, each sentence includes its two boundary
        tokens.
        """
        sides = [self.corpus.source, self.corpus.target]
        if not self.special:
            return sides
        with_boundaries = []
        for side in sides:
            sentences = (("[CLS]", *sentence.words, "[SEP]") for sentence in side)
            with_boundaries.append(Sentences.of(sentences, side.lang))
        return with_boundaries

    @cached_property
    def _types(self) -> list[np.ndarray]:
        """Index of each word's lower-cased type, int64 `[n_words]` per side."""
        return [word_types(side)[0] for side in self._sides]

    def evidence(self, encoder: Encoder) -> Evidence | None:
        """Return the training text with its word links."""
        train_pairs = None if self.train is None else self.links[1]
        if self.train is None or train_pairs is None:
            return None
        return Evidence([self.train], [train_pairs])

    def news(self, scores: Sequence[Score]) -> Iterable[str]:
        """Return a message about the origin of the test links."""
        links = scores[0].settings["links"]
        origin = "from files" if links == "given" else f"from the statistical aligner ({links})"
        yield f"{self.data}: word links {origin}"

    @property
    def _name(self) -> str:
        return self.corpus.path or self.data or "the test text"

    # -- scores ------------------------------------------------------------------------------------
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
        encode = partial(encoder.encode, progress=progress)
        # Boundary tokens are no words, so `encode` does not return their vectors.
        if self.special:
            encode = partial(with_special_tokens, encoder)
        source = encode(self.corpus.source)
        target = encode(self.corpus.target)
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
        self._check_words("source", source, self._sides[0])
        self._check_words("target", target, self._sides[1])
        # Without context, all tokens of a word type would be equally near to a query.
        source_words = target_words = None
        if not self.contextual:
            source_words, target_words = (first_occurrences(side) for side in self._sides)
        pairs, _ = self._queries
        return retrieve(
            source,
            target,
            pairs,
            candidates=self.candidates,
            similarity=similarity or self.similarity,
            k=self.k,
            source_words=source_words,
            target_words=target_words,
            depth=depth,
        )

    @staticmethod
    def _check_words(name: str, vectors: Embeddings, side: Sentences) -> None:
        """Raise a `SettingError` if the vectors do not match the words of a side."""
        lengths = side.lengths()
        if not np.array_equal(np.diff(vectors.offsets), lengths):
            raise SettingError(
                f"{vectors.n_words} {name} vectors in {len(vectors)} sentences, but the test text "
                f"has {int(lengths.sum())} words in {len(side)} sentences"
            )

    def evaluate_embeddings(
        self,
        source: Embeddings,
        target: Embeddings,
        *,
        about: Mapping[str, object] | None = None,
        retrieved: Retrieved | None = None,
    ) -> list[Score]:
        """Compute the scores from precomputed word vectors, such as those of a particular layer.

        Args:
            about: settings of the encoder that are recorded with the scores.
            retrieved: result of `retrieve` for these vectors; it is computed if None.

        Raises:
            SettingError: the vectors do not match the words of the test text, or no link has a
                vector for both words.
        """
        if retrieved is None:
            retrieved = self.retrieve(source, target)
        if not len(retrieved.queries):
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
            **self._record,
            "source_candidates": int(retrieved.source_pool.sum()),
            "target_candidates": int(retrieved.target_pool.sum()),
            "source_words_without_vector": int((~covered_words(source)).sum()),
            "target_words_without_vector": int((~covered_words(target)).sum()),
            "links_without_vector": retrieved.dropped,
            "bootstrap": self.bootstrap,
            **(about or {}),
        }
        counts = self._counts(retrieved, source, target)
        # All metrics share their bootstrap samples, so their differences are paired.
        statistics = [(sums, accuracy) for sums in counts.values()]
        measured = measure_all(statistics, samples=self.bootstrap)
        by_metric = dict(zip(counts, measured, strict=True))
        scores = []
        for metric, value in by_metric.items():
            level, selection = metric.split(".")[:2]
            of_directions = {
                direction: by_metric[f"{level}.{selection}.{direction}"].value
                for direction in self._directions
            }
            # All metrics of a selection have as many test items as one of its directions.
            queries = counts[f"{level}.{selection}.{self._directions[0]}"][:, 1]
            scores.append(
                value.score(
                    task=self.name,
                    data=self.data,
                    languages=self.corpus.langs,
                    metric=metric,
                    n=int(queries.sum()),
                    seed=self.seed,
                    settings={"queries": selection, "directions": of_directions, **settings},
                )
            )
        return scores

    @property
    def _directions(self) -> tuple[str, str]:
        """Names of the two retrieval directions, such as `en-de` and `de-en`."""
        source, target = self.corpus.langs
        return f"{source}-{target}", f"{target}-{source}"

    def _counts(
        self, retrieved: Retrieved, source: Embeddings, target: Embeddings
    ) -> dict[str, np.ndarray]:
        """Return the number of correct answers and of queries in each sentence, `[n_sentences, 2]`,
        keyed by metric. For each accuracy and selection of links, there is one metric for both
        directions together and one for each direction."""
        pairs, unseen = self._queries
        queries = retrieved.queries
        sentence = pairs.sentence[queries]
        hits = {
            "accuracy": (retrieved.source_hits, retrieved.target_hits),
            "form": self._type_hits(retrieved, source, target),
        }
        # The first selection gives the main score, so unseen links come first.
        selections = {}
        if unseen is not None:
            selections["unseen"] = unseen[queries]
        selections["all"] = np.ones(len(queries), dtype=bool)

        def per_sentence(mask: np.ndarray) -> np.ndarray:
            return np.bincount(sentence[mask], minlength=pairs.n_sentences)

        counts = {}
        for level, (forward_hits, backward_hits) in hits.items():
            for selection, selected in selections.items():
                metric = f"{level}.{selection}"
                n_queries = per_sentence(selected)
                forward = per_sentence(selected & forward_hits)
                backward = per_sentence(selected & backward_hits)
                # Every link is a query in both directions.
                counts[metric] = np.stack([forward + backward, 2 * n_queries], axis=1)
                for direction, right in zip(self._directions, (forward, backward), strict=True):
                    counts[f"{metric}.{direction}"] = np.stack([right, n_queries], axis=1)
        return counts

    def _type_hits(
        self, retrieved: Retrieved, source: Embeddings, target: Embeddings
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return whether the word type of the nearest word is that of the linked word, bool `[n]`,
        for the queries of the source side and for those of the target side.
        """
        pairs, _ = self._queries
        queries = retrieved.queries
        sentence = pairs.sentence[queries]

        def same_type(types: np.ndarray, nearest: np.ndarray, linked: np.ndarray) -> np.ndarray:
            # A query without candidates has the nearest word −1.
            return (nearest >= 0) & (types[nearest] == types[linked])

        source_types, target_types = self._types
        linked_targets = target.rows(sentence, pairs.target[queries])
        linked_sources = source.rows(sentence, pairs.source[queries])
        return (
            same_type(target_types, retrieved.target_lists[:, 0], linked_targets),
            same_type(source_types, retrieved.source_lists[:, 0], linked_sources),
        )


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


# -- search ----------------------------------------------------------------------------------------
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
    _check_choice("candidates", candidates, get_args(Candidates))
    _check_choice("similarity", similarity, get_args(Similarity))
    source_rows = _linked_rows(source, pairs, pairs.source)
    target_rows = _linked_rows(target, pairs, pairs.target)
    source_pool = _all_or_copy(source_words, source.n_words)
    target_pool = _all_or_copy(target_words, target.n_words)
    # The queries are the links whose two words are allowed and have a vector.
    allowed = np.flatnonzero(source_pool[source_rows] & target_pool[target_rows])
    # Words without a vector are all equal to the zero vector; as candidates, they would be hubs.
    # They are removed after `allowed`, so that `dropped` counts the links they cost.
    source_pool &= covered_words(source)
    target_pool &= covered_words(target)
    queries = allowed[source_pool[source_rows[allowed]] & target_pool[target_rows[allowed]]]
    source_rows, target_rows = source_rows[queries], target_rows[queries]
    if candidates == "linked":
        # The hubness of CSLS is also computed over these words alone.
        for pool, rows in ((source_pool, source_rows), (target_pool, target_rows)):
            pool[:] = False
            pool[rows] = True

    # The search runs on the candidates alone, so words are numbered within them and renumbered
    # afterwards.
    source_candidates, target_candidates = np.flatnonzero(source_pool), np.flatnonzero(target_pool)
    search = cosine_neighbours if similarity == "cosine" else partial(csls_neighbours, k=k)
    neighbours = search(
        _unit_vectors(source, source_candidates),
        _unit_vectors(target, target_candidates),
        source_queries=np.searchsorted(source_candidates, source_rows),
        target_queries=np.searchsorted(target_candidates, target_rows),
        n_best=depth,
    )
    target_lists = _word_lists(neighbours.targets, target_candidates, depth)
    source_lists = _word_lists(neighbours.sources, source_candidates, depth)
    return Retrieved(
        queries=queries,
        source_hits=target_lists[:, 0] == target_rows,
        target_hits=source_lists[:, 0] == source_rows,
        source_pool=source_pool,
        target_pool=target_pool,
        dropped=len(allowed) - len(queries),
        target_lists=target_lists,
        source_lists=source_lists,
    )


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise SettingError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _linked_rows(side: Embeddings, pairs: WordPairs, positions: np.ndarray) -> np.ndarray:
    """Return the index of each link's word among all words of one side, int64 `[n_pairs]`.

    Args:
        positions: position of each link's word in its sentence, int64 `[n_pairs]`.

    Raises:
        SettingError: a linked word does not exist, or a word has several links.
    """
    lengths = np.diff(side.offsets)
    if len(side) != pairs.n_sentences or (positions >= lengths[pairs.sentence]).any():
        raise SettingError(
            "links and vectors must refer to the same words; was the text tokenised differently?"
        )
    rows = side.rows(pairs.sentence, positions)
    if len(np.unique(rows)) != len(rows):
        raise SettingError("links must be one-to-one; call links.one_to_one() first")
    return rows


def _all_or_copy(mask: np.ndarray | None, n: int) -> np.ndarray:
    """Return a copy of a mask, or a mask of all `n` words if it is None."""
    return np.ones(n, dtype=bool) if mask is None else np.array(mask, dtype=bool)


def _unit_vectors(side: Embeddings, words: np.ndarray) -> np.ndarray:
    """Return the L2-normalised vectors of words, float32 `[len(words), dim]`."""
    # Selecting all words would copy them.
    return unit_rows(side.data, None if len(words) == side.n_words else words)


def _word_lists(neighbours: np.ndarray, candidates: np.ndarray, depth: int) -> np.ndarray:
    """Convert indices among the candidates, int64 `[n, ≤ depth]`, to word indices, int64 `[n,
    depth]`. Missing neighbours are −1.
    """
    lists = np.full((len(neighbours), depth), -1, dtype=np.int64)
    n_found = neighbours.shape[1]
    if n_found:
        lists[:, :n_found] = np.where(neighbours >= 0, candidates[neighbours], -1)
    return lists
