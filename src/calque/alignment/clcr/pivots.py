"""How much a pivot may cost: what agrees best with statistical links on held-out text."""

from __future__ import annotations

import numpy as np

from calque.errors import SettingError
from calque.nn.pivots import Pivots
from calque.pairs import WordPairs

_LEAST = 1e-9  # cost below which pivots are alike


def choose_threshold(
    pivots: Pivots, links: WordPairs, *, tolerance: float = 0.05, gap: float = 1.25
) -> tuple[float, float]:
    """The threshold with the highest F1 of the pivots within it against links, of all that there are.

    Words that links join, directly or through others, are one group, the finest common granularity (§2.2): a word and the
    pieces that translate it. A group is to have one pivot, whichever of its words these are: the cheapest one between words
    of a group is right, and finds it. Where links are one to one, a group is a link, and this is their usual F1.

    F1 changes only where a pivot is added, so they are sorted by cost and all of these places are tried. The threshold is
    half-way to the next pivot, or the cost of the last one; of equal F1, the lower.

    Links can be wrong in a regular way: articles linked to the particles that stand wherever they do, for instance. Such pairs
    cost more than translations, with a gap between them. So where there is a gap below the best threshold, in which no
    pivot lies though one end costs `gap` times the other, and F1 there is lower by no more than `tolerance`, the
    threshold is half-way in the widest such gap. Ours; the paper only says "a threshold".

    Args:
        pivots: of held-out text.
        links: of the same text, all of them, possible ones too.
        tolerance, gap: see above; tolerance 0 takes the highest F1 as it is.

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
    group, n_groups = _groups(pivots.pairs, links)
    right = np.cumsum(_first_of_each(group[order]))
    f1 = 2 * right / (np.arange(1, len(costs) + 1) + n_groups)
    f1[:-1][np.diff(costs) == 0] = -1.0  # no threshold lies between equal costs
    best = int(f1.argmax())
    wide = np.where(f1[:best] >= f1[best] - tolerance, costs[1 : best + 1] / np.maximum(costs[:best], _LEAST), 0.0)
    if tolerance and len(wide) and wide.max() >= gap:
        best = int(wide.argmax())
    threshold = costs[best] if best + 1 == len(costs) else (costs[best] + costs[best + 1]) / 2
    return float(threshold), float(f1[best])


def _groups(pairs: WordPairs, links: WordPairs) -> tuple[np.ndarray, int]:
    """The group that both words of each pair are in, int64 `[n_pairs]`, −1 where there is none; and how many there are."""
    width = 1 + max(int(words.max(initial=0)) for p in (pairs, links) for words in (p.source, p.target))
    keys = [
        [(p.sentence * 2 + side) * width + words for side, words in enumerate((p.source, p.target))]
        for p in (links, pairs)
    ]
    words, ends = np.unique(np.concatenate(keys[0]), return_inverse=True)
    one, other = ends.reshape(2, -1)
    label = np.arange(len(words))
    while True:  # as often as the longest way within a group is long
        lower = label.copy()
        least = np.minimum(label[one], label[other])
        np.minimum.at(lower, one, least)
        np.minimum.at(lower, other, least)
        if (lower == label).all():
            break
        label = lower
    kept, group = np.unique(label, return_inverse=True)
    n_groups = len(kept)
    found = []
    for side in keys[1]:
        place = np.minimum(np.searchsorted(words, side), len(words) - 1)
        found.append(np.where(words[place] == side, group[place], -1))
    return np.where(found[0] == found[1], found[0], -1), n_groups


def _first_of_each(group: np.ndarray) -> np.ndarray:
    """Whether a pair is the first of its group, bool; one that is in no group is not."""
    first = np.zeros(len(group), dtype=bool)
    numbers, places = np.unique(group, return_index=True)
    first[places[numbers >= 0]] = True
    return first
