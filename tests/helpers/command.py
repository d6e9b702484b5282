"""The command line from outside: run it, or watch it fail."""

from __future__ import annotations

import pytest

from calque.cli import main


def run(capsys, *arguments) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return end.value.code, captured.out, captured.err


def works(capsys, *arguments) -> tuple[str, str]:
    """Standard output and standard error of a command that ends well."""
    code, out, err = run(capsys, *arguments)
    assert code == 0, err
    return out, err


def fails(capsys, *arguments) -> str:
    """The one line of an error, and nothing else on standard output."""
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, ""), err
    assert "Traceback" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith("calque: error: ")
    return last
