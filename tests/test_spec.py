"""Test the types of settings that are read from annotations."""

import math
import sys

import pytest

from calque.alignment import options_of_method
from calque.errors import SettingError
from calque.runs.study.recipe import read_study
from calque.spec import check_value, types_in, types_of


def types_of_method(name):
    return types_in(options_of_method(name))


MODULE = """
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from calque.alignment.base import Fitted, Method
from calque.alignment.contrastive import Contrastive
from calque.spec import Range


class Shift(Method):
    # the names are those of calque's own settings, most of which must be positive
    def __init__(
        self, *, towards, strength: float = 1.0, k: int = 0, dropout: float = 0.1, layers: int = 0,
        offset: float | None = None, values: Sequence[float] = (0.0,), by_lang: Mapping[str, float] | None = None,
        part: Annotated[float, Range(-1, 1)] = 0, temperature: float = 0.0,
    ):
        self.towards = towards

    def fit(self, encoder, data, run=None):
        return Fitted(encoder)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mine(Contrastive):
    margin: float = 0.0
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "shifting_values.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shifting_values", raising=False)
    return tmp_path


ALLOWED = {
    "strength": -0.5,
    "k": -3,
    "dropout": 7.5,
    "layers": -2,
    "offset": -1e6,
    "values": [-1.0, -1.0],
    "by_lang": {"de": -1.0},
    "part": -1,
    "temperature": -2.0,
}


@pytest.mark.parametrize("name", ALLOWED)
def test_numbers_of_a_custom_method_have_only_the_declared_bounds(module, name):
    types = types_of_method("shifting_values:Shift")
    check_value(name, ALLOWED[name], types[name])


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("part", -1.5, "a number from -1 to 1"),
        ("strength", math.inf, "a number"),
        ("strength", "a", "a number"),
        ("k", 0.5, "a whole number"),
        ("strength", 10**400, "a number"),
    ],
)
def test_values_outside_the_declaration_are_rejected(module, name, value, expected):
    with pytest.raises(SettingError, match=f", expected {expected}$"):
        check_value(name, value, types_of_method("shifting_values:Shift")[name])


def test_inherited_settings_keep_their_bounds(module):
    types = types_of_method("shifting_values:Mine")
    check_value("margin", -1.0, types["margin"])
    for name in ("batch", "temperature"):
        with pytest.raises(SettingError, match=r"expected a (whole )?number"):
            check_value(name, -1, types[name])


def test_settings_of_calque_are_not_negative(module):
    from calque.alignment.finetune import FineTune

    with pytest.raises(SettingError, match="expected a number not below 0"):
        check_value("learning_rate", -1.0, types_of(FineTune)["learning_rate"])


def test_a_study_accepts_a_negative_number_of_a_custom_method(module):
    path = module / "study.toml"
    path.write_text(
        'encoders = ["mini"]\n[methods.own]\nmethod = "shifting_values:Shift"\nstrength = -0.5\nk = -1\n'
        '[supervision.text]\nde = "train.tsv"\n[tasks.retrieval]\ntest = { de = "test.tsv" }\n'
    )
    assert read_study(path).methods["own"].options == {"strength": -0.5, "k": -1}
