"""The sweep of kills (`dev/kill_sweep.py`) finds what it looks for: tried on programs that save well and badly."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "dev" / "kill_sweep.py"

WELL = """
Path("result.part").write_text("half ")
with open("result.part", "a") as file:
    file.write("and half")
os.replace("result.part", "result")
"""
IN_PLACE = """
Path("result").write_text("half ")
with open("result", "a") as file:
    file.write("and half")
"""
REFUSING = (
    """
if Path("result.part").exists():
    sys.exit("result.part is there already")
"""
    + WELL
)
GOING_ON_WRONGLY = """
with open("result.part", "a") as file:
    file.write("half ")
with open("result.part", "a") as file:
    file.write("and half")
os.replace("result.part", "result")
"""
BY_CHANCE = """
Path("result").write_text(str(os.getpid()))
"""

ANSWERING = """
os.makedirs("result.part/training", exist_ok=True)
Path("result.part/training/checkpoint").touch()
try:
    time.sleep(0.5)
except KeyboardInterrupt:
    sys.exit(ANSWER)
Path("result").touch()
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch, capsys):
    """Runs the sweep over a program of these lines: its exit code and what it printed."""
    spec = importlib.util.spec_from_file_location("kill_sweep", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kill_sweep", script)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "SOURCE", tmp_path)
    monkeypatch.setattr(script, "make_inputs", lambda folder: {})
    (tmp_path / "calque").mkdir()
    (tmp_path / "calque" / "__init__.py").touch()

    def run(program: str, *options: str, **how: object) -> tuple[int, str]:
        lines = "import os, sys, time\nfrom pathlib import Path\n" + program
        (tmp_path / "calque" / "__main__.py").write_text(lines)
        monkeypatch.setattr(script, "VERBS", {"toy": script.Verb("toy", **how)})
        code = script.main(["--folder", str(tmp_path / "runs"), *options])
        return code, capsys.readouterr().out

    return run


def test_a_program_that_saves_well_passes(sweep):
    code, found = sweep(WELL, "--kills", "6")
    assert code == 0, found
    assert " 0 failures" in found


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (IN_PLACE, "step:2: killed, result is neither absent nor complete: result differs"),
        (REFUSING, "step:2: the same command ended with 1: result.part is there already"),
        (GOING_ON_WRONGLY, "step:2: result differs"),
        (BY_CHANCE, "two undisturbed runs differ: result differs"),
    ],
)
def test_what_is_wrong_after_a_kill_is_found(sweep, program, said):
    code, found = sweep(program, "--at", "step:2")
    assert (code, said in found) == (1, True), found


def test_a_signal_is_answered_by_one_line(sweep):
    code, found = sweep(ANSWERING.replace("ANSWER)", '"one line")'), "--at", "SIGINT:0", trains=True)
    assert code == 0, found
    code, found = sweep(ANSWERING.replace("ANSWER)", '"one line\\nand another")'), "--at", "SIGINT:0", trains=True)
    assert code == 1
    assert "SIGINT:0 is answered by more than a line" in found


def test_times_do_not_count_but_their_names_do(tmp_path, sweep):
    script = sys.modules["kill_sweep"]
    texts = {
        "a": '{"seconds": {"all": 3}, "n": 1} <dd>2026-01-02 03:04 UTC</dd>',
        "b": '{"seconds": 7.5, "n": 1} <dd>2026-01-02 03:05 UTC</dd>',
        "c": '{"n": 1} <dd>2026-01-02 03:04 UTC</dd>',
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "record").write_text(text)
    a, b, c = (script.contents(tmp_path / name) for name in "abc")
    assert script.difference(a, b) == ""
    assert script.difference(a, c) == "record differs"
