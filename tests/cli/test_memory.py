"""Tests of the message for commands that run out of memory."""

import subprocess
import sys

import pytest

from calque.cli.memory import LOWER
from calque.errors import InputError
from command import run, works

ERRORS = {
    "Python": MemoryError(),
    "PyTorch": RuntimeError(
        "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried "
        "99 bytes"
    ),
    "CUDA": RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "C++": RuntimeError("std::bad_alloc"),
    "system": OSError(12, "Cannot allocate memory", "/lib"),
    "loader": ImportError("libtorch_cpu.so: failed to map segment from shared object"),
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", ERRORS)
def test_the_message_says_what_to_lower(capsys, monkeypatch, name, wrapped):
    def command(_):
        try:
            raise ERRORS[name]
        except Exception as error:
            if wrapped:  # a reader takes any error for a corrupt file
                raise InputError("the file is corrupt", path="x") from error
            raise

    monkeypatch.setattr("calque.cli.run", command)
    said = (
        "calque: error: the memory is exhausted; lower --sample or --limit, use a smaller encoder "
        "or less text\n"
    )
    assert run(capsys, "words") == (2, "", said)


def test_other_errors_are_not_attributed_to_memory(capsys, monkeypatch):
    def command(_):
        raise InputError("is not UTF-8", path="memory.tsv")

    monkeypatch.setattr("calque.cli.run", command)
    assert run(capsys, "words") == (2, "", "calque: error: memory.tsv: is not UTF-8\n")


_LIMITED = """
import os, resource, signal, sys, time
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
import calque.cli
def command(_): {body}
calque.cli.run = command
sys.argv = ["calque", "encode"]
calque.cli.main()
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="limits of the address space work only on Linux"
)
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (
            "os.abort()",
            2,
            "the memory is exhausted (the limit is 4.0 GB); lower --max-length or --limit",
        ),
        ("os._exit(127)", 2, "the memory is exhausted"),  # the C library has no memory for a thread
        ("return 0", 0, ""),
        ("sys.exit(1)", 1, ""),
        ("os.kill(os.getppid(), signal.SIGINT); time.sleep(9)", 130, "calque: interrupted"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
    ],
)
def test_an_abort_is_reported_if_memory_is_limited(body, code, said):
    ended = subprocess.run(
        [sys.executable, "-c", _LIMITED.format(body=body)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == bool(said)


@pytest.mark.parametrize("verb", LOWER)
def test_the_message_names_options_of_the_command(capsys, verb):
    named = [word for word in LOWER[verb].replace(",", "").split() if word.startswith("--")]
    subject = {
        "align": ["--method", "contrastive"],
        "pretrain": ["--model", "bert"],
        "evaluate": ["mini", "retrieval"],
    }
    more = ["--more"] if verb in ("analyze", "words", "distil") else subject.get(verb, [])
    out, _ = works(capsys, verb, *more, "--help")
    for option in named:
        assert f"{option} " in out
