"""Machine code that is kept: loaded again, made anew where it is damaged, and without the compiler."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from calque.wordalign import compiled


def run(loop: compiled.Compiled) -> tuple[list[int], list[int]]:
    order, first = np.empty(4, np.int64), np.zeros(4, np.int64)
    assert loop(np.array([0, 2, 1, 2], np.int32), order, first) is None
    return order.tolist(), first.tolist()


def test_machine_code_is_kept_and_checked(tmp_path, monkeypatch):
    made, make = [], compiled._compiled
    monkeypatch.setattr(compiled, "_folder", lambda: tmp_path)
    monkeypatch.setattr(compiled, "_compiled", lambda *a: made.append(a) or make(*a))

    def fresh():
        return run(compiled.Compiled("calque.wordalign.loops.cells:by_type"))

    assert fresh() == fresh() == ([0, 2, 1, 3], [0, 1, 2, 4])
    assert len(made) == 1
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:-100], whole[:200] + b"\0" + whole[201:]):
        file.write_bytes(damaged)
        assert fresh() == ([0, 2, 1, 3], [0, 1, 2, 4])
    assert len(made) == 4


@pytest.mark.parametrize("missing", ["_compiled", "_callable"])
def test_another_version_of_numba_or_llvmlite(tmp_path, monkeypatch, missing):
    def changed(*_):
        raise AttributeError("no attribute '_library'")

    monkeypatch.setattr(compiled, "_folder", lambda: tmp_path)
    monkeypatch.setattr(compiled, missing, changed)
    assert run(compiled.Compiled("calque.wordalign.loops.cells:by_type")) == ([0, 2, 1, 3], [0, 1, 2, 4])


def test_what_a_loop_takes():
    loop = compiled.Compiled("calque.wordalign.loops.cells:by_type")
    with pytest.raises(TypeError, match="expected a contiguous one"):
        loop(np.zeros(8, np.int32)[::2], np.zeros(4, np.int64), np.zeros(4, np.int64))


def test_numba_is_not_loaded_where_nothing_is_compiled(tmp_path):
    text = tmp_path / "text.tsv"
    text.write_text("a b c\tA B C\nb c\tB C\n" * 4)
    command = ["words", str(text), "--langs", "en", "de", "--pretokenized", "--out", str(tmp_path / "out"), "-q"]
    tables = str(tmp_path / "tables")
    learn = [[*command, "--model", model, "--tables", tables] for model in ("hmm", "fast-align", "gibbs")]
    lines = [line for each in learn for line in (each, [*command, "--use", tables])]
    heavy = ("torch", "transformers", "numba", "scipy", "pandas", "pydantic")
    code = f"""
import sys
from calque.cli import main
for line in {lines}:
    try:
        main(line)
    except SystemExit as end:
        assert end.code == 0
print([name for name in {heavy} if name in sys.modules])
"""
    for _ in range(2):  # what the first may have to compile, the second loads
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
