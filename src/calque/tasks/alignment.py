"""Evaluation of word alignments against gold links: error rate, precision, recall and F1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from calque.corpora import gold_links
from calque.encoders.base import require
from calque.errors import SettingError
from calque.input_texts import skipped
from calque.pairs import WordPairs
from calque.spec import Option
from calque.tasks.base import Score, Task, about_encoder
from calque.tasks.bootstrap import measure_all, ratio
from calque.tasks.overlap import covered_words
from calque.tasks.reporting import WORD_ALIGNMENT
from calque.wordalign.similarity import links_from_embeddings

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs
    from calque.text import ParallelCorpus

Extraction = Annotated[
    Literal["mutual", "softmax"],
    Option("Rule for selecting links: mutual or softmax.", flags=("--extract", "--method")),
]


def score_links(
    links: WordPairs,
    gold: WordPairs,
    *,
    data: str = "",
    languages: tuple[str, ...] = (),
    bootstrap: int = 1000,
    seed: int = 0,
    settings: Mapping[str, object] | None = None,
) -> list[Score]:
    """Return the alignment error rate (AER), precision, recall and F1 of word links (Och and Ney
    2003, §5.1).

    Let A be the predicted links, S the sure gold links and P ⊇ S the sure and possible gold links
    of all sentences. Then precision = |A∩P| / |A|, recall = |A∩S| / |S|, F1 is their harmonic mean,
    and AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|). Lower AER is better; higher precision, recall and
    F1 are better. Duplicate links are counted once; a duplicate gold link is sure if at least one
    of its copies is sure.

    Args:
        links: predicted links; whether they are marked as sure or possible is ignored.
        data, languages, seed, settings: values that are recorded with the scores, see `Score`.
        bootstrap: number of bootstrap samples for the confidence intervals; sentences are
            resampled.

    Returns:
        AER, precision, recall and F1. The attribute `n` is the number of predicted links for
        precision, the number of sure gold links for recall, and the sum of both for AER and F1.

    Raises:
        SettingError: `links` and `gold` have different numbers of sentences, or no gold link is
            sure.
    """
    if links.n_sentences != gold.n_sentences:
        raise SettingError(
            f"links must have {gold.n_sentences} sentences, as many as gold, got "
            f"{links.n_sentences}"
        )
    # Encode each link as a single number, so links can be compared as sets.
    positions = (links.source, links.target, gold.source, gold.target)
    width = 1 + max(int(words.max(initial=0)) for words in positions)
    # Two links are equal if their codes are; `code // width²` is the sentence.
    predicted = np.unique((links.sentence * width + links.source) * width + links.target)
    gold_codes = (gold.sentence * width + gold.source) * width + gold.target
    sure = np.unique(gold_codes[~gold.possible])
    sure_or_possible = np.unique(gold_codes)
    if not len(sure):
        raise SettingError(
            "at least one gold link must be sure, got none; recall and error rate are undefined"
        )
    link_sets = (
        predicted,
        sure,
        np.intersect1d(predicted, sure),
        np.intersect1d(predicted, sure_or_possible),
    )
    # Number of links of each set in each sentence, `[n_sentences, 4]`.
    counts = np.stack(
        [np.bincount(codes // width**2, minlength=gold.n_sentences) for codes in link_sets], axis=1
    )
    record = {
        "sentences": gold.n_sentences,
        "links": len(predicted),
        "sure": len(sure),
        "possible": len(sure_or_possible) - len(sure),
        "bootstrap": bootstrap,
        **(settings or {}),
    }
    # The bootstrap resamples sentences, so each formula is applied to sums over sentences.
    statistics = [(counts, formula) for formula in _FORMULAS.values()]
    n_items = {
        "aer": len(predicted) + len(sure),
        "precision": len(predicted),
        "recall": len(sure),
        "f1": len(predicted) + len(sure),
    }
    return [
        measured.score(
            task="word-alignment",
            data=data,
            languages=tuple(languages),
            metric=metric,
            n=n_items[metric],
            seed=seed,
            settings=record,
        )
        for metric, measured in zip(
            _FORMULAS, measure_all(statistics, samples=bootstrap), strict=True
        )
    ]


# -- formulas of Och and Ney (2003, §5.1); the columns of `counts` are |A|, |S|, |A∩S| and |A∩P| ---
def _aer(counts: np.ndarray) -> np.ndarray:
    return 1 - ratio(counts[..., 2] + counts[..., 3], counts[..., 0] + counts[..., 1])


def _precision(counts: np.ndarray) -> np.ndarray:
    return ratio(counts[..., 3], counts[..., 0])


def _recall(counts: np.ndarray) -> np.ndarray:
    return ratio(counts[..., 2], counts[..., 1])


def _f1(counts: np.ndarray) -> np.ndarray:
    precision = np.nan_to_num(_precision(counts))  # 0 if no links are predicted
    recall = _recall(counts)
    total = precision + recall
    return np.where(total == 0, 0.0, 2 * ratio(precision * recall, total))


_FORMULAS = {"aer": _aer, "precision": _precision, "recall": _recall, "f1": _f1}


class WordAlignment(Task):
    """Evaluate the word links derived from an encoder's vectors against gold links.

    Args:
        corpus: parallel text.
        gold: gold word links of the text.
        method: method that derives links from word vectors, "mutual" or "softmax" (see
            `calque.wordalign.similarity`).
        bootstrap: number of bootstrap samples for the confidence intervals.
        seed: seed that is recorded with the scores.
        data: name of the text, which is recorded with the scores.
    """

    reporting = WORD_ALIGNMENT

    def __init__(
        self,
        corpus: ParallelCorpus,
        gold: WordPairs,
        *,
        method: str = "mutual",
        bootstrap: int = 1000,
        seed: int = 0,
        data: str = "",
    ):
        self.corpus, self.gold = corpus, gold.check(corpus)
        self.method, self.bootstrap, self.seed, self.data = method, bootstrap, seed, data

    @classmethod
    def from_files(  # type: ignore[override]
        cls, inputs: Inputs, *, method: Extraction = "mutual"
    ) -> list[Task]:
        """Return one task per test text. Without `links` files, gold links are read from the third
        column of the test text.
        """
        tasks: list[Task] = []
        words = inputs.words
        for text_inputs, (test, corpus) in zip(
            inputs.per_test_text(), inputs.corpora(), strict=True
        ):
            if text_inputs.links:
                path = text_inputs.links[0]
                gold = words.open_links(path, corpus)
            else:
                path = test
                gold = gold_links(corpus, one_based=words.one_based, check=False)
            corpus, gold = _without_impossible_links(corpus, gold, path=path)
            tasks.append(cls(corpus, gold, method=method, data=test, seed=words.seed))
        return tasks

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the error rate, precision, recall and F1 of the links derived from the encoder's
        vectors.
        """
        require(encoder, "measured", self.rows)
        source = encoder.encode(self.corpus.source, progress=progress)
        target = encoder.encode(self.corpus.target, progress=progress)
        pairs = links_from_embeddings(source, target, method=self.method)
        about = {
            "links_from": self.method,
            "source_words_without_vector": int((~covered_words(source)).sum()),
            "target_words_without_vector": int((~covered_words(target)).sum()),
            **about_encoder(encoder),
        }
        return self.score(pairs, about=about)

    def score(self, links: WordPairs, *, about: Mapping[str, object] | None = None) -> list[Score]:
        """Return the scores of existing links, such as the output of a statistical aligner."""
        return score_links(
            links.check(self.corpus),
            self.gold,
            data=self.data,
            languages=self.corpus.langs,
            bootstrap=self.bootstrap,
            seed=self.seed,
            settings=about,
        )


def _without_impossible_links(
    corpus: ParallelCorpus, gold: WordPairs, *, path: str
) -> tuple[ParallelCorpus, WordPairs]:
    """Drop sentence pairs whose gold links refer to words that do not exist, and report how many
    were dropped. If more than 5% of the pairs have such links, raise an `InputError`, because the
    text was probably tokenised differently."""
    if gold.n_sentences != len(corpus):
        gold.check(corpus, path=path)  # raises an error with the numbers of sentences
    fits = np.ones(len(corpus), dtype=bool)
    for positions, side in ((gold.source, corpus.source), (gold.target, corpus.target)):
        lengths = side.lengths()
        fits[gold.sentence[positions >= lengths[gold.sentence]]] = False
    wrong = np.flatnonzero(~fits)
    if not len(wrong):
        return corpus, gold
    # A few such links are annotation errors; many show another tokenisation.
    if len(wrong) > 0.05 * len(corpus):
        gold.check(corpus, path=path)  # raises an error about the first such link
    skipped(
        f"{path}: {len(wrong):,} of {len(corpus):,} sentence pairs skipped because a gold link "
        f"refers to a word beyond the end of the sentence (first: line {wrong[0] + 1})"
    )
    keep = np.flatnonzero(fits)
    return corpus.take(keep), gold.take(keep)
