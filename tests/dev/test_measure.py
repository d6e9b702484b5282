"""Test the counts of `dev/measure.py` on small functions."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "dev" / "measure.py"


@pytest.fixture(scope="module")
def measure():
    spec = importlib.util.spec_from_file_location("measure", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["measure"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("body", "complexity", "nesting"),
    [
        ("return 1", 1, 0),
        ("with a: return 1", 1, 1),
        ("if a and b or c: pass\nelif d: pass\nelse: pass", 5, 1),
        ("try: pass\nexcept A: pass\nexcept B: pass\nfinally: pass", 3, 1),
        ("return [x for x in y if a if b for z in x]", 5, 0),
        ("assert a if b else c", 3, 0),
        ("match a:\n case 1: pass\n case _: pass", 3, 1),
        ("for a in b:\n while c:\n  if d:\n   with e: pass", 4, 4),
        ("def inner():\n if a: pass\nreturn inner", 1, 0),
    ],
)
def test_complexity_and_nesting(measure, body, complexity, nesting):
    lines = "\n".join(f" {line}" for line in body.splitlines())
    function = ast.parse(f"def f():\n{lines}").body[0]
    assert measure.complexity(function) == complexity
    assert measure.nesting(function) == nesting


def test_counts_of_a_folder(measure, tmp_path, capsys):
    (tmp_path / "a.py").write_text('"""Two\nlines."""\n\n# a comment\nx = f(1)\n')
    (tmp_path / "b.py").write_text("y = 2\n")
    counts = measure.measure(tmp_path)
    assert (counts.files, counts.lines, counts.code) == (2, 6, 2)
    assert counts.nodes == 2 + 5 + 3  # docstring, x = f(1), y = 2
    measure.main([str(tmp_path)])
    assert "2 files, 6 lines, 5.0 AST nodes per code line, 0 functions" in capsys.readouterr().out
