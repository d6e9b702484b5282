"""Links that a filter leaves out, and links between the other languages, from files to the model card and in a study."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from calque.runs.study import read_study, study
from command import fails, works

WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """English with its words backwards (xx) and with its letters backwards (yy), 20 sentences of 30 in both."""
    place, rng = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    english = [[WORDS[k] for k in rng.choice(10, rng.integers(3, 7), replace=False)] for _ in range(40)]
    rows = {"xx": english[:30], "yy": english[10:]}
    for lang, texts in rows.items():
        other = [[w + w for w in words[::-1]] if lang == "xx" else [w[::-1] for w in words] for words in texts]
        lines = [f"{' '.join(a)}\t{' '.join(b)}\n" for a, b in zip(texts, other, strict=True)]
        (place / f"en-{lang}.tsv").write_text("".join(lines))
    (place / "xx.txt").write_text("".join(f"{w}\t{w + w}\n" for w in WORDS[:6]))
    (place / "yy.txt").write_text("".join(f"{w[::-1]} {w.upper()}\n" for w in WORDS[:6]))  # the other way round
    return place


def arguments(folder, tiny_folder, out, *more):
    return ("align", folder / "en-xx.tsv", folder / "en-yy.tsv", "--langs", "en", "xx", "--langs", "en", "yy", "--encoder",
            tiny_folder, "--towards", "en", "--out", out, *more)  # fmt: skip


def test_chosen_links_from_files_to_the_card(folder, tiny_folder, tmp_path, capsys):
    _, said = works(
        capsys,
        *arguments(
            folder, tiny_folder, tmp_path / "out", "--min-posterior", 0.05, "--pivot-links", "--link-dictionary",
            f"en-xx={folder / 'xx.txt'}", f"yy-en={folder / 'yy.txt'}", "--keep-unlisted",
        ),
    )  # fmt: skip
    record = json.loads((tmp_path / "out" / "calque-run.json").read_text())
    xx, yy, between = record["texts"]
    for text in (xx, yy):
        assert text["sentence_pairs"] == 30
        assert {"links_below_posterior", "links_not_in_dictionary", "links_of_unlisted_words"} <= text.keys()
        assert text["links_of_unlisted_words"] > 0
    assert (between["path"], between["langs"]) == ("en-xx.tsv + en-yy.tsv", ["xx", "yy"])
    assert 0 < between["sentence_pairs"] <= 20
    assert record["counts"]["languages"] == ["xx", "yy", "xx-yy"]
    assert record["words"]["min_posterior"] == 0.05
    assert record["words"]["dictionary_entries"] == {"en-xx": 6, "yy-en": 6}
    assert f"en-xx.tsv: {xx['word_pairs']:,} of " in said
    card = (tmp_path / "out" / "README.md").read_text()
    assert (
        "only those with a posterior of at least 0.05 and in a dictionary (entries: en-xx 6, yy-en 6), or of words"
        in card
    )
    assert "Also between the other languages, by way of the same sentences in en." in card
    assert "| links not in dictionary | links of unlisted words |" in card


@pytest.mark.parametrize(("more", "fact"), [
    (["--link-dictionary", "{}/xx.txt"], "which languages\\? Say them before the name, as in en-xx="),
    (["--link-dictionary", "en-xx={}/xx.txt"], "links of en-yy, but dictionaries of en-xx only"),
    (["--links", "{}/a.align", "--links", "{}/b.align", "--min-posterior", "0.5"], "the links of en-xx have no posteriors"),
    (["--method", "rotation", "--pivot-links"], "--pivot-links is for methods that train one encoder"),
    (["--min-posterior", "1.5"], "expected a share"),
])  # fmt: skip
def test_choices_that_cannot_be_are_told_in_one_line(more, fact, folder, tiny_folder, tmp_path, capsys):
    for name in ("a", "b"):
        (folder / f"{name}.align").write_text("0-0\n" * 30)
    line = fails(capsys, *arguments(folder, tiny_folder, tmp_path / "out", *(word.format(folder) for word in more)))
    assert re.search(fact, line), line


def test_texts_that_share_nothing_cannot_be_linked(folder, tiny_folder, tmp_path, capsys):
    (tmp_path / "en-zz.tsv").write_text("the cat\tzz zzz\nwater\tz\n")
    line = fails(
        capsys, "align", folder / "en-xx.tsv", tmp_path / "en-zz.tsv", "--langs", "en", "xx", "--langs", "en", "zz",
        "--encoder", tiny_folder, "--towards", "en", "--out", tmp_path / "out", "--pivot-links",
    )  # fmt: skip
    assert "no two texts in different languages share a sentence in en" in line


STUDY = """
seeds = 1

[encoders]
tiny = "{tiny}"

[methods]
quick = {{ method = "contrastive", epochs = 1 }}

[supervision.all]
xx = "en-xx.tsv"
yy = "en-yy.tsv"

[supervision.chosen]
xx = "en-xx.tsv"
yy = "en-yy.tsv"
min_posterior = 0.9

[tasks.retrieval]
test = {{ xx = "en-xx.tsv" }}
"""


def test_a_study_compares_links(folder, tiny_folder, tmp_path):
    (folder / "study.toml").write_text(STUDY.format(tiny=tiny_folder))
    said = []
    study(folder / "study.toml", out=tmp_path, say=said.append)
    assert "preparing: 2 of 2 steps to do" in said  # the links themselves are the same
    found = [json.loads(file.read_text()) for file in sorted((tmp_path / "steps").glob("align-*/calque-run.json"))]
    chosen, everything = sorted(found, key=lambda record: "min_posterior" not in record["words"])
    assert chosen["words"]["min_posterior"] == 0.9
    assert "links_below_posterior" in chosen["texts"][0]
    assert "links_below_posterior" not in everything["texts"][0]


def test_a_study_with_links_that_cannot_be(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY.format(tiny="mini").replace("0.9", "2"))
    with pytest.raises(Exception, match="min_posterior = 2, expected a number from 0 to below 1"):
        read_study(tmp_path / "study.toml")
