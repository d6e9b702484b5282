"""Write values as TOML; the standard library can only read TOML."""

import json


def toml(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{json.dumps(key)} = {toml(each)}' for key, each in value.items())}}}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def toml_file(plan) -> str:
    return "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in plan.items())
