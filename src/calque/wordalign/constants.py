"""Constants of the WordPiece cutter."""

from __future__ import annotations

UNSEEN, DROPPED, LETTER, LONE, ENDS, IRREGULAR = range(6)  # what a code point does to a word
POINT_BITS = 21
