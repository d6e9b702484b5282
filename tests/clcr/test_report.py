"""Tests of the report section on key-point encoders."""

from __future__ import annotations

import json

import pytest

from calque.errors import InputError
from calque.report import report
from html_page import Page
from key_point_record import MODELS, record, write_key_points
from report_results import study, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_key_points(tmp_path_factory.mktemp("runs") / "en-de")


def html(*folders, **more) -> Page:
    report(folders, out=folders[0] / "r.html", **more)
    return Page((folders[0] / "r.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(folder) -> Page:
    return html(folder)


def inside(page: Page, tag: str, **attributes: str) -> list[dict]:
    """Return the elements with the given tag inside the element with the given attributes."""
    (outer,) = [
        e for e in page.elements if all(e["attrs"].get(k) == v for k, v in attributes.items())
    ]
    return [e for e in page.find(tag) if outer in e["above"]]


def equals_source(folder, kind: str, source: str, shown: str) -> bool:
    """Return whether a number on the page equals the value in its source file."""
    file, _, place = source.rpartition(":")
    score = json.loads((folder.parent / file).read_text())["scores"][
        int(place.removeprefix("scores/"))
    ]
    scale = 100 if score["percent"] and kind != "line.n" else 1
    return abs(float(shown) - scale * score[kind.partition(".")[2]]) <= 0.5001 * 10 ** -len(
        shown.partition(".")[2]
    )


def test_each_number_equals_the_number_in_its_record(page, folder):
    kinds = set()
    for element in page.find("data"):
        holders = [element, *reversed(element["above"])]
        source = next(e["attrs"]["data-source"] for e in holders if "data-source" in e["attrs"])
        assert equals_source(folder, element["attrs"]["data-kind"], source, element["text"]), (
            element["text"],
            source,
        )
        kinds.add(element["attrs"]["data-kind"])
    assert kinds == {"line.value", "line.low", "line.high", "line.n"}
    assert not equals_source(
        folder, "line.value", "en-de/calque-run.json:scores/0", "0.032"
    )  # check that a wrong number would be detected


def test_runs_with_equal_names_are_distinguished_by_their_settings(tmp_path):
    folders = []
    for key, linear in (("a", False), ("b", True)):
        place = write_key_points(tmp_path / "study" / "steps" / f"align-{20 * key}")
        plain = record()
        plain["settings"]["linear"] = linear
        (place / "calque-run.json").write_text(json.dumps(plain))
        folders.append(place)
    page = html(*folders)
    rows = [
        e["text"].strip()
        for e in inside(page, "th", id="clcr-distance")
        if e["attrs"]["scope"] == "row"
    ]
    labels = [f"study · clcr, en-de, linear {linear}" for linear in (False, True)]
    assert rows[:2] == labels


def test_scores_of_a_study_are_averaged_for_each_method(tmp_path):
    """Training scores must be in the key-point tables, but not in the comparison of methods."""
    lines = study(("de",), ("base", "finetune"), ("nli",))
    head = {"encoder": "mini", "supervision": "parallel"}
    for method, change in (("clcr", 0.0), ("linear", 0.04)):
        for seed in (0, 1):
            for score in record()["scores"]:
                ends = {
                    name: score[name] + change + 0.02 * seed for name in ("value", "low", "high")
                }
                lines.append({**score, **ends, **head, "method": method, "training_seed": seed})
    write_key_points(tmp_path / "study" / "steps" / f"align-{20 * 'a'}")
    write(tmp_path / "study" / "results.jsonl", lines)
    page = html(tmp_path / "study")
    heads = [e["text"] for e in page.find("h2")]
    assert heads.count("Key points") == 1
    assert not {"Distance", "Key-points", "Order"} & set(heads)
    rows = [
        e["text"].strip()
        for e in inside(page, "th", id="clcr-key-points")
        if e["attrs"]["scope"] == "row"
    ][:-1]
    assert rows == [f"{method}, {model}" for method in ("clcr", "linear") for model in MODELS]
    cells = [e["text"] for e in inside(page, "td", id="clcr-distance")]
    assert cells[0].startswith("0.041 ±0.014")  # the mean of 0.031 and 0.051
    assert cells[4].startswith("0.081 ±0.014")
    assert (
        "linear" not in page.find("section")[0]["text"]
    )  # the summary does not compare training scores


def test_errors_name_the_file_and_the_score(tmp_path):
    place, plain = write_key_points(tmp_path / "bad"), record()
    plain["scores"][3].pop("value")
    (place / "calque-run.json").write_text(json.dumps(plain))
    with pytest.raises(InputError, match=r"calque-run\.json: scores/3 has no value"):
        html(place)
