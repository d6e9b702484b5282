"""Forms, frequencies and parts of speech of the words of a text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calque.annotated import TaggedText
from calque.offsets import offsets_of
from calque.tasks.overlap import forms_of
from calque.text import Sentences


def count_forms(sentences: Sentences) -> dict[str, int]:
    """How often each lower-cased form comes in a text."""
    numbers, forms = forms_of(sentences)
    return dict(zip(forms, np.bincount(numbers, minlength=len(forms)).tolist(), strict=True))


def frequency_ranks(counts: Mapping[str, int]) -> dict[str, float]:
    """Rank of each form by its frequency: 1 for the most frequent. Forms that are equally frequent share the mean of
    their ranks, without which the order of the many words that come once would be an accident."""
    values = np.array(list(counts.values()), dtype=np.int64)
    distinct, inverse, sizes = np.unique(values, return_inverse=True, return_counts=True)
    more = len(values) - np.cumsum(sizes)  # forms that are more frequent
    ranks = (more + (sizes + 1) / 2)[inverse] if len(distinct) else np.zeros(0)
    return dict(zip(counts, ranks.tolist(), strict=True))


def tags_for(sentences: Sentences, tagged: TaggedText) -> np.ndarray:
    """Tags of a tagged text for the same sentences in another place.

    A sentence is found by its characters, white space aside. Where it is divided into other words there, a word has the
    tag of the word in which it begins.

    Args:
        sentences: those whose tags are wanted.
        tagged: a text that has them among its own.

    Returns:
        for every word of `sentences` the number of its tag in `tagged.tags.names`, −1 where the sentence is not there;
        int32 `[n_words]`.
    """
    starts = offsets_of(tagged.sentences.lengths())
    places: dict[str, tuple[tuple[str, ...], int]] = {}
    for number, sentence in enumerate(tagged.sentences):
        places.setdefault("".join(sentence.words), (sentence.words, int(starts[number])))
    tags: list[np.ndarray] = []
    for sentence in sentences:
        words, start = places.get("".join(sentence.words), ((), 0))
        if not words:
            tags.append(np.full(len(sentence), -1, dtype=np.int32))
        elif words == sentence.words:
            tags.append(tagged.tags.codes[start : start + len(words)])
        else:
            ends = np.cumsum([len(word) for word in words])
            begins = np.cumsum([0, *(len(word) for word in sentence.words[:-1])])
            tags.append(tagged.tags.codes[start + np.searchsorted(ends, begins, side="right")])
    return np.concatenate(tags).astype(np.int32) if tags else np.zeros(0, dtype=np.int32)
