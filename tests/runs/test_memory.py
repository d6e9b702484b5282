"""Test with long text that memory is bounded, and that results do not depend on memory limits."""

import tempfile
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from calque import storage, text_files
from calque.alignment import aligned
from calque.alignment.aligned import AlignedText
from calque.alignment.contrastive import number_word_pairs
from calque.corpora import plain, read_parallel, read_sentences, store
from calque.encoders import static
from calque.encoders.static import StaticEncoder, WordTable
from calque.pairs import WordPairs
from calque.tasks.retrieval import WordRetrieval

LANGS = ("en", "de")
WORDS = [a + b for a in "bdfgklmnpr" for b in "aeiou"]


@pytest.fixture
def long_text(tmp_path):
    """Return a function that writes `n` sentence pairs and their word links."""

    def write(n: int):
        rng = np.random.default_rng(n)
        pairs, links = tmp_path / f"{n}.txt", tmp_path / f"{n}.align"
        source = [[WORDS[k] for k in rng.integers(0, 50, 8)] for _ in range(n)]
        pairs.write_text(
            "".join(f"{' '.join(s)} ||| {' '.join(w.upper() for w in s[::-1])}\n" for s in source)
        )
        links.write_text(
            "".join(" ".join(f"{i}-{7 - i}" for i in range(8)) + " 0-1\n" for _ in source)
        )
        return pairs, links

    return write


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Lower all memory limits, so nearly all data passes through files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    for module, name, value in (
        (storage, "VECTORS", 1 << 11),
        (store, "MEMORY", 1 << 12),
        (store, "_ROWS", 16),
        (plain, "_BATCH", 16),
        (text_files, "_BLOCK", 1 << 10),
        (static, "_SENTENCES", 16),
        (aligned, "_SENTENCES", 16),
    ):
        monkeypatch.setattr(module, name, value)
    return folder


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((len(WORDS), 16)).astype(np.float32)
    others = vectors + rng.standard_normal(vectors.shape).astype(np.float32)
    return StaticEncoder(
        {
            "en": WordTable(WORDS, vectors),
            "de": WordTable([word.upper() for word in WORDS[:45]], others[:45]),
        }
    )


def retrieved(table, files, bootstrap=0):
    corpus = read_parallel(files[0], langs=LANGS, pretokenized=True)
    task = WordRetrieval(corpus, WordPairs.open(files[1]), contextual=False, bootstrap=bootstrap)
    return task.evaluate(table)


def laid_out(encoder, files):
    corpus = read_parallel(files[0], langs=LANGS, pretokenized=True)
    pairs = WordPairs.open(files[1]).one_to_one()
    text = AlignedText([corpus], [pairs], encoder, towards="en", kinds=number_word_pairs)
    text.update([np.array([3, 1])], budget=100)
    return text


def encoded(table, files):
    return table.encode(read_sentences(files[0], lang="en", pretokenized=True))


def peak(work, *arguments) -> int:
    """Return the peak number of bytes allocated by Python, NumPy and Arrow, minus the bytes
    allocated before.
    """
    arrow = pa.default_memory_pool()
    before = arrow.bytes_allocated()
    tracemalloc.start()
    try:
        kept = work(*arguments)
        return tracemalloc.get_traced_memory()[1] + arrow.bytes_allocated() - before
    finally:
        tracemalloc.stop()
        del kept


def test_memory_grows_with_the_text_index_but_not_with_the_vectors(small, long_text, table):
    few, many = long_text(100), long_text(500)
    # Both texts are encoded first, because the first pass over a long text also fills caches.
    for files in (few, many):
        encoded(table, files)
    growth = (peak(encoded, table, many) - peak(encoded, table, few)) / 400
    assert growth < 350, f"{growth:.0f} bytes per sentence; its vectors have 512 bytes"
    assert list(small.iterdir()) == []


def test_scores_do_not_depend_on_memory_limits(long_text, table, tiny_encoder, tmp_path, request):
    files = long_text(200)
    expected = retrieved(table, files, 20), laid_out(tiny_encoder, files), encoded(table, files)
    request.getfixturevalue("small")
    scores, text, vectors = (
        retrieved(table, files, 20),
        laid_out(tiny_encoder, files),
        encoded(table, files),
    )
    assert scores == expected[0]
    assert scores[0].value > 0.2
    assert text.fingerprint == expected[1].fingerprint
    assert vars(text.counts) == vars(expected[1].counts)
    assert isinstance(vectors.data, np.memmap)
    assert np.array_equal(vectors.data, expected[2].data)
    assert np.array_equal(vectors.covered, expected[2].covered)
