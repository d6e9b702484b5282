"""Of the processes of a run on one machine, one says why it ends, whoever is alive."""

from __future__ import annotations

import time

import pytest

import forked
from calque.distributed import farewell

SPEAK = "from calque.distributed import speaks; print(speaks(), speaks())"


@pytest.fixture
def said(tmp_path, monkeypatch):
    """An empty file of last words, in a run of several processes that nobody has started."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name, value in (("WORLD_SIZE", "4"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "7")):
        monkeypatch.setenv(name, value)
    return tmp_path


def test_one_of_those_that_end_at_once_speaks(said):
    together = f"import os, time\nwhile not os.path.exists({str(said / 'go')!r}): time.sleep(0.001)\n{SPEAK}"
    programs = [forked.start("-c", together, folder=said / str(number)) for number in range(4)]
    (said / "go").touch()
    printed = sorted(program.wait().stdout for program in programs)
    assert printed == [*["False False\n"] * 3, "True False\n"]


def test_another_run_is_not_silenced(said, monkeypatch):
    assert farewell.speaks()
    assert not farewell.speaks()
    monkeypatch.setenv("MASTER_PORT", "8")
    assert farewell.speaks()
    monkeypatch.setenv("MASTER_PORT", "7")
    time.sleep(0.02)
    program = forked.start("-c", SPEAK, folder=said / "later")  # at the same address, begun when the other had spoken
    assert program.wait().stdout == "True False\n"
    (file,) = said.glob("calque-*")
    assert len(file.read_text().splitlines()) == 2


def test_without_an_address_or_a_file_each_speaks(said, monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: "nowhere/x")
    assert farewell.speaks()
    assert farewell.speaks()
    monkeypatch.undo()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert farewell.speaks()
    assert farewell.speaks()
