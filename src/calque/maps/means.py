"""The mean of each language, without which languages lie closer together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calque.algebra.procrustes import Moments
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
    dim = len(moments[towards].source_mean)
    target = moments[towards].source_mean if offset else np.zeros(dim)
    return {
        lang: LinearMap.from_arrays(
            {"matrix": np.eye(dim), "source_mean": own.source_mean, "target_mean": target}, own.n
        )
        for lang, own in moments.items()
        if not (offset and lang == towards)
    }
