"""Test that line-based readers reject an unusable item, naming file and line, or skip it and count
it by reason.
"""

import re
from functools import partial

import pytest

from calque.corpora import (
    SkippedWarning,
    read_dictionary,
    read_labelled,
    read_probe,
    read_tagged,
    read_treebank,
)
from calque.errors import InputError
from conllu_text import row, tree

entries = partial(read_dictionary, langs=("en", "de"))
labelled, tagged, treebank, probe = (
    partial(each, lang="en") for each in (read_labelled, read_tagged, read_treebank, read_probe)
)
facebook, numbered = (partial(tagged, format=name) for name in ("facebook", "numbered"))
EDGE = '{"text": "a b", "targets": [{"span1": [0, 1], "label": "X"}]}\n'
# Each case: the reader, usable items before and after the unusable item, and for each unusable item
# its line number, the reason and the message. Lone surrogates are written as bytes that are not
# UTF-8.
CASES = [
    (
        entries,
        "a b\n",
        "",
        [
            (
                "alone\n",
                2,
                "not two words",
                "one word, expected a word and its translation, separated by a",
            ),
            ("a\t\n", 2, "not two words", "one word, expected a word and its translation"),
            ("a\tb\t0.5\n", 2, "not two words", "3 columns, expected a word and its translation"),
            ("a b\udcff", 2, "not UTF-8", "byte 0xff at position 3 is not UTF-8"),
            ("a b\0\n", 2, "NUL character", "the line has a NUL character"),
        ],
    ),
    (
        labelled,
        "a\tb\tneutral\n",
        "",
        [
            (
                "a\tb\n",
                2,
                "other columns",
                "2 columns, expected 3: premise, hypothesis and label; is a tab",
            ),
            ("a\tb\t\n", 2, "no label", "the text has no label"),
            ("a\tb\udce9\tneutral\n", 2, "not UTF-8", "byte 0xe9 at position 3 is not UTF-8"),
        ],
    ),
    (
        labelled,
        "text\tlabel\ngood\tx\n",
        "",
        [
            ("\ta\n", 3, "empty text", "the text has no words"),
            ("a\n", 3, "other columns", "one column, expected 2 as in the first line"),
        ],
    ),
    (
        labelled,
        "x\ta\nx\tb\nx\tc\n",
        "",
        [("x\n", 4, "other columns", "one column, expected 2: a text and its label")],
    ),
    (
        labelled,
        '{"text": "good", "label": "x"}\n',
        "",
        [
            ('{"text": "a"\n', 2, "no JSON object", "not a JSON object, expected one JSON"),
            (
                '{"text": "\\ud800", "label": "x"}\n',
                2,
                "missing value",
                r"text is '\ud800', expected text",
            ),
        ],
    ),
    (
        tagged,
        "",
        "\ngood\tO\n",
        [
            (
                "a\tB-X\nb I-X\n",
                2,
                "missing column",
                "one column, expected 2, as in the other rows; is a tab",
            ),
            ("\tB-X\n", 1, "empty word", "the tag has no word, expected both"),
            ("a\tO\nb\t\n", 2, "empty tag", "the word 'b' has no tag, expected both"),
            ("a\tO\nb\udcff\tO\n", 2, "not UTF-8", "byte 0xff at position 1 is not UTF-8"),
        ],
    ),
    (
        tagged,
        "",
        "\n# intent = y\n1\tgood\ty\tO\n",
        [
            ("1\tb\tx\tO\n", 1, "no intent", "the sentence has no comment # intent"),
        ],
    ),
    (
        numbered,
        "",
        "\n1\tgood\tO\n",
        [
            ("1\ta\tO\n1\tb\tO\n", 2, "invalid word number", "word number '1', expected 2"),
            ("1-2\tal\tO\n", 1, "no words", "the sentence has no words"),
        ],
    ),
    (
        facebook,
        "x\t0:1:a\tgood\n",
        "",
        [
            ("x\t0:1:a\n", 2, "missing column", "2 columns, expected intent, slots and text"),
            (" \t0:1:a\tab\n", 2, "no intent", "the first column is empty"),
            ("x\t1:a\tab\n", 2, "not slots", "the slots are '1:a', expected start:end:name"),
            (
                "x\t1:3:a\tab\n",
                2,
                "slot not in the text",
                "slot 1:3:a is not within the 2 characters",
            ),
            ("x\t\t\u200b\n", 2, "empty text", "the text has no words"),
            (
                "x\t\tab\ten_XX\t{\n",
                2,
                "tokens not in the text",
                "the last column must be empty, or JSON",
            ),
        ],
    ),
    (
        treebank,
        tree(2, 3, 0),
        "",
        [(tree(0, 3, 2), 6, "not a tree", "the heads above word 2 ('w2') form a cycle")],
    ),
    (
        treebank,
        tree(0),
        "",
        [
            (tree(0, 2), 4, "not a tree", "the heads above word 2 ('w2') form a cycle"),
            (
                tree(0, 0),
                4,
                "not one root",
                "2 words with the head 0 ('w1', 'w2'), expected one root",
            ),
        ],
    ),
    (
        treebank,
        "",
        "\n1\tgood\t_\tX\tX\t_\t0\tr\t_\t_\n",
        [
            (
                tree(0, 3),
                2,
                "head not in the sentence",
                "the head of 'w2' is '3', expected 0 or a word number from 1",
            ),
            (tree(0, "²"), 2, "head not in the sentence", "the head of 'w2' is '²'"),
            (
                row(1, "a", 0, "dep", ""),
                1,
                "empty part of speech",
                "the word 'a' has no part of speech",
            ),
            (row(1, "a", 0, ""), 1, "empty relation", "the word 'a' has no relation"),
            (row(1, " ", 0), 1, "empty word", "the relation has no word"),
            (
                row(1, "a", 2) + row(3, "b", 0),
                2,
                "invalid word number",
                "word number '3', expected 2",
            ),
            (row("1-2", "al", "_"), 1, "no words", "the sentence has no words"),
            (row(1, "a", 0) + "2\t\udcff\n", 2, "not UTF-8", "byte 0xff"),
            (
                row(1, "a", 0) + "2\tb\n",
                2,
                "not ten columns",
                "2 columns, expected the 10 tab-separated columns of CoNLL-U",
            ),
        ],
    ),
    (
        probe,
        EDGE,
        "",
        [
            ("[1, 2]\n", 2, "no JSON object", "not a JSON object"),
            (
                '{"text": "a b"}\n',
                2,
                "no targets",
                "the object has the keys text, expected a text and a list of targets",
            ),
            ('{"text": " ", "targets": []}\n', 2, "empty text", "the text has no words"),
            (
                '{"text": "a b", "targets": [7]}\n',
                2,
                "no target",
                "target 1 of 1 is 7, expected label, span1",
            ),
            (EDGE.replace("0, 1", "1, 3"), 2, "no target", "0 <= start < end <= 2"),
            (
                EDGE.replace(', "l', ', "span2": [0, 1], "l'),
                2,
                "one or two spans",
                "has two spans, unlike",
            ),
        ],
    ),
]
UNUSABLE = [
    (read, f"{before}{bad}{after}", *said)
    for read, before, after, rows in CASES
    for bad, *said in rows
]


@pytest.mark.parametrize(("read", "content", "line", "reason", "fact"), UNUSABLE)
def test_unusable_items_are_rejected_or_counted_with_their_line(
    tmp_path, read, content, line, reason, fact
):
    path = tmp_path / "f"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} line {line}: ")
    assert str(caught.value).endswith('or skip it (on_error="skip", --on-error skip)')
    message = rf"f: skipped 1 of \d [\w ]+: 1 × {reason} \(first: .*f line {line}\)"
    with pytest.warns(SkippedWarning, match=message) as found:
        assert len(read(path, on_error="skip")) in (1, 3)
    warning = found[0].message
    assert (warning.skipped, warning.first_skipped) == (
        {reason: 1},
        {reason: f"{path} line {line}"},
    )
