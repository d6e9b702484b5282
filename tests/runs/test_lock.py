"""Test that two processes cannot write the same output."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest

from calque.errors import SettingError
from calque.storage import locked
from command import fails, works

HOLDER = """
import sys, time
from calque.storage import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""

# Program that acquires the lock repeatedly, and each time creates a file that must not exist yet.
RIVAL = """
import os, sys
from calque.errors import SettingError
from calque.storage import locked
got = 0
while got < 200:
    try:
        with locked(sys.argv[1]):
            os.close(os.open(sys.argv[1] + ".inside", os.O_CREAT | os.O_EXCL))
            os.unlink(sys.argv[1] + ".inside")
            got += 1
    except SettingError:
        pass
print(got)
"""


def python(program, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def holder(tmp_path):
    process = python(HOLDER, tmp_path / "runs" / "ft")
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_an_output_locked_by_another_process_is_rejected(tmp_path, holder):
    out = tmp_path / "runs" / "ft"
    with pytest.raises(
        SettingError, match=rf"^another process is writing {out}; wait until it has finished"
    ):
        locked(out).__enter__()
    elsewhere = tmp_path / "link"
    elsewhere.symlink_to(tmp_path / "runs")
    with pytest.raises(SettingError, match="is writing"):  # the same folder through a symbolic link
        locked(elsewhere / "ft").__enter__()
    with locked(tmp_path / "runs" / "other"):
        pass


def test_a_killed_process_releases_its_lock(tmp_path, holder):
    out = tmp_path / "runs" / "ft"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert [p.name for p in out.parent.iterdir()] == [".ft.calque-lock"]
    with locked(out):
        out.write_text("x")
    assert [p.name for p in out.parent.iterdir()] == ["ft"]


def test_unused_folders_and_lock_files_are_removed(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "a" / "b" / "out"):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
    with locked(tmp_path / "a" / "b" / "out"):
        (tmp_path / "a" / "kept").touch()
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["kept"]


def test_competing_processes_never_hold_the_lock_at_the_same_time(tmp_path):
    """Include the case in which the holder removes a lock file that other processes have opened."""
    rivals = [python(RIVAL, tmp_path / "made" / "out") for _ in range(4)]
    said = Counter(process.communicate(timeout=120)[0].strip() for process in rivals)
    assert said == {"200": 4}
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_devices_and_unwritable_folders_are_not_locked(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with locked(tmp_path / "out"):  # the error is reported later, when the file is written
            pass
    before = sorted(os.listdir("/dev"))
    with locked(os.devnull):
        assert sorted(os.listdir("/dev")) == before


@pytest.fixture
def inputs(tmp_path):
    (tmp_path / "text.tsv").write_text("a b\tc d\n" * 4)
    (tmp_path / "text").write_text("a b\n" * 4)
    (tmp_path / "words.vec").write_text("2 2\na 1 0\nb 0 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("words text.tsv --langs en de --out out", "out"),
        ("words text.tsv --langs en de --out other --tables out", "out"),
        ("anchors text --lang en --encoder words.vec --out out", "out/sums.safetensors"),
    ],
)
def test_commands_reject_outputs_locked_by_another_process(
    capsys, inputs, monkeypatch, command, output
):
    monkeypatch.chdir(inputs)
    works(capsys, "anchors", "text", "--lang", "en", "--encoder", "words.vec", "--out", "done")
    before = sorted(inputs.rglob("*"))
    with locked(output):
        said = fails(capsys, *command.split())
        assert said.startswith(
            f"calque: error: another process is writing {output}; wait until it has finished"
        )
    assert sorted(inputs.rglob("*")) == before
    works(capsys, *command.split())
    assert (inputs / output).is_file()
    assert not [path for path in inputs.rglob("*") if path.name.endswith(".lock")]


def test_acquiring_a_lock_can_wait_until_it_is_released(tmp_path):
    done = []

    def later():
        with locked(tmp_path / "out", wait=True):
            done.append("later")

    with locked(tmp_path / "out"):
        thread = threading.Thread(target=later)
        thread.start()
        thread.join(0.2)
        done.append("first")
    thread.join(10)
    assert done == ["first", "later"]
