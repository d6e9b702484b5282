"""Tests of tables of named classes, and of classes from other packages."""

from collections import OrderedDict
from dataclasses import dataclass

import pytest

from calque.errors import SettingError
from calque.named import Table, imported, is_path


@dataclass(frozen=True)
class Row:
    target: str
    help: str = ""


def table() -> Table[Row]:
    rows = {
        "ordered": Row("collections:OrderedDict", "keeps its order"),
        "list": Row("builtins:list"),
    }
    return Table(
        "dict", rows, base="builtins:dict", row_of=lambda name, found: Row(name, found.__name__)
    )


def test_a_name_in_the_table_is_found():
    assert list(table()) == ["ordered", "list"]
    assert len(table()) == 2
    assert table()["ordered"].help == "keeps its order"
    assert table().load("ordered") is OrderedDict


def test_a_class_from_another_package_can_be_looked_up_but_is_not_listed():
    found = table()
    assert "collections:Counter" in found
    assert found["collections:Counter"] == Row("collections:Counter", "Counter")
    assert found.load("collections:Counter").__name__ == "Counter"
    assert "collections:Counter" not in list(found)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "unknown dict 'other', expected one of ordered, list, or package.module:Class"),
        ("list", "dict builtins:list must be a subclass of builtins:dict"),
        ("collections:deque", "dict collections:deque must be"),
        ("no_such_module:X", "no_such_module cannot be imported"),
        ("collections:Nothing", "collections:Nothing: collections has no Nothing"),
    ],
)
def test_invalid_names_are_rejected(name, message):
    with pytest.raises(SettingError, match=message.replace("(", r"\(")):
        table().load(name)


def test_class_paths_are_recognised():
    assert is_path("a.b:C")
    assert is_path("a:C.D")
    assert not any(
        map(is_path, ("C:\\models", "en=x", "name", ":C", "a:", "a b:C", "https://x", "a/b:C"))
    )
    assert imported("collections:OrderedDict.fromkeys")("ab") == OrderedDict(a=None, b=None)
