"""Code-switched training text, from files to scores."""

from __future__ import annotations

import json

import pytest

from calque.runs.study import study
from command import fails, works
from planted import labelled, tagged, write_tags


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Words `e0` to `e11` of English, which German and French write with another letter."""
    monkeypatch.chdir(tmp_path)
    write_tags(tagged(40, "en"), tmp_path / "ner.train.en.tsv")
    write_tags(tagged(12, "de", 1), tmp_path / "ner.test.de.tsv")
    for lang, n in (("en", 40), ("de", 12)):
        data = labelled(n, lang).data
        rows = [f"{data.labels[k]}\t{' '.join(text.words)}\n" for k, text in enumerate(data.texts[0])]
        (tmp_path / f"mood.{lang}.tsv").write_text("".join(rows))
    (tmp_path / "de.txt").write_text("".join(f"e{k}\td{k}\n" for k in range(8)) + "e9\td nine\n")
    (tmp_path / "fr.txt").write_text("".join(f"e{k} f{k}\n" for k in range(12)))
    lines = [" ".join(f"%s{k}" for k in range(start, start + 4)) for start in (0, 4, 8, 1, 5, 2, 6, 3, 7)] * 4
    (tmp_path / "en-fr.tsv").write_text("".join(f"{line % (('e',) * 4)}\t{line % (('f',) * 4)}\n" for line in lines))
    return tmp_path


NER = ("ner", "--train", "ner.train.en.tsv", "--test", "ner.test.de.tsv", "--seeds", 1, "--epochs", 1, "--hidden", 8)


def test_dictionaries_and_parallel_text_switch_what_is_learnt_from(files, tiny_folder, capsys):
    said, news = works(
        capsys, "evaluate", tiny_folder, *NER, "--code-switch", "de=de.txt", "fr=fr.txt", "--code-switch-from", "fr=en-fr.tsv",
        "--code-switch-texts", 0.8, "--code-switch-copies", 2, "--option", "code_switch_seed=3", "--out", "scores.jsonl",
    )  # fmt: skip
    assert "de.txt: de translations of 8 words, 1 entries of several words left out" in news
    assert "en-fr.tsv: fr translations of 12 words, by the links of 36 sentence pairs" in news
    settings = json.loads((files / "scores.jsonl").read_text().splitlines()[0])["settings"]
    assert settings["code_switch"] == "de, fr: 0.8 of texts, 0.5 of words, copies 2, seed 3"
    record = settings["code_switched"]["ner.train.en.tsv"]
    assert record["translations"] == {"de": 8, "fr": 12}
    assert record["entries_of_several_words"] == 1
    counts = record["counts"]
    assert 0 < counts["words_without_translation"] < counts["words_drawn"] < counts["words"]
    assert counts["words_changed"] == counts["words_drawn"] - counts["words_without_translation"]
    line = f"ner.train.en.tsv: {counts['texts_changed']} of 80 texts in 2 copies are code-switched; of the "
    assert line in said
    assert line in news


def test_with_the_encoder_there_are_several_copies(files, tiny_folder, capsys):
    said, _ = works(
        capsys, "evaluate", tiny_folder, "sentiment", "--train", "mood.en.tsv", "--test", "mood.de.tsv", "--tune", "--seeds", 1,
        "--epochs", 1, "--code-switch", "de=de.txt", "--json",
    )  # fmt: skip
    assert json.loads(said.splitlines()[-1])["settings"]["code_switch"] == "de: 0.5 of texts, 0.5 of words, copies 5"


@pytest.mark.parametrize(("more", "fact"), [
    (("--code-switch", "de.txt"), "--code-switch de.txt: say the language before the name, as in de=de.txt"),
    (("--code-switch", "en=de.txt"), "the training text is in en itself"),
    (("--code-switch-words", 0.3), "--code-switch-words is for code-switched training text: add --code-switch LANG="),
    (("--code-switch", "de=de.txt", "--code-switch-texts", 1.5), "--code-switch-texts = 1.5, expected a number from 0 to 1"),
    (("--code-switch", "de=none.txt"), "none.txt"),
    (("--code-switch", "de=de.txt", "--train", "ner.train.en.tsv", "de=ner.test.de.tsv"), "in one language"),
    (("--code-switch", "de=de.txt", "--project", "en-fr.tsv", "--langs", "en", "fr"), "--code-switch and --project cannot be"),
])  # fmt: skip
def test_switches_that_cannot_be_are_told_in_one_line(more, fact, files, tiny_folder, capsys):
    assert fact in fails(capsys, "evaluate", tiny_folder, *NER, *more)
    assert "does not apply to retrieval" in fails(
        capsys,
        "evaluate",
        tiny_folder,
        "retrieval",
        "--test",
        "en-fr.tsv",
        "--langs",
        "en",
        "fr",
        "--code-switch",
        "de=de.txt",
    )


STUDY = """
seeds = 1

[encoders]
tiny = "{tiny}"

[methods]
base = {{}}

[tasks.switched]
task = "sentiment"
train = ["mood.en.tsv"]
test = ["mood.de.tsv"]
epochs = 1
code_switch = {{ de = "de.txt" }}
code_switch_from = {{ fr = "en-fr.tsv" }}
code_switch_words = 0.9
"""


def test_a_study_has_the_same_settings(files, tiny_folder):
    (files / "study.toml").write_text(STUDY.format(tiny=tiny_folder))
    found = study(files / "study.toml")[0]["settings"]
    assert found["code_switch"] == "de, fr: 0.5 of texts, 0.9 of words, copies 1"
    (files / "study.toml").write_text(STUDY.format(tiny=tiny_folder).replace("words = 0.9", "words = 2"))
    with pytest.raises(Exception, match="code_switch_words = 2, expected a number from 0 to 1"):
        study(files / "study.toml")
