"""Readers of text that others wrote."""

from __future__ import annotations

from calque.corpora.parallel import gold_links, read_parallel

__all__ = ["gold_links", "read_parallel"]
