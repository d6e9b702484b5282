"""`calque senses`: the senses of a word, and those of a text; found in the text, or trained."""

import json

import numpy as np
import pytest

from calque.encoders import load_encoder
from calque.pretraining import sense_reader
from calque.pretraining.sense_reader import ContextSenseReader, open_contexts, open_sense_reader
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
    reader = open_sense_reader(folder)
    return next(word for word in WORDS if reader.inventory.n_senses[reader.find(word)] > 1)


@pytest.mark.parametrize("kind", ["elmo", "bert"])
def test_a_line_of_numbers_for_every_line_of_text(capsys, request, text, tmp_path, kind):
    folder = request.getfixturevalue(kind)
    _, said = works(
        capsys, "senses", folder, "--trained", "--text", text, "--pretokenized", "--out", tmp_path / "numbers.txt"
    )
    lines = (tmp_path / "numbers.txt").read_text().splitlines()
    expected, place = open_sense_reader(folder).select(a_text(50)).tolist(), 0
    assert len(lines) == 50
    for line, sentence in zip(lines, a_text(50), strict=True):
        numbers = line.split()
        assert len(numbers) == len(sentence)
        assert numbers == [str(n) if n else "-" for n in expected[place : place + len(sentence)]]
        place += len(sentence)
    assert any("-" in line for line in lines)
    assert any("2" in line for line in lines)
    known = sum(n > 0 for n in expected)
    assert f"{known:,} of {place:,} words in 50 lines have a sense" in said


def test_several_texts_come_one_after_the_other_and_are_divided_into_words(capsys, elmo, tmp_path):
    (tmp_path / "a.txt").write_text("The bank, of a river.\n")
    (tmp_path / "b.txt").write_text("Geld\n\nder Fluss\n")
    out = tmp_path / "numbers.txt"
    texts = (f"en={tmp_path}/a.txt", f"de={tmp_path}/b.txt")
    works(capsys, "senses", elmo, "--trained", "--text", *texts, "--out", out, "-q")
    first, *others = out.read_text().splitlines()
    assert len(first.split()) == 7  # the comma and the full stop are words
    assert first.split()[2] == "-"
    assert first.split()[1] != "-"
    assert [len(line.split()) for line in others] == [1, 0, 2]


def test_a_text_of_the_only_language_of_the_model_needs_no_name(capsys, tmp_path):
    folder = an_elmo(tmp_path / "elmo")
    (tmp_path / "text.txt").write_text("a bank\n")
    command = ["senses", folder, "--trained", "--text", tmp_path / "text.txt", "--out", tmp_path / "out.txt"]
    assert "which language is it in? Say it before the name" in fails(capsys, *command)
    (folder / "calque-run.json").write_text('{"languages": {"en": {}, "de": {}}}')
    assert "which language is it in?" in fails(capsys, *command)
    (folder / "calque-run.json").write_text('{"languages": {"en": {}}}')
    works(capsys, *command)


def test_a_word_is_shown_with_its_senses(capsys, elmo, text):
    word, reader = several(elmo), open_sense_reader(elmo)
    plain, _ = works(capsys, "senses", elmo, word, "--trained", "-k", 3)
    assert plain.startswith(f"{word}: ")
    assert "for sentences with each sense: --text FILE" in plain
    out, _ = works(
        capsys, "senses", elmo, word, "--trained", "--text", f"en={text}", "--pretokenized", "--json", "-q", "-k", 4
    )
    found, number = json.loads(out), reader.find(word)
    count = int(reader.inventory.n_senses[number])
    assert [sense["number"] for sense in found["senses"]] == list(range(1, count + 1))
    shares = [sense["share"] for sense in found["senses"]]
    assert shares == sorted(shares, reverse=True)
    assert abs(sum(shares) - 1) < 1e-3
    chosen = dict.fromkeys(range(1, count + 1), 0)
    text_, numbers, place = a_text(50), reader.select(a_text(50)).tolist(), 0
    for sentence in text_:
        for k, other in enumerate(sentence.words):
            if other == word and numbers[place + k]:
                chosen[numbers[place + k]] += 1
        place += len(sentence)
    assert found["occurrences"] == sum(chosen.values()) > 0
    for sense in found["senses"]:
        assert len(sense["nearest"]) == 4
        assert sense["chosen"] == chosen[sense["number"]]
        assert len(sense["sentences"]) == min(3, chosen[sense["number"]])
        for about in sense["sentences"]:
            assert about["words"][about["place"]] == word
            assert about["lang"] == "en"
    table, _ = works(
        capsys, "senses", elmo, word, "--trained", "--text", f"en={text}", "--pretokenized", "-q", "--examples", 1
    )
    assert f"[{word}]" in table


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
def test_senses_are_found_in_the_text_unless_it_is_said_otherwise(capsys, request, text, tmp_path, kind, monkeypatch):
    folder, out = request.getfixturevalue(kind), tmp_path / "numbers.txt"
    monkeypatch.setattr(
        sense_reader, "split_words", lambda vectors, **_: [np.arange(len(x)) % 2 * (len(x) % 2) for x in vectors]
    )
    works(capsys, "senses", folder, "--text", f"en={text}", "--pretokenized", "--out", out, "-q")
    encoder = load_encoder(str(folder))
    reader = ContextSenseReader(open_contexts(encoder), encoder.name, lambda: [a_text(50)])
    expected = [str(n) if n else "-" for n in reader.select(a_text(50)).tolist()]
    assert [n for line in out.read_text().splitlines() for n in line.split()] == expected
    assert {"1", "2"} <= set(expected)
    found, _ = works(capsys, "senses", folder, "bank", "--text", f"en={text}", "--pretokenized", "--json", "-q")
    senses, number = json.loads(found), reader.find("bank")
    assert (senses["trained"], len(senses["senses"])) == (False, reader.inventory.n_senses[number])
    words = [word for sentence in a_text(50) for word in sentence.words]
    for sense in senses["senses"]:
        same = [n for word, n in zip(words, expected, strict=True) if word == "bank" and n == str(sense["number"])]
        assert sense["chosen"] == len(same)
        assert len(sense["nearest"]) == 10
    shown, _ = works(capsys, "senses", folder, "bank", "--text", f"en={text}", "--pretokenized", "-q")
    assert "of its uses in a sample of the text" in shown
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
    assert "name a word" in fails(capsys, "senses", elmo, "--text", text)
    assert "is only for --text" in fails(capsys, "senses", elmo, "bank", "--limit", 3)
    (tmp_path / "table.vec").write_text("2 2\nbank 1 0\nriver 0 1\n")
    table = fails(capsys, "senses", tmp_path / "table.vec", "bank", "--text", f"en={text}")
    assert "senses need an ELMo or a model with a mask" in table
    assert "no.txt" in fails(capsys, "senses", elmo, "--text", f"en={tmp_path}/no.txt", "--out", tmp_path / "out.txt")
    assert "is also read" in fails(capsys, "senses", elmo, "--text", f"en={text}", "--out", text)


def test_the_numbers_come_whole_or_not_at_all(capsys, elmo, text, tmp_path):
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"a bank\n\xff\xfe\n")
    command = ["senses", elmo, "--trained", "--text", f"en={text}", f"en={broken}", "--pretokenized", "-q"]
    fails(capsys, *command, "--out", tmp_path / "out.txt")
    assert not list(tmp_path.glob("out.txt*"))


def test_a_report_draws_the_senses_of_words(capsys, elmo, text, tmp_path):
    results, word = tmp_path / "senses.jsonl", several(elmo)
    works(capsys, "senses", elmo, word, "--trained", "--out", results, "-q")
    of_text = ("--text", f"en={text}", "--pretokenized", "--out", results, "-q")
    works(capsys, "senses", elmo, "Geld", "--trained", *of_text)
    first, second = map(json.loads, results.read_text().splitlines())
    reader = open_sense_reader(elmo)
    number = reader.find(word)
    senses = range(1, int(reader.inventory.n_senses[number]) + 1)
    assert (first["data"], first["encoder"], first["languages"]) == (word, "elmo", ["und"])
    assert (second["data"], second["languages"]) == ("Geld", ["en"])
    for sense in senses:
        items = [item for item in first["items"] if item["of"] == sense]
        (own,) = reader.inventory.plane(np.array([reader.inventory.row(number, sense)]))
        assert (items[0]["word"], items[0]["number"], items[0]["cosine"]) == (word, sense, 1.0)
        assert (items[0]["x"], items[0]["y"]) == pytest.approx(own.tolist(), abs=1e-4)
        near = reader.nearest(number, sense, 3)
        assert [(i["word"], i["number"]) for i in items[1:4]] == [(reader.words[n.word], n.number) for n in near]
    assert {item["lang"] for item in second["items"]} == {"en"}
    page = tmp_path / "report.html"
    works(capsys, "report", results, "--out", page, "--plots", tmp_path / "plots")
    html = page.read_text()
    assert f"{word}_1</text>" in html
    assert list((tmp_path / "plots").glob("senses-Geld*.svg"))
    assert f"<span>{word}_1</span>" in html


@pytest.mark.parametrize("kind", ["elmo", "bert"])
def test_what_was_pretrained_with_senses_is_looked_at(capsys, tmp_path, kind):
    text = tmp_path / "text.txt"
    text.write_text("".join(" ".join(sentence.words) + "\n" for sentence in a_text(120)))
    sizes = ["--dim", 8, "--hidden", 16] if kind == "elmo" else ["--dim", 8, "--layers", 1, "--vocabulary", 150]
    works(
        capsys, "pretrain", f"en={text}", "--model", kind, *sizes, "--senses", 3, "--updates", 12, "--batch", 16,
        "--sense-option", "axes=4", "--sense-option", "warmup=4", "--lower-case", "--pretokenized",
        "--out", tmp_path / "model", "-q",
    )  # fmt: skip
    found, _ = works(
        capsys, "senses", tmp_path / "model", "UFER", "--trained", "--text", text, "--pretokenized", "--json", "-q"
    )
    senses = json.loads(found)
    assert senses["word"] == "ufer"  # all text was read in lower case
    assert senses["occurrences"] == sum(sentence.words.count("Ufer") for sentence in a_text(120))
    assert sum(sense["share"] for sense in senses["senses"]) == pytest.approx(1, abs=1e-3)
    assert {near["lang"] for sense in senses["senses"] for near in sense["nearest"]} <= {"en", None}
    out = tmp_path / "numbers.txt"
    works(capsys, "senses", tmp_path / "model", "--trained", "--text", text, "--pretokenized", "--out", out, "-q")
    assert [len(line.split()) for line in out.read_text().splitlines()] == [len(sentence) for sentence in a_text(120)]
