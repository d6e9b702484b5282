"""Spans to ask vectors about, from whatever annotated file there is: what edge probing reads, as `ProbeText`."""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple

import numpy as np

from calque.annotated import Labels, ProbeText, TaggedText, Treebank
from calque.corpora.conllu import read_treebank
from calque.corpora.harvest import LabelBuilder, Losses, OnError, SentenceBuilder
from calque.corpora.lines import Flaw, json_lines, read_lines
from calque.corpora.rows import PREFIX
from calque.corpora.tagged import find_format, read_tagged
from calque.errors import InputError
from calque.offsets import offsets_of
from calque.segment import split_spaces
from calque.spans import span_table
from calque.storage import write_lines

Kind = Literal["edges", "brackets", "conllu", "tags"]

#: the probes that are made here, and from what
PROBES = {"pos": ("conllu", "brackets", "tags"), "dependencies": ("conllu",), "constituents": ("brackets",),
          "entities": ("tags",)}  # fmt: skip
_CALLED = {"brackets": "bracketed trees", "conllu": "CoNLL-U", "tags": "columns of words and tags"}
_HEAD = 200  # lines that are looked at

_PIECE = re.compile(r"[()]|[^\s()]+")
_FUNCTION = re.compile(r"\A([^-=|]+)[-=|].*", re.DOTALL)  # of `NP-SBJ-1` and `NP=2`; `-LRB-` has none
_TRACE = "-NONE-"
_ROOTS = frozenset(["", "TOP", "ROOT", "VROOT", "S1"])
_ESCAPED = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}

Span = tuple[int, int]


class Target(NamedTuple):
    """One or two spans of a sentence with what they are.

    Attributes:
        spans: of each its first word and the one behind its last, from 0.
        labels: none, one or several.
    """

    spans: Sequence[Span]
    labels: Sequence[str]


class Asked(NamedTuple):
    """A sentence with its targets, and the line where it begins."""

    line: int
    words: Sequence[str]
    targets: Sequence[Target]


def read_probe(
    path: str | PathLike[str],
    *,
    lang: str,
    probe: str | None = None,
    column: int | str | None = None,
    subtypes: bool = False,
    on_error: OnError = "raise",
) -> ProbeText:
    """Read labelled spans, or make them of other annotation.

    A line of jiant's edge probing is

        {"text": "Ian ate ice cream", "targets": [{"span1": [1, 2], "span2": [2, 4], "label": "A1"}], "info": {}}

    Words are what stands between spaces, spans are half-open (`[2, 4]` is *ice cream*), and `label` is a string or a list of
    strings (several labels at once, as of semantic proto-roles; an empty list for none). Either no target of a file has
    `span2`, or all have it. Other keys have no meaning.

    Args:
        path: jiant's JSON lines (below), CoNLL-U (`conllu.read_treebank`), bracketed trees (`read_trees`), or columns of
            words and tags (`tagged.read_tagged`); packed or not. A data set of the hub (`hub:NAME`) has tags, or trees for
            `dependencies`.
        lang: the language.
        probe: which one to make.

            - `pos`: each word and its part of speech.
            - `dependencies`: each word (`span1`), its head (`span2`) and the relation; the root is its own head, as in the
              data of Tenney et al. (`ud_to_json.py` of jiant).
            - `constituents`: each phrase; parts of speech are a probe of their own, as in Tenney et al. (§2).
            - `entities`: each span of BIO or other tags and its type.

            None where the file leaves no choice; JSON lines may have any name, as srl, which is only shown.
        column: where tags stand, see `read_tagged`.
        subtypes: of relations, see `read_treebank`.
        on_error: "raise", or "skip" to leave out and count what cannot be read.

    Raises:
        InputError: see the readers; the file has no such probe or no usable line; or (`raise`), with its line, what cannot
            be read, such as a span that is not in its text.
        SettingError: an argument has no such value.
    """
    kind = _kind(path, probe)
    if kind == "edges":
        return _gather(_objects(path), Losses(path, on_error, "texts"), path, lang, probe or "")
    if kind == "conllu" and probe is None:
        fact = "CoNLL-U has two probes, expected the name of one; choose --probe pos or --probe dependencies"
        raise InputError(fact, path=path)
    if probe is not None and kind not in PROBES.get(probe, ()):
        made = " or ".join(name for name, kinds in PROBES.items() if kind in kinds)
        fact = f"no probe {probe!r} in {_CALLED[kind]}, expected {made}"
        others = ", ".join(_CALLED[other] for other in PROBES.get(probe, ()))
        raise InputError(f"{fact}{f'; {probe} are read from {others}, or JSON lines' if others else ''}", path=path)
    if probe == "dependencies":
        return of_treebank(read_treebank(path, lang=lang, on_error=on_error, subtypes=subtypes))
    if kind == "brackets":
        trees = read_trees(path, tags=probe == "pos")
        return _gather(trees, Losses(path, on_error, "trees"), path, lang, probe or "constituents")
    return of_tags(read_tagged(path, lang=lang, column=column, on_error=on_error), probe)


def _kind(path: str | PathLike[str], probe: str | None) -> Kind:
    """What is in a file."""
    name = fspath(path)
    if name.startswith(PREFIX) or os.path.isdir(name):
        return "conllu" if probe == "dependencies" else "tags"
    head = [line for line in islice(read_lines(path), _HEAD) if not isinstance(line, Flaw)]
    if _is_object(next((line for line in head if line.strip()), "")):
        return "edges"
    if _is_bracketed(head):
        return "brackets"
    format = find_format(path)
    return "conllu" if format == "conllu" or (format == "hub" and probe == "dependencies") else "tags"


def of_tags(text: TaggedText, probe: str | None = None) -> ProbeText:
    """Every tag of a text as a target of its word (`pos`), or every span as one (`entities`); by what the tags are where
    nobody says which.

    Raises:
        InputError: the tags are of the other kind.
    """
    names, n_words = text.tags.names, int(text.sentences.lengths().sum())
    has_spans = any(name.startswith("B-") for name in names)
    probe = probe or ("entities" if has_spans else "pos")
    if has_spans != (probe == "entities"):
        tags = ", ".join(name for name in names if name != "O")[:80] or "no tag but O"
        expected = "tags of words (--probe entities reads spans)" if has_spans else "spans, as B-PER, I-PER and O"
        raise InputError(f"has the tags {tags}; expected {expected} for the probe {probe}", path=text.path)
    words = offsets_of(text.sentences.lengths())
    if probe == "entities":
        found = span_table(text.tags.codes, names, words)
        labels = Labels(found.type, found.types)
        return _one_label(text, words, np.stack([found.start, found.end], axis=1)[:, None], labels, probe)
    places = np.arange(n_words)
    return _one_label(text, words, np.stack([places, places + 1], axis=1)[:, None], text.tags, probe)


def of_treebank(bank: Treebank) -> ProbeText:
    """Every word with its head and the relation between them; the root with itself."""
    words = offsets_of(bank.sentences.lengths())
    places = np.arange(words[-1])
    first = np.repeat(words[:-1], np.diff(words))
    heads = np.where(bank.heads > 0, first + bank.heads - 1, places)
    spans = np.stack([np.stack([each, each + 1], axis=1) for each in (places, heads)], axis=1)
    return _one_label(bank, words, spans, bank.relations, "dependencies")


def _one_label(
    text: TaggedText | Treebank, words: np.ndarray, spans: np.ndarray, labels: Labels, probe: str
) -> ProbeText:
    """Targets with one label each.

    Args:
        words: int64 `[n_sentences + 1]`, where the words of each sentence begin.
        spans: int64 `[n_targets, 1 or 2, 2]`, counted over all words, in the order of the text.
    """
    sentence = np.searchsorted(words, spans[:, 0, 0], side="right") - 1
    counts = np.bincount(sentence, minlength=len(words) - 1)
    inside = (spans - words[sentence][:, None, None]).astype(np.int32)
    return ProbeText(
        text.sentences, offsets_of(counts), inside, labels, np.arange(len(labels) + 1), probe, text.path, text.lines
    )


def _gather(
    items: Iterable[Asked | Flaw], losses: Losses, path: str | PathLike[str], lang: str, probe: str
) -> ProbeText:
    """Return all sentences with their targets as arrays.

    Args:
        items: in the order of the file. All targets have one span, or all have two; flaws are for `losses` to judge.
        losses: see `Losses`.
        probe: of what kind the labels are; "" for "spans" or "pairs of spans", whichever they are.

    Raises:
        InputError: see `Losses`.
    """
    words, labels, lines = SentenceBuilder(), LabelBuilder(), array("q")
    spans, counts, label_counts = array("i"), array("q"), array("q")
    width = 0
    for item in items:
        if isinstance(item, Flaw):
            losses.take(item)
            continue
        words.add(item.words)
        lines.append(item.line)
        counts.append(len(item.targets))
        for target in item.targets:
            width = width or len(target.spans)
            for span in target.spans:
                spans.extend(span)
            labels.add(target.labels)
            label_counts.append(len(target.labels))
    losses.settle(len(lines))
    return ProbeText(
        words.finish(lang), offsets_of(counts), np.array(spans, np.int32).reshape(-1, width or 1, 2), labels.finish(),
        offsets_of(label_counts), probe or ("pairs of spans" if width == 2 else "spans"), fspath(path),
        np.array(lines, np.int64),
    )  # fmt: skip


# -- bracketed trees, the format of the Penn Treebank ------------------------------------------------------------------
def _is_bracketed(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file are of trees: a bracket opens the first, and there is one in each. Columns can begin
    with a word `(`, but have others."""
    lines = [line for line in lines if line.strip()]
    return bool(lines) and lines[0].lstrip().startswith("(") and all("(" in line or ")" in line for line in lines)


def read_trees(path: str | PathLike[str], *, tags: bool = False) -> Iterator[Asked | Flaw]:
    """Read phrase structure as brackets, `(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)))`, each tree on one line or several.

    Traces (`-NONE-`) are left out, and so are phrases of nothing else; function tags and numbers are cut off (`NP-SBJ-1` is
    `NP`), and what encloses a whole tree (`TOP`, `ROOT`, or no label) is no phrase. All else is one, also where two have
    the same words (`(S (VP …))`). A tree that is not closed ends before a blank line.

    Args:
        tags: the targets are each word with its part of speech, instead of the phrases, the outer ones first.
    """
    pieces: list[str] = []
    begin = depth = 0

    def unclosed() -> Flaw:
        fact = f"the tree that begins here lacks {depth} closing bracket{'s' if depth > 1 else ''}; is it whole?"
        return Flaw(begin, "tree not closed", fact, path)

    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            yield line
            pieces, depth = [], 0
            continue
        if pieces and not line.strip():
            yield unclosed()
            pieces, depth = [], 0
        for piece in _PIECE.findall(line):
            begin = begin if pieces else number
            pieces.append(piece)
            depth += {"(": 1, ")": -1}.get(piece, 0)
            if depth <= 0:
                tree = _tree(pieces, tags)
                if isinstance(tree, str):
                    yield Flaw(begin, "not a tree", f"{tree}, expected trees as (NP (DT the) (NN cat))", path)
                else:
                    yield Asked(begin, *tree)
                pieces, depth = [], 0
    if pieces:
        yield unclosed()


@dataclass
class _Node:
    start: int
    phrase: int  # its place among the phrases
    label: str | None = None
    inside: bool = False  # there are nodes in it
    word: bool = False


def _tree(pieces: Sequence[str], tags: bool) -> tuple[list[str], list[Target]] | str:
    """Return words and targets of a tree, or what is wrong with it."""
    words: list[str] = []
    of_words: list[Target] = []
    phrases: list[Target | None] = []
    nodes: list[_Node] = []
    for piece in pieces:
        if piece == "(":
            if nodes:
                if nodes[-1].word:
                    return f"a bracket behind the word {words[-1]!r:.40}"
                nodes[-1].label, nodes[-1].inside = nodes[-1].label or "", True
            nodes.append(_Node(len(words), len(phrases)))
            phrases.append(None)
        elif not nodes:
            return f"{piece!r:.40} outside of all brackets"
        elif piece != ")":
            if nodes[-1].label is None:
                nodes[-1].label = piece
            elif nodes[-1].word or nodes[-1].inside:
                return f"the word {piece!r:.40} without a bracket of its own"
            else:
                nodes[-1].word = True
                words.append(_ESCAPED.get(piece) or piece.replace(r"\/", "/").replace(r"\*", "*"))
        else:
            node = nodes.pop()
            label = _FUNCTION.sub(r"\1", node.label or "")
            if node.word and node.label == _TRACE:
                words.pop()
            elif node.word:
                of_words.append(Target([(node.start, node.start + 1)], [label]))
            elif len(words) > node.start and (nodes or label not in _ROOTS):
                phrases[node.phrase] = Target([(node.start, len(words))], [label or "_"])
    if not words:
        return "a tree without words"
    return words, of_words if tags else [phrase for phrase in phrases if phrase is not None]


# -- JSON lines, the format of jiant (Wang et al. 2019) ----------------------------------------------------------------
def _is_object(line: str) -> bool:
    """Whether a line of a file is an object with targets."""
    try:
        return line.lstrip().startswith("{") and "targets" in json.loads(line)
    except (ValueError, RecursionError):
        return '"targets"' in line  # damaged, which is for the reader to say


def write_edges(text: ProbeText, path: str | PathLike[str]) -> None:
    """Write JSON lines that `read_probe` reads, and jiant.

    Raises:
        InputError: a word has a space in it, so that the words could not be found again.
        OutputError: the file cannot be written.
    """
    write_lines(path, (json.dumps(each, ensure_ascii=False) + "\n" for each in _records(text)))


def _records(text: ProbeText) -> Iterator[dict[str, Any]]:
    spans, labels = text.spans.tolist(), text.labels.to_list()
    for sentence, (words, a, b) in enumerate(zip(text.sentences, text.offsets[:-1], text.offsets[1:], strict=True)):
        line = " ".join(words.words)
        if split_spaces(line) != list(words.words):
            fact = f"sentence {sentence + 1} has a word with a space in it ({line!r:.60}); JSON lines divide words at spaces"
            raise InputError(fact, path=text.path)
        targets = []
        for k in range(a, b):
            names = [f"span{number}" for number in (1, 2)]
            found = labels[text.label_offsets[k] : text.label_offsets[k + 1]]
            label = found[0] if len(found) == 1 else found
            targets.append({**dict(zip(names, spans[k], strict=False)), "label": label})
        yield {"text": line, "targets": targets}


def _objects(path: str | PathLike[str]) -> Iterator[Asked | Flaw]:
    pairs: bool | None = None  # as of the first target
    for number, values in json_lines(enumerate(read_lines(path), 1)):
        if isinstance(values, Flaw):
            yield values
            continue
        asked = _asked(number, values, pairs, path)
        if pairs is None and isinstance(asked, Asked) and asked.targets:
            pairs = len(asked.targets[0].spans) == 2
        yield asked


def _asked(number: int, values: Any, pairs: bool | None, path: str | PathLike[str]) -> Asked | Flaw:
    if not isinstance(values, dict):
        return Flaw(number, "no JSON object", "not a JSON object, expected one a line; is the file whole?", path)
    text, listed = values.get("text"), values.get("targets")
    if not isinstance(text, str) or not isinstance(listed, list):
        keys = ", ".join(map(str, values))
        return Flaw(number, "no targets", f"has the keys {keys:.80}, expected a text and a list of targets", path)
    try:
        text.encode()
    except UnicodeEncodeError:
        return Flaw(number, "not text", "the text holds half a surrogate pair, expected text; is it damaged?", path)
    words, targets = split_spaces(text), []
    if not words:
        return Flaw(number, "empty text", "the text has no words, expected a sentence", path)
    for k, each in enumerate(listed, 1):
        target = _target(each, len(words))
        if target is None:
            fact = f"is {each!r:.80}, expected label, span1 and maybe span2, [start, end] with 0 <= start < end <= {len(words)}"
            return Flaw(number, "no target", f"target {k} of {len(listed)} {fact}", path)
        if pairs is not None and pairs != (len(target.spans) == 2):
            fact = f"target {k} of {len(listed)} has {'one span' if pairs else 'two spans'}, unlike those before it"
            return Flaw(number, "one or two spans", fact, path)
        pairs = len(target.spans) == 2
        targets.append(target)
    return Asked(number, words, targets)


def _target(given: Any, n_words: int) -> Target | None:
    """Return a target of a text, or None if it is none."""
    if not isinstance(given, Mapping):
        return None
    spans = [given.get("span1"), *([] if given.get("span2") is None else [given["span2"]])]
    for span in spans:
        if not (isinstance(span, list) and len(span) == 2 and all(type(place) is int for place in span)):
            return None
        if not 0 <= span[0] < span[1] <= n_words:
            return None
    labels = given.get("label")
    labels = labels if isinstance(labels, list) else [labels]
    if not all(isinstance(name, str | int) and name != "" for name in labels):
        return None
    return Target([(start, end) for start, end in spans], list(dict.fromkeys(map(str, labels))))
