"""One form in several senses: where encoders differ in finding the translation (Cao et al. 2020, A.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calque.analyses.finding import Finding
from calque.analyses.questions import NOTHING, Questions, View
from calque.errors import SettingError

_OPEN = ("NOUN", "PROPN", "ADV", "ADJ", "VERB")
_FREQUENT = 60  # without tags: so many of the most frequent forms are taken for function words
_SENSES = 3  # of a form that are shown


def senses(translations: Sequence[str]) -> list[list[str]]:
    """Translations in groups that look like forms of one word: they begin alike for six tenths of the longer one.

    A guess, and a cautious one in neither direction: it takes `gehen` and `geht` together, not `gehen` and `ging`.

    Args:
        translations: in the order of preference; each joins the first group whose first member it is like.
    """
    groups: list[list[str]] = []
    for word in translations:
        for group in groups:
            alike = next((k for k, (a, b) in enumerate(zip(word, group[0], strict=False)) if a != b), None)
            alike = min(len(word), len(group[0])) if alike is None else alike
            if alike >= 0.6 * max(len(word), len(group[0])):
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
    side: str = "source",
    tags: Mapping[str, tuple[np.ndarray, Sequence[str]]] | None = None,
) -> list[Finding]:
    """Forms of one language that are linked to different words, found right by some encoders only.

    A form is shown if at least two of its senses (see `senses`) are found by some encoder, and the encoders differ in one
    of them. Of each sense the occurrence in which they differ most is shown, the later encoders being right where possible.
    Function words would fill the list: with tags only open-class words are taken, without them no form among the 60 most
    frequent, and none without a letter. Where there is a training text, a translation counts only if the same forms are
    linked there: the links of the test text have errors, too.

    Args:
        views: the encoders' answers, the one before alignment first.
        forms: how many forms at most.
        side: whose forms.
        tags: parts of speech, see `groups.by_pos`.

    Raises:
        SettingError: there is only one encoder, so that nothing can differ.
    """
    if len(views) < 2:
        raise SettingError("examples compare encoders: give the one before alignment and those after it")
    other: str = "target" if side == "source" else "source"
    right = np.stack([_right(questions, view, side) for view in views])  # 1 right, 0 wrong, −1 not asked
    usable = (right >= 0).all(axis=0) & _meant(questions, side, tags)
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
    ranked = []
    for form, translations in by_form.items():
        chosen = _chosen(translations, right)
        if chosen is not None:
            ranked.append((chosen[0], form, chosen[1]))
    ranked.sort(key=lambda entry: (entry[0], entry[1]))
    items = [
        _item(questions, views, right, link, form, side, other, texts, word)
        for _, form, links in ranked[:forms]
        for link in links
    ]
    about = {"encoders": [view.name for view in views], "forms_found": len(ranked)}
    score = questions.score("examples", NOTHING, len(items), about)
    return [Finding("examples", None, score, items=items)]


def _right(questions: Questions, view: View, side: str) -> np.ndarray:
    found = np.full(len(questions.pairs), -1, dtype=np.int64)
    hits = view.answers.source_hits if side == "source" else view.answers.target_hits
    found[view.answers.queries] = hits
    return found


def _meant(questions: Questions, side: str, tags: Mapping[str, tuple[np.ndarray, Sequence[str]]] | None) -> np.ndarray:
    """Links whose word means something by itself."""
    numbers, forms = questions.forms[side]
    if tags is not None and side in tags:
        own, names = tags[side]
        open_class = np.array([name in _OPEN for name in names] + [False])
        return open_class[own][questions.rows[side]]
    counts = questions.counts[side]
    frequent = set(sorted(forms, key=lambda form: -counts[form])[: min(_FREQUENT, len(forms) // 10)])
    meant = np.array([form not in frequent and any(c.isalpha() for c in form) for form in forms], dtype=bool)
    return meant[numbers[questions.rows[side]]]


def _chosen(translations: Mapping[str, list[int]], right: np.ndarray) -> tuple[tuple[int, int, int], list[int]] | None:
    """One occurrence of each sense, the most telling first, and a rank (small is good); None if they tell nothing."""
    groups = senses(sorted(translations, key=lambda t: (-len(translations[t]), t)))
    if len(groups) < 2:
        return None
    best = []
    for group in groups:
        links = [link for translation in group for link in translations[translation] if right[:, link].any()]
        if links:
            # Differing, then right after and wrong before, then by as many as possible.
            best.append(min(links, key=lambda k: (right[:, k].all(), right[0, k], -int(right[:, k].sum()), k)))
    best.sort(key=lambda k: (right[:, k].all(), right[0, k], k))
    best = best[:_SENSES]
    differ = sum(not right[:, k].all() for k in best)
    gained = sum(not right[0, k] for k in best)
    if len(best) < 2 or not differ:
        return None
    return (-gained, -differ, len(groups)), best


def _item(questions, views, right, link, form, side, other, texts, word) -> dict[str, Any]:
    sentence = int(questions.pairs.sentence[link])
    position, expected = int(word[side][link]), int(word[other][link])
    got = {}
    for number, view in enumerate(views):
        place = int(np.flatnonzero(view.answers.queries == link)[0])
        row = int((view.answers.nearest_targets if side == "source" else view.answers.nearest_sources)[place])
        where = int(np.searchsorted(questions.offsets[other], row, side="right")) - 1
        words = texts[other][where] if row >= 0 else ()
        got[view.name] = {
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
        "got": got,
    }
