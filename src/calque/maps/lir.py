"""LIR: the principal components of each language, removed from it (Yang et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calque.algebra.procrustes import Moments
from calque.errors import SettingError
from calque.maps.linear import LinearMap, without_directions


def principal_directions(moments: Moments, rank: int) -> np.ndarray:
    """The first right singular vectors of a language's vectors, which are not centred (Yang et al. 2021, EMNLP, §2).

    With vectors as rows of X they are the eigenvectors of XᵀX, which is all that is kept of the text. The first one is
    close to the direction of the mean.

    Args:
        moments: of the language's word vectors, see `Moments`; one side of them.
        rank: how many.

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
    return {lang: without_directions(principal_directions(own, rank), own.n) for lang, own in moments.items()}
