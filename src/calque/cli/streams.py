"""Standard streams that are closed, or whose reader has ended."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


def open_closed_streams() -> None:
    """Connect closed standard streams (`calque … >&-`) to the null device.

    Otherwise, printing would fail, and the next file to be opened would get the file descriptor of
    the stream, so libraries would write their messages to that file.
    """
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, number)  # also lets child processes inherit the stream
            if null != number:
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


class _Pipe(io.FileIO):
    """Standard stream that discards its output after the reader has ended, as in `calque … | head
    -1`.
    """

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            return len(data)


def prepare_streams() -> None:
    """Let commands finish their work if no program reads their output, and print file names with
    undecodable bytes.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):  # captured by a test
            continue
        raw = getattr(stream.buffer, "raw", None)
        if type(raw) is io.FileIO and raw.fileno() in (1, 2):
            stream.flush()
            stream = io.TextIOWrapper(
                io.BufferedWriter(_Pipe(raw.fileno(), "w", closefd=False)),
                encoding=stream.encoding,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, stream)
        stream.reconfigure(errors="backslashreplace")
