"""Tests of probing data from JSON lines, treebanks and tagged text."""

import json
from itertools import pairwise

import pytest

from calque.corpora import read_probe
from calque.errors import InputError

CONLLU = """# text = Ann sees old Rome
1	Ann	Ann	PROPN	NNP	_	2	nsubj:pass	_	_
2	sees	see	VERB	VBZ	_	0	root	_	_
3	old	old	ADJ	JJ	_	4	amod	_	_
4	Rome	Rome	PROPN	NNP	_	2	obj	_	_

1	Go	go	VERB	VB	_	0	root	_	_
"""


def write(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def shown(text):
    """Return each sentence with its targets; a target consists of the words of its spans and its
    labels.
    """
    found = []
    labels = text.labels.to_list()
    for sentence, (a, b) in zip(text.sentences, pairwise(text.offsets), strict=True):
        targets = []
        for k in range(a, b):
            words = [" ".join(sentence.words[i:j]) for i, j in text.spans[k]]
            targets.append((*words, *labels[text.label_offsets[k] : text.label_offsets[k + 1]]))
        found.append((" ".join(sentence.words), targets))
    return found


def test_treebanks_are_read_as_parts_of_speech_or_dependencies(tmp_path):
    path = write(tmp_path, "a.conllu", CONLLU)
    pos = read_probe(path, lang="en", probe="pos")
    assert shown(pos) == [
        (
            "Ann sees old Rome",
            [("Ann", "PROPN"), ("sees", "VERB"), ("old", "ADJ"), ("Rome", "PROPN")],
        ),
        ("Go", [("Go", "VERB")]),
    ]
    assert (pos.probe, pos.lines.tolist(), pos.path) == ("pos", [2, 7], str(path))
    assert shown(read_probe(path, lang="en", probe="pos", column="xpos"))[1] == (
        "Go",
        [("Go", "VB")],
    )
    pairs = read_probe(path, lang="en", probe="dependencies")
    assert shown(pairs) == [
        (
            "Ann sees old Rome",
            [
                ("Ann", "sees", "nsubj"),
                ("sees", "sees", "root"),
                ("old", "Rome", "amod"),
                ("Rome", "sees", "obj"),
            ],
        ),
        ("Go", [("Go", "Go", "root")]),
    ]
    assert (
        "nsubj:pass"
        in read_probe(path, lang="en", probe="dependencies", subtypes=True).labels.names
    )
    with pytest.raises(
        InputError,
        match="a.conllu: CoNLL-U supports two probes.*--probe pos or --probe dependencies",
    ):
        read_probe(path, lang="en")


def test_entities_are_read_from_any_tagging_scheme(tmp_path):
    path = write(tmp_path, "a.tsv", "Ann\tS-PER\nin\tO\nOld\tB-LOC\nYork\tE-LOC\n\nso\tO\n")
    text = read_probe(path, lang="en")
    assert text.probe == "entities"
    assert shown(text) == [("Ann in Old York", [("Ann", "PER"), ("Old York", "LOC")]), ("so", [])]
    plain = write(
        tmp_path, "b.tsv", "(\tPUNCT\nAnn\tPROPN\n\nso\tADV\n"
    )  # a single bracket is not a tree
    assert shown(read_probe(plain, lang="en"))[0] == ("( Ann", [("(", "PUNCT"), ("Ann", "PROPN")])
    with pytest.raises(
        InputError, match="a.tsv: has the tags B-LOC, B-PER, I-LOC; expected tags without spans"
    ):
        read_probe(path, lang="en", probe="pos")
    with pytest.raises(InputError, match="b.tsv: has the tags ADV, PROPN, PUNCT; expected spans"):
        read_probe(plain, lang="en", probe="entities")


def lines(*objects):
    return "".join(json.dumps(each) + "\n" for each in objects)


SRL = {
    "text": "Ian ate strawberry ice cream",
    "info": {"source": "x"},
    "targets": [
        {"span1": [1, 2], "span2": [0, 1], "label": "A0", "info": {}},
        {"span1": [1, 2], "span2": [2, 5], "label": ["A1", "theme", "A1"]},
        {"span1": [1, 2], "span2": [0, 5], "label": []},
    ],
}


def test_json_lines_in_jiant_format_are_read(tmp_path):
    path = write(tmp_path, "srl.json", lines(SRL, {"text": "He slept", "targets": []}))
    text = read_probe(path, lang="en")
    assert (text.probe, text.spans.shape) == ("pairs of spans", (3, 2, 2))
    assert shown(text) == [
        (
            "Ian ate strawberry ice cream",
            [
                ("ate", "Ian", "A0"),
                ("ate", "strawberry ice cream", "A1", "theme"),
                ("ate", "Ian ate strawberry ice cream"),
            ],
        ),
        ("He slept", []),
    ]
    assert read_probe(path, lang="en", probe="srl").probe == "srl"
