"""From the answers of word retrieval to its figures: what counts as found, over which links, which way, and of which origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.tasks.nearest import Retrieved
from calque.tasks.overlap import forms_of
from calque.text import Sentences
from calque.vectors import Embeddings

Both = tuple[np.ndarray, np.ndarray]  # of the source words and of the target words


@dataclass(frozen=True)
class Figure:
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


def figures(
    langs: tuple[str, str],
    pairs: WordPairs,
    answers: Retrieved,
    hits: Mapping[str, Both],
    selections: Mapping[str, np.ndarray],
    origins: Mapping[str, np.ndarray],
) -> Iterator[Figure]:
    """Every figure: for each kind of hit and each selection the mean of both directions, then each direction; then, for
    each origin, the mean alone.

    Args:
        langs: of the text.
        pairs: the links that were asked for.
        answers: what was found.
        hits: bool `[n]` and `[n]` by the name of the metric: the source word found what it should; the target word did.
        selections: bool `[n]` by name, of those answers.
        origins: bool `[n_sentences]` by name.
    """
    sentence = pairs.sentence[answers.queries]
    source, target = langs
    most = int(np.bincount(sentence, minlength=1).max())  # questions of a sentence
    small = np.min_scalar_type(2 * most)  # a byte, as a rule
    for (kind, (forward_hits, backward_hits)), (name, chosen) in (
        (hit, selection) for hit in hits.items() for selection in selections.items()
    ):
        forward, backward, questions = (
            np.bincount(sentence[asked], minlength=pairs.n_sentences).astype(small)
            for asked in (chosen & forward_hits, chosen & backward_hits, chosen)
        )
        metric, n = f"{kind}.{name}", int(chosen.sum())
        both = np.stack([forward + backward, 2 * questions], axis=1)
        yield Figure(metric, both, n)
        yield Figure(f"{metric}.{source}-{target}", np.stack([forward, questions], axis=1), n)
        yield Figure(f"{metric}.{target}-{source}", np.stack([backward, questions], axis=1), n)
        for origin, mine in origins.items():
            about = {"origin": origin, "sentence_pairs": int(mine.sum())}
            yield Figure(f"{metric}.from-{origin}", both * mine[:, None], int(questions[mine].sum()), about)


# -- found by form -----------------------------------------------------------------------------------------------------
def hits_by_form(pairs: WordPairs, answers: Retrieved, source: Embeddings, target: Embeddings, forms: Both) -> Both:
    """Whether the nearest word has the form, in lower case, of the word that is asked for: that occurrence or another one.

    Args:
        pairs: the links that were asked for.
        answers: what was found for them.
        source, target: the vectors that were searched.
        forms: int64 `[n_words]` of each side, the number of each word's form.
    """
    sentence = pairs.sentence[answers.queries]
    rows = [
        side.rows(sentence, words[answers.queries]) for side, words in ((source, pairs.source), (target, pairs.target))
    ]
    forward, backward = (
        (nearest >= 0) & (of_side[nearest] == of_side[wanted])
        for nearest, of_side, wanted in (
            (answers.nearest_targets, forms[1], rows[1]),
            (answers.nearest_sources, forms[0], rows[0]),
        )
    )
    return forward, backward


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
