"""What the command line refuses before it reads or writes anything, and what it says even with -q."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from calque.errors import OutputError
from calque.storage import part_of, temporary_folder
from command import fails, run, works

EN_XX = ("--langs", "en", "xx")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A small parallel text, and the same in plain text."""
    folder = tmp_path_factory.mktemp("text")
    words = ["the cat sees a house", "a house of time", "water in the house", "time and water", "the water of time"] * 6
    lines = [f"{line} {k % 3}\t{line[::-1]} {k % 3}\n" for k, line in enumerate(words)]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / "en.txt").write_text("".join(line + "\n" for line in words), encoding="utf-8")
    for lang, k in (("en", 0), ("xx", 1)):
        (folder / f"moses.{lang}").write_text("".join(line.strip("\n").split("\t")[k] + "\n" for line in lines))
    return folder


def test_nothing_but_the_name_prints_the_help(capsys):
    out, err = works(capsys)
    assert "Usage" in out
    assert err == ""


@pytest.mark.parametrize("content", ["one column\n" * 5, "only source\t\n"])
@pytest.mark.parametrize("verb", ["words", "evaluate"])
def test_a_parallel_text_without_a_usable_pair_is_an_error(capsys, tmp_path, tiny_folder, content, verb):
    text, out = tmp_path / "t.tsv", tmp_path / "out"
    text.write_text(content, encoding="utf-8")
    if verb == "words":
        line = fails(capsys, "words", text, *EN_XX, "--out", out)
    else:
        line = fails(capsys, "evaluate", tiny_folder, "retrieval", "--test", text, *EN_XX, "--out", out)
    assert "no usable sentence pair" in line
    assert "t.tsv" in line
    assert not out.exists()


def test_a_plain_text_without_a_word_is_an_error(capsys, tmp_path, tiny_folder):
    empty = tmp_path / "empty.txt"
    empty.write_bytes(b"")
    for job in (
        ("encode", tiny_folder, empty, "--lang", "en", "--out", tmp_path / "v"),
        ("anchors", empty, "--lang", "en", "--encoder", tiny_folder, "--out", tmp_path / "a"),
        ("pretrain", f"en={empty}", "--out", tmp_path / "p"),
        ("perplexity", "mini", f"en={empty}"),
    ):
        assert "no word in it" in fails(capsys, *job)


def test_what_is_read_is_not_written_over(capsys, text, tmp_path, tiny_folder):
    before = {path.name: path.read_bytes() for path in text.iterdir()}
    train, plain = text / "train.tsv", text / "en.txt"
    link = tmp_path / "link.tsv"
    link.symlink_to(train)
    for job in (
        ("words", train, *EN_XX, "--out", train),
        ("words", train, *EN_XX, "--out", link),
        ("words", text / "moses", *EN_XX, "--out", text / "moses.xx"),
        ("words", train, *EN_XX, "--out", tmp_path / "l", "--tables", tmp_path / "l"),
        ("words", train, *EN_XX, "--extra", link, "--out", link),
        ("encode", tiny_folder, plain, "--lang", "en", "--out", plain),
        ("evaluate", tiny_folder, "retrieval", "--test", train, *EN_XX, "--out", train),
        ("analyze", tiny_folder, "--test", train, *EN_XX, "--out", train),
        ("report", train, "--out", train),
        ("align", train, *EN_XX, "--encoder", tiny_folder, "--towards", "en", "--out", tiny_folder, "--overwrite"),
        ("align", train, *EN_XX, "--encoder", f"en={tiny_folder},xx=mini", "--towards", "en", "--out", tiny_folder),
        ("pretrain", f"en={plain}", "--start", tiny_folder, "--out", tiny_folder, "--overwrite"),
    ):
        assert "is also read" in fails(capsys, *job)
    assert {path.name: path.read_bytes() for path in text.iterdir()} == before
    works(capsys, "words", text / "moses", *EN_XX, "--out", text / "moses.align", "-q")
    works(capsys, "words", text / "moses", *EN_XX, "--out", text / "moses.align", "-q")  # no side of the text


def test_only_files_are_replaced_by_files_and_folders_by_folders(capsys, text, tmp_path, tiny_folder):
    train, plain = text / "train.tsv", text / "en.txt"
    pipe, folder, file = tmp_path / "pipe", tmp_path / "folder", tmp_path / "file"
    os.mkfifo(pipe)
    folder.mkdir()
    file.write_text("kept")
    for out in (pipe, folder, file / "below", "/dev/null", ""):
        for job in (
            ("words", train, *EN_XX, "--out", out),
            ("words", train, *EN_XX, "--out", tmp_path / "l", "--tables", out),
            ("encode", tiny_folder, plain, "--lang", "en", "--out", out),
            ("evaluate", tiny_folder, "retrieval", "--test", train, *EN_XX, "--out", out),
            ("analyze", tiny_folder, "--test", train, *EN_XX, "--out", out),
        ):
            line = fails(capsys, *job)
            assert "--out" in line or "--tables" in line
    for out in (pipe, file, "a" * 300):
        for job in (
            ("align", train, *EN_XX, "--encoder", tiny_folder, "--towards", "en", "--out", out),
            ("anchors", plain, "--lang", "en", "--encoder", tiny_folder, "--out", out),
            ("pretrain", f"en={plain}", "--out", out),
            ("demo", "--out", out),
            ("report", train, "--plots", out, "--out", tmp_path / "r.html"),
        ):
            line = fails(capsys, *job)
            assert "--out" in line or "--plots" in line
    assert file.read_text() == "kept"
    assert pipe.is_fifo()
    assert not (tmp_path / "l").exists()


ALIGN = ("align", "TRAIN", *EN_XX, "--encoder", "mini", "--towards", "en", "--out", "OUT")


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (("words", "TRAIN", "--langs", "en", "en", "--out", "OUT"), "two different languages"),
        (("words", "TRAIN", "--langs", "en", "de", "es", "--out", "OUT"), "repeat it, as in --langs"),
        ((*ALIGN, "--weight", "nan"), "--weight"),
        ((*ALIGN, "--seed", str(1 << 40)), "--seed"),
        (("align", "--dictionary", "PLAIN", *ALIGN[2:], "--option", "held_out=nan"), "held_out"),
        (("perplexity", "mini", "en=PLAIN", "--share", "nan"), "--share"),
    ],
)
def test_values_that_cannot_work_are_refused(capsys, text, tmp_path, job, said):
    names = {"TRAIN": text / "train.tsv", "PLAIN": text / "en.txt", "OUT": tmp_path / "out"}
    line = fails(capsys, *[str(names.get(word, word)).replace("=PLAIN", f"={text / 'en.txt'}") for word in job])
    assert said in line
    assert not (tmp_path / "out").exists()


RETRIEVAL = ("evaluate", "mini", "retrieval", "--test", "x", *EN_XX)


@pytest.mark.parametrize(
    ("job", "option", "users"),
    [
        ((*RETRIEVAL, "--seeds", "3"), "--seeds", "ner"),
        ((*ALIGN, "--links", "x", "--model", "hmm"), "--model", "--links"),
        (("words", "x", *EN_XX, "--out", "OUT", "--use", "y", "--model", "hmm"), "--model", "--use"),
        (("pretrain", "en=x", "--out", "OUT", "--start", "mini", "--dim", "64"), "--dim", "--start"),
        (("neighbours", "--encoder", "mini", "--lang1", "en", "--sentence1", "a", "--word1", "a", "--lang2", "de",
          "--sentence2", "b", "--limit", "5"), "--limit", "--text2"),
        (("analyze", "mini", "--test", "x", *EN_XX, "--only", "rank", "--forms", "3"), "--forms", "examples"),
    ],
)  # fmt: skip
def test_an_option_without_effect_is_refused(capsys, tmp_path, job, option, users):
    line = fails(capsys, *[str(tmp_path / "out") if word == "OUT" else word for word in job])
    assert line.startswith(f"calque: error: {option} ")
    assert users in line


def test_options_of_the_table_are_those_of_the_classes():
    from calque.tasks.inputs import FIELDS
    from calque.tasks.table import TASKS, option_names

    for name, row in TASKS.items():
        assert {"test", *row.files} <= {*FIELDS}
        assert set(row.options) - {*FIELDS} == set(option_names(TASKS.load(name))), name


def test_what_was_skipped_is_said_quietly_too(capsys, tmp_path, text):
    lines = (text / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    file = tmp_path / "t.tsv"
    file.write_text("".join([*lines[:3], "one column\n", *lines[3:], "empty\t\n"]), encoding="utf-8")
    _, err = works(capsys, "words", file, *EN_XX, "--out", tmp_path / "o", "-q")
    (line,) = err.splitlines()
    assert "2 unusable lines skipped" in line
    assert "1 × missing column, first: " in line
    assert "line 4" in line
    assert (tmp_path / "o").read_text().splitlines()[3] == ""  # the others keep their place
    _, err = works(capsys, "words", text / "train.tsv", *EN_XX, "--out", tmp_path / "o", "-q")
    assert err == ""


@pytest.mark.parametrize("verb", ["words", "evaluate"])
def test_a_text_of_which_a_tenth_cannot_be_read_is_refused(capsys, tmp_path, verb):
    lines = [f"the cat sees {k} houses\tdie Katze sieht {k} Häuser\n" for k in range(6)]
    plain = [line.replace("ä", "a") for line in lines] * 9
    file = tmp_path / "t.tsv"
    job = {"words": ("words", file, *EN_XX, "--out", tmp_path / "out", "-q"),
           "evaluate": ("evaluate", "mini", "retrieval", "--test", file, *EN_XX, "-q")}[verb]  # fmt: skip
    file.write_bytes("".join([*lines, *plain[:53]]).encode("latin-1"))
    said = fails(capsys, *job)
    assert re.search(
        r"t.tsv: 6 of 59 lines cannot be used \(6 × not UTF-8, first: .*t.tsv line 1\), expected at most a", said
    )
    assert "iconv -f ISO-8859-1 -t UTF-8 FILE > NEW; or go on without these lines by --on-error skip" in said
    assert "6 × not UTF-8" in works(capsys, *job, "--on-error", "skip")[1]
    file.write_bytes("".join([*lines, *plain]).encode("latin-1"))
    assert "6 × not UTF-8" in works(capsys, *job, *(["--overwrite"] if verb == "align" else []))[1]
    assert "--on-error never, expected raise or skip" in fails(capsys, "words", "t", *EN_XX, "--on-error", "never")


def test_a_mistake_says_what_to_do(capsys, monkeypatch, tmp_path, text, tiny_folder):
    job = ("align", text / "train.tsv", *EN_XX, "--encoder", tiny_folder, "--towards", "en", "--out", tmp_path / "res")
    assert "epochs = '1,1,1', expected a number not below 0; write --option epochs=VALUE with one such value" in fails(
        capsys, *job, "--option", "epochs=1,1,1"
    )
    said = fails(capsys, "evaluate", "mini", "retrieval", "--test", text / "train.tsv", *EN_XX, "--record")
    assert "and mini has no calque.json: name such a folder, or keep the scores with --out FILE" in said
    assert "encode:" not in said
    shutil.copytree(tiny_folder, tmp_path / "e")
    (tmp_path / "e" / "calque.json").write_text(json.dumps({"kind": "huggingface", "pooling": "nan"}))
    said = fails(capsys, "encode", tmp_path / "e", text / "en.txt", "--lang", "en", "--out", tmp_path / "v")
    assert "calque.json: pooling 'nan', expected one of" in said
    assert "correct it, or save the encoder again" in said

    def denied(self, *args, mkdir=Path.mkdir, **options):
        if "res" in self.name:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        mkdir(self, *args, **options)

    monkeypatch.setattr(Path, "mkdir", denied)
    assert fails(capsys, *job).endswith(
        f"{tmp_path}/res: Permission denied; choose another place, or change its permissions"
    )


def test_pairs_that_training_skips_are_said_on_the_terminal(capsys, tmp_path, text, tiny_folder):
    lines = (text / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    long = " ".join(["water"] * 65)
    file = tmp_path / "t.tsv"
    file.write_text("".join([f"{long}\t{long}\n", *lines]), encoding="utf-8")
    job = (*EN_XX, "--encoder", tiny_folder, "--towards", "en", "--epochs", "1", "--batch", "8")
    _, err = works(capsys, "align", file, *job, "--out", tmp_path / "o", "-q")
    assert "training skips some of the 31 sentence pairs: 1 with more than 64 words on a side" in err
    _, err = works(capsys, "align", text / "train.tsv", *job, "--out", tmp_path / "p", "-q")
    assert "skip" not in err


def test_several_texts_and_languages_in_one_evaluation(capsys, tmp_path, text, tiny_folder):
    other = tmp_path / "other.tsv"
    other.write_text("the cat sees\tsees cat the\na house\thouse a\n" * 4, encoding="utf-8")
    out = tmp_path / "r.jsonl"
    shown, _ = works(
        capsys, "evaluate", tiny_folder, "retrieval", "--test", text / "train.tsv", other, *EN_XX, "--langs", "en", "yy",
        "--out", out, "-q",
    )  # fmt: skip
    assert "train.tsv en-xx" in shown
    assert "other.tsv en-yy" in shown
    scores = [json.loads(line) for line in out.read_text().splitlines()]
    for lang, file in (("xx", text / "train.tsv"), ("yy", other)):
        alone, _ = works(
            capsys, "evaluate", tiny_folder, "retrieval", "--test", file, "--langs", "en", lang, "--json", "-q"
        )
        together = [score["value"] for score in scores if score["languages"] == ["en", lang]]
        assert together == [score["value"] for score in json.loads(alone)["scores"]]
    moses = ("evaluate", tiny_folder, "retrieval", "--test", text / "moses")  # one text that has several languages
    one, _ = works(capsys, *moses, *EN_XX, "--langs", "xx", "en", "-q")
    assert "moses en-xx" in one
    assert "moses xx-en" in one
    align = ("--encoder", tiny_folder, "--towards", "en", "--out", tmp_path / "out")
    line = fails(capsys, "align", text / "train.tsv", other, *EN_XX, *align)  # one pair would serve both texts
    assert f"{other}) and 1 pair(s) of --langs (en-xx): give one pair for each text" in line


def test_testing_on_the_training_text_is_said(capsys, tmp_path, text, tiny_folder):
    job = ("evaluate", tiny_folder, "retrieval", "--test", text / "train.tsv", *EN_XX, "-q")
    _, err = works(capsys, *job, "--train", text / "train.tsv")
    (line,) = err.splitlines()
    assert "30 of 30 test sentences are in the training text" in line
    other = tmp_path / "other.tsv"
    other.write_text("the cat sees\tsees cat the\na house\thouse a\n" * 4, encoding="utf-8")
    _, err = works(capsys, *job, "--train", other)
    assert err == ""


def test_a_task_trained_on_its_test_is_said(capsys, tmp_path, tiny_folder):
    rows = [f"cat\tB-PER\nsees\tO\nhouse{k}\tO\n\n" for k in range(20)]
    train, test = tmp_path / "train.en.tsv", tmp_path / "test.en.tsv"
    train.write_text("".join(rows[:15]), encoding="utf-8")
    test.write_text("".join(rows[10:]), encoding="utf-8")
    job = ("evaluate", tiny_folder, "ner", "--train", train, "--seeds", "1", "--epochs", "1", "-q")
    _, err = works(capsys, *job, "--test", test)
    assert "test.en.tsv: 5 of 10 test sentences are in the training text train.en.tsv" in err
    test.write_text("".join(rows[15:]), encoding="utf-8")
    _, err = works(capsys, *job, "--test", test)
    assert "training text" not in err


def test_a_damaged_checkpoint_is_one_line_without_advice_to_trust_it(capsys, tmp_path, text, tiny_folder):
    import torch

    job = ("align", text / "train.tsv", *EN_XX, "--encoder", tiny_folder, "--towards", "en", "--epochs", "1", "--out")
    for number, content in enumerate((b"PK\x03\x04" + bytes(100), {"identity": "x"})):
        out = tmp_path / str(number)
        place = temporary_folder(part_of(out), out) / "training" / "checkpoint.pt"
        place.parent.mkdir(parents=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            torch.save(content, place)
        line = fails(capsys, *job, out)
        assert "checkpoint.pt: not a readable checkpoint" in line
        assert "weights_only" not in line
    _, err = works(capsys, *job, tmp_path / "fresh", "-q")


# -- results and what stands in their way --------------------------------------------------------------------------------
@pytest.mark.parametrize("verb", ["evaluate", "analyze"])
def test_scores_are_printed_before_they_are_written(capsys, monkeypatch, tmp_path, text, tiny_folder, verb):
    def full(path, lines):
        raise OutputError(f"{path}: no space left on the disk")

    monkeypatch.setattr(f"calque.cli.{verb}.append_lines", full)
    job = (verb, tiny_folder, *["retrieval"][: verb == "evaluate"], "--test", text / "train.tsv", *EN_XX)
    only = ("--only", "rank") if verb == "analyze" else ()
    code, out, err = run(capsys, *job, *only, "--out", tmp_path / "results", "-q")
    assert (code, "accuracy" in out) == (2, True)
    assert err.endswith("results: no space left on the disk\n")
    line = fails(capsys, verb, "no-such-encoder", *job[2:], *only, "--out", "/proc/results")
    assert "--out '/proc/results': no file can be written there" in line  # before the encoder is looked for


@pytest.mark.parametrize("content", ["Es war einmal\n", "{}\n", '{"task": "half', ""])
def test_scores_are_added_to_scores_alone(capsys, tmp_path, text, tiny_folder, content):
    out = tmp_path / "en.txt"
    out.write_text(content)
    job = ("evaluate", tiny_folder, "retrieval", "--test", text / "train.tsv", *EN_XX, "--out", out, "-q")
    if content:
        assert re.search(r"calque did not write this file \(.*\) and leaves it alone", fails(capsys, *job))
        assert out.read_text() == content
        return
    works(capsys, *job)
    out.write_text(out.read_text().rstrip("\n"))  # as an editor may leave it
    works(capsys, *job)
    assert (
        len({json.loads(line)["metric"] for line in out.read_text().splitlines()})
        == len(out.read_text().splitlines()) / 2
    )


def test_folders_of_other_programs_are_left_alone(capsys, tmp_path, text, tiny_folder):
    study = text / "study.toml"
    study.write_text('encoders = ["mini"]\n[methods.base]\n[tasks.retrieval]\ntest = { de = "train.tsv" }\n')
    anchors = ("anchors", text / "en.txt", "--lang", "en", "--encoder", tiny_folder, "-q")
    for job, names in (
        (("study", study), ["results.jsonl"]),
        (("study", study), ["results.md"]),
        (anchors, ["anchors.safetensors"]),
    ):
        out = tmp_path / f"{job[0]}-{names[0]}"
        out.mkdir()
        for name in names:
            (out / name).write_text("[1]\n")
        assert "calque did not write" in fails(capsys, *job, "--out", out)
        assert {path.name: path.read_text() for path in out.iterdir()} == dict.fromkeys(names, "[1]\n")
    works(capsys, *anchors, "--out", tmp_path / "new")
    works(capsys, *anchors, "--out", tmp_path / "new")


@pytest.mark.skipif(sys.platform != "linux", reason="file names are UTF-8 there")
def test_a_file_name_that_is_not_text_ends_no_run(capsys, tmp_path, text, tiny_folder):
    place = tmp_path / os.fsdecode(b"t\xe9st")
    place.mkdir()
    train = shutil.copy(text / "train.tsv", tmp_path / os.fsdecode(b"t\xe9st.tsv"))
    shutil.copy(text / "en.txt", place)
    scores, findings, aligned = (place / name for name in ("scores", "findings", "links"))
    works(capsys, "evaluate", tiny_folder, "retrieval", "--test", train, *EN_XX, "--out", scores)
    works(capsys, "evaluate", tiny_folder, "retrieval", "--test", train, *EN_XX, "--json")
    works(capsys, "analyze", tiny_folder, "--test", train, *EN_XX, "--only", "rank", "--out", findings)
    works(capsys, "words", train, *EN_XX, "--out", aligned, "--tables", place / "tables")
    works(capsys, "encode", tiny_folder, place / "en.txt", "--lang", "en", "--out", place / "vectors")
    job = (
        "align",
        train,
        *EN_XX,
        "--encoder",
        tiny_folder,
        "--towards",
        "en",
        "--method",
        "rotation",
        "--links",
        aligned,
    )
    works(capsys, *job, "--out", tmp_path / "out")
    works(capsys, "evaluate", tmp_path / "out", "retrieval", "--test", train, *EN_XX, "--record")
    assert "t?st.tsv" in (tmp_path / "out" / "README.md").read_text()
    works(capsys, "report", scores, findings, tmp_path / "out", "--out", place / "page.html")
    assert "expected a name in UTF-8" in fails(capsys, *job, "--out", place / "out")


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------------
def test_an_interruption_that_a_library_wraps_is_one_line(capsys, monkeypatch):
    def wrapped(**named):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise RuntimeError("of a library") from error

    monkeypatch.setattr("calque.cli.app", wrapped)
    assert run(capsys, "words") == (130, "", "calque: interrupted\n")


def test_an_interruption_of_the_imports_is_one_line(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nclass Stop:\n    def find_spec(self, name, *_):\n        if name == 'calque.cli':\n"
        "            raise KeyboardInterrupt\nsys.meta_path.insert(0, Stop())\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ended = subprocess.run(
        [sys.executable, "-m", "calque"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "calque: interrupted\n")


def test_numbers_out_of_all_bounds_are_one_line(capsys, tmp_path, text, tiny_folder):
    line = fails(
        capsys, "encode", tiny_folder, text / "en.txt", "--lang", "en", "--out", tmp_path / "x", "--limit", "9" * 20
    )
    assert f"--limit {'9' * 20}: expected a number of at most" in line
    job = ("align", text / "train.tsv", *EN_XX, "--encoder", tiny_folder, "--towards", "en", "--epochs", "0.01", "-q")
    for rate in ("1e15", "1e18"):
        line = fails(capsys, *job, "--layer", "1", "--learning-rate", rate, "--out", tmp_path / rate)
        assert "not finite" in line
        assert "lower the learning rate" in line
        assert not (tmp_path / rate).exists()
