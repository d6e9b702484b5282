"""Test that help pages and messages use the terms of the command line instead of Python terms."""

import ast
import re
from pathlib import Path

import pytest

import calque
from calque.cli.parser import help_of, help_text
from calque.commands import COMMANDS
from calque.spec import Declared, Option
from command import fails, works
from named_options import check_options, options_of

#: what a help page must not contain: references to other text, names in code, and values and names
#: of Python
_LEAKS = {
    "a reference": r"\bsee (?:above|below|also)\b|\bas above\b|\bsee [`A-Z]",
    "code": r"`|:class:|:func:",
    "a value of Python": r"\b(?:None|True|False)\b",
    "a class of Python": r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b",
    "a setting of Python": r"(?<![\w-])[a-z]+(?:_[a-z]+)+\b",
}
#: names that users know: papers, packages, formats and products
_KNOWN = {
    "Pharaoh",
    "WordNet",
    "CoNLL",
    "AdaGrad",
    "comet_ml",
    "avg_embeds",
    "n_context",
    "XX_best_mapping",
    "index_sense",
}


ALIGN = ("--langs", "en", "de", "--encoder", "mini", "--towards", "en", "-q")


def pages():
    for name in COMMANDS:
        subjects = {name: None, **COMMANDS.load(name).subjects()}
        for title, subject in subjects.items():
            yield pytest.param(name, subject, id=title)


@pytest.mark.parametrize(("name", "subject"), list(pages()))
def test_help_pages_refer_to_nothing_outside_the_page(monkeypatch, name, subject):
    monkeypatch.setenv("COLUMNS", "10000")
    page = help_of(name, subject)
    for kind, pattern in _LEAKS.items():
        found = {match[0] for match in re.finditer(pattern, page)} - _KNOWN
        assert not found, f"{kind}: {found}"


def test_names_of_settings_become_options_in_help():
    declared = Declared("x", int, 3, Option("the `max_words` first words of `paper`, 5% of all"))
    assert help_text(declared, {"max_words"}) == (
        "the --max-words first words of paper, 5%% of all [default: 3]"
    )


def strings(tree):
    """Yield the strings in a module, without docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, documented)]
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.value


def test_every_option_in_a_message_exists_for_some_command():
    known = set().union(*map(options_of, COMMANDS)) | {
        "--help",
        "--version",
        "--on-error",
        "--trust-code",
        "--more",
    }
    known |= {"--font", "--non"}  # a variable of a style sheet, and a prefix of options
    root, unknown = Path(calque.__file__).parent, {}
    for path in root.rglob("*.py"):
        for text in strings(ast.parse(path.read_text(encoding="utf-8"))):
            for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+\b(?!-?\{)", text):
                if option not in known:
                    unknown.setdefault(option, set()).add(path.relative_to(root).as_posix())
    assert unknown == {}


@pytest.mark.parametrize(
    "line",
    [
        "x; raise max_words to align them",
        "use --max-words",
        "set the batch_size",
        "give --dev FILE",
    ],
)
def test_a_message_with_an_option_of_another_command_is_found(line):
    with pytest.raises(AssertionError, match="calque words has no --"):
        check_options(["words", "x.tsv"], f"calque: {line}\n")
    check_options(
        ["words", "x.tsv"], "calque: error: use --model gibbs, or calque align --lora 4\n"
    )
    check_options(["words", "--wrong=3"], "calque: error: no such option --wrong\n")


def test_the_refusal_of_identical_beside_a_dictionary_gives_the_option_to_write(capsys, tmp_path):
    """Check that the suggested command also passes this check."""
    job = (*ALIGN, "--out", tmp_path / "out")
    said = fails(capsys, "align", "--dictionary", "d.tsv", "identical", *job)
    assert said.endswith("write --dictionary d.tsv --option identical=true")
    assert "d.tsv" in fails(
        capsys, "align", "--dictionary", "d.tsv", "--option", "identical=true", *job
    )


@pytest.mark.filterwarnings("default:.*get no links")
def test_the_warning_about_long_lines_needs_no_option(capsys, tmp_path):
    (tmp_path / "long.tsv").write_text("a b c\tx y z\n" * 5 + "a " * 501 + "\t" + "x " * 3 + "\n")
    out = tmp_path / "links"
    _, said = works(
        capsys, "words", tmp_path / "long.tsv", "--langs", "en", "de", "--out", out, "-q"
    )
    assert "get no links; split these lines into sentences" in said


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--method", "contrastiv"), "contrastive"),
        (("--method", "finetune", "--option", "epoch=1"), "epochs"),
    ],
)
def test_a_misspelt_method_or_option_gets_a_suggestion(capsys, tmp_path, arguments, name):
    (tmp_path / "t.tsv").write_text("a\tx\n")
    job = (*ALIGN, "--out", tmp_path / "out")
    assert fails(capsys, "align", tmp_path / "t.tsv", *job, *arguments).endswith(
        f"; did you mean {name}?"
    )
