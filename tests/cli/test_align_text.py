"""`calque align` with text alone: no links, no dictionary, no translations."""

from __future__ import annotations

import json

import pytest

from calque.encoders import load_encoder
from command import fails, works

LINES = ["the cat sees a house", "of time and water", "a house in the water"]


@pytest.fixture
def texts(tmp_path):
    """Text in two languages, alone and as parallel text."""
    turned = [line[::-1] for line in LINES]
    for lang, lines in (("en", LINES), ("xx", turned)):
        (tmp_path / f"{lang}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = [f"{a}\t{b}\n" for a, b in zip(LINES, turned, strict=True)]
    (tmp_path / "train.tsv").write_text("".join(pairs), encoding="utf-8")
    return tmp_path


def test_text_and_parallel_text_give_the_same_encoder(capsys, texts, tiny_folder):
    place = ("--encoder", tiny_folder, "--towards", "en", "--layers", "-2,-1", "--combine", "sum")
    plain = ("--text", f"en={texts / 'en.txt'}", f"xx={texts / 'xx.txt'}")
    given = ("--method", "means", "--option", "offset=false", *place)
    _, said = works(capsys, "align", *plain, *given, "--out", texts / "means")
    assert f"saved to {texts / 'means'} (means " in said
    _, said = works(capsys, "align", texts / "train.tsv", "--langs", "en", "xx", *given, "--out", texts / "p")
    assert "means: 3 sentence pairs\n" in said  # and no word links
    made = load_encoder(texts / "means")
    assert made.fingerprint == load_encoder(texts / "p").fingerprint
    assert set(made.maps) == {"en", "xx"}
    records = [json.loads((texts / folder / "calque-run.json").read_text()) for folder in ("means", "p")]
    assert "words" not in records[1]
    assert records[0]["settings"] == records[1]["settings"]
    assert [text["sentences"] for text in records[0]["texts"]] == [3, 3]


def test_what_has_no_effect_is_refused(capsys, texts, tiny_folder):
    place = ("--encoder", tiny_folder, "--towards", "en", "--out", texts / "o", "--method", "means")
    plain = ("--text", f"en={texts / 'en.txt'}", f"xx={texts / 'xx.txt'}")
    pairs = (texts / "train.tsv", "--langs", "en", "xx")
    for option in (("--seed", 1), ("--langs", "en", "xx")):
        assert f"{option[0]} has no effect with --method means and --text" in fails(
            capsys, "align", *plain, *place, *option
        )
    assert "--model has no effect with --method means, which needs no word links" in fails(
        capsys, "align", *pairs, *place, "--model", "hmm"
    )
    assert "got TRAIN and --text" in fails(capsys, "align", *pairs, *place, *plain)
    assert "--option rank=1: expected NAME=VALUE, with one of layers, combine, offset" in fails(
        capsys, "align", *plain, *place, "--option", "rank=1"
    )
    assert not (texts / "o").exists()
