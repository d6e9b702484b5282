"""The core stands without this room: nothing imports it, and without its folder and its rows in the tables the rest works."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import calque

SOURCE, ROOM = Path(calque.__file__).parent, "calque.senses"

PROGRAM = """
import importlib, pkgutil, sys
import calque
from calque.cli import main
from calque.errors import MissingExtraError

for found in pkgutil.walk_packages(calque.__path__, "calque."):
    if found.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(found.name)
    except (ImportError, MissingExtraError) as error:  # an extra that is not installed here
        assert "calque." not in str(error), (found.name, error)
assert not any(name.startswith("calque.senses") for name in sys.modules)
text = ["--langs", "en", "de"]
for command in (
    ["align", "text.tsv", *text, "--encoder", "mini", "--towards", "en", "--method", "rotation", "--out", "aligned", "-q"],
    ["evaluate", "aligned", "retrieval", "--test", "text.tsv", *text, "-q"],
):
    try:
        main(command)
    except SystemExit as end:
        assert not end.code, command
"""


def core() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] != "senses"]


def test_nothing_of_the_core_imports_the_room():
    for path in core():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.startswith(ROOM)], f"{path}:{getattr(node, 'lineno', 0)}"


def without_rows(text: str) -> str:
    """Return a file without those entries of its dictionaries, tuples and lists that name a module of the room."""
    starts = [0, 0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data, cuts = text.encode(), []

    def names(node: ast.expr) -> bool:
        return any(isinstance(part, ast.Constant) and ROOM in str(part.value) for part in ast.walk(node))

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            cuts += [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key and names(value)]
        elif isinstance(node, ast.Tuple | ast.List):
            cuts += [(each, each) for each in node.elts if isinstance(each, ast.Constant) and names(each)]
    for first, last in sorted(cuts, key=lambda cut: -cut[0].lineno * 1000 - cut[0].col_offset):
        begin, end = starts[first.lineno] + first.col_offset, starts[last.end_lineno] + last.end_col_offset
        data = data[:begin] + data[end:].lstrip().removeprefix(b",")
    return data.decode()


def test_the_core_works_without_the_room_and_its_rows(tmp_path):
    folder = shutil.copytree(SOURCE, tmp_path / "calque", ignore=shutil.ignore_patterns("__pycache__", "senses"))
    rows = []
    for path in core():
        text = path.read_text(encoding="utf-8")
        if ROOM in text:
            rows.append(path.relative_to(SOURCE).as_posix())
            (folder / path.relative_to(SOURCE)).write_text(without_rows(text), encoding="utf-8")
    assert rows == [
        "analyses/table.py",
        "cli/verbs.py",
        "encoders/folder.py",
        "runs/study/options.py",
        "tasks/table.py",
    ]
    sample = [
        (SOURCE / "data" / "sample" / f"{lang}.txt").read_text(encoding="utf-8").splitlines() for lang in ("en", "de")
    ]
    (tmp_path / "text.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in list(zip(*sample, strict=True))[:60]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
