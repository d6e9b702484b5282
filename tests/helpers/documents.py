"""Find and run the marked code blocks in Markdown pages.

A comment before a block marks it: `<!-- test: commands -->` for calque commands, one per line,
`<!-- test: python -->` for Python (all blocks of a page share a namespace), and `<!-- test: file
NAME -->` for the content of a file. A tiny encoder replaces ENCODER, mini and the encoders on the
hub.

"""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from calque.cli import main
from linked_text import WORDS

ROOT = Path(__file__).parents[2]
ON_THE_HUB = ("xlm-roberta-base", "bert-base-multilingual-cased")
_BLOCK = re.compile(
    r"^<!-- test: (commands|python|file (\S+)) -->\n+```[^\n]*\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return the kind, the file name (if any) and the text of each marked block."""
    text = page.read_text(encoding="utf-8")
    found = [(kind.split()[0], name, block) for kind, name, block in _BLOCK.findall(text)]
    assert len(found) == text.count("<!-- test:"), (
        f"{page.name}: a marker is not followed by a code block"
    )
    return found


def code_of(name: str) -> str:
    """Return the block of the guide `own.md` that has this file name or, if the block has no file
    name, contains `name`.
    """
    found = blocks(ROOT / "docs" / "guides" / "own.md")
    return next(text for _, file, text in found if file == name or (not file and name in text))


def hooks():
    """Return the module that generates tables and reference pages of the documentation."""
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_texts(folder: Path) -> None:
    """Write the files used in pages: parallel text, named entities and plain text. German is
    English in capitals.
    """
    rng = np.random.default_rng(0)
    for name, n in (("train", 60), ("test", 20), ("en-de", 30), ("en-fr", 30)):
        lines = [
            " ".join(WORDS[i] for i in rng.choice(10, rng.integers(3, 9), replace=False))
            for _ in range(n)
        ]
        (folder / f"{name}.tsv").write_text(
            "".join(f"{line}\t{line.upper()}\n" for line in lines), encoding="utf-8"
        )
    for part, lang, change, step in (
        ("train", "en", str, 4),
        ("test", "en", str, 3),
        ("test", "de", str.upper, 3),
    ):
        lines = [f"{change(w)}\t{'B-LOC' if w == 'house' else 'O'}\n" for w in WORDS * 4]
        sentences = ["".join(lines[k : k + step]) for k in range(0, 40, step)]
        (folder / f"ner.{part}.{lang}.tsv").write_text("\n".join(sentences), encoding="utf-8")
    for lang, change in (("en", str), ("de", str.upper)):
        (folder / f"text.{lang}.txt").write_text(
            "".join(f"{change(' '.join(WORDS))}\n" for _ in range(5))
        )
    sample = folder / "calque-demo" / "text"
    sample.mkdir(parents=True)
    for part in ("train", "test"):
        text = (folder / f"{part}.tsv").read_text(encoding="utf-8")
        (sample / f"de.{part}.tsv").write_text(text, encoding="utf-8")


def run_commands(text: str, encoder: str, capsys) -> None:
    """Run each command; all commands must succeed."""
    for line in filter(None, text.replace("\\\n", " ").splitlines()):
        command, *arguments = shlex.split(line, comments=True)
        assert command == "calque", line
        names = {"ENCODER", *ON_THE_HUB}
        with pytest.raises(SystemExit) as end:
            main([encoder if each in names else each for each in arguments])
        assert end.value.code == 0, f"{line}\n{capsys.readouterr().err}"


def run_python(text: str, encoder: str, page: Path, space: dict) -> None:
    for name in ON_THE_HUB:
        text = text.replace(f'"{name}"', "ENCODER")
    space["ENCODER"] = encoder
    exec(compile(text, page.name, "exec"), space)
