"""Kills long commands at random moments, gives them again, and compares every byte with an undisturbed run.

    python dev/kill_sweep.py --kills 120
    python dev/kill_sweep.py --verbs "align rotation" --at step:17        # one kill again

Each verb runs on the encoder and the text that come with calque. It first runs twice undisturbed, and the two results must be
equal, byte by byte. Then it begins in an empty folder, its process group gets SIGKILL (verbs that train also SIGINT and
SIGTERM), and what stands under the final name must be absent or equal to the finished result. The same command, given again, must
end; then the whole folder must be equal to the undisturbed one. A round kills up to four times before it lets the command end.

Where a kill hits is drawn anew each time:

- `moment`: uniformly over the command's usual duration;
- `late`: in the last tenth of it;
- `change`: right after the k-th change that the file system shows, which is also between two blocks that a library writes;
- `step`: right before the k-th operation of Python on a file of the run (create, rename, remove), counted inside the process:
  the one that can be repeated exactly;
- `SIGINT`, `SIGTERM`: at a moment, once there is something on the disk to go on from. What comes in training must be answered
  by one line at most, and no traceback; the table says how many said how to go on.

One thread, one command at a time. Nothing depends on absolute times: a verb's duration is measured just before its kills.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
#: keys of JSON files whose values are times, and what stands for times on a page; everything else must be equal
TIMES = ("seconds",)
TIMES_ON_PAGE = re.compile(rb"<dt>seconds</dt><dd>[^<]*|&#34;seconds&#34;: \{[^}]*|\d{4}-\d\d-\d\d \d\d:\d\d UTC")
#: what may lie about after a kill that came later than the last rename: what a run goes on from, and a lock that nobody holds
LEFT = ("result/training/*", ".*.lock")
AIMS = {"moment": 3, "late": 2, "change": 3, "step": 3}
SIGNALS = {"SIGINT": 1.5, "SIGTERM": 1.5}
PATIENCE = 900  # seconds: a command that takes longer hangs

# Runs in every process of a command: counts its operations on files of the run, and kills its group before the k-th.
_HOOK = """
import os, sys

def _watch(root=os.environ["SWEEP_ROOT"], fatal=int(os.environ.get("SWEEP_STEP", 0))):
    log = os.open(os.environ["SWEEP_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    count = [0]

    def hook(event, args):
        if event == "open":
            if not isinstance(args[2], int) or not args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"):
            return
        if not isinstance(args[0], (str, bytes, os.PathLike)):
            return
        path = os.path.abspath(os.fsdecode(args[0]))
        if path != root and not path.startswith(root + os.sep):
            return
        count[0] += 1
        os.write(log, f"{event} {path[len(root) + 1:]}\\n".encode())
        if count[0] == fatal:
            os.killpg(0, 9)

    sys.addaudithook(hook)

_watch()
"""


# -- what is killed --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Verb:
    """A command and what it leaves behind.

    Attributes:
        line: its arguments; `{name}` is a file of `Inputs`.
        units: final names (patterns), each of which is absent or complete at any moment.
        working: files (patterns) that are written while it works, before it saves.
        trains: is also sent SIGINT and SIGTERM.
        once: a finished result is refused; otherwise the command may be given again at any time.
        adds: the result is added to a file, so that a finished command is not given again.
        share: of the kills that a verb gets, because it takes long.
    """

    line: str
    units: tuple[str, ...] = ("result",)
    working: tuple[str, ...] = ("*/training/*",)
    trains: bool = False
    once: bool = False
    adds: bool = False
    share: float = 1.0


_ALIGN = "align {train} --langs en de --encoder mini --towards en --out result"
VERBS = {
    "words": Verb("words {repeated} --langs en de --model gibbs --out result"),
    "words --tables": Verb(
        "words {repeated} --langs en de --model hmm --out result --tables tables", units=("result", "tables")
    ),
    "encode huggingface": Verb("encode mini {long} --lang en --out result", working=("*.part*",)),
    "encode static": Verb("encode {vectors} {longer} --lang en --out result", working=("*.part*",)),
    "anchors": Verb(
        "anchors {long} --lang en --encoder mini --out result",
        units=("result/anchors*",),
        working=("result/sums*", "*.part/sums*"),
    ),
    "align rotation": Verb(f"{_ALIGN} --method rotation", once=True),
    "align finetune": Verb(f"{_ALIGN} --method finetune --epochs 1 --checkpoint-every 5", once=True, trains=True),
    "align contrastive": Verb(f"{_ALIGN} --method contrastive --epochs 1 --checkpoint-every 3", once=True, trains=True),
    "align dictionary": Verb(
        "align --dictionary {dictionary} --langs en de --text en={english} de={german} --encoder mini --towards en --out result",
        once=True,
    ),
    "pretrain bert": Verb(
        "pretrain en={english} de={german} --layers 2 --dim 32 --vocabulary 400 --length 32 --batch 8 --updates 80 "
        "--checkpoint-every 10 --out result",
        once=True,
        trains=True,
    ),
    "pretrain elmo": Verb(
        "pretrain en={english} de={german} --model elmo --dim 8 --vocabulary 400 --length 16 --batch 8 --updates 40 "
        "--checkpoint-every 5 --out result",
        once=True,
        trains=True,
    ),
    "pretrain senses": Verb(
        "pretrain en={english} de={german} --model elmo --dim 8 --vocabulary 400 --length 16 --batch 8 --updates 40 --senses 3 "
        "--sense-option axes=4 --sense-option occurrences=3 --dictionary en-de={dictionary} --checkpoint-every 5 --out result",
        once=True,
        trains=True,
    ),
    "clcr train": Verb(
        "clcr train en=mini de=mini {train} --langs en de --pivot en --out result --option epochs=[2.0,1.0,1.0] --option "
        "refine=1.0 --option head_epochs=1.0 --checkpoint-every 3", once=True, trains=True,
    ),
    "align senses": Verb(
        "align --method senses --dictionary en-de={dictionary} --text en={english} de={german} --encoder mini --towards en "
        "--batch 8 --option length=32 --epochs 1 --checkpoint-every 5 --out result",
        once=True,
        trains=True,
    ),
    "demo": Verb(
        "demo --languages de --out result",
        working=("*/training/*", "*/text/*"),
        once=True,
        trains=True,
        share=0.5,
    ),
    "study": Verb(
        "study {study} --out result",
        units=("result/results*", "result/steps/*"),
        working=("result/steps/*",),
    ),
    "analyze": Verb(
        "analyze mini --test {test} --langs en de --only rank,length,hubness,language --out result", adds=True
    ),
    "evaluate": Verb(
        "evaluate mini pos --train en={tags} --test en={tags_test} --seeds 1 --epochs 2 --hidden 16 --out result", adds=True
    ),
}  # fmt: skip

_STUDY = """
seeds = 1
encoders = ["mini"]
data = "."
[methods.base]
[methods.rotation]
[methods.contrastive]
epochs = 1
[supervision.parallel]
de = "train.tsv"
[tasks.retrieval]
test = { de = "test.tsv" }
"""


def make_inputs(folder: Path) -> dict[str, str]:
    """The sample text as the files that the commands read."""
    import numpy as np

    from calque.corpora.sample import sample_text
    from calque.wordalign import align_words

    def write(name: str, lines: list[str]) -> str:
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return str(folder / name)

    folder.mkdir(parents=True, exist_ok=True)
    parts = {part: sample_text("de", part) for part in ("all", "train", "test")}
    rows = {
        part: [f"{' '.join(a.words)}\t{' '.join(b.words)}" for a, b in corpus] for part, corpus in parts.items()
    }  # fmt: skip
    english, german = ([" ".join(s.words) for s in side] for side in (parts["all"].source, parts["all"].target))
    words = sorted({word for line in english for word in line.split()})
    values = np.random.default_rng(0).normal(size=(len(words), 50))
    vectors = [f"{word} {' '.join(f'{x:.4f}' for x in row)}" for word, row in zip(words, values, strict=True)]
    # Parts of speech by spelling: enough for a tagger to learn, and nobody's annotation.
    tags = [[f"{word}\t{_spelling(word)}" for word in line.split()] + [""] for line in english]
    links = align_words(parts["train"], symmetrize="one-to-one")
    entries = Counter(
        (corpus_pair[0].words[s], corpus_pair[1].words[t])
        for corpus_pair, s, t in (
            (parts["train"][int(n)], int(s), int(t))
            for n, s, t in zip(links.sentence, links.source, links.target, strict=True)
        )
    )
    files = {
        "repeated": write("repeated.tsv", rows["all"] * 5),
        "train": write("train.tsv", rows["train"]),
        "test": write("test.tsv", rows["test"]),
        "english": write("english.txt", english),
        "german": write("german.txt", german),
        "long": write("long.txt", english * 6),
        "longer": write("longer.txt", english * 40),
        "vectors": write("vectors.vec", [f"{len(words)} 50", *vectors]),
        "tags": write("tags.tsv", [line for sentence in tags[100:400] for line in sentence]),
        "tags_test": write("tags.test.tsv", [line for sentence in tags[:100] for line in sentence]),
        "dictionary": write("dictionary.tsv", [f"{a}\t{b}" for (a, b), count in entries.items() if count > 1]),
        "study": write("study.toml", _STUDY.splitlines()),
    }
    return files


def _spelling(word: str) -> str:
    if not word[0].isalpha():
        return "PUNCT"
    return "PROPN" if word[0].isupper() else "VERB" if word.endswith(("ed", "s")) else "NOUN"


# -- what stands in a folder -----------------------------------------------------------------------------------------
def contents(folder: Path) -> dict[str, bytes]:
    """Every file below the folder by its relative name, with times set to nothing; an empty folder as such."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file():
            found[name] = timeless(path.read_bytes(), path.suffix)
        elif path.is_dir() and not any(path.iterdir()):
            found[name + "/"] = b""
    return found


def timeless(data: bytes, suffix: str) -> bytes:
    if suffix == ".html":
        return TIMES_ON_PAGE.sub(b"", data)
    if suffix not in (".json", ".jsonl", ""):
        return data
    try:
        text = data.decode()
        if not any(f'"{name}"' in text for name in TIMES):
            return data
        return json.dumps(_without_times(json.loads(text))).encode()
    except ValueError:
        try:
            return b"\n".join(json.dumps(_without_times(json.loads(line))).encode() for line in data.splitlines())
        except ValueError:
            return data


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: None if key in TIMES else _without_times(inner) for key, inner in value.items()}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value


def units(found: dict[str, bytes], verb: Verb) -> dict[str, dict[str, bytes]]:
    """The files under each final name that stands there."""
    several: dict[str, dict[str, bytes]] = {}
    for name, data in found.items():
        for pattern in verb.units:
            depth = pattern.count("/") + 1
            unit = "/".join(name.split("/")[:depth])
            if fnmatch(unit, pattern) and not re.search(r"\.(part|tmp|lock)", unit):
                several.setdefault(unit, {})[name] = data
    return several


def difference(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """In which files two folders differ, in short; empty where they are equal."""
    more = [name for name in found if name not in expected]
    said = [f"{name} is missing" for name in expected if name not in found]
    said += [f"{name} should not be there" for name in more if not any(fnmatch(name, pattern) for pattern in LEFT)]
    said += [f"{name} differs" for name in found if name in expected and found[name] != expected[name]]
    return "; ".join(said[:4]) + (f"; and {len(said) - 4} more" if len(said) > 4 else "")


def where(found: dict[str, bytes], verb: Verb) -> str:
    """What the command was doing, by what it left."""
    if not found:
        return "before"
    files = [name for name in found if not name.endswith(("/", ".lock"))]
    known = all(any(fnmatch(name, pattern) for pattern in verb.working) for name in files)
    return "working" if known and not units(found, verb) else "saving"


# -- running and killing ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Aim:
    """When a command is killed: `kind` of the module's list, and seconds or a count."""

    kind: str
    value: float

    def __str__(self):
        return (
            f"{self.kind}:{self.value:.3f}" if self.kind not in ("change", "step") else f"{self.kind}:{self.value:.0f}"
        )


@dataclass
class Usual:
    """An undisturbed run."""

    files: dict[str, bytes]
    seconds: float
    changes: int
    steps: list[str]


@dataclass
class Ended:
    """How a command ended."""

    code: int
    seconds: float
    changes: int
    killed: bool
    err: str


class Bench:
    """Runs one verb again and again in one folder, so that every path is the same each time.

    Args:
        folder: for the runs of this verb.
        arguments: of calque.
    """

    def __init__(self, folder: Path, arguments: list[str]):
        self.folder, self.arguments = folder, arguments
        self.run, self.log = folder / "run", folder / "steps.log"
        hooks = folder / "hooks"
        hooks.mkdir(parents=True, exist_ok=True)
        (hooks / "sitecustomize.py").write_text(_HOOK)
        self.environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": f"{hooks}{os.pathsep}{SOURCE}", "SWEEP_ROOT": str(self.run), "SWEEP_LOG": str(self.log),
        }  # fmt: skip

    def clear(self) -> None:
        shutil.rmtree(self.run, ignore_errors=True)
        self.run.mkdir(parents=True)

    def give(self, aim: Aim | None = None) -> Ended:
        """Run the command, and kill it where `aim` says, unless it ends before."""
        self.log.unlink(missing_ok=True)
        environment = dict(self.environment)
        if aim is not None and aim.kind == "step":
            environment["SWEEP_STEP"] = str(int(aim.value))
        command = [sys.executable, "-m", "calque", *self.arguments, "--quiet"]
        with open(self.folder / "stderr", "w+b") as err:
            began = time.perf_counter()
            process = subprocess.Popen(
                command, cwd=self.run, env=environment, stdout=subprocess.DEVNULL, stderr=err, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            try:
                changes, sent = self._until(process, aim, began)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            seconds = time.perf_counter() - began
            err.seek(0)
            said = err.read().decode(errors="replace")
        killed = code == -signal.SIGKILL or (sent and code != 0)
        return Ended(code, seconds, changes, killed, said)

    def _until(self, process: subprocess.Popen, aim: Aim | None, began: float) -> tuple[int, bool]:
        """Wait for the end or for the aim; the number of changes seen, and whether a signal was sent."""
        changes, seen, sent = 0, _state(self.run), False
        looks = aim is None or aim.kind == "change" or aim.kind in SIGNALS
        while process.poll() is None:
            elapsed = time.perf_counter() - began
            if elapsed > PATIENCE:
                raise TimeoutError(f"{' '.join(self.arguments)} did not end in {PATIENCE} seconds")
            if looks and not sent and (state := _state(self.run)) != seen:
                changes, seen = changes + 1, state
            if aim is not None and not sent:
                if (aim.kind in ("moment", "late") and elapsed >= aim.value) or (
                    aim.kind == "change" and changes >= aim.value
                ):
                    os.killpg(process.pid, signal.SIGKILL)
                    sent = True
                elif aim.kind in SIGNALS and elapsed >= aim.value and any("/training/" in entry[0] for entry in seen):
                    os.kill(process.pid, signal.Signals[aim.kind])
                    sent = True
            time.sleep(0.001)
        return changes, sent

    def steps(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def _state(folder: Path) -> tuple:
    """Names, sizes and times of all that is in a folder: differs after every change."""
    found = []

    def visit(path: str) -> None:
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    about = entry.stat(follow_symlinks=False)
                    found.append((entry.path, about.st_size, about.st_mtime_ns))
                    if entry.is_dir(follow_symlinks=False):
                        visit(entry.path)
        except OSError:  # renamed or removed meanwhile
            return

    visit(str(folder))
    return tuple(found)


# -- the sweep -------------------------------------------------------------------------------------------------------
@dataclass
class Tally:
    """What came of the kills of one verb."""

    verb: str
    seconds: float = 0.0
    kills: int = 0
    places: Counter = field(default_factory=Counter)
    aims: Counter = field(default_factory=Counter)
    half: int = 0
    refused: int = 0
    unequal: int = 0
    told: int = 0
    failures: list[str] = field(default_factory=list)


class Sweep:
    """The kills of one verb.

    Args:
        name: of the verb.
        bench: where it runs.
        seed: of where the kills hit.
    """

    def __init__(self, name: str, bench: Bench, seed: int):
        self.name, self.verb, self.bench, self.seed = name, VERBS[name], bench, seed
        self.tally = Tally(name)

    def usual(self) -> Usual | None:
        """Two undisturbed runs, which must be equal."""
        results = []
        for _ in range(2):
            self.bench.clear()
            ended = self.bench.give()
            if ended.code != 0:
                self._fail(f"the undisturbed command ended with {ended.code}: {_last(ended.err)}")
                return None
            self._keep(f"usual-{len(results) + 1}")
            results.append(Usual(contents(self.bench.run), ended.seconds, ended.changes, self.bench.steps()))
        if said := difference(results[1].files, results[0].files):
            self.tally.unequal += 1
            self._fail(f"two undisturbed runs differ: {said}")
            return None
        for unit in self.verb.units:
            if not any(fnmatch(name, unit) for name in units(results[1].files, self.verb)):
                self._fail(f"the finished command left no {unit}")
                return None
        self.tally.seconds = results[1].seconds
        return results[1]

    def aims(self, usual: Usual, rng: random.Random) -> Iterator[Aim]:
        """Where kills hit, for ever."""
        weights = AIMS | (SIGNALS if self.verb.trains else {})
        while True:
            kind = rng.choices(list(weights), list(weights.values()))[0]
            if kind in ("change", "step"):
                yield Aim(kind, rng.randint(1, max(1, usual.changes if kind == "change" else len(usual.steps))))
            else:
                first = {"moment": 0.0, "late": 0.9}.get(kind, 0.2)
                yield Aim(kind, usual.seconds * rng.uniform(first, 1.02 if kind in AIMS else 0.7))

    def round(self, number: int, usual: Usual, aims: list[Aim]) -> None:
        """Begin in an empty folder, kill as often as there are aims, let the command end, compare."""
        self.bench.clear()
        given = f"seed {self.seed}, round {number}, {' then '.join(map(str, aims))}"
        complete = False
        for aim in aims:
            ended = self.bench.give(aim)
            if not ended.killed:
                if ended.code != 0:
                    self.tally.refused += 1
                    self._fail(f"{given}: ended with {ended.code} before the kill: {_last(ended.err)}")
                    return
                usual.seconds = (usual.seconds + ended.seconds) / 2 if aim is aims[0] else usual.seconds
                complete = True
                break
            left = contents(self.bench.run)
            place = where(left, self.verb)
            self.tally.kills += 1
            self.tally.places[place] += 1
            self.tally.aims[aim.kind] += 1
            if aim.kind in SIGNALS:
                self.tally.told += "the same command goes on" in ended.err
                if len(ended.err.strip().splitlines()) > 1:
                    self._fail(f"{given}: {aim} is answered by more than a line: {ended.err.strip()[-300:]!r}")
            if said := self._half(left, usual):
                self.tally.half += 1
                self._fail(f"{given}: killed while {place}, {said}")
            elif complete := units(left, self.verb).keys() >= units(usual.files, self.verb).keys():
                break
        if contents(self.bench.run):  # otherwise it would begin where the undisturbed command began
            self._finish(given, usual, complete)

    def _half(self, left: dict[str, bytes], usual: Usual) -> str:
        """What stands under a final name and is not the finished result."""
        finished = units(usual.files, self.verb)
        for unit, files in units(left, self.verb).items():
            if said := difference(files, finished.get(unit, {})):
                return f"{unit} is neither absent nor complete: {said}"
        return ""

    def _finish(self, given: str, usual: Usual, complete: bool) -> None:
        if not (complete and self.verb.adds):
            ended = self.bench.give()
            if ended.code != 0 and not (complete and self.verb.once):
                self.tally.refused += 1
                self._fail(f"{given}: the same command ended with {ended.code}: {_last(ended.err)}")
                return
        if said := difference(contents(self.bench.run), usual.files):
            self.tally.unequal += 1
            self._fail(f"{given}: {said}")

    def _fail(self, said: str) -> None:
        """The folder stays for who wants to look."""
        self.tally.failures.append(f"{self.name}: {said}")
        kept = self._keep(f"failure-{len(self.tally.failures)}")
        print(f"FAILED {self.tally.failures[-1]} (kept in {kept})", file=sys.stderr, flush=True)

    def _keep(self, name: str) -> Path:
        kept = self.bench.folder / name
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.bench.run, kept, symlinks=True)
        return kept


def _last(err: str) -> str:
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "(nothing said)"


def table(tallies: list[Tally]) -> str:
    """The figures as Markdown."""
    lines = [
        "| verb | seconds | kills | before work | working | saving | half results | reruns refused | unequal bytes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    total = Tally("all")
    for each in tallies:
        total.kills += each.kills
        total.places += each.places
        total.aims += each.aims
        for name in ("half", "refused", "unequal", "told"):
            setattr(total, name, getattr(total, name) + getattr(each, name))
    for each in [*tallies, total]:
        seconds = f"{each.seconds:.1f}" if each.seconds else ""
        cells = [each.verb, seconds, each.kills, *(each.places[place] for place in ("before", "working", "saving")),
                 each.half, each.refused, each.unequal]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    aims = ", ".join(f"{kind} {count}" for kind, count in total.aims.most_common())
    signals = sum(total.aims[name] for name in SIGNALS)
    told = f"{total.told} of {signals} signals came in training and were answered by how to go on"
    return "\n".join([*lines, "", f"Aims: {aims}. {told}."])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--verbs", default="", help=f"some of {', '.join(VERBS)}, with commas; default: all")
    parser.add_argument("--kills", type=int, default=100, help="kills in all")
    parser.add_argument("--seed", type=int, default=0, help="of where they hit")
    parser.add_argument("--at", type=_aim, action="append", help="kill just here, e.g. step:17; repeat for a round")
    parser.add_argument("--folder", type=Path, help="for the runs; default: a temporary one, kept after a failure")
    options = parser.parse_args(arguments)
    names = [name.strip() for name in options.verbs.split(",") if name.strip()] or list(VERBS)
    if unknown := [name for name in names if name not in VERBS]:
        parser.error(f"unknown verb {', '.join(unknown)}; known are {', '.join(VERBS)}")
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="calque-kills-"))).resolve()
    inputs = make_inputs(folder / "inputs")
    tallies = []
    for position, name in enumerate(names):
        share = VERBS[name].share / sum(VERBS[other].share for other in names[position:])
        kills = round(share * (options.kills - sum(each.kills for each in tallies)))
        line = [word.format(**inputs) for word in VERBS[name].line.split()]
        sweep = Sweep(name, Bench(folder / name.replace(" ", "-"), line), options.seed)
        tallies.append(sweep.tally)
        if (usual := sweep.usual()) is None:
            continue
        _rounds(sweep, usual, kills, options.at)
        print(f"{name}: {sweep.tally.kills} kills, {len(sweep.tally.failures)} failures", file=sys.stderr, flush=True)
    print(table(tallies))
    failures = [failure for each in tallies for failure in each.failures]
    print("\n".join(failures))
    if not failures and options.folder is None:
        shutil.rmtree(folder)
    return 1 if failures else 0


def _rounds(sweep: Sweep, usual: Usual, kills: int, at: list[Aim] | None) -> None:
    if at:
        sweep.round(0, usual, at)
        return
    for number in range(4 * kills):  # commands that end before their kill count for nothing
        rng = random.Random(f"{sweep.seed}/{sweep.name}/{number}")
        wanted = min(rng.randint(1, 4), kills - sweep.tally.kills)
        if wanted < 1:
            return
        aims = sweep.aims(usual, rng)
        sweep.round(number, usual, [next(aims) for _ in range(wanted)])


def _aim(text: str) -> Aim:
    kind, colon, value = text.partition(":")
    if kind not in AIMS | SIGNALS or not colon:
        raise argparse.ArgumentTypeError(f"{text}: expected KIND:VALUE, KIND one of {', '.join(AIMS | SIGNALS)}")
    return Aim(kind, float(value))


if __name__ == "__main__":
    sys.exit(main())
