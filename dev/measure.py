"""Print how dense and how nested the source is: `python dev/measure.py [FOLDER …]`.

A function that a reader must hold in mind at once has a cyclomatic complexity of at most 10 (McCabe
1976) and less than four nested blocks. The numbers are printed by `make check` and are no limits.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_BLOCKS = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith),
    *(ast.Try, ast.TryStar, ast.Match),
)
#: nodes that add one path each; `with`, `else` and `finally` add none
_BRANCHES = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert),
    *(ast.match_case, ast.comprehension),
)


@dataclass
class Counts:
    """Counts of a folder.

    Attributes:
        code: lines without blank lines, comments and docstrings.
        nodes: expressions and statements of the syntax tree.
        complex: functions with a cyclomatic complexity above 10.
        nested: functions with four or more nested blocks.
    """

    files: int = 0
    lines: int = 0
    code: int = 0
    nodes: int = 0
    complex: int = 0
    nested: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without the content of other functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _own(child)


def complexity(function: Function) -> int:
    """Return the cyclomatic complexity: 1 plus the number of branches."""
    branches = 1
    for node in _own(function):
        if isinstance(node, _BRANCHES):
            branches += 1
        if isinstance(node, ast.BoolOp):
            branches += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            branches += len(node.ifs)
    return branches


def nesting(node: ast.AST) -> int:
    """Return the largest number of nested blocks; `elif` is as deep as its `if`."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _SCOPES):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and [child] == node.orelse
        is_block = isinstance(child, _BLOCKS) and not is_elif
        deepest = max(deepest, nesting(child) + is_block)
    return deepest


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines of all docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def count(source: str) -> Counts:
    """Return the counts of a file."""
    tree = ast.parse(source)
    lines, docstrings = source.splitlines(), _docstring_lines(tree)
    code = [
        line
        for number, line in enumerate(lines, 1)
        if number not in docstrings and line.strip() and not line.lstrip().startswith("#")
    ]
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, Function)]
    return Counts(
        files=1,
        lines=len(lines),
        code=len(code),
        nodes=sum(isinstance(node, ast.expr | ast.stmt) for node in nodes),
        complex=sum(complexity(function) > 10 for function in functions),
        nested=sum(nesting(function) >= 4 for function in functions),
    )


def measure(folder: Path) -> Counts:
    """Return the counts of all Python files in a folder."""
    files = (path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")))
    return sum(map(count, files), start=Counts())


def main(folders: list[str]) -> None:
    for folder in folders or [ROOT / "src" / "calque", ROOT / "tests"]:
        counts = measure(Path(folder))
        print(
            f"{Path(folder).name}: {counts.files:,} files, {counts.lines:,} lines, "
            f"{counts.nodes / max(1, counts.code):.1f} AST nodes per code line, "
            f"{counts.complex:,} functions of complexity > 10, {counts.nested:,} of nesting ≥ 4"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
