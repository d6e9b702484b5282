"""`dev/golden.py` makes equal records of equal code, and lists each difference of two records under its step."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import forked

SCRIPT = Path(__file__).parents[2] / "dev" / "golden.py"


def golden(*arguments) -> subprocess.CompletedProcess[str]:
    # the hash seed of the fork server; with another one the script would restart Python
    return forked.run(SCRIPT, *arguments, environment={**os.environ, "PYTHONHASHSEED": "0"})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every command is a fork")
def test_two_records_are_equal_and_a_change_is_found(tmp_path):
    for name in ("one", "two"):
        made = golden("record", tmp_path / name, "--only", "help/report", "words/fast")
        assert made.returncode == 0, made.stderr
    assert golden("compare", tmp_path / "one", tmp_path / "two").returncode == 0
    path = tmp_path / "two" / "golden.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["steps"]["words/fast"]["codes"][0] = 1
    record["steps"]["help/report"]["out"][-1] += " or so"
    path.write_text(json.dumps(record), encoding="utf-8")
    compared = golden("compare", tmp_path / "one", tmp_path / "two")
    figures, _, wording = compared.stdout.partition("-- wording")
    assert compared.returncode == 1
    assert "words/fast: codes[0]: 0 → 1" in figures
    assert "help/report" not in figures
    assert "or so" in wording
