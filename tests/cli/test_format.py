"""Test that --format selects the reader of a text."""

import pytest

from command import fails, works

READER = """
from calque.corpora import Omission, RawPair


def arrows(path, *, langs):
    '''Lines with an arrow between source and target.'''
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            source, arrow, target = line.strip().partition(" -> ")
            if not arrow:
                yield Omission(number, "no arrow")
                continue
            yield RawPair(number, source, target)
"""


@pytest.fixture
def text(tmp_path, monkeypatch):
    (tmp_path / "arrow_reader.py").write_text(READER)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "t.txt").write_text("a cat -> eine Katze\nthe house -> das Haus\n" * 3)
    return tmp_path / "t.txt"


def test_a_reader_from_another_package_can_be_named(capsys, text, tmp_path):
    job = ("words", text, "--langs", "en", "de", "-q", "--out", tmp_path / "links")
    works(capsys, *job, "--format", "arrow_reader:arrows")
    assert len((tmp_path / "links").read_text().splitlines()) == 6
    assert "unknown format" in fails(capsys, *job, "--format", "arow")


def test_a_task_on_parallel_text_accepts_a_format(capsys, text):
    job = ("evaluate", "mini", "retrieval", "--test", text, "--langs", "en", "de", "-q")
    assert "retrieval" in works(capsys, *job, "--format", "arrow_reader:arrows")[0]


def test_lines_that_a_reader_omits_are_counted_but_raise_no_error(capsys, text, tmp_path):
    text.write_text(text.read_text() + "a comment\n" * 20)
    job = ("words", text, "--langs", "en", "de", "-q", "--out", tmp_path / "links")
    _, said = works(capsys, *job, "--format", "arrow_reader:arrows")
    assert "skipped 20 unusable lines (20 × no arrow, first:" in said
    assert len((tmp_path / "links").read_text().splitlines()) == 6
