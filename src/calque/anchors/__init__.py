"""Anchors: mean vectors of word types over their occurrences (Schuster et al. 2019, §3)."""

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
