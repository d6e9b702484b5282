"""Tests of CoNLL-U treebanks: ranges, empty nodes, and sentences that are not trees."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calque.corpora import read_treebank
from calque.errors import InputError, SkippedWarning
from conllu_text import row, tree


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
    assert [sentence.words for sentence in bank.sentences] == [
        ("vamos", "nos", "a", "el", "10 000"),
        ("ya",),
    ]
    assert bank.heads.tolist() == [0, 1, 5, 5, 1, 0]
    assert bank.upos.to_list() == ["VERB", "PRON", "ADP", "DET", "NUM", "ADV"]
    assert bank.relations.to_list() == ["root", "obj", "case", "det", "obl", "root"]
    assert (bank.lines.tolist(), bank.path) == ([3, 13], str(tmp_path / "f.conllu"))
    assert read(tmp_path, SPANISH, subtypes=True).relations[1] == "obj:arg"
    with pytest.raises(
        InputError, match=r"f\.conllu: no sentences could be read: the file is empty"
    ):
        read(tmp_path, "# text = x\n\n")


def test_a_comment_inside_a_sentence_is_an_error_that_names_it(tmp_path):
    content = (
        row(1, "a", 0, "root", "X")
        + "# mid comment\n"
        + row(2, "b", 1, "dep", "X")
        + "\n"
        + tree(0)
    )
    with pytest.raises(
        InputError,
        match=r"line 2: the comment '# mid comment' is inside a sentence, expected comments",
    ):
        read(tmp_path, content)
    with pytest.warns(SkippedWarning, match="1 × comment inside a sentence"):
        assert len(read(tmp_path, content, on_error="skip")) == 1


def circles(heads):
    """Return whether following the heads from some word never reaches the root."""
    for word in range(1, len(heads) + 1):
        at = word
        for _ in heads:
            at = heads[at - 1] if at else 0
        if at:
            return True
    return False


@given(st.integers(1, 7).flatmap(lambda n: st.lists(st.integers(0, n), min_size=n, max_size=n)))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_sentences_that_are_not_trees_are_rejected(tmp_path, heads):
    if heads.count(0) == 1 and not circles(heads):
        assert read(tmp_path, tree(*heads)).heads.tolist() == heads
    else:
        with pytest.raises(InputError, match=r"line \d+: .*expected (a tree|one root)"):
            read(tmp_path, tree(*heads))
