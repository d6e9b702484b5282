"""Test how the command is stored in the run record."""

import pytest

from calque.distributed.environment import command_line, environment


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            ["/usr/local/bin/calque", "align", "a.tsv", "--langs", "en", "de"],
            "calque align a.tsv --langs en de",
        ),
        (["/x/calque/__main__.py", "demo"], "calque demo"),
        (
            ["calque", "align", "/home/ann/a b.tsv", "de=/home/ann/de.txt"],
            "calque align 'a b.tsv' de=de.txt",
        ),
        (["/usr/bin/pytest", "-q"], None),
    ],
)
def test_the_command_is_recorded_without_private_paths(monkeypatch, typed, said):
    monkeypatch.setattr("sys.argv", typed)
    assert command_line() == said
    assert environment().get("command") == said
