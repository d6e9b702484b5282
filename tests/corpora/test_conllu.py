"""Treebanks in CoNLL-U: ranges, empty nodes, and sentences that are not trees."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calque.corpora import SkippedWarning, read_treebank
from calque.errors import InputError


def row(number, word, head, relation="dep", upos="X"):
    return f"{number}\t{word}\t_\t{upos}\t_\t_\t{head}\t{relation}\t_\t_\n"


def tree(*heads):
    return "".join(row(k, f"w{k}", head) for k, head in enumerate(heads, 1)) + "\n"


def read(folder, content, **settings):
    path = folder / "f.conllu"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_treebank(path, lang="es", **settings)


SPANISH = (
    "# sent_id = 1\n# free comment\n"
    + row("1-2", "vámonos", "_", "_", "_")
    + row(1, "vamos", 0, "root", "VERB")
    + row(2, "nos", 1, "obj:arg", "PRON")
    + row("2.1", "x", "_", "_", "_")
    + row("3-4", "al", "_", "_", "_")
    + row(3, "a", 5, "case", "ADP")
    + row(4, "el", 5, "det", "DET")
    + row(5, "10 000", 1, "obl", "NUM")
    + "\n# text = ya\n"
    + row(1, "ya", 0, "root", "ADV")
)


def test_ranges_and_empty_nodes_do_not_shift_heads(tmp_path):
    bank = read(tmp_path, SPANISH)
    assert [sentence.words for sentence in bank.sentences] == [("vamos", "nos", "a", "el", "10 000"), ("ya",)]
    assert bank.heads.tolist() == [0, 1, 5, 5, 1, 0]
    assert bank.upos.to_list() == ["VERB", "PRON", "ADP", "DET", "NUM", "ADV"]
    assert bank.relations.to_list() == ["root", "obj", "case", "det", "obl", "root"]
    assert (bank.lines.tolist(), bank.path) == ([3, 13], str(tmp_path / "f.conllu"))
    assert read(tmp_path, SPANISH, subtypes=True).relations[1] == "obj:arg"
    with pytest.raises(InputError, match=r"f\.conllu: no sentences could be read: the file is empty"):
        read(tmp_path, "# text = x\n\n")


@pytest.mark.parametrize(
    ("bad", "line", "reason", "fact"),
    [
        (tree(2, 3, 0) + tree(0, 3, 2), 6, "not a tree", "the heads from word 2 ('w2') form a cycle"),
        (tree(0) + tree(0, 2), 4, "not a tree", "the heads from word 2 ('w2') form a cycle"),
        (tree(0) + tree(0, 0), 4, "not one root", "2 words with the head 0 ('w1', 'w2'), expected one root"),
        (tree(0, 3), 2, "head not in the sentence", "the head '3' of 'w2', expected 0 or one of the words 1 to 2"),
        (tree(0, "²"), 2, "head not in the sentence", "the head '²' of 'w2'"),
        (row(1, "a", 0, "dep", ""), 1, "empty part of speech", "the word 'a' without a part of speech"),
        (row(1, "a", 0, ""), 1, "empty relation", "the word 'a' without a relation"),
        (row(1, " ", 0), 1, "empty word", "a relation without a word"),
        (row(1, "a", 2) + row(3, "b", 0), 2, "words not counted", "word number '3', expected 2"),
        (row("1-2", "al", "_"), 1, "no words", "a sentence without words"),
        (row(1, "a", 0).encode() + b"2\t\xff\n", 2, "not UTF-8", "byte 0xff"),
    ],
)
def test_sentences_that_are_not_trees_are_refused_or_counted(tmp_path, bad, line, reason, fact):
    path = tmp_path / "f.conllu"
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read(tmp_path, bad)
    assert str(caught.value).startswith(f"{path} line {line}: ")
    raw = bad if isinstance(bad, bytes) else bad.encode()
    with pytest.warns(SkippedWarning, match=rf"skipped 1 of \d+ [\w ]+: 1 × {reason} \(first: .* line {line}\)"):
        bank = read(tmp_path, raw + b"\n" + tree(2, 0).encode(), on_error="skip")
    assert bank.heads.tolist()[-2:] == [2, 0]


def circles(heads):
    """Return True if some word never reaches the root, by walking from head to head."""
    for word in range(1, len(heads) + 1):
        at = word
        for _ in heads:
            at = heads[at - 1] if at else 0
        if at:
            return True
    return False


@given(st.integers(1, 7).flatmap(lambda n: st.lists(st.integers(0, n), min_size=n, max_size=n)))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_trees_are_recognised_as_by_walking(tmp_path, heads):
    if heads.count(0) == 1 and not circles(heads):
        assert read(tmp_path, tree(*heads)).heads.tolist() == heads
    else:
        with pytest.raises(InputError, match=r"line \d+: .*expected (a tree|one root)"):
            read(tmp_path, tree(*heads))
