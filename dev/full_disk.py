"""Every verb that writes, on a disk that is too small for it: one line, exit code 2, nothing under the final name.

    sudo .venv/bin/python dev/full_disk.py [VERB ...] [--parts 0.02,0.3,0.6,0.9] [--work FOLDER]

Each verb runs once on a tmpfs with room enough, which tells how much it uses at most, and then on ones of parts of that.
Needs Linux and the right to mount. What is printed is a table in Markdown; the exit code is 1 if a row is wrong.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOM = 1 << 30
PATIENCE = 600  # seconds for one run
LANGS = ("--langs", "en", "de")
STUDY = """
seeds = 1
[encoders]
tiny = "{work}/tiny"
[methods.base]
[methods.rotation]
[methods.quick]
method = "contrastive"
epochs = 1
batch = 8
[supervision.parallel]
de = "train.tsv"
[tasks.retrieval]
test = {{ de = "test.tsv" }}
train = {{ de = "train.tsv" }}
"""


@dataclass(frozen=True)
class Verb:
    """A command, and what it leaves behind.

    Attributes:
        arguments: of calque; `{work}` is the folder of the inputs, `{out}` the small disk.
        final: names on the small disk that are there when the command has ended well, and not otherwise.
        more: names that may be there before: what is appended to, or what holds finished steps.
        serves: it does not end by itself.
    """

    arguments: str
    final: tuple[str, ...]
    more: tuple[str, ...] = ()
    serves: bool = False


TRAIN = "{work}/train.tsv --langs en de --towards en --encoder {work}/tiny --out {out}/aligned"
PRETRAIN = "pretrain en={work}/en.txt de={work}/de.txt --out {out}/made --updates 4 --batch 4 --checkpoint-every 2"
VERBS = {
    "words": Verb("words {work}/large.tsv --langs en de --out {out}/links --model fast-align", ("links",)),
    "words --tables": Verb(
        "words {work}/train.tsv --langs en de --out {out}/links --tables {out}/tables", ("links",), ("tables",)
    ),
    "encode": Verb("encode {work}/tiny {work}/en.txt --lang en --out {out}/vectors", ("vectors",)),
    "encode, static": Verb("encode {work}/static.vec {work}/en.txt --lang en --out {out}/vectors", ("vectors",)),
    "encode, mapped": Verb("encode {work}/mapped {work}/en.txt --lang en --out {out}/vectors", ("vectors",)),
    "anchors": Verb(
        "anchors {work}/en.txt --lang en --encoder {work}/tiny --out {out}/anchors", ("anchors/anchors.safetensors",)
    ),
    "anchors, text": Verb(
        "anchors {work}/en.txt --lang en --encoder {work}/tiny --out {out}/anchors --format avg_embeds",
        ("anchors/norms.json",),
    ),
    "align, rotation": Verb(f"align {TRAIN} --method rotation", ("aligned",)),
    "align, linear": Verb(f"align {TRAIN} --method linear", ("aligned",)),
    "align, finetune": Verb(f"align {TRAIN} --method finetune --epochs 1 --batch 8", ("aligned",)),
    "align, contrastive": Verb(f"align {TRAIN} --method contrastive --epochs 1 --batch 8", ("aligned",)),
    "align, dictionary": Verb(
        "align --dictionary {work}/dictionary.tsv --langs en de --towards en --encoder {work}/static.vec --method rotation "
        "--out {out}/aligned",
        ("aligned",),
    ),
    "pretrain, bert": Verb(f"{PRETRAIN} --layers 2 --dim 64 --heads 2 --vocabulary 600", ("made",)),
    "pretrain, elmo": Verb(f"{PRETRAIN} --model elmo --layers 1 --dim 16 --hidden 32 --vocabulary 600", ("made",)),
    "clcr train": Verb(
        "clcr train en={work}/tiny de={work}/tiny {work}/train.tsv --langs en de --pivot en --out {out}/points --option "
        "epochs=[1.0,1.0,1.0] --option head_epochs=1.0 --steps transform,extract",
        ("points",),
    ),
    "clcr pivots": Verb("clcr pivots {work}/points {work}/test.tsv --langs en de --out {out}/pivots", ("pivots",)),
    "clcr keypoints": Verb(
        "clcr keypoints {work}/points {work}/de.txt --lang de --out {out}/points.txt", ("points.txt",)
    ),
    "senses --text": Verb("senses {work}/senses --text en={work}/en.txt --out {out}/numbers", ("numbers",)),
    "demo": Verb("demo --encoder {work}/tiny --languages de --out {out}/demo", ("demo/report.html",)),
    "study": Verb("study {work}/study.toml --out {out}/study", ("study/results.jsonl",)),
    "evaluate --out": Verb(
        "evaluate {work}/tiny retrieval --test {work}/test.tsv --langs en de --out {out}/scores", ("scores",)
    ),
    "analyze": Verb(
        "analyze {work}/tiny --test {work}/test.tsv --langs en de --bootstrap 20 --only rank,length --out {out}/found",
        ("found",),
    ),
    "report": Verb("report {work}/scores.jsonl --out {out}/report.html", ("report.html",)),
    "report --plots": Verb(
        "report {work}/scores.jsonl --out {out}/report.html --plots {out}/plots", (), ("report.html", "plots")
    ),
    "explore": Verb(
        "explore {work}/tiny --test {work}/test.tsv --langs en de --cache {out}/cache --port 0 --no-browser",
        (),
        ("cache",),
        serves=True,
    ),
}


# -- inputs ----------------------------------------------------------------------------------------------------------------
def prepare(work: Path) -> None:
    """Small inputs of every kind, from the bundled text."""
    from calque.corpora.sample import sample_text

    lines = {}
    for part, n in (("train", 60), ("test", 40)):
        corpus = sample_text("de", part)[:n]
        rows = [
            f"{' '.join(a.words)}\t{' '.join(b.words)}\n" for a, b in zip(corpus.source, corpus.target, strict=True)
        ]
        (work / f"{part}.tsv").write_text("".join(rows), encoding="utf-8")
        lines[part] = rows
    (work / "large.tsv").write_text("".join(lines["train"] * 60), encoding="utf-8")
    words: dict[str, list[str]] = {}
    for side, lang in enumerate(("en", "de")):
        text = [row.strip().split("\t")[side] for row in lines["train"] + lines["test"]]
        (work / f"{lang}.txt").write_text("\n".join(text * 4) + "\n", encoding="utf-8")
        words[lang] = sorted({word for line in text for word in line.lower().split()})
    everything = sorted({word for found in words.values() for word in found})
    vectors = np.random.default_rng(0).normal(size=(len(everything), 48)).round(4)
    rows = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(everything, vectors, strict=True)]
    (work / "static.vec").write_text(f"{len(rows)} 48\n" + "".join(rows), encoding="utf-8")
    pairs = [f"{a}\t{b}\n" for a, b in zip(words["en"], words["de"], strict=False)]
    (work / "dictionary.tsv").write_text("".join(pairs[:200]), encoding="utf-8")
    (work / "study.toml").write_text(STUDY.format(work=work), encoding="utf-8")
    for arguments in (
        "pretrain en={work}/en.txt de={work}/de.txt --out {work}/tiny --updates 2 --batch 4 --layers 2 --dim 64 --heads 2 "
        "--vocabulary 600",
        "pretrain en={work}/en.txt --out {work}/senses --model elmo --senses 2 --sense-option axes=4 --updates 2 --batch 4 "
        "--dim 8 --hidden 16",
        "align {work}/train.tsv --langs en de --towards en --encoder {work}/tiny --method rotation --out {work}/mapped",
        "clcr train en={work}/tiny de={work}/tiny {work}/train.tsv --langs en de --pivot en --out {work}/points --option "
        "epochs=[1.0,0,0] --option head_epochs=1.0 --steps transform,extract",
        "evaluate {work}/tiny retrieval --test {work}/test.tsv --langs en de --out {work}/scores.jsonl",
        "evaluate {work}/mapped retrieval --test {work}/test.tsv --langs en de --out {work}/scores.jsonl",
    ):
        code, said = calque(arguments.format(work=work), None)
        if code:
            raise SystemExit(f"cannot prepare: calque {arguments}\n{said}")


# -- runs --------------------------------------------------------------------------------------------------------------------
@contextmanager
def disk(size: int) -> Iterator[Path]:
    """A tmpfs of so many bytes."""
    folder = Path(tempfile.mkdtemp(prefix="full-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


class Meter:
    """The most that a disk held at any time while this was open."""

    def __init__(self, folder: Path):
        self.folder, self.most, self._end = folder, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._end.wait(0.005):
            self.most = max(self.most, shutil.disk_usage(self.folder).used)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._end.set()
        self._thread.join()


def calque(arguments: str, serves: Path | None) -> tuple[int, str]:
    """Exit code and standard error of a command; one that serves is ended when its folder has not changed for a while."""
    command = [sys.executable, "-m", "calque", *arguments.split(), "--quiet"]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        deadline, last, since = time.monotonic() + PATIENCE, "", time.monotonic()
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
            if serves is not None:
                now = "\n".join(sorted(map(str, serves.rglob("*.safetensors"))))
                if now != last or not now:
                    last, since = now, time.monotonic()
                elif time.monotonic() - since > 5:
                    process.send_signal(signal.SIGINT)
                    serves = None
        if process.poll() is None:
            process.kill()
        code = process.wait()
        said.seek(0)
        return code, said.read()


def measure(name: str, work: Path, parts: Sequence[float]) -> Iterator[tuple[list[str], bool]]:
    """Rows of the table, and whether each is as it should be."""
    verb = VERBS[name]
    with disk(ROOM) as out:
        with Meter(out) as meter:
            code, said = calque(verb.arguments.format(work=work, out=out), out if verb.serves else None)
        there = [each for each in verb.final if (out / each).exists()]
        yield (
            row(name, "enough", code, said, left(out)),
            code == 0 and len(there) == len(verb.final) and meter.most > 0,
        )
    for part in parts:
        size = max(1, int(meter.most * part) // 4096) * 4096
        with disk(size) as out:
            code, said = calque(verb.arguments.format(work=work, out=out), out if verb.serves else None)
            there = [each for each in verb.final if (out / each).exists()]
            foreign = [each for each in left(out) if each not in {*verb.final, *verb.more} and not known(each, verb)]
            if code == 0:  # the whole uses less at most than the first time
                right = len(there) == len(verb.final)
            else:
                right = code == 2 and not there and said.count("calque: error: ") == 1 and "Traceback" not in said
                right = right and said.strip().splitlines()[-1].startswith("calque: error: ") and not foreign
            yield row(name, f"{size // 1024:,} kB ({part:.0%})", code, said, left(out)), right


def known(name: str, verb: Verb) -> bool:
    """What a later run goes on from: it does not bear the final name."""
    folders = {each.split("/")[0] for each in verb.final if "/" in each}
    return (
        name in folders or name.split(".part")[0] in {*verb.final, *folders} or name.endswith((".partial", ".journal"))
    )


def left(out: Path) -> list[str]:
    return sorted(os.listdir(out))


def row(name: str, size: str, code: int, said: str, there: Sequence[str]) -> list[str]:
    lines = [line for line in said.strip().splitlines() if line]
    last = lines[-1].replace("|", "\\|") if lines else ""
    return [name, size, str(code), str(len(lines)), last, " ".join(there)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("verbs", nargs="*", metavar="VERB", help=f"{', '.join(VERBS)}; default: all")
    options.add_argument("--parts", default="0.02,0.3,0.6,0.9", help="sizes of the disk, as parts of what a verb uses")
    options.add_argument("--work", type=Path, help="folder for the inputs, kept for the next time")
    given = options.parse_args()
    if unknown := [name for name in given.verbs if name not in VERBS]:
        options.error(f"no such verb: {', '.join(unknown)}")
    work = given.work or Path(tempfile.mkdtemp(prefix="full-disk-inputs-"))
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "scores.jsonl").exists():
        prepare(work.resolve())
    wrong = 0
    print(
        "| verb | disk | exit code | lines | last line | on the disk | |\n|---|---|---:|---:|---|---|---|", flush=True
    )
    for name in given.verbs or VERBS:
        for cells, right in measure(name, work.resolve(), [float(part) for part in given.parts.split(",")]):
            wrong += not right
            print(f"| {' | '.join(cells)} | {'' if right else 'wrong'} |", flush=True)
    if given.work is None:
        shutil.rmtree(work)
    print(f"\n{wrong} rows are wrong" if wrong else "\nevery row is as it should be")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
