"""Large corpora stream to disk, saved corpora are read."""

from __future__ import annotations

import os
import tempfile

import pyarrow as pa
import pytest

from calque.corpora import read_parallel
from calque.errors import InputError

LANGS = ("en", "de")


@pytest.fixture
def tsv(tmp_path):
    path = tmp_path / "f.tsv"
    lines = [f"word {k}\tWort {k}\tnote{k}\n" if k % 100 else "\tempty\n" for k in range(1, 2001)]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Hardly anything fits into memory."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr("calque.corpora.store.MEMORY", 20_000)
    monkeypatch.setattr("calque.corpora.store._ROWS", 64)
    return temporary


def test_a_large_reading_is_mapped_and_leaves_nothing_behind(tsv, small, monkeypatch):
    before = pa.total_allocated_bytes()
    mapped = read_parallel(tsv, langs=LANGS, on_error="skip")
    assert pa.total_allocated_bytes() - before < 20_000
    if os.name == "posix":
        assert list(small.iterdir()) == []
    monkeypatch.setattr("calque.corpora.store.MEMORY", 1 << 30)
    memory = read_parallel(tsv, langs=LANGS, on_error="skip")
    assert mapped.table.equals(memory.table)
    assert mapped.skipped == memory.skipped == {"empty source": 20}
    assert mapped.first_skipped == memory.first_skipped
    assert mapped.metadata("column_3")[-1] == "note1999"


def test_saved_corpora(tsv, tmp_path):
    corpus = read_parallel(tsv, langs=LANGS, on_error="skip")
    path = tmp_path / "c.arrow"
    corpus.save(path)
    assert read_parallel(path, langs=LANGS).table.equals(corpus.table)
    assert read_parallel(path, langs=LANGS).skipped == corpus.skipped
    assert read_parallel(path, langs=("de", "en")).source[0].words == ("Wort", "1")
    assert len(read_parallel(path, langs=LANGS, limit=7)) == 7
    (tmp_path / "other").write_bytes(path.read_bytes())
    assert len(read_parallel(tmp_path / "other", langs=LANGS)) == len(corpus)
    with pytest.raises(InputError, match="a saved corpus in en-de, expected en-fr"):
        read_parallel(path, langs=("en", "fr"))
