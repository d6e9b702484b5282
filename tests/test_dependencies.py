"""Check that every imported package is a dependency of calque or of one of its extras."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import calque

ROOT = Path(calque.__file__).parent
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# Packages that are installed as dependencies of another package, which calque requires.
WITH = {"huggingface-hub": "transformers", "tokenizers": "transformers", "markupsafe": "jinja2"}


def imports(path: Path):
    """Yield each external module that a file imports, the line, and whether importing the file
    executes the import.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # Functions run later, and blocks under TYPE_CHECKING never run.
    inside = set()
    for block in ast.walk(tree):
        is_for_types = isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        if isinstance(block, ast.FunctionDef) or is_for_types:
            inside.update(ast.walk(block))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"calque"}:
            yield name, node.lineno, node not in inside


def _integration(path: Path) -> list[str]:
    """Return the extra of an integration, which has the same name as the module, except for modules
    that only sentence-transformers imports.
    """
    if path.parts[0] != "integrations":
        return []
    name = Path(path.parts[1]).stem.replace("_", "-")
    return ["sentence-transformers" if name == "sentence-modules" else name]


def wrong(root: Path, project: dict) -> list[str]:
    """Return the imports that fail without extras, and imports of packages that neither calque nor
    an extra requires.
    """

    def names(requirements):
        return {
            re.match(r"[A-Za-z0-9._-]+", each)[0].lower().replace("_", "-") for each in requirements
        }

    plain = names(project["dependencies"])
    extras = {
        extra: names(requirements) - {"calque"}
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in ("dev", "docs")
    }
    distributions = packages_distributions()
    found = []
    for path in sorted(root.rglob("*.py")):
        for module, line, at_once in imports(path):
            where = f"{path.relative_to(root)}:{line} imports {module}"
            packages = {
                name.lower().replace("_", "-") for name in distributions.get(module, [module])
            }
            packages |= {WITH[name] for name in packages & WITH.keys()}
            if packages & plain:
                continue
            bring = [extra for extra, inside in extras.items() if packages & inside]
            if not bring:
                found.append(f"{where}, which no installation brings")
            elif at_once and not {
                path.relative_to(root).parts[0],
                *_integration(path.relative_to(root)),
            } & set(bring):
                found.append(f"{where} for everyone, which only calque-align[{bring[0]}] brings")
    return found


def test_calque_can_be_imported_without_extras_and_no_dependency_is_missing():
    found = wrong(ROOT, tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"])
    assert not found, "\n".join(found)
