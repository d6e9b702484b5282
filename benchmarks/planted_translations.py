"""A language made by renaming every word of a text, and whether words of its other half are found without a dictionary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calque.pairs import WordPairs
from calque.tasks.retrieval import retrieve
from calque.vectors import Embeddings

RARE = "<rare>"  # stands for every word that is not among the most frequent

Words = Sequence[str]


@dataclass(frozen=True)
class Renamed:
    """Two languages, one of which is the other with every word renamed.

    Attributes:
        first, second: text in each; not translations of each other.
        test: held-out sentences in both languages, word by word the same.
        names: each word of the first language and its name in the second, the most frequent first.
        dictionary: the half of these pairs that training may see.
    """

    first: list[list[str]]
    second: list[list[str]]
    test: list[tuple[list[str], list[str]]]
    names: dict[str, str]
    dictionary: dict[str, str]


def rename(
    sentences: Sequence[Words], *, held_out: int = 1000, words: int = 6000, known: float = 0.5, seed: int = 0
) -> Renamed:
    """Make two languages of one text: the first half of its sentences stays, the second gets other words.

    Args:
        sentences: the text; its order is drawn anew, or the halves would differ in kind.
        held_out: sentences that are in neither half and become parallel test text.
        words: the most frequent words, of both halves together; any other becomes `<rare>`, which has a name too.
        known: share of the word types that the dictionary holds.
        seed: of the order, the names and the dictionary.
    """
    rng = np.random.default_rng(seed)
    order: list[int] = rng.permutation(len(sentences)).tolist()
    lines = [list(sentences[k]) for k in order]
    counts = Counter(word for line in lines for word in line)
    kept = [word for word, _ in counts.most_common(words)]
    known_words = set(kept)
    lines = [[word if word in known_words else RARE for word in line] for line in lines]
    types = [*kept, RARE] if len(counts) > len(kept) else kept
    names = dict(zip(types, made_up(types, rng), strict=True))
    chosen = set(rng.permutation(len(kept))[: round(known * len(kept))].tolist())
    test, rest = lines[:held_out], lines[held_out:]
    half = len(rest) // 2
    return Renamed(
        first=rest[:half],
        second=[[names[word] for word in line] for line in rest[half:]],
        test=[(line, [names[word] for word in line]) for line in test],
        names=names,
        dictionary={word: names[word] for k, word in enumerate(kept) if k in chosen},
    )


def made_up(types: Sequence[str], rng: np.random.Generator) -> list[str]:
    """For each word a form of about its length, from 3 letters to 10, that is neither a word nor the name of another."""
    taken, names = set(types), []
    consonants, vowels = list("bcdfghjklmnpqrstvwxz"), list("aeiouy")
    for word in types:
        length = min(max(len(word), 3), 10)
        name = ""
        while not name or name in taken:
            start = int(rng.integers(2))
            name = "".join(str(rng.choice((consonants, vowels)[(start + k) % 2])) for k in range(length))
            length += name in taken and rng.random() < 0.1  # short forms may all be taken
        taken.add(name)
        names.append(name)
    return names


def score_retrieval(
    test: Sequence[tuple[Words, Words]], source: Embeddings, target: Embeddings, hidden: set[str]
) -> dict[str, float | int]:
    """Contextual word retrieval (CSLS, all words of the other side to choose from) of words that no dictionary told.

    Every occurrence of such a word asks, in both directions; a word without a vector is wrong. `accuracy` is how often the
    very occurrence is found that stands at its place in the other language; `accuracy_of_the_word` how often an occurrence of
    the right word is found, wherever it stands.

    Args:
        test: the test sentences, word by word the same.
        source, target: the vectors of their words.
        hidden: the words, of the first language, that ask.
    """
    asked = [[(k, k) for k, word in enumerate(line) if word in hidden] for line, _ in test]
    found = retrieve(source, target, WordPairs.of(asked))
    total = len(found.queries) + found.dropped
    forms = [np.array([word for pair in test for word in pair[side]]) for side in (0, 1)]
    pairs = WordPairs.of(asked)
    rows = source.rows(pairs.sentence, pairs.source)[found.queries]
    figures: dict[str, float | int] = {"queries": total, "words": len(hidden & set(forms[0].tolist()))}
    directions = (
        ("forward", found.source_hits, found.nearest_targets, forms[1]),
        ("backward", found.target_hits, found.nearest_sources, forms[0]),
    )
    for name, hits, nearest, words in directions:
        figures[f"accuracy_{name}"] = float(hits.sum() / total)
        figures[f"accuracy_of_the_word_{name}"] = float((words[nearest] == words[rows]).sum() / total)
    for name in ("accuracy", "accuracy_of_the_word"):
        figures[name] = (figures[f"{name}_forward"] + figures[f"{name}_backward"]) / 2
    return figures
