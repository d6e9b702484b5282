"""Make an artificial language by renaming every word of a text, and score retrieval of words outside the dictionary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calque.pairs import WordPairs
from calque.tasks.retrieval import retrieve
from calque.vectors import Embeddings

RARE = "<rare>"  # replaces every word that is not among the most frequent

Words = Sequence[str]


@dataclass(frozen=True)
class Renamed:
    """Two languages, one of which is the other with every word renamed.

    Attributes:
        first, second: text of each language; the two are not translations.
        test: held-out sentences in both languages, translated word by word.
        names: each word of the first language with its name in the second, most frequent first.
        dictionary: the half of these pairs that training may use.
    """

    first: list[list[str]]
    second: list[list[str]]
    test: list[tuple[list[str], list[str]]]
    names: dict[str, str]
    dictionary: dict[str, str]


def rename(
    sentences: Sequence[Words], *, held_out: int = 1000, words: int = 6000, known: float = 0.5, seed: int = 0
) -> Renamed:
    """Make two languages of one text: half of the sentences stay unchanged, and all words of the other half are renamed.

    Args:
        sentences: the text, which is shuffled so that both halves are alike.
        held_out: number of sentences for the parallel test text, which are in neither half.
        words: number of frequent words to keep; other words become `<rare>`, which has a name too.
        known: fraction of the word types in the dictionary.
        seed: seed of the order, the names and the dictionary.
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
    """Return a new unique form for each word, of about its length and 3 to 10 letters."""
    taken, names = set(types), []
    consonants, vowels = list("bcdfghjklmnpqrstvwxz"), list("aeiouy")
    for word in types:
        length = min(max(len(word), 3), 10)
        name = ""
        while not name or name in taken:
            start = int(rng.integers(2))
            name = "".join(str(rng.choice((consonants, vowels)[(start + k) % 2])) for k in range(length))
            length += name in taken and rng.random() < 0.1  # all short forms may be in use
        taken.add(name)
        names.append(name)
    return names


def score_retrieval(
    test: Sequence[tuple[Words, Words]], source: Embeddings, target: Embeddings, hidden: set[str]
) -> dict[str, float | int]:
    """Return contextual word retrieval by CSLS of the words outside the dictionary, among all words of the other language.

    Every occurrence of such a word is a query, in both directions; a word without a vector counts as wrong. `accuracy` is
    token-level: the occurrence in the translated sentence must be found. `accuracy_of_the_word` is type-level: any occurrence
    of the right word counts.

    Args:
        test: test sentences, translated word by word.
        source, target: vectors of their words.
        hidden: query words, in the first language.
    """
    asked = [[(k, k) for k, word in enumerate(line) if word in hidden] for line, _ in test]
    found = retrieve(source, target, WordPairs.of(asked))
    total = len(found.queries) + found.dropped
    forms = [np.array([word for pair in test for word in pair[side]]) for side in (0, 1)]
    pairs = WordPairs.of(asked)
    rows = source.rows(pairs.sentence, pairs.source)[found.queries]
    figures: dict[str, float | int] = {"queries": total, "words": len(hidden & set(forms[0].tolist()))}
    directions = (
        ("forward", found.source_hits, found.target_lists[:, 0], forms[1]),
        ("backward", found.target_hits, found.source_lists[:, 0], forms[0]),
    )
    for name, hits, nearest, words in directions:
        figures[f"accuracy_{name}"] = float(hits.sum() / total)
        figures[f"accuracy_of_the_word_{name}"] = float((words[nearest] == words[rows]).sum() / total)
    for name in ("accuracy", "accuracy_of_the_word"):
        figures[name] = (figures[f"{name}_forward"] + figures[f"{name}_backward"]) / 2
    return figures
