"""Compare the processor time of `calque words` with that of fast_align in both directions, on 10,000 sentence pairs."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.shared import made_up_text


def seconds(commands: list[list[str]], threads: int) -> float:
    """Return the total processor time, in seconds, of commands that run one after another."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run(
            command,
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--text", help="tokenised file with lines `a ||| b`; default: artificial text"
    )
    parser.add_argument("--langs", nargs=2, default=("en", "de"))
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument(
        "--fast-align", default=shutil.which("fast_align"), help="path of the fast_align program"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(options.text or Path(folder) / "text")
        if not options.text:
            corpus, _ = made_up_text(options.pairs, langs=tuple(options.langs))
            lines = (
                " ".join(source.words) + " ||| " + " ".join(target.words) + "\n"
                for source, target in corpus
            )
            text.write_text("".join(lines), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "calque",
            "words",
            str(text),
            "--langs",
            *options.langs,
            "--pretokenized",
        ]
        command += ["--out", str(Path(folder) / "links"), "--quiet", "--model"]
        ours = {
            f"calque words --model {model}": [[*command, model]] for model in ("fast-align", "hmm")
        }
        theirs = [
            [options.fast_align, "-i", str(text), "-d", "-o", "-v", *more] for more in ([], ["-r"])
        ]
        for commands in ours.values():
            seconds(commands, options.threads)  # compile the Numba functions before the measurement
        every = {**ours, **({"fast_align": theirs} if options.fast_align else {})}
        found: dict[str, list[float]] = {name: [] for name in every}
        for _ in range(options.rounds):
            for name, commands in every.items():
                found[name].append(seconds(commands, options.threads))
    print(
        f"word alignment, {text.name}, processor seconds per command, medians of {options.rounds} "
        "rounds:"
    )
    for name, times in found.items():
        ratio = ""
        if options.fast_align and name != "fast_align":
            ratio = statistics.median(
                t / o for t, o in zip(found["fast_align"], times, strict=True)
            )
            ratio = (
                f", {ratio:.2f} times as fast as fast_align in both directions (goal: at least 4)"
            )
        print(f"  {name}: {statistics.median(times):.2f} s{ratio}")


if __name__ == "__main__":
    main()
