"""Extension of griffe that shows declared settings with their descriptions and defaults."""

from __future__ import annotations

import ast

import griffe


class Settings(griffe.Extension):
    """Give each field `name: type = option(default, "help")` its help as docstring."""

    def on_attribute_instance(self, *, node, attr, **_):
        value = getattr(node, "value", None)
        if not isinstance(value, ast.Call) or ast.unparse(value.func) != "option":
            return
        default, text = value.args[:2]
        if isinstance(text, ast.Constant):
            attr.docstring = griffe.Docstring(text.value, parent=attr)
        attr.value = None if ast.unparse(default) == "..." else ast.unparse(default)
