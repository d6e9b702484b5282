"""Size limits of the project, which may only be lowered.

A test fails if a size exceeds its limit, and also if the limit is more than 2% above the size, so every reduction is
recorded. Lower the limit in the commit that reduces the size.

"""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
import typer

import calque
from calque.alignment import METHODS
from calque.cli import verbs

SOURCE = Path(calque.__file__).parent
PROJECT = SOURCE.parents[1]

#: limits on the lines and files of Python code
LINES = {"src": 40_000, "tests": 24_000, "benchmarks": 1_755, "dev": 1_475}
FILES = 222
#: limits on the options that `calque VERB --help` lists
OPTIONS = {"align": 20, "evaluate": 14, "words": 15, "pretrain": 16, "distil": 15, "analyze": 15}
#: limits on the constructor arguments of a method's class
SETTINGS = {"contrastive": 12, "finetune": 10, "clcr": 15}
#: limits on the calque modules, and their lines, that are executed when a method's class is imported
LOADED_MODULES, LOADED_LINES = 48, 6_700


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def options_of(verb: str) -> int:
    """Return the number of options listed in the help of a command."""
    command: Any = typer.main.get_command(verbs.parser())
    parameters = command.commands[verb].params
    return sum(each.param_type_name == "option" and not each.hidden for each in parameters)


def settings_of(method: str) -> int:
    """Return the number of constructor arguments of a method's class."""
    module, _, name = METHODS[method].target.partition(":")
    return len(inspect.signature(getattr(importlib.import_module(module), name)).parameters)


def loaded_by(module: str) -> dict[str, Path]:
    """Return the calque modules that are executed when a module is imported, according to the syntax trees of the files.

    Imports inside functions and under `if TYPE_CHECKING:` are not executed, so they are not included.
    """
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        place = SOURCE.parent.joinpath(*name.split("."))
        path = next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)
        if path is None or name in found:
            continue
        found[name] = path
        waiting += [name.rpartition(".")[0]] if "." in name else []
        statements = list(ast.parse(path.read_text(encoding="utf-8")).body)
        while statements:
            node = statements.pop()
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names if alias.name.startswith("calque")]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("calque"):
                waiting += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.ClassDef | ast.With | ast.Try | ast.If):
                for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
                statements += [] if for_types else node.body
    return found


def check(size: int, limit: int, of: str) -> None:
    assert size <= limit, f"{of}: {size}, above the limit of {limit}: remove something first"
    assert limit - size <= max(2, limit // 50), f"{of}: {size}, well below the limit of {limit}: lower the limit"


@pytest.mark.parametrize("folder", LINES)
def test_the_number_of_lines_is_within_its_limit(folder):
    check(lines(SOURCE if folder == "src" else PROJECT / folder), LINES[folder], f"lines of {folder}")


def test_the_number_of_files_is_within_its_limit():
    check(len(list(SOURCE.rglob("*.py"))), FILES, "files of src")


@pytest.mark.parametrize("verb", OPTIONS)
def test_the_number_of_options_is_within_its_limit(verb):
    check(options_of(verb), OPTIONS[verb], f"options of calque {verb}")


@pytest.mark.parametrize("method", SETTINGS)
def test_the_number_of_settings_is_within_its_limit(method):
    check(settings_of(method), SETTINGS[method], f"settings of {method}")


def test_the_modules_loaded_with_a_method_are_within_their_limits():
    found = loaded_by("calque.alignment.contrastive")
    check(len(found), LOADED_MODULES, "modules that calque.alignment.contrastive loads")
    check(
        sum(len(path.read_text(encoding="utf-8").splitlines()) for path in set(found.values())), LOADED_LINES,
        "lines that calque.alignment.contrastive loads",
    )  # fmt: skip


def test_a_size_may_be_neither_above_nor_far_below_its_limit():
    check(100, 100, "a size")
    with pytest.raises(AssertionError, match="remove something"):
        check(101, 100, "a size")
    with pytest.raises(AssertionError, match="lower the limit"):
        check(90, 100, "a size")
