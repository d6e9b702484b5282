"""LSAR: the directions in which the means of languages differ, removed from all of them (Xie et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calque.algebra.procrustes import Moments
from calque.errors import SettingError
from calque.maps.linear import LinearMap, without_directions


def language_subspace(means: np.ndarray, rank: int | None = None) -> np.ndarray:
    """Orthonormal directions M_s that tell languages apart (Xie et al. 2022, EMNLP, Algorithm 1).

    The means M `[dim, languages]` are taken for μ1ᵀ + M_sΓᵀ with μ orthogonal to M_s. The algorithm decomposes M − μ'1ᵀ,
    where μ' is the mean of the means, keeps the first `rank` left singular vectors, and then looks for the μ that is
    orthogonal to them and decomposes once more what is left. That second step changes μ and Γ, but not what M_s spans: the
    new μ is μ' less its part in that span, so that only vectors of the span are added to what is decomposed. Since only
    the span is removed from vectors, the first step is enough.

    Args:
        means: float64 `[dim, languages]`.
        rank: directions to keep; None for all in which the means differ, one fewer than there are languages. The
            published code has no default.

    Returns:
        float64 `[dim, rank]`; fewer columns where the means differ in fewer directions.

    Raises:
        SettingError: fewer than two languages, or a rank that so many languages cannot have.
    """
    dim, languages = means.shape
    if languages < 2:
        raise SettingError("directions that tell languages apart need text in two languages or more, got one")
    most = min(languages, dim) - 1
    kept = most if rank is None else rank
    if not 1 <= kept <= most:
        raise SettingError(f"rank={rank}: the means of {languages} languages in {dim} dimensions, expected 1 to {most}")
    u, s, _ = np.linalg.svd(means - means.mean(axis=1, keepdims=True), full_matrices=False)
    # Rounding leaves differences of this size between means that are the same.
    differ = s > np.linalg.norm(means, 2) * max(means.shape) * np.finfo(np.float64).eps
    return u[:, :kept][:, differ[:kept]]


def lsar(moments: Mapping[str, Moments], *, rank: int | None = None) -> dict[str, LinearMap]:
    """Remove these directions from every language: x → x − M_sM_sᵀx (Xie et al. 2022).

    Args:
        moments: of each language's word vectors, see `Moments`; one side of them.
        rank: see `language_subspace`.

    Returns:
        the same projection for every language.
    """
    directions = language_subspace(np.stack([own.source_mean for own in moments.values()], axis=1), rank)
    return {lang: without_directions(directions, own.n) for lang, own in moments.items()}
