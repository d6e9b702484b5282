"""Run every benchmark at its smallest size, and check their help texts and the commands that the
documentation gives.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks import __main__ as listed

import forked

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if path.stem != "__main__"
    and re.search(r"^def main\(", path.read_text(encoding="utf-8"), re.MULTILINE)
)
ENCODER = ("--layers", 1, "--dim", 64, "--pairs", 6, "--batch", 3, "--rounds", 1)
#: arguments that make each benchmark as small as possible, and a part of its output
SMALLEST = {
    "words": (("--pairs", 20, "--rounds", 1, "--threads", 1), "calque words --model hmm"),
    "encode": (ENCODER, "padded batches in text order"),
    "contrastive": (ENCODER, "padded batches sorted by length"),
    "csls": (("--n", 40, "--dim", 8, "--rounds", 1), "both directions"),
    "memory": (("--sentences", 60, "--types", 40, "--dim", 8), "| retrieval | 60 |"),
    "planted_rotation": (("--words", 60, "--sizes", 10, 20), "dictionary of 20, refined"),
    "planted": (("make", "key-points", "--out", "made", "--sentences", 40, "--test", 5), ""),
    "reading": (
        ("mini", "--text", "en-de=gold.tsv", "--gold", "en-de=gold.tsv", "--out", "out.jsonl"),
        "mini: word retrieval (en-de)",
    ),
    "never_worse": (
        (
            "mini",
            *("--train", "en-de=train.tsv", "--test", "en-de=gold.tsv", "--out", "out.jsonl"),
            *("--sizes", 4, "--sentences", 3, "--methods", "rotation", "--option", "shrinkage=0.5"),
        ),
        "mini  en-de  4  unseen words",
    ),
    "aligners": (("gold.tsv", "en", "de", "--runs", 1), "calque, gibbs"),
    "zipf": (("--pairs", 12, "--types", 40, "--out", "made.txt"), ""),
}


class Popen:
    """Replacement of `subprocess.Popen` that runs Python programs in forked processes."""

    def __init__(self, command, stdout, stderr):
        self.log, self.program = (
            stdout,
            forked.start(*command[1:], folder=Path(stdout.name).parent / "printed"),
        )
        self.pid, self.returncode = self.program.process.pid, None

    def poll(self):
        if self.returncode is None and not self.program.runs:
            done = self.program.wait()
            self.returncode = done.returncode
            self.log.write(done.stdout + done.stderr)
        return self.returncode


def run_forked(command, check, env, **_):
    done = forked.run(*command[1:], environment=env)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Start the processes of benchmarks as forks, make the vocabulary of the random encoder small,
    and write a test set.
    """
    import benchmarks.shared

    (tmp_path / "gold.tsv").write_text(
        "a cat\teine Katze\t0-0 1-1\nthe cat sees\tdie Katze sieht\t0-0 1-1 2-2\n"
    )
    (tmp_path / "train.tsv").write_text(
        "a dog\tein Hund\nthe dogs see\tdie Hunde sehen\nthe house\tdas Haus\n"
    )
    whole = benchmarks.shared.made_up_text
    monkeypatch.setattr(
        benchmarks.shared, "made_up_text", lambda n, **how: whole(min(n, 100), **how)
    )
    for name, replacement in (
        ("words", {"run": run_forked, "DEVNULL": subprocess.DEVNULL}),
        ("memory", {"Popen": Popen}),
    ):
        monkeypatch.setattr(
            import_module(f"benchmarks.{name}"), "subprocess", SimpleNamespace(**replacement)
        )
    monkeypatch.setattr(
        "benchmarks.words.shutil.which", lambda name: None
    )  # fast_align may be installed
    monkeypatch.setattr("benchmarks.memory.UPDATES", 2)
    monkeypatch.chdir(tmp_path)


def test_every_benchmark_is_listed_and_tested():
    assert {*listed.PARTS, *listed.WITH_FILES} == set(MODULES) == set(SMALLEST)


@pytest.mark.filterwarnings("ignore:.*have no vector")
@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs_at_its_smallest_size(name, small, capsys):
    arguments, expected = SMALLEST[name]
    import_module(f"benchmarks.{name}").main([str(argument) for argument in arguments])
    out = capsys.readouterr().out
    assert expected in out
    assert "nan" not in out


@pytest.mark.filterwarnings("ignore:.*have no vector")
@pytest.mark.parametrize("name", ["encode", "contrastive"])
def test_speed_is_compared_with_loops_in_text_order_and_sorted_by_length(name, small, capsys):
    import_module(f"benchmarks.{name}").main([str(argument) for argument in ENCODER])
    lines = [line for line in capsys.readouterr().out.splitlines() if "times as fast as" in line]
    assert [line.split(" batches ")[1].split(" (")[0] for line in lines] == [
        "in text order",
        "sorted by length",
    ]


@pytest.mark.parametrize("only", ["calque", "loop"])
def test_peak_memory_of_contrastive_alignment_is_printed(only, small, capsys):
    import_module("benchmarks.contrastive").main(
        [*map(str, ENCODER), "--lora", "2", "--only", only]
    )
    assert "MiB after loading" in capsys.readouterr().out


def test_help_prints_only_help(capsys, monkeypatch):
    def never(*_, **__):
        raise AssertionError("--help must not run a benchmark")

    monkeypatch.setattr(subprocess, "run", never)
    for name in MODULES:
        with pytest.raises(SystemExit) as end:
            import_module(f"benchmarks.{name}").main(["--help"])
        out = capsys.readouterr().out
        assert end.value.code == 0
        assert out.startswith("usage:")
        assert "show this help message" in out.splitlines()[-1] or "options:" in out
    for arguments in ([], ["--help"], ["-h"], ["words", "--help"]):
        assert listed.main(arguments) == 0
        assert "planted_rotation" in capsys.readouterr().out
    assert "NAME must be one of words" in str(listed.main(["word"]))


def test_the_command_that_runs_all_benchmarks_reports_those_that_fail(monkeypatch):
    ran = []

    def run(command):
        ran.append(command[2])
        return SimpleNamespace(returncode=command[2] == "benchmarks.csls")

    monkeypatch.setattr(subprocess, "run", run)
    assert listed.main(["all"]) == "failed: csls"
    assert ran == [f"benchmarks.{name}" for name in listed.PARTS]
    assert listed.main(["words"]) == 0


class Parsed(Exception):
    """Raised when a benchmark has parsed its arguments."""


@pytest.fixture
def parse_only(monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def parse_args(self, *given):
        parse(self, *given)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)


def documented() -> list[tuple[str, str]]:
    """Return each file with the benchmark commands that it gives, without placeholders for further
    arguments.
    """
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").glob("*.py"),
    ]
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8").replace("\\\n", " ")
        start = (
            "^" if file.suffix == ".py" else ""
        )  # docstrings contain each command in a line of its own
        for command in re.findall(
            rf"{start}\s*python -m benchmarks\.([a-zN][^`\n]+)", text, re.MULTILINE
        ):
            found.append((file.name, re.sub(r"[\[\]]|…|\.\.\.|\s#.*$", "", command)))
    return found


@pytest.mark.parametrize(("file", "command"), documented())
def test_the_arguments_of_documented_commands_are_accepted(file, command, parse_only):
    name, *arguments = shlex.split(command.strip())
    if (name, arguments) == ("NAME", ["--help"]):
        return
    arguments += ["--out", "FILE"] if name == "zipf" and not arguments else []
    with pytest.raises(Parsed):
        import_module(f"benchmarks.{name}").main(arguments)


def test_the_gpu_script_runs_the_benchmark_of_contrastive_alignment(small, tmp_path, capsys):
    """The script calls a stand-in for `python` that records its arguments; the benchmark is then
    run with these arguments.
    """
    stand_in, log = tmp_path / "bin" / "python", tmp_path / "log"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    stand_in.chmod(0o755)
    script = str(ROOT / "benchmarks" / "gpu.sh")
    environment = {"PATH": f"{stand_in.parent}:/usr/bin:/bin", "SIZES": "1x64 2x64", "PAIRS": "4"}
    subprocess.run(["bash", script, "cpu", "mini", "2"], check=True, env=environment)
    commands = [line.split() for line in log.read_text().splitlines()]
    assert len(commands) == 6
    for flag, module, *arguments in commands:
        assert (flag, module) == ("-m", "benchmarks.contrastive")
        import_module(module).main(arguments)
    assert capsys.readouterr().out.count("MiB after loading") == 6
    helped = subprocess.run(
        ["bash", script, "--help"], check=True, env=environment, capture_output=True, text=True
    )
    assert "benchmarks/gpu.sh [cuda|cpu]" in helped.stdout
    assert len(log.read_text().splitlines()) == 6
