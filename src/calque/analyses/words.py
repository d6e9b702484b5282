"""Word-by-word comparisons of several encoders: ambiguous words, and word pairs as points in a
plot.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from scipy.stats import entropy

from calque.analyses.questions import NOTHING, SIDES, Finding, Questions, View
from calque.errors import MissingExtraError, SettingError
from calque.offsets import offsets_of
from calque.tasks.overlap import word_types

_OPEN = ("NOUN", "PROPN", "ADV", "ADJ", "VERB")
_PIECE = 5  # minimum length of a common substring that makes two translations match
# number of most frequent word types that are treated as function words if there are no tags
_FREQUENT = 100
_SENSES = 3  # maximum number of senses shown per word type
PROJECTIONS = ("auto", "pca", "tsne")


# -- ambiguous words whose translation only some encoders find (Cao et al. 2020, A.3)
# ---------------------------------------
def senses(translations: Sequence[str]) -> list[list[str]]:
    """Group translations that look like inflections of one word. A translation joins the first
    group whose first word matches.

    Two translations match if a common prefix, or a common substring of at least five letters,
    covers at least 60% of the longer translation. This heuristic groups `gehen` with `geht` and
    `machte` with `gemacht`, but not `gehen` with `ging`.
    """
    groups: list[list[str]] = []
    for word in translations:
        for group in groups:
            shared = SequenceMatcher(None, word, group[0], autojunk=False).find_longest_match().size
            enough = math.ceil(0.6 * max(len(word), len(group[0])))
            if word[:enough] == group[0][:enough] or shared >= max(enough, _PIECE):
                group.append(word)
                break
        else:
            groups.append([word])
    return groups


def examples(
    questions: Questions, views: Sequence[View], *, forms: int = 8, min_count: int = 3
) -> list[Finding]:
    """Find ambiguous source words whose translations only some encoders retrieve correctly.

    A sense is a group of similar translations (see `senses`) that are linked to the word type at
    least `min_count` times in test and training text. A word type is shown if some encoder
    retrieves a correct translation for at least two of its senses, and another encoder fails on one
    of these senses. Word types are sorted by the entropy of their senses. Each sense is shown with
    one token, preferably one that only the later encoders get right. Function words are excluded.
    With tags, only open-class words are kept; without tags, the 100 most frequent word types and
    word types without letters are dropped. With a training text, only translations whose word types
    are also linked in the training text are used, because test links contain errors.

    Args:
        views: results of the encoders, the unaligned encoder first.
        forms: maximum number of word types to show.

    Raises:
        SettingError: `views` contains only one encoder.
    """
    if len(views) < 2:
        raise SettingError(
            "examples must compare at least two encoders, got one; add the unaligned encoder"
        )
    right = np.full(
        (len(views), len(questions.pairs)), -1, dtype=np.int64
    )  # 1: correct, 0: wrong, −1: not a query
    for hits, view in zip(right, views, strict=True):
        hits[view.answers.queries] = view.answers.source_hits
    usable = (right >= 0).all(axis=0) & _content_words(questions)
    if questions.unseen is not None:
        usable &= ~questions.unseen  # keep links seen in training and links between identical words
    by_form: dict[str, dict[str, list[int]]] = {}
    own, theirs = (_linked_types(questions, side) for side in SIDES)
    for link in np.flatnonzero(usable).tolist():
        if own[link] != theirs[link]:
            by_form.setdefault(own[link], {}).setdefault(theirs[link], []).append(link)
    counts = translations_of(questions, set(by_form))
    ranked = []
    for form, translations in by_form.items():
        often = counts[form]
        found = senses(
            sorted(often, key=lambda t: (-often[t], t))
        )  # the most frequent translations first
        groups = [(group, n) for group in found if (n := sum(often[t] for t in group)) >= min_count]
        if len(groups) < 2:
            continue
        chosen = _chosen(
            [[link for t in group for link in translations.get(t, [])] for group, _ in groups],
            right,
        )
        if chosen is not None:
            bits = round(float(entropy([n for _, n in groups], base=2)), 3)
            shown = {"entropy": bits, "translations": {group[0]: n for group, n in groups}}
            ranked.append(((-bits, *chosen[0], form), shown, chosen[1]))
    ranked.sort(key=lambda entry: entry[0])
    items = [
        _item(questions, views, right, link, key[-1]) | shown
        for key, shown, links in ranked[:forms]
        for link in links
    ]
    about = {"encoders": [view.name for view in views], "forms_found": len(ranked)}
    return [
        questions.finding("examples", None, "examples", NOTHING, len(items), about, items=items)
    ]


def _linked_types(questions: Questions, side: str) -> list[str]:
    numbers, types = questions.types[side]
    return [types[number] for number in numbers[questions.rows[side]].tolist()]


def _content_words(questions: Questions) -> np.ndarray:
    """Return the mask of links whose source word is a content word, bool `[n_pairs]`."""
    if "source" in questions.tags:
        tags, names = questions.tags["source"]
        return np.array([name in _OPEN for name in names] + [False])[tags][questions.rows["source"]]
    types, counts = questions.types["source"][1], questions.counts["source"]
    frequent = set(
        sorted(types, key=lambda word: -counts[word])[: min(_FREQUENT, len(types) // 10)]
    )
    return questions.of_links(
        "source", [word not in frequent and any(map(str.isalpha, word)) for word in types]
    ).astype(bool)


def translations_of(questions: Questions, wanted: set[str]) -> dict[str, Counter[str]]:
    """Count the links from each source word type in `wanted` to each target word type, in test and
    training text.
    """
    counted: dict[str, Counter[str]] = {word: Counter() for word in wanted}
    for text, pairs in (
        (questions.corpus, questions.pairs),
        (questions.task.train, questions.task.links[1]),
    ):
        if text is None or pairs is None:
            continue
        coded = []
        for sentences, words in ((text.source, pairs.source), (text.target, pairs.target)):
            numbers, types = word_types(sentences)
            coded.append((numbers[offsets_of(sentences.lengths())[pairs.sentence] + words], types))
        (own, types), (theirs, others) = coded
        chosen = np.array([word in wanted for word in types], dtype=bool)[own]
        codes, counts = np.unique(own[chosen] * len(others) + theirs[chosen], return_counts=True)
        for code, n in zip(codes.tolist(), counts.tolist(), strict=True):
            counted[types[code // len(others)]][others[code % len(others)]] += n
    return counted


def _chosen(
    links: Sequence[Sequence[int]], right: np.ndarray
) -> tuple[tuple[int, int], list[int]] | None:
    """Choose one token per sense; return a sort key (lower is better) and the tokens, or None if
    there is nothing to show.
    """

    def rank(k: int) -> tuple[bool, int, int, int]:
        """Prefer tokens on which encoders differ, then tokens that the first encoder gets wrong and
        many encoders get right.
        """
        return bool(right[:, k].all()), int(right[0, k]), -int(right[:, k].sum()), k

    answered = [[link for link in several if right[:, link].any()] for several in links]
    best = [min(several, key=rank) for several in answered if several]
    best = sorted(best, key=lambda k: (right[:, k].all(), right[0, k], k))[:_SENSES]
    differ, gained = int((right[:, best] == 0).any(axis=0).sum()), int((right[0, best] == 0).sum())
    return None if len(best) < 2 or not differ else ((-gained, -differ), best)


def _item(
    questions: Questions, views: Sequence[View], right: np.ndarray, link: int, form: str
) -> dict[str, Any]:
    """Return one token, its translation, and the word that each encoder retrieved, as a
    JSON-compatible dictionary.
    """
    number, pairs, offsets = (
        int(questions.pairs.sentence[link]),
        questions.pairs,
        questions.offsets["target"],
    )
    translation = questions.corpus.target[number].words
    answers = {}
    for hits, view in zip(right, views, strict=True):
        row = int(view.answers.target_lists[np.flatnonzero(view.answers.queries == link)[0], 0])
        sentence = int(np.searchsorted(offsets, row, side="right")) - 1
        words = questions.corpus.target[sentence].words if row >= 0 else ()
        word = words[row - int(offsets[sentence])] if row >= 0 else None
        answers[view.name] = {"word": word, "sentence": " ".join(words), "right": bool(hits[link])}
    return {
        "form": form,
        "lang": questions.langs[0],
        "sentence": " ".join(questions.corpus.source[number].words),
        "position": int(pairs.source[link]),
        "translation": " ".join(translation),
        "expected": {
            "word": translation[int(pairs.target[link])],
            "sentence": " ".join(translation),
        },
        "got": answers,
    }


# -- points (Cao et al. 2020, Fig. 1)
# ----------------------------------------------------------------------------------
def principal_axes(x: np.ndarray, n: int = 2) -> np.ndarray:
    """Project vectors onto their first `n` principal components, float64 `[len(x), n]`. The sign of
    a component is arbitrary; it is chosen so that the coordinate with the largest absolute value is
    positive."""
    centred = np.asarray(x, dtype=np.float64) - np.mean(x, axis=0, dtype=np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(x), n))
    places[:, : min(n, len(s))] = (u * s)[:, :n]
    signs = np.sign(places[np.abs(places).argmax(axis=0), np.arange(n)])
    return places * np.where(signs == 0, 1.0, signs)


def project(x: np.ndarray, how: str = "auto", *, seed: int = 0) -> tuple[np.ndarray, str]:
    """Project vectors to two dimensions; return the coordinates, float64 `[n, 2]`, and the name of
    the projection method.

    Args:
        how: projection method: "pca"; "tsne" (van der Maaten and Hinton 2008), which requires
            scikit-learn and is initialised with the principal components; or "auto", which is t-SNE
            if scikit-learn is installed and PCA otherwise.

    Raises:
        MissingExtraError: `how` is "tsne", but scikit-learn is not installed.
    """
    if how not in PROJECTIONS:
        raise SettingError(f"projection must be one of {', '.join(PROJECTIONS)}, got {how!r}")
    available = importlib.util.find_spec("sklearn") is not None
    if how == "tsne" and not available:
        raise MissingExtraError("scikit-learn", "plots", "t-SNE")
    if how == "pca" or not available or len(x) < 5:
        return principal_axes(x), "pca"
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(x) - 1) / 3)
    places = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(
        x
    )
    return np.asarray(places, dtype=np.float64), "tsne"


def chosen_pairs(
    questions: Questions, views: Sequence[View], n: int, *, seed: int = 0
) -> np.ndarray:
    """Sample random links for the plot from the queries that all encoders share; return the links'
    indices in text order.

    The two words of a link contain only letters and are spelt differently. Each source word type is
    sampled at most once.
    """
    usable = np.ones(len(questions.pairs), dtype=bool)
    for view in views:
        usable &= np.isin(np.arange(len(usable)), view.answers.queries)
    types = [_linked_types(questions, side) for side in SIDES]
    chosen: dict[str, int] = {}
    for link in np.random.default_rng(seed).permutation(np.flatnonzero(usable)).tolist():
        source, target = types[0][link], types[1][link]
        if source not in chosen and source != target and source.isalpha() and target.isalpha():
            chosen[source] = link
        if len(chosen) == n:
            break
    return np.sort(np.array(list(chosen.values()), dtype=np.int64))


def points(
    questions: Questions,
    views: Sequence[View],
    *,
    pairs: int = 100,
    projection: str = "auto",
    seed: int = 0,
) -> list[Finding]:
    """Project at most `pairs` word pairs onto a plane, using the same word pairs for all encoders.
    The vectors of both languages are L2-normalised and projected together; see `project` for
    `projection`."""
    links = (
        chosen_pairs(questions, views, pairs, seed=seed) if views else np.zeros(0, dtype=np.int64)
    )
    if len(links) < 2:
        return []
    positions = {"source": questions.pairs.source, "target": questions.pairs.target}
    words = []  # fields that are the same for every encoder, first of the source words
    for lang, side in zip(questions.langs, SIDES, strict=True):
        codes, names = questions.tags.get(side, (None, ()))
        for pair, link in enumerate(links.tolist()):
            sentence = questions.sentences(side)[int(questions.pairs.sentence[link])].words
            row = questions.rows[side][link]
            words.append(
                {
                    "word": sentence[int(positions[side][link])],
                    "sentence": " ".join(sentence),
                    "lang": lang,
                    "pair": pair,
                    "upos": None if codes is None or codes[row] < 0 else names[int(codes[row])],
                }
            )
    findings = []
    for view in views:
        vectors = np.concatenate([view.units[side][questions.rows[side][links]] for side in SIDES])
        places, how = project(vectors, projection, seed=seed)
        items = [
            {"x": round(x, 4), "y": round(y, 4), **word}
            for (x, y), word in zip(places.tolist(), words, strict=True)
        ]
        about = {"projection": how, "seed": seed}
        findings.append(
            questions.finding("points", view, how, NOTHING, len(links), about, items=items)
        )
    return findings
