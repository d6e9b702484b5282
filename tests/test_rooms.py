"""Check that the core works without the packages `senses` and `clcr` if their entries in tables are
removed.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

import calque
import forked

SOURCE = Path(calque.__file__).parent
#: files whose tables contain modules of a package
ROOMS = {
    "senses": [
        "commands/__init__.py",
        "encoders/folder.py",
        "runs/study/recipe.py",
        "tasks/table.py",
    ],
    "clcr": ["alignment/__init__.py", "encoders/folder.py"],
}
PROGRAM = """
import importlib, pkgutil, sys
folder, room, *commands = sys.argv[1:]
sys.path.insert(0, folder)
import calque
from calque.cli import main
from calque.errors import MissingExtraError

assert calque.__path__[0].startswith(folder), calque.__path__
for found in pkgutil.walk_packages(calque.__path__, "calque."):
    if found.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(found.name)
    except (ImportError, MissingExtraError) as error:  # an extra that is not installed here
        assert "calque." not in str(error), (found.name, error)
assert not any(name.startswith(room) for name in sys.modules)
for command in commands:
    try:
        main(command.split())
    except SystemExit as end:
        assert not end.code, command
"""


def core(room: str) -> list[Path]:
    return [
        path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] != room
    ]


def without_rows(text: str, room: str) -> str:
    """Return the source of a file without the table entries that name a module of the package."""
    starts = [0, 0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data, cuts = text.encode(), []

    def names(node: ast.expr) -> bool:
        return any(
            isinstance(part, ast.Constant) and room in str(part.value) for part in ast.walk(node)
        )

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            cuts += [
                (key, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if key and names(value)
            ]
        elif isinstance(node, ast.Tuple | ast.List):
            cuts += [
                (each, each) for each in node.elts if isinstance(each, ast.Constant) and names(each)
            ]
    for first, last in sorted(cuts, key=lambda cut: -cut[0].lineno * 1000 - cut[0].col_offset):
        begin, end = (
            starts[first.lineno] + first.col_offset,
            starts[last.end_lineno] + last.end_col_offset,
        )
        data = data[:begin] + data[end:].lstrip().removeprefix(b",")
    return data.decode()


@pytest.mark.parametrize("room", ROOMS)
def test_the_core_works_without_the_package_and_its_table_entries(room, tmp_path):
    # Copying the caches of Python and Numba avoids compiling again; the ignored patterns match
    # caches that are being written.
    ignored = shutil.ignore_patterns(room, "*.tmp.*", "*.pyc.*")
    folder = shutil.copytree(SOURCE, tmp_path / "calque", ignore=ignored)
    rows = []
    for path in core(room):
        text = path.read_text(encoding="utf-8")
        if f"calque.{room}" in text:
            rows.append(path.relative_to(SOURCE).as_posix())
            (folder / path.relative_to(SOURCE)).write_text(
                without_rows(text, f"calque.{room}"), encoding="utf-8"
            )
    assert rows == ROOMS[room]
    sides = [
        (SOURCE / "data" / "sample" / f"{lang}.txt").read_text().splitlines()[:60]
        for lang in ("en", "de")
    ]
    text = tmp_path / "text.tsv"
    text.write_text("".join(f"{a}\t{b}\n" for a, b in zip(*sides, strict=True)))
    align = (
        f"align {text} --langs en de --method rotation --encoder mini --towards en --out "
        f"{tmp_path}/out -q"
    )
    evaluate = f"evaluate {tmp_path}/out retrieval --test {text} --langs en de -q"
    done = forked.run("-c", PROGRAM, tmp_path, f"calque.{room}", align, evaluate)
    assert done.returncode == 0, done.stderr
    assert "retrieval" in done.stdout
