"""Create an artificial language by renaming all words in a text, and score the retrieval of words outside the dictionary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calque.pairs import WordPairs
from calque.tasks.retrieval import retrieve
from calque.vectors import Embeddings

RARE = "<rare>"  # replaces every word that is not among the most frequent words

Words = Sequence[str]


@dataclass(frozen=True)
class Renamed:
    """Text in a language, and text in an artificial language that renames every word of the first
    language.

    Attributes:
        first, second: text of each language; the two texts are not translations of each other.
        test: held-out sentences in both languages, translated word by word.
        names: name of each word in the second language, most frequent words first.
        dictionary: entries of `names` that training may use; by default, half of all entries.
    """

    first: list[list[str]]
    second: list[list[str]]
    test: list[tuple[list[str], list[str]]]
    names: dict[str, str]
    dictionary: dict[str, str]


def rename(
    sentences: Sequence[Words],
    *,
    held_out: int = 1000,
    words: int = 6000,
    known: float = 0.5,
    seed: int = 0,
) -> Renamed:
    """Create two languages from one text: half of the sentences stay unchanged, and all words in
    the other half are renamed.

    Args:
        sentences: the text, which is shuffled so that both halves have the same distribution.
        held_out: number of sentences in the parallel test text; neither half contains them.
        words: number of frequent word types to keep; other words become `<rare>`, which is renamed,
            too.
        known: fraction of the word types to include in the dictionary.
        seed: random seed for the order of the sentences, the names and the dictionary.
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
    """Return a unique artificial name of 3 to 10 letters for each word, about as long as the
    word.
    """
    taken, names = set(types), []
    consonants, vowels = list("bcdfghjklmnpqrstvwxz"), list("aeiouy")
    for word in types:
        length = min(max(len(word), 3), 10)
        name = ""
        while not name or name in taken:
            start = int(rng.integers(2))
            name = "".join(
                str(rng.choice((consonants, vowels)[(start + k) % 2])) for k in range(length)
            )
            length += name in taken and rng.random() < 0.1  # all short names may be taken
        taken.add(name)
        names.append(name)
    return names


def score_retrieval(
    test: Sequence[tuple[Words, Words]], source: Embeddings, target: Embeddings, hidden: set[str]
) -> dict[str, float | int]:
    """Score contextual word retrieval by CSLS. Queries are words outside the dictionary, and
    candidates are all words.

    Every occurrence of a query word is a query, in both directions; a query without a vector counts
    as wrong. `accuracy` is token-level: the occurrence in the translated sentence must be
    retrieved. `accuracy_of_the_word` is type-level: any occurrence of the correct word is accepted.

    Args:
        test: test sentences, translated word by word.
        source, target: word vectors of the test sentences in the first and second language.
        hidden: query words in the first language.
    """
    asked = [[(k, k) for k, word in enumerate(line) if word in hidden] for line, _ in test]
    found = retrieve(source, target, WordPairs.of(asked))
    total = len(found.queries) + found.dropped
    forms = [np.array([word for pair in test for word in pair[side]]) for side in (0, 1)]
    pairs = WordPairs.of(asked)
    rows = source.rows(pairs.sentence, pairs.source)[found.queries]
    figures: dict[str, float | int] = {
        "queries": total,
        "words": len(hidden & set(forms[0].tolist())),
    }
    directions = (
        ("forward", found.source_hits, found.target_lists[:, 0], forms[1]),
        ("backward", found.target_hits, found.source_lists[:, 0], forms[0]),
    )
    for name, hits, nearest, words in directions:
        figures[f"accuracy_{name}"] = float(hits.sum() / total)
        figures[f"accuracy_of_the_word_{name}"] = float(
            (words[nearest] == words[rows]).sum() / total
        )
    for name in ("accuracy", "accuracy_of_the_word"):
        figures[name] = (figures[f"{name}_forward"] + figures[f"{name}_backward"]) / 2
    return figures
