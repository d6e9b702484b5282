"""Contextual word retrieval: is the nearest of all words of the other language a word's translation?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.corpora.origins import origins_of
from calque.encoders.base import require
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import accuracy, measure_all
from calque.tasks.nearest import Candidates, Retrieved, Similarity, Uncovered, retrieve
from calque.tasks.overlap import (
    first_occurrences,
    forms_of,
    identical_forms,
    seen_pairs,
    shared_sentences,
    warn_of_overlap,
)
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs
    from calque.text import ParallelCorpus, Sentences


class WordRetrieval(Task):
    """Accuracy of contextual word retrieval (Cao et al. 2020, §3.2 and §5.1).

    Each linked word of a test text asks for its nearest neighbour among the words of all sentences on the
    other side; the figure is how often that is the very word it is linked to, the mean of both directions
    (`accuracy`). It is given over all links, and, with a training text, over links whose two forms
    (lower-cased) are nowhere linked there and differ from each other. The second is the headline where it
    exists: it is not raised by memory or a shared vocabulary.

    Beside it stands how often the nearest word has the right form, in lower case, whichever occurrence it is (`form`): the
    same neighbours, counted once more. A method whose loss pushes occurrences of one word apart gains by the first and not
    by the second.

    Args:
        corpus: parallel test text.
        pairs: its word links; made by the statistical aligner from the test text alone if None, so that they are the same
            whatever an encoder was aligned on. Links that share a word with another one are dropped either way.
        train: what the encoder was aligned on.
        train_pairs: its word links; made by the aligner, from test and training text together, if None. Links that
            were found in the training text alone miss some that the joint text shows, so fewer pairs count as seen.
        contextual: False keeps only the first occurrence of each word form on either side, candidates and
            queries.
        candidates, similarity, k, uncovered: see `retrieve`.
        special: count the special subwords at both ends of a sentence ([CLS], [SEP]) as linked words, as Cao
            et al.'s code does, which raises the accuracy. They are never part of the unseen pairs.
        by_origin: also give the figures for each value of the text's third column, which says where a pair is from. The
            candidates stay the words of all sentences.
        model, symmetrize: of the statistical aligner.
        bootstrap: samples of the interval; sentences are drawn, not words.
        seed: of the aligner.
        data: name of the test text, for the record.

    Raises:
        SettingError: arguments that do not fit each other.
        InputError: links that do not fit the text.
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
        uncovered: Uncovered = "drop",
        by_origin: bool = False,
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
        if special and not contextual:
            raise SettingError("special subwords have no first occurrence: special=True needs contextual=True")
        for given, text in ((pairs, corpus), (train_pairs, train)):
            if given is not None and text is not None:
                given.check(text)
        self.corpus, self.train, self._given = corpus, train, (pairs, train_pairs)
        self.contextual, self.special = contextual, special
        self.uncovered: Uncovered = uncovered
        self.candidates: Candidates = candidates
        self.similarity: Similarity = similarity
        self.k, self.by_origin = k, by_origin
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
        by_origin: bool = False,
    ) -> list[Task]:
        """One for each test text."""
        tasks: list[Task] = []
        options: Any = {
            "candidates": candidates, "similarity": similarity, "contextual": contextual,
        }  # fmt: skip
        for one in inputs.each():
            task = cls.read(one, by_origin=by_origin, **options)
            if by_origin:
                origins_of(task.corpus, task.data)  # before anything is linked or encoded
            if task.train is not None:
                warn_of_overlap(task.data, shared_sentences(task.corpus, task.train), one.train[0])
                task.notes = {"train": [Path(one.train[0]).name]}  # it decides which pairs count as unseen
            tasks.append(task)
        return tasks

    @classmethod
    def read(cls, one: Inputs, **options: Any) -> WordRetrieval:
        """On one test text: one of `Inputs.each`. A limit cuts it alone: what has been seen in training stays seen."""
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
        """Links of the test text, one-to-one, and of the training text; aligned now if not given."""
        from calque.wordalign import align_words

        pairs, train_pairs = self._given
        options: Any = {"model": self.model, "symmetrize": self.symmetrize, "seed": self.seed}
        if pairs is None:
            pairs = align_words(self.corpus, **options)
        if self.train is not None and train_pairs is None:
            both = align_words(self.corpus + self.train, **options)  # the test shows links of the training text, too
            train_pairs = both.slice(len(self.corpus), len(self.corpus) + len(self.train))
        return pairs.one_to_one(), train_pairs

    @cached_property
    def unseen(self) -> np.ndarray | None:
        """bool `[n_pairs]`: links of two different forms that the training text does not link."""
        pairs, train_pairs = self.links
        if self.train is None or train_pairs is None:
            return None
        return ~seen_pairs(self.corpus, pairs, self.train, train_pairs) & ~identical_forms(self.corpus, pairs)

    @cached_property
    def _counts(self) -> dict[str, Any]:
        """What qualifies the figures, and does not depend on the encoder."""
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
    def _forms(self) -> tuple[np.ndarray, np.ndarray]:
        source, target = (form_numbers(side, special=self.special) for side in (self.corpus.source, self.corpus.target))
        return source, target

    def news(self, scores: Sequence[Score]) -> Iterable[str]:
        """Say where the links of the test text are from."""
        links = scores[0].settings["links"]
        yield f"{self.data}: word links {'as given' if links == 'given' else f'by the statistical aligner ({links})'}"

    @property
    def _name(self) -> str:
        return self.corpus.path or self.data or "the test text"

    # -- asking ----------------------------------------------------------------------------------------------
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Encode both sides and measure.

        Returns:
            the mean of both directions, then each direction; over unseen pairs first, if there is a training
            text, then over all; of the very word first, then by form.

        Raises:
            SettingError: the test text has no links to ask for, or none whose words have vectors.
        """
        require(encoder, "measured", self.rows)
        if not len(self.links[0]) and not self.special:
            raise SettingError(
                f"{self._name}: no word links in {len(self.corpus):,} sentence pairs, so there is nothing to measure; is "
                "there text in it, and are its lines translations of each other?"
            )
        if self.special:
            source, target = (with_ends(encoder, side) for side in (self.corpus.source, self.corpus.target))
        else:
            source, target = (
                encoder.encode(side, progress=progress) for side in (self.corpus.source, self.corpus.target)
            )
        about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        return self.evaluate_embeddings(source, target, about=about)

    def ask(
        self, source: Embeddings, target: Embeddings, *, depth: int = 1
    ) -> tuple[WordPairs, np.ndarray | None, Retrieved]:
        """The answers themselves.

        Args:
            source, target: vectors of every word of both sides of the test text (with `special`, as
                `with_ends` gives them).
            depth: how many of the nearest words to list for each query.

        Returns:
            the links that were asked for, which of them are unseen (None without a training text), and the answers.

        Raises:
            SettingError: they are not vectors of this text.
        """
        for name, side, words in (
            ("source", source, self.corpus.source),
            ("target", target, self.corpus.target),
        ):
            expected = words.lengths() + 2 * self.special
            if not np.array_equal(np.diff(side.offsets), expected):
                raise SettingError(
                    f"{side.n_words} {name} vectors in {len(side)} sentences, but the test text has "
                    f"{int(expected.sum())} words in {len(expected)} sentences"
                )
        pairs, unseen = self.links[0], self.unseen
        if self.special:
            pairs, unseen = with_end_links(pairs, unseen, source, target)
        first = [
            None if self.contextual else first_occurrences(side) for side in (self.corpus.source, self.corpus.target)
        ]
        answers = retrieve(
            source, target, pairs,
            candidates=self.candidates, similarity=self.similarity, k=self.k, uncovered=self.uncovered,
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
        """Measure word vectors that exist already, such as several layers of one pass.

        Args:
            source, target: see `ask`.
            about: what to record of the encoder.
            asked: what `ask` gave for these vectors, if that is known.

        Raises:
            SettingError: they are not vectors of this text, or no link has a vector on both sides.
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
            "uncovered": self.uncovered,
            **self._counts,
            "source_candidates": answers.source_candidates,
            "target_candidates": answers.target_candidates,
            "source_words_without_vector": 0 if source.covered is None else int((~source.covered).sum()),
            "target_words_without_vector": 0 if target.covered is None else int((~target.covered).sum()),
            "links_without_vector": answers.dropped,
            "bootstrap": self.bootstrap,
            **(about or {}),
        }
        found = list(self._figures(pairs, unseen, answers, source, target))
        measured = measure_all([(figure.sums, accuracy) for figure in found], samples=self.bootstrap)
        values = {figure.metric: each.value for figure, each in zip(found, measured, strict=True)}
        ways = ["-".join(langs) for langs in (self.corpus.langs, self.corpus.langs[::-1])]
        scores = []
        for figure, each in zip(found, measured, strict=True):
            kind, name, *_ = figure.metric.split(".")
            about = figure.about or {"directions": {way: values[f"{kind}.{name}.{way}"] for way in ways}}
            record = {"queries": name, **about, **settings}
            scores.append(
                Score(
                    "retrieval", self.data, self.corpus.langs, figure.metric, *each.ends, figure.n, self.seed, record,
                    **each.kept,
                )
            )  # fmt: skip
        return scores

    def _figures(
        self, pairs: WordPairs, unseen: np.ndarray | None, answers: Retrieved, source: Embeddings, target: Embeddings
    ) -> Iterator[_Figure]:
        """Every figure: for each kind of hit and each selection of links the mean of both directions, then each direction;
        then, for each origin, the mean alone."""
        sentence = pairs.sentence[answers.queries]
        hits = {"accuracy": (answers.source_hits, answers.target_hits)}
        hits["form"] = self._hits_by_form(pairs, answers, source, target)
        selections = {} if unseen is None else {"unseen": unseen[answers.queries]}
        selections["all"] = np.ones(len(answers.queries), dtype=bool)
        origins = origins_of(self.corpus, self._name) if self.by_origin else {}
        ways = ["-".join(langs) for langs in (self.corpus.langs, self.corpus.langs[::-1])]
        most = int(np.bincount(sentence, minlength=1).max())  # questions of a sentence
        small = np.min_scalar_type(2 * most)  # a byte, as a rule
        for kind, both_hits in hits.items():
            for name, chosen in selections.items():
                *found, questions = (
                    np.bincount(sentence[asked], minlength=pairs.n_sentences).astype(small)
                    for asked in (*(chosen & each for each in both_hits), chosen)
                )
                metric, n = f"{kind}.{name}", int(chosen.sum())
                both = np.stack([found[0] + found[1], 2 * questions], axis=1)
                yield _Figure(metric, both, n)
                for way, each in zip(ways, found, strict=True):
                    yield _Figure(f"{metric}.{way}", np.stack([each, questions], axis=1), n)
                for origin, mine in origins.items():
                    about = {"origin": origin, "sentence_pairs": int(mine.sum())}
                    yield _Figure(f"{metric}.from-{origin}", both * mine[:, None], int(questions[mine].sum()), about)

    def _hits_by_form(
        self, pairs: WordPairs, answers: Retrieved, source: Embeddings, target: Embeddings
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether the nearest word has the form, in lower case, of the word that is asked for: that occurrence or another
        one. bool `[n]` of source words and of target words."""
        sentence = pairs.sentence[answers.queries]
        rows = [
            side.rows(sentence, words[answers.queries])
            for side, words in ((source, pairs.source), (target, pairs.target))
        ]
        forward, backward = (
            (nearest >= 0) & (forms[nearest] == forms[wanted])
            for nearest, forms, wanted in (
                (answers.nearest_targets, self._forms[1], rows[1]),
                (answers.nearest_sources, self._forms[0], rows[0]),
            )
        )
        return forward, backward


@dataclass(frozen=True)
class _Figure:
    """A figure before it is measured.

    Attributes:
        metric: `accuracy.all`, `form.unseen.en-de`, `accuracy.all.from-tatoeba`, …
        sums: `[n_sentences, 2]`, right answers and questions of each sentence; whole numbers.
        n: links that it is over.
        about: what belongs into the settings of this figure alone.
    """

    metric: str
    sums: np.ndarray
    n: int
    about: dict[str, Any] = field(default_factory=dict)


def form_numbers(sentences: Sentences, *, special: bool = False) -> np.ndarray:
    """int64 `[n_words]`, the number of each word's form in lower case; with `special` each sentence has two words more, as
    `with_ends` gives them: all beginnings are one form, and all ends are another."""
    numbers, forms = forms_of(sentences)
    if not special:
        return numbers
    offsets = offsets_of(sentences.lengths() + 2)
    ends = np.zeros(offsets[-1], dtype=bool)
    ends[offsets[:-1]] = ends[offsets[1:] - 1] = True
    found = np.empty(len(ends), dtype=np.int64)
    found[~ends] = numbers
    found[offsets[:-1]], found[offsets[1:] - 1] = len(forms), len(forms) + 1
    return found


# -- special subwords at both ends of a sentence ([CLS], [SEP]) as linked words, as Cao et al.'s code counts them ------
def with_ends(encoder: Encoder, sentences: Sentences) -> Embeddings:
    """Word vectors, and those of a sentence's first and last subword ([CLS], [SEP]) as words around them.

    Raises:
        SettingError: the encoder has no subwords.
    """
    from calque.encoders.huggingface import HuggingFaceEncoder
    from calque.training.sources import vectors_of

    if not isinstance(encoder, HuggingFaceEncoder):
        raise SettingError(f"special=True: {encoder.name} has no special subwords")
    split = encoder.subwords.split(sentences).with_special()
    vectors = vectors_of(encoder, split, budget=encoder.budget)
    return Embeddings(vectors.data, split.word_offsets, split.covered)


def with_end_links(
    pairs: WordPairs, unseen: np.ndarray | None, source: Embeddings, target: Embeddings
) -> tuple[WordPairs, np.ndarray | None]:
    """The links, moved past the first special word, and links between the first and the last ones."""
    n = pairs.n_sentences
    sentence = np.concatenate([pairs.sentence, np.arange(n), np.arange(n)])
    order = np.argsort(sentence, kind="stable")
    ends = [np.concatenate([np.zeros(n, dtype=np.int64), np.diff(side.offsets) - 1]) for side in (source, target)]
    left, right = (
        np.concatenate([words + 1, end]) for words, end in zip((pairs.source, pairs.target), ends, strict=True)
    )
    if unseen is not None:
        unseen = np.concatenate([unseen, np.zeros(2 * n, dtype=bool)])[order]
    return WordPairs(sentence[order], left[order], right[order], n_sentences=n), unseen
