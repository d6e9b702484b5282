"""Tests of unusable items in every line-based reader: refused with file and line, or skipped and counted by reason."""

import json
import re

import pytest

from calque.corpora import SkippedWarning, read_dictionary, read_labelled, read_probe, read_tagged, read_treebank
from calque.errors import InputError


def row(number, word, head, relation="dep", upos="X"):
    return f"{number}\t{word}\t_\t{upos}\t_\t_\t{head}\t{relation}\t_\t_\n"


def tree(*heads):
    return "".join(row(k, f"w{k}", head) for k, head in enumerate(heads, 1)) + "\n"


def edges(**values):
    return json.dumps({"text": "a b", "targets": [values]}) + "\n"


def entries(path, **how):
    return read_dictionary(path, langs=("en", "de"), **how)


def facebook(path, **how):
    return read_tagged(path, format="facebook", **how)


def numbered(path, **how):
    return read_tagged(path, format="numbered", **how)


ENTRY, PAIRS, HEADER, OBJECT = "a b\n", "a\tb\tneutral\n", "text\tlabel\ngood\tx\n", '{"text": "good", "label": "x"}\n'
TABS, NUMBERED, ASKED = "\ngood\tO\n", "\n1\tgood\tO\n", "\n# intent = y\n1\tgood\ty\tO\n"
WIDE, REQUEST, EDGE = "\n1\tgood\t_\tX\tX\t_\t0\tr\t_\t_\n", "x\t0:1:a\tgood\n", edges(span1=[0, 1], label="X")
# Reader, content, line of the unusable item, reason and message. One other item of each content is usable.
UNUSABLE = [
    (entries, ENTRY + "alone\n", 2, "not two words", "one word, expected a word and its translation, separated by a"),
    (entries, ENTRY + "a\t\n", 2, "not two words", "one word, expected a word and its translation"),
    (entries, ENTRY + "a\tb\t0.5\n", 2, "not two words", "3 columns, expected a word and its translation"),
    (entries, ENTRY.encode() + b"a b\xff", 2, "not UTF-8", "byte 0xff at position 3 is not UTF-8"),
    (entries, ENTRY + "a b\0\n", 2, "NUL character", "contains a NUL character"),
    (
        read_labelled,
        PAIRS + "a\tb\n",
        2,
        "other columns",
        "2 columns, expected 3: premise, hypothesis and label; is a tab",
    ),
    (read_labelled, PAIRS + "a\tb\t\n", 2, "no label", "the text has no label"),
    (read_labelled, HEADER + "\ta\n", 3, "empty text", "the text has no words"),
    (read_labelled, HEADER + "a\n", 3, "other columns", "one column, expected 2 as in the first line"),
    (read_labelled, PAIRS.encode() + b"a\tb\xe9\tneutral\n", 2, "not UTF-8", "byte 0xe9 at position 3 is not UTF-8"),
    (read_labelled, OBJECT + '{"text": "a"\n', 2, "no JSON object", "not a JSON object, expected one JSON"),
    (
        read_labelled,
        OBJECT + '{"text": "\\ud800", "label": "x"}\n',
        2,
        "missing value",
        r"text is '\ud800', expected text",
    ),
    (read_labelled, "x\ta\nx\tb\nx\tc\nx\n", 4, "other columns", "one column, expected 2: a text and its label"),
    (
        read_tagged,
        "a\tB-X\nb I-X\n" + TABS,
        2,
        "missing column",
        "one column, expected 2, like the other rows; is a tab",
    ),
    (read_tagged, "\tB-X\n" + TABS, 1, "empty word", "the tag has no word, expected both"),
    (read_tagged, "a\tO\nb\t\n" + TABS, 2, "empty tag", "the word 'b' has no tag, expected both"),
    (read_tagged, b"a\tO\nb\xff\tO\n" + TABS.encode(), 2, "not UTF-8", "byte 0xff at position 1 is not UTF-8"),
    (numbered, "1\ta\tO\n1\tb\tO\n" + NUMBERED, 2, "words not counted", "word number '1', expected 2"),
    (numbered, "1-2\tal\tO\n" + NUMBERED, 1, "no words", "the sentence has no words"),
    (read_tagged, "1\tb\tx\tO\n" + ASKED, 1, "no intent", "the sentence has no line # intent"),
    (facebook, REQUEST + "x\t0:1:a\n", 2, "missing column", "2 columns, expected intent, slots and text"),
    (facebook, REQUEST + " \t0:1:a\tab\n", 2, "no intent", "the first column is empty"),
    (facebook, REQUEST + "x\t1:a\tab\n", 2, "not slots", "the slots '1:a', expected start:end:name"),
    (facebook, REQUEST + "x\t1:3:a\tab\n", 2, "slot not in the text", "slot 1:3:a is not within the 2 characters"),
    (facebook, REQUEST + "x\t\t\u200b\n", 2, "empty text", "the text has no words, expected a request"),
    (facebook, REQUEST + "x\t\tab\ten_XX\t{\n", 2, "tokens not in the text", "the last column must be empty, or JSON"),
    (read_treebank, tree(2, 3, 0) + tree(0, 3, 2), 6, "not a tree", "the heads from word 2 ('w2') form a cycle"),
    (read_treebank, tree(0) + tree(0, 2), 4, "not a tree", "the heads from word 2 ('w2') form a cycle"),
    (read_treebank, tree(0) + tree(0, 0), 4, "not one root", "2 words with the head 0 ('w1', 'w2'), expected one root"),
    (
        read_treebank,
        tree(0, 3) + WIDE,
        2,
        "head not in the sentence",
        "the head '3' of 'w2', expected 0 or one of the words 1",
    ),
    (read_treebank, tree(0, "²") + WIDE, 2, "head not in the sentence", "the head '²' of 'w2'"),
    (
        read_treebank,
        row(1, "a", 0, "dep", "") + WIDE,
        1,
        "empty part of speech",
        "the word 'a' has no part of speech",
    ),
    (read_treebank, row(1, "a", 0, "") + WIDE, 1, "empty relation", "the word 'a' has no relation"),
    (read_treebank, row(1, " ", 0) + WIDE, 1, "empty word", "the relation has no word"),
    (read_treebank, row(1, "a", 2) + row(3, "b", 0) + WIDE, 2, "words not counted", "word number '3', expected 2"),
    (read_treebank, row("1-2", "al", "_") + WIDE, 1, "no words", "the sentence has no words"),
    (read_treebank, row(1, "a", 0).encode() + b"2\t\xff\n" + WIDE.encode(), 2, "not UTF-8", "byte 0xff"),
    (read_treebank, row(1, "a", 0) + "2\tb\n" + WIDE, 2, "not ten columns", "2 columns, expected the 10 of CoNLL-U"),
    (read_probe, EDGE + "[1, 2]\n", 2, "no JSON object", "not a JSON object"),
    (
        read_probe,
        EDGE + '{"text": "a b"}\n',
        2,
        "no targets",
        "has the keys text, expected a text and a list of targets",
    ),
    (read_probe, EDGE + '{"text": " ", "targets": []}\n', 2, "empty text", "the text has no words"),
    (
        read_probe,
        EDGE + '{"text": "a b", "targets": [7]}\n',
        2,
        "no target",
        "target 1 of 1 is 7, expected label, span1",
    ),
    (read_probe, EDGE + edges(span1=[1, 3], label="X"), 2, "no target", "0 <= start < end <= 2"),
    (read_probe, EDGE + edges(span1=[0, 1], span2=[0, 1], label="X"), 2, "one or two spans", "has two spans, unlike"),
]


@pytest.mark.parametrize(("read", "content", "line", "reason", "fact"), UNUSABLE)
def test_unusable_items_are_refused_or_counted_with_their_line(tmp_path, read, content, line, reason, fact):
    path = tmp_path / "f"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    how = {} if read is entries else {"lang": "en"}
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read(path, **how)
    assert str(caught.value).startswith(f"{path} line {line}: ")
    assert str(caught.value).endswith('or skip it (on_error="skip", --on-error skip)')
    message = rf"f: skipped 1 of \d [\w ]+: 1 × {reason} \(first: .*f line {line}\)"
    with pytest.warns(SkippedWarning, match=message) as found:
        assert len(read(path, on_error="skip", **how)) in (1, 3)
    warning = found[0].message
    assert (warning.skipped, warning.first_skipped) == ({reason: 1}, {reason: f"{path} line {line}"})
