"""Threads for PyTorch: who computes with how many cores, before, inside and after."""

from __future__ import annotations

import threading

import pytest
import torch

from calque.threads import Threads


@pytest.fixture
def four():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("count", "inside"), [(2, 2), (3, 1), (4, 1), (9, 1)])
def test_cores_are_shared_and_given_back(four, count, inside):
    with Threads(count) as threads:
        assert threads.map(lambda _: torch.get_num_threads(), range(count)) == [inside] * count
        assert torch.get_num_threads() == 1
        with threads.all_cores():
            assert torch.get_num_threads() == 4
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 4
    others = []
    thread = threading.Thread(target=lambda: others.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert others == [4]


def test_one_thread_is_the_callers_own(four):
    with Threads(1) as threads:
        assert torch.get_num_threads() == 4
        assert threads.map(lambda x: (x, threading.current_thread()), [1, 2])[1] == (2, threading.main_thread())
        assert dict(threads.unordered(lambda x: x * x, {7: 3, 8: 4})) == {7: 9, 8: 16}


def test_results_come_in_order_or_as_they_are_done_and_errors_come_out(four):
    with Threads(3) as threads:
        assert threads.map(lambda x: x * x, range(20)) == [x * x for x in range(20)]
        assert dict(threads.unordered(lambda x: -x, dict(enumerate(range(20))))) == {x: -x for x in range(20)}
        with pytest.raises(ZeroDivisionError):
            threads.map(lambda x: 1 / x, [1, 0])
