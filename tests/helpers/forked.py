"""Run Python programs in forked processes, so torch and transformers (five seconds of CPU time) are
imported only once.

Python's fork server imports them when the first program starts. Each program is a fork of the
server with its own memory, environment, signals and exit status. No calque module is imported in
advance. The arguments are those of `python`: `run("-m", "calque", "words", …)`, `run("-c", code)`,
`run("program.py", …)`. Use `subprocess` to test interpreter options (`-W`, PYTHONHASHSEED) and
import times. All forks have the same hash seed, which differs from that of the test process.

"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "torch",
        "transformers.modeling_utils",
        "transformers.models.auto.modeling_auto",
        "transformers.models.bert.modeling_bert",
        "transformers.convert_slow_tokenizer",
        "transformers.conversion_mapping",
        "accelerate",
        "numba",
        "pandas",
        "peft",
        "pyarrow.compute",
        "forked",
    ]
)


class Program:
    """A running program whose output is written to the files `out` and `err`."""

    def __init__(self, arguments: tuple[str, ...], environment: Mapping[str, str], folder: Path):
        self.arguments = arguments
        self.out, self.err = folder / "out", folder / "err"
        self.process = SERVER.Process(
            target=_begin, args=(arguments, dict(environment), str(self.out), str(self.err))
        )
        self.process.start()

    @property
    def runs(self) -> bool:
        return self.process.is_alive()

    @property
    def printed(self) -> str:
        return self.out.read_text(encoding="utf-8") if self.out.exists() else ""

    def kill(self) -> None:
        self.process.kill()

    def wait(self, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Return the exit status; as in `subprocess`, a signal gives a negative status.

        Raises:
            TimeoutError: the program did not end within the given number of seconds, and was
                killed.

        """
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.kill()
            raise TimeoutError(
                f"{self.arguments} after {timeout} s:\n{self.err.read_text()[-3000:]}"
            )
        return subprocess.CompletedProcess(
            self.arguments,
            self.process.exitcode,
            self.printed,
            self.err.read_text(encoding="utf-8"),
        )


def start(
    *arguments: object, folder: Path, environment: Mapping[str, str] | None = None
) -> Program:
    """Start a program that writes its output to a folder; the default environment is that of the
    current process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return Program(
        tuple(map(str, arguments)), os.environ if environment is None else environment, folder
    )


def run(
    *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program and wait until it ends."""
    with tempfile.TemporaryDirectory() as folder:
        return start(*arguments, folder=Path(folder), environment=environment).wait()


def _begin(arguments: tuple[str, ...], environment: dict[str, str], out: str, err: str) -> None:
    """Run `python ARGUMENTS` in the forked process."""
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    first, *rest = arguments
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")
