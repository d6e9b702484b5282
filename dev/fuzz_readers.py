"""Pass corrupt files to every reader, and odd arguments to every command. Each must return a finite
result or raise a `CalqueError` with a one-line message.

    python dev/fuzz_readers.py                                   # 1,000 inputs for each reader
    python dev/fuzz_readers.py --readers tmx --first 417 --inputs 1

An input is a small valid file changed by one to three random mutations: changed bytes, values of
other types in JSON, and other data types or shapes of tensors. An input of the reader `commands` is
a command with an odd value or a missing argument; the files that the command reads must stay
unchanged. A reader also fails if it crashes or uses more than 5 seconds (a command: 20) or 2 GB of
memory.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))

SECONDS, BYTES, NAN = (
    5,
    2 << 30,
    b"\0\0\xc0\x7f",
)  # NAN is NaN in float32, and the upper half of NaN in float64
PAIRS = [
    ("The cat sees a house.", "Die Katze sieht ein Haus."),
    ("It's 3.5 km — or 2 miles?", "Es sind 3,5 km – oder?"),
    ("naïve façade", "naive Fassade"),
    ("日本 and 中国", "Japan und China"),
] * 3


# -- mutations -------------------------------------------------------------------------------------
STRANGE = (
    b"\xff",
    b"\xed\xa0\x80",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\r",
    b"\x1a",
    b"\t",
    b"\n\n\n",
    b'"',
    b"\\",
    b"<",
    b"{",
    b"]",
    b"=",
    b"&#0;",
    b"# ",
    b"-1",
    b"NaN",
    b"null",
    b"../",
    b" ||| ",
    b"%s{0}",
    b"[[x]]\n" * 3000,
    b'{"a":' * 3000,
    b"<seg>" * 3000,
    b"a" * 300_000,
    b"\t" * 10_000,
    b"9" * 5000,
    b"1" + b"0" * 30,
    b"-0",
    b"1e400",
    b"4294967296",
)
VALUES = (
    None,
    -1,
    0,
    10**30,
    float("nan"),
    "",
    "nan",
    "en",
    "..",
    "/tmp",
    "this:X",
    "\ud800",
    [],
    {},
    [1, "a"],
    {"a": 1},
    "static",
    True,
    False,
    1.5,
    -0.0,
    1e300,
    -(10**20),
    "1",
    [None],
    [[]],
    [[1]],
    {"": None},
    ["en", "en"],
    {"en": {}},
    [1, 2, 3, 4],
)


def bytes_changed(rng: random.Random, data: bytes) -> bytes:
    """Flip a bit; truncate the data; repeat, remove, copy or overwrite a part; insert unusual
    bytes; or change the encoding.
    """
    a = rng.randrange(len(data) + 1)
    b = min(len(data), a + rng.randint(1, 400))
    piece, place = data[a:b], rng.randrange(len(data) + 1)
    if rng.random() < 0.05:
        with contextlib.suppress(UnicodeError):
            return data.decode().encode(
                rng.choice(("utf-16", "utf-32", "latin-1", "utf-8-sig", "utf-7")), "ignore"
            )
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    number = rng.choice(found).span() if found else (a, b)
    return rng.choice(
        (
            lambda: (
                data[:a] + bytes([data[a] ^ 1 << rng.randrange(8)]) + data[a + 1 :]
                if a < len(data)
                else data
            ),
            lambda: data[:a],
            lambda: data[a:],
            lambda: data[:b] + piece * rng.choice((1, 2, 50, 2000)) + data[b:],
            lambda: data[:a] + data[b:],
            lambda: data[:place] + piece + data[place:],
            lambda: data[:a] + bytes(rng.choice((1, b - a, 5000))) + data[b:],
            lambda: data[:a] + rng.randbytes(b - a) + data[b:],
            lambda: data[:place] + rng.choice(STRANGE) + data[place:],
            lambda: data[:place] + rng.choice(STRANGE) + data[place:],
            lambda: data[: number[0]] + rng.choice(STRANGE) + data[number[1] :],
            lambda: _lines(rng, data),
            lambda: data.replace(b"\n", b"\r"),
            lambda: data[:place] + b"abc" + data[place:],
            lambda: data + rng.randbytes(70),
            lambda: data[: place & ~3] + NAN + data[place & ~3 :][4:],
            lambda: data[: place & ~3] + NAN + data[place & ~3 :][4:],
        )
    )()


def _lines(rng: random.Random, data: bytes) -> bytes:
    """Reverse, remove, add or empty columns in a random line."""
    lines = data.split(b"\n")
    k, separator = rng.randrange(len(lines)), rng.choice((b"\t", b" ", b",", b":", b"|||"))
    cells = lines[k].split(separator)
    cells = rng.choice((cells[::-1], cells[1:], [*cells, cells[0]], [b"", *cells[1:]]))
    return b"\n".join([*lines[:k], separator.join(cells), *lines[k + 1 :]])


def json_changed(rng: random.Random, value: Any) -> Any:
    """Replace or remove a random value in a JSON document."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return rng.choice(VALUES)
    key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if rng.random() < 0.2:
        value.pop(key)
    else:
        value[key] = json_changed(rng, value[key])
    return value


def tensors_changed(rng: random.Random, data: bytes) -> bytes:
    """Change the data type, the shape or the values of a random tensor, rename or remove it, or
    exchange two tensors.
    """
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import load, save

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with safe_open(file.name, framework="numpy") as opened:
            metadata = opened.metadata()
    arrays = load(data)
    name, other = rng.choice(list(arrays)), rng.choice(list(arrays))
    array = arrays.pop(name)
    kinds = (np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_)
    odd = np.array([np.nan, np.inf, -1, 2**40, 1e30])
    changed = rng.choice(
        (
            lambda: array.astype(rng.choice(kinds)),
            lambda: array.T,
            lambda: array.reshape(-1),
            lambda: array[None],
            lambda: array[:-1],
            lambda: array[..., :-1],
            lambda: array[:0],
            lambda: np.concatenate([array, array]),
            lambda: np.zeros((), array.dtype),
            lambda: np.full_like(array, rng.choice(odd)),
            lambda: -array,
            lambda: arrays.get(other, array),
            lambda: None,
        )
    )()
    if changed is not None:
        arrays[rng.choice((name, name, name, name, f"{name}.x"))] = np.ascontiguousarray(changed)
    saved = save(arrays, metadata)  # the library writes the metadata in random order
    length = int.from_bytes(saved[:8], "little")
    header = json.loads(saved[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + saved[8 + length :]


def damaged(rng: random.Random, name: str, data: bytes) -> bytes:
    """Return the data of a file after one to three mutations that suit the file's suffix."""
    kind = Path(name).suffix
    for _ in range(rng.choice((1, 1, 2, 3))):
        with contextlib.suppress(
            Exception
        ):  # after the first mutation, the file may no longer be valid JSON or gzip
            if kind == ".gz" and rng.random() < 0.5:
                data = gzip.compress(bytes_changed(rng, gzip.decompress(data)), mtime=0)
                continue
            if kind in (".json", ".jsonl") and rng.random() < 0.7:
                first, end, rest = data.partition(b"\n") if kind == ".jsonl" else (data, b"", b"")
                data = json.dumps(json_changed(rng, json.loads(first))).encode() + end + rest
                continue
            if kind == ".safetensors" and rng.random() < 0.4:
                data = tensors_changed(rng, data)
                continue
            if kind == ".safetensors" and rng.random() < 0.7:
                (length,) = struct.unpack("<Q", data[:8])
                header = json.loads(data[8 : 8 + length])
                about = header.get("__metadata__", {})
                inner = [key for key, text in about.items() if text[:1] in "[{"]
                if inner and rng.random() < 0.6:
                    about[inner[0]] = json.dumps(json_changed(rng, json.loads(about[inner[0]])))
                else:
                    header = json_changed(rng, header)
                text = json.dumps(header).encode()
                data = struct.pack("<Q", len(text)) + text + data[8 + length :]
                continue
        data = bytes_changed(rng, data)
    return data


# -- readers ---------------------------------------------------------------------------------------
class Reader(NamedTuple):
    files: (
        dict[str, str] | Callable[[Path], object]
    )  # contents of the valid files, by name, or a function that writes the valid files to a folder
    read: Callable[
        [Path, Any], object
    ]  # function that reads the files in a folder with random settings
    only: str = "*"  # pattern for the names of the files to corrupt; "" for none
    seconds: int = SECONDS  # CPU time for one input


TMX = """<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-GB"><seg>The <bpt i="1">b</bpt>cat</seg></tuv><tuv xml:lang="de"><seg>Die Katze</seg></tuv></tu>
<tu><tuv lang="EN"><seg>A house &amp;</seg></tuv><tuv lang="DE"><seg>Ein Haus &#38;</seg></tuv></tu></body></tmx>
"""
CONLLU = """# sent_id = 1
1 The the DET DT _ 2 det _ _
2-3 x _ _ _ _ _ _ _ _
2 cats cat NOUN NNS _ 3 nsubj _ _
3 see see VERB VBP _ 0 root _ _

""".replace(" ", "\t")
TOKENS = {
    "tokens": ["will", "rain"],
    "tokenSpans": [{"start": 0, "length": 4}, {"start": 5, "length": 4}],
}
QAS = [
    {"id": "1", "question": "Where is it?", "answers": [{"text": "in Rome", "answer_start": 16}]}
]
SQUAD = {
    "data": [{"title": "x", "paragraphs": [{"context": "Ann's house is, in Rome.", "qas": QAS}]}]
}
VEC = "3 3\nthe 1 0.5 0\ncat 0 -1 0.5\nhouse 1 1 1\n"


def readers() -> dict[str, Reader]:
    """Return all readers, by name."""
    import numpy as np

    from calque import corpora
    from calque.anchors import Anchors, open_anchors, save_anchors
    from calque.anchors.files import read_avg_embeds, write_avg_embeds
    from calque.anchors.sums import AnchorSums
    from calque.encoders import load_encoder
    from calque.encoders.anchors import pass_of
    from calque.encoders.mapped import MappedEncoder
    from calque.encoders.per_language import PerLanguage
    from calque.encoders.random_vectors import RandomVectors
    from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
    from calque.errors import CalqueError
    from calque.explore.sources import find_encoders
    from calque.input_texts import Words
    from calque.maps import KINDS
    from calque.maps.released import read_released
    from calque.pairs import WordPairs
    from calque.report import report
    from calque.runs import card, evaluate
    from calque.runs import folder as runs_folder
    from calque.senses.elmo import ElmoEncoder, ElmoNetwork, elmo_options
    from calque.text import ParallelCorpus, Sentences
    from calque.training.loop import Schedule
    from calque.vectors import Embeddings
    from calque.wordalign import WordAligner
    from families import make_family
    from fitted_line import FittedLine, line_loop
    from report_results import study

    def parallel(path: Path, on_error: Any, **_: Any) -> object:
        corpora.read_parallel(path, langs=("en", "de"), on_error=on_error)
        return Words(pretokenized=True).read(str(path), ("en", "de")).target.flat()

    def dictionary(path: Path, on_error: Any, **_: Any) -> object:
        return corpora.read_dictionary(path, langs=("en", "de"), on_error=on_error)

    slots = "# intent: weather\n1\tWill\tweather\tO\n2\train\tweather\tB-what\n\n"
    xnli = (
        "language\tgold_label\tsentence1\tsentence2\nen\tneutral\tA cat.\tA house.\nde\t-\tx\ty\n"
    )
    facebook = (
        f"weather/find\t5:9:weather\tWill rain\ten_XX\t{json.dumps({'tokenizations': [TOKENS]})}\n"
    )
    texts: dict[str, tuple[str, Callable[..., object]]] = {
        "parallel.tsv": ("".join(f"{s}\t{t}\t0-0 1-1\n" for s, t in PAIRS), parallel),
        "parallel.txt": ("".join(f"{s} ||| {t}\n" for s, t in PAIRS), parallel),
        "parallel.tmx": (TMX, parallel),
        "dictionary": ("cat Katze\nhouse\tHaus\nice cream\tEis\n", dictionary),
        "entities.tsv": (
            "-DOCSTART- O\n\nen:Anna B-PER\nen:in O\n\nen:Yes O\n\n" * 2,
            corpora.read_tagged,
        ),
        "slots.conll": (slots * 2, corpora.read_tagged),
        "facebook.tsv": (facebook * 3, corpora.read_tagged),
        "trees.conllu": (CONLLU * 2, corpora.read_treebank),
        "inference.tsv": (xnli, corpora.read_labelled),
        "sentiment.tsv": ("good\tA film\nbad\tA book\nbad\tA hut\n" * 4, corpora.read_labelled),
        "labels.jsonl": (
            '{"premise": "a b", "hypothesis": "c", "label": 1}\n' * 4,
            corpora.read_labelled,
        ),
        "questions.json": (json.dumps(SQUAD), corpora.read_questions),
    }

    def reads(name: str, read: Callable[..., object]) -> Callable[[Path, random.Random], object]:
        return lambda folder, rng: read(
            folder / name, lang="en", on_error=rng.choice(("raise", "skip"))
        )

    found = {
        name: Reader({name: content}, reads(name, read)) for name, (content, read) in texts.items()
    }

    corpus = ParallelCorpus.of(
        *([pair[k].split() for pair in PAIRS] for k in (0, 1)), langs=("en", "de")
    )
    x = np.random.default_rng(0).standard_normal((90, 3)).astype(np.float32)
    anchors = Anchors(("the", "cat", "house"), x[:3], np.arange(1, 4), "en", np.ones(3), np.ones(3))
    both = [Sentences.of([["the", "cat"], ["a", "house"]], lang) for lang in ("en", "de")]
    shape = elmo_options(
        dim=4, hidden=6, layers=2, filters=((1, 4), (2, 3)), character_dim=3, highway=1
    )

    def encode(folder: Path, _: random.Random) -> float:
        path = folder / "encoder" if (folder / "encoder").exists() else folder / "v.vec"
        return float(
            sum(
                load_encoder(path, device="cpu").encode(text).data.sum(dtype=float) for text in both
            )
        )

    def sentences(folder: Path, rng: random.Random) -> object:
        encoder, before = load_encoder(folder / "encoder", device="cpu"), set(folder.rglob("*"))
        encoder.save(folder / "out" / "again")
        assert {path for path in folder.rglob("*") if "out" not in path.parts} == before, (
            "files outside `out` changed"
        )
        return (
            encode(folder, rng)
            + sentence_vectors(encoder, both[0], SentencePooling.of(encoder, "own"))
            .data.sum()
            .item()
        )

    def bert(folder: Path) -> Any:
        encoder = load_encoder(make_family("bert", folder / "full"), pooling="mean", layer=1)
        encoder.save(folder / "encoder")
        SentencePooling("own", "subwords", ("cls", "mean")).save(encoder, folder / "encoder")
        shutil.rmtree(folder / "full")
        return load_encoder(folder / "encoder")

    def mapped(folder: Path) -> None:
        base = bert(folder)
        turn = KINDS["rotation"]().fit(*np.random.default_rng(0).standard_normal((2, 90, base.dim)))
        MappedEncoder(base, {"de": {1: turn}}, towards="en", settings={}).save(folder / "encoder")

    def static(folder: Path) -> None:
        path = folder / "v.vec"
        path.write_text(VEC, encoding="utf-8")
        load_encoder(f"en={path},de={path}").save(folder / "encoder")

    def per_language(folder: Path) -> None:
        static(folder)
        shutil.move(folder / "encoder", folder / "one")
        several = {"en": load_encoder(folder / "one"), "de": RandomVectors(3)}
        PerLanguage(several, alike=False).save(folder / "encoder")
        shutil.rmtree(folder / "one")

    def loop(folder: Path) -> Any:
        return line_loop(
            FittedLine(), folder, schedule=Schedule(learning_rate=0.1), identity={"text": "x"}
        )

    def record(folder: Path) -> None:
        encoder = folder / "encoder"
        static(folder)
        about = {
            "encoder": "v.vec",
            "encoder_fingerprint": "0",
            "method": "rotation",
            "towards": "en",
            "langs": ["de", "en"],
            "texts": [{"path": "train.tsv", "langs": ["en", "de"], "sentence_pairs": 3}],
            "settings": {"seed": 0},
            "counts": {"sentence_pairs": 3},
            "schedule": None,
            "calque": "1",
            "seconds": {"method": 1.5},
        }
        (encoder / "calque-run.json").write_text(json.dumps(about), encoding="utf-8")
        card.add_scores(encoder, study(("de",), ("base",), ("retrieval",)))
        (folder / "v.vec").unlink()

    def use_record(folder: Path, _: random.Random) -> object:
        encoder = folder / "encoder"
        with contextlib.suppress(CalqueError):
            find_encoders([str(encoder)], None, lambda line: None)
        with contextlib.suppress(CalqueError):
            report([encoder], out=folder / "r.html")
        with contextlib.suppress(CalqueError):
            runs_folder.check(folder / "encoder", overwrite=True)
        evaluate.alignment_of(str(encoder), {})
        return card.add_scores(encoder, study(("de",), ("rotation",), ("retrieval",)))

    def averages(folder: Path) -> None:
        write_avg_embeds(folder, {0: anchors})

    def sums(folder: Path) -> None:
        found = AnchorSums(3, layers=[0], lang="en")
        found.add(both[0], {0: Embeddings(x[:4], np.array([0, 2, 4]))})
        found.save(
            folder / "sums.safetensors",
            note=json.dumps({"fingerprint": "0", "settings": "0", "text": "0"}),
        )

    def use_sums(folder: Path, _: random.Random) -> object:
        pass_of(folder / "sums.safetensors").get("fingerprint")
        found = AnchorSums.open(folder / "sums.safetensors")
        found.add(both[0], {0: Embeddings(x[:4], np.array([0, 2, 4]))})
        return float(found.finish()[0].vectors.sum(dtype=float))

    lines = "".join(
        json.dumps(line) + "\n"
        for line in study(("de",), ("base", "rotation"), ("retrieval", "ner"))
    )
    packed = gzip.compress("".join(f"{source}\n" for source, _ in PAIRS).encode(), mtime=0)
    return found | {
        "commands": Reader(inputs, command, only="", seconds=20),
        "record": Reader(record, use_record, only="encoder/calque-run.json"),
        "averages": Reader(
            averages,
            lambda folder, _: float(read_avg_embeds(folder)[0][0].vectors.sum(dtype=float)),
        ),
        "sums": Reader(sums, use_sums),
        "per-language": Reader(per_language, encode, only="encoder/**/*.json"),
        "random": Reader(lambda folder: RandomVectors(3).save(folder / "encoder"), encode),
        "packed": Reader(
            lambda folder: (folder / "t.gz").write_bytes(packed),
            lambda folder, _: list(corpora.read_sentences(folder / "t.gz", lang="en")),
        ),
        "arrow": Reader(
            lambda folder: corpus.save(folder / "t.arrow"),
            lambda folder, _: parallel(folder / "t.arrow", "raise"),
        ),
        "links": Reader(
            {"l": "1-1 2-2 3?2\n\n1-1:0.5 3p1\n"},
            lambda folder, _: WordPairs.open(folder / "l").one_to_one(),
        ),
        "vectors": Reader(
            lambda folder: Embeddings(x[:6], np.array([0, 2, 2, 6])).save(folder / "v.safetensors"),
            lambda folder, _: float(
                Embeddings.open(folder / "v.safetensors").sentence_means().sum()
            ),
        ),
        "anchors": Reader(
            lambda folder: save_anchors(folder, {0: anchors}),
            lambda folder, _: float(
                sum(found.vectors.sum(dtype=float) for found in open_anchors(folder).values())
            ),
        ),
        "released map": Reader(
            lambda folder: (folder / "p.pth").write_bytes(np.eye(3).dumps()),
            lambda folder, _: float(read_released(folder / "p.pth").arrays()["matrix"].sum()),
        ),
        "word vectors": Reader({"v.vec": VEC}, encode),
        "transformers": Reader(bert, sentences, only="encoder/*.json"),
        "mapped": Reader(mapped, encode, only="encoder/[cm]*s*"),
        "static": Reader(static, encode, only="encoder/*"),
        "elmo": Reader(
            lambda folder: ElmoEncoder(ElmoNetwork(shape)).save(folder / "encoder"), encode
        ),
        "results": Reader(
            {"results.jsonl": lines}, lambda folder, _: report([folder], out=folder / "r.html")
        ),
        "checkpoint": Reader(
            lambda folder: loop(folder).save(), lambda folder, _: loop(folder).resume(), only="*.pt"
        ),
        "tables": Reader(
            lambda folder: WordAligner.train(corpus, model="hmm").save(folder / "t.safetensors"),
            lambda folder, _: WordAligner.open(folder / "t.safetensors").align(corpus),
        ),
    }


# -- commands --------------------------------------------------------------------------------------
COMMANDS = (
    "words train.tsv --langs en de --out new --model hmm --symmetrize union --seed 1 --limit 9 "
    "--tables tables",
    "words train.tsv --langs en de --out new --encoder v.vec --extract mutual",
    "encode v.vec en.txt --lang en --out new --limit 3",
    "anchors en.txt --lang en --encoder v.vec --out new --at-least 1 --most 9 --occurrences 3 "
    "--format avg_embeds",
    "align train.tsv --langs en de --encoder v.vec --towards en --out new --method rotation "
    "--limit 9 --seed 3",
    "align --encoder v.vec --towards en --out new --dictionary dictionary --langs en de --method "
    "linear --option refine=0",
    "evaluate v.vec retrieval --test train.tsv --langs en de --out new --links links --limit 9 -q",
    "evaluate v.vec lexicon --test dictionary --langs en de --json --option max_candidates=9",
    "evaluate v.vec word-alignment --test train.tsv --links links --langs en de --extract softmax",
    "analyze v.vec --test train.tsv --langs en de --only rank,length --out new --bootstrap 10",
    "neighbours --encoder v.vec --lang1 en --sentence1 the_cat --word1 cat --lang2 de --sentence2 "
    "the_house -k 2",
    "report results.jsonl --out new.html --title T --base base --plots plots",
    "study study.toml --out new --workers 1 --data .",
    "merge encoder --out new --overwrite",
    "distil train.tsv --langs en de --teacher encoder --teacher-pooling words --student mini "
    "--limit 2 --out new --batch 2",
    "perplexity encoder en=en.txt --share 0.1 --seed 1",
    "senses encoder the --text en=en.txt -k 2",
    "data",
    "pretrain en=en.txt --out new --vocabulary 50 --updates 1 --batch 2 --layers 1 --dim 4 "
    "--model bert",
)
ODD = (
    "",
    " ",
    "-1",
    "0",
    "1",
    "1.5",
    "1e999",
    "nan",
    "-inf",
    "9" * 30,
    "-" + "9" * 30,
    "..",
    "/",
    ".",
    "~",
    "/dev/null",
    "/proc/x",
    "a=b",
    "=",
    ",",
    "en=",
    "en=en.txt",
    "--",
    "-",
    "[1]",
    "{}",
    "[[",
    "None",
    "true",
    "x" * 300,
    "x" * 5000,
    "a\0b",
    "hub:x",
    "hub:",
    "no.such:Class",
    "os:path",
    "%s{0}",
    "\ud800",
    "日本",
    "en",
    "de",
    "en,de",
    "en.txt",
    "train.tsv",
    "encoder",
    "v.vec",
    "encoder/",
    "en.txt/x",
    "links",
    "dictionary",
    "study.toml",
    "0,1",
    "-1,-2",
    "1-",
    "all",
    "\u202e",
    "a\nb",
    "'; --",
    "mini",
)
PLAN = """
seeds = 1
encoders = ["v.vec"]
[methods.base]
[methods.rotation]
[supervision.parallel]
de = "train.tsv"
[tasks.retrieval]
test = { de = "train.tsv" }
"""


def inputs(folder: Path) -> None:
    """Write the input files of `COMMANDS`."""
    from calque.encoders import load_encoder
    from report_results import study

    text = [
        ("the cat", "cat house"),
        ("the house", "house the"),
        ("cat", "the"),
        ("a house the", "the cat"),
    ] * 5
    (folder / "train.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in text))
    (folder / "en.txt").write_text("".join(f"{s}\n" for s, _ in text))
    (folder / "links").write_text("0-0\n" * len(text))
    (folder / "dictionary").write_text("the\tcat\ncat\thouse\nhouse\tthe\n")
    (folder / "v.vec").write_text(VEC)
    (folder / "study.toml").write_text(PLAN)
    (folder / "results.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in study(("de",), ("base",), ("ner",)))
    )
    load_encoder(folder / "v.vec").save(folder / "encoder")


def arguments_changed(rng: random.Random, words: list[str]) -> list[str]:
    """Replace, remove, insert or repeat arguments of a command."""
    k, odd = rng.randrange(1, max(2, len(words))), rng.choice(ODD)
    replaced = [*words[:k], odd, *words[k + 1 :]]
    return rng.choice(
        (
            replaced,
            replaced,
            words[:k] + words[k + 1 :],
            [*words[:k], odd, *words[k:]],
            [*words, *words[k:]],
        )
    )


def command(folder: Path, rng: random.Random | None) -> object:
    """Run a command with a random change of its arguments, and check that its input files stay the
    same.

    Raises:
        CalqueError: the command ended with a one-line error.
    """
    from calque import cli
    from calque.errors import CalqueError

    words = (COMMANDS[0] if rng is None else rng.choice(COMMANDS)).split()
    words = [word.replace("_", " ") if word.startswith("the_") else word for word in words]
    for _ in range(0 if rng is None else rng.choice((1, 1, 2))):
        words = arguments_changed(rng or random.Random(), words)
    if words[:1] in (["explore"], ["push"]):
        return None
    outputs = {
        following for word, following in pairwise(words) if word in ("--out", "--tables")
    }  # may be replaced
    before = {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in outputs
    }
    os.chdir(folder)
    out, err, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(words)
        except SystemExit as end:
            code = end.code
    said = err.getvalue().strip()
    changed = [
        str(path)
        for path, data in before.items()
        if not path.is_file() or path.read_bytes() != data
    ]
    assert not changed, f"{words} changed {changed}"
    if code == 2 and said.count("calque: error: ") == 1:
        raise CalqueError(said.splitlines()[-1])
    assert code in (0, 1), f"{words} ended with {code}: {said[-600:]}"
    return None


# -- running ---------------------------------------------------------------------------------------
def attempt(reader: Reader, valid: Path, place: Path, name: str, seed: int) -> tuple[str, str]:
    """Corrupt a file (unless the seed is −1), read the files, and return "refused", "accepted" or
    "failed", and a reason.
    """
    from calque.errors import CalqueError

    rng = random.Random(f"{name}/{seed}")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(valid, place)
    files = [
        path
        for path in place.rglob("*")
        if reader.only and path.is_file() and path.relative_to(place).match(reader.only)
    ]
    if seed >= 0 and files:
        chosen = rng.choice(sorted(files))
        chosen.write_bytes(damaged(rng, chosen.name, chosen.read_bytes()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = reader.read(place, rng if seed >= 0 or reader.only else None)
            if isinstance(found, float) and not abs(found) < float("inf"):
                return "failed", "accepted, but the result is not finite"
    except CalqueError as error:
        plain = (
            "\n" not in str(error) and len(str(error)) < 2000 and "weights_only" not in str(error)
        )
        return (
            ("refused", str(error)[:300])
            if plain
            else ("failed", f"not one plain line: {str(error)!r:.300}")
        )
    except Exception as error:
        return "failed", f"{type(error).__name__}: {traceback.format_exc(limit=-3)[-600:]}"
    return "accepted", ""


def results(
    name: str, reader: Reader, seeds: list[int], folder: Path
) -> Iterator[tuple[int, str, str]]:
    """Yield the result for each seed, computed in a child process that is restarted if it
    crashes.
    """
    (folder / "valid").mkdir()
    if callable(reader.files):
        reader.files(folder / "valid")
    else:
        for each, content in reader.files.items():
            (folder / "valid" / each).write_text(content, encoding="utf-8")
    left = [-1, *seeds]
    while left:
        ours, theirs = os.pipe()
        if (pid := os.fork()) == 0:
            try:
                used = re.search(r"VmData:\s*(\d+)", Path("/proc/self/status").read_text())
                limit = int(used[1]) * 1024 + BYTES if used else BYTES
                resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                for seed in left:
                    signal.setitimer(
                        signal.ITIMER_PROF, reader.seconds
                    )  # SIGPROF kills the process
                    signal.alarm(120)
                    told = attempt(reader, folder / "valid", folder / "input", name, seed)
                    os.write(theirs, json.dumps([seed, *told]).encode() + b"\n")
            finally:
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as pipe:
            for line in pipe:
                seed, what, why = json.loads(line)
                left.remove(seed)
                if seed >= 0 or what != "accepted":
                    yield seed, what if seed >= 0 else "failed", why
        status = os.waitpid(pid, 0)[1]
        if left:
            died = signal.Signals(status & 127).name if status & 127 else status
            yield left.pop(0), "failed", f"the process died: {died}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=1000, help="number of inputs for each reader")
    parser.add_argument("--first", type=int, default=0, help="seed of the first input")
    parser.add_argument(
        "--readers",
        nargs="*",
        default=[""],
        help="test readers whose names contain one of these strings; default: all",
    )
    given = parser.parse_args()
    failures = 0
    for name, reader in readers().items():
        if any(part in name for part in given.readers):
            counts = {"refused": 0, "accepted": 0, "failed": 0}
            with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
                seeds = list(range(given.first, given.first + given.inputs))
                for seed, what, why in results(name, reader, seeds, Path(folder)):
                    counts[what] += 1
                    if what == "failed":
                        print(f"FAILED {name}, seed {seed}: {why}", flush=True)
            print(f"{name}: {counts}", flush=True)
            failures += counts["failed"]
    print(f"{failures} failures" if failures else "no failures")
    return min(100, failures)


if __name__ == "__main__":
    sys.exit(main())
