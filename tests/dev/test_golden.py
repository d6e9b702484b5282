"""Test that `dev/golden.py` gives equal records for equal code, and lists the differences between
two records by step.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import forked

SCRIPT = Path(__file__).parents[2] / "dev" / "golden.py"


def golden(*arguments) -> subprocess.CompletedProcess[str]:
    # use the hash seed of the fork server, because the script restarts Python if the seed differs
    return forked.run(SCRIPT, *arguments, environment={**os.environ, "PYTHONHASHSEED": "0"})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every command runs in a forked process")
def test_records_of_equal_code_are_equal_and_a_change_is_detected(tmp_path):
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
