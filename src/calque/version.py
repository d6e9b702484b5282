"""The version of calque, as in `pyproject.toml`."""

VERSION = "0.1.0.dev0"
