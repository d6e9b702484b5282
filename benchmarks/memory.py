"""Measure how memory use grows with the length of the text: `python -m benchmarks.memory`.

The benchmark runs `calque encode`, `anchors`, `align`, `words` and `evaluate … retrieval` on artificial text of growing length
(`zipf`), and prints the peak memory of each command. Only anonymous memory is measured (`RssAnon` in Linux), because Linux can
drop pages of mapped files. The encoders are a table of vectors and a one-layer BERT model. The model is trained for only a few
updates, so most of the time is spent on reading. Only the first occurrence of each word is a retrieval query, because a search
over all words takes quadratic time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.shared import anonymous_mib, random_encoder
from benchmarks.zipf import ZipfText, write

POLL = 0.05  # seconds between two memory measurements
GROWTH = 1.5  # maximum ratio of the peak memory to the peak memory for the smallest text
INDEX = 16  # allowed growth in bytes per sentence on each side, for its offset and index
UPDATES = 20  # number of training updates, independent of the length of the text


def write_table(text: ZipfText, folder: Path, dim: int) -> None:
    """Write static vectors that are nearly equal for a word and its first translation."""
    from calque.encoders.static import StaticEncoder, WordTable

    rng = np.random.default_rng(0)
    source = rng.standard_normal((text.types, dim)).astype(np.float32)
    target = source + 0.3 * rng.standard_normal(source.shape).astype(np.float32)
    tables = {}
    for lang, side, order, vectors in (
        ("en", "source", np.arange(text.types), source),
        ("de", "target", text.translations, target),
    ):
        tables[lang] = WordTable([text.word(int(k), side) for k in order], vectors)
    StaticEncoder(tables).save(folder)


def commands(
    plain: Path, pairs: Path, links: Path, table: Path, bert: Path, n: int, out: Path
) -> dict[str, list]:
    """Return the arguments of each command, keyed by the name of the command."""
    two = [pairs, "--langs", "en", "de", "--links", links]
    updates = ["--epochs", UPDATES * 32 / n]
    return {
        "encode": ["encode", table, plain, "--lang", "en", "--out", out],
        "anchors": ["anchors", plain, "--encoder", table, "--lang", "en", "--out", out],
        "align": ["align", *two, "--encoder", bert, "--towards", "en", "--out", out, *updates],
        "words": ["words", *two[:4], "--model", "hmm", "--out", out],
        "retrieval": ["evaluate", table, "retrieval", "--test", *two, "--non-contextual"],
    }


def run(arguments: list, log: Path) -> tuple[float, float]:
    """Run a command and return its peak memory in MiB and its wall time in seconds.

    Raises:
        SystemExit: the command fails.
    """
    begun, peak = time.monotonic(), 0.0
    command = [sys.executable, "-m", "calque", *map(str, arguments), "--pretokenized", "--quiet"]
    with log.open("w+") as file:
        running = subprocess.Popen(command, stdout=file, stderr=file)
        while running.poll() is None:
            peak = max(peak, anonymous_mib(running.pid))
            time.sleep(POLL)
    if running.returncode:
        sys.exit(f"calque {arguments} failed:\n{log.read_text()}")
    return peak, time.monotonic() - begun


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sentences", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], metavar="N"
    )
    parser.add_argument(
        "--verbs", nargs="+", default=["encode", "anchors", "align", "words", "retrieval"]
    )
    parser.add_argument(
        "--types", type=int, default=20_000, help="number of word types in each language"
    )
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument(
        "--keep", type=Path, help="folder for texts and encoders; default: a temporary folder"
    )
    options = parser.parse_args(arguments)
    if not os.path.exists("/proc/self/status"):
        sys.exit("memory is read from /proc, which this system lacks; run the benchmark on Linux")
    text, first = ZipfText(types=options.types), {}
    with tempfile.TemporaryDirectory() as temporary:
        place = options.keep or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        table, bert = place / f"table-{options.types}-{options.dim}", place / "bert"
        if not table.exists():
            write_table(text, table, options.dim)
        if not bert.exists():
            random_encoder(1, 64).save(bert)
        print(
            "| command | sentences | peak anonymous memory | time | within the bound "
            "|\n|---|---|---|---|---|"
        )
        for n in options.sentences:
            plain, pairs, links = (
                place / f"{n}-{options.types}.{end}" for end in ("en", "pairs", "links")
            )
            if not links.exists():
                write(text, n, plain, pairs, links)
            for verb in options.verbs:
                with tempfile.TemporaryDirectory(dir=place) as folder:
                    peak, seconds = run(
                        commands(plain, pairs, links, table, bert, n, Path(folder) / "out")[verb],
                        Path(folder) / "log",
                    )
                sides = 2 if verb in ("align", "words", "retrieval") else 1
                bound = GROWTH * first.setdefault(verb, peak) + INDEX * sides * n / 2**20
                told = f"{'met' if peak <= bound else 'missed'} ({bound:,.0f} MiB)"
                print(f"| {verb} | {n:,} | {peak:,.0f} MiB | {seconds:,.1f} s | {told} |")


if __name__ == "__main__":
    main()
