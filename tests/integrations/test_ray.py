"""Test that vectors and links of batches equal those of the full text, in this process and on a
one-node cluster.
"""

import signal

import numpy as np
import pyarrow as pa
import pytest

from calque.encoders import load_encoder
from calque.errors import InputError
from calque.integrations.ray import Encode, Link, sentences
from calque.text import ParallelCorpus, Sentences
from calque.wordalign import WordAligner
from linked_text import WORDS


def lines(n, seed=0):
    """Return sentences of a few words."""
    rng = np.random.default_rng(seed)
    return [" ".join(WORDS[k] for k in rng.integers(0, 10, rng.integers(1, 7))) for _ in range(n)]


def vectors_of(table):
    return np.array(
        [vector for row in table["vectors"].to_pylist() for vector in row], dtype=np.float32
    )


def test_a_batch_contains_the_vectors_of_its_words(tiny_folder):
    text = lines(25)
    expected = load_encoder(tiny_folder).encode(Sentences.of([line.split() for line in text], "en"))
    table = Encode(str(tiny_folder), lang="en")(pa.table({"id": range(25), "text": text}))
    assert table.column_names == ["id", "text", "vectors", "words", "covered"]
    np.testing.assert_array_equal(vectors_of(table), np.asarray(expected.data))
    assert [" ".join(words) for words in table["words"].to_pylist()] == text
    assert table["covered"].combine_chunks().flatten().to_pylist() == [True] * expected.n_words
    again = Encode(str(tiny_folder), lang="en", column="words", layer=1)(table)
    expected = load_encoder(tiny_folder, layer=1).encode(
        Sentences.of([line.split() for line in text], "en")
    )
    np.testing.assert_array_equal(vectors_of(again), np.asarray(expected.data))


def test_a_batch_contains_the_links_from_saved_tables(tmp_path):
    source = lines(40)
    target = [line.upper() for line in source]
    corpus = ParallelCorpus.of(
        [line.split() for line in source], [line.split() for line in target], ("en", "de")
    )
    WordAligner.train(corpus, model="fast-align").save(tmp_path / "tables")
    table = Link(str(tmp_path / "tables"), columns=("en", "de"))(
        pa.table({"de": target, "en": source})
    )
    expected = WordAligner.open(tmp_path / "tables").align(corpus)
    assert table["links"].to_pylist() == [line.rstrip("\n") for line in expected.pharaoh_lines()]
    assert len(expected) > 40


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"tekst": ["a"]}, "no column 'text'; the table has tekst"),
        ({"text": [None]}, "expected text or a list of words"),
        ({"text": [["a", None]]}, "expected text or a list of words"),
    ],
)
def test_rows_without_text_are_rejected(rows, message):
    with pytest.raises(InputError, match=message):
        sentences(pa.table(rows), "text", lang="en")


def test_vectors_are_computed_on_a_cluster(tiny_folder, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'calque-align[ray]'")
    from pyarrow import parquet

    text = lines(30)
    (tmp_path / "text").mkdir()
    parquet.write_table(pa.table({"text": text[:20]}), tmp_path / "text/0.parquet")
    parquet.write_table(pa.table({"text": text[20:]}), tmp_path / "text/1.parquet")
    monkeypatch.setenv(
        "RAY_worker_niceness", "0"
    )  # without this, Ray may wait for minutes on a busy machine
    before = signal.getsignal(signal.SIGTERM)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        found = ray.data.read_parquet(str(tmp_path / "text")).map_batches(
            Encode,
            fn_constructor_args=(str(tiny_folder),),
            fn_constructor_kwargs={"lang": "en"},
            batch_size=7,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=1),
        )
        found.write_parquet(str(tmp_path / "vectors"))
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)  # Ray's SIGTERM handler would end a later test
    table = parquet.read_table(tmp_path / "vectors").sort_by("text")
    expected = load_encoder(tiny_folder).encode(
        Sentences.of([line.split() for line in sorted(text)], "en")
    )
    np.testing.assert_allclose(vectors_of(table), np.asarray(expected.data), atol=1e-5)
