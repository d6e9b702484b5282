"""Which of calque's own sources a result depends on, and a hash over them."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import calque
from calque.named import file_of, is_path

PACKAGE, ROOT = calque.__name__, Path(calque.__file__).parent


@cache
def digest_of(function: Callable[..., Any]) -> str:
    """Hash of the code that a function of calque can reach: its own source, the functions of its module that it names, and
    every module of calque that they import, directly or through another, also inside functions. Comments, docstrings and
    blank lines do not count. Computed once per process: all of calque takes a second or two.
    """
    statements, modules = _reached(function)
    digest = hashlib.blake2b(digest_size=16)
    for part in statements:
        digest.update(ast.dump(part).encode())
    for name in modules:
        digest.update(f"\0{name}\0{_code(name)}".encode())
    return digest.hexdigest()


def modules_of(functions: Iterable[Callable[..., Any]]) -> list[str]:
    """All modules of calque that functions can reach."""
    return sorted({name for function in functions for name in _reached(function)[1]})


def digest_of_own(settings: Mapping[str, Any]) -> str:
    """Hash of the files of the classes from elsewhere, `package.module:Class`, that settings name as method, task or encoder;
    empty if they name none. Only the file counts in which the class stands, not what it imports."""
    encoders = [name for _, name in settings.get("encoder") or ()]
    names = [name for name in (settings.get("method"), settings.get("task"), *encoders) if name and is_path(name)]
    return "".join(hashlib.blake2b(file_of(name).read_bytes(), digest_size=16).hexdigest() for name in names)


def load(modules: Iterable[str]) -> None:
    """Import modules, so that what is edited from now on has no part in the results of this process."""
    for name in modules:
        with suppress(ImportError):  # of an extra that is not installed
            import_module(name)


@cache
def _reached(function: Callable[..., Any]) -> tuple[list[ast.AST], list[str]]:
    """The statements of a function's own module that it depends on, and the modules of calque that they import."""
    tree = _tree(Path(function.__code__.co_filename))
    defined: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in _defines(statement):
            defined.setdefault(name, []).append(statement)
    reached: dict[int, ast.AST] = {}
    left = list(defined.get(function.__name__, [tree]))  # all of it for a function without a name
    while left:
        statement = left.pop()
        if id(statement) not in reached:
            reached[id(statement)] = statement
            names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            left += [needed for name in sorted(names) for needed in defined.get(name, ())]
    parts = sorted(reached.values(), key=lambda part: getattr(part, "lineno", 0))
    modules: set[str] = set()
    _follow([name for part in parts for name in _imports(part)], modules)
    return parts, sorted(modules)


def _defines(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
    else:
        yield from (n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _follow(names: Sequence[str], modules: set[str]) -> None:
    """Modules and all that they import."""
    left = list(names)
    while left:
        name = left.pop()
        if name not in modules and (path := _path(name)) is not None:
            modules.add(name)
            left += [name.rpartition(".")[0], *_imported(path)]


@cache
def _imported(path: Path) -> tuple[str, ...]:
    return tuple(_imports(_tree(path)))


def _imports(tree: ast.AST) -> Iterator[str]:
    """What may be modules of calque among the names that are imported, except for type checkers alone, and among those that
    a table names as `calque.module:Class`."""
    if isinstance(tree, ast.If) and isinstance(tree.test, ast.Name) and tree.test.id == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.ImportFrom) and tree.module and tree.module.partition(".")[0] == PACKAGE:
        yield tree.module
        yield from (f"{tree.module}.{alias.name}" for alias in tree.names)
    elif isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    elif isinstance(tree, ast.Constant) and isinstance(tree.value, str) and is_path(tree.value):
        yield tree.value.partition(":")[0]
    for child in ast.iter_child_nodes(tree):
        yield from _imports(child)


def _path(name: str) -> Path | None:
    """The file of a module of calque; None for what is no module, or another's."""
    package, *parts = name.split(".")
    place = ROOT.joinpath(*parts)
    files = [place / "__init__.py", place.with_suffix(".py")] if parts else [place / "__init__.py"]
    return next((file for file in files if file.is_file()), None) if package == PACKAGE else None


@cache
def _code(name: str) -> str:
    path = _path(name)
    assert path is not None
    return hashlib.blake2b(ast.dump(_tree(path)).encode(), digest_size=16).hexdigest()


@cache
def _tree(path: Path) -> ast.Module:
    """A file's code without its docstrings."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _has_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
