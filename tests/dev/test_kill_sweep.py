"""Test `dev/kill_sweep.py` on small programs that save their results correctly or incorrectly."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "dev" / "kill_sweep.py"

WELL = """
Path(".result.calque-part").write_text("half ")
with open(".result.calque-part", "a") as file:
    file.write("and half")
os.replace(".result.calque-part", "result")
"""
IN_PLACE = """
Path("result").write_text("half ")
with open("result", "a") as file:
    file.write("and half")
"""
REFUSING = (
    """
if Path(".result.calque-part").exists():
    sys.exit(".result.calque-part is there already")
"""
    + WELL
)
GOING_ON_WRONGLY = """
with open(".result.calque-part", "a") as file:
    file.write("half ")
with open(".result.calque-part", "a") as file:
    file.write("and half")
os.replace(".result.calque-part", "result")
"""
BY_CHANCE = """
Path("result").write_text(str(os.getpid()))
"""

ANSWERING = """
try:
    time.sleep(0.25)
except KeyboardInterrupt:
    print(ANSWER, file=sys.stderr)
    sys.exit(130)
Path("result").touch()
"""
TIDYING = (
    """
shutil.rmtree("result.old", ignore_errors=True)
"""
    + WELL
)
REPLACING = """
if sys.argv[1] == "new" and Path("result/thesis.tex").exists():
    REFUSE
os.makedirs(".result.calque-part", exist_ok=True)
Path(".result.calque-part/text").write_text(sys.argv[1])
shutil.rmtree("result", ignore_errors=True)
os.replace(".result.calque-part", "result")
"""


@pytest.fixture
def script(monkeypatch):
    """Import `kill_sweep.py` as a module."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    spec = importlib.util.spec_from_file_location("kill_sweep", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kill_sweep", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sweep(script, tmp_path, monkeypatch, capsys):
    """Return a function that runs the sweep on a program and returns the exit code and the
    output.
    """
    monkeypatch.setattr(script, "SOURCE", tmp_path)
    monkeypatch.setattr(script.golden, "plant", lambda folder, source: folder.mkdir(parents=True))
    (tmp_path / "calque").mkdir()
    for name in ("__init__", "cli"):
        (tmp_path / "calque" / f"{name}.py").touch()

    def run(program: str, *options: str, **how: object) -> tuple[int, str]:
        lines = (
            "import os, shutil, signal, sys, time\nfrom pathlib import "
            "Path\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
            + "import calque.cli\n" * ("try:" not in program)
            + program.replace(
                "try:\n",
                "try:\n    signal.signal(signal.SIGINT, signal.default_int_handler)\n    import "
                "calque.cli\n",
            )
        )
        (tmp_path / "calque" / "__main__.py").write_text(lines)
        monkeypatch.setattr(script, "VERBS", {"toy": script.Verb(**{"line": "toy", **how})})
        code = script.main(["--folder", str(tmp_path / "runs"), "--fresh", "1", *options])
        return code, capsys.readouterr().out

    return run


def test_a_program_that_saves_atomically_passes(sweep):
    code, found = sweep(WELL, "--kills", "6")
    assert code == 0, found
    assert " 0 failures" in found


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (IN_PLACE, "step:2: killed, result is neither absent nor complete: result differs"),
        (REFUSING, "step:2: the same command ended with 1: .result.calque-part is there already"),
        (GOING_ON_WRONGLY, "step:2: result differs"),
        (TIDYING, "foreign files: undisturbed: ['result.old/thesis.tex']"),
        (BY_CHANCE, "two undisturbed runs differ: result differs"),
    ],
)
def test_errors_after_a_kill_are_detected(sweep, program, said):
    code, found = sweep(program, "--at", "step:2")
    assert (code, said in found) == (1, True), found


def test_a_program_must_print_one_line_after_a_signal(sweep):
    for kind in ("SIGINT", "GROUP"):
        code, found = sweep(ANSWERING.replace("ANSWER", "'one line'"), "--at", f"{kind}:0")
        assert code == 0, found
        code, found = sweep(
            ANSWERING.replace("ANSWER", "'one line\\nand another'"), "--at", f"{kind}:0"
        )
        assert (
            code,
            f"{kind}:0 must end with one line and a known exit code, got 130" in found,
        ) == (1, True), found


def test_an_older_result_is_replaced_unless_it_contains_foreign_files(sweep):
    for refuse, expected in (("sys.stderr.write('thesis.tex'); sys.exit(2)", 0), ("pass", 1)):
        code, found = sweep(
            REPLACING.replace("REFUSE", refuse), "--at", "step:2", line="new", over="old"
        )
        assert (code, "--overwrite over a foreign file ended with" in found) == (
            expected,
            bool(expected),
        ), found


def test_time_values_are_ignored_but_not_their_keys(tmp_path, script):
    texts = {
        "a": '{"seconds": {"all": 3}, "n": 1} <dd>2026-01-02 03:04 UTC</dd>',
        "b": '{"seconds": 7.5, "n": 1} <dd>2026-01-02 03:05 UTC</dd>',
        "c": '{"n": 1} <dd>2026-01-02 03:04 UTC</dd>',
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "record").write_text(text)
    a, b, c = (script.contents(tmp_path / name) for name in "abc")
    assert script.difference(a, b) == ""
    assert script.difference(a, c) == "record differs"


# -- faults of system calls ------------------------------------------------------------------------
NO_COMPILER = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None,
    reason="needs Linux and a C compiler",
)
REPORTING = """
try:
    Path(".result.calque-part").write_text("all")
    os.replace(".result.calque-part", "result")
except OSError as error:
    Path(".result.calque-part").unlink(missing_ok=True)
    sys.exit(print("calque: error: result:", error.strerror, file=sys.stderr) or 2)
"""


@NO_COMPILER
def test_a_program_that_reports_failing_system_calls_passes(sweep):
    code, found = sweep(
        REPORTING.replace("try:", "if True:\n  try:").replace("\nexcept", "\n  except"),
        "--faults",
        "8",
    )
    assert code == 0, found
    assert "8 kills, signals and faults, 0 failures" in found


@NO_COMPILER
@pytest.mark.parametrize(
    ("program", "aim", "said"),
    [
        (WELL, "ENOSPC:1", "tracebacks: ENOSPC:1 (open"),
        (
            IN_PLACE,
            "KILL:4",
            "KILL:4 (open64 result): result is neither absent nor complete: result differs",
        ),
        (
            "Path('result').write_text('x')\nimport contextlib\nwith "
            "contextlib.suppress(OSError):\n"
            "    Path('result.more').write_text('y')",
            "EIO:4",
            "(open64 result.more): ended with 0, but the result is incomplete",
        ),
        ("os.remove('thesis.tex')\nPath('result').touch()", "EIO:1", "foreign files"),
    ],
)
def test_errors_after_a_failing_system_call_are_detected(sweep, program, aim, said):
    code, found = sweep(program, "--at", aim, units=("result*",))
    assert (code, said in found) == (1, True), found


@NO_COMPILER
def test_writes_of_libraries_in_rust_and_c_are_counted(script, tmp_path):
    (tmp_path / "files").mkdir()
    program = (
        "import numpy as np, pyarrow as pa\nfrom safetensors.numpy import save_file\n"
        "save_file({'a': np.zeros(3)}, 'files/a')\n"
        "with pa.OSFile('files/b', 'wb') as file: file.write(b'x')\n"
    )
    library = script.compiled(tmp_path)
    for error, code in ((0, 0), (5, 1)):
        faults = {
            "LD_PRELOAD": str(library),
            "FAULT_ROOT": str(tmp_path / "files"),
            "FAULT_LOG": str(tmp_path / "log"),
            "FAULT_CALL": "2" if error else "0",
            "FAULT_ERRNO": str(error),
        }
        ended = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={**os.environ, **faults},
            capture_output=True,
            check=False,
        )
        assert ended.returncode == code, ended.stderr
    assert "os error 5" in ended.stderr.decode()
    calls = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert calls.count("write") >= 2
