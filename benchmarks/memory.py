"""Memory and the length of the text: `python -m benchmarks.memory`.

Runs `calque encode`, `anchors`, `align` and `evaluate … retrieval` as commands on made-up text of growing length (`zipf`) and
prints how much memory each takes at most. Counted is what is a process's own (`RssAnon` of Linux): pages of mapped files, the
result among them, are the system's to drop. Vectors come from a table and from a BERT of one layer, which trains for a few
updates on text that is read as a whole, so that time goes into reading and laying out. Retrieval asks for the first occurrence of
each word alone: a search among all words is quadratic, and says how long it would take.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.zipf import POLL, SYLLABLES, ZipfText, anonymous_mib

GROWTH = 1.5  # times the memory at the smallest size
INDEX = 16  # bytes a sentence of each side, for where it begins and which it is
UPDATES = 20  # of training, whatever the length of the text


class Files(NamedTuple):
    """What the commands read."""

    plain: Path
    pairs: Path
    links: Path
    table: Path
    bert: Path


class Used(NamedTuple):
    """What a command took: MiB of its own at most, seconds by the clock, and words of its answer."""

    peak: float
    seconds: float
    said: str


def write_text(text: ZipfText, n: int, files: Files) -> None:
    """`n` sentence pairs, their source side alone, and their true links, in one pass."""
    spelled = {side: [text.word(k, side) for k in range(text.types)] for side in ("source", "target")}
    with files.plain.open("w") as plain, files.pairs.open("w") as pairs, files.links.open("w") as links:
        for source, source_offsets, target, target_offsets, come_from in text.blocks(n):
            left, right = (
                [" ".join(spelled[side][k] for k in numbers[first:last]) for first, last in pairwise(offsets)]
                for side, numbers, offsets in (
                    ("source", source.tolist(), source_offsets.tolist()), ("target", target.tolist(), target_offsets.tolist()),
                )
            )  # fmt: skip
            of, ends = come_from.tolist(), target_offsets.tolist()
            plain.writelines(f"{line}\n" for line in left)
            pairs.writelines(f"{a} ||| {b}\n" for a, b in zip(left, right, strict=True))
            links.writelines(
                " ".join(f"{i}-{j}" for j, i in enumerate(of[first:last]) if i >= 0) + "\n"
                for first, last in pairwise(ends)
            )


def write_table(text: ZipfText, folder: Path, dim: int) -> None:
    """Static vectors, nearly the same for a word and its first translation."""
    from calque.encoders.static import StaticEncoder
    from calque.encoders.tables import PlainTable

    rng = np.random.default_rng(0)
    source = rng.standard_normal((text.types, dim)).astype(np.float32)
    target = source + 0.3 * rng.standard_normal(source.shape).astype(np.float32)
    tables = {}
    for lang, side, order, vectors in (
        ("en", "source", np.arange(text.types), source), ("de", "target", text.translations, target),
    ):  # fmt: skip
        tables[lang] = PlainTable([text.word(int(k), side) for k in order], vectors)
    StaticEncoder(tables).save(folder)


def write_bert(folder: Path, dim: int) -> None:
    """BERT of one layer with random weights, whose subwords are letters and syllables."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = sorted({letter for each in SYLLABLES for letter in each} | {"w", "x"})
    both = [*SYLLABLES, *(each[::-1] for each in SYLLABLES)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *both, *(f"##{p}" for p in (*letters, *both))]
    vocabulary = {piece: k for k, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = BertTokenizerFast(tokenizer_object=BertWordPieceTokenizer(vocabulary, lowercase=False)._tokenizer)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=dim, num_hidden_layers=1, num_attention_heads=2, intermediate_size=2 * dim,
        max_position_embeddings=512,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def commands(files: Files, n: int, folder: Path) -> dict[str, list[str]]:
    """The commands by name, without `calque`."""
    two = [str(files.pairs), "--langs", "en", "de", "--links", str(files.links)]
    return {
        "encode": ["encode", str(files.table), str(files.plain), "--lang", "en", "--out", str(folder / "vectors")],
        "anchors": ["anchors", str(files.plain), "--encoder", str(files.table), "--lang", "en", "--out", str(folder / "anchors")],
        "align": ["align", *two, "--encoder", str(files.bert), "--towards", "en", "--out", str(folder / "aligned"),
                  "--epochs", str(UPDATES * 32 / n), "--option", "reference=recomputed"],
        "retrieval": ["evaluate", str(files.table), "retrieval", "--test", *two, "--non-contextual"],
    }  # fmt: skip


def run(arguments: list[str], log: Path) -> Used:
    """Run a command to its end and look at it all the time.

    Raises:
        SystemExit: it fails.
    """
    begun, peak = time.monotonic(), 0.0
    with log.open("w+") as file:
        running = subprocess.Popen(
            [sys.executable, "-m", "calque", *arguments, "--pretokenized", "--quiet"], stdout=file, stderr=file
        )
        while running.poll() is None:
            peak = max(peak, anonymous_mib(running.pid))
            time.sleep(POLL)
        seconds = time.monotonic() - begun
        file.seek(0)
        said = file.read()
    if running.returncode:
        sys.exit(f"calque {' '.join(arguments)} failed:\n{said}")
    return Used(peak, seconds, said)


def main(
    arguments: list[str] | None = None, show: Callable[[str], None] = lambda line: print(line, flush=True)
) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], metavar="N")
    parser.add_argument("--verbs", nargs="+", default=["encode", "anchors", "align", "retrieval"])
    parser.add_argument("--types", type=int, default=20_000, help="words of each language")
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument(
        "--keep", type=Path, help="leave texts and encoders in this folder, and take those that are there"
    )
    options = parser.parse_args(arguments)
    if not os.path.exists("/proc/self/status"):
        sys.exit("memory is read from /proc, which this system has not: run it on Linux")
    text, first = ZipfText(types=options.types), {}
    with tempfile.TemporaryDirectory() as temporary:
        place = options.keep or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        table, bert = place / f"table-{options.types}-{options.dim}", place / f"bert-{options.dim}"
        if not table.exists():
            write_table(text, table, options.dim)
        if not bert.exists():
            write_bert(bert, options.dim)
        show("| verb | sentences | own memory at most | time | within the bound |\n|---|---|---|---|---|")
        for n in options.sentences:
            plain, pairs, links = (place / f"{n}-{options.types}.{end}" for end in ("en", "pairs", "links"))
            files = Files(plain, pairs, links, table, bert)
            if not files.links.exists():
                write_text(text, n, files)
            for verb in options.verbs:
                with tempfile.TemporaryDirectory(dir=place) as folder:
                    used = run(commands(files, n, Path(folder))[verb], Path(folder) / "log")
                sides = 2 if verb in ("align", "retrieval") else 1
                bound = GROWTH * first.setdefault(verb, used.peak) + INDEX * sides * n / 2**20
                told = f"{'met' if used.peak <= bound else 'missed'} ({bound:,.0f} MiB)"
                show(f"| {verb} | {n:,} | {used.peak:,.0f} MiB | {used.seconds:,.1f} s | {told} |")


if __name__ == "__main__":
    main()
