"""Tests of the checks that run before commands read or write anything, and of messages that are
printed even with -q.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from calque.errors import OutputError
from command import fails, run, works

EN_XX = ("--langs", "en", "xx")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Write a small parallel text as TSV and as two Moses files, and its English side
    separately.
    """
    folder = tmp_path_factory.mktemp("text")
    words = [
        "the cat sees a house",
        "a house of time",
        "water in the house",
        "time and water",
        "the water of time",
    ] * 6
    lines = [f"{line} {k % 3}\t{line[::-1]} {k % 3}\n" for k, line in enumerate(words)]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / "other.tsv").write_text(
        "the cat sees\tsees cat the\na house\thouse a\n" * 4, encoding="utf-8"
    )
    (folder / "en.txt").write_text("".join(line + "\n" for line in words), encoding="utf-8")
    for lang, k in (("en", 0), ("xx", 1)):
        (folder / f"moses.{lang}").write_text(
            "".join(line.strip("\n").split("\t")[k] + "\n" for line in lines)
        )
    return folder


def test_texts_without_usable_content_are_rejected_and_nothing_is_written(
    capsys, tmp_path, tiny_folder
):
    text, empty, out = tmp_path / "t.tsv", tmp_path / "empty.txt", tmp_path / "out"
    text.write_text("only source\t\n", encoding="utf-8")
    empty.write_bytes(b"")
    for job, message in (
        (("words", text, *EN_XX), "no usable sentence pair"),
        (("evaluate", tiny_folder, "retrieval", "--test", text, *EN_XX), "no usable sentence pair"),
        (("encode", tiny_folder, empty, "--lang", "en"), "no words in the file"),
        (("anchors", empty, "--lang", "en", "--encoder", tiny_folder), "no words in the file"),
        (("pretrain", f"en={empty}"), "no words in the file"),
    ):
        assert message in fails(capsys, *job, "--out", out)
    assert not out.exists()


def test_input_files_are_never_overwritten(capsys, text, tmp_path, tiny_folder):
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
        (
            "align",
            train,
            *EN_XX,
            "--encoder",
            tiny_folder,
            "--towards",
            "en",
            "--out",
            tiny_folder,
            "--overwrite",
        ),
        (
            "align",
            train,
            *EN_XX,
            "--encoder",
            f"en={tiny_folder},xx=mini",
            "--towards",
            "en",
            "--out",
            tiny_folder,
        ),
        ("pretrain", f"en={plain}", "--start", tiny_folder, "--out", tiny_folder, "--overwrite"),
    ):
        assert "would overwrite the input" in fails(capsys, *job)
    assert {path.name: path.read_bytes() for path in text.iterdir()} == before
    for _ in range(2):  # the output of the first run is not read as a side of the text
        works(capsys, "words", text / "moses", *EN_XX, "--out", text / "moses.align", "-q")


def test_an_output_file_never_replaces_a_folder_and_a_folder_never_replaces_a_file(
    capsys, text, tmp_path, tiny_folder
):
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
        (
            ("words", "TRAIN", "--langs", "en", "de", "es", "--out", "OUT"),
            "unrecognized arguments",
        ),
        ((*ALIGN, "--weight", "nan"), "--weight"),
        ((*ALIGN, "--seed", str(1 << 40)), "--seed"),
        (("align", "--dictionary", "PLAIN", *ALIGN[2:], "--option", "held_out=nan"), "held_out"),
        (("perplexity", "mini", "en=PLAIN", "--share", "nan"), "--share"),
        (
            ("encode", "mini", "PLAIN", "--lang", "en", "--out", "OUT", "--limit", "9" * 20),
            "expected a whole number",
        ),
    ],
)
def test_invalid_values_are_rejected_before_anything_is_written(capsys, text, tmp_path, job, said):
    names = {"TRAIN": text / "train.tsv", "PLAIN": text / "en.txt", "OUT": tmp_path / "out"}
    line = fails(
        capsys,
        *[str(names.get(word, word)).replace("=PLAIN", f"={text / 'en.txt'}") for word in job],
    )
    assert said in line
    assert not (tmp_path / "out").exists()


MEANS = ("align", "--text", "en=x", "xx=y", *ALIGN[4:], "--method", "means")
RETRIEVAL = ("evaluate", "mini", "retrieval", "--test", "x", *EN_XX)


@pytest.mark.parametrize(
    ("job", "option", "users"),
    [
        ((*RETRIEVAL, "--seeds", "3"), "--seeds", "ner"),
        ((*ALIGN, "--links", "x", "--model", "hmm"), "--model", "--links"),
        (
            ("words", "x", *EN_XX, "--out", "OUT", "--use", "y", "--model", "hmm"),
            "--model",
            "--use",
        ),
        (
            ("pretrain", "en=x", "--out", "OUT", "--start", "mini", "--dim", "64"),
            "--dim",
            "--start",
        ),
        (
            (
                "neighbours",
                "--encoder",
                "mini",
                "--lang1",
                "en",
                "--sentence1",
                "a",
                "--word1",
                "a",
                "--lang2",
                "de",
                "--sentence2",
                "b",
                "--limit",
                "5",
            ),
            "--limit",
            "--text2",
        ),
        (
            ("analyze", "mini", "--test", "x", *EN_XX, "--only", "rank", "--forms", "3"),
            "--forms",
            "examples",
        ),
        ((*MEANS, "--seed", "1"), "--seed", "--method means and --text"),
        ((*MEANS, *EN_XX), "--langs", "--method means and --text"),
    ],
)
def test_options_without_effect_are_rejected(capsys, tmp_path, job, option, users):
    line = fails(capsys, *[str(tmp_path / "out") if word == "OUT" else word for word in job])
    assert line.startswith(f"calque: error: {option} ")
    assert users in line


def test_skipped_lines_are_reported_even_with_quiet(capsys, tmp_path, text):
    lines = (text / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    file = tmp_path / "t.tsv"
    file.write_text(
        "".join([*lines[:3], "one column\n", *lines[3:], "empty\t\n"]), encoding="utf-8"
    )
    _, err = works(capsys, "words", file, *EN_XX, "--out", tmp_path / "o", "-q")
    (line,) = err.splitlines()
    assert re.search("skipped 2 unusable lines.*1 × missing column, first: .* line 4", line)
    assert (tmp_path / "o").read_text().splitlines()[
        3
    ] == ""  # the other sentences keep their line numbers
    _, err = works(capsys, "words", text / "train.tsv", *EN_XX, "--out", tmp_path / "o", "-q")
    assert err == ""


def test_a_text_with_ten_percent_unreadable_lines_is_rejected(capsys, tmp_path):
    lines = [f"the cat sees {k} houses\tdie Katze sieht {k} Häuser\n" for k in range(6)]
    plain = [line.replace("ä", "a") for line in lines] * 9
    file = tmp_path / "t.tsv"
    job = ("words", file, *EN_XX, "--out", tmp_path / "out", "-q")
    file.write_bytes("".join([*lines, *plain[:53]]).encode("latin-1"))
    message = fails(capsys, *job)
    assert "t.tsv: 6 of 59 lines cannot be used (6 × not UTF-8" in message
    assert (
        "iconv -f ISO-8859-1 -t UTF-8 FILE > NEW; or skip these lines with --on-error skip"
        in message
    )
    assert "6 × not UTF-8" in works(capsys, *job, "--on-error", "skip")[1]
    file.write_bytes("".join([*lines, *plain]).encode("latin-1"))
    assert "6 × not UTF-8" in works(capsys, *job)[1]


def test_evaluate_accepts_several_texts_and_language_pairs(capsys, tmp_path, text, tiny_folder):
    other, out = text / "other.tsv", tmp_path / "r.jsonl"
    several = (
        "--test",
        text / "train.tsv",
        other,
        *EN_XX,
        "--langs",
        "en",
        "yy",
        "--out",
        out,
        "-q",
    )
    shown, _ = works(capsys, "evaluate", tiny_folder, "retrieval", *several)
    assert "train.tsv en-xx" in shown
    assert "other.tsv en-yy" in shown
    scores = [json.loads(line) for line in out.read_text().splitlines()]
    for lang, file in (("xx", text / "train.tsv"), ("yy", other)):
        job = (
            "evaluate",
            tiny_folder,
            "retrieval",
            "--test",
            file,
            "--langs",
            "en",
            lang,
            "--json",
            "-q",
        )
        alone, _ = works(capsys, *job)
        together = [score["value"] for score in scores if score["languages"] == ["en", lang]]
        assert together == [score["value"] for score in json.loads(alone)["scores"]]
    moses = (
        "evaluate",
        tiny_folder,
        "retrieval",
        "--test",
        text / "moses",
    )  # one text with several language pairs
    one, _ = works(capsys, *moses, *EN_XX, "--langs", "xx", "en", "-q")
    assert "moses en-xx" in one
    assert "moses xx-en" in one
    align = ("--encoder", tiny_folder, "--towards", "en", "--out", tmp_path / "out")
    line = fails(
        capsys, "align", text / "train.tsv", other, *EN_XX, *align
    )  # two texts with a single language pair
    assert f"{other}) but 1 language pair(s) (en-xx); pass one language pair for each text" in line


def test_test_sentences_in_the_training_text_are_reported(capsys, tmp_path, text, tiny_folder):
    rows = [f"cat\tB-PER\nsees\tO\nhouse{k}\tO\n\n" for k in range(20)]
    train, test = tmp_path / "train.en.tsv", tmp_path / "test.en.tsv"
    train.write_text("".join(rows[:15]), encoding="utf-8")
    test.write_text("".join(rows[10:]), encoding="utf-8")
    retrieval = (
        "evaluate",
        tiny_folder,
        "retrieval",
        "--test",
        text / "train.tsv",
        *EN_XX,
        "-q",
        "--train",
    )
    ner = (
        "evaluate",
        tiny_folder,
        "ner",
        "--train",
        train,
        "--seeds",
        "1",
        "--epochs",
        "1",
        "-q",
        "--test",
    )
    (line,) = works(capsys, *retrieval, text / "train.tsv")[1].splitlines()
    assert "30 of 30 test sentences are in the training text" in line
    assert works(capsys, *retrieval, text / "other.tsv")[1] == ""
    said = works(capsys, *ner, test)[1]
    assert "test.en.tsv: 5 of 10 test sentences are in the training text train.en.tsv" in said
    test.write_text("".join(rows[15:]), encoding="utf-8")
    assert "training text" not in works(capsys, *ner, test)[1]


@pytest.mark.parametrize("verb", ["evaluate", "analyze"])
def test_scores_are_printed_before_they_are_written(
    capsys, monkeypatch, tmp_path, text, tiny_folder, verb
):
    def full(path, lines):
        raise OutputError(f"{path}: no space left on the disk")

    monkeypatch.setattr(f"calque.commands.{verb}.append_lines", full)
    job = (
        verb,
        tiny_folder,
        *["retrieval"][: verb == "evaluate"],
        "--test",
        text / "train.tsv",
        *EN_XX,
    )
    only = ("--only", "rank") if verb == "analyze" else ()
    code, out, err = run(capsys, *job, *only, "--out", tmp_path / "results", "-q")
    assert (code, "accuracy" in out) == (2, True)
    assert err.endswith("results: no space left on the disk\n")
    # The output is checked before the encoder is loaded.
    line = fails(capsys, verb, "no-such-encoder", *job[2:], *only, "--out", "/proc/results")
    assert "--out '/proc/results': no file can be written to this path" in line


@pytest.mark.parametrize("content", ["Es war einmal\n", "{}\n", '{"task": "half', ""])
def test_scores_are_appended_only_to_score_files(capsys, tmp_path, text, tiny_folder, content):
    out = tmp_path / "en.txt"
    out.write_text(content)
    job = (
        "evaluate",
        tiny_folder,
        "retrieval",
        "--test",
        text / "train.tsv",
        *EN_XX,
        "--out",
        out,
        "-q",
    )
    if content:
        assert re.search(
            r"calque did not write this file \(.*\), so it is left unchanged", fails(capsys, *job)
        )
        assert out.read_text() == content
        return
    works(capsys, *job)
    out.write_text(out.read_text().rstrip("\n"))  # some editors remove the final line break
    works(capsys, *job)
    metrics = [json.loads(line)["metric"] for line in out.read_text().splitlines()]
    assert len(set(metrics)) == len(metrics) / 2


def test_files_written_by_other_programs_are_never_replaced(capsys, tmp_path, text, tiny_folder):
    study = text / "study.toml"
    study.write_text(
        'encoders = ["mini"]\n[methods.base]\n[tasks.retrieval]\ntest = { de = "train.tsv" }\n'
    )
    anchors = ("anchors", text / "en.txt", "--lang", "en", "--encoder", tiny_folder, "-q")
    for job, name in (
        (("study", study), "results.jsonl"),
        (("study", study), "results.md"),
        (anchors, "anchors.safetensors"),
    ):
        out = tmp_path / f"{job[0]}-{name}"
        out.mkdir()
        (out / name).write_text("[1]\n")
        assert "calque did not write" in fails(capsys, *job, "--out", out)
        assert {path.name: path.read_text() for path in out.iterdir()} == {name: "[1]\n"}
    works(capsys, *anchors, "--out", tmp_path / "new")
    works(capsys, *anchors, "--out", tmp_path / "new")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems require UTF-8 file names")
def test_file_names_that_are_not_valid_utf8_are_accepted(capsys, tmp_path, text, tiny_folder):
    place = tmp_path / os.fsdecode(b"t\xe9st")
    place.mkdir()
    train = shutil.copy(text / "train.tsv", tmp_path / os.fsdecode(b"t\xe9st.tsv"))
    shutil.copy(text / "en.txt", place)
    scores, findings, aligned = (place / name for name in ("scores", "findings", "links"))
    works(capsys, "evaluate", tiny_folder, "retrieval", "--test", train, *EN_XX, "--out", scores)
    works(capsys, "evaluate", tiny_folder, "retrieval", "--test", train, *EN_XX, "--json")
    works(
        capsys, "analyze", tiny_folder, "--test", train, *EN_XX, "--only", "rank", "--out", findings
    )
    works(capsys, "words", train, *EN_XX, "--out", aligned, "--tables", place / "tables")
    works(
        capsys, "encode", tiny_folder, place / "en.txt", "--lang", "en", "--out", place / "vectors"
    )
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
    assert "the name must be UTF-8" in fails(capsys, *job, "--out", place / "out")


def test_an_interrupt_wrapped_by_a_library_prints_one_line(capsys, monkeypatch):
    def wrapped(words):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise RuntimeError("of a library") from error

    monkeypatch.setattr("calque.cli.run", wrapped)
    assert run(capsys, "words") == (130, "", "calque: interrupted\n")


def test_an_interrupt_during_imports_prints_one_line(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nclass Stop:\n    def find_spec(self, name, *_):\n        if name == "
        "'calque.cli':\n"
        "            raise KeyboardInterrupt\nsys.meta_path.insert(0, Stop())\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths}
    ended = subprocess.run(
        [sys.executable, "-m", "calque"], env=environment, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "calque: interrupted\n")


# -- paths that do not exist -----------------------------------------------------------------------
MISSING = {
    "parallel": ("evaluate mini retrieval --langs en de --test {}", "train.tsv", "trian.tsv"),
    "plain": ("encode mini {} --lang en --out out", "en.txt", "em.txt"),
    "dictionary": (
        "evaluate mini lexicon --langs en de --test {}",
        "dictionary.txt",
        "dictionery.txt",
    ),
    "links": (
        "evaluate mini retrieval --langs en de --test {0}/train.tsv --links {0}/{1}",
        "gold.align",
        "gold.algin",
    ),
    "encoder": ("evaluate {} retrieval --langs en de --test {0}/train.tsv", "aligned", "alinged"),
    "results": ("report {}", "scores.jsonl", "score.jsonl"),
    "study": ("study {}", "study.toml", "stduy.toml"),
    "tables": ("words {0}/train.tsv --langs en de --out out --use {0}/{1}", "tables", "table"),
    "folder": ("encode mini {} --lang en --out out", "folder", "foldr/en.txt"),
}


@pytest.mark.parametrize("kind", MISSING)
def test_the_error_for_a_missing_absolute_path_names_a_similar_path(
    capsys, tmp_path, monkeypatch, kind
):
    command, there, given = MISSING[kind]
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "data"
    place.mkdir()
    (place / "train.tsv").write_text("a cat\teine Katze\n" * 9)
    if "." in there:
        (place / there).write_text("a cat\teine Katze\n" * 9)
    else:
        (place / there).mkdir()
    words = [
        word.format(place if "{0}" in word else place / given, given) for word in command.split()
    ]
    said = fails(capsys, *words, "-q")
    assert f"did you mean {there}?" in said
    assert "hub:" not in said


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("owner/data", True),
        ("data-1.0", True),
        ("no/such/file", False),
        ("data/file.tsv", False),
        ("/owner", False),
        ("./data", False),
    ],
)
def test_a_hint_about_the_hub_needs_a_path_that_could_be_a_name_there(
    capsys, tmp_path, monkeypatch, name, hint
):
    monkeypatch.chdir(tmp_path)
    said = fails(capsys, "evaluate", "mini", "retrieval", "--langs", "en", "de", "--test", name)
    assert (f"hub:{name}" in said) == hint


# -- paths to which nothing can be written ---------------------------------------------------------
FILES = [
    "words {text} --langs en de --out {out}",
    "words {text} --langs en de --out x --tables {out}",
    "encode mini {text} --lang en --out {out}",
    "evaluate mini retrieval --test {text} --langs en de --out {out}",
    "analyze mini --test {text} --langs en de --out {out}",
    "report {text} --out {out}",
]
FOLDERS = [
    "align {text} --langs en de --encoder mini --towards en --out {out}",
    "demo --languages de --out {out}",
    "anchors {text} --lang en --encoder mini --out {out}",
    "merge mini --out {out}",
    "distil {text} --langs en de --teacher mini --student mini --out {out}",
]


def refused(capsys, tmp_path, command, out):
    (tmp_path / "text.tsv").write_text("a cat\teine Katze\n" * 9)
    before = sorted(tmp_path.rglob("*"))
    said = fails(capsys, *command.format(text=tmp_path / "text.tsv", out=out).split())
    assert sorted(tmp_path.rglob("*")) == before
    return said


@pytest.mark.parametrize("command", FILES)
def test_an_output_file_cannot_have_the_name_of_a_folder(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for out in ("trail/", "trail/.", f"{tmp_path}/new/"):
        assert f"the output must be a file, but {out} names a folder" in refused(
            capsys, tmp_path, command, out
        )


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="/proc does not exist")
@pytest.mark.parametrize("command", [*FILES, *FOLDERS])
def test_an_output_in_a_folder_without_files_is_refused(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, tmp_path, command, "/proc/x")
    assert "can be written to this path" in said
    assert "another process" not in said


@pytest.mark.parametrize("command", [*FILES, *FOLDERS])
def test_an_output_that_is_a_loop_of_links_is_refused(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for out in ("a", "a/x"):
        assert "is a loop of symbolic links" in refused(capsys, tmp_path, command, out)
