"""Saved corpora are read."""

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


def test_saved_corpora_are_read(tsv, tmp_path):
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
