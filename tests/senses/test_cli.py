"""`calque senses`: the senses of a word, and those of a text; found in the text, or trained."""

import json

import numpy as np
import pytest

from calque.encoders import load_encoder
from calque.senses.found import ContextSenses, open_contexts, trained_senses
from command import fails, works
from sense_models import WORDS, a_bert, a_text, an_elmo


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    return an_elmo(tmp_path_factory.mktemp("elmo") / "elmo")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return a_bert(tmp_path_factory.mktemp("bert") / "bert")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(sentence.words) + "\n" for sentence in a_text(50)))
    return path


def several(folder) -> str:
    """A word of the text with several senses."""
    found = trained_senses(folder)
    return next(word for word in WORDS if found.n_senses[found.find(word)] > 1)


@pytest.fixture
def divided(monkeypatch):
    """Clusters that a stranger gives."""
    labels = lambda vectors, **_: [np.arange(len(x)) % 2 * (len(x) % 2) for x in vectors]  # noqa: E731
    monkeypatch.setattr("calque.senses.found.split_words", labels)


def test_several_texts_come_one_after_the_other_and_are_divided_into_words(capsys, elmo, tmp_path, divided):
    (tmp_path / "a.txt").write_text("The bank, of a river.\n")
    (tmp_path / "b.txt").write_text(
        "Geld\n\nder Fluss\n" + "the a of bank river boat money loan may Ufer Fluss Geld\n" * 30
    )
    out = tmp_path / "numbers.txt"
    works(capsys, "senses", elmo, "--text", f"en={tmp_path}/a.txt", f"de={tmp_path}/b.txt", "--out", out, "-q")
    first, *others = out.read_text().splitlines()
    assert len(first.split()) == 7  # the comma and the full stop are words
    assert first.split()[2] == "-"
    assert first.split()[1] != "-"
    assert [len(line.split()) for line in others] == [1, 0, 2, *[12] * 30]


def test_a_word_is_shown_with_the_senses_of_its_training(capsys, elmo):
    word, found = several(elmo), trained_senses(elmo)
    plain, _ = works(capsys, "senses", elmo, word, "--trained", "-k", 3)
    assert plain.startswith(f"{word}: ")
    shown = json.loads(works(capsys, "senses", elmo, word, "--trained", "--json", "-q", "-k", 4)[0])
    assert [sense["number"] for sense in shown["senses"]] == list(range(1, int(found.n_senses[found.find(word)]) + 1))
    shares = [sense["share"] for sense in shown["senses"]]
    assert shares == sorted(shares, reverse=True)
    assert abs(sum(shares) - 1) < 1e-3
    assert all(len(sense["nearest"]) == 4 for sense in shown["senses"])


def test_the_texts_tell_the_languages_of_the_nearest_senses(capsys, elmo, tmp_path):
    (tmp_path / "a.txt").write_text("the bank of a river\nmoney a loan may\n")
    (tmp_path / "b.txt").write_text("Ufer Fluss Geld\n")
    found, _ = works(
        capsys, "senses", elmo, "bank", "--trained", "--text", f"en={tmp_path}/a.txt", f"de={tmp_path}/b.txt", "--json", "-q",
        "-k", 2,
    )  # fmt: skip
    for sense in json.loads(found)["senses"]:
        assert [near["lang"] for near in sense["nearest"]] == ["de", "de", "en", "en"]
        assert {near["word"] for near in sense["nearest"][:2]} <= {"Ufer", "Fluss", "Geld"}


@pytest.mark.parametrize("kind", ["elmo", "bert"])
def test_senses_are_found_in_the_text_unless_it_is_said_otherwise(capsys, request, text, tmp_path, kind, divided):
    folder, out = request.getfixturevalue(kind), tmp_path / "numbers.txt"
    works(capsys, "senses", folder, "--text", f"en={text}", "--pretokenized", "--out", out, "-q")
    encoder = load_encoder(str(folder))
    inventory = ContextSenses(open_contexts(encoder), encoder.name, [a_text(50)])
    expected = [str(n) if n else "-" for n in inventory.select(a_text(50)).tolist()]
    assert [len(line.split()) for line in out.read_text().splitlines()] == [len(sentence) for sentence in a_text(50)]
    assert [n for line in out.read_text().splitlines() for n in line.split()] == expected
    assert {"1", "2"} <= set(expected)
    found, _ = works(capsys, "senses", folder, "bank", "--text", f"en={text}", "--pretokenized", "--json", "-q")
    senses, number = json.loads(found), inventory.find("bank")
    assert (senses["trained"], len(senses["senses"])) == (False, inventory.n_senses[number])
    words = [word for sentence in a_text(50) for word in sentence.words]
    for sense in senses["senses"]:
        same = [n for word, n in zip(words, expected, strict=True) if word == "bank" and n == str(sense["number"])]
        assert sense["chosen"] == len(same)
        assert len(sense["nearest"]) == 10
        assert len(sense["sentences"]) == min(3, len(same))
        assert all((each["words"][each["place"]], each["lang"]) == ("bank", "en") for each in sense["sentences"])
    shown, _ = works(capsys, "senses", folder, "bank", "--text", f"en={text}", "--pretokenized", "-q")
    assert "of its uses in a sample of the text" in shown
    assert "[bank]" in shown
    works(
        capsys, "senses", folder, "bank", "--text", f"en={text}", "--pretokenized", "-q", "--out", tmp_path / "s.jsonl"
    )
    assert json.loads((tmp_path / "s.jsonl").read_text())["data"] == "bank"


def test_what_cannot_be_is_one_line(capsys, elmo, text, tmp_path):
    assert "calque pretrain --senses writes one" in fails(capsys, "senses", tmp_path, "bank", "--trained")
    assert "add --text FILE; or --trained" in fails(capsys, "senses", elmo, "bank")
    assert "did you mean bank?" in fails(capsys, "senses", elmo, "bnak", "--trained")
    rare = fails(capsys, "senses", elmo, "bnak", "--text", f"en={text}", "--pretokenized")
    assert "'bnak' does not occur 20 times in the text" in rare
    few = fails(capsys, "senses", elmo, "bank", "--text", f"en={text}", "--pretokenized", "--limit", 3)
    assert "only 0 words of the text occur 20 times or more" in few
    assert "the language is unknown" in fails(capsys, "senses", elmo, "bank", "--text", text)
    assert "name a word" in fails(capsys, "senses", elmo, "--text", text)
    assert "name a word" in fails(capsys, "senses", elmo, "--trained", "--text", text, "--out", tmp_path / "out.txt")
    assert "is only for --text" in fails(capsys, "senses", elmo, "bank", "--limit", 3)
    (tmp_path / "table.vec").write_text("2 2\nbank 1 0\nriver 0 1\n")
    table = fails(capsys, "senses", tmp_path / "table.vec", "bank", "--text", f"en={text}")
    assert "senses need an ELMo or a model with a mask" in table
    assert "no.txt" in fails(capsys, "senses", elmo, "--text", f"en={tmp_path}/no.txt", "--out", tmp_path / "out.txt")
    assert "is also read" in fails(capsys, "senses", elmo, "--text", f"en={text}", "--out", text)


def test_a_report_draws_the_senses_of_words(capsys, elmo, text, tmp_path):
    results, word = tmp_path / "senses.jsonl", several(elmo)
    works(capsys, "senses", elmo, word, "--trained", "--out", results, "-q")
    of_text = ("--text", f"en={text}", "--pretokenized", "--out", results, "-q")
    works(capsys, "senses", elmo, "Geld", "--trained", *of_text)
    first, second = map(json.loads, results.read_text().splitlines())
    found = trained_senses(elmo)
    number = found.find(word)
    senses = range(1, int(found.n_senses[number]) + 1)
    assert (first["data"], first["encoder"], first["languages"]) == (word, "elmo", ["und"])
    assert (second["data"], second["languages"]) == ("Geld", ["en"])
    for sense in senses:
        items = [item for item in first["items"] if item["of"] == sense]
        (own,) = found.plane(np.array([found.row(number, sense)]))
        assert (items[0]["word"], items[0]["number"], items[0]["cosine"]) == (word, sense, 1.0)
        assert (items[0]["x"], items[0]["y"]) == pytest.approx(own.tolist(), abs=1e-4)
        near = found.nearest(number, sense, 3)
        assert [(i["word"], i["number"]) for i in items[1:4]] == [(found.words[n.word], n.number) for n in near]
    assert {item["lang"] for item in second["items"]} == {"en"}
    page = tmp_path / "report.html"
    works(capsys, "report", results, "--out", page, "--plots", tmp_path / "plots")
    html = page.read_text()
    assert f"{word}_1</text>" in html
    assert list((tmp_path / "plots").glob("senses-Geld*.svg"))
    assert f"<span>{word}_1</span>" in html
