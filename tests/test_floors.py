"""Check that files import only from packages in lower layers, and that there are no import
cycles.
"""

import ast
import re
from pathlib import Path

import pytest

import calque

ROOT = Path(calque.__file__).parent
FLOOR = {
    "errors": -2,
    "offsets": -2,
    "launched": -2,
    "version": -2,
    "storage": -1,
    "named": -1,
    "spec": -1,
    "progress": -1,
    "text_files": -1,  # the lowest layers
    "text": 0,
    "segment": 0,
    "pairs": 1,
    "vectors": 1,
    "annotated": 1,
    "spans": 2,
    "distributed": 2,
    "algebra": 2,
    "corpora": 3,
    "wordalign": 3,
    "anchors": 3,
    "maps": 3,
    "nn": 3,
    "encoders": 4,
    "input_texts": 4,
    "training": 5,
    "linker": 5,
    "alignment": 7,
    "tasks": 7,
    "analyses": 8,
    "runs": 9,
    "report": 10,
    "explore": 10,
    "integrations": 11,
    "commands": 12,
    "cli": 13,
    "__main__": 14,
    "__init__": 14,
    "clcr": 15,
    "senses": 15,  # no other package imports these two
}


def imports(path: Path):
    """Yield each calque module that a file imports, and the line; include imports in functions and
    for type checkers.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "calque"
        ):
            names = (
                [node.module]
                if node.module != "calque"
                else [f"calque.{alias.name}" for alias in node.names]
            )
            yield from ((name, node.lineno) for name in names)
        elif isinstance(node, ast.Import):
            yield from (
                (a.name, node.lineno) for a in node.names if a.name.split(".")[0] == "calque"
            )


def test_files_import_only_from_lower_layers():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        assert room in FLOOR, f"{path} belongs to no layer in FLOOR"
        for name, line in imports(path):
            parts = name.split(".")
            other = parts[1] if len(parts) > 1 and parts[1] in FLOOR else None
            if other is None or other == room:
                continue  # calque itself (its version), or the same package
            if FLOOR[other] >= FLOOR[room]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_every_layer_entry_is_a_package():
    missing = [
        room for room in FLOOR if not ((ROOT / room).is_dir() or (ROOT / f"{room}.py").is_file())
    ]
    assert not missing, f"FLOOR names missing packages: {', '.join(missing)}"


def layers(table: str) -> dict[str, int]:
    """Return the layer of each package in a Markdown table of layers. Text in parentheses describes
    a package.
    """
    found = {}
    for layer, packages in re.findall(r"^\| (-?\d+) \| (.+) \|$", table, re.MULTILINE):
        names = re.findall(r"`(\w+)/?`", re.sub(r"\([^)]*\)", "", packages))
        found |= dict.fromkeys(names, int(layer))
    return found


def test_the_table_in_contributing_lists_every_layer():
    contributing = ROOT.parents[1] / "CONTRIBUTING.md"
    if not contributing.exists():
        pytest.skip("requires a checkout")
    assert layers(contributing.read_text(encoding="utf-8")) == FLOOR


def neighbours(files: dict[str, Path], name: str) -> set[str]:
    """Return the names of the modules in `files` that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(files[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = ((f"{node.module}.{alias.name}", node.module) for alias in node.names)
            found |= {file if file in files else room for file, room in inside}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & files.keys()


def circles(root: Path) -> list[str]:
    """Return the files in import cycles, including imports in functions and for type checkers."""
    files = {
        ".".join((root.name, *p.relative_to(root).with_suffix("").parts)): p
        for p in root.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    left = {name: neighbours(files, name) for name in files}
    while free := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in free}
    while free := left.keys() - {
        need for needs in left.values() for need in needs
    }:  # remove unimported files
        left = {name: needs for name, needs in left.items() if name not in free}
    return sorted(left)


def test_there_are_no_import_cycles():
    assert not circles(ROOT)


def test_the_check_finds_an_import_cycle(tmp_path):
    (tmp_path / "a.py").write_text(f"def f():\n    from {tmp_path.name}.b import g\n")
    (tmp_path / "b.py").write_text(f"if TYPE_CHECKING:\n    from {tmp_path.name} import a\n")
    (tmp_path / "c.py").write_text(f"import {tmp_path.name}.a\n")
    assert circles(tmp_path) == [f"{tmp_path.name}.a", f"{tmp_path.name}.b"]


def test_the_check_finds_an_upward_import(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from calque.tasks import Score\n")
    assert list(imports(file)) == [("calque.tasks", 2)]
