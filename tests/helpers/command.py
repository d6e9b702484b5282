"""Run the command line as a user would, and check its output and errors."""

from __future__ import annotations

import pytest

from calque.cli import main
from named_options import check_options


def run(capsys, *arguments) -> tuple[int, str, str]:
    """Return the exit status, standard output and standard error; check that the messages name only
    existing options.
    """
    given = [str(a) for a in arguments]
    with pytest.raises(SystemExit) as end:
        main(given)
    captured = capsys.readouterr()
    check_options(given, captured.err)
    return end.value.code, captured.out, captured.err


def works(capsys, *arguments) -> tuple[str, str]:
    """Run a command that must succeed, and return standard output and standard error."""
    code, out, err = run(capsys, *arguments)
    assert code == 0, err
    return out, err


def fails(capsys, *arguments) -> str:
    """Run a command that must fail without standard output, and return its one-line error
    message.
    """
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, ""), err
    assert "Traceback" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith("calque: error: ")
    return last
