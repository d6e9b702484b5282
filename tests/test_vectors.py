"""Tests of word vectors: means, saved files, and errors for other files."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.errors import InputError
from calque.vectors import Embeddings, filling, map_arrays


def embeddings(lengths, dim=3, dtype=np.float32, covered=None):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    data = np.random.default_rng(0).normal(size=(offsets[-1], dim)).astype(dtype)
    if covered is not None:
        covered = np.asarray(covered, dtype=bool)
        data[~covered] = 0
    return Embeddings(data, offsets, covered)


@given(st.lists(st.integers(0, 4), max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_sentence_vectors_and_means_equal_a_naive_implementation(lengths, data):
    n = sum(lengths)
    covered = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    vectors = embeddings(lengths, covered=covered)
    assert len(vectors) == len(lengths)
    assert vectors.n_words == n
    start = 0
    for k, length in enumerate(lengths):
        mine = vectors.data[start : start + length]
        assert np.array_equal(vectors[k], mine)
        assert np.array_equal(vectors[k - len(lengths)], mine)
        known = [
            row for row, there in zip(mine, covered[start : start + length], strict=True) if there
        ]
        expected = np.mean(known, axis=0, dtype=np.float64) if known else np.zeros(3)
        np.testing.assert_allclose(vectors.sentence_means()[k], expected, atol=1e-12)
        start += length
    assert (vectors.covered is None) == all(covered)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("lengths", [[2, 0, 3], [0], []])
def test_saved_vectors_are_equal(tmp_path, dtype, lengths):
    path = tmp_path / "v.safetensors"
    covered = [True] * (sum(lengths) - 1) + [False] if sum(lengths) else None
    vectors = embeddings(lengths, dtype=dtype, covered=covered)
    vectors.save(path)
    again = Embeddings.open(path)
    assert again.data.dtype == dtype
    assert np.array_equal(again.data, vectors.data)
    assert np.array_equal(again.offsets, vectors.offsets)
    assert (again.covered is None) == (vectors.covered is None)
    if sum(lengths):
        assert isinstance(again.data, np.memmap)
        assert np.array_equal(again.covered, vectors.covered)
    again.save(path)  # overwrites the file from which the vectors are mapped
    assert np.array_equal(Embeddings.open(path).data, vectors.data)
    assert [file.name for file in tmp_path.iterdir()] == ["v.safetensors"]


def test_rows_returns_the_row_of_each_word_position():
    vectors = embeddings([2, 3])
    assert vectors.rows(np.array([0, 1, 1]), np.array([1, 0, 2])).tolist() == [1, 2, 4]


def safetensors(header, body=b""):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        struct.pack("<Q", 1 << 60),
        safetensors(b"{"),
        safetensors(b"[" * 100_000),
        safetensors({"data": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}}, b"0000"),
        safetensors({"data": {"dtype": "F32", "shape": [9, 9], "data_offsets": [0, 324]}}, b"0000"),
        safetensors({"data": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 0]}}),
        safetensors({"data": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}}, b"00000"),
        safetensors({"data": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}}, b"0000"),
        safetensors(
            {
                "data": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]},
                "offsets": {"dtype": "I64", "shape": [1], "data_offsets": [4, 12]},
            },
            b"0000" + b"\7" * 8,
        ),
    ],
)
def test_files_without_vectors_are_rejected(tmp_path, raw):
    path = tmp_path / "v"
    path.write_bytes(raw)
    with pytest.raises(InputError) as caught:
        Embeddings.open(path)
    assert caught.value.path == path


def test_arrays_can_be_filled_in_place_with_metadata(tmp_path):
    shapes = {"x": ((4, 2), np.float32), "n": ((0,), np.int64)}
    with filling(tmp_path / "a", shapes, {"layer": "3"}) as arrays:
        arrays["x"][2] = 7
    again, metadata = map_arrays(tmp_path / "a")
    assert again["x"].sum() == 14
    assert again["n"].shape == (0,)
    assert metadata == {"layer": "3"}
    with pytest.raises(ValueError, match="read-only"):
        again["x"][0] = 1
