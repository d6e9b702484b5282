"""Spans to ask vectors about, from whatever annotated file there is: what edge probing reads, as `ProbeText`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from os import PathLike, fspath
from typing import Literal

import numpy as np

from calque.annotated import Labels, ProbeText, TaggedText, Treebank
from calque.corpora.brackets import is_bracketed, read_trees
from calque.corpora.conllu import read_treebank
from calque.corpora.edges import Asked, Target, gather, is_edges, read_edges
from calque.corpora.harvest import Losses, OnError
from calque.corpora.lines import Flaw, read_lines
from calque.corpora.rows import PREFIX
from calque.corpora.tagged import find_format, read_tagged
from calque.errors import InputError
from calque.offsets import offsets_of
from calque.spans import span_table

Kind = Literal["edges", "brackets", "conllu", "tags"]

#: the probes that are made here, and from what
PROBES = {"pos": ("conllu", "brackets", "tags"), "dependencies": ("conllu",), "constituents": ("brackets",),
          "entities": ("tags",)}  # fmt: skip
_CALLED = {"brackets": "bracketed trees", "conllu": "CoNLL-U", "tags": "columns of words and tags"}
_HEAD = 200  # lines that are looked at


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

    Args:
        path: jiant's JSON lines (`edges.read_edges`), CoNLL-U (`conllu.read_treebank`), bracketed trees
            (`brackets.read_trees`), or columns of words and tags (`tagged.read_tagged`); packed or not. A data set of the
            hub (`hub:NAME`) has tags, or trees for `dependencies`.
        lang: the language.
        probe: which one to make.

            - `pos`: each word and its part of speech.
            - `dependencies`: each word (`span1`), its head (`span2`) and the relation; the root is its own head, as in the
              data of Tenney et al. (`ud_to_json.py` of jiant).
            - `constituents`: each phrase; parts of speech are a probe of their own, as in Tenney et al. (§2).
            - `entities`: each span of BIO or other tags and its type.

            None where the file leaves no choice; JSON lines may have any name, which is only shown.
        column: where tags stand, see `read_tagged`.
        subtypes: of relations, see `read_treebank`.
        on_error: "raise", or "skip" to leave out and count what cannot be read.

    Raises:
        InputError: see the readers; or the file has no such probe.
        SettingError: an argument has no such value.
    """
    kind = _kind(path, probe)
    if kind == "edges":
        return read_edges(path, lang=lang, probe=probe or "", on_error=on_error)
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
        losses = Losses(path, on_error, "trees")
        return gather(_of_trees(path, probe == "pos"), losses, path, lang, probe or "constituents")
    return of_tags(read_tagged(path, lang=lang, column=column, on_error=on_error), probe)


def _kind(path: str | PathLike[str], probe: str | None) -> Kind:
    """What is in a file."""
    name = fspath(path)
    if name.startswith(PREFIX) or os.path.isdir(name):
        return "conllu" if probe == "dependencies" else "tags"
    head = [line for line in islice(read_lines(path), _HEAD) if not isinstance(line, Flaw)]
    if is_edges(next((line for line in head if line.strip()), "")):
        return "edges"
    if is_bracketed(head):
        return "brackets"
    format = find_format(path)
    return "conllu" if format == "conllu" or (format == "hub" and probe == "dependencies") else "tags"


def _of_trees(path: str | PathLike[str], tags: bool) -> Iterator[Asked | Flaw]:
    for tree in read_trees(path):
        if isinstance(tree, Flaw):
            yield tree
        elif tags:
            yield Asked(tree.line, tree.words, [Target([(k, k + 1)], [tag]) for k, tag in enumerate(tree.tags)])
        else:
            yield Asked(tree.line, tree.words, [Target([(c.start, c.end)], [c.label]) for c in tree.constituents])


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
