"""Contextual word retrieval: whether the nearest word of the other language is the translation in context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours, csls_neighbours
from calque.encoders.base import require
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import accuracy, measure_all
from calque.tasks.overlap import (
    first_occurrences,
    forms_of,
    identical_forms,
    seen_pairs,
    shared_sentences,
    warn_of_overlap,
)
from calque.text import Sentences
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs
    from calque.text import ParallelCorpus


Candidates = Literal["all", "linked"]
Similarity = Literal["csls", "cosine"]


class WordRetrieval(Task):
    """Accuracy of contextual word retrieval (Cao et al. 2020, §3.2 and §5.1).

    The query is each linked word of a test text, and the candidates are the words of all sentences on the other side.
    Token-level accuracy (`accuracy`) is the fraction of queries whose nearest neighbour is the linked token, averaged over
    both directions. It is computed over all links and, with a training text, over unseen links: the two lower-cased word
    types differ and are never linked in the training text. Accuracy over unseen links is the main score if it exists,
    because neither memorised pairs nor a shared vocabulary raise it.

    Type-level accuracy (`form`) counts a query as correct if the lower-cased word type of the nearest neighbour is correct.
    A loss that separates tokens of one word type raises token-level accuracy only.

    Args:
        corpus: parallel test text.
        pairs: word links of the test text; None runs the statistical aligner on the test text only, so that the links do not
            depend on the training text of the encoder. Links that share a word with another link are always dropped.
        train: training text of the alignment.
        train_pairs: word links of the training text; None runs the aligner on test and training text together, which finds
            more links than the training text alone, so that more pairs count as seen.
        contextual: False keeps only the first occurrence of each word form on either side, candidates and
            queries.
        candidates, similarity, k: see `retrieve`.
        special: count the special tokens at both ends of a sentence ([CLS], [SEP]) as linked words, as in the code of Cao et
            al. This raises the accuracy. Special tokens never count as unseen pairs.
        model, symmetrize: model and symmetrization of the statistical aligner.
        bootstrap: number of bootstrap samples of the interval; sentences are resampled, not words.
        seed: seed of the aligner.
        data: name of the test text in the record.

    Raises:
        SettingError: arguments contradict each other.
        InputError: links refer to words that the text does not have.
    """

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
            raise SettingError("train_pairs are links of a training text: give train as well")
        if train is not None and train.langs != corpus.langs:
            raise SettingError(f"the test text is in {corpus.langs}, the training text in {train.langs}")
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
        contextual: bool = True,
    ) -> list[Task]:
        """Return one task for each test text."""
        tasks: list[Task] = []
        for one in inputs.each():
            task = cls.read(one, candidates=candidates, similarity=similarity, contextual=contextual)
            if task.train is not None:
                warn_of_overlap(task.data, shared_sentences(task.corpus, task.train), one.train[0])
                task.notes = {"train": [Path(one.train[0]).name]}  # the training text decides which pairs are unseen
            tasks.append(task)
        return tasks

    @classmethod
    def read(cls, one: Inputs, **options: Any) -> WordRetrieval:
        """Return the task on one test text of `Inputs.each`. A limit applies to the test text only, not to the training text."""
        (test,), (langs,), words, train, train_pairs = one.test, one.langs, one.words, None, None
        corpus = words.read(test, langs)
        pairs = words.open_pairs(one.links[0], corpus) if one.links else None
        if one.train:
            train = words.unlimited.read(one.train[0], langs)
            train_pairs = words.unlimited.open_pairs(one.train_links[0], train) if one.train_links else None
        return cls(
            corpus, pairs, train=train, train_pairs=train_pairs, model=words.model, symmetrize=words.symmetrize,
            data=test, seed=words.seed, **options,
        )  # fmt: skip

    # -- what is asked ---------------------------------------------------------------------------------------
    @cached_property
    def links(self) -> tuple[WordPairs, WordPairs | None]:
        """Return the one-to-one links of the test text and the links of the training text; align the texts if not given."""
        from calque.wordalign import align_words

        pairs, train_pairs = self._given
        options: Any = {"model": self.model, "symmetrize": self.symmetrize, "seed": self.seed}
        if pairs is None:
            pairs = align_words(self.corpus, **options)
        if self.train is not None and train_pairs is None:
            both = align_words(
                self.corpus + self.train, **options
            )  # the test text also helps to link the training text
            train_pairs = both.slice(len(self.corpus), len(self.corpus) + len(self.train))
        return pairs.one_to_one(), train_pairs

    @cached_property
    def unseen(self) -> np.ndarray | None:
        """Return whether each link joins two different forms that the training text never links, bool `[n_pairs]`."""
        pairs, train_pairs = self.links
        if self.train is None or train_pairs is None:
            return None
        return ~seen_pairs(self.corpus, pairs, self.train, train_pairs) & ~identical_forms(self.corpus, pairs)

    @cached_property
    def _counts(self) -> dict[str, Any]:
        """Return counts for the record that do not depend on the encoder."""
        pairs, train_pairs = self.links
        given = self._given[0]
        symmetrize = self.symmetrize if self.symmetrize == "one-to-one" else f"{self.symmetrize}, one-to-one"
        counts: dict[str, Any] = {
            "links": "given" if given is not None else f"{self.model}, from the test text",
            "symmetrize": symmetrize if given is None else "one-to-one of those given",
            "links_not_one_to_one": 0 if given is None else len(given) - len(pairs),
            "identical_forms": int(identical_forms(self.corpus, pairs).sum()),
        }
        if self.train is not None and train_pairs is not None:
            counts["seen_in_training"] = int(seen_pairs(self.corpus, pairs, self.train, train_pairs).sum())
            counts["training_sentence_pairs"] = len(self.train)
            counts["test_sentences_in_training"] = int(shared_sentences(self.corpus, self.train).sum())
        return counts

    @cached_property
    def _sides(self) -> list[Sentences]:
        """Return both sides of the test text; with `special` each sentence has two more words."""
        sides = [self.corpus.source, self.corpus.target]
        if not self.special:
            return sides
        return [Sentences.of((("[CLS]", *each.words, "[SEP]") for each in side), side.lang) for side in sides]

    @cached_property
    def _forms(self) -> list[np.ndarray]:
        return [forms_of(side)[0] for side in self._sides]

    def news(self, scores: Sequence[Score]) -> Iterable[str]:
        """Return a message about the origin of the test links."""
        links = scores[0].settings["links"]
        yield f"{self.data}: word links {'as given' if links == 'given' else f'by the statistical aligner ({links})'}"

    @property
    def _name(self) -> str:
        return self.corpus.path or self.data or "the test text"

    # -- asking ----------------------------------------------------------------------------------------------
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Encode both sides and compute the scores.

        Returns:
            the mean of both directions, then each direction; unseen pairs first, if there is a training text, then all
            pairs; accuracy of the occurrence first, then of the form.

        Raises:
            SettingError: the test text has no links, or no link whose words have vectors.
        """
        require(encoder, "measured", self.rows)
        if not len(self.links[0]) and not self.special:
            raise SettingError(
                f"{self._name}: no word links in {len(self.corpus):,} sentence pairs, so there is nothing to measure; is "
                "there text in it, and are its lines translations of each other?"
            )
        encode = partial(with_special_tokens, encoder) if self.special else partial(encoder.encode, progress=progress)
        source, target = (encode(side) for side in (self.corpus.source, self.corpus.target))
        about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        return self.evaluate_embeddings(source, target, about=about)

    def ask(
        self, source: Embeddings, target: Embeddings, *, depth: int = 1
    ) -> tuple[WordPairs, np.ndarray | None, Retrieved]:
        """Retrieve the nearest words of all linked words.

        Args:
            source, target: vectors of every word of both sides of the test text; with `special`, see `with_special_tokens`.
            depth: number of nearest words listed for each query.

        Returns:
            the links used as queries, the mask of unseen links (None without a training text), and the results.

        Raises:
            SettingError: the vectors do not belong to this text.
        """
        for name, vectors, side in zip(("source", "target"), (source, target), self._sides, strict=True):
            if not np.array_equal(np.diff(vectors.offsets), side.lengths()):
                raise SettingError(
                    f"{vectors.n_words} {name} vectors in {len(vectors)} sentences, but the test text has "
                    f"{int(side.lengths().sum())} words in {len(side)} sentences"
                )
        pairs, unseen = self.links[0], self.unseen
        if self.special:
            pairs, unseen = _with_special_links(pairs, unseen, *(side.lengths() for side in self._sides))
        first = [None if self.contextual else first_occurrences(side) for side in self._sides]
        answers = retrieve(
            source, target, pairs, candidates=self.candidates, similarity=self.similarity, k=self.k,
            source_words=first[0], target_words=first[1], depth=depth,
        )  # fmt: skip
        return pairs, unseen, answers

    def evaluate_embeddings(
        self,
        source: Embeddings,
        target: Embeddings,
        *,
        about: dict[str, Any] | None = None,
        asked: tuple[WordPairs, np.ndarray | None, Retrieved] | None = None,
    ) -> list[Score]:
        """Compute the scores of given word vectors, such as several layers of one pass.

        Args:
            source, target: see `ask`.
            about: settings of the encoder, for the record.
            asked: result of `ask` for these vectors; None computes it.

        Raises:
            SettingError: the vectors do not belong to this text, or no link has vectors on both sides.
        """
        pairs, unseen, answers = self.ask(source, target) if asked is None else asked
        if not len(answers.queries):
            raise SettingError(
                f"{self._name}: none of its {len(pairs):,} word links has a vector on both sides, so there is nothing to measure"
            )
        settings = {
            "contextual": self.contextual,
            "candidates": self.candidates,
            "similarity": self.similarity,
            "k": self.k if self.similarity == "csls" else None,
            "special": self.special,
            **self._counts,
            "source_candidates": answers.source_candidates,
            "target_candidates": answers.target_candidates,
            "source_words_without_vector": 0 if source.covered is None else int((~source.covered).sum()),
            "target_words_without_vector": 0 if target.covered is None else int((~target.covered).sum()),
            "links_without_vector": answers.dropped,
            "bootstrap": self.bootstrap,
            **(about or {}),
        }
        sums = dict(self._sums(pairs, unseen, answers, source, target))
        measured = measure_all([(each, accuracy) for each, _ in sums.values()], samples=self.bootstrap)
        values = {metric: each.value for metric, each in zip(sums, measured, strict=True)}
        scores = []
        for (metric, (_, n)), each in zip(sums.items(), measured, strict=True):
            headline = ".".join(metric.split(".")[:2])
            directions = {way: values[f"{headline}.{way}"] for way in self._ways}
            record = {"queries": headline.partition(".")[2], "directions": directions, **settings}
            scores.append(
                Score(
                    "retrieval", self.data, self.corpus.langs, metric, *each.ends, n, self.seed, record, **each.kept
                )
            )  # fmt: skip
        return scores

    @property
    def _ways(self) -> tuple[str, str]:
        return "-".join(self.corpus.langs), "-".join(self.corpus.langs[::-1])

    def _sums(
        self, pairs: WordPairs, unseen: np.ndarray | None, answers: Retrieved, source: Embeddings, target: Embeddings
    ) -> Iterator[tuple[str, tuple[np.ndarray, int]]]:
        """Yield metric, sums and number of links for each kind of hit and each selection of links, first for the mean of both
        directions, then for each. The sums are correct answers and queries per sentence, int `[n_sentences, 2]`."""
        sentence = pairs.sentence[answers.queries]
        hits = {"accuracy": (answers.source_hits, answers.target_hits)}
        hits["form"] = self._hits_by_form(pairs, answers, source, target)
        selections = {} if unseen is None else {"unseen": unseen[answers.queries]}
        selections["all"] = np.ones(len(answers.queries), dtype=bool)
        most = int(np.bincount(sentence, minlength=1).max())  # largest number of queries of a sentence
        small = np.min_scalar_type(2 * most)  # usually one byte
        for kind, both_hits in hits.items():
            for name, chosen in selections.items():
                *found, questions = (
                    np.bincount(sentence[asked], minlength=pairs.n_sentences).astype(small)
                    for asked in (*(chosen & each for each in both_hits), chosen)
                )
                metric, n = f"{kind}.{name}", int(chosen.sum())
                yield metric, (np.stack([found[0] + found[1], 2 * questions], axis=1), n)
                for way, each in zip(self._ways, found, strict=True):
                    yield f"{metric}.{way}", (np.stack([each, questions], axis=1), n)

    def _hits_by_form(
        self, pairs: WordPairs, answers: Retrieved, source: Embeddings, target: Embeddings
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return whether the nearest word has the lower-cased form of the linked word, bool `[n]` for source words and for
        target words."""
        sentence, queries = pairs.sentence[answers.queries], answers.queries
        wanted = source.rows(sentence, pairs.source[queries]), target.rows(sentence, pairs.target[queries])
        forward, backward = (
            (nearest >= 0) & (forms[nearest] == forms[rows])
            for nearest, forms, rows in (
                (answers.nearest_targets, self._forms[1], wanted[1]),
                (answers.nearest_sources, self._forms[0], wanted[0]),
            )
        )
        return forward, backward


# -- special tokens at both ends of a sentence as linked words -------------------------------------------------------------
def with_special_tokens(encoder: Encoder, sentences: Sentences) -> Embeddings:
    """Return the word vectors of sentences, each with the vectors of its first and last subword ([CLS], [SEP]) around them.

    Raises:
        SettingError: the encoder has no subwords.
    """
    from calque.encoders.huggingface import HuggingFaceEncoder
    from calque.training.sources import vectors_of

    if not isinstance(encoder, HuggingFaceEncoder):
        raise SettingError(f"special=True: {encoder.name} has no special tokens; leave special out")
    split = encoder.subwords.split(sentences).with_special()
    vectors = vectors_of(encoder, split, budget=encoder.budget)
    return Embeddings(vectors.data, split.word_offsets, split.covered)


def _with_special_links(
    pairs: WordPairs, unseen: np.ndarray | None, *lengths: np.ndarray
) -> tuple[WordPairs, np.ndarray | None]:
    """Return the links shifted by the first special token, and links between the first and the last tokens of each sentence
    pair, which never count as unseen. `lengths` include the special tokens, `[n_sentences]`."""
    n = pairs.n_sentences
    sentence = np.concatenate([pairs.sentence, np.arange(n), np.arange(n)])
    order = np.argsort(sentence, kind="stable")
    source, target = (
        np.concatenate([words + 1, np.zeros(n, dtype=np.int64), of_side - 1])[order]
        for words, of_side in zip((pairs.source, pairs.target), lengths, strict=True)
    )
    if unseen is not None:
        unseen = np.concatenate([unseen, np.zeros(2 * n, dtype=bool)])[order]
    return WordPairs(sentence[order], source, target, n_sentences=n), unseen


# -- the question: which of all words of the other language is nearest to a word? ----------------------------------------
@dataclass(frozen=True)
class Retrieved:
    """Answers to the queries of both directions.

    Attributes:
        queries: indices of the queried links in the given links, int64 `[n]`.
        source_hits, target_hits: whether the source word retrieved its target word, and the reverse, bool `[n]`.
        source_candidates, target_candidates: number of candidate words.
        dropped: number of links that have a word without a vector.
        target_lists, source_lists: rows of the nearest words, nearest first, padded with −1, int64 `[n, depth]`.
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
        """Row of the retrieved target word of each query, int64 `[n]`."""
        return self.target_lists[:, 0]

    @property
    def nearest_sources(self) -> np.ndarray:
        """Row of the retrieved source word of each query, int64 `[n]`."""
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
    depth: int = 1,
) -> Retrieved:
    """Retrieve the nearest neighbour of every linked word (Cao et al. 2020, §3.2).

    Args:
        pairs: one-to-one word links.
        candidates: "all" words of the other side (the paper), or only words with a link (its code).
        similarity: cosine, or CSLS with `k` neighbours, whose hubness terms use the same candidates. Ties go to the word
            that comes first.
        source_words, target_words: mask of words that may be candidates and queries, bool `[n_words]`.
        depth: number of nearest words to list for each query.

    Raises:
        SettingError: a value that is not one of these, links that are not one-to-one, or that point outside.
    """
    for name, value, known in (
        ("candidates", candidates, ("all", "linked")),
        ("similarity", similarity, ("csls", "cosine")),
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
    asked = np.flatnonzero(pools[0][ends[0]] & pools[1][ends[1]])
    rows = [row[asked] for row in ends]
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
    vectors, wanted = [], []
    for side, pool, row in zip((source, target), pools, rows, strict=True):
        chosen = np.flatnonzero(pool)
        vectors.append(unit_rows(side.data, None if len(chosen) == side.n_words else chosen))
        wanted.append(np.searchsorted(chosen, row[has_vector]))
    sought: Any = {"source_queries": wanted[0], "target_queries": wanted[1], "n_best": depth}
    csls = similarity == "csls"
    neighbours = csls_neighbours(*vectors, k=k, **sought) if csls else cosine_neighbours(*vectors, **sought)
    queries = asked[has_vector]
    lists = [np.full((len(queries), depth), -1, dtype=np.int64) for _ in rows]
    for answer, pool, best in zip(lists, reversed(pools), (neighbours.targets, neighbours.sources), strict=True):
        if best.shape[1]:
            answer[:, : best.shape[1]] = np.where(best >= 0, np.flatnonzero(pool)[best], -1)
    return Retrieved(
        queries=queries,
        source_hits=lists[0][:, 0] == rows[1][has_vector],
        target_hits=lists[1][:, 0] == rows[0][has_vector],
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
    if (word >= np.diff(side.offsets)[sentence]).any():
        raise SettingError("a link points beyond the end of its sentence; was the text tokenised differently?")
    row = side.rows(sentence, word)
    if len(np.unique(row)) != len(row):
        raise SettingError("links are not one-to-one: call one_to_one() on them first")
    return row
