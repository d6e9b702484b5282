"""Tests of zero-shot tasks that read files, on the command line."""

import json

import pytest

from calque.corpora.languages import language_of
from calque.corpora.spread import spread_over
from command import fails, works
from planted import labelled, tagged, trees, write_tags, write_trees


@pytest.fixture
def files(tmp_path):
    write_tags(tagged(40, "en"), tmp_path / "ner.train.en.tsv")
    for lang in ("de", "es"):
        write_tags(tagged(12, lang, 1), tmp_path / f"ner.test.{lang}.tsv")
    for lang, n in (("en", 40), ("de", 12)):
        data = labelled(n, lang).data
        rows = [
            f"{data.labels[k]}\t{' '.join(text.words)}\n" for k, text in enumerate(data.texts[0])
        ]
        (tmp_path / f"mood.{lang}.tsv").write_text("".join(rows))
    write_trees(trees(12, "en"), tmp_path / "en_tree.conllu")
    (tmp_path / "dict.tsv").write_text("the\tder\na\teine\nin\tin\n")
    return tmp_path


def test_tagging_can_report_a_ceiling_and_select_epochs_on_target_text(
    files, tiny_folder, capsys, monkeypatch
):
    """Also check the note on model selection, and limits on the number of texts."""
    monkeypatch.chdir(files)
    arguments = (
        "evaluate",
        tiny_folder,
        "ner",
        "--train",
        "ner.train.en.tsv",
        "--test",
        "ner.test.de.tsv",
        "ner.test.es.tsv",
        "--ceiling",
        "ner.test.de.tsv",
        "--dev",
        "ner.test.es.tsv",
        "--select",
        "target",
        "--seeds",
        1,
        "--epochs",
        1,
        "--hidden",
        8,
        "--limit",
        20,
        "--test-limit",
        10,
        "--dropout",
        0,
        "--option",
        "per_epoch=64",
    )
    said, news = works(capsys, *arguments, "--out", "scores.jsonl")
    assert "ner.train.en.tsv: 40 texts in en, of which 20 are used" in news
    rows = [line.split() for line in said.splitlines()]
    assert [row[-1] for row in rows if row[:3] == ["ner.test.de.tsv", "de", "f1"]] == [
        "en",
        "(ceiling)",
    ]
    assert said.splitlines()[-2].endswith(
        "epoch chosen by ner.test.es.tsv (TARGET text: the scores are not zero-shot)"
    )
    scores = [json.loads(line) for line in (files / "scores.jsonl").read_text().splitlines()]
    found = {
        (s["languages"][-1], s["settings"]["protocol"]): s for s in scores if s["metric"] == "f1"
    }
    assert set(found) == {("de", "zero-shot"), ("es", "zero-shot"), ("de", "ceiling")}
    transferred, top = found["de", "zero-shot"], found["de", "ceiling"]
    assert (top["languages"], top["n"], top["settings"]["train"]) == (
        ["de", "de"],
        10,
        ["ner.test.de.tsv"],
    )
    assert top["settings"]["select"] == "source"
    assert (transferred["settings"]["per_epoch"], transferred["settings"]["dropout"]) == (64, 0)


def test_a_limit_selects_evenly_spaced_texts_from_the_whole_file():
    assert [spread_over(n, most) for n, most in ((10, None), (3, 5), (3, 3))] == [None, None, None]
    assert [spread_over(n, most).tolist() for n, most in ((7, 3), (9, 1))] == [[0, 2, 4], [0]]


def test_word_senses_are_scored_with_and_without_first_senses(
    files, tiny_folder, capsys, monkeypatch
):
    monkeypatch.chdir(files)

    def write(name, instances):
        rows = "".join(
            f'<sentence><instance id="i{k}" lemma="{lemma}" pos="NOUN">{word}</instance></sentence>'
            for k, (word, lemma, _) in enumerate(instances)
        )
        (files / f"{name}.data.xml").write_text(f"<corpus>{rows}</corpus>")
        (files / f"{name}.gold.key.txt").write_text(
            "".join(f"i{k} {key}\n" for k, (*_, key) in enumerate(instances))
        )

    write("train", [("the", "x", "x%1"), ("a", "x", "x%2"), ("a", "x", "x%2")])
    write("test", [("the", "x", "x%1"), ("a", "x", "x%2"), ("in", "y", "y%1")])
    (files / "index.sense").write_text("y%1:00:00:: 1 1 1\ny%1 2 1 1\n")
    arguments = (
        "evaluate",
        tiny_folder,
        "wsd",
        "--train",
        "train.data.xml",
        "--test",
        "test.data.xml",
    )
    said, news = works(capsys, *arguments, "--json")
    assert (
        "test.data.xml: 2 of 3 words answered, 1 with a lemma missing from train.data.xml" in news
    )
    assert json.loads(said.splitlines()[-1])["value"] == pytest.approx(2 * 2 / (2 + 3))
    (files / "index.sense").write_text("y%1 1 1 1\n")
    found = {}
    for name, more in (
        ("first", ("--first-senses", "index.sense")),
        ("cut", ("--test-limit", 2)),
        ("short", ("--limit", 1)),
    ):
        said, news = works(capsys, *arguments, *more, "--json", "-q")
        found[name] = json.loads(said.splitlines()[-1])
    assert found["first"]["value"] == 1
    assert (found["cut"]["n"], found["cut"]["value"]) == (2, 1)
    assert (found["short"]["n"], found["short"]["settings"]["senses"]) == (3, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sentiment", "--train", "mood.en.tsv", "--test", "mood.de.tsv", "--tune"),
        ("parsing", "--train", "en_tree.conllu", "--test", "en_tree.conllu", "--hidden", "8"),
        ("pos", "--train", "en_tree.conllu", "--test", "de=en_tree.conllu", "--head", "linear"),
    ],
)
def test_other_tasks_print_a_table(arguments, files, tiny_folder, capsys, monkeypatch):
    monkeypatch.chdir(files)
    said, news = works(capsys, "evaluate", tiny_folder, *arguments, "--seeds", 1, "--epochs", 1)
    head = said.splitlines()[0].split()
    assert head[:5] == ["test", "language", "metric", "value", "s.d."]
    assert arguments[4].split("=")[-1] in said


def test_a_lexicon_can_be_scored_with_anchors_from_text(files, tiny_folder, capsys, monkeypatch):
    monkeypatch.chdir(files)
    (files / "text.en.txt").write_text("the a in\nin the\n")
    (files / "text.de.txt").write_text("der eine in\n")
    job = (
        "evaluate",
        tiny_folder,
        "lexicon",
        "--test",
        "dict.tsv",
        "--langs",
        "en",
        "de",
        "--text",
        "text.en.txt",
        "text.de.txt",
        "--json",
    )
    said, news = works(capsys, *job)
    found = json.loads(said.splitlines()[-1])
    assert (found["metric"], found["n"], found["settings"]["anchors"]) == ("p@1", 3, True)
    (files / "text.en.txt").write_text("The A\nin the\n")
    for more, n in ((("--lower",), 3), ((), 2), (("--lower", "--option", "entries=[0,2]"), 2)):
        said, news = works(capsys, *job, "-q", *more)
        assert json.loads(said.splitlines()[-1])["n"] == n


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("ner", "--test", "ner.test.de.tsv"), "ner requires training text; set --train FILE"),
        (("cooking", "--test", "mood.de.tsv"), "unknown task 'cooking', expected one of retrieval"),
        (
            ("ner", "--train", "ner.train.en.tsv", "--test", "de=en_tree.conllu"),
            "line 1: the tag 'NOUN' is not a span tag",
        ),
        (
            (
                "ner",
                "--train",
                "ner.train.en.tsv",
                "--test",
                "ner.test.de.tsv",
                "--ceiling",
                "ner.test.es.tsv",
            ),
            "sets (de), got es",
        ),
        (
            ("lexicon", "--test", "dict.tsv", "--langs", "en", "de", "--option", "entries=[9]"),
            "dict.tsv: entries must be within its 3 source words, got 9",
        ),
    ],
)
def test_missing_files_and_unknown_tasks_are_rejected(
    arguments, fact, files, tiny_folder, capsys, monkeypatch
):
    monkeypatch.chdir(files)
    assert fact in fails(capsys, "evaluate", tiny_folder, *arguments, "-q")


@pytest.mark.parametrize(
    ("name", "lang"),
    [
        ("panx.dev.de.tsv", "de"),
        ("en_ewt.train.iob2", "en"),
        ("a/b.en/xsid.valid.de-ba.conll", "de-ba"),
        ("conll2002.esp.testa", "es"),
        ("semcor.data.xml", None),
        ("en.de.txt", None),
        ("train.txt", None),
    ],
)
def test_languages_are_recognised_in_file_names(name, lang):
    assert language_of(name) == lang
