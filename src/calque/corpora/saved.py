"""Parallel text saved by `ParallelCorpus.save` in an Arrow file."""

from __future__ import annotations

from os import PathLike

from calque.corpora.file_head import FileHead
from calque.errors import InputError
from calque.text import ParallelCorpus


def is_saved(head: FileHead) -> bool:
    """Return whether a file is in the Arrow IPC format."""
    return head.suffix == ".arrow" or head.block.startswith(b"ARROW1")


def read_saved(path: str | PathLike[str], langs: tuple[str, str]) -> ParallelCorpus:
    """Open a saved corpus, with its sides exchanged if `langs` are its languages in reverse order.

    Raises:
        InputError: the file is not a saved corpus, or its languages differ from `langs`.
    """
    corpus = ParallelCorpus.open(path)
    if corpus.langs == (langs[1], langs[0]):
        corpus = corpus.swapped()
    if corpus.langs != langs:
        saved, requested = "-".join(corpus.langs), "-".join(langs)
        raise InputError(
            f"langs must be {saved}, the languages of the saved corpus, got {requested}", path=path
        )
    return corpus
