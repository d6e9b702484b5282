"""Write the tables of a study as TOML, which the standard library can only read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from calque.storage import json_text

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def study_text(tables: Mapping[str, object], comment: str = "") -> str:
    """Return the content of a study file, which `read_study` reads.

    Args:
        tables: settings and tables of the study: text, finite numbers, truth values, lists and
            mappings. A value of None is left out.
        comment: lines at the top of the file.
    """
    lines = [f"# {line}" for line in comment.splitlines()]
    groups: dict[str, Mapping[str, Mapping[str, object]]] = {}
    for name, value in tables.items():
        if isinstance(value, Mapping) and all(isinstance(each, Mapping) for each in value.values()):
            groups[name] = value
        elif value is not None:
            lines.append(f"{_key(name)} = {_toml(value)}")
    # In TOML, all settings of a file come before its first table.
    for group, members in groups.items():
        for name, member in members.items():
            lines += ["", f"[{_key(group)}.{_key(name)}]"]
            for key, value in member.items():
                if value is not None:
                    lines.append(f"{_key(key)} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        items = [f"{_key(key)} = {_toml(item)}" for key, item in value.items() if item is not None]
        return f"{{ {', '.join(items)} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(_toml(item) for item in value)}]"
    # Text, numbers and truth values are written as in JSON, except for one control character.
    return json_text(value, ensure_ascii=False).replace("\x7f", "\\u007f")
