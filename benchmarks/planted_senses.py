"""Plant pseudo-words with known senses in a text, and score the senses that a model induces for the pseudo-words.

A pseudo-word replaces two to four real words of a text, and each of these words is one of its senses (Gale, Church and Yarowsky
1992; Schütze 1992). The joined words have different neighbours in the text, so the senses can be identified from context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import homogeneity_completeness_v_measure

from benchmarks.planted_words import (
    Words,
    as_frequent,
    confusions,
    contexts,
    frequent_words,
    group_unlike,
    known_words,
    least_confused,
    neighbour_chances,
    occurrences,
    one_side,
)
from calque.errors import InputError

NONE = "-"  # marks words without a sense, in both the gold and the induced senses
_SPARE = 1.2  # number of candidates per kept pseudo-word


@dataclass(frozen=True)
class Planted:
    """A text with pseudo-words.

    Attributes:
        sentences: the text with pseudo-words in place of their members.
        truth: gold sense of each word in each sentence: the index of the replaced member, or `-`
            for other words.
        members: words that each pseudo-word replaces, in the order of their sense indices.
        controls: unchanged words, each about as frequent as one of the members.
    """

    sentences: list[list[str]]
    truth: list[list[str]]
    members: dict[str, tuple[str, ...]]
    controls: tuple[str, ...]


def plant(
    sentences: Sequence[Words],
    *,
    words: int = 60,
    per_pseudo: tuple[int, int] = (2, 4),
    at_least: int = 100,
    unlike: bool = True,
    seed: int = 0,
) -> Planted:
    """Replace frequent words in a text with pseudo-words, and record the replaced words as gold
    senses.

    Args:
        sentences: the text in lower case.
        words: number of pseudo-words.
        per_pseudo: minimum and maximum number of members; each number in this range is used for
            equally many pseudo-words.
        at_least: minimum number of occurrences of a member.
        unlike: whether to join only words with different neighbours; if false, join any words of
            similar frequency.
        seed: random seed for the order in which pseudo-words are formed.

    Raises:
        InputError: the text has too few frequent words.
    """
    counts = Counter(word for sentence in sentences for word in sentence)
    pool = frequent_words(sentences, counts, at_least)
    sizes = np.resize(np.arange(per_pseudo[0], per_pseudo[1] + 1), words)
    needed = round(_SPARE * sizes.sum()) + words
    if len(pool) < needed:
        raise InputError(
            f"{words} pseudo-words require {needed} words that occur at least {at_least} times, "
            f"got {len(pool)}; use more text or fewer pseudo-words"
        )
    frequency = np.array([counts[word] for word in pool])
    tried = np.resize(np.arange(per_pseudo[0], per_pseudo[1] + 1), round(_SPARE * words))
    rng = np.random.default_rng(seed)
    if unlike:
        wrong = confusions(sentences, pool)
        tried = rng.permutation(tried)
        groups = least_confused(
            group_unlike(wrong, frequency, tried), wrong, Counter(sizes.tolist())
        )
    else:
        groups, free = [], rng.permutation(len(pool)).tolist()
        for size in rng.permutation(sizes).tolist():
            near = [
                k for k in free if frequency[free[0]] <= 2 * frequency[k] <= 4 * frequency[free[0]]
            ][:size]
            groups.append(near)
            free = [k for k in free if k not in near]
    members = {}
    for group in groups:
        parts = tuple(pool[k] for k in group)
        form = "".join(parts)
        while form in counts or form in members:
            form += parts[0]
        members[form] = parts
    taken = [k for group in groups for k in group]
    controls = as_frequent(frequency, [group[0] for group in groups], taken)
    return Planted(*replace(sentences, members), members, tuple(pool[k] for k in controls))


def replace(
    sentences: Sequence[Words], members: dict[str, tuple[str, ...]]
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the text with pseudo-words in place of their members, and the gold senses."""
    place = {
        part: (form, str(k)) for form, parts in members.items() for k, part in enumerate(parts)
    }
    both = [[place.get(word, (word, NONE)) for word in sentence] for sentence in sentences]
    return [[word for word, _ in line] for line in both], [
        [number for _, number in line] for line in both
    ]


def supervised(
    train: Sequence[Words],
    train_truth: Sequence[Words],
    test: Sequence[Words],
    test_truth: Sequence[Words],
    form: str,
    *,
    sides: str = "both",
) -> tuple[list[str], list[str]]:
    """Return the gold senses of a pseudo-word in the test text, and the predictions of a supervised
    naive Bayes classifier.
    """
    known = known_words(train)
    tables, labels = [], []
    for text, truth in ((train, train_truth), (test, test_truth)):
        places, _ = occurrences(text, [form])
        tables.append(one_side(contexts(text, places, known), sides))
        labels.append(np.array([int(truth[i][j]) for i, j in places]))
    classes = int(labels[0].max()) + 1
    prior = np.log(np.bincount(labels[0], minlength=classes))
    found = (tables[1] @ neighbour_chances(tables[0], labels[0], classes).T + prior).argmax(axis=1)
    return [str(k) for k in labels[1]], [str(k) for k in found]


# -- agreement of induced and gold senses ----------------------------------------------------------
def score_found(
    text: Sequence[Words],
    truth: Sequence[Words],
    found: Sequence[Words],
    forms: Sequence[str],
    controls: Sequence[str],
) -> dict[str, float | int]:
    """Return the mean agreement of induced and gold senses, and the mean fraction of a control
    word's most frequent sense.

    Agreement is measured by homogeneity, completeness and V-measure (Rosenberg and Hirschberg 2007,
    with β = 1). All occurrences without an induced sense are counted as one sense.
    """
    agreements, senses, unfound, uses = [], [], 0, 0
    for form in forms:
        places, _ = occurrences(text, [form])
        if not places:
            continue
        selected = [found[i][j] for i, j in places]
        agreements.append(
            homogeneity_completeness_v_measure([truth[i][j] for i, j in places], selected)
        )
        senses.append(len(set(selected)))
        unfound += selected.count(NONE)
        uses += len(places)
    shares = []
    for word in controls:
        places, _ = occurrences(text, [word])
        uses_of = Counter(found[i][j] for i, j in places)
        shares += [uses_of.most_common(1)[0][1] / len(places)] if places else []
    return {
        **dict(
            zip(
                ("homogeneity", "completeness", "v_measure"),
                np.mean(agreements, axis=0).tolist(),
                strict=True,
            )
        ),
        "pseudo_words": len(agreements),
        "occurrences": uses,
        "without_sense": unfound,
        "senses_selected": float(np.mean(senses)),
        "controls": len(shares),
        "controls_share_of_one": float(np.mean(shares)),
        "controls_whole": float(np.mean(np.array(shares) == 1)),
        "controls_with_90_percent_in_one": float(np.mean(np.array(shares) >= 0.9)),
    }
