"""Tables of named classes. Classes from other packages have names of the form
`package.module:Class`.

A table lists names without importing the classes, which keeps help and error messages fast. A class
named by the user is imported directly. A class named in a file is imported only with permission,
because the file may be untrusted.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from calque.errors import InputError, SettingError, did_you_mean


class Row(Protocol):
    """Row of a table; `target` is the name of the class, `package.module:Class`."""

    @property
    def target(self) -> str: ...


R = TypeVar("R", bound=Row)
_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")


def is_path(name: str) -> bool:
    """Return whether a name has the form `package.module:Class`."""
    module, colon, attribute = name.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)


def is_hub_name(name: str) -> bool:
    """Return whether a name has the form of a name on the Hugging Face hub, NAME or OWNER/NAME."""
    return _HUB_NAME.fullmatch(name) is not None


def exported(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, which imports each name on first use; `names` maps each
    module to its names.
    """
    module_of = {}
    for module, module_names in names.items():
        for name in module_names.split():
            module_of[name] = f"{package}.{module}"

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module_of[name]), name)
        # The next access finds the name without this function.
        setattr(sys.modules[package], name, value)
        return value

    return get


def imported(target: str) -> Any:
    """Import `package.module:Class`.

    Raises:
        SettingError: the module cannot be imported or does not define the class.
    """
    module, _, attribute = target.partition(":")
    try:
        value: object = importlib.import_module(module)
    except ImportError as error:
        remedy = "is the package installed, or is its folder on PYTHONPATH?"
        raise SettingError(f"{target}: {module} cannot be imported ({error}); {remedy}") from error
    try:
        return attrgetter(attribute)(value)
    except AttributeError:
        raise SettingError(f"{target}: {module} has no {attribute}") from None


def file_of(target: str) -> Path:
    """Return the source file of the module in `package.module:Class`.

    Raises:
        SettingError: the module does not exist or has no file.
    """
    module = target.partition(":")[0]
    with suppress(ImportError, ValueError):
        spec = find_spec(module)
        if spec is not None and spec.has_location:
            return Path(str(spec.origin))
    raise SettingError(
        f"{target}: there is no module {module}; is it installed, or is its folder on PYTHONPATH?"
    )


# -- names in files --------------------------------------------------------------------------------
class Permission:
    """Permission granted within a block, as in `with TRUST_CODE.given(): …`; its truth value is
    True inside the block.
    """

    def __init__(self, name: str):
        self._is_given: ContextVar[bool] = ContextVar(name, default=False)

    def __bool__(self) -> bool:
        return self._is_given.get()

    @contextmanager
    def given(self, is_given: bool = True) -> Iterator[None]:
        """Grant the permission within the block, or change nothing if `is_given` is False."""
        token = self._is_given.set(is_given or bool(self))
        try:
            yield
        finally:
            self._is_given.reset(token)


#: permission to import classes from other packages that are named in files
TRUST_CODE = Permission("calque_trusts_code")


def class_in_file(target: str, base: type[Any], path: str | PathLike[str]) -> type[Any]:
    """Return a class from another package, which a file names as `package.module:Class`.

    Importing a module runs its code, so the class must already be imported unless `TRUST_CODE` is
    granted.

    Args:
        base: required base class.
        path: folder of the file, for use in messages.

    Raises:
        InputError: the class is neither imported nor trusted, or is not a subclass of `base`.
    """
    # Callers have already looked up the classes of calque that can be saved.
    if target.partition(":")[0].partition(".")[0] == "calque":
        raise InputError(
            f"names {target}, but calque saves no {base.__name__} of this class", path=path
        )
    # The list grows while it is read, so that it contains subclasses of all levels.
    imported_classes = [base]
    for imported_class in imported_classes:
        imported_classes += imported_class.__subclasses__()
        if f"{imported_class.__module__}:{imported_class.__qualname__}" == target:
            return imported_class
    if not TRUST_CODE:
        raise InputError(
            f"names the class {target}, which is not part of calque and was not imported: if you "
            "trust this code, import its module before you open the folder, or pass "
            "trust_code=True (--trust-code on the command line)",
            path=path,
        )
    try:
        return _subclass(target, base, base.__name__)
    except SettingError as error:
        raise InputError(str(error), path=path) from error


def _subclass(target: str, base: type[Any], noun: str) -> type[Any]:
    """Import a class, and check that it is a subclass of `base`."""
    value = imported(target)
    if not (isinstance(value, type) and issubclass(value, base)):
        raise SettingError(
            f"{noun} {target} must be a subclass of {base.__module__}:{base.__qualname__}"
        )
    return value


class Table(Mapping[str, R], Generic[R]):
    """Mapping from names to rows. It also accepts, but does not list, classes from other packages
    as `package.module:Class`.

    Args:
        what: noun for messages, such as "method".
        base: required base class as `package.module:Class`.
        row_of: function that builds the row for a class from another package, given its name and
            the class.

    Attributes:
        rows: rows by name, as listed in help texts, studies, reports and the documentation.
    """

    _other_names = "package.module:Class"  # names accepted in addition to those of the rows

    def __init__(
        self, what: str, rows: Mapping[str, R], *, base: str, row_of: Callable[[str, type], R]
    ):
        self.what = what
        self.rows = dict(rows)
        self._base = base
        self._row_of = row_of

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self.rows or (isinstance(name, str) and is_path(name))

    def __getitem__(self, name: str) -> R:
        if name in self.rows:
            return self.rows[name]
        if not is_path(name):
            expected = f"one of {', '.join(self.rows)}, or {self._other_names}"
            raise SettingError(
                f"unknown {self.what} {name!r}, expected {expected}{did_you_mean(name, self.rows)}"
            )
        return self._row_of(name, self._checked(name))

    def load(self, name: str) -> type[Any]:
        """Import the class of a row, and check that it is a subclass of the base class."""
        return self._checked(self[name].target)

    def load_from_file(self, name: str, path: str | PathLike[str]) -> type[Any]:
        """Return the class named in a file: the class of a row, or a class from another package
        (see `class_in_file`).
        """
        row = self.rows.get(name)
        targets = [row.target for row in self.rows.values()]
        if row is None and name not in targets:
            return class_in_file(name, imported(self._base), path)
        return self._checked(name if row is None else row.target)

    def _checked(self, target: str) -> type[Any]:
        return _subclass(target, imported(self._base), self.what)


class FunctionTable(Table[R]):
    """Table whose rows name functions. It also accepts, but does not list, functions from other
    packages as `package.module:function`.

    Args:
        what: noun for messages, such as "format".
        row_of: function that builds the row for a function from another package, given its name
            and the function.
    """

    _other_names = "package.module:function"

    def __init__(
        self, what: str, rows: Mapping[str, R], *, row_of: Callable[[str, Callable[..., Any]], R]
    ):
        super().__init__(what, rows, base="", row_of=row_of)

    def function(self, name: str) -> Callable[..., Any]:
        """Import the function of a row.

        Raises:
            SettingError: the name is unknown, or does not name a function.
        """
        return self._checked(self[name].target)

    def _checked(self, target: str) -> Any:
        function = imported(target)
        if not callable(function):
            raise SettingError(f"{self.what} {target} must be a function")
        return function
