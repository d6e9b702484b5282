"""Maps from plain text of each language, without translations: means that are moved, and directions that are removed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calque.algebra.procrustes import Moments
from calque.errors import SettingError
from calque.maps.linear import LinearMap


def shifts(moments: Mapping[str, Moments], *, towards: str, offset: bool = True) -> dict[str, LinearMap]:
    """Move each language's mean onto that of `towards`: x → x − x̄ + ȳ.

    Libovický et al. (2020, Findings of EMNLP) subtract from each language its own mean and add none: `offset=False`. With
    that of `towards`, distances are those of the centred vectors, and vectors of `towards` stay as they are, so that heads
    trained on them still fit; cosines differ.

    Args:
        moments: of each language's word vectors, see `Moments`; one side of them.
        towards: the language whose mean the others get.
        offset: add that mean; without it every language is centred, `towards` too.

    Returns:
        a map for each language that moves.
    """
    target = moments[towards].source_mean * offset
    return {
        lang: shift(own.source_mean, target, own.n) for lang, own in moments.items() if not (offset and lang == towards)
    }


def shift(source: np.ndarray, target: np.ndarray, n: int) -> LinearMap:
    """Return the map that moves one mean onto another: x → x − x̄ + ȳ.

    Args:
        source, target: the means, float64 `[dim]`.
        n: number of vectors that they were taken over.
    """
    return LinearMap.from_arrays({"matrix": np.eye(len(source)), "source_mean": source, "target_mean": target}, n)


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
    return {lang: _without_directions(directions, own.n) for lang, own in moments.items()}


def principal_directions(moments: Moments, rank: int) -> np.ndarray:
    """The first right singular vectors of a language's vectors, which are not centred (Yang et al. 2021, EMNLP, §2).

    With vectors as rows of X they are the eigenvectors of XᵀX, which is all that is kept of the text. The first one is
    close to the direction of the mean.

    Args:
        moments: of the language's word vectors, see `Moments`; one side of them.

    Returns:
        float64 `[dim, rank]`, orthonormal, the strongest first.

    Raises:
        SettingError: a rank that the vectors cannot have.
    """
    dim = len(moments.source_mean)
    most = min(moments.n, dim - 1)
    if not 1 <= rank <= most:
        raise SettingError(f"rank={rank}: {moments.n:,} vectors of {dim} dimensions, expected 1 to {most}")
    _, directions = np.linalg.eigh(moments.raw_gram)
    return directions[:, ::-1][:, :rank]


def lir(moments: Mapping[str, Moments], *, rank: int = 1) -> dict[str, LinearMap]:
    """Remove from each language its own principal directions c: x → x − ccᵀx (Yang et al. 2021, §2).

    Args:
        moments: of each language's word vectors, see `Moments`; one side of them.
        rank: directions to remove. In the paper one is best for retrieval, often more for classification.

    Returns:
        a projection for each language.
    """
    return {lang: _without_directions(principal_directions(own, rank), own.n) for lang, own in moments.items()}


def _without_directions(directions: np.ndarray, n: int) -> LinearMap:
    """Return the orthogonal projection that removes directions: x → x − (xB)Bᵀ.

    Args:
        directions: B, float64 `[dim, rank]`, orthonormal columns.
        n: number of vectors that they were found in.
    """
    return LinearMap.from_arrays({"matrix": np.eye(len(directions)) - directions @ directions.T}, n)
