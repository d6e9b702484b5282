"""Test that a study never replaces the results of another study, and keeps the scores of removed
rows.
"""

import json

import pytest

from calque.errors import CalqueWarning, InputError, SettingError
from calque.runs.study import study
from study_parts import DICTIONARY

# The vectors of the two languages are equal, so no map changes a score.
pytestmark = pytest.mark.filterwarnings("ignore:all scores of")

PLAN = (
    """
runs = 1
[encoders]
words = "en=en.vec,de=de.vec"
[methods]
base = {}
rotation = {}
"""
    + DICTIONARY
    + """[tasks.lexicon]
test = { de = "entries.tsv" }
"""
)


@pytest.fixture
def folder(tmp_path):
    words = [f"w{k}" for k in range(12)]
    for lang in ("en", "de"):
        rows = [f"{lang}{word} {k % 3} {k % 5} {k}" for k, word in enumerate(words)]
        (tmp_path / f"{lang}.vec").write_text("\n".join(["12 3", *rows]) + "\n")
        (tmp_path / f"{lang}.txt").write_text(" ".join(f"{lang}{word}" for word in words) + "\n")
    (tmp_path / "entries.tsv").write_text("".join(f"en{word}\tde{word}\n" for word in words))
    return tmp_path


def written(folder, name, text=PLAN):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_study_file_writes_its_own_folder_by_default(folder):
    first, second = (
        written(folder, "first.toml"),
        written(folder, "second.toml", PLAN.replace("rotation = {}", "")),
    )
    study(first)
    before = (folder / "first" / "results.jsonl").read_bytes()
    study(second)
    assert (folder / "first" / "results.jsonl").read_bytes() == before
    assert (
        0
        < len(lines(folder / "second" / "results.jsonl"))
        < len(lines(folder / "first" / "results.jsonl"))
    )
    assert json.loads((folder / "first" / "study.json").read_text()) == {"study": "../first.toml"}


def test_a_file_without_a_suffix_does_not_collide_with_its_results(folder):
    study(written(folder, "plan"))
    assert (folder / "plan-results" / "results.jsonl").is_file()


@pytest.mark.parametrize("how", ["out in the file", "--out", "the same name in another folder"])
def test_the_results_of_another_study_are_never_replaced(folder, how):
    first, second = (
        written(folder, "first.toml", f'out = "shared"\n{PLAN}'),
        written(folder, "second.toml"),
    )
    if how == "out in the file":
        second = written(folder, "second.toml", f'out = "shared"\n{PLAN}')
    elif how != "--out":
        second = written(folder, "other/first.toml", f'data = ".."\n{PLAN}')
    study(first)
    before = {path: path.read_bytes() for path in (folder / "shared").rglob("*") if path.is_file()}
    with pytest.raises(
        SettingError,
        match=r"shared contains the results of first\.toml, not of .*choose another folder",
    ):
        study(second, out=None if how == "out in the file" else folder / "shared")
    assert {
        path: path.read_bytes() for path in (folder / "shared").rglob("*") if path.is_file()
    } == before


def test_a_study_and_its_results_can_be_moved_together_or_alone(folder):
    first = written(folder, "plans/first.toml", f'data = ".."\nout = "../results"\n{PLAN}')
    count = len(study(first))
    (folder / "results").rename(folder / "moved")
    assert len(study(first, out=folder / "moved")) == count
    first.rename(folder / "plans" / "renamed.toml")
    with pytest.raises(
        SettingError, match=r"if renamed\.toml is the same study .*, delete .*moved/study\.json"
    ):
        study(folder / "plans" / "renamed.toml", out=folder / "moved")
    (folder / "moved" / "study.json").unlink()
    assert len(study(folder / "plans" / "renamed.toml", out=folder / "moved")) == count


def test_scores_of_a_removed_row_are_kept_and_return_without_a_new_computation(folder):
    plan = written(folder, "first.toml")
    every = study(plan)
    whole = (folder / "first" / "results.jsonl").read_bytes()
    written(folder, "first.toml", PLAN.replace("rotation = {}", "linear = {}"))
    removed = sum(record["method"] == "rotation" for record in every)
    with pytest.warns(
        CalqueWarning,
        match=rf"^{removed} earlier scores belong to rows .* kept in .*results\.jsonl\.1$",
    ):
        study(plan)
    assert (folder / "first" / "results.jsonl.1").read_bytes() == whole
    assert {each["method"] for each in lines(folder / "first" / "results.jsonl")} == {
        "base",
        "linear",
    }
    written(folder, "first.toml", PLAN.replace("rotation = {}", ""))
    with pytest.warns(CalqueWarning, match=r"results\.jsonl\.2$"):
        study(plan)
    assert (folder / "first" / "results.jsonl.1").read_bytes() == whole
    said = []
    written(folder, "first.toml")
    assert (
        study(plan, say=said.append) == every
    )  # an added row is not a loss, so there is no third copy
    assert [line.split(": ")[1] for line in said if "to do" in line] == [
        "0 of 3 steps to do",
        "0 of 1 steps to do",
        "0 of 2 steps to do",
    ]
    assert not (folder / "first" / "results.jsonl.3").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"study": 3}', "[" * 100_000])
def test_a_corrupt_record_of_the_owner_is_a_one_line_error(folder, text):
    plan = written(folder, "first.toml")
    written(folder, "first/study.json", text)
    with pytest.raises(InputError, match=r"study\.json: calque did not write this file"):
        study(plan)
