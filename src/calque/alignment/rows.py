"""Where words stand in an update: numbers only, as the texts are laid out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calque.encoders.split import SplitSentences


@dataclass(frozen=True)
class SentenceRows:
    """The words of some sentences, of those that have a vector."""

    rows: np.ndarray  # [n_words]
    owner: np.ndarray  # [n_words] the sentence of each, from 0 on
    counts: np.ndarray  # [n_sentences] words of each


@dataclass(frozen=True)
class GroupRows:
    """Where one corpus's words stand among the word vectors of an update.

    Rows index the update's word vectors; `reference` indexes the words of all target sentences of all corpora. A corpus
    without the language that the others move towards has nothing to be compared with the frozen encoder.
    """

    source: np.ndarray  # [n_pairs] rows of linked source words
    target: np.ndarray  # [n_pairs] rows of the words they are linked to
    regularised: np.ndarray  # [n_target_words] rows of all words of the target sentences
    reference: np.ndarray  # [n_target_words] the same words, as numbers among all target words
    reference_linked: np.ndarray | None  # [n_pairs] the linked target words, as numbers among all target words
    pairs_of_part: tuple[int, ...]  # pairs in each part of each process's share, in order
    words_of_part: tuple[int, ...]  # target words in each part of each process's share, in order
    kinds: np.ndarray | None = None  # [n_pairs] equal for pairs that are positives of each other
    subwords: np.ndarray | None = (
        None  # [n_target_subwords] rows of all subwords of the target sentences, if they are read
    )
    reference_subwords: np.ndarray | None = None  # [n_target_subwords] the same subwords, as `reference` has the words
    subwords_of_part: tuple[int, ...] = ()  # target subwords in each part of each process's share, in order
    sentences: tuple[SentenceRows, SentenceRows] | None = None  # of both sides, if they are read
    sentences_of_part: tuple[int, ...] = ()  # sentence pairs in each part of each process's share, in order


@dataclass
class Update:
    """One part of one process's share of an update.

    Args:
        shares: batches of sentence numbers, `[share][batch]`; the words in this order are the rows. Shares are equally
            long and may be gone through side by side.
        targets: numbers of the sentences in the language that the others move towards.
        groups: one for each corpus.
        table: that the sentence numbers in `shares` are of.
        reference: room for the frozen encoder's vectors of the target words, by layer.
    """

    shares: list[list[np.ndarray]]
    targets: np.ndarray
    groups: list[GroupRows]
    table: SplitSentences
    reference: dict | None = None
