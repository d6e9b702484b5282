"""The room of CLCR stands on top of the rest: without its folder and its rows in two tables all else works."""

import ast
import re
import shutil
from pathlib import Path

import calque
import forked

SOURCE = Path(calque.__file__).parent
ROWS = {"alignment/__init__.py": "clcr", "encoders/folder.py": "key-points"}

PROGRAM = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import calque
assert calque.__path__[0].startswith(sys.argv[1]), calque.__path__
for module in pkgutil.walk_packages(calque.__path__, "calque."):
    if module.name != "calque.__main__":
        try:
            importlib.import_module(module.name)
        except ImportError as error:  # an extra that is not installed
            assert not str(error.name).startswith("calque"), error
from calque.cli import main
for arguments in sys.argv[2:]:
    try:
        main(arguments.split())
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
"""


def test_only_the_rows_of_two_tables_name_the_room():
    naming = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "clcr" and re.search(r"calque\.clcr|from calque import .*\bclcr", path.read_text())
    }
    assert naming == set(ROWS)


def without_row(path, key):
    """Remove the entry of a key from the only table of a file that has it."""
    lines = path.read_text().splitlines(keepends=True)
    (entry,) = [
        (k.lineno, value.end_lineno)
        for node in ast.walk(ast.parse("".join(lines)))
        if isinstance(node, ast.Dict)
        for k, value in zip(node.keys, node.values, strict=True)
        if isinstance(k, ast.Constant) and k.value == key
    ]
    path.write_text("".join(lines[: entry[0] - 1] + lines[entry[1] :]))


def test_all_else_works_without_it(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "calque", ignore=shutil.ignore_patterns("clcr", "__pycache__"))
    for name, key in ROWS.items():
        without_row(tmp_path / "calque" / name, key)
    sides = [(SOURCE / "data" / "sample" / f"{lang}.txt").read_text().splitlines()[:40] for lang in ("en", "de")]
    text = tmp_path / "text.tsv"
    text.write_text("".join(f"{a}\t{b}\n" for a, b in zip(*sides, strict=True)))
    align = f"align {text} --langs en de --method rotation --encoder mini --towards en --out {tmp_path}/out -q"
    evaluate = f"evaluate {tmp_path}/out retrieval --test {text} --langs en de -q"
    done = forked.run("-c", PROGRAM, tmp_path, align, evaluate)
    assert done.returncode == 0, done.stderr
    assert "retrieval" in done.stdout
