"""One form in several senses: where encoders differ in finding the translation (Cao et al. 2020, A.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from calque.analyses.finding import Finding
from calque.analyses.questions import NOTHING, Questions, View
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.tasks.overlap import forms_of

_OPEN = ("NOUN", "PROPN", "ADV", "ADJ", "VERB")
_PIECE = 5  # letters that words must share where they do not begin alike
_FREQUENT = 100  # without tags: so many of the most frequent forms are taken for function words
_SENSES = 3  # of a form that are shown


def senses(translations: Sequence[str]) -> list[list[str]]:
    """Translations in groups that look like forms of one word: they begin alike for six tenths of the longer one, or
    share so long a piece elsewhere that has five letters or more.

    A guess: it takes `gehen` and `geht` together, and `machte` and `gemacht`, not `gehen` and `ging`.

    Args:
        translations: in the order of preference; each joins the first group whose first member it is like.
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
    questions: Questions,
    views: Sequence[View],
    *,
    forms: int = 8,
    at_least: int = 3,
    side: str = "source",
) -> list[Finding]:
    """Forms of one language that are linked to different words, found right by some encoders only.

    A sense is a group of translations that look like one word (see `senses`) and are linked to the form at least
    `at_least` times, in test and training text together. Forms come in the order of the entropy of their senses there: those
    that are translated now this way, now that, and not those with one translation and a stray link. A form is shown if
    at least two of its senses are found by some encoder, and the encoders differ in one of them. Of each sense the
    occurrence in which they differ most is shown, the later encoders being right where possible. Function words would
    fill the list: with tags only open-class words are taken, without them no form among the 100 most frequent, and none
    without a letter. Where there is a training text, a translation counts only if the same forms are linked there: the
    links of the test text have errors, too.

    Args:
        views: the encoders' answers, the one before alignment first.
        forms: how many forms at most.
        at_least: links that a sense needs.
        side: whose forms.

    Raises:
        SettingError: there is only one encoder, so that nothing can differ.
    """
    if len(views) < 2:
        raise SettingError("examples compare encoders: give the one before alignment and those after it")
    other: str = "target" if side == "source" else "source"
    right = np.stack([_right(questions, view, side) for view in views])  # 1 right, 0 wrong, −1 not asked
    usable = (right >= 0).all(axis=0) & _meant(questions, side)
    if questions.unseen is not None:
        usable &= ~questions.unseen  # seen in training, or equal forms
    texts = {each: [sentence.words for sentence in questions.sentences(each)] for each in (side, other)}
    word = {"source": questions.pairs.source, "target": questions.pairs.target}
    by_form: dict[str, dict[str, list[int]]] = {}
    own, theirs = (questions.forms[each] for each in (side, other))
    for link in np.flatnonzero(usable).tolist():
        form, translation = (names[numbers[questions.rows[each][link]]]
                             for each, (numbers, names) in ((side, own), (other, theirs)))  # fmt: skip
        if form != translation:
            by_form.setdefault(form, {}).setdefault(translation, []).append(link)
    counts = translations_of(questions, side, set(by_form))
    ranked = []
    for form, translations in by_form.items():
        groups = {group: n for group, n in _groups(counts[form]).items() if n >= at_least}
        if len(groups) < 2:
            continue
        chosen = _chosen([[link for t in group for link in translations.get(t, [])] for group in groups], right)
        if chosen is not None:
            bits = round(entropy(list(groups.values())), 3)
            shown = {"entropy": bits, "translations": {group[0]: n for group, n in groups.items()}}
            ranked.append(((-bits, *chosen[0], form), shown, chosen[1]))
    ranked.sort(key=lambda entry: entry[0])
    items = [
        _item(questions, views, right, link, key[-1], side, other, texts, word) | shown
        for key, shown, links in ranked[:forms]
        for link in links
    ]
    about = {"encoders": [view.name for view in views], "forms_found": len(ranked)}
    score = questions.score("examples", NOTHING, len(items), about)
    return [Finding("examples", None, score, items=items)]


def _right(questions: Questions, view: View, side: str) -> np.ndarray:
    outcomes = np.full(len(questions.pairs), -1, dtype=np.int64)
    hits = view.answers.source_hits if side == "source" else view.answers.target_hits
    outcomes[view.answers.queries] = hits
    return outcomes


def _meant(questions: Questions, side: str) -> np.ndarray:
    """Links whose word means something by itself."""
    numbers, forms = questions.forms[side]
    if side in questions.tags:
        tags, names = questions.tags[side]
        open_class = np.array([name in _OPEN for name in names] + [False])
        return open_class[tags][questions.rows[side]]
    counts = questions.counts[side]
    frequent = set(sorted(forms, key=lambda form: -counts[form])[: min(_FREQUENT, len(forms) // 10)])
    meant = np.array([form not in frequent and any(c.isalpha() for c in form) for form in forms], dtype=bool)
    return meant[numbers[questions.rows[side]]]


def translations_of(questions: Questions, side: str, wanted: set[str]) -> dict[str, dict[str, int]]:
    """How often each of some forms is linked to each form of the other language, in test and training text together."""
    counted: dict[str, dict[str, int]] = {form: {} for form in wanted}
    for text, pairs in ((questions.corpus, questions.pairs), (questions.task.train, questions.task.links[1])):
        if text is None or pairs is None:
            continue
        sides = [(text.source, pairs.source), (text.target, pairs.target)]
        coded = []
        for sentences, words in sides if side == "source" else reversed(sides):
            numbers, names = forms_of(sentences)
            offsets = offsets_of(sentences.lengths())
            coded.append((numbers[offsets[pairs.sentence] + words], names))
        (own, names), (theirs, others) = coded
        asked = np.array([name in wanted for name in names], dtype=bool)[own]
        codes, counts = np.unique(own[asked] * len(others) + theirs[asked], return_counts=True)
        for code, n in zip(codes.tolist(), counts.tolist(), strict=True):
            form, translation = names[code // len(others)], others[code % len(others)]
            counted[form][translation] = counted[form].get(translation, 0) + n
    return counted


def entropy(counts: Sequence[int]) -> float:
    """Entropy of relative frequencies, in bits: 0 for one translation, log2 k for k that are equally frequent."""
    shares = np.asarray(counts, dtype=np.float64) / sum(counts)
    return float(-(shares * np.log2(shares)).sum())


def _groups(translations: Mapping[str, int]) -> dict[tuple[str, ...], int]:
    """Senses and how often they are linked, the most frequent translation of each first."""
    groups = senses(sorted(translations, key=lambda t: (-translations[t], t)))
    return {tuple(group): sum(translations[t] for t in group) for group in groups}


def _chosen(links: Sequence[Sequence[int]], right: np.ndarray) -> tuple[tuple[int, int], list[int]] | None:
    """One occurrence of each sense, the most telling first, and a rank (small is good); None if they tell nothing.

    Args:
        links: those of each sense.
        right: `[n_encoders, n_links]`, 1 where an encoder is right.
    """
    best = []
    for several in links:
        answered = [link for link in several if right[:, link].any()]
        if answered:
            # Differing, then right after and wrong before, then by as many as possible.
            best.append(min(answered, key=lambda k: (right[:, k].all(), right[0, k], -int(right[:, k].sum()), k)))
    best.sort(key=lambda k: (right[:, k].all(), right[0, k], k))
    best = best[:_SENSES]
    differ = sum(not right[:, k].all() for k in best)
    gained = sum(not right[0, k] for k in best)
    if len(best) < 2 or not differ:
        return None
    return (-gained, -differ), best


def _item(questions, views, right, link, form, side, other, texts, word) -> dict[str, Any]:
    sentence = int(questions.pairs.sentence[link])
    position, expected = int(word[side][link]), int(word[other][link])
    answers = {}
    for number, view in enumerate(views):
        place = int(np.flatnonzero(view.answers.queries == link)[0])
        row = int((view.answers.nearest_targets if side == "source" else view.answers.nearest_sources)[place])
        where = int(np.searchsorted(questions.offsets[other], row, side="right")) - 1
        words = texts[other][where] if row >= 0 else ()
        answers[view.name] = {
            "word": words[row - int(questions.offsets[other][where])] if row >= 0 else None,
            "sentence": " ".join(words),
            "right": bool(right[number, link]),
        }
    translation = " ".join(texts[other][sentence])
    return {
        "form": form,
        "lang": questions.langs[side == "target"],
        "sentence": " ".join(texts[side][sentence]),
        "position": position,
        "translation": translation,
        "expected": {"word": texts[other][sentence][expected], "sentence": translation},
        "got": answers,
    }
