"""Anchors: the mean vector of each word type over its occurrences (Schuster et al. 2019, §3)."""

from calque.anchors.files import open_anchors, read_avg_embeds, save_anchors, write_avg_embeds
from calque.anchors.sums import Anchors, AnchorSums, anchors_of

__all__ = [
    "AnchorSums",
    "Anchors",
    "anchors_of",
    "open_anchors",
    "read_avg_embeds",
    "save_anchors",
    "write_avg_embeds",
]
