"""Where the pairs of a parallel text are from, as its third column says."""

from __future__ import annotations

import numpy as np

from calque.errors import SettingError
from calque.text import ParallelCorpus

ORIGIN = "column_3"  # what readers call the column behind the two texts
_MOST_ORIGINS = 50


def origins_of(corpus: ParallelCorpus, name: str) -> dict[str, np.ndarray]:
    """Return bool `[n_sentences]` for each value of the text's third column, by the value; "unknown" where it has none.

    Args:
        corpus: as `read_parallel` reads it.
        name: of the text, for messages.

    Raises:
        SettingError: there is no third column, or it says something else than where pairs are from.
    """
    if ORIGIN not in corpus.metadata_names:
        raise SettingError(
            f"{name}: no third column, which says where each pair is from, so it has no figures by origin"
        )
    values = np.array([value.strip() if value else "" for value in corpus.metadata(ORIGIN)], dtype=object)
    values[values == ""] = "unknown"
    found = sorted(set(values[corpus.source.lengths() > 0]))
    if len(found) > _MOST_ORIGINS:
        raise SettingError(
            f"{name}: {len(found):,} different values in the third column of {len(corpus):,} pairs, expected names of origins, "
            f"at most {_MOST_ORIGINS}; are these word links?"
        )
    return {origin: values == origin for origin in found}
