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
    """Runs the sweep over a program of these lines: its exit code, its table and what it found."""
    spec = importlib.util.spec_from_file_location("kill_sweep", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kill_sweep", script)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "SOURCE", tmp_path)
    monkeypatch.setattr(script, "make_inputs", lambda folder: {})
    (tmp_path / "calque").mkdir()
    (tmp_path / "calque" / "__init__.py").touch()

    def run(program: str, *options: str, **how: object) -> tuple[int, list[str], str]:
        lines = "import os, sys, time\nfrom pathlib import Path\n" + program
        (tmp_path / "calque" / "__main__.py").write_text(lines)
        monkeypatch.setattr(script, "VERBS", {"toy": script.Verb("toy", **how)})
        code = script.main(["--folder", str(tmp_path / "runs"), *options])
        table, _, found = capsys.readouterr().out.partition("Aims:")
        row = next(line for line in table.splitlines() if line.startswith("| toy"))
        return code, [cell.strip() for cell in row.strip("|").split("|")][2:], found

    return run


def test_a_program_that_saves_well_passes(sweep):
    code, cells, found = sweep(WELL, "--kills", "12")
    assert code == 0, found
    assert cells[0] == "12"
    assert cells[4:] == ["0", "0", "0"]


def test_a_result_that_is_written_in_place_is_half(sweep):
    code, cells, found = sweep(IN_PLACE, "--at", "step:2")
    assert (code, cells) == (1, ["1", "0", "0", "1", "1", "0", "0"])
    assert "toy: seed 0, round 0, step:2: killed while saving, result is neither absent nor complete" in found


def test_a_command_that_will_not_go_on_is_found(sweep):
    code, cells, found = sweep(REFUSING, "--at", "step:2")
    assert (code, cells[4:]) == (1, ["0", "1", "0"])
    assert "step:2: the same command ended with 1: result.part is there already" in found


def test_other_bytes_after_a_kill_are_found(sweep):
    code, cells, found = sweep(GOING_ON_WRONGLY, "--at", "step:2")
    assert (code, cells[4:]) == (1, ["0", "0", "1"])
    assert "step:2: result differs" in found


def test_a_command_that_differs_undisturbed_is_found(sweep):
    code, cells, found = sweep(BY_CHANCE, "--kills", "1")
    assert (code, cells[0]) == (1, "0")
    assert "two undisturbed runs differ: result differs" in found


def test_a_signal_is_answered_by_one_line(sweep):
    one = ANSWERING.replace("ANSWER)", '"stopped; the same command goes on from there")')
    code, _, found = sweep(one, "--at", "SIGINT:0", trains=True)
    assert (code, found.splitlines()[0]) == (
        0,
        " SIGINT 1. 1 of 1 signals came in training and were answered by how to go on.",
    )
    code, _, found = sweep(ANSWERING.replace("ANSWER)", '"one line\\nand another")'), "--at", "SIGINT:0", trains=True)
    assert code == 1
    assert "SIGINT:0.000 is answered by more than a line" in found


def test_times_do_not_count_but_their_names_do(tmp_path, sweep):
    script = sys.modules["kill_sweep"]
    for name, text in (("a", '{"seconds": {"all": 3}, "n": 1}'), ("b", '{"seconds": 7.5, "n": 1}'), ("c", '{"n": 1}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "calque-run.json").write_text(text)
    a, b, c = (script.contents(tmp_path / name) for name in "abc")
    assert script.difference(a, b) == ""
    assert script.difference(a, c) == "calque-run.json differs"
    page = b"<dt>seconds</dt><dd>%s</dd>&#34;seconds&#34;: {%s}<td>2026-01-02 03:%s UTC</td><td>%s</td>"
    assert script.timeless(page % (b"7", b"7", b"04", b"1"), ".html") == script.timeless(
        page % (b"8", b"8", b"05", b"1"), ".html"
    )
    assert script.timeless(page % (b"7", b"7", b"04", b"1"), ".html") != script.timeless(
        page % (b"7", b"7", b"04", b"2"), ".html"
    )
