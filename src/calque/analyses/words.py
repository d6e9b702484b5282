"""Word-by-word comparisons of several encoders: ambiguous words, and word pairs as points in a
plot.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy.stats import entropy

from calque.analyses.questions import NOTHING, SIDES, Finding, Questions, View
from calque.errors import MissingExtraError, SettingError
from calque.offsets import offsets_of
from calque.tasks.overlap import word_types
from calque.text import Sentences

_OPEN = ("NOUN", "PROPN", "ADV", "ADJ", "VERB")
_PIECE = 5  # minimum length of a common substring that makes two translations match
# number of most frequent word types that are treated as function words if there are no tags
_FREQUENT = 100
_SENSES = 3  # maximum number of senses shown per word type
PROJECTIONS = ("auto", "pca", "tsne")


# -- ambiguous words whose translation only some encoders find (Cao et al. 2020, A.3) --------------
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
            first = group[0]
            matcher = SequenceMatcher(None, word, first, autojunk=False)
            n_shared = matcher.find_longest_match().size
            min_shared = math.ceil(0.6 * max(len(word), len(first)))
            if word[:min_shared] == first[:min_shared] or n_shared >= max(min_shared, _PIECE):
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
    right = _right_answers(questions, views)
    ambiguous = _ambiguous_types(questions, right, min_count)
    items = []
    for form in ambiguous[:forms]:
        for link in form.links:
            item = _item(questions, views, right, link, form.word)
            items.append({**item, "entropy": form.bits, "translations": form.translations})
    about = {"encoders": [view.name for view in views], "forms_found": len(ambiguous)}
    return [
        questions.finding("examples", None, "examples", NOTHING, len(items), about, items=items)
    ]


class _Ambiguous(NamedTuple):
    """Source word type with several senses.

    Attributes:
        bits: entropy of the senses.
        translations: number of links of each sense, keyed by its first translation.
        links: the links to show, one for each sense.
        rank: sort key, see `_chosen`.
    """

    word: str
    bits: float
    translations: dict[str, int]
    links: list[int]
    rank: tuple[int, int]


def _right_answers(questions: Questions, views: Sequence[View]) -> np.ndarray:
    """Return, for each encoder and link, 1 (correct), 0 (wrong) or −1 (not a query), int64
    `[n_views, n_pairs]`.
    """
    right = np.full((len(views), len(questions.pairs)), -1, dtype=np.int64)
    for hits, view in zip(right, views, strict=True):
        hits[view.answers.queries] = view.answers.source_hits
    return right


def _ambiguous_types(questions: Questions, right: np.ndarray, min_count: int) -> list[_Ambiguous]:
    """Return the word types with at least two senses, of which only some encoders find one, sorted
    as in `examples`.
    """
    # A link is compared only if it is a query of every encoder.
    links_by_form = _links_by_type(questions, np.all(right >= 0, axis=0))
    counts = translations_of(questions, set(links_by_form))
    forms = []
    for word, links_by_translation in links_by_form.items():
        groups = _frequent_senses(counts[word], min_count)
        if len(groups) < 2:
            continue
        links_by_sense: list[list[int]] = []
        for translations, _ in groups:
            links = [links_by_translation.get(translation, []) for translation in translations]
            links_by_sense.append(list(chain.from_iterable(links)))
        choice = _chosen(links_by_sense, right)
        if choice is None:
            continue
        rank, chosen_links = choice
        bits = round(float(entropy([n for _, n in groups], base=2)), 3)
        n_links = {translations[0]: n for translations, n in groups}
        forms.append(_Ambiguous(word, bits, n_links, chosen_links, rank))
    return sorted(forms, key=lambda form: (-form.bits, *form.rank, form.word))


def _links_by_type(questions: Questions, usable: np.ndarray) -> dict[str, dict[str, list[int]]]:
    """Return the links of content words, keyed by source word type and target word type. With a
    training text, only links of seen word pairs are returned. Links between identical words are
    left out.

    Args:
        usable: mask of the links that may be returned, bool `[n_pairs]`.
    """
    usable = usable & _content_words(questions)
    if questions.unseen is not None:
        usable &= (
            ~questions.unseen
        )  # leaves seen pairs and identical words, which are skipped below
    source_types, target_types = (_linked_types(questions, side) for side in SIDES)
    links_by_type: dict[str, dict[str, list[int]]] = {}
    for link in np.flatnonzero(usable).tolist():
        source, target = source_types[link], target_types[link]
        if source != target:
            links_by_type.setdefault(source, {}).setdefault(target, []).append(link)
    return links_by_type


def _frequent_senses(counts: Counter[str], min_count: int) -> list[tuple[list[str], int]]:
    """Return the senses whose translations occur at least `min_count` times, with this number. The
    first translation of a sense is the most frequent one.
    """
    groups = []
    for translations in senses(sorted(counts, key=lambda word: (-counts[word], word))):
        n = sum(counts[translation] for translation in translations)
        if n >= min_count:
            groups.append((translations, n))
    return groups


def _linked_types(questions: Questions, side: str) -> list[str]:
    """Return the word type of each link's word on one side."""
    numbers, types = questions.types[side]
    return [types[number] for number in numbers[questions.rows[side]].tolist()]


def _content_words(questions: Questions) -> np.ndarray:
    """Return the mask of links whose source word is a content word, bool `[n_pairs]`."""
    # Cao et al. use part-of-speech tags; without tags, frequency is a rough substitute.
    if "source" in questions.tags:
        tags, names = questions.tags["source"]
        # The last entry is for the tag number −1 of unknown tags.
        is_open = np.array([name in _OPEN for name in names] + [False])
        return is_open[tags][questions.rows["source"]]
    types, counts = questions.types["source"][1], questions.counts["source"]
    by_frequency = sorted(types, key=lambda word: -counts[word])
    function_words = set(by_frequency[: min(_FREQUENT, len(types) // 10)])
    is_content = []
    for word in types:
        has_letter = any(character.isalpha() for character in word)
        is_content.append(has_letter and word not in function_words)
    return questions.of_links("source", is_content).astype(bool)


def translations_of(questions: Questions, wanted: set[str]) -> dict[str, Counter[str]]:
    """Count the links from each source word type in `wanted` to each target word type, in test and
    training text.
    """
    counts: dict[str, Counter[str]] = {word: Counter() for word in wanted}
    linked_texts = [(questions.corpus, questions.pairs)]
    train, train_pairs = questions.task.train, questions.task.links[1]
    if train is not None and train_pairs is not None:
        linked_texts.append((train, train_pairs))
    for text, pairs in linked_texts:
        source, source_types = _types_of_links(text.source, pairs.sentence, pairs.source)
        target, target_types = _types_of_links(text.target, pairs.sentence, pairs.target)
        is_wanted = np.array([word in wanted for word in source_types], dtype=bool)[source]
        # Each pair of types is encoded as one number.
        width = len(target_types)
        codes = source[is_wanted] * width + target[is_wanted]
        distinct, occurrences = np.unique(codes, return_counts=True)
        for code, n in zip(distinct.tolist(), occurrences.tolist(), strict=True):
            counts[source_types[code // width]][target_types[code % width]] += n
    return counts


def _types_of_links(
    sentences: Sentences, sentence: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Return the type index of each link's word, int64 `[n_pairs]`, and the list of types.

    Args:
        sentence, positions: sentence of each link, and position of its word in this sentence, int64
            `[n_pairs]`.
    """
    numbers, types = word_types(sentences)
    return numbers[offsets_of(sentences.lengths())[sentence] + positions], types


def _chosen(
    links: Sequence[Sequence[int]], right: np.ndarray
) -> tuple[tuple[int, int], list[int]] | None:
    """Choose one token per sense; return a sort key (lower is better) and the tokens, or None if
    there is nothing to show.

    Args:
        links: links of each sense.
        right: result of each encoder on each link, `[n_encoders, n_pairs]`, see `examples`.
    """

    def rank(k: int) -> tuple[bool, int, int, int]:
        """Prefer tokens on which encoders differ, then tokens that the first encoder gets wrong and
        many encoders get right.
        """
        return bool(right[:, k].all()), int(right[0, k]), -int(right[:, k].sum()), k

    best = []
    for links_of_sense in links:
        # Keep the tokens that at least one encoder gets right.
        answered = [link for link in links_of_sense if right[:, link].any()]
        if answered:
            best.append(min(answered, key=rank))
    best.sort(key=lambda k: (right[:, k].all(), right[0, k], k))
    best = best[:_SENSES]
    n_differ = int((right[:, best] == 0).any(axis=0).sum())
    n_gained = int((right[0, best] == 0).sum())
    if len(best) < 2 or not n_differ:
        return None
    return (-n_gained, -n_differ), best


def _item(
    questions: Questions, views: Sequence[View], right: np.ndarray, link: int, form: str
) -> dict[str, object]:
    """Return one token, its translation, and the word that each encoder retrieved, as a
    JSON-compatible dictionary.
    """
    pairs, offsets = questions.pairs, questions.offsets["target"]
    number = int(pairs.sentence[link])
    translation = questions.corpus.target[number].words
    answers = {}
    for hits, view in zip(right, views, strict=True):
        query = np.flatnonzero(view.answers.queries == link)[0]
        row = int(view.answers.target_lists[query, 0])
        word, words = None, ()
        if row >= 0:
            sentence = int(np.searchsorted(offsets, row, side="right")) - 1
            words = questions.corpus.target[sentence].words
            word = words[row - int(offsets[sentence])]
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


# -- points (Cao et al. 2020, Fig. 1) --------------------------------------------------------------
def principal_axes(x: np.ndarray, n: int = 2) -> np.ndarray:
    """Project vectors onto their first `n` principal components, float64 `[len(x), n]`. The sign of
    a component is arbitrary; it is chosen so that the coordinate with the largest absolute value is
    positive."""
    centred = np.asarray(x, dtype=np.float64) - np.mean(x, axis=0, dtype=np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    # With fewer than n components, the remaining coordinates are 0.
    coordinates = np.zeros((len(x), n))
    coordinates[:, : min(n, len(s))] = (u * s)[:, :n]
    largest = np.abs(coordinates).argmax(axis=0)
    signs = np.sign(coordinates[largest, np.arange(n)])
    return coordinates * np.where(signs == 0, 1.0, signs)


def project(x: np.ndarray, method: str = "auto", *, seed: int = 0) -> tuple[np.ndarray, str]:
    """Project vectors to two dimensions; return the coordinates, float64 `[n, 2]`, and the name of
    the projection method.

    Args:
        method: projection method: "pca"; "tsne" (van der Maaten and Hinton 2008), which requires
            scikit-learn and is initialised with the principal components; or "auto", which is t-SNE
            if scikit-learn is installed and PCA otherwise.

    Raises:
        MissingExtraError: `method` is "tsne", but scikit-learn is not installed.
    """
    if method not in PROJECTIONS:
        raise SettingError(f"projection must be one of {', '.join(PROJECTIONS)}, got {method!r}")
    has_sklearn = importlib.util.find_spec("sklearn") is not None
    if method == "tsne" and not has_sklearn:
        raise MissingExtraError("scikit-learn", "plots", "t-SNE")
    if method == "pca" or not has_sklearn or len(x) < 5:
        return principal_axes(x), "pca"
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(x) - 1) / 3)  # must be less than the number of vectors
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1)
    return np.asarray(tsne.fit_transform(x), dtype=np.float64), "tsne"


def chosen_pairs(
    questions: Questions, views: Sequence[View], n: int, *, seed: int = 0
) -> np.ndarray:
    """Sample random links for the plot from the queries that all encoders share; return the links'
    indices in text order.

    The two words of a link contain only letters and are spelt differently. Each source word type is
    sampled at most once.
    """
    # All plots show the same words, so the encoders can be compared.
    usable = np.arange(len(questions.pairs))
    for view in views:
        usable = np.intersect1d(usable, view.answers.queries)
    source_types, target_types = (_linked_types(questions, side) for side in SIDES)
    link_of_type: dict[str, int] = {}
    for link in np.random.default_rng(seed).permutation(usable).tolist():
        source, target = source_types[link], target_types[link]
        has_only_letters = source.isalpha() and target.isalpha()
        if has_only_letters and source != target and source not in link_of_type:
            link_of_type[source] = link
        if len(link_of_type) == n:
            break
    return np.sort(np.array(list(link_of_type.values()), dtype=np.int64))


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
    if not views:
        return []
    links = chosen_pairs(questions, views, pairs, seed=seed)
    if len(links) < 2:
        return []
    words = _words_of_points(questions, links)
    findings = []
    for view in views:
        # Both languages must be projected together to lie in one plane.
        vectors = np.concatenate([view.units[side][questions.rows[side][links]] for side in SIDES])
        coordinates, method = project(vectors, projection, seed=seed)
        items = []
        for (x, y), word in zip(coordinates.tolist(), words, strict=True):
            items.append({"x": round(x, 4), "y": round(y, 4), **word})
        about = {"projection": method, "seed": seed}
        findings.append(
            questions.finding("points", view, method, NOTHING, len(links), about, items=items)
        )
    return findings


def _words_of_points(questions: Questions, links: np.ndarray) -> list[dict[str, object]]:
    """Return the fields of the points that are the same for every encoder, those of the source
    words first.
    """
    positions = {"source": questions.pairs.source, "target": questions.pairs.target}
    words = []
    for lang, side in zip(questions.langs, SIDES, strict=True):
        codes, names = questions.tags.get(side, (None, ()))
        for pair, link in enumerate(links.tolist()):
            sentence = questions.sentences(side)[int(questions.pairs.sentence[link])].words
            row = questions.rows[side][link]
            tag = None
            if codes is not None and codes[row] >= 0:
                tag = names[int(codes[row])]
            words.append(
                {
                    "word": sentence[int(positions[side][link])],
                    "sentence": " ".join(sentence),
                    "lang": lang,
                    "pair": pair,
                    "upos": tag,
                }
            )
    return words
