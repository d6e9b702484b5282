"""Zero-shot tasks from files on the command line, and studies whose every step is done once."""

import json

import numpy as np
import pytest

from calque.cli import main, spread
from calque.corpora.languages import language_of
from calque.errors import InputError, SettingError
from calque.runs.steps import Step, Steps, digest
from calque.runs.study import Study, study, tables
from planted import labelled, tagged, trees


def columns(named, path):
    """Tagged text as a file."""
    data, position, lines = named.data, 0, []
    for sentence in data.sentences:
        for word in sentence.words:
            lines.append(f"{word}\t{data.tags[position]}")
            position += 1
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path):
    columns(tagged(40, "en"), tmp_path / "ner.train.en.tsv")
    for lang in ("de", "es"):
        columns(tagged(12, lang, 1), tmp_path / f"ner.test.{lang}.tsv")
    for lang, n in (("en", 40), ("de", 12)):
        data = labelled(n, lang).data
        rows = [f"{data.labels[k]}\t{' '.join(text.words)}\n" for k, text in enumerate(data.texts[0])]
        (tmp_path / f"mood.{lang}.tsv").write_text("".join(rows))
    bank = trees(12, "en").data
    position, lines = 0, []
    for sentence in bank.sentences:
        for k, word in enumerate(sentence.words, 1):
            head, relation = int(bank.heads[position]), bank.relations[position]
            lines.append(f"{k}\t{word}\t_\t{bank.upos[position]}\t_\t_\t{head}\t{relation}\t_\t_")
            position += 1
        lines.append("")
    (tmp_path / "en_tree.conllu").write_text("\n".join(lines) + "\n")
    (tmp_path / "dict.tsv").write_text("the\tder\na\teine\nin\tin\n")
    return tmp_path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return caught.value.code, *capsys.readouterr()


def test_ner_from_files_to_scores(files, tiny_folder, capsys):
    out = files / "scores.jsonl"
    code, said, news = run(
        capsys, "evaluate", tiny_folder, "ner", "--train", files / "ner.train.en.tsv", "--test",
        files / "ner.test.de.tsv", files / "ner.test.es.tsv", "--seeds", 2, "--epochs", 1, "--hidden", 8, "--json", "--out", out,
    )  # fmt: skip
    assert code == 0, news
    found = json.loads(said.splitlines()[-1])
    assert (found["task"], found["metric"], found["languages"]) == ("ner", "f1", ["en", "de"])
    whole = [score for score in found["scores"] if score["metric"] == "f1"]
    assert [score["languages"][-1] for score in whole] == ["de", "es"]
    assert found["settings"]["seeds"] == [0, 1]
    assert found["settings"]["hidden"] == 8
    assert {json.loads(line)["data"] for line in out.read_text().splitlines()} == {"ner.test.de.tsv", "ner.test.es.tsv"}
    assert "40 texts in en" in news


@pytest.mark.parametrize("arguments", [
    ("sentiment", "--train", "mood.en.tsv", "--test", "mood.de.tsv", "--tune"),
    ("parsing", "--train", "en_tree.conllu", "--test", "en_tree.conllu", "--hidden", "8"),
    ("pos", "--train", "en_tree.conllu", "--test", "de=en_tree.conllu", "--head", "linear"),
])  # fmt: skip
def test_other_tasks_print_a_table(arguments, files, tiny_folder, capsys, monkeypatch):
    monkeypatch.chdir(files)
    code, said, news = run(capsys, "evaluate", tiny_folder, *arguments, "--seeds", 1, "--epochs", 1)
    assert code == 0, news
    head = said.splitlines()[0].split()
    assert head[:5] == ["test", "language", "metric", "value", "s.d."]
    assert arguments[4].split("=")[-1] in said


def test_a_lexicon_and_its_text(files, tiny_folder, capsys, monkeypatch):
    monkeypatch.chdir(files)
    (files / "text.en.txt").write_text("the a in\nin the\n")
    (files / "text.de.txt").write_text("der eine in\n")
    code, said, news = run(capsys, "evaluate", tiny_folder, "lexicon", "--test", "dict.tsv", "--langs", "en", "de", "--text",
                           "text.en.txt", "text.de.txt", "--json")  # fmt: skip
    assert code == 0, news
    found = json.loads(said.splitlines()[-1])
    assert (found["metric"], found["n"], found["settings"]["anchors"]) == ("p@1", 3, True)


@pytest.mark.parametrize(("arguments", "fact"), [
    (("ner", "--test", "ner.test.de.tsv"), "ner learns from text: --train FILE"),
    (("ner", "--train", "dict.tsv", "--test", "ner.test.de.tsv"), "dict.tsv: which language is it in? Say it before the name"),
    (("ner", "--train", "ner.train.en.tsv", "--test", "ner.test.de.tsv", "--rename", "PER"), "--rename PER: expected OLD=NEW"),
    (("nli", "--train", "mood.en.tsv", "--test", "mood.de.tsv"), "nli needs 2"),
    (("cooking", "--test", "mood.de.tsv"), "task 'cooking' is not known, expected one of retrieval"),
    (("retrieval", "--test", "a", "b", "--langs", "en", "de"), "--test takes one file here, got 2"),
    (("retrieval", "--test", "a"), "retrieval needs --langs"),
    (("ner", "--train", "ner.train.en.tsv", "--test", "ner.test.de.tsv", "--langs", "en", "de"), "--langs is not for ner"),
    (("parsing", "--train", "en_tree.conllu", "--test", "en_tree.conllu", "--head", "linear"), "parsing has one head"),
    (("wsd", "--test", "x.xml"), "wsd learns its senses from text"),
])  # fmt: skip
def test_mistakes_are_one_line(arguments, fact, files, tiny_folder, capsys, monkeypatch):
    monkeypatch.chdir(files)
    code, said, news = run(capsys, "evaluate", tiny_folder, *arguments, "-q")
    assert (code, said) == (2, "")
    assert fact in news
    assert news.count("\n") == 1


def test_options_with_any_number_of_values():
    assert spread(["evaluate", "E", "ner", "--test", "a", "b", "--train", "c", "-q"]) == [
        "evaluate", "E", "ner", "--test", "a", "--test", "b", "--train", "c", "-q",
    ]  # fmt: skip
    assert spread(["evaluate", "--test", "a", "b", "--train", "c", "E", "ner"])[-4:] == ["--train", "c", "E", "ner"]
    assert spread(["evaluate", "E", "ner", "--test"]) == ["evaluate", "E", "ner", "--test"]
    assert spread(["words", "--extra", "a", "b"]) == ["words", "--extra", "a", "b"]


@pytest.mark.parametrize(("name", "lang"), [
    ("panx.dev.de.tsv", "de"), ("en_ewt.train.iob2", "en"), ("a/b.en/xsid.valid.de-ba.conll", "de-ba"),
    ("conll2002.esp.testa", "es"), ("semcor.data.xml", None), ("en.de.txt", None), ("train.txt", None),
])  # fmt: skip
def test_the_language_that_a_name_says(name, lang):
    assert language_of(name) == lang


# -- studies ---------------------------------------------------------------------------------------------------------
PLAN = """
seeds = 1
{more}
[encoders]
tiny = "{encoder}"

[methods.base]
[methods.rotation]
[methods.quick]
method = "contrastive"
epochs = 1
batch = 4

[supervision.parallel]
de = "train.tsv"

[tasks.ner]
train = ["ner.train.en.tsv"]
test = ["de=ner.test.de.tsv", "ner.test.es.tsv"]
epochs = 1
hidden = 8

[tasks.retrieval]
test = {{ de = "train.tsv" }}
train = {{ de = "train.tsv" }}
"""


@pytest.fixture
def plan(files, tiny_folder):
    rng = np.random.default_rng(0)
    words = {"the": "der", "a": "ein", "in": "in", "e": "und", "1": "1"}
    rows = []
    for _ in range(40):
        chosen = [list(words)[k] for k in rng.integers(0, 5, rng.integers(2, 6))]
        rows.append(f"{' '.join(chosen)}\t{' '.join(words[word] for word in chosen)}\n")
    (files / "train.tsv").write_text("".join(rows))
    path = files / "study.toml"
    path.write_text(PLAN.format(encoder=tiny_folder, more=""))
    return path


def test_a_study_does_every_step_once(plan, capsys):
    said = []
    records = study(plan, say=said.append)
    assert "linking words: 1 of 1 steps to do" in said
    assert "aligning: 2 of 2 steps to do" in said
    assert "evaluating: 6 of 6 steps to do" in said
    assert {(r["method"], r["task"]) for r in records} == {
        (method, task) for method in ("base", "rotation", "quick") for task in ("ner", "retrieval")
    }
    first = (plan.parent / "study" / "results.jsonl").read_text()
    said.clear()
    assert study(plan, say=said.append) == records
    assert said == [
        "linking words: 0 of 1 steps to do",
        "aligning: 0 of 2 steps to do",
        "evaluating: 0 of 6 steps to do",
    ]
    assert (plan.parent / "study" / "results.jsonl").read_text() == first
    table = (plan.parent / "study" / "results.md").read_text()
    assert "## ner, f1" in table
    assert "| tiny | quick |" in table
    # A setting of one method changes its steps and no others.
    plan.write_text(plan.read_text().replace("batch = 4", "batch = 8"))
    said.clear()
    study(plan, say=said.append)
    assert said[0].startswith("linking words: 0") and "aligning: 1 of 2 steps to do" in said  # noqa: PT018
    assert "evaluating: 2 of 6 steps to do" in said


def test_the_command_and_two_workers(plan, capsys):
    code, said, news = run(capsys, "study", plan, "--workers", 2)
    assert code == 0, news
    assert said.startswith("## ner, f1")
    one = study(plan, data=plan.parent, out=plan.parent / "again")
    two = [json.loads(line) for line in (plan.parent / "study" / "results.jsonl").read_text().splitlines()]

    def strip(records):
        return [(r["method"], r["data"].rpartition("/")[2], r["metric"], round(r["value"] or 0, 6)) for r in records]

    assert strip(one) == strip(two)


def test_one_model_for_each_language(plan):
    text = plan.read_text().replace("seeds = 1", 'seeds = 1\ntogether = false\ntowards = "target"')
    plan.write_text(text)
    records = study(plan)
    rotated = [r for r in records if r["method"] == "rotation" and r["task"] == "ner"]
    assert {r["languages"][-1] for r in rotated} == {"de"}  # its text is in German only


@pytest.mark.parametrize(("old", "new", "fact"), [
    ("seeds = 1", "sedes = 1", "'sedes' is not a part of a study, expected data, encoders"),
    ("[methods.rotation]", '[methods.rotation]\nmethod = "turn"', "method 'turn' is not known"),
    ("seeds = 1", 'seeds = 1\ntowards = "target"', "together = false"),
    ("[encoders]\n", "[encoders\n", "cannot be read as a study"),
])  # fmt: skip
def test_a_study_that_cannot_be(old, new, fact, plan):
    plan.write_text(plan.read_text().replace(old, new))
    with pytest.raises(InputError, match=fact):
        Study.read(plan)


def test_a_stopped_step_begins_again(tmp_path):
    tries = []

    def work(step, folder):
        tries.append(folder.name)
        (folder / f"part{len(tries)}").write_text("x")
        if len(tries) == 1:
            raise SettingError("stopped")

    steps = Steps(tmp_path / "steps", {"work": work})
    step = Step("work", {"a": 1})
    with pytest.raises(SettingError):
        steps.do(step)
    assert not steps.is_done(step)
    place = steps.do(step)
    assert sorted(file.name for file in place.iterdir()) == ["done.json", "part1", "part2"]
    assert steps.do(step) == place
    assert len(tries) == 2


def test_what_a_step_reads_is_part_of_its_name(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    keys = {Step("work", settings, files).key for settings, files in (
        ({}, ()), ({"x": 1}, ()), ({}, (str(tmp_path / "a"),)), ({}, (str(tmp_path / "b"),)),
    )}  # fmt: skip
    assert len(keys) == 4
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("1")
    assert digest(str(tmp_path / "folder")) != digest(str(tmp_path / "a"))


def test_only_a_clear_best_is_marked():
    def record(method, value, low, high):
        return {"task": "ner", "metric": "f1", "encoder": "e", "method": method, "supervision": "", "languages": ["en", "de"],
                "data": "t", "value": value, "low": low, "high": high, "settings": {"sd": 0.01}}  # fmt: skip

    clear = tables([record("a", 0.5, 0.45, 0.55), record("b", 0.7, 0.6, 0.8)])
    assert "**70.0 ± 1.0**" in clear
    assert "**" not in tables([record("a", 0.65, 0.55, 0.75), record("b", 0.7, 0.6, 0.8)])
