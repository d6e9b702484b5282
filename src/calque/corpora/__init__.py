"""Readers of text that others wrote."""

from __future__ import annotations

from calque.corpora.parallel import gold_links, read_parallel
from calque.corpora.plain import read_sentences

__all__ = ["gold_links", "read_parallel", "read_sentences"]
