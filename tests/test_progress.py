"""Test that progress bars can be watched, and that watching can end the work."""

import threading

import pytest

from calque.progress import bar, watching


@pytest.mark.parametrize("show", [False, True])
def test_every_update_of_a_bar_is_watched(show, capsys):
    seen = []
    with watching(lambda *update: seen.append(update)):
        with bar(10, unit="word", title="encode", show=show, initial=2) as counter:
            counter.update(3)
            counter.update(5)
        assert list(bar([7, 8], unit="text", show=show)) == [7, 8]
        list(bar(iter("ab"), unit="text", title="of unknown size", show=show))
    assert seen == [
        ("encode", 2, 10),
        ("encode", 5, 10),
        ("encode", 10, 10),
        ("", 0, 2),
        ("", 1, 2),
        ("", 2, 2),
        ("of unknown size", 0, None),
        ("of unknown size", 1, None),
        ("of unknown size", 2, None),
    ]
    with bar(10, unit="word", show=show) as counter:
        counter.update(1)
    assert len(seen) == 9
    assert bool(capsys.readouterr().err) == show


def test_watching_ends_the_work_of_its_own_thread_only():
    done = []

    def stop(title, n, total):
        if n == 2:
            raise ValueError("stopped")

    def elsewhere():
        done.extend(bar(range(5), unit="text", show=False))

    with watching(stop):
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
        with pytest.raises(ValueError, match="stopped"):
            list(bar(range(5), unit="text", show=False))
    assert done == [0, 1, 2, 3, 4]
