"""How much a pivot may cost: what agrees best with statistical links on held-out text."""

from __future__ import annotations

import numpy as np

from calque.errors import SettingError
from calque.nn.pivots import Pivots
from calque.pairs import WordPairs


def choose_threshold(pivots: Pivots, links: WordPairs) -> tuple[float, float]:
    """The threshold with the highest F1 of the pivots within it against links, of all that there are.

    F1 changes only where a pivot is added, so they are sorted by cost and all of these places are tried. The threshold is
    half-way to the next pivot, or the cost of the last one; of equal F1, the lower.

    Args:
        pivots: of held-out text.
        links: of the same text, all of them, possible ones too.

    Returns:
        the threshold and its F1.

    Raises:
        SettingError: links of other sentences; no pivot, or no link.
    """
    if links.n_sentences != pivots.pairs.n_sentences:
        raise SettingError(f"links of {links.n_sentences} sentence pairs for pivots of {pivots.pairs.n_sentences}")
    if not len(pivots) or not len(links):
        raise SettingError(
            f"no threshold can be chosen from {len(pivots)} pivots and {len(links)} links of the held-out text: hold out "
            "more, or name a threshold"
        )
    order = np.argsort(pivots.costs, kind="stable")
    costs = pivots.costs[order].astype(np.float64)
    right = np.cumsum(_linked(pivots.pairs, links)[order])
    f1 = 2 * right / (np.arange(1, len(costs) + 1) + len(links))
    f1[:-1][np.diff(costs) == 0] = -1.0  # no threshold lies between equal costs
    best = int(f1.argmax())
    threshold = costs[best] if best + 1 == len(costs) else (costs[best] + costs[best + 1]) / 2
    return float(threshold), float(f1[best])


def _linked(pairs: WordPairs, links: WordPairs) -> np.ndarray:
    """Whether each pair is among the links, bool `[n_pairs]`."""
    width = 1 + max(int(words.max(initial=0)) for p in (pairs, links) for words in (p.source, p.target))
    keys = [(p.sentence * width + p.source) * width + p.target for p in (pairs, links)]
    return np.isin(keys[0], keys[1])
