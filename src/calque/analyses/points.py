"""Word pairs as points of a picture (Cao et al. 2020, Fig. 1)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import numpy as np

from calque.analyses.finding import Finding
from calque.analyses.questions import NOTHING, SIDES, Questions, View
from calque.errors import MissingExtraError, SettingError

PROJECTIONS = ("auto", "pca", "tsne")


def principal_axes(x: np.ndarray, n: int = 2) -> np.ndarray:
    """Coordinates of vectors on their first `n` principal components, `[len(x), n]` float64.

    An axis points to where its largest coordinate is: the sign of a component is otherwise an accident.
    """
    centred = np.asarray(x, dtype=np.float64) - np.mean(x, axis=0, dtype=np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(x), n))
    places[:, : min(n, len(s))] = (u * s)[:, :n]
    signs = np.sign(places[np.abs(places).argmax(axis=0), np.arange(n)])
    return places * np.where(signs == 0, 1.0, signs)


def project(x: np.ndarray, how: str = "auto", *, seed: int = 0) -> tuple[np.ndarray, str]:
    """Vectors in two dimensions.

    Args:
        x: `[n, dim]`.
        how: "pca"; "tsne" (van der Maaten and Hinton 2008), which needs scikit-learn; "auto": t-SNE if that is there.
        seed: of t-SNE, which begins with the principal components.

    Returns:
        float64 `[n, 2]`, and which of the two it is.

    Raises:
        MissingExtraError: t-SNE was asked for by name and scikit-learn is not installed.
    """
    if how not in PROJECTIONS:
        raise SettingError(f"projection {how!r} is not known, expected one of {', '.join(PROJECTIONS)}")
    available = importlib.util.find_spec("sklearn") is not None
    if how == "tsne" and not available:
        raise MissingExtraError("scikit-learn", "plots", "t-SNE")
    if how == "pca" or not available or len(x) < 5:
        return principal_axes(x), "pca"
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(x) - 1) / 3)
    places = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(x)
    return np.asarray(places, dtype=np.float64), "tsne"


def chosen_pairs(questions: Questions, views: Sequence[View], n: int, *, seed: int = 0) -> np.ndarray:
    """Links for the picture: words of letters, written differently in the two languages, each source form once, drawn at
    random among those that all encoders were asked; in the order of the text."""
    usable = np.zeros(len(questions.pairs), dtype=bool)
    usable[views[0].answers.queries] = True
    for view in views[1:]:
        asked = np.zeros_like(usable)
        asked[view.answers.queries] = True
        usable &= asked
    forms: list[list[str]] = []
    for side in SIDES:
        numbers, names = questions.forms[side]
        forms.append([names[number] for number in numbers[questions.rows[side]].tolist()])
    seen: set[str] = set()
    chosen = []
    for link in np.random.default_rng(seed).permutation(np.flatnonzero(usable)).tolist():
        source, target = forms[0][link], forms[1][link]
        if source not in seen and source != target and source.isalpha() and target.isalpha():
            seen.add(source)
            chosen.append(link)
        if len(chosen) == n:
            break
    return np.sort(np.array(chosen, dtype=np.int64))


def points(
    questions: Questions,
    views: Sequence[View],
    *,
    pairs: int = 100,
    projection: str = "auto",
    seed: int = 0,
) -> list[Finding]:
    """The same pairs of words under every encoder, both languages of an encoder projected together from unit vectors.

    Args:
        views: the encoders' answers.
        pairs: at most so many.
        projection: see `project`.
        seed: of the choice and the projection.
    """
    if not views:
        return []
    links = chosen_pairs(questions, views, pairs, seed=seed)
    if len(links) < 2:
        return []
    texts = {side: [sentence.words for sentence in questions.sentences(side)] for side in SIDES}
    words = {"source": questions.pairs.source, "target": questions.pairs.target}
    findings = []
    for view in views:
        rows = [questions.rows[side][links] for side in SIDES]
        places, how = project(
            np.concatenate([view.units[side][side_rows] for side, side_rows in zip(SIDES, rows, strict=True)]),
            projection,
            seed=seed,
        )
        items = []
        for number, (side, side_rows) in enumerate(zip(SIDES, rows, strict=True)):
            for pair, (link, row) in enumerate(zip(links.tolist(), side_rows.tolist(), strict=True)):
                x, y = places[number * len(links) + pair]
                sentence = texts[side][int(questions.pairs.sentence[link])]
                items.append({
                    "x": round(float(x), 4), "y": round(float(y), 4), "word": sentence[int(words[side][link])],
                    "sentence": " ".join(sentence), "lang": questions.langs[number], "pair": pair,
                    "upos": _tag(questions, side, row),
                })  # fmt: skip
        score = questions.score(how, NOTHING, len(links), {**view.about, "projection": how, "seed": seed})
        findings.append(Finding("points", view.name, score, items=items))
    return findings


def _tag(questions: Questions, side: str, row: int) -> str | None:
    codes, names = questions.tags.get(side, (None, ()))
    return None if codes is None or codes[row] < 0 else names[int(codes[row])]
