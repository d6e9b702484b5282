"""Feeds every reader with damaged files: each must give a normal result or one `CalqueError` of one line.

    python dev/fuzz_readers.py                                   # 1,000 inputs for each reader
    python dev/fuzz_readers.py --inputs 20 --readers "tmx" "elmo"
    python dev/fuzz_readers.py --readers tmx --replay 417        # one input again, with its traceback

A reader starts from small valid files of its format. Each input changes one of them by one to three mutations drawn from its
seed: flipped bits, cut ends, pieces that are missing, twice there or elsewhere, NULs, endless lines, other encodings, swapped
columns, huge numbers, deep nesting; of JSON and of the headers of containers also values of other types. Packed files are
mutated before or after packing.

What counts as a failure: any other exception, an error of more than one line or that advises to trust a file, a death of the
process, more than 5 seconds of processor time, more than 2 GB of memory. Readers run in a forked process of their own, whose
memory is limited. The exit code is the number of failures, at most 100.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import pickle
import random
import re
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))

SECONDS, WALL, BYTES = 5.0, 120.0, 2 << 30
LANGS = ("en", "de")
PAIRS = [
    ("The cat sees a house.", "Die Katze sieht ein Haus."), ("Water and time", "Wasser und Zeit"),
    ("It's 3.5 km to the river — or 2 miles?", "Es sind 3,5 km bis zum Fluss – oder 2 Meilen?"),
    ("naïve façade", "naive Fassade"), ("A house of water", "Ein Haus aus Wasser"), ("日本 and 中国", "Japan und China"),
] * 2  # fmt: skip


# -- mutations ---------------------------------------------------------------------------------------------------------
def _piece(rng: random.Random, data: bytes, most: int = 400) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.randint(1, most))


def flip(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.7 else data[rng.randrange(len(data) + 1) :]


def repeat(rng: random.Random, data: bytes) -> bytes:
    a, b = _piece(rng, data)
    return data[:b] + data[a:b] * rng.choice((1, 1, 2, 2, 50, 50, 2000)) + data[b:]


def remove(rng: random.Random, data: bytes) -> bytes:
    a, b = _piece(rng, data)
    return data[:a] + data[b:]


def move(rng: random.Random, data: bytes) -> bytes:
    a, b = _piece(rng, data)
    rest = data[:a] + data[b:]
    place = rng.randrange(len(rest) + 1)
    return rest[:place] + data[a:b] + rest[place:]


def nulls(rng: random.Random, data: bytes) -> bytes:
    a, b = _piece(rng, data, 20)
    return data[:a] + bytes(rng.choice((1, b - a, 5000))) + data[b if rng.random() < 0.5 else a :]


def noise(rng: random.Random, data: bytes) -> bytes:
    a, b = _piece(rng, data, 50)
    return data[:a] + rng.randbytes(rng.choice((1, b - a + 1, 3000))) + data[b:]


def strange(rng: random.Random, data: bytes) -> bytes:
    """Bytes and characters that trip readers of text."""
    what = (
        b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x80\xa8", b"\xc2\x85", b"\xef\xbb\xbf", b"\r", b"\x0b", b"\x1a",
        "\u202e".encode(), "\U0010ffff".encode(), b"\t", b"\t\t", b"\n\n\n", b'"', b"'", b"\\", b"<", b"&", b"&#0;", b"{", b"]",
        b"=", b"# ", b"-1", b"NaN", b"null", b"../", b" ||| ", b"%s{0}", "é".encode("utf-16"),
    )  # fmt: skip
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.choice(what) * rng.choice((1, 1, 3)) + data[place:]


def endless(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data) + 1)
    unit = rng.choice((b"a", b"ab ", b"\t", "水".encode(), b"9", b"\n", b" ", b"1-1 ", b"\\n", b"a\tb\n"))
    return data[:place] + unit * rng.choice((1000, 1000, 10_000, 10_000, 10_000, 300_000)) + data[place:]


def encoded(rng: random.Random, data: bytes) -> bytes:
    with contextlib.suppress(UnicodeError):
        return data.decode().encode(
            rng.choice(("utf-16", "utf-16-be", "utf-32", "latin-1", "cp1252", "utf-8-sig", "utf-7"))
        )
    return data.decode("latin-1").encode("utf-8")


def columns(rng: random.Random, data: bytes) -> bytes:
    """Swap, drop or double columns, in one line or in all."""
    lines = data.split(b"\n")
    separator = rng.choice((b"\t", b" ", b",", b":", b"|||"))
    chosen = {rng.randrange(len(lines))} if rng.random() < 0.7 else set(range(len(lines)))
    how = rng.randrange(4)
    for k in chosen:
        cells = lines[k].split(separator)
        if how == 0:
            cells.reverse()
        elif how == 1:
            cells.pop(rng.randrange(len(cells)))
        elif how == 2:
            cells.insert(rng.randrange(len(cells) + 1), rng.choice(cells))
        else:
            cells[rng.randrange(len(cells))] = b""
        lines[k] = separator.join(cells)
    return b"\n".join(lines)


def shuffled(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    how = rng.randrange(3)
    if how == 0:
        rng.shuffle(lines)
    elif how == 1:
        lines.pop(rng.randrange(len(lines)))
    else:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    return b"\n".join(lines)


def huge(rng: random.Random, data: bytes) -> bytes:
    """A number becomes another, one that no field was made for."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if not found:
        return data
    match = rng.choice(found)
    values = (
        b"-1", b"0", b"1" + b"0" * 18, b"1" + b"0" * 30, b"9" * 5000, b"nan", b"inf", b"1e400", b"-0", b"0.5", b"4294967296",
        b"2147483648", b"9223372036854775807", b"1000000000", b"100000", b"",
    )  # fmt: skip
    return data[: match.start()] + rng.choice(values) + data[match.end() :]


def nested(rng: random.Random, data: bytes) -> bytes:
    unit, end = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"<seg>", b"</seg>"), (b"(", b")"), (b"[[x]]\n", b"")))
    n, place = rng.choice((50, 3000, 3000, 100_000)), rng.randrange(len(data) + 1)
    return data[:place] + unit * n + (b"1" + end * n if rng.random() < 0.5 else b"") + data[place:]


BINARY = (flip, flip, cut, repeat, remove, move, nulls, noise)
TEXT = (*BINARY, strange, strange, endless, encoded, columns, columns, shuffled, huge, huge, nested)


def raw(rng: random.Random, data: bytes, how: tuple[Callable[[random.Random, bytes], bytes], ...] = TEXT) -> bytes:
    if rng.random() < 0.02:
        return b"" if rng.random() < 0.5 else rng.randbytes(rng.randrange(500))
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice(how)(rng, data)
    return data


def binary(rng: random.Random, data: bytes) -> bytes:
    return raw(rng, data, BINARY)


VALUES = (None, True, -1, 0, 1, 7, 10**5, 10**9, 10**30, 1.5, 1e308, float("nan"), "", "x", "nan", "en", "\ud800", [], {},
          [1, "a"], {"a": 1}, [[[]]], "huggingface", "static", "../../x")  # fmt: skip


def as_json(rng: random.Random, data: bytes) -> bytes:
    """A value of JSON becomes another, or goes; or the text is damaged as any."""
    try:
        found = json.loads(data)
    except ValueError:  # lines of JSON: one of them
        lines = data.split(b"\n")
        k = rng.randrange(len(lines))
        if rng.random() < 0.3 or not lines[k].startswith(b"{"):
            return raw(rng, data)
        lines[k] = as_json(rng, lines[k])
        return b"\n".join(lines)
    if rng.random() < 0.3:
        return raw(rng, data)
    for _ in range(rng.choice((1, 1, 2))):
        found = _changed(rng, found)
    return json.dumps(found).encode()


def _changed(rng: random.Random, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return rng.choice(VALUES)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, how = rng.choice(keys), rng.random()
    if how < 0.2:
        value.pop(key)
    elif how < 0.3:
        if isinstance(value, dict):
            value[str(rng.choice(VALUES))[:20]] = value[key]
        else:
            value.insert(0, value[key])
    else:
        value[key] = _changed(rng, value[key])
    return value


def safetensors(rng: random.Random, data: bytes) -> bytes:
    """Its header as JSON, or its bytes."""
    (length,) = struct.unpack("<Q", data[:8])
    if rng.random() < 0.4:
        return binary(rng, data)
    header = as_json(rng, data[8 : 8 + length])
    with contextlib.suppress(
        ValueError, AttributeError, TypeError, KeyError
    ):  # what stands in the metadata is JSON, too
        found = json.loads(data[8 : 8 + length])
        name = rng.choice([name for name, text in found["__metadata__"].items() if text[:1] in "[{"] or [""])
        if rng.random() < 0.6 and name:
            found["__metadata__"][name] = as_json(rng, found["__metadata__"][name].encode()).decode()
            header = json.dumps(found).encode()
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def zipped(rng: random.Random, data: bytes) -> bytes:
    """A member of the archive, written anew with right check sums; or the archive."""
    if rng.random() < 0.3:
        return binary(rng, data)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w") as new:
        names = archive.namelist()
        chosen = (
            next((name for name in names if name.endswith("data.pkl")), names[0])
            if rng.random() < 0.7
            else rng.choice(names)
        )
        for name in names:
            content = archive.read(name)
            if name == chosen:
                content = raw(rng, content, (*BINARY, huge, strange))
            new.writestr(name, content)
    return out.getvalue()


def packed(pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Callable[[random.Random, bytes], bytes]:
    def mutate(rng: random.Random, data: bytes) -> bytes:
        return binary(rng, data) if rng.random() < 0.5 else pack(raw(rng, unpack(data)))

    return mutate


def _zst(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def _unzst(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor().decompress(data)


PACKED = {
    ".gz": packed(lambda data: gzip.compress(data, mtime=0), gzip.decompress), ".zst": packed(_zst, _unzst),
    ".xz": packed(lzma.compress, lzma.decompress), ".bz2": packed(bz2.compress, bz2.decompress),
}  # fmt: skip


def mutation(name: str) -> Callable[[random.Random, bytes], bytes]:
    """How a file of this name is damaged."""
    suffix = Path(name).suffix
    by_suffix = {".json": as_json, ".jsonl": as_json, ".safetensors": safetensors, ".pt": zipped, ".arrow": binary,
                 ".hdf5": binary, ".bin": binary, **PACKED}  # fmt: skip
    if name.endswith(".zip.pth"):
        return zipped
    return by_suffix.get(suffix, raw)


# -- readers -----------------------------------------------------------------------------------------------------------
@dataclass
class Reader:
    """Something that reads files.

    Args:
        make: writes valid files into a folder.
        read: reads what is there, whole; takes a generator for settings that an input draws.
        only: which of the files are damaged (patterns); default: all.
    """

    make: Callable[[Path], None]
    read: Callable[[Path, random.Random], object]
    only: tuple[str, ...] = ("*",)
    weights: dict[str, int] = field(default_factory=dict)


def readers() -> dict[str, Reader]:
    """All of them, by name."""
    return {**_texts(), **_annotated(), **_vectors(), **_encoders(), **_others()}


def put(name: str, content: str | bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return make


TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header creationtool="x" srclang="en" datatype="plaintext" segtype="sentence" o-tmf="x"/>
<body>
<tu tuid="1"><tuv xml:lang="en-GB"><seg>The <bpt i="1">&lt;b&gt;</bpt>cat<ept i="1">&lt;/b&gt;</ept></seg></tuv>
<tuv xml:lang="de"><seg>Die <hi>Katze</hi></seg></tuv></tu>
<tu><tuv lang="EN"><seg>A house &amp; water</seg></tuv><tuv lang="DE"><seg>Ein Haus &#38; Wasser</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>Une maison</seg></tuv></tu>
</body></tmx>
"""
PO = """msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#. a comment
#: place.c:12
msgid "The cat"
msgstr "Die Katze"

#, fuzzy
msgctxt "menu"
msgid "Open "
"file"
msgstr "Datei öffnen"

msgid "%d house"
msgid_plural "%d houses"
msgstr[0] "%d Haus"
msgstr[1] "%d Häuser"

#~ msgid "old"
#~ msgstr "alt"
"""


ALTERED, ABOUT = ("5 houses", "no house"), {"src": "3 houses", "errtype": "number"}


def _texts() -> dict[str, Reader]:
    from calque.corpora import read_dictionary, read_parallel, read_sentences
    from calque.corpora.altered import read_altered
    from calque.corpora.comparable import read_comparable
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus

    def parallel(name: str, **options: Any) -> Callable[[Path, random.Random], object]:
        def read(folder: Path, rng: random.Random) -> object:
            how: Any = {
                "on_error": rng.choice(("raise", "skip", "blank")),
                "pretokenized": rng.random() < 0.5,
                **options,
            }
            corpus = read_parallel(folder / name, langs=LANGS, **how)
            for side in (corpus.source, corpus.target):
                side.lengths(), side.flat(), [sentence.words for sentence in side]
            return [corpus.metadata(column) for column in corpus.metadata_names]

        return read

    def moses(folder: Path) -> None:
        for k, lang in enumerate(LANGS):
            (folder / f"text.{lang}").write_text("".join(pair[k] + "\n" for pair in PAIRS), encoding="utf-8")

    def arrow(folder: Path) -> None:
        sides = ([pair[k].split() for pair in PAIRS] for k in (0, 1))
        ParallelCorpus.of(*sides, langs=LANGS, metadata={"origin": ["x"] * len(PAIRS)}).save(folder / "t.arrow")

    def sentences(folder: Path) -> None:
        text = "".join(source + "\n" for source, _ in PAIRS).encode()
        for suffix, pack in {"": bytes, ".gz": lambda data: gzip.compress(data, mtime=0), ".zst": _zst, ".xz": lzma.compress,
                             ".bz2": bz2.compress}.items():  # fmt: skip
            (folder / f"t.txt{suffix}").write_bytes(pack(text))

    def read_all_sentences(folder: Path, rng: random.Random) -> object:
        path = next(folder.iterdir(), folder / "none")
        found = read_sentences(path, lang="en", pretokenized=rng.random() < 0.5, limit=rng.choice((None, 3)))
        return [sentence.words for sentence in found]

    def comparable(folder: Path) -> None:
        for k, lang in enumerate(LANGS):
            lines = "".join(f"{lang}-{n}\t{pair[k]}\n" for n, pair in enumerate(PAIRS))
            (folder / f"text.{lang}").write_text(lines, encoding="utf-8")
        gold = "".join(f"{LANGS[0]}-{n}\t{LANGS[1]}-{n}\n" for n in range(0, len(PAIRS), 2))
        (folder / "text.gold").write_text(gold, encoding="utf-8")

    def read_mined(folder: Path, rng: random.Random) -> object:
        found = read_comparable(folder / "text", langs=LANGS, limit=rng.choice((None, 3)))
        return [sentence.words for side in (found.source, found.target) for sentence in side], found.gold

    def read_made_of(folder: Path, _: random.Random) -> object:
        return [read_altered(path).texts for path in sorted(folder.iterdir())]

    def flores(folder: Path) -> None:
        (folder / "dev").mkdir()
        for k, lang in enumerate(("eng_Latn", "deu_Latn")):
            text = "".join(pair[k] + "\n" for pair in PAIRS)
            (folder / "dev" / f"{lang}.dev").write_text(text, encoding="utf-8")

    def links(folder: Path, rng: random.Random) -> object:
        found = WordPairs.open(folder / "t.align", one_based=rng.random() < 0.2)
        found.one_to_one().save(folder / "again")
        return WordPairs.open(folder / "again")

    tsv = "".join(f"{source}\t{target}\t0-0 1-1\n" for source, target in PAIRS)
    return {
        "parallel TSV": Reader(put("t.tsv", tsv), parallel("t.tsv")),
        "parallel |||": Reader(put("t.txt", "".join(f"{s} ||| {t}\n" for s, t in PAIRS)), parallel("t.txt")),
        "parallel Moses": Reader(moses, parallel("text")),
        "parallel TMX": Reader(put("t.tmx", TMX), parallel("t.tmx")),
        "parallel PO": Reader(put("t.po", PO), parallel("t.po")),
        "parallel Arrow": Reader(arrow, parallel("t.arrow")),
        "parallel FLORES": Reader(flores, parallel("dev")),
        "comparable texts (BUCC)": Reader(comparable, read_mined),
        "altered sentences, JSON": Reader(put("a.json", json.dumps(dict.fromkeys(ALTERED, ABOUT))), read_made_of),
        "altered sentences, lines": Reader(put("a.tsv", "3 houses\t5 houses\tnumber\na cat\tno cat\n"), read_made_of),
        "plain text, packed and not": Reader(_one_of(sentences), read_all_sentences),
        "word links (Pharaoh)": Reader(put("t.align", "1-1 2-2 3?2\n\n1-1:0.5 3p1\n10-2 1-2\n" * 3), links),
        "dictionaries": Reader(
            put("d.txt", "cat Katze\nhouse\tHaus\nwater Wasser\nice cream\tEis\n" * 2),
            lambda folder, rng: read_dictionary(folder / "d.txt", langs=LANGS, on_error=rng.choice(("raise", "skip"))),
        ),
    }


def _one_of(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """Files of which an input gets one."""
    make.one = True  # type: ignore[attr-defined]
    return make


CONLLU = """# sent_id = 1
# text = The cats see it
1\tThe\tthe\tDET\tDT\tDefinite=Def\t2\tdet\t_\t_
2-3\tcatsee\t_\t_\t_\t_\t_\t_\t_\t_
2\tcats\tcat\tNOUN\tNNS\tNumber=Plur\t3\tnsubj\t_\t_
3\tsee\tsee\tVERB\tVBP\t_\t0\troot\t_\t_
3.1\tx\tx\tVERB\t_\t_\t_\t_\t0:root\t_
4\tit\tit\tPRON\tPRP\t_\t3\tobj:x\t_\tSpaceAfter=No

# sent_id = 2
1\tRun\trun\tVERB\tVB\t_\t0\troot\t_\t_
2\t!\t!\tPUNCT\t.\t_\t1\tpunct\t_\t_

"""
NER = "-DOCSTART- O\n\nen:Anna B-PER\nen:lives O\nen:in O\nen:New B-LOC\nen:York I-LOC\n\nen:Yes O\n\n"
XSID = """# id: 1
# intent: weather/find
# slots: 0:3:datetime
1\tWill\tweather/find\tO
2\tit\tweather/find\tO
3\train\tweather/find\tB-weather
4\ttoday\tweather/find\tB-datetime

# intent = alarm/set
1\tWake\talarm/set\tO
2\tme\talarm/set\tO

"""
SNIPS = {"seq.in": "play jazz now\ngo\n", "seq.out": "O B-genre O\nO\n", "label": "Play\nGo\n"}
_SPANS = {"tokens": ["will", "rain", "today"], "tokenSpans": [{"start": 0, "length": 4}, {"start": 5, "length": 4},
          {"start": 10, "length": 5}]}  # fmt: skip
FACEBOOK = (
    f"weather/find\t5:9:weather,10:15:datetime\tWill rain today\ten_XX\t{json.dumps({'tokenizations': [_SPANS]})}\n"
)
XNLI = "language\tgold_label\tsentence1\tsentence2\nen\tneutral\tA cat.\tA house.\nde\t-\tx\ty\nen\tentailment\tIt rains.\tWet.\n"
PAWS = "A cat sees\tA house\t0\nWater\tTime\t1\nA house\tA hut\t1\n"
LABELS = "".join(f"{label}\tA film of {k}\n" for k, label in enumerate(("positive", "negative", "neutral") * 4))
LABELLED_JSON = "".join(json.dumps({"premise": "a b", "hypothesis": "c", "label": k % 3}) + "\n" for k in range(4))
_QAS = [{"id": "1", "question": "Where is it?", "answers": [{"text": "in Rome", "answer_start": 16}]},
        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True}]  # fmt: skip
_PASSAGES = [{"context": "Ann's house is, in Rome.", "qas": _QAS}, {"context": "甲在北京。", "qas": []}]
SQUAD = json.dumps({"version": "1.1", "data": [{"title": "x", "paragraphs": _PASSAGES}] * 2}, ensure_ascii=False)
WSD = """<?xml version="1.0" encoding="utf-8"?>
<corpus lang="en"><text id="d0"><sentence id="d0.s0"><wf lemma="the" pos="DET">The</wf>
<instance id="d0.s0.t0" lemma="bank" pos="NOUN">bank</instance><wf lemma="of" pos="ADP">of</wf>
<instance id="d0.s0.t1" lemma="river" pos="NOUN">New_river</instance></sentence></text></corpus>
"""
KEYS = "d0.s0.t0 bank%1:14:00:: bank%1:17:01::\nd0.s0.t1 river%1:17:00::\n"


def _annotated() -> dict[str, Reader]:
    from calque.corpora import read_labelled, read_questions, read_senses, read_tagged, read_treebank
    from calque.tasks.disambiguation import first_senses

    def tagged(name: str, content: str, **options: Any) -> Reader:
        def read(folder: Path, rng: random.Random) -> object:
            text = read_tagged(folder / name, lang="en", on_error=rng.choice(("raise", "skip")), **options)
            return [sentence.words for sentence in text.sentences], text.tags.to_list()

        return Reader(put(name, content), read)

    def labelled(name: str, content: str) -> Reader:
        def read(folder: Path, rng: random.Random) -> object:
            text = read_labelled(folder / name, lang="en", on_error=rng.choice(("raise", "skip")))
            return [[sentence.words for sentence in column] for column in text.texts], text.labels.to_list()

        return Reader(put(name, content), read)

    def trees(folder: Path, rng: random.Random) -> object:
        return read_treebank(folder / "t.conllu", lang="en", on_error=rng.choice(("raise", "skip"))).relations.to_list()

    def questions(folder: Path, rng: random.Random) -> object:
        text = read_questions(folder / "t.json", lang="en", on_error=rng.choice(("raise", "skip")))
        return [text.right(k) for k in range(len(text))], text.spans.tolist()

    def snips(folder: Path) -> None:
        for name, content in SNIPS.items():
            (folder / name).write_text(content, encoding="utf-8")

    def senses(folder: Path) -> None:
        (folder / "t.data.xml").write_text(WSD, encoding="utf-8")
        (folder / "t.gold.key.txt").write_text(KEYS, encoding="utf-8")

    def read_senses_too(folder: Path, rng: random.Random) -> object:
        text = read_senses(folder / "t.data.xml")
        return [sentence.words for sentence in text.sentences], text.keys

    index = "bank%1:14:00:: 08420278 1 25\nbank%1:17:01:: 09213565 2 0\nriver%1:17:00:: 09411430 1 9\n"
    return {
        "tags: columns (CoNLL)": tagged("t.tsv", NER * 2),
        "tags: CoNLL-U": tagged("t.conllu", CONLLU, column="upos"),
        "tags: xSID": tagged("t.conll", XSID),
        "tags: Facebook's slots": tagged("t.tsv", FACEBOOK * 3),
        "tags: SNIPS": Reader(
            snips, lambda folder, rng: read_tagged(folder, lang="en", on_error=rng.choice(("raise", "skip")))
        ),
        "trees: CoNLL-U": Reader(put("t.conllu", CONLLU), trees),
        "labels: XNLI": labelled("xnli.tsv", XNLI),
        "labels: pairs": labelled("t.tsv", PAWS * 2),
        "labels: label and text": labelled("t.tsv", LABELS),
        "labels: JSON lines": labelled("t.jsonl", LABELLED_JSON),
        "questions: SQuAD's JSON": Reader(put("t.json", SQUAD), questions),
        "senses: XML and keys": Reader(senses, read_senses_too),
        "senses: index.sense": Reader(
            put("index.sense", index), lambda folder, _: first_senses(str(folder / "index.sense"))
        ),
    }


def _fasttext(words: list[str], rows: Any, bucket: int) -> bytes:
    out = struct.pack("<ii", 793712314, 12) + struct.pack(
        "<12id", rows.shape[1], 5, 5, 1, 5, 1, 2, 2, bucket, 2, 4, 100, 1e-4
    )
    out += struct.pack("<iiiqq", len(words), len(words), 0, 1000, -1)
    out += b"".join(word.encode() + b"\0" + struct.pack("<qb", 7, 0) for word in words)
    return out + struct.pack("<bqq", False, *rows.shape) + rows.astype("<f4").tobytes() + b"output side"


WORDS = ["the", "cat", "house", "water", "of", "naïve"]


def _vectors() -> dict[str, Reader]:
    import numpy as np

    from calque.anchors import Anchors, AnchorSums, open_anchors, read_avg_embeds, save_anchors, write_avg_embeds
    from calque.encoders import load_encoder
    from calque.encoders.anchors import pass_of
    from calque.maps.released import read_released
    from calque.text import Sentences
    from calque.vectors import Embeddings

    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((len(WORDS), 3)).astype(np.float32)
    sentences = Sentences.of([["the", "cat"], ["Unseen", "of"]], "en")

    def text() -> bytes:
        rows = [f"{word} {' '.join(f'{x:.4f}' for x in row)}\n" for word, row in zip(WORDS, vectors, strict=True)]
        return (f"{len(WORDS)} 3\n" + "".join(rows)).encode()

    def words_in_binary() -> bytes:
        rows = [
            word.encode() + b" " + row.astype("<f4").tobytes() + b"\n" for word, row in zip(WORDS, vectors, strict=True)
        ]
        return f"{len(WORDS)} 3\n".encode() + b"".join(rows)

    def table(name: str, content: bytes) -> Reader:
        return Reader(put(name, content), lambda folder, _: load_encoder(folder / name).encode(sentences))

    def embeddings(folder: Path) -> None:
        Embeddings(vectors, np.array([0, 2, 2, 6]), np.array([True] * 5 + [False])).save(folder / "v.safetensors")

    def read_embeddings(folder: Path, _: random.Random) -> object:
        found = Embeddings.open(folder / "v.safetensors")
        return found.sentence_means(), [found[k].sum() for k in range(len(found))]

    def anchors() -> dict[int, Any]:
        counts = np.arange(1, 1 + len(WORDS))
        return {layer: Anchors(tuple(WORDS), vectors, counts, "en", np.ones(6), np.ones(6)) for layer in (0, 2)}

    def read_anchors(folder: Path, _: random.Random) -> object:
        return [(found.vectors.sum(), found.counts.sum(), found.mean_norm) for found in open_anchors(folder).values()]

    def sums(folder: Path) -> None:
        made = AnchorSums(3, layers=[0, 1], samples=4, lang="en", seed=0)
        numbers = rng.standard_normal((4, 3)).astype(np.float32)
        some = Embeddings(numbers, np.array([0, 2, 4]))
        made.add(sentences, {0: some, 1: some})
        made.save(folder / "sums.safetensors")

    def read_sums(folder: Path, _: random.Random) -> object:
        pass_of(folder / "sums.safetensors")
        found = AnchorSums.open(folder / "sums.safetensors")
        numbers = np.ones((4, 3), dtype=np.float32)
        if found.is_open and found.dim == 3:
            found.add(sentences, {layer: Embeddings(numbers, np.array([0, 2, 4])) for layer in found.layers})
        return found.finish()

    def published(folder: Path) -> None:
        write_avg_embeds(folder, anchors())

    def maps(folder: Path) -> None:
        import torch

        matrix = rng.standard_normal((3, 3)).astype(np.float32)
        for protocol in range(6):
            (folder / f"p{protocol}.pth").write_bytes(pickle.dumps(matrix, protocol=protocol))
        torch.save(matrix, folder / "new.zip.pth")
        torch.save(matrix, folder / "old.pth", _use_new_zipfile_serialization=False)

    def read_map(folder: Path, _: random.Random) -> object:
        path = next(folder.iterdir(), folder / "none")
        return read_released(path).arrays()

    rows = np.concatenate([vectors, rng.standard_normal((20, 3)).astype(np.float32)])
    return {
        "word2vec text": table("v.vec", text()),
        "word2vec binary": table("v.bin", words_in_binary()),
        "fastText model": table("model.bin", _fasttext(WORDS, rows, 20)),
        "vectors (safetensors)": Reader(embeddings, read_embeddings),
        "anchors (safetensors)": Reader(lambda folder: save_anchors(folder, anchors()), read_anchors),
        "sums of anchors": Reader(sums, read_sums),
        "anchors (avg_embeds)": Reader(published, lambda folder, _: read_avg_embeds(folder, lang="en")),
        "released maps (.pth)": Reader(_one_of(maps), read_map, only=("*.pth",)),
    }


def _encoders() -> dict[str, Reader]:
    import numpy as np

    from calque.encoders import load_encoder
    from calque.text import Sentences

    both = [Sentences.of([["the", "cat"], ["a", "house"]], lang) for lang in LANGS]

    def read(folder: Path, _: random.Random) -> object:
        encoder = load_encoder(folder / "encoder", device="cpu")
        return [encoder.encode(sentences).data.sum() for sentences in both]

    def bert(folder: Path) -> None:
        import torch

        from families import make_family

        make_family("bert", folder / "full")
        tiny = load_encoder(folder / "full", pooling="mean", layer=1)
        model: Any = tiny.model  # type: ignore[attr-defined]
        model.encoder.layer = torch.nn.ModuleList(list(model.encoder.layer)[:2])
        model.config.num_hidden_layers = 2
        tiny.save(folder / "encoder")
        shutil.rmtree(folder / "full")

    def mapped(folder: Path) -> None:
        from calque.encoders.mapped import MappedEncoder
        from calque.maps import KINDS

        bert(folder)
        base: Any = load_encoder(folder / "encoder")
        x = np.random.default_rng(0).standard_normal((90, base.dim))
        turn = KINDS["rotation"]().fit(x, x[:, ::-1])
        MappedEncoder(base, {"de": {1: turn}}, towards="en", settings={}).save(folder / "encoder")

    def static(folder: Path) -> None:
        from calque.encoders.static import load_static

        rng = np.random.default_rng(0)
        for lang in LANGS:
            rows = [f"{word} {' '.join(f'{x:.3f}' for x in rng.standard_normal(3))}\n" for word in WORDS]
            (folder / f"{lang}.vec").write_text(f"{len(WORDS)} 3\n" + "".join(rows), encoding="utf-8")
        load_static({lang: folder / f"{lang}.vec" for lang in LANGS}, sentence=True).save(folder / "encoder")
        for lang in LANGS:
            (folder / f"{lang}.vec").unlink()

    def elmo(folder: Path) -> None:
        from calque.encoders.elmo import ElmoEncoder
        from calque.nn.elmo import ElmoNetwork, elmo_options

        shape = elmo_options(dim=4, hidden=6, layers=2, filters=((1, 4), (2, 3)), character_dim=3, highway=1)
        ElmoEncoder(ElmoNetwork(shape)).save(folder / "encoder")

    def per_language(folder: Path) -> None:
        from calque.encoders.per_language import PerLanguage

        for lang in LANGS:
            (folder / lang).mkdir()
            elmo(folder / lang)
        made = PerLanguage({lang: load_encoder(folder / lang / "encoder", device="cpu") for lang in LANGS})
        made.save(folder / "encoder")
        for lang in LANGS:
            shutil.rmtree(folder / lang)

    small = ("encoder/*.json", "encoder/*.safetensors")
    return {
        "encoder: transformers": Reader(bert, read, only=small),
        "encoder: mapped": Reader(
            mapped, read, only=("encoder/calque.json", "encoder/maps.safetensors", "encoder/config.json")
        ),
        "encoder: static": Reader(static, read),
        "encoder: ELMo": Reader(elmo, read, only=("encoder/*.json", "encoder/*.hdf5")),
        "encoder: per language": Reader(
            per_language, read, only=("encoder/*.json", "encoder/*/*.json", "encoder/*/*.hdf5")
        ),
    }


STUDY = """source = "en"
towards = "en"
together = true
seeds = 2
data = "data"
encoders = { mini = "mini", small = { path = "mini", layers = [1, -1], pooling = "mean" } }
[methods.rotation]
[methods.mine]
method = "contrastive"
epochs = 2.0
supervision = ["europarl"]
[methods.nothing]
start = "distributions"
[supervision.europarl]
de = "train.en-de.tsv"
limit = 1000
[supervision.words]
kind = "dictionary"
de = "en-de.dict"
texts = { en = "en.txt", de = "de.txt" }
[supervision.alone]
kind = "text"
texts = { en = "en.txt", de = "de.txt" }
[tasks.retrieval]
test = { de = "test.en-de.tsv" }
[tasks.ner]
train = "panx.train.en.tsv"
test = ["panx.test.de.tsv", "en=x.tsv"]
epochs = 3
[words]
model = "hmm"
"""


def _others() -> dict[str, Reader]:
    import torch

    from calque.report import report
    from calque.runs.study import read_study
    from calque.training.loop import Schedule
    from calque.wordalign import WordAligner
    from fitted_line import FittedLine, line_loop
    from report_results import study

    def results(folder: Path) -> None:
        place = folder / "run"
        place.mkdir()
        lines = study(("de",), ("base", "rotation"), ("retrieval", "ner"))
        points = {"x": 0.1, "y": -1.0, "word": "cat", "pair": 0, "lang": "en"}
        found = {"analysis": "points", "task": "points", "data": "t", "languages": ["en", "de"], "metric": "x", "value": None,
                 "low": None, "high": None, "n": 2, "seed": 0, "settings": {}, "items": [points, {**points, "lang": "de"}],
                 "encoder": "mini", "method": "base"}  # fmt: skip
        group = {**found, "analysis": "pos", "task": "retrieval", "group": "NOUN", "value": 0.4, "low": 0.3, "high": 0.5,
                 "items": []}  # fmt: skip
        text = "".join(json.dumps(line) + "\n" for line in [*lines, found, group])
        (place / "results.jsonl").write_text(text, encoding="utf-8")
        record = {"method": "rotation", "encoder": "mini", "texts": [{"path": "t.tsv", "langs": ["en", "de"],
                  "sentence_pairs": 10, "word_pairs": 20}], "settings": {"layers": [1]}, "calque": "0.1",
                  "seconds": {"words": 1.0, "method": 2.0}}  # fmt: skip
        (place / "calque-run.json").write_text(json.dumps(record), encoding="utf-8")

    def write_report(folder: Path, rng: random.Random) -> object:
        return report([folder / "run"], out=folder / f"report.{rng.choice(('html', 'md', 'json'))}")

    def loop(folder: Path) -> Any:
        return line_loop(FittedLine(), folder, schedule=Schedule(learning_rate=0.1), identity={"text": "x"})

    def checkpoint(folder: Path) -> None:
        made = loop(folder)
        for _ in range(3):
            made.objective.module(torch.ones(1, 3)).sum().backward()
            made.optimiser.step()
            made.step += 1
            made.history.append({"step": made.step, "loss": 1.0})
        made.save()

    def resume(folder: Path, _: random.Random) -> object:
        made = loop(folder)
        made.resume()
        made.objective.module(torch.ones(1, 3)).sum().backward()
        made.optimiser.step()
        made._write_metrics()
        return made.history

    def corpus() -> Any:
        from calque.text import ParallelCorpus

        return ParallelCorpus.of(*([pair[k].split() for pair in PAIRS] for k in (0, 1)), langs=LANGS)

    def tables(model: str) -> Reader:
        def make(folder: Path) -> None:
            WordAligner.train(corpus(), model=model).save(folder / "t.safetensors")

        return Reader(make, lambda folder, _: WordAligner.open(folder / "t.safetensors").align(corpus()))

    return {
        "results and runs (report)": Reader(results, write_report, only=("run/*",)),
        "studies (TOML)": Reader(put("study.toml", STUDY), lambda folder, _: read_study(folder / "study.toml")),
        "checkpoints": Reader(checkpoint, resume, only=("*.pt",)),
        "words --tables (HMM)": tables("hmm"),
        "words --tables (fast_align)": tables("fast-align"),
    }


# -- running -----------------------------------------------------------------------------------------------------------
@dataclass
class Told:
    """What became of one input."""

    seed: int
    what: str  # refused, accepted or failed
    why: str = ""


def damaged(reader: Reader, valid: Path, place: Path, name: str, seed: int) -> random.Random:
    """Put the input of a seed into a folder."""
    rng = random.Random(f"{name}/{seed}")
    shutil.rmtree(place, ignore_errors=True)
    files = sorted(path for path in valid.rglob("*") if path.is_file())
    chosen = [path for path in files if any(fnmatch(str(path.relative_to(valid)), only) for only in reader.only)]
    target = rng.choice(chosen) if seed >= 0 else Path()
    one = getattr(reader.make, "one", False)
    for path in ([target] if seed >= 0 else chosen[:1]) if one else files:
        copy = place / path.relative_to(valid)
        copy.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        copy.write_bytes(mutation(path.name)(rng, content) if path == target else content)
    if seed >= 0 and rng.random() < 0.01:
        (place / target.relative_to(valid)).unlink()
    return rng


def attempt(reader: Reader, valid: Path, place: Path, name: str, seed: int) -> Told:
    """Read one input."""
    from calque.errors import CalqueError

    rng = damaged(reader, valid, place, name, seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(place, rng)
    except CalqueError as error:
        said = str(error)
        if "\n" in said or len(said) > 2000 or "weights_only" in said:
            return Told(seed, "failed", f"not one plain line: {said!r:.300}")
        return Told(seed, "refused", said[:300])
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        own = [step for step in where if "calque" in step.filename and "dev/" not in step.filename] or list(where)
        return Told(
            seed,
            "failed",
            f"{type(error).__name__}: {str(error)[:160]!r} at {Path(own[-1].filename).name}:{own[-1].lineno}",
        )
    return Told(seed, "accepted")


def _in_child(work: Callable[[Any], None]) -> tuple[int, Any]:
    """Fork a process that writes lines to a pipe; its number, and the pipe."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, os.fdopen(ours, "rb", buffering=0)
    code = 1
    try:
        os.close(ours)
        with open(os.devnull, "r+b") as nothing:
            for stream in (1, 2):
                os.dup2(nothing.fileno(), stream)
        work(theirs)
        code = 0
    except BaseException as error:
        os.write(
            theirs,
            json.dumps({"seed": -1, "what": "failed", "why": f"{type(error).__name__}: {error}"}).encode() + b"\n",
        )
    finally:
        os._exit(code)


def _limit_memory() -> None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            limit = int(line.split()[1]) * 1024 + BYTES
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _seconds(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def results(name: str, reader: Reader, seeds: list[int], folder: Path) -> Iterator[Told]:
    """What becomes of each seed's input; a process that hangs or dies is replaced."""
    valid, place = folder / "valid", folder / "input"
    valid.mkdir()
    pid, pipe = _in_child(lambda _: reader.make(valid))
    said = pipe.read()
    if os.waitpid(pid, 0)[1]:
        yield Told(-1, "failed", f"the valid files could not be made: {said!r:.300}")
        return
    left = [-1, *seeds]  # the valid files first, which must be read
    while left:

        def work(out: int, left: list[int] = left) -> None:
            _limit_memory()
            for seed in left:
                told = attempt(reader, valid, place, name, seed)
                os.write(out, json.dumps(vars(told)).encode() + b"\n")

        pid, pipe = _in_child(work)
        buffer, began, used = b"", time.monotonic(), _seconds(pid)
        why = ""
        while left and not why:
            if select.select([pipe], [], [], 0.5)[0]:
                block = pipe.read(65536)
                if not block:
                    break
                *lines, buffer = (buffer + block).split(b"\n")
                for line in lines:
                    told = Told(**json.loads(line))
                    if left.pop(0) >= 0:
                        yield told
                    elif told.what != "accepted":
                        yield Told(-1, "failed", f"the valid files are not accepted: {told.why}")
                began, used = time.monotonic(), _seconds(pid)
            elif _seconds(pid) - used > SECONDS or time.monotonic() - began > WALL:
                why = f"hangs: more than {SECONDS:.0f} s"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        pipe.close()
        if left:
            died = (
                signal.Signals(os.WTERMSIG(status)).name
                if os.WIFSIGNALED(status)
                else f"exit code {os.WEXITSTATUS(status)}"
            )
            yield Told(left.pop(0), "failed", why or f"the process died: {died}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1000, help="for each reader")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--readers", nargs="*", default=[], help="names, or a part of them; default: all")
    parser.add_argument("--replay", type=int, help="one seed, in this process, with its traceback")
    given = parser.parse_args()
    with contextlib.redirect_stderr(io.StringIO()):
        import transformers.models.bert.modeling_bert  # noqa: F401  before the fork, once for all
    chosen = {
        name: reader
        for name, reader in readers().items()
        if not given.readers or any(part in name for part in given.readers)
    }
    if given.replay is not None:
        return _replay(chosen, given.replay)
    print(
        f"| {'reader':28} | inputs | refused | accepted | failures |\n|{'-' * 30}|-------:|--------:|---------:|---------:|"
    )
    failures: list[str] = []
    for name, reader in chosen.items():
        counts = {"refused": 0, "accepted": 0, "failed": 0}
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            for told in results(name, reader, list(range(given.first, given.first + given.inputs)), Path(folder)):
                counts[told.what] += 1
                if told.what == "failed":
                    failures.append(f"{name}: --replay {told.seed}: {told.why}")
        n = sum(counts.values())
        print(
            f"| {name:28} | {n:6,} | {counts['refused']:7,} | {counts['accepted']:8,} | {counts['failed']:8,} |",
            flush=True,
        )
    print("\n".join(["", *failures]) if failures else "\nno failure")
    return min(100, len(failures))


def _replay(chosen: dict[str, Reader], seed: int) -> int:
    for name, reader in chosen.items():
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            valid, place = Path(folder, "valid"), Path(folder, "input")
            valid.mkdir()
            reader.make(valid)
            rng = damaged(reader, valid, place, name, seed)
            print(
                f"{name}, {seed}:", *(f"{path.relative_to(place)} {path.stat().st_size}" for path in place.rglob("*.*"))
            )
            try:
                print("accepted:", repr(reader.read(place, rng))[:300])
            except Exception:
                traceback.print_exc()
    return 0


if __name__ == "__main__":
    sys.exit(main())
