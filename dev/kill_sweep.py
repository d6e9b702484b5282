"""Kills long commands at random moments, gives them again, and compares every byte with an undisturbed run.

    python dev/kill_sweep.py --kills 120
    python dev/kill_sweep.py --verbs "align rotation" --at step:17        # one kill again
    sudo .venv/bin/python dev/kill_sweep.py --full-disk                    # disks that are too small instead of kills

Each verb first runs twice undisturbed: the results must be equal but for times. Then it begins in an empty folder and is killed
up to four times, at a `moment` of its usual duration, or at a `step`: right before the k-th operation of Python on a file of the
run (create, rename, remove). Verbs that train also get SIGINT and SIGTERM, answered by one line at most. After each kill, what
has the final name must be absent or complete; when the command is given once more, the folder must equal the undisturbed one.

With --full-disk (needs the right to mount), each verb runs on disks of parts of what it uses at most: it must end with one line
and exit code 2, and leave nothing under the final name.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
TIMES = re.compile(  # in JSON, and on a page
    rb'"seconds": (\{[^}]*\}|[\d.e-]+)|<dt>seconds</dt><dd>[^<]*|&#34;seconds&#34;: \{[^}]*|\d{4}-\d\d-\d\d \d\d:\d\d UTC'
)
# What may lie about after a kill that came later than the last rename: what a run goes on from, and a lock nobody holds.
LEFT = ("result/training/*", ".*.lock")
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
        os.write(log, b".")
        if count[0] == fatal:
            os.killpg(0, 9)

    sys.addaudithook(hook)

_watch()
"""


@dataclass(frozen=True)
class Verb:
    """A command and what it leaves behind.

    Attributes:
        line: its arguments; `{name}` is a file of `make_inputs`.
        units: final names (patterns), each of which is absent or complete at any moment.
        trains: is also sent SIGINT and SIGTERM.
        once: a finished result is refused; otherwise the command may be given again at any time.
        adds: the result is added to a file, so that a finished command is not given again.
    """

    line: str
    units: tuple[str, ...] = ("result",)
    trains: bool = False
    once: bool = False
    adds: bool = False


_ALIGN = "align {train} --langs en de --encoder mini --towards en --out result --method"
_PRETRAIN = (
    "pretrain en={english} de={german} --vocabulary 400 --batch 8 --out result --checkpoint-every 5 --updates 40"
)
_ELMO = f"{_PRETRAIN} --model elmo --dim 8 --length 16"
VERBS = {
    "words --tables": Verb("words {repeated} --langs en de --out result --tables tables", units=("result", "tables")),
    "encode huggingface": Verb("encode mini {long} --lang en --out result"),
    "encode static": Verb("encode {vectors} {long} --lang en --out result"),
    "anchors": Verb("anchors {long} --lang en --encoder mini --out result", units=("result/anchors*",)),
    "align rotation": Verb(f"{_ALIGN} rotation", once=True),
    "align finetune": Verb(f"{_ALIGN} finetune --epochs 1 --checkpoint-every 5", once=True, trains=True),
    "align contrastive": Verb(f"{_ALIGN} contrastive --epochs 1 --checkpoint-every 3", once=True, trains=True),
    "pretrain bert": Verb(f"{_PRETRAIN} --layers 2 --dim 32 --length 32", once=True, trains=True),
    "pretrain elmo": Verb(_ELMO, once=True, trains=True),
    "clcr train": Verb(
        "clcr train en=mini de=mini {train} --langs en de --pivot en --out result --option epochs=[2.0,1.0,1.0] --option "
        "refine=1.0 --option head_epochs=1.0 --checkpoint-every 3", once=True, trains=True,
    ),
    "demo": Verb("demo --languages de --out result", once=True, trains=True),
    "study": Verb("study {study} --out result", units=("result/results*", "result/steps/*")),
    "analyze": Verb("analyze mini --test {test} --langs en de --only rank,length --out result", adds=True),
    "evaluate": Verb("evaluate mini retrieval --test {test} --langs en de --out result", adds=True),
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
    """Write the sample text as the files that the commands read."""
    import numpy as np

    from calque.corpora.sample import sample_text

    folder.mkdir(parents=True, exist_ok=True)
    parts = {part: sample_text("de", part) for part in ("all", "train", "test")}
    rows = {part: [f"{' '.join(a.words)}\t{' '.join(b.words)}" for a, b in corpus] for part, corpus in parts.items()}
    english, german = ([" ".join(s.words) for s in side] for side in (parts["all"].source, parts["all"].target))
    words = sorted({word for line in english for word in line.split()})
    values = np.random.default_rng(0).normal(size=(len(words), 50)).round(4)
    vectors = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, values, strict=True)]
    files = {
        "repeated.tsv": rows["all"] * 5, "train.tsv": rows["train"], "test.tsv": rows["test"], "english.txt": english,
        "german.txt": german, "long.txt": english * 6, "study.toml": _STUDY.splitlines(),
        "vectors.vec": [f"{len(words)} 50", *vectors],
    }  # fmt: skip
    for name, lines in files.items():
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return {name.partition(".")[0]: str(folder / name) for name in files}


# -- what is in a folder ---------------------------------------------------------------------------------------------
def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below the folder by its relative name, without times."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): TIMES.sub(b"", path.read_bytes()) for path in files}


def units(found: dict[str, bytes], verb: Verb) -> dict[str, dict[str, bytes]]:
    """Return the files under each final name that is there."""
    several: dict[str, dict[str, bytes]] = {}
    for name, data in found.items():
        for pattern in verb.units:
            unit = "/".join(name.split("/")[: pattern.count("/") + 1])
            if fnmatch(unit, pattern) and not re.search(r"\.(part|tmp|lock)", unit):
                several.setdefault(unit, {})[name] = data
    return several


def difference(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """Return in which files two folders differ; empty where they are equal."""
    more = [name for name in found if name not in expected and not any(fnmatch(name, pattern) for pattern in LEFT)]
    said = [f"{name} is missing" for name in expected if name not in found]
    said += [f"{name} should not be there" for name in more]
    said += [f"{name} differs" for name in found if name in expected and found[name] != expected[name]]
    return "; ".join(said[:5])


# -- running and killing ---------------------------------------------------------------------------------------------
@dataclass
class Sweep:
    """The kills of one verb, which runs again and again in one folder, so that every path is the same each time."""

    name: str
    folder: Path
    arguments: list[str]
    kills: int = 0
    most: int = 0  # bytes on the disk at any time
    failures: list[str] = field(default_factory=list)

    def give(self, aim: tuple[str, float] | None = None) -> tuple[int, float, bool, str]:
        """Run the command, and kill it where `aim` says: exit code, seconds, whether it was killed, standard error."""
        run, hooks = self.folder / "run", self.folder / "hooks"
        for each in (run, hooks):
            each.mkdir(parents=True, exist_ok=True)
        (hooks / "sitecustomize.py").write_text(_HOOK)
        (self.folder / "steps").unlink(missing_ok=True)
        kind, value = aim or ("", 0.0)
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "SWEEP_ROOT": str(run),
            "PYTHONPATH": f"{hooks}{os.pathsep}{SOURCE}", "SWEEP_LOG": str(self.folder / "steps"),
            "SWEEP_STEP": str(int(value)) if kind == "step" else "0",
        }  # fmt: skip
        with open(self.folder / "stderr", "w+b") as err:
            began = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "calque", *self.arguments, "--quiet"], cwd=run, env=environment, stderr=err,
                stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            sent = False
            while process.poll() is None:
                elapsed = time.perf_counter() - began
                if elapsed > PATIENCE:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise TimeoutError(f"{' '.join(self.arguments)} did not end in {PATIENCE} seconds")
                if kind == "moment" and not sent and elapsed >= value:
                    os.killpg(process.pid, signal.SIGKILL)
                    sent = True
                elif kind.startswith("SIG") and not sent and elapsed >= value and any(run.glob("**/training/*")):
                    os.kill(process.pid, signal.Signals[kind])
                    sent = True
                with suppress(FileNotFoundError):  # renamed meanwhile
                    self.most = max(self.most, sum(path.stat().st_size for path in run.rglob("*")))
                time.sleep(0.001)
            err.seek(0)
            said = err.read().decode(errors="replace").strip()
        code = process.wait()
        return code, time.perf_counter() - began, code == -signal.SIGKILL or (sent and code != 0), said

    def usual(self) -> tuple[dict[str, bytes], float, int] | None:
        """Run twice undisturbed: the files, the seconds, and the number of steps."""
        results = []
        for _ in range(2):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            code, seconds, _, said = self.give()
            if code != 0:
                return self.fail(f"the undisturbed command ended with {code}: {said[-300:]}")
            results.append(contents(self.folder / "run"))
        if said := difference(results[1], results[0]):
            return self.fail(f"two undisturbed runs differ: {said}")
        return results[1], seconds, (self.folder / "steps").stat().st_size

    def round(self, aims: list[tuple[str, float]], expected: dict[str, bytes]) -> None:
        """Begin in an empty folder, kill as often as there are aims, let the command end, compare."""
        verb, run = VERBS[self.name], self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        given, complete = " then ".join(f"{kind}:{value:g}" for kind, value in aims), False
        for kind, value in aims:
            code, _, killed, said = self.give((kind, value))
            if not killed:
                complete = code == 0
                if code:
                    return self.fail(f"{given}: ended with {code} before the kill: {said[-300:]}")
                break
            self.kills += 1
            if kind.startswith("SIG") and len(said.splitlines()) > 1:
                self.fail(f"{given}: {kind}:{value:g} is answered by more than a line: {said[-300:]!r}")
            there, finished = units(contents(run), verb), units(expected, verb)
            for unit, files in there.items():
                if wrong := difference(files, finished.get(unit, {})):
                    self.fail(f"{given}: killed, {unit} is neither absent nor complete: {wrong}")
            if complete := there.keys() >= finished.keys():
                break
        if not (complete and verb.adds):
            code, _, _, said = self.give()
            if code != 0 and not (complete and verb.once):
                return self.fail(f"{given}: the same command ended with {code}: {said[-300:]}")
        if wrong := difference(contents(run), expected):
            self.fail(f"{given}: {wrong}")

    def on_a_full_disk(self, part: float, expected: dict[str, bytes]) -> None:
        """Run on a disk of a part of what the command uses at most."""
        run, verb = self.folder / "run", VERBS[self.name]
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        size = max(4096, int(self.most * part))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", run], check=True)
        try:
            code, _, _, said = self.give()
            one_line = said.count("calque: error: ") == 1 and "Traceback" not in said
            there, finished = units(contents(run), verb), units(expected, verb)
            half = [unit for unit, files in there.items() if difference(files, finished.get(unit, {}))]
            if half or (code != 0 and not (code == 2 and one_line and len(there) < len(finished))):
                self.fail(f"a disk of {size:,} bytes: exit code {code}, half {half}: {said[-300:]}")
        finally:
            subprocess.run(["umount", run], check=True)

    def fail(self, said: str) -> None:
        """Keep the folder for whoever wants to look."""
        self.failures.append(f"{self.name}: {said}")
        kept = self.folder / f"failure-{len(self.failures)}"
        shutil.copytree(self.folder / "run", kept, symlinks=True, dirs_exist_ok=True)
        print(f"FAILED {self.failures[-1]} (kept in {kept})", flush=True)


def _aim(text: str) -> tuple[str, float]:
    kind, _, value = text.partition(":")
    if kind not in ("moment", "step", "SIGINT", "SIGTERM"):
        raise argparse.ArgumentTypeError(
            f"{text}: expected moment:SECONDS, step:COUNT, SIGINT:SECONDS or SIGTERM:SECONDS"
        )
    return kind, float(value)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--verbs", default="", help=f"some of {', '.join(VERBS)}, with commas; default: all")
    parser.add_argument("--kills", type=int, default=100, help="kills in all")
    parser.add_argument("--seed", type=int, default=0, help="of where they hit")
    parser.add_argument("--at", type=_aim, action="append", help="kill just here, e.g. step:17; repeat for a round")
    parser.add_argument(
        "--full-disk", action="store_true", help="small disks instead of kills; needs the right to mount"
    )
    parser.add_argument("--folder", type=Path, help="for the runs; default: a temporary one, kept after a failure")
    options = parser.parse_args(arguments)
    names = [name.strip() for name in options.verbs.split(",") if name.strip()] or list(VERBS)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="calque-kills-"))).resolve()
    inputs, sweeps = make_inputs(folder / "inputs"), []
    for name in names:
        line = [word.format(**inputs) for word in VERBS[name].line.split()]
        sweeps.append(sweep := Sweep(name, folder / name.replace(" ", "-"), line))
        if (usual := sweep.usual()) is None:
            continue
        files, seconds, steps = usual
        for part in (0.02, 0.3, 0.6, 0.9) if options.full_disk else ():
            sweep.on_a_full_disk(part, files)
        rng = random.Random(f"{options.seed}/{name}")
        kinds = ["moment", "step", *(["SIGINT", "SIGTERM"] if VERBS[name].trains else [])]
        rounds = 0
        while (
            not options.full_disk
            and sweep.kills < max(1, options.kills // len(names))
            and rounds < (1 if options.at else 4 * options.kills)
        ):
            chosen = rng.choices(kinds, k=rng.randint(1, 4))
            aims = [
                (kind, rng.randint(1, steps) if kind == "step" else seconds * rng.uniform(0, 1.02)) for kind in chosen
            ]
            sweep.round(options.at or aims, files)
            rounds += 1
        print(f"{name}: {seconds:.1f} s, {sweep.kills} kills, {len(sweep.failures)} failures", flush=True)
    failures = [failure for sweep in sweeps for failure in sweep.failures]
    print(f"{sum(sweep.kills for sweep in sweeps)} kills, {len(failures)} failures")
    if not failures and options.folder is None:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
