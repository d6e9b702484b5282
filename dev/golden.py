"""Record the output and files of every command, and compare two records.

    python dev/golden.py record before --source ../frozen/src --jobs 2
    python dev/golden.py compare before after                # exact
    python dev/golden.py compare before after --points 0.1   # within a tolerance, see `Tolerance`
    python dev/golden.py record some --only "align/*" "evaluate/ner"; python dev/golden.py compare before some

A record is a folder with `golden.json` and the files of each step. A step runs one or more commands on the bundled encoder and
text, or on data that this script generates. In a command, `@align/rotation/out` is a file from another step, which is run
first, and `@in/…` is a generated input file. A step `open/…` evaluates an encoder that another step saved.

Times, dates and hashes of code are ignored (`NOISE`, `TIMES`). `compare` prints differences in scores and files before
differences in wording, and exits with status 1 if there are any.

The script imports the libraries once, and runs every command in a forked process with one thread.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import re
import runpy
import shlex
import shutil
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

#: keys in JSON files whose values are times or hashes of source code
TIMES = ("seconds", "milliseconds", "modified", "code", "key")
NOISE = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?( UTC)?", "DATE"),
    (r"http://127\.0\.0\.1:\d+/", "http://HOST/"),
)
#: matches times in messages and on report pages, and hashes of result files, because result files
#: contain times
TIMES_IN_TEXT = re.compile(
    r"(?<![\w.])\d[\d.,]* ?(s|ms|seconds)\b|seconds</dt><dd>[^<]*|(\"|&#34;)seconds\2: (\{[^}]*\}|[\d.]+)"
    r"|(?<=^- )seconds: .*|\b[0-9a-f]{64}\b",
    re.MULTILINE,
)
#: matches the lines that progress bars write
BARS = re.compile(r"\d%\||/s\]|\[\d\d:\d\d")
# maximum length of a recorded file, in characters; longer files are compared by their hash
LARGEST = 300_000
PATIENCE = 300  # seconds after which a command counts as hanging

# -- steps -----------------------------------------------------------------------------------------
WORDS = {
    "<align>": "align @in/train.tsv --langs en de --encoder mini --towards en --out out",
    "<dict>": "align --dictionary @in/dict.tsv --langs en de --encoder mini --towards en --out out",
    "<texts>": "--text en=@in/en.txt de=@in/de.txt",
    "<pairs>": "--test @in/static.pairs.tsv --langs en de --pretokenized",
    "<static>": "--encoder en=@in/en.vec,de=@in/de.vec --towards en --out out",
    "<quick>": "--epochs 2 --seeds 1 --hidden 16 --out scores.jsonl",
    "<tune>": "--epochs 1 --seeds 1 --batch 16 --tune --out scores.jsonl",
    "<test>": "--test @in/test.tsv --langs en de",
}
STEPS = """
words/gibbs: words @in/train.tsv --langs en de --model gibbs --out links --tables tables
words/hmm: words @in/train.tsv --langs en de --model hmm --symmetrize grow-diag --posteriors --out links --tables tables
words/fast: words @in/train.tsv --langs en de --model fast-align --symmetrize union --extra @in/test.tsv --out links
words/use: words @in/test.tsv --langs en de --use @words/gibbs/tables --posteriors --out links
align/rotation: <align> --method rotation ; <align> --method rotation ; <align> --method rotation --overwrite --quiet
align/normalized: <align> --method normalized-rotation --layers -2,-1 --combine concat
align/sentences: <align> --method sentence-rotation --pooling mean --max-length 24
align/linear: <align> --method linear --layers 0,3,-1 --combine mean --links @words/gibbs/links
align/means: align --encoder mini --towards en --out out --method means --layers 2,-1 --combine mean <texts>
align/finetune: <align> --method finetune --epochs 1 --batch 8
align/contrastive: <align> --epochs 1 --option temperature=0.2 --learning-rate 0.0005 --checkpoint-every 3
align/several: align @in/train.tsv @in/spanish.tsv --langs en de --langs en es --encoder mini --towards en --method
  contrastive --epochs 0.5 --batch 16 --out out
align/static-text: align @in/static.pairs.tsv --langs en de --pretokenized --method rotation <static>
align/dictionary: <dict> <texts>
align/anchors: <dict> --method linear --anchors en=@anchors/mean/out de=@anchors/german/out --option refine=0 --option
  held_out=0
align/dict-layers: <dict> <texts> --method linear --layers 2,-1 --combine mean --option refine=2
align/identical: align --dictionary identical --langs en de --encoder mini --towards en <texts> --out out
align/static: align --dictionary @in/static.tsv --langs en de <static> --option normalise=unit
align/static-distributions: align --unsupervised --langs en de <static> --option restarts=2 --option frequent=150
  --option patience=5
align/released: align --released @in/maps --encoder mini --towards en --out out
align/elmo: align --dictionary @in/dict.tsv --langs en de --encoder en=@pretrain/elmo/out,de=@pretrain/elmo-de/out
  --towards en <texts> --layers 1,2 --combine concat --out out
align/record: copy @align/rotation/out out ; evaluate mini retrieval <test> --out before.jsonl ; evaluate out retrieval
  <test> --record ; evaluate out lexicon --test @in/dict.tsv --langs en de <texts> --record

anchors/mean: anchors @in/en.txt --lang en --encoder mini --out out
anchors/german: anchors @in/de.txt --lang de --encoder mini --out out --occurrences 4 --pretokenized

encode/mini: encode mini @in/en.txt --lang en --out vectors.safetensors ; encode mini @in/en.txt --lang en --out
  vectors.safetensors

pretrain/bert: pretrain en=@in/en.txt de=@in/de.txt --layers 2 --dim 32 --vocabulary 300 --length 32 --batch 8 --updates
  12 --checkpoint-every 5 --out out ; perplexity out en=@in/en.txt de=@in/de.txt --json
pretrain/elmo: pretrain en=@in/en.txt de=@in/de.txt --model elmo --dim 8 --hidden 16 --vocabulary 300 --length 16
  --batch 8 --updates 10 --held-out 10 --out out
pretrain/elmo-de: pretrain de=@in/de.txt --model elmo --dim 8 --hidden 16 --vocabulary 200 --length 16 --batch 8
  --updates 6 --out out
pretrain/senses: pretrain en=@in/en.txt de=@in/de.txt --model elmo --senses 3 --sense-option axes=4 --dim 8 --hidden 16
  --vocabulary 300 --length 16 --batch 8 --updates 10 --out out

senses/elmo: senses @pretrain/senses/out the --trained --text en=@in/en.txt de=@in/de.txt --limit 40 --json ; senses
  @pretrain/senses/out --text en=@in/en.txt de=@in/de.txt --trained --out numbers.txt
evaluate/retrieval: evaluate mini retrieval <test> --out scores.jsonl ; evaluate mini retrieval <test> --json --out
  scores.jsonl
evaluate/retrieval-links: evaluate mini retrieval <test> --links @words/use/links --train @in/train.tsv --train-links
  @words/gibbs/links --non-contextual --max-length 20 --json
evaluate/word-alignment: evaluate mini word-alignment --test @in/gold.tsv --langs en de --out scores.jsonl
evaluate/ner: evaluate mini ner --train en=@in/ner.tsv --test en=@in/ner.test.tsv de=@in/ner.de.tsv
  --test-limit 30 <quick>
evaluate/ner-linear: evaluate @align/rotation/out ner --train en=@in/ner.tsv --dev de=@in/ner.de.tsv --select target
  --head linear-crf --test de=@in/ner.de.tsv --ceiling de=@in/ner.de.tsv --rename LOC=PER --unknown miss --epochs 2
  --seeds 2 --json
evaluate/slots: evaluate mini slots --train en=@in/slots.tsv --test en=@in/slots.test.tsv de=@in/slots.de.tsv --format
  facebook --unknown miss <quick> ; evaluate mini slots --train en=@in/slots.tsv --test en=@in/slots.test.tsv
  <tune>
evaluate/pos: evaluate mini pos --train en=@in/pos.tsv --test en=@in/pos.test.tsv de=@in/pos.de.tsv --column 2 --dropout
  0.1 --option patience=1 --option per_epoch=50 --learning-rate 0.01 <quick> ; evaluate mini pos --train en=@in/tree.conllu --test
  en=@in/tree.test.conllu <quick>
evaluate/projection: evaluate mini pos --train en=@in/pos.tsv --test de=@in/pos.de.tsv --project @in/train.tsv --langs
  en de --model hmm --symmetrize intersection --seed 1 --head linear <quick>
evaluate/nli: evaluate mini nli --train en=@in/nli.tsv --test en=@in/nli.test.tsv de=@in/nli.de.tsv <quick>
evaluate/nli-esim: evaluate mini nli --train en=@in/nli.tsv --test en=@in/nli.test.tsv de=@in/nli.de.tsv <quick> --head esim
evaluate/sentiment: evaluate mini sentiment --train en=@in/mood.jsonl --test en=@in/mood.test.tsv de=@in/mood.de.tsv
  --batch 16 <quick>
evaluate/parsing: evaluate mini parsing --train en=@in/tree.conllu --test en=@in/tree.test.conllu de=@in/tree.de.conllu
  --upos 4 <quick>
evaluate/lexicon: evaluate mini lexicon --test @in/dict.tsv --langs en de <texts> --out scores.jsonl ; evaluate mini
  lexicon --test @in/dict.tsv --langs en de <texts> --option entries=[10,40] --lower --similarity cosine --limit 60 --json

neighbours/aligned: neighbours --encoder mini --aligned @align/contrastive/out --lang1 en --sentence1 "I sat on the bank
  ." --word1 bank --lang2 de --sentence2 "Ich saß auf der Bank ." --sentence2 "Die Bank ist geschlossen ."
  --pretokenized --json
analyze/all: analyze mini aligned=@align/rotation/out <test> --train @in/train.tsv --upos en=@in/pos.test.tsv
  de=@in/pos.de.tsv --bootstrap 50 --out findings.jsonl

study/parallel: study @in/parallel.toml --out out --workers 2 ; study @in/parallel.toml --out out
report/html: report @study/parallel/out @analyze/all/findings.jsonl --out report.html --plots plots
report/files: report @study/parallel/out @evaluate/lexicon/scores.jsonl --out report.html --base base ; report
  @evaluate/ner/scores.jsonl --out scores.html
report/demo: report @demo/de/out --out report.html --plots plots
demo/de: demo --languages de --out out --seed 1

clcr/train: align --method clcr --encoder en=mini,de=mini @in/train.tsv --langs en de --towards en --option
  epochs=[1.0,0.5,0.5,2.0,2.0] --option compare=true --out out
clcr/pivots: words @in/test.tsv --encoder @clcr/train/out --langs en de --out links
clcr/keypoints: encode @clcr/train/out @in/de.txt --lang de --out points ; encode @clcr/train/out
  @in/en.txt --lang en --load steps=transform,extract --out english
python/names: python "import calque; print(calque.__all__)"
python/use: python "import calque, sys; e = calque.load_encoder('mini'); print(repr(e), e.dim, e.fingerprint)"
"""
HELP = (
    "words align anchors neighbours evaluate analyze study encode pretrain perplexity senses demo "
    "report explore"
)
# steps of `align` whose saved encoder is opened and evaluated
OPENED = (
    "rotation normalized sentences linear finetune contrastive several dictionary anchors "
    "dict-layers identical static-text static static-distributions released elmo"
)
STUDIES = {
    "parallel": """
seeds = 1
runs = 2
data = "."
encoders = ["mini"]
[methods.base]
[methods.rotation]
layers = [-2, -1]
combine = "mean"
[methods.contrastive]
epochs = 0.5
batch = 16
[supervision.parallel]
de = "train.tsv"
es = "spanish.tsv"
limit = 60
[tasks.retrieval]
train = { de = "train.tsv", es = "spanish.tsv" }
test = { de = "test.tsv", es = "test.es.tsv" }
limit = 40
[tasks.pos]
train = ["en=pos.tsv"]
test = ["en=pos.test.tsv", "de=pos.de.tsv"]
epochs = 1
hidden = 16
""",
}


def steps() -> dict[str, list[str]]:
    """Return the commands of each step, by step name."""
    found = {}
    for line in STEPS.replace("\n  ", " ").strip().splitlines():
        if line:
            name, _, commands = line.partition(": ")
            for short, full in WORDS.items():
                commands = commands.replace(short, full)
            found[name] = [command.strip() for command in commands.split(" ; ")]
    for name in OPENED.split():
        static = name.startswith("static")
        found[f"open/{name}"] = [
            f"evaluate @align/{name}/out retrieval {WORDS['<pairs>' if static else '<test>']} "
            "--json"
        ]
    found |= {f"help/{verb}": [f"{verb} --help"] for verb in HELP.split()} | {
        "help/calque": ["--help", "--version", "", "words"]
    }
    return found


def needed(commands: list[str], known: dict[str, list[str]]) -> list[str]:
    """Return the names of the steps whose files the commands read."""
    named = re.findall(r"@(\w+/[\w-]+)", " ".join(commands))
    return list(dict.fromkeys(name for name in named if name in known))


# -- inputs ----------------------------------------------------------------------------------------
def plant(folder: Path, source: Path) -> None:
    """Write the inputs: parts of the sample text, with labels that depend on the spelling so that
    models can learn them.
    """
    import numpy as np

    folder.mkdir(parents=True)
    sample = next(source.rglob("sample/en.txt")).parent
    text = {
        lang: (sample / f"{lang}.txt").read_text(encoding="utf-8").splitlines()
        for lang in ("en", "de", "es")
    }
    cut = {
        lang: [re.findall(r"\w+|[^\w\s]", line) for line in lines] for lang, lines in text.items()
    }
    train, test = [n for n in range(len(text["en"])) if n % 3 != 1][:120], list(range(1, 180, 3))
    rng = np.random.default_rng(0)

    def write(name: str, lines: list[str]) -> None:
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    for name, other, rows in (
        ("train", "de", train),
        ("test", "de", test),
        ("spanish", "es", train[:80]),
        ("test.es", "es", test),
    ):
        write(f"{name}.tsv", [f"{' '.join(cut['en'][n])}\t{' '.join(cut[other][n])}" for n in rows])
    for lang in text:
        write(f"{lang}.txt", [text[lang][n] for n in train])
    write("long.txt", text["en"])  # used by kill_sweep.py
    shutil.copy(sample / "gold.en-de.tsv", folder / "gold.tsv")
    write("dict.tsv", _dictionary([(cut["en"][n], cut["de"][n]) for n in train]))
    # Vectors of 300 words in two languages; the German vectors are rotated English vectors with
    # added noise.
    vectors, turn = rng.normal(size=(300, 24)), np.linalg.qr(rng.normal(size=(24, 24)))[0]
    for lang, values in (
        ("en", vectors),
        ("de", vectors @ turn + 0.1 * rng.normal(size=vectors.shape)),
    ):
        words = [f"w{n}" if n < 40 else f"{lang}{n}" for n in range(300)]
        write(
            f"{lang}.vec",
            [
                "300 24",
                *(
                    f"{w} {' '.join(f'{x:.4f}' for x in row)}"
                    for w, row in zip(words, values, strict=True)
                ),
            ],
        )
    drawn = rng.integers(40, 300, (80, 6))
    write(
        "static.pairs.tsv",
        [f"{' '.join(f'en{n}' for n in row)}\t{' '.join(f'de{n}' for n in row)}" for row in drawn],
    )
    write("static.tsv", [f"en{n}\tde{n}" for n in range(40, 160)])
    (folder / "maps").mkdir()
    for lang in ("en", "de"):
        map_ = np.linalg.qr(rng.normal(size=(128, 128)))[0]
        (folder / "maps" / f"{lang}_best_mapping.pth").write_bytes(pickle.dumps(map_))
    for suffix, lang, rows in (("", "en", train), (".test", "en", test), (".de", "de", test)):
        _label([cut[lang][n] for n in rows], suffix, lang, write)
    for name, study in STUDIES.items():
        write(f"{name}.toml", [study])


def _dictionary(pairs: list[tuple[list[str], list[str]]]) -> list[str]:
    """Return dictionary entries that pair each word with its best translation by the Dice
    coefficient.
    """
    counts: list[Counter] = [Counter(), Counter(), Counter()]
    for pair in pairs:
        a, b = (sorted({word for word in side if word[0].isalpha()}) for side in pair)
        for count, seen in zip(counts, (a, b, [(x, y) for x in a for y in b]), strict=True):
            count.update(seen)
    best: dict[str, tuple[float, str]] = {}
    for (a, b), both in sorted(counts[2].items()):
        if both > 1:
            best[a] = max(best.get(a, (0.0, "")), (2 * both / (counts[0][a] + counts[1][b]), b))
    return [f"{a}\t{b}" for a, (_, b) in sorted(best.items())]


def _label(sentences: list[list[str]], suffix: str, lang: str, write: Any) -> None:
    """Write the sentences with labels for every task, for example to `ner.tsv`, `ner.test.tsv` or
    `ner.de.tsv`.
    """
    upos = [[_part_of_speech(word) for word in words] for words in sentences]
    names = [
        [
            "O" if k == 0 or not w[0].isupper() else "B-PER" if len(w) % 2 else "B-LOC"
            for k, w in enumerate(words)
        ]
        for words in sentences
    ]
    for name, tags in (("ner", names), ("pos", upos)):
        write(
            f"{name}{suffix}.tsv",
            [
                line
                for words, own in zip(sentences, tags, strict=True)
                for line in (*map("\t".join, zip(words, own, strict=True)), "")
            ],
        )
    write(
        f"tree{suffix}.conllu",
        [
            line
            for words, own in zip(sentences, upos, strict=True)
            for line in (
                *(
                    f"{k}\t{w}\t_\t{t}\t_\t_\t{k - 1}\t{'root' if k == 1 else t.lower()}\t_\t_"
                    for k, (w, t) in enumerate(zip(words, own, strict=True), 1)
                ),
                "",
            )
        ],
    )
    slots, pairs, moods = [], ["premise\thypothesis\tlabel"], []
    for n, words in enumerate(sentences):
        line, last = " ".join(words), words[-2]
        start = line.rindex(last)
        slots.append(
            f"{('ask', 'tell')[len(words) % 2]}\t{start}:{start + len(last)}:last\t{line}\t{lang}_{lang.upper()}"
        )
        other, label = (
            (words[: len(words) // 2], "entailment"),
            (sentences[n - 1], "neutral"),
            (["not", *words], "contradiction"),
        )[n % 3]
        pairs.append(f"{line}\t{' '.join(other)}\t{label}")
        mood = ("bad", "good")["e" in words[0]]
        moods.append(json.dumps({"text": line, "label": mood}) if not suffix else f"{mood}\t{line}")
    write(f"slots{suffix}.tsv", slots)
    write(f"nli{suffix}.tsv", pairs)
    write(f"mood{suffix}.{'tsv' if suffix else 'jsonl'}", moods)


def _part_of_speech(word: str) -> str:
    if not word[0].isalpha():
        return "PUNCT"
    return "PROPN" if word[0].isupper() else "VERB" if word.endswith(("ed", "s", "t")) else "NOUN"


# -- running ---------------------------------------------------------------------------------------
def give(
    arguments: list[str],
    out: Path,
    err: Path,
    source: Path,
    first: Callable[[], object] = lambda: None,
) -> int:
    """Fork a process that calls `first` and then runs calque, or Python code after the argument
    `python`; return its id.
    """
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.path[0] = str(source)
        sys.argv = ["calque", *arguments]
        signal.alarm(PATIENCE)
        first()
        if arguments[:1] == ["python"]:
            exec(arguments[1], {"__name__": "__main__"})
        else:
            runpy.run_module("calque", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def perform(name: str, commands: list[str], folder: Path, source: Path) -> dict[str, Any]:
    """Run a step in its own folder, and return its commands, exit codes, output and files."""
    place = folder / "steps" / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    os.chdir(place)
    out, err = (folder / "said" / f"{name.replace('/', '-')}.{stream}" for stream in ("out", "err"))
    out.parent.mkdir(exist_ok=True)
    for path in (out, err):
        path.write_text("")
    codes = []
    for command in commands:
        words = [re.sub(r"(^|=)@", r"\1../../", word) for word in shlex.split(command)]
        if words[:1] == ["copy"]:
            shutil.copytree(words[1], words[2])
        else:
            codes.append(ended(give(words, out, err, source)))
    shown = Shown(folder, source)
    return {
        "commands": commands,
        "codes": codes,
        "out": shown.lines(out.read_text()),
        "err": shown.lines(err.read_text()),
        "files": shown.files(place),
    }


# -- record of a step ------------------------------------------------------------------------------
class Shown:
    """Output and files of a step, with paths, times and hashes of code removed."""

    def __init__(self, folder: Path, source: Path):
        self.places = {f"{folder}/steps/": "../../", str(folder): "FOLDER", str(source): "SOURCE"}
        self.keys: dict[str, str] = {}

    def text(self, text: str) -> str:
        for place, name in {**self.places, **self.keys}.items():
            text = text.replace(place, name)
        for pattern, name in NOISE:
            text = re.sub(pattern, name, text)
        return text

    def lines(self, text: str) -> list[str]:
        shown = (line.split("\r")[-1] for line in text.split("\n"))
        return [
            TIMES_IN_TEXT.sub("TIME", self.text(line))
            for line in shown
            if line.strip() and not BARS.search(line)
        ]

    def files(self, place: Path) -> dict[str, Any]:
        """Return the contents of files by name; hashes in the names of study steps are replaced by
        numbers.
        """
        done = sorted(
            place.rglob("done.json"),
            key=lambda path: (path.parent.name.split("-")[0], self._label(path)),
        )
        kinds: Counter = Counter()
        for path in done:
            kind, _, key = path.parent.name.rpartition("-")
            kinds[kind] += 1
            self.keys[key] = f"{kinds[kind]:03}"
        every = [path for path in place.rglob("*") if path.is_file() or not any(path.iterdir())]
        return dict(
            sorted(
                (self.text(path.relative_to(place).as_posix()), self.content(path))
                for path in every
            )
        )

    def _label(self, path: Path) -> str:
        about = json.loads(path.read_text())
        return re.sub(
            r"-[0-9a-f]{20}",
            "",
            json.dumps([about[name] for name in sorted(about) if name not in ("code", "key")]),
        )

    def content(self, path: Path) -> Any:
        if path.is_dir():
            return {"folder": "empty"}
        data = path.read_bytes()
        if path.suffix == ".safetensors":
            return self.tensors(data)
        try:
            text = self.text(data.decode())
            if path.suffix in (".html", ".md"):
                text = TIMES_IN_TEXT.sub("TIME", text)
            if path.suffix == ".html":
                bare = re.sub(r"(?s)<(script|style).*?</\1>|<[^>]*>", "\n", text)
                return {"text": [line.strip() for line in bare.splitlines() if line.strip()]}
            if len(text) > LARGEST:
                return {"sha256": _hash(text.encode()), "characters": len(text)}
            if path.suffix == ".json":
                return {"json": timeless(json.loads(text))}
            if path.suffix == ".jsonl":
                return {"jsonl": [timeless(json.loads(line)) for line in text.splitlines()]}
            return {"text": text.splitlines()}
        except ValueError:
            return {"sha256": _hash(data), "bytes": len(data)}

    def tensors(self, data: bytes) -> dict[str, Any]:
        (size,) = struct.unpack("<Q", data[:8])
        head, body = json.loads(data[8 : 8 + size]), data[8 + size :]
        about = {name: self.text(value) for name, value in head.pop("__metadata__", {}).items()}
        return {"about": about} | {
            f"tensor {name}": f"{each['dtype']} {each['shape']} {_hash(body[slice(*each['data_offsets'])])}"
            for name, each in head.items()
        }


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: None if key in TIMES else timeless(inner) for key, inner in value.items()}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


# -- differences -----------------------------------------------------------------------------------
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?")


class Tolerance:
    """Allowed differences between two records.

    Args:
        points: maximum difference between scores, in percentage points. Fractions may differ by
            `points` / 100, and numbers above 1 by this fraction of their value. If `points` is 0,
            all values must be equal.
        tensors: maximum difference relative to the largest entry of a tensor; ignored if `points`
            is 0.
    """

    def __init__(self, points: float, folders: Sequence[Path], tensors: float = 1e-5):
        self.points, self.folders, self.tensors = points, folders, tensors

    def numbers(self, x: float, y: float) -> bool:
        return x == y or abs(x - y) <= self.points / 100 * max(1.0, abs(x), abs(y))

    def lines(self, x: str, y: str) -> bool:
        """Return whether two lines differ only in numbers, and by at most `points`."""
        x, y = (re.sub(r'fingerprint"?: "\w+"', "", line) for line in (x, y))
        if NUMBER.sub("#", x) != NUMBER.sub("#", y):
            return False
        pairs = zip(
            *([float(n.replace(",", "")) for n in NUMBER.findall(line)] for line in (x, y)),
            strict=True,
        )
        return all(abs(a - b) <= self.points * max(1.0, abs(a) / 100) * 1.0001 for a, b in pairs)

    def files(self, step: str, name: str, tensor: str) -> bool:
        """Return whether a tensor of a file differs by at most `tensors` between the two
        records.
        """
        from safetensors import safe_open

        paths = [folder / "steps" / step / name for folder in self.folders]
        if not self.points or not all(path.is_file() for path in paths):
            return False
        x, y = (safe_open(path, "pt").get_tensor(tensor).double() for path in paths)
        return x.shape == y.shape and bool((x - y).abs().max() <= self.tensors * x.abs().max())

    def equal(self, step: str, path: str, x: Any, y: Any) -> bool:
        if x == y and type(x) is type(y):
            return True
        if self.points and path.endswith(
            ("fingerprint", "› command")
        ):  # ignore hashes of weights, and command lines
            return True
        if not self.points or isinstance(x, bool) or isinstance(y, bool):
            return False
        if isinstance(x, (int, float)) and isinstance(y, (int, float)):
            return self.numbers(x, y)
        if found := re.match(r"files › (.*) › tensor (.*)$", path):
            return isinstance(x, str) and isinstance(y, str) and self.files(step, *found.groups())
        if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
            return all(map(self.lines, x, y))
        return False


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of a record with its path of keys; lists of text lines are not divided."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path} › {key}" if path else str(key))
    elif (
        isinstance(value, list)
        and value
        and path.rpartition(" › ")[2] not in ("out", "err", "text", "commands")
    ):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{number}]")
    else:
        yield path, value


def unordered(value: Any) -> Any:
    """Sort the content of a report, because its runs are ordered by folder names that contain
    hashes of code.
    """
    if isinstance(value, dict):
        return {key: unordered(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted(map(unordered, value), key=lambda inner: json.dumps(inner, sort_keys=True))
    return re.sub(r"-[0-9a-f]{20}\b", "-KEY", value) if isinstance(value, str) else value


def differences(
    step: str, old: dict[str, Any], new: dict[str, Any], allowed: Tolerance
) -> tuple[list[str], list[str]]:
    """Return a step's differences in scores and files, and its differences in wording."""
    scores, wording = [], []
    if new["commands"][0].startswith("report ") and old.get("files"):
        old, new = unordered(old), unordered(new)
    a, b = dict(leaves(old)), dict(leaves(new))
    prose = re.compile(r"^(out|err)$|\.(md|html) › text$")
    for path in dict.fromkeys([*a, *b]):
        x, y = a.get(path, "nothing"), b.get(path, "nothing")
        if path in a and path in b and allowed.equal(step, path, x, y):
            continue
        if isinstance(x, list) and isinstance(y, list):
            lost, come = (
                [line for line in x if line not in y],
                [line for line in y if line not in x],
            )
            said = "\n      ".join(
                [path, *(f"-{line[:300]}" for line in lost), *(f"+{line[:300]}" for line in come)]
            )
            failed = 2 in new["codes"] or "--help" in new["commands"][0]
            words = prose.search(path) and (
                failed or NUMBER.findall("\n".join(lost)) == NUMBER.findall("\n".join(come))
            )
        else:
            said, words = f"{path}: {x!r:.300} → {y!r:.300}", prose.search(path)
        (wording if words else scores).append(said)
    return scores, wording


def compare(old: dict[str, Any], new: dict[str, Any], only: list[str], allowed: Tolerance) -> int:
    """Print the differences between two records, and return the number of differences."""
    both = [name for name in old["steps"] if name in new["steps"]]
    print(
        f"{len(both)} steps in both records, {len(old['steps']) - len(both)} only in the old record"
    )
    scores = [
        f"{name}: only in the new record" for name in new["steps"] if name not in old["steps"]
    ]
    wording: list[str] = []
    for name in both:
        if not only or any(fnmatch(name, pattern) for pattern in only):
            found = differences(name, old["steps"][name], new["steps"][name], allowed)
            for section, lines in zip((scores, wording), found, strict=True):
                section += [f"{name}: {said}" for said in lines]
    for title, section in (("scores and files", scores), ("wording", wording)):
        print(f"-- {title}: {len(section)} differences")
        print("".join(f"   {said}\n" for said in section), end="")
    return len(scores) + len(wording)


# -- commands --------------------------------------------------------------------------------------
def run(wanted: dict[str, list[str]], folder: Path, source: Path, jobs: int) -> dict[str, Any]:
    """Run up to `jobs` steps in parallel, each after the steps whose files it reads, and return the
    record of each step.
    """
    waiting, running, done = dict(wanted), {}, {}
    while waiting or running:
        ready = [
            name
            for name, commands in waiting.items()
            if all(n in done for n in needed(commands, wanted))
        ]
        for name in ready[: jobs - len(running)]:
            commands, started = waiting.pop(name), time.perf_counter()
            sys.stdout.flush()
            if not (pid := os.fork()):
                try:
                    record = perform(name, commands, folder, source)
                    (folder / "said" / f"{name.replace('/', '-')}.json").write_text(
                        json.dumps(record)
                    )
                except BaseException:
                    traceback.print_exc()
                os._exit(0)
            running[pid] = (name, started)
        pid, _ = os.wait()
        name, started = running.pop(pid)
        done[name] = json.loads((folder / "said" / f"{name.replace('/', '-')}.json").read_text())
        print(
            f"{name}: {time.perf_counter() - started:.1f} s, "
            f"{' '.join(map(str, done[name]['codes']))}",
            flush=True,
        )
    return {name: done[name] for name in wanted}


def record(folder: Path, only: list[str], source: Path, jobs: int) -> None:
    """Record the requested steps, and the steps whose files they read."""
    began, known = time.perf_counter(), steps()
    wanted = {name for name in known if not only or any(fnmatch(name, pattern) for pattern in only)}
    if not wanted:
        sys.exit(
            f"--only must match a step, got {' or '.join(only)}; the steps are {', '.join(known)}"
        )
    while more := {n for name in wanted for n in needed(known[name], known)} - wanted:
        wanted |= more
    shutil.rmtree(folder, ignore_errors=True)
    plant(folder / "steps" / "in", source)
    found = run({n: c for n, c in known.items() if n in wanted}, folder, source, jobs)
    whole = {"only": only or ["*"], "steps": found}
    (folder / "golden.json").write_text(
        json.dumps(whole, indent=1, ensure_ascii=False), encoding="utf-8"
    )
    print(f"{len(found)} steps in {time.perf_counter() - began:.0f} s: {folder / 'golden.json'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("record", help="run the steps and record their results")
    one.add_argument("folder", type=Path)
    one.add_argument(
        "--source",
        type=Path,
        default=Path(__file__).resolve().parents[1] / "src",
        help="folder that contains the package calque",
    )
    one.add_argument("--jobs", type=int, default=1, help="number of steps to run in parallel")
    two = verbs.add_parser("compare", help="print the differences between two records")
    two.add_argument("records", type=Path, nargs=2)
    two.add_argument(
        "--points",
        type=float,
        default=0.0,
        help="tolerance for scores in percentage points; default: 0",
    )
    for each in (one, two):
        each.add_argument(
            "--only",
            nargs="+",
            default=[],
            metavar="PATTERN",
            help="step name patterns, e.g. 'align/*'",
        )
    options = parser.parse_args()
    if options.verb == "compare":
        old, new = (
            json.loads((path / "golden.json").read_text(encoding="utf-8"))
            for path in options.records
        )
        allowed = Tolerance(options.points, options.records)
        return 1 if compare(old, new, options.only, allowed) else 0
    if (
        os.environ.get("PYTHONHASHSEED") != "0"
    ):  # ties between equally frequent words depend on the order of sets
        os.execve(
            sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    source, folder = options.source.resolve(), options.folder.resolve()
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": str(source),
        "COLUMNS": "120",
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
    }
    for library in (
        "numba",
        "torch",
        "tokenizers",
        "transformers.models.bert.modeling_bert",
    ):
        __import__(library)
    record(folder, options.only, source, options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
