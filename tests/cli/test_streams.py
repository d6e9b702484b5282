"""Tests of commands whose standard streams are closed, or whose reader ends early."""

import json
import os
import subprocess
import sys

import pytest

import forked

CLOSED = [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"]


def shell(command, folder):
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("closed", CLOSED)
def test_a_command_works_if_streams_are_closed(tmp_path, closed):
    ended = shell(f"{sys.executable} -m calque data {closed}", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("name") == (">&-" not in closed.split())


@pytest.mark.parametrize("closed", CLOSED)
def test_a_user_error_keeps_its_exit_code_if_streams_are_closed(tmp_path, closed):
    assert shell(f"{sys.executable} -m calque words {closed}", tmp_path).returncode == 2


@pytest.mark.parametrize("closed", CLOSED)
def test_a_file_never_gets_the_descriptor_of_a_closed_stream(tmp_path, closed):
    """A library that writes to file descriptor 2 would otherwise write to the user's file instead
    of standard error.
    """
    program = (
        "import os, sys; from calque.cli.streams import open_closed_streams; "
        "open_closed_streams(); file = open('out', 'w'); assert file.fileno() > 2; os.write(1, "
        "b'x'); os.write(2, b'y'); os.read(0, 1); print('x'); print('y', file=sys.stderr); "
        "sys.stdin.read()"
    )
    ended = shell(f'{sys.executable} -c "{program}" {closed}', tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "out").read_text() == ""


_UNREAD = """
import os, sys
reading, writing = os.pipe()
os.close(reading)
for number in ({numbers}):
    os.dup2(writing, number)
sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))
from calque.cli import main
main(sys.argv[1:])
"""


def retrieval_job(folder):
    """Return the arguments of `calque evaluate` for word retrieval in `folder`."""
    files = ["--test", folder / "test.tsv", "--langs", "en", "de", "--out", folder / "scores.jsonl"]
    return ["mini", "retrieval", *files]


@pytest.mark.parametrize("numbers", ["1,", "2,", "1, 2"])
def test_results_are_written_even_if_nobody_reads_the_output(tmp_path, numbers):
    text = "".join(f"cat{k} dog{k}\tKatze{k} Hund{k}\n" for k in range(20))
    (tmp_path / "test.tsv").write_text(text, encoding="utf-8")
    (tmp_path / "out").mkdir()
    job = retrieval_job(tmp_path)
    ended = forked.run("-c", _UNREAD.format(numbers=numbers), "evaluate", *job)
    assert ended.returncode == 0, ended.stderr
    lines = (tmp_path / "scores.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["task"] for line in lines} == {"retrieval"}
    ended = forked.run(
        "-c",
        _UNREAD.format(numbers=numbers),
        "analyze",
        *job[:1],
        *job[2:-1],
        tmp_path / "found.jsonl",
    )
    assert ended.returncode == 0, ended.stderr
    assert os.path.getsize(tmp_path / "found.jsonl")


def test_scores_are_printed_if_they_cannot_be_written(tmp_path):
    (tmp_path / "test.tsv").write_text(
        "a cat\teine Katze\nthe house\tdas Haus\n" * 5, encoding="utf-8"
    )
    fails = "from calque.errors import OutputError; import calque.commands.evaluate as module\n"
    fails += "def full(*given): raise OutputError('scores.jsonl: no space left on the disk')\n"
    fails += (
        "module.append_lines = full; import sys; from calque.cli import main; main(sys.argv[1:])"
    )
    job = retrieval_job(tmp_path)
    ended = forked.run("-c", fails, "evaluate", *job, "-q")
    assert ended.returncode == 2
    assert "\nretrieval" in ended.stdout
    assert ended.stderr.splitlines()[-1] == "calque: error: scores.jsonl: no space left on the disk"
