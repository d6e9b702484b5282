"""Many languages into one space at once: generalised Procrustes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from calque.algebra.procrustes import procrustes
from calque.errors import SettingError
from calque.maps.linear import Rotation


@dataclass(frozen=True)
class CommonSpace:
    """Maps of several languages into one space.

    Attributes:
        maps: by language; that of `towards`, if there is such a language, changes nothing.
        losses: Σ ‖x W − mean of the languages‖² over all words and languages, per word, before each round and after
            the last.
        towards: the language whose space it is; None for a space of its own.
    """

    maps: dict[str, Rotation]
    losses: tuple[float, ...]
    towards: str | None


def generalized_procrustes(
    vectors: Mapping[str, np.ndarray], *, towards: str | None = None, most_rounds: int = 200, tolerance: float = 1e-9
) -> CommonSpace:
    """Rotations that bring the vectors of each concept in all languages together (Gower 1975; Kementchedjhieva et al. 2018).

    min Σ over languages l and concepts c of ‖x_lc W_l − m_c‖², W_l orthogonal, where m_c is the mean of x_lc W_l over
    the languages that have the concept. In turn, the means are taken and each language is rotated onto them, which
    never makes the sum larger.

    Args:
        vectors: by language, `[n_concepts, dim]`, rows of one concept in one place; a row with NaN where the language
            has no word for it.
        towards: afterwards turn everything so that this language stays where it is.
        most_rounds, tolerance: stop after so many rounds, or when the sum falls by less than this part of it.

    Raises:
        SettingError: fewer than two languages, arrays that do not fit, or a language that shares no concept with
            another.
    """
    langs = list(vectors)
    shapes = {matrix.shape for matrix in vectors.values()}
    if len(langs) < 2 or len(shapes) != 1:
        raise SettingError(f"expected vectors [concepts, dim] of two languages or more, got {sorted(shapes)}")
    if towards is not None and towards not in vectors:
        raise SettingError(f"towards={towards!r}, but there are vectors of {', '.join(langs)}")
    known: dict[str, np.ndarray] = {lang: np.asarray(np.isfinite(rows).all(axis=1)) for lang, rows in vectors.items()}
    several = np.count_nonzero(np.stack([*known.values()]), axis=0) > 1
    for lang in langs:
        known[lang] = known[lang] & several
        if not known[lang].any():
            raise SettingError(f"{lang} shares no concept with another language: there is nothing to rotate it onto")
    x = {lang: np.where(known[lang][:, None], rows, 0.0).astype(np.float64) for lang, rows in vectors.items()}
    counts = np.maximum(np.stack([*known.values()]).sum(axis=0), 1)[:, None]
    dim = next(iter(shapes))[1]
    # The first language that has most concepts is what the others are rotated onto at first, one after the other, so
    # that languages are joined also where they share concepts with some of the others only.
    order = sorted(langs, key=lambda lang: -int(known[lang].sum()))
    turns: dict[str, np.ndarray] = {order[0]: np.eye(dim)}
    for lang in order[1:]:
        total = np.stack([x[other] @ turn for other, turn in turns.items()]).sum(axis=0)
        turns[lang] = procrustes(x[lang].T @ total)
    losses: list[float] = []
    for _ in range(most_rounds + 1):
        mapped = {lang: x[lang] @ turns[lang] for lang in langs}
        mean = np.stack([*mapped.values()]).sum(axis=0) / counts
        squares = sum(float(((mapped[lang] - mean)[known[lang]] ** 2).sum()) for lang in langs)
        losses.append(squares / max(1, int(several.sum())))
        if len(losses) > most_rounds or (len(losses) > 1 and losses[-2] - losses[-1] <= tolerance * losses[-2]):
            break
        turns = {lang: procrustes(x[lang].T @ mean) for lang in langs}
    if towards is not None:
        back = turns[towards].T
        turns = {lang: turn @ back for lang, turn in turns.items()}
        turns[towards] = np.eye(dim)
    maps = {}
    for lang in langs:
        maps[lang] = Rotation.from_arrays({"matrix": turns[lang]}, int(known[lang].sum()))
    return CommonSpace(maps, tuple(losses), towards)


def concepts(vectors: Mapping[str, np.ndarray], pairs: Mapping[str, np.ndarray], pivot: str) -> dict[str, np.ndarray]:
    """Vectors of the pivot language's words and of their translations, row by row, for `generalized_procrustes`.

    Args:
        vectors: `[n_words, dim]` by language.
        pairs: by other language int64 `[n_pairs, 2]`, rows of that language and of the pivot language that translate
            each other; of several translations of a word the first one counts.
        pivot: the language that all pairs have.

    Returns:
        by language `[n_concepts, dim]`, NaN where it has no word.
    """
    rows = np.unique(np.concatenate([of_lang[:, 1] for of_lang in pairs.values()]))
    side_by_side = {pivot: vectors[pivot][rows].astype(np.float64)}
    for lang, of_lang in pairs.items():
        of_pivot, first = np.unique(of_lang[:, 1], return_index=True)
        side_by_side[lang] = np.full((len(rows), vectors[lang].shape[1]), np.nan)
        side_by_side[lang][np.searchsorted(rows, of_pivot)] = vectors[lang][of_lang[first, 0]]
    return side_by_side
