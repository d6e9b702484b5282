"""Name and beginning of a file, from which its format is recognised."""

from __future__ import annotations

import os
from functools import cached_property
from itertools import islice
from os import PathLike, fspath
from pathlib import Path

from calque.corpora.by_name import PREFIX
from calque.corpora.xml_text import root_of
from calque.text_files import read_blocks, read_lines, unpacked_name

_LINES = 1000  # number of lines that are inspected


class FileHead:
    """Name and beginning of a file. A property reads the file when it is first used.

    Only the name is inspected if the path is a folder, a data set on the hub, or a pipe. A pipe can
    be read only once, by the reader of its format.

    Args:
        path: path of a file or folder, or name of a data set on the hub.

    Attributes:
        path: the path as a string.
        suffix: suffix of the file name in lower case, without the suffix of the compression.
    """

    def __init__(self, path: str | PathLike[str]):
        self.path = fspath(path)
        self.suffix = Path(unpacked_name(path)).suffix.lower()

    @property
    def is_data_set(self) -> bool:
        """True for a folder and for the name of a data set on the hub."""
        return self.path.startswith(PREFIX) or os.path.isdir(self.path)

    @cached_property
    def block(self) -> bytes:
        """First block of the decompressed content, in UTF-8; empty for an empty file."""
        return next(read_blocks(self.path), b"") if self._has_content else b""

    @cached_property
    def lines(self) -> list[str]:
        """The first 1,000 lines, without those that are unreadable."""
        if not self._has_content:
            return []
        first_lines = islice(read_lines(self.path), _LINES)
        return [line for line in first_lines if isinstance(line, str)]

    @property
    def first_line(self) -> str:
        """First line that is not blank, or an empty string."""
        return next((line for line in self.lines if line.strip()), "")

    @cached_property
    def xml_root(self) -> str | None:
        """Name of the root element of an XML or HTML document; None for other files."""
        return root_of(self.block)

    @property
    def _has_content(self) -> bool:
        return not self.is_data_set and not Path(self.path).is_fifo()
