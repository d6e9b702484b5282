"""Kill commands, interrupt them or let their system calls fail, repeat them, and compare all results with an undisturbed run.

    python dev/kill_sweep.py --kills 1000
    python dev/kill_sweep.py --verbs "align rotation" --at step:17        # repeat one kill
    python dev/kill_sweep.py --faults 500                                  # failing system calls instead of kills
    python dev/kill_sweep.py --verbs anchors --at ENOSPC:31                # repeat one fault
    sudo .venv/bin/python dev/kill_sweep.py --full-disk                    # small disks instead of kills

Each command first runs twice undisturbed, and both results must be equal except for times. Then the command runs in a folder
with a user's files and, in some cases, an older result (`--overwrite`). It is killed up to four times, either after a number of
seconds (`moment`) or right before Python's k-th file operation (`step`: create, rename or remove). The signals are SIGKILL,
SIGTERM, and SIGINT to the command or to its process group (`GROUP`). After SIGINT or SIGTERM, the command must end at once and
print at most one line. The user's files must be unchanged, and the result must be absent, complete or still the older one. If
the command is repeated, it must leave the same files as without kills. `--overwrite` must refuse folders with foreign files.

With --faults, a C library (`faults.c`, compiled with cc and loaded with LD_PRELOAD) counts the system calls that change files,
also those of safetensors, tokenizers, PyArrow, PyTorch and HDF5. It lets one of them fail with an error number, or this call and
all later ones (`ENOSPC+`), or kills the process group before the call (`KILL`). The command must then end with one line and
exit code 2, or succeed with a complete result.

Commands run in forks of this process, which has imported the libraries; `--fresh` runs some of them in a new interpreter. With
--full-disk, which needs permission to mount, each command runs on disks that are too small: it must print one line and exit
with code 2, and its result must be absent.
"""

from __future__ import annotations

import argparse
import errno
import importlib
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
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import golden

Aim = tuple[
    str, float
]  # moment, step or signal name, and the number of seconds or file operations before the kill
SOURCE = Path(__file__).resolve().parents[1] / "src"
TIMES = re.compile(  # matches times in JSON files and on report pages
    rb'"seconds": (\{[^}]*\}|[\d.e-]+)|<dt>seconds</dt><dd>[^<]*|&#34;seconds&#34;: \{[^}]*|\d{4}-\d\d-\d\d \d\d:\d\d UTC'
)
LEFT = ".*.calque-*"  # files that may remain after a kill: resumable state and unlocked lock files
FOREIGN = (
    "thesis.tex",
    "result.old/thesis.tex",
    "result.part/src/a.py",
    "result.partial",
    "result.journal",
    ".result.lock",
    ".result.saving/x",
    "tables.part",
)
PATIENCE, ANSWER = 900, 60  # time limits, in seconds, for a command and for its end after a signal
SIGNALS = ("SIGINT", "GROUP", "SIGTERM")
# error numbers of failing system calls; "+": all later calls also fail; 0: the process group is
# killed
FAULTS = {
    "ENOSPC": errno.ENOSPC,
    "ENOSPC+": errno.ENOSPC,
    "EIO": errno.EIO,
    "EIO+": errno.EIO,
    "EDQUOT": errno.EDQUOT,
    "EACCES": errno.EACCES,
    "EINTR": errno.EINTR,
    "KILL": 0,
}
LIBRARY = Path(__file__).with_name("faults.c")
ANSWERS = (130, 143, -signal.SIGINT, -signal.SIGTERM)  # exit codes after SIGINT and SIGTERM
COLUMNS = ("half results", "tracebacks", "foreign files", "refused", "unequal", "no answer")
LIBRARIES = (
    "torch",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.bert.modeling_bert",
    "accelerate",
    "numba",
    "pyarrow.compute",
    "calque.cli.parser",
    "calque.runs.align",
    "calque.runs.evaluate",
    "calque.runs.analyze",
    "calque.runs.study",
    "calque.runs.demo",
    "calque.senses.pretrain",
    "calque.encoders.huggingface",
)

# This code runs in every process of a command, counts its file operations, and kills the process
# group before the k-th one. The log file is created when calque is imported, because earlier
# signals are handled by Python, not by calque.
_HOOK = """
import os, sys

def _watch(root=os.environ["SWEEP_ROOT"], fatal=int(os.environ.get("SWEEP_STEP", 0))):
    count = [0]

    def write(text):
        log = os.open(os.environ["SWEEP_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, text)
        os.close(log)

    def hook(event, args):
        if event == "import" and args[0] == "calque.cli":
            return write(b"")
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
        write(b".")
        if count[0] == fatal:
            os.killpg(0, 9)

    sys.addaudithook(hook)

_watch()
"""


@dataclass(frozen=True)
class Verb:
    """A command and its results.

    Attributes:
        line: arguments of the command; `@NAME` is a file that `golden.plant` writes.
        units: glob patterns of result files and folders; each match must be absent or complete at
            all times.
        once: whether the command fails if a finished result exists; otherwise the command can be
            repeated.
        adds: whether the command appends its result to a file; a finished command is then not
            repeated.
        over: arguments of a command whose result this command replaces.
        needs: arguments of a command whose result this command reads; its files are then treated as
            the user's.
        changes: whether the command changes files of the older result instead of replacing it.
        inside: a user's file that may be inside the result folder.
    """

    line: str
    units: tuple[str, ...] = ("result",)
    once: bool = False
    adds: bool = False
    over: str = ""
    needs: str = ""
    changes: bool = False
    inside: str = ""


_ALIGN = "align @train.tsv --langs en de --encoder mini --towards en --out result --method"
_LORA = (
    "align @train.tsv --langs en de --encoder mini --towards en --out adapters --method "
    "contrastive --epochs 1 --lora 2"
)
_PRETRAIN = (
    "pretrain en=@en.txt de=@de.txt --vocabulary 400 --batch 8 --out result --checkpoint-every 5 "
    "--updates 20"
)
_BERT, _ELMO = (
    f"{_PRETRAIN} --layers 2 --dim 32 --length 32",
    f"{_PRETRAIN} --model elmo --dim 8 --length 16",
)
_STUDY_UNITS = ("result/results*", "result/steps/*")
VERBS = {
    "words --tables": Verb(
        "words @train.tsv --langs en de --out result --tables tables", units=("result", "tables")
    ),
    "encode huggingface": Verb("encode mini @long.txt --lang en --out result"),
    "encode static": Verb("encode @en.vec @long.txt --lang en --out result"),
    "anchors": Verb(
        "anchors @en.txt --lang en --encoder mini --out result",
        ("result/anchors*",),
        inside="result/notes",
    ),
    "align rotation": Verb(f"{_ALIGN} rotation", once=True),
    "align rotation --overwrite": Verb(f"{_ALIGN} rotation --overwrite", over=f"{_ALIGN} means"),
    "align finetune": Verb(f"{_ALIGN} finetune --epochs 1 --checkpoint-every 5", once=True),
    "align contrastive --overwrite": Verb(
        f"{_ALIGN} contrastive --epochs 1 --checkpoint-every 3 --overwrite",
        over=f"{_ALIGN} rotation",
    ),
    "pretrain bert": Verb(_BERT, once=True),
    "pretrain bert --overwrite": Verb(f"{_BERT} --seed 1 --overwrite", over=_BERT),
    "pretrain elmo": Verb(_ELMO, once=True),
    "distil": Verb(
        "distil @train.tsv --langs en de --teacher mini --teacher-pooling words --student mini "
        "--epochs 1 --out result",
        once=True,
    ),
    "align clcr": Verb(
        "align --method clcr --encoder en=mini,de=mini @train.tsv --langs en de --towards en "
        "--out result --option epochs=[0.5,0.2,0.2,0.2,0.2] --checkpoint-every 3",
        once=True,
    ),
    "demo": Verb("demo --languages de --out result", once=True),
    "study": Verb("study @study.toml --out result", _STUDY_UNITS, inside="result/thesis.tex"),
    "study --workers 2": Verb("study @study.toml --out result --workers 2", _STUDY_UNITS),
    "merge": Verb("merge adapters --out result", once=True, needs=_LORA),
    "senses": Verb("senses mini --text en=@often.txt --out result"),
    "report": Verb(
        "report @results.jsonl --out result.html --plots plots", units=("result.html", "plots/*")
    ),
    "evaluate tune": Verb(
        "evaluate mini pos --train en=@pos.tsv --test en=@pos.test.tsv --epochs 2 --seeds 1 "
        "--tune --out result",
        adds=True,
    ),
    "evaluate --record": Verb(
        "evaluate result retrieval --test @test.tsv --langs en de --record",
        ("result/README.md", "result/calque-run.json"),
        over=f"{_ALIGN} means",
        adds=True,
        changes=True,
    ),
    "analyze": Verb(
        "analyze mini --test @test.tsv --langs en de --only rank,length --out result", adds=True
    ),
    "evaluate": Verb(
        "evaluate mini retrieval --test @test.tsv --langs en de --out result", adds=True
    ),
}

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


_RESULTS = "".join(
    f'{{"task": "retrieval", "data": "test", "languages": ["de", "en"], "metric": "form.{side}", "value": 0.{n}, "low": 0.1, '
    f'"high": 0.9, "n": 50, "queries": 50, "seed": 0, "settings": {{"encoder": "{name}", "aligned": null}}, "percent": true}}\n'
    for side in ("en-de", "de-en")
    for n, name in enumerate(("mini", "other"), 4)
)


# -- contents of a folder --------------------------------------------------------------------------
def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below the folder, without times, keyed by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): TIMES.sub(b"", path.read_bytes()) for path in files
    }


def is_left(name: str) -> bool:
    return any(fnmatch(part, LEFT) for part in name.split("/"))


def units(found: dict[str, bytes], verb: Verb) -> dict[str, dict[str, bytes]]:
    """Return the files of each result that exists, keyed by the name of the result."""
    several: dict[str, dict[str, bytes]] = {}
    for name, data in found.items():
        for pattern in verb.units:
            unit = "/".join(name.split("/")[: pattern.count("/") + 1])
            if fnmatch(unit, pattern) and not is_left(name) and ".part" not in unit:
                several.setdefault(unit, {})[name] = data
    return several


def difference(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """Describe up to five files that differ between two folders; return an empty string if none
    differs.
    """
    said = [f"{name} is missing" for name in expected if name not in found]
    said += [
        f"{name} should not be there"
        for name in found
        if name not in expected and not is_left(name)
    ]
    said += [
        f"{name} differs" for name in found if name in expected and found[name] != expected[name]
    ]
    return "; ".join(said[:5])


def members(group: int) -> list[int]:
    """Return the ids of the running processes in a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of = path.read_text().rpartition(")")[2].split()[:3]
            found += [int(path.parent.name)] if int(of) == group and state not in "ZX" else []
    return found


# -- running and killing ---------------------------------------------------------------------------
def compiled(folder: Path) -> Path | None:
    """Compile the library that lets system calls fail; return None if this is not possible here."""
    compiler, path = shutil.which("cc"), folder / "faults.so"
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", LIBRARY, "-o", path, "-ldl"], check=True
        )
    return path


def enter(folder: Path, environment: dict[str, str]) -> None:
    """Prepare a forked process to run a command in its folder and in a new session."""
    signal.alarm(0)
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment)
    exec(compile(_HOOK, "hook", "exec"), {})


@dataclass
class Sweep:
    """Series of kills of one command. All runs use the same folder, so their results contain the
    same paths.
    """

    name: str
    folder: Path
    fresh: float
    rng: random.Random
    most: int = 0  # peak disk use in bytes
    seconds: float = 1.0
    steps: int = 1
    expected: dict[str, bytes] = field(default_factory=dict)
    older: dict[str, bytes] = field(default_factory=dict)
    calls: int = 0
    library: Path | None = None
    hits: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def give(
        self, aim: Aim = ("", 0.0), *, line: str = "", fresh: bool | None = None
    ) -> tuple[int, float, bool, str]:
        """Run the command and kill it at `aim`; return the exit code, seconds, whether it was
        killed, and standard error.
        """
        run, log, null, (kind, value) = (
            self.folder / "run",
            self.folder / "steps",
            Path(os.devnull),
            aim,
        )
        log.unlink(missing_ok=True)
        fresh = self.rng.random() < self.fresh if fresh is None else fresh
        arguments = [
            *(line or VERBS[self.name].line).replace("@", f"{self.folder.parent / 'in'}/").split(),
            "--quiet",
        ]
        more = {
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "SWEEP_ROOT": str(run),
            "SWEEP_LOG": str(log),
            "PYTHONPATH": f"{self.folder / 'hooks'}{os.pathsep}{SOURCE}",
            "SWEEP_STEP": str(int(value)) if kind == "step" else "0",
        }
        if self.library is not None:
            (self.folder / "calls").unlink(missing_ok=True)
            more |= {
                "LD_PRELOAD": str(self.library),
                "FAULT_ROOT": str(run),
                "FAULT_LOG": str(self.folder / "calls"),
                "FAULT_CALL": str(int(value)) if kind in FAULTS else "0",
                "FAULT_ERRNO": str(FAULTS.get(kind, 0)),
                "FAULT_STICKY": str(int(kind.endswith("+"))),
            }
        with open(self.folder / "stderr", "w+b") as err:
            began, sent, code, process = time.perf_counter(), 0.0, None, None
            if fresh:
                process = subprocess.Popen(
                    [sys.executable, "-m", "calque", *arguments],
                    cwd=run,
                    env={**os.environ, **more},
                    stderr=err,
                    stdout=subprocess.DEVNULL,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
                number = process.pid
            else:
                number = golden.give(
                    arguments, null, Path(err.name), SOURCE, lambda: enter(run, more)
                )
            while code is None:
                elapsed = time.perf_counter() - began
                if elapsed > PATIENCE or (sent and elapsed - sent > ANSWER):
                    self.fail("no answer", f"{kind}:{value:g}: still running after {elapsed:.0f} s")
                    os.killpg(number, signal.SIGKILL)
                    sent = elapsed
                elif (
                    not sent
                    and elapsed >= value
                    and log.exists()
                    and (kind == "moment" or kind in SIGNALS)
                ):
                    send = os.kill if kind in ("SIGINT", "SIGTERM") else os.killpg
                    send(
                        number,
                        {"moment": signal.SIGKILL, "SIGTERM": signal.SIGTERM}.get(
                            kind, signal.SIGINT
                        ),
                    )
                    sent = elapsed
                with suppress(FileNotFoundError):  # a file was renamed meanwhile
                    size = 0 if kind else sum(path.stat().st_size for path in run.rglob("*"))
                    self.most = max(self.most, size)
                time.sleep(0.002)
                gone, status = os.waitpid(number, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if gone else None
            if process:
                process.returncode = code
            seconds = time.perf_counter() - began
            err.seek(0)
            said = err.read().decode(errors="replace").strip()
        ended = time.perf_counter()  # workers that are still importing modules end a little later
        while members(number) and time.perf_counter() - ended < ANSWER:
            time.sleep(0.02)
        if members(number):
            self.fail("no answer", f"{kind}:{value:g}: processes outlive the command")
            os.killpg(number, signal.SIGKILL)
        if "Traceback" in said:
            self.fail("tracebacks", f"{kind}:{value:g}: {said[-600:]}")
        return code, seconds, code == -signal.SIGKILL or (bool(sent) and code != 0), said

    def begin(self) -> None:
        """Reset the folder to the user's files and the older result."""
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        older = VERBS[self.name].over or VERBS[self.name].needs
        shutil.copytree(self.folder / "older", run) if older else run.mkdir(parents=True)
        for name in self.foreign():
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_text(f"mine: {name}")

    def foreign(self) -> list[str]:
        return [*FOREIGN, *filter(None, [VERBS[self.name].inside])]

    def found(self, when: str) -> dict[str, bytes]:
        """Check that the user's files are unchanged, and return all other files in the folder."""
        found, touched = contents(self.folder / "run"), []
        if VERBS[self.name].needs:
            touched = [name for name, data in self.older.items() if found.pop(name, b"") != data]
        touched += [
            name for name in self.foreign() if found.pop(name, b"") != f"mine: {name}".encode()
        ]
        if touched:
            self.fail("foreign files", f"{when}: {touched}")
        return found

    def usual(self) -> bool:
        """Run the command twice undisturbed, first in a new interpreter, and return whether both
        results are equal.
        """
        (self.folder / "hooks").mkdir(parents=True, exist_ok=True)
        (self.folder / "hooks" / "sitecustomize.py").write_text(_HOOK)
        verb, results = VERBS[self.name], []
        if before := verb.over or verb.needs:
            (self.folder / "run").mkdir(exist_ok=True)
            shutil.rmtree(self.folder / "older", ignore_errors=True)
            self.give(line=before)
            self.older = contents(self.folder / "run")
            os.rename(self.folder / "run", self.folder / "older")
        for fresh in (True, None):
            self.begin()
            code, self.seconds, _, said = self.give(fresh=fresh)
            if code != 0:
                return self.fail(
                    "unequal", f"the undisturbed command ended with {code}: {said[-300:]}"
                )
            results.append(self.found("undisturbed"))
        if said := difference(results[1], results[0]):
            return self.fail("unequal", f"two undisturbed runs differ: {said}")
        self.expected, self.steps = results[1], (self.folder / "steps").stat().st_size
        self.calls = len(self.called())
        if verb.over and not verb.changes:
            (self.folder / "run" / "result" / "thesis.tex").write_text("mine")
            before = contents(self.folder / "run")
            code, _, _, said = self.give()
            if code != 2 or "thesis.tex" not in said or contents(self.folder / "run") != before:
                self.fail(
                    "foreign files",
                    f"--overwrite over a foreign file ended with {code}: {said[-300:]}",
                )
        return True

    def called(self) -> list[str]:
        """Return the system calls of the last command that changed files below its folder, with
        their paths.
        """
        log = self.folder / "calls"
        return log.read_text(errors="replace").splitlines() if log.exists() else []

    def is_complete(self, given: str, ending: str = "") -> bool:
        """Return whether the result of a stopped command is complete, and record results that are
        neither absent, complete nor those of an older run. `ending` states how the command was
        stopped."""
        verb = VERBS[self.name]
        there, older, finished = (
            units(files, verb) for files in (self.found(given), self.older, self.expected)
        )
        for unit, files in there.items():
            wrong = difference(files, finished.get(unit, {}))
            if wrong and (unit not in older or difference(files, older[unit])):
                self.fail(
                    "half results",
                    f"{given}:{ending} {unit} is neither absent nor complete: {wrong}",
                )
        return not any(difference(there.get(unit, {}), files) for unit, files in finished.items())

    def repeat(self, given: str, complete: bool) -> bool | None:
        """Repeat a stopped command, and compare its result with the expected one."""
        verb = VERBS[self.name]
        if not (complete and verb.adds):
            code, _, _, said = self.give()
            if code != 0 and not (complete and verb.once):
                return self.fail(
                    "refused", f"{given}: the same command ended with {code}: {said[-300:]}"
                )
        if wrong := difference(self.found(given), self.expected):
            self.fail("unequal", f"{given}: {wrong}")

    def fault(self, kind: str, number: float) -> bool | None:
        """Let one system call of the command fail, repeat the command, and compare its result with
        the expected one.
        """
        self.begin()
        code, _, _, said = self.give((kind, number))
        calls = self.called()
        is_hit = number <= len(calls)
        given = f"{kind}:{number:g} ({calls[int(number) - 1] if is_hit else 'no such call'})"
        self.hits["faults"] += is_hit
        error = "calque: error: "
        reported = code == 2 and said.count(error) == 1 and said.splitlines()[-1].startswith(error)
        killed = code == -signal.SIGKILL and kind == "KILL" and is_hit
        if not (reported or killed or code == 0):
            self.fail("tracebacks", f"{given}: ended with {code}: {said[-600:]}")
        complete = self.is_complete(given)
        if code == 0 and not complete:
            self.fail("half results", f"{given}: ended with 0, but the result is incomplete")
        return self.repeat(given, complete)

    def round(self, aims: list[Aim]) -> bool | None:
        """Kill the command once at each moment or step, let it finish, and compare its result with
        the expected one.
        """
        complete = False
        self.begin()
        given = " then ".join(f"{kind}:{value:g}" for kind, value in aims)
        for kind, value in aims:
            code, _, killed, said = self.give((kind, value))
            if not killed:
                complete = code == 0
                if code:
                    return self.fail(
                        "refused", f"{given}: ended with {code} before the kill: {said[-300:]}"
                    )
                break
            log = self.folder / "steps"
            done = log.stat().st_size / max(1, self.steps) if log.exists() else 0
            phase = "end" if done > 0.9 else "work" if done else "start"
            self.hits.update(["signals" if kind in SIGNALS else "kills", phase])
            if kind in SIGNALS and (len(said.splitlines()) > 1 or code not in ANSWERS):
                fact = f"{kind}:{value:g} must end with one line and a known exit code, got {code}"
                self.fail("tracebacks", f"{given}: {fact}: {said[-300:]!r}")
            if complete := self.is_complete(given, " killed,"):
                break
        return self.repeat(given, complete)

    def on_a_full_disk(self, part: float) -> None:
        """Run the command on a disk whose size is a fraction of the command's peak disk use."""
        run, verb = self.folder / "run", VERBS[self.name]
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        size = max(4096, int(self.most * part))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", run], check=True)
        try:
            code, _, _, said = self.give()
            one_line = said.count("calque: error: ") == 1 and "Traceback" not in said
            there, finished = units(contents(run), verb), units(self.expected, verb)
            half = [
                unit for unit, files in there.items() if difference(files, finished.get(unit, {}))
            ]
            if half or (code != 0 and not (code == 2 and one_line and len(there) < len(finished))):
                self.fail(
                    "half results",
                    f"a disk of {size:,} bytes: exit code {code}, half {half}: {said[-300:]}",
                )
        finally:
            subprocess.run(["umount", run], check=True)

    def fail(self, kind: str, said: str) -> bool:
        """Record a failure, and keep a copy of the folder."""
        self.failures.append((kind, said))
        kept = self.folder / f"failure-{len(self.failures)}"
        shutil.copytree(self.folder / "run", kept, symlinks=True, dirs_exist_ok=True)
        print(f"FAILED {self.name}: {kind}: {said} (kept in {kept})", flush=True)
        return False

    @property
    def count(self) -> int:
        return self.hits["kills"] + self.hits["signals"] + self.hits["faults"]


def table(sweeps: list[Sweep]) -> str:
    """Return a table of the kills and failures of each command."""
    rows: list[tuple[str, ...]] = [
        ("verb", "kills", "signals", "faults", "start, work, end", *COLUMNS)
    ]
    for sweep in sweeps:
        found, hits = Counter(kind for kind, _ in sweep.failures), sweep.hits
        phases = "/".join(str(hits[phase]) for phase in ("start", "work", "end"))
        counts = [str(found[each]) for each in COLUMNS]
        rows.append(
            (
                sweep.name,
                str(hits["kills"]),
                str(hits["signals"]),
                str(hits["faults"]),
                phases,
                *counts,
            )
        )
    return "\n".join(
        "  ".join(cell.ljust(31 if not n else 14) for n, cell in enumerate(row)) for row in rows
    )


def _aim(text: str) -> Aim:
    kind, _, value = text.partition(":")
    if kind not in ("moment", "step", *SIGNALS, *FAULTS):
        kinds = f"step|{'|'.join(FAULTS)}:COUNT, or moment|{'|'.join(SIGNALS)}:SECONDS"
        raise argparse.ArgumentTypeError(f"must be {kinds}, got {text}")
    return kind, float(value)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--verbs",
        default="",
        help=f"commands, separated by commas: {', '.join(VERBS)}; default: all",
    )
    parser.add_argument(
        "--kills", type=int, default=100, help="total number of kills and other signals"
    )
    parser.add_argument(
        "--faults", type=int, default=0, help="number of system calls that fail, instead of kills"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument(
        "--fresh", type=float, default=0.05, help="fraction of commands run in a new interpreter"
    )
    parser.add_argument(
        "--at", type=_aim, action="append", help="kill only at this point, e.g. step:17; repeatable"
    )
    parser.add_argument(
        "--full-disk",
        action="store_true",
        help="run on small disks instead of killing; needs permission to mount",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="folder for all files; default: temporary folder, kept on failure",
    )
    options = parser.parse_args(arguments)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="calque-kills-"))).resolve()
    library = None
    if options.faults or any(kind in FAULTS for kind, _ in options.at or []):
        library = compiled(folder)
        if library is None:
            print(
                "skipped: system calls can fail only on Linux with a C compiler (cc), which was "
                "not found"
            )
            return 0
        if options.fresh < 1 and os.environ.get("LD_PRELOAD") != str(
            library
        ):  # forks use the library of this process
            given = [*(sys.argv[1:] if arguments is None else arguments), "--folder", str(folder)]
            preloaded = {**os.environ, "LD_PRELOAD": str(library)}
            code = subprocess.run(
                [sys.executable, __file__, *given], env=preloaded, check=False
            ).returncode
            if not code and options.folder is None:
                shutil.rmtree(folder)
            return code
    names = [name.strip() for name in options.verbs.split(",") if name.strip()] or list(VERBS)
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    sys.path.insert(0, str(SOURCE))
    for module in LIBRARIES if options.fresh < 1 else ():
        importlib.import_module(module)
    shutil.rmtree(folder / "in", ignore_errors=True)
    golden.plant(folder / "in", SOURCE)
    (folder / "in" / "study.toml").write_text(_STUDY)
    (folder / "in" / "results.jsonl").write_text(_RESULTS)
    english = folder / "in" / "en.txt"
    lines = english.read_text(encoding="utf-8").splitlines()[:20] if english.exists() else []
    (folder / "in" / "often.txt").write_text(
        "".join(f"{line}\n" for line in lines * 25), encoding="utf-8"
    )
    rng, ready = random.Random(options.seed), []
    sweeps = [
        Sweep(name, folder / name.replace(" ", "-"), options.fresh, rng, library=library)
        for name in names
    ]
    for sweep in sweeps:
        if not sweep.usual():
            continue
        ready.append(sweep)
        calls = f", {sweep.calls} system calls" if library else ""
        print(f"{sweep.name}: {sweep.seconds:.1f} s, {sweep.steps} steps{calls}", flush=True)
        for part in (0.02, 0.3, 0.6, 0.9) if options.full_disk else ():
            sweep.on_a_full_disk(part)
    kinds, shown = ["moment", "step", *SIGNALS], 1
    total = max(1, options.faults) if library else options.kills
    while ready and not options.full_disk and sum(sweep.count for sweep in ready) < total:
        sweep = min(
            ready, key=lambda each: each.count * each.seconds
        )  # quick commands run more often
        if library:
            aims = options.at or [(rng.choice(list(FAULTS)), rng.randint(1, sweep.calls))]
            sweep.fault(*aims[0])
        else:
            chosen, most = rng.choices(kinds, k=rng.randint(1, 4)), 1.02 * sweep.seconds
            aims = [
                (kind, rng.randint(1, sweep.steps) if kind == "step" else rng.uniform(0, most))
                for kind in chosen
            ]
            sweep.round(options.at or aims)
        if options.at:
            break
        if sum(each.count for each in ready) >= 20 * shown:
            print(table(sweeps), flush=True)
            shown += 1
    failures = sum(len(sweep.failures) for sweep in sweeps)
    print(
        f"{table(sweeps)}\n{sum(sweep.count for sweep in sweeps)} kills, signals and faults, "
        f"{failures} failures"
    )
    if not failures and options.folder is None:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
