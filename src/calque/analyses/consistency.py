"""What is left of each language's own structure: the same word nearest to a word, and words as similar as before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calque.analyses.finding import Finding
from calque.analyses.questions import SIDES, Questions, View
from calque.tasks.bootstrap import accuracy
from calque.tasks.consistency import LETTERS, same_form_nearest
from calque.tasks.consistency import similarities as correlated


def consistency(questions: Questions, view: View) -> list[Finding]:
    """How often the nearest other word of the same language is the same form, over words that come again; for each language,
    see `calque.tasks.consistency.Consistency`. A language whose words are all shorter or come once is left out."""
    findings = []
    for side, lang in zip(SIDES, questions.langs, strict=True):
        rows, hits = same_form_nearest(*questions.forms[side], view.side(side))
        if len(rows):
            sentence, n = np.searchsorted(questions.offsets[side], rows, side="right") - 1, len(questions.corpus)
            counts = [np.bincount(sentence, weights=weights, minlength=n) for weights in (hits, np.ones(len(rows)))]
            figures = questions.resamples.interval(np.stack(counts, axis=1), accuracy)
            about = {**view.about, "letters": LETTERS, "similarity": "cosine"}
            score = questions.score("same-form", figures, len(rows), about, task="consistency")
            findings.append(Finding("consistency", view.name, score, lang))
    return findings


def similarities(questions: Questions, views: Sequence[View], *, seed: int = 0) -> list[Finding]:
    """Correlation of the cosines of pairs of words of one language under the first encoder with those under each other one;
    for each language, see `calque.tasks.consistency.similarities`.

    Args:
        views: of the encoders, the one before alignment first.
        seed: of the pairs that are drawn.
    """
    base, findings = views[0], []
    for view in views[1:]:
        for side, lang in zip(SIDES, questions.langs, strict=True):
            samples = questions.task.bootstrap
            measured, n = correlated(base.side(side), view.side(side), seed=seed, samples=samples)
            if n:
                about = {**view.about, "base": base.name}
                score = questions.score("similarities", measured.ends, n, about, task="consistency", percent=False)
                findings.append(Finding("similarities", view.name, score, lang))
    return findings
