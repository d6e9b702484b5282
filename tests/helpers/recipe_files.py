"""Write small files in the layout that the recipes expect; words of other languages are English in
capitals with a suffix.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]
TAGS = {"cat": "B-PER", "house": "B-LOC", "time": "B-MISC"}
UPOS = ["DET", "NOUN", "VERB", "DET", "NOUN", "ADP", "NOUN", "CCONJ", "NOUN", "ADP"]
N = 30  # number of texts in a file


def sentences(lang: str, seed: int = 0) -> list[list[str]]:
    """Return the sentences in an invented form of a language: except in English, words end in the
    first letter of its code.
    """
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(len(WORDS), rng.integers(4, 8), replace=False) for _ in range(N)]
    return [[word(WORDS[k], lang) for k in each] for each in chosen]


def word(english: str, lang: str) -> str:
    return english if lang == "en" else f"{english.upper()}{lang[0]}"


def parallel(lang: str, seed: int) -> str:
    pairs = zip(sentences("en", seed), sentences(lang, seed), strict=True)
    origins = ("tatoeba", "multi30k")
    return "".join(
        f"{' '.join(a)}\t{' '.join(b)}\t{origins[k % 2]}\n" for k, (a, b) in enumerate(pairs)
    )


def links(lang: str, seed: int) -> str:
    return "".join(
        " ".join(f"{k}-{k}" for k in range(len(each))) + "\n" for each in sentences(lang, seed)
    )


def gold(lang: str, seed: int) -> str:
    lines = zip(
        sentences("en", seed), sentences(lang, seed), links(lang, seed).splitlines(), strict=True
    )
    return "".join(f"{' '.join(a)}\t{' '.join(b)}\t{linked}\n" for a, b, linked in lines)


def plain(lang: str, seed: int) -> str:
    """Return text with two words that are spelt alike in all languages."""
    same = ("Paris", "2024")
    return "".join(
        f"{' '.join(each)} {same[k % 2]}\n" for k, each in enumerate(sentences(lang, seed))
    )


def dictionary(lang: str, seed: int) -> str:
    return "".join(f"{each}\t{word(each, lang)}\n" for each in WORDS)


def tagged(lang: str, seed: int, *, between: str = "\t", middle: str = "") -> str:
    tags = {word(each, lang): tag for each, tag in TAGS.items()}
    blocks = (
        [f"{w}{between}{middle}{tags.get(w, 'O')}\n" for w in each]
        for each in sentences(lang, seed)
    )
    return "\n".join("".join(block) for block in blocks)


def numbered(lang: str, seed: int) -> str:
    blocks = (
        [f"{k}\t{w}\t{TAGS.get(w, 'O')}\n" for k, w in enumerate(each, 1)]
        for each in sentences(lang, seed)
    )
    return "\n".join("".join(block) for block in blocks) + "\n"


def upos(lang: str, seed: int) -> str:
    kinds = {word(each, lang): kind for each, kind in zip(WORDS, UPOS, strict=True)}
    return "\n".join("".join(f"{w}\t{kinds[w]}\n" for w in each) for each in sentences(lang, seed))


def treebank(lang: str, seed: int) -> str:
    kinds, blocks = dict(zip(WORDS, UPOS, strict=True)), []
    for each in sentences("en", seed):
        rows = [
            f"{k}\t{w}\t_\t{kinds[w]}\t_\t_\t{k - 1}\t{'root' if k == 1 else 'dep'}\t_\t_\n"
            for k, w in enumerate(each, 1)
        ]
        blocks.append("".join(rows))
    return "\n".join(blocks) + "\n"


def slots(lang: str, seed: int) -> str:
    blocks = []
    for k, each in enumerate(sentences(lang, seed)):
        intent, tags = f"intent{k % 2}", {word(w, lang): tag for w, tag in TAGS.items()}
        rows = "".join(f"{n}\t{w}\t{intent}\t{tags.get(w, 'O')}\n" for n, w in enumerate(each, 1))
        blocks.append(f"# id = {k}\n# text = {' '.join(each)}\n# intent = {intent}\n{rows}")
    return "\n".join(blocks) + "\n"


def facebook(lang: str, seed: int) -> str:
    lines = []
    for k, each in enumerate(sentences(lang, seed)):
        text, starts = " ".join(each), np.cumsum([0, *(len(w) + 1 for w in each)])[:-1].tolist()
        spans = [{"start": start, "length": len(w)} for start, w in zip(starts, each, strict=True)]
        tokens = json.dumps(
            {"tokenizations": [{"tokens": each, "tokenSpans": spans}]}, separators=(",", ":")
        )
        lines.append(f"intent{k % 2}\t0:{len(each[0])}:LOC\t{text}\t{lang}_XX\t{tokens}\n")
    return "".join(lines)


def entailed(lang: str, seed: int) -> str:
    labels = ("entailment", "neutral", "contradiction")
    pairs = zip(sentences(lang, seed), sentences(lang, seed + 1), strict=True)
    return "".join(
        f"{' '.join(a)}\t{' '.join(b)}\t{labels[k % 3]}\n" for k, (a, b) in enumerate(pairs)
    )


def sick(lang: str, seed: int) -> str:
    labels = ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")
    pairs = zip(sentences("en", seed), sentences("en", seed + 1), strict=True)
    rows = "".join(
        f"{k}\t{' '.join(a)}\t{' '.join(b)}\t{labels[k % 3]}\n" for k, (a, b) in enumerate(pairs)
    )
    return f"pair_ID\tsentence_A\tsentence_B\tentailment_label\n{rows}"


def sentiment(lang: str, seed: int) -> str:
    return "".join(f"{k % 3}\t{' '.join(each)}\n" for k, each in enumerate(sentences(lang, seed)))


def senses(lang: str, seed: int) -> str:
    rows = []
    for k, each in enumerate(sentences("en", seed)):
        first, *rest = each
        words = "".join(f"<wf>{w}</wf>" for w in rest)
        rows.append(
            f'<sentence><instance id="i{k}" lemma="{first}" pos="NOUN">{first}</instance>{words}</sentence>'
        )
    return f"<corpus>{''.join(rows)}</corpus>"


def sense_keys(lang: str, seed: int) -> str:
    return "".join(f"i{k} {each[0]}%{k % 2}\n" for k, each in enumerate(sentences("en", seed)))


#: functions that return the content of a file, by a pattern of its path
KINDS: tuple[tuple[str, Callable[[str, int], str]], ...] = (
    (r"parallel/\w+\.en-(?P<lang>\w+)\.tsv", parallel),
    (r"links/\w+\.en-(?P<lang>\w+)\.align", links),
    (r"align/\w+\.dev\.en-(?P<lang>\w+)\.tsv", gold),
    (r"align/gold\.(?P<lang>\w+)-en\.tsv", gold),
    (r"mono(-nc)?/(?P<lang>\w+)\.txt", plain),
    (r"dict/train\.en-(?P<lang>\w+)\.tsv", dictionary),
    (r"ner/panx\.\w+\.(?P<lang>\w+)\.tsv", tagged),
    (r"ner/en_ewt\.\w+\.iob2", numbered),
    (r"ner/conll2002\.\w+\.\w+", lambda lang, seed: tagged(lang, seed, between=" ", middle="NC ")),
    (r"ud/upos\.\w+\.(?P<lang>\w+)\.tsv", upos),
    (r"ud/en_ewt\.\w+\.conllu", treebank),
    (r"slot/xsid\.\w+\.(?P<lang>[\w-]+)\.conll", slots),
    (r"slot/fb\.\w+\.(?P<lang>\w+)\.tsv", facebook),
    (r"nli/xnli\.\w+\.(?P<lang>\w+)\.tsv", entailed),
    (r"nli/sick_en_nl\.tsv", sick),
    (r"sentiment/umsab\.\w+\.(?P<lang>\w+)\.tsv", sentiment),
    (r"wsd/\w+\.data\.xml", senses),
    (r"wsd/\w+\.gold\.key\.txt", sense_keys),
)


def kind_of(path: str) -> tuple[Callable[[str, int], str], str] | None:
    """Return the function that makes a file of the recipes, and the language of the file; None for
    other strings.
    """
    for pattern, make in KINDS:
        if match := re.fullmatch(pattern + r"(\.gz)?", path):
            return make, match.groupdict().get("lang", "en")
    return None


def write(folder: Path, path: str) -> None:
    """Write a file of the recipes unless it exists; the key file of a text with senses is written
    with it.
    """
    made, file = kind_of(path), folder / path
    if made is None or file.exists():
        return
    make, lang = made
    # Training and test texts differ, but links belong to the text with the same name.
    seed = sum(map(ord, file.name.split(".")[0])) % 1000
    text = make(lang, seed).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text) if path.endswith(".gz") else text)
    if ".data.xml" in path:
        write(folder, path.replace(".data.xml", ".gold.key.txt"))


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in nested lists and dictionaries."""
    if isinstance(value, str):
        yield value.rpartition("=")[2] if value[2:3] == "=" else value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
