"""Arrow arrays without pandas, against what pyarrow itself makes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.arrow import WORDS, from_numpy, from_words, scalar, to_numpy


@settings(deadline=None)  # the first call of a process loads much
@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])))))
def test_words(sentences):
    found = from_words(sentences)
    found.validate(full=True)
    assert found.equals(pa.array(sentences, WORDS))


@pytest.mark.parametrize("bad", [[["a", 1]], [["a", "\ud800"]], [[["a"]]]])
def test_what_is_no_text_is_refused(bad):
    with pytest.raises((pa.ArrowException, UnicodeEncodeError)):
        from_words(bad)


def test_numbers_there_and_back():
    numbers = np.arange(10, dtype=np.int32)[::2]
    assert from_numpy(numbers).equals(pa.array([0, 2, 4, 6, 8], pa.int32()))
    chunks = pa.chunked_array(
        [pa.array([1, 2, 3], pa.int64())[1:], pa.array([], pa.int64()), pa.array([7], pa.int64())]
    )
    assert to_numpy(chunks).tolist() == [2, 3, 7]
    assert to_numpy(chunks[:0]).dtype == np.int64
    assert scalar("ö") == pa.scalar("ö")
    assert scalar(np.int32(-1)) == pa.scalar(-1, pa.int32())


def test_linking_words_does_not_import_pandas(tmp_path):
    text = tmp_path / "text.tsv"
    text.write_text("the house\tdas Häuschen\n" * 30)
    program = f"""
import sys
from calque.cli import main
try:
    main(["words", {str(text)!r}, "--langs", "en", "de", "--out", {str(tmp_path / "out")!r}, "-q"])
except SystemExit as end:
    assert not end.code, end.code
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
