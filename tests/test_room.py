"""Arrays that grow with a text: the same numbers in memory and in a mapped file, and nothing left of the file."""

from __future__ import annotations

import errno
import tempfile

import numpy as np
import pytest

from calque import room as rooms
from calque.errors import OutputError
from calque.room import Gathered, filled, is_sorted, room, taken

RNG = np.random.default_rng(0)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Memory takes 1,000 bytes, and 64 numbers at a time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(rooms, "SMALL", 1000)
    monkeypatch.setattr(rooms, "BLOCK", 64)
    return tmp_path


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_room_is_zeros_in_memory_or_in_a_file_without_a_name(small):
    held, mapped = room((125,), np.float64), room((126, 3), np.float64)
    assert type(held) is np.ndarray
    assert isinstance(mapped, np.memmap)
    assert mapped.shape == (126, 3)
    assert not held.any()
    assert not mapped.any()
    mapped[5] = 7
    assert mapped.sum() == 21
    assert list(small.iterdir()) == []


def test_memory_has_to_do_where_the_disk_has_no_room(small, monkeypatch):
    monkeypatch.setattr(rooms, "reserve", full)
    assert type(room((1000,), np.int64)) is np.ndarray


@pytest.mark.parametrize("n", [0, 1, 64, 1000])
def test_parts_are_gathered_as_they_come(small, n):
    numbers, gathered = RNG.integers(0, 99, n), Gathered(np.int64)
    for start in range(0, n, 30):
        gathered.add(numbers[start : start + 30].tolist())
    whole = gathered.whole()
    assert isinstance(whole, np.memmap) == (n == 1000)
    assert whole.dtype == np.int64
    assert np.array_equal(whole, numbers)


def test_a_full_disk_is_one_line_with_the_place(small, monkeypatch):
    class Full:
        write = flush = staticmethod(full)

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(OutputError, match="no space left") as caught:
        Gathered(np.int64).add(np.zeros(1000))
    assert str(small) in str(caught.value)


def test_blocks_give_what_numpy_gives_at_once(small):
    values, numbers = RNG.standard_normal(500), RNG.integers(0, 500, 700)
    mask = RNG.random(500) < 0.5
    assert np.array_equal(taken(values, numbers), values[numbers])
    assert np.array_equal(taken(values, mask), values[mask])
    assert np.array_equal(taken(values[:9], numbers % 9), values[:9][numbers % 9])
    assert np.array_equal(filled(500, np.float64, lambda some: 2 * values[some]), 2 * values)
    assert is_sorted(np.sort(values))
    at_a_border = np.arange(500)
    at_a_border[64] = 0
    assert not is_sorted(at_a_border)
    assert is_sorted(values[:0])
