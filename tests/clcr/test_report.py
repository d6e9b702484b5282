"""Tests of the report on a key-point encoder: tables, curves, sentences and matrices."""

from __future__ import annotations

import json
import math
import re

import pytest

from calque.errors import InputError
from calque.report import report
from html_page import Page
from key_point_record import MODELS, PHASES, RANKS, record, write_key_points
from report_results import study, write

UPDATES = (400, 30, 1, 90)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_key_points(tmp_path_factory.mktemp("runs") / "en-de", updates=UPDATES)


def html(*folders, **more) -> Page:
    report(folders, out=folders[0] / "r.html", **more)
    return Page((folders[0] / "r.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(folder) -> Page:
    return html(folder)


def inside(page: Page, tag: str, **attributes: str) -> list[dict]:
    """Return the elements in the element with these attributes."""
    (outer,) = [e for e in page.elements if all(e["attrs"].get(k) == v for k, v in attributes.items())]
    return [e for e in page.find(tag) if outer in e["above"]]


def equals_source(folder, kind: str, source: str, shown: str) -> bool:
    """Return whether a number equals its source in the files."""
    file, _, place = source.rpartition(":")
    path, scale = folder.parent / file, 1
    if kind.startswith("line."):
        number = int(place.removeprefix("scores/"))
        score = json.loads(path.read_text())["scores"][number]
        scale, found = 100 if score["percent"] and kind != "line.n" else 1, [score[kind.partition(".")[2]]]
    elif place.startswith("examples/"):
        plain = json.loads(path.read_text())["examples"][int(place.removeprefix("examples/"))]
        tables = [*plain.get("probabilities", {}).values(), *plain.get("places", []), *plain.get("before", [])]
        found = [value for row in tables for value in row]
    else:
        first, _, last = place.partition("-")
        assert (kind == "window.value") == bool(last)
        lines = path.read_text().splitlines()[int(first) - 1 : int(last or first)]
        rows = [json.loads(each) for each in lines]
        found = [sum(row[name] for row in rows) / len(rows) for name in ("de-en", "en-de", "temperature")]
    digits = len(shown.partition(".")[2])
    return any(abs(float(shown) - scale * value) <= 0.5001 * 10**-digits for value in found)


def test_each_number_equals_its_record(page, folder):
    kinds = set()
    for element in page.find("data"):
        holders = [element, *reversed(element["above"])]
        source = next(e["attrs"]["data-source"] for e in holders if "data-source" in e["attrs"])
        assert equals_source(folder, element["attrs"]["data-kind"], source, element["text"]), (element["text"], source)
        kinds.add(element["attrs"]["data-kind"])
    assert kinds == {"line.value", "line.low", "line.high", "line.n", "entry.value", "window.value"}
    assert not equals_source(
        folder, "line.value", "en-de/calque-run.json:scores/0", "0.032"
    )  # the check detects a wrong number
    marks = [e for e in page.find("g") if e["attrs"].get("class") == "mark"]
    for mark in marks:
        source, shown = mark["attrs"]["data-source"], mark["text"].rpartition(": ")[2]
        kind = "window.value" if re.search(r":\d+-\d+$", source) else "entry.value"
        assert equals_source(folder, kind, source, shown), (mark["text"], source)
    assert len(marks) > 300


def test_curves_show_the_distance_in_each_phase(page):
    svg = inside(page, "svg", id="key-points-phases-plot")[0]
    own = [e for e in page.elements if svg in e["above"]]
    texts = [e["text"] for e in own if e["tag"] == "text"]
    named = [text for text in texts if re.match(r"\d\. ", text)]
    assert named == ["1. transforms", "2. encoder of de", "3. encoder of en", "4. refinement"]
    marks = [e for e in own if e["attrs"].get("class") == "mark"]
    points = [math.ceil(n / math.ceil(n / 30)) for n in UPDATES]
    assert len(marks) == 2 * sum(points)  # both directions
    assert any(mark["text"].startswith("de → en, transforms, updates 1 to 14: ") for mark in marks)
    assert any(mark["text"].startswith("en → de, encoder of en, update 1: ") for mark in marks)
    assert len([e for e in own if e["attrs"].get("class") == "curve"]) == 6  # no curve for one update


def test_matrices_show_gold_and_predicted_orders(page):
    drawings = inside(page, "svg", id="key-points-order-plot")
    labels = [e["text"] for e in inside(page, "p", id="key-points-order-plot") if e["attrs"].get("class") == "over"]
    assert labels == ["Places, gold", "Places, predicted", "Pairs, gold", "Pairs, predicted"]
    example, n = record()["examples"][-1], len(RANKS)
    expected = (
        [[float(RANKS[i] == j) for j in range(n)] for i in range(n)],
        example["places"],
        [[float(RANKS[i] < RANKS[j]) for j in range(n)] for i in range(n)],
        [[p if i != j else 0.0 for j, p in enumerate(row)] for i, row in enumerate(example["before"])],
    )
    for svg, table in zip(drawings, expected, strict=True):
        own = [e for e in page.elements if svg in e["above"]]
        (ground,) = [e["attrs"] for e in own if e["attrs"].get("class") == "none"]
        left, top, size = (float(ground[name]) for name in ("x", "y", "width"))
        found = [[0.0] * n for _ in range(n)]
        for cell in (e["attrs"] for e in own if e["attrs"].get("class") == "cell shade"):
            i, j = (round((float(cell[at]) - edge) / (size / n)) for at, edge in (("y", top), ("x", left)))
            found[i][j] = float(cell["fill-opacity"])
        assert [round(v, 2) for row in found for v in row] == pytest.approx(
            [v for row in table for v in row], abs=0.006
        )


def test_runs_with_one_name_are_distinguished_by_settings(tmp_path):
    folders = []
    for key, linear in (("a", False), ("b", True)):
        place = write_key_points(tmp_path / "study" / "steps" / f"align-{20 * key}", updates=(2,))
        plain = record()
        plain["settings"]["linear"] = linear
        (place / "calque-run.json").write_text(json.dumps(plain))
        folders.append(place)
    page = html(*folders)
    rows = [e["text"].strip() for e in inside(page, "th", id="clcr-distance") if e["attrs"]["scope"] == "row"]
    labels = [f"study · clcr, en-de, linear {linear}" for linear in (False, True)]
    assert rows[:2] == labels
    choices = [json.loads(e["attrs"]["data-choice"]) for e in page.find("div") if "data-choice" in e["attrs"]]
    assert [*dict.fromkeys(choice["encoder"] for choice in choices)] == labels


def test_scores_of_a_study_are_averaged_under_the_names_of_its_methods(tmp_path):
    """Check that scores of a training are in its own tables, but not in the comparison of methods."""
    lines = study(("de",), ("base", "finetune"), ("nli",))
    head = {"encoder": "mini", "supervision": "parallel"}
    for method, change in (("clcr", 0.0), ("linear", 0.04)):
        for seed in (0, 1):
            for score in record()["scores"]:
                ends = {name: score[name] + change + 0.02 * seed for name in ("value", "low", "high")}
                lines.append({**score, **ends, **head, "method": method, "training_seed": seed})
    write_key_points(tmp_path / "study" / "steps" / f"align-{20 * 'a'}", updates=(2,))
    write(tmp_path / "study" / "results.jsonl", lines)
    page = html(tmp_path / "study")
    heads = [e["text"] for e in page.find("h2")]
    assert heads.count("Key points") == 1
    assert not {"Distance", "Key-points", "Order"} & set(heads)
    rows = [e["text"].strip() for e in inside(page, "th", id="clcr-key-points") if e["attrs"]["scope"] == "row"][:-1]
    assert rows == [f"{method}, {model}" for method in ("clcr", "linear") for model in MODELS]
    cells = [e["text"] for e in inside(page, "td", id="clcr-distance")]
    assert cells[0].startswith("0.041 ±0.014")  # mean of 0.031 and 0.051
    assert cells[4].startswith("0.081 ±0.014")
    assert page.find("figure")  # from the record of the step
    assert "linear" not in page.find("section")[0]["text"]  # the verdict


def test_errors_name_file_and_line(tmp_path):
    place = write_key_points(tmp_path / "bad", updates=(3,))
    metrics = place / "training" / PHASES[0] / "metrics.jsonl"
    metrics.write_text('{"step": 1}\n{\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl line 2: is not JSON"):
        html(place)
    plain = record()
    plain["scores"][3].pop("value")
    metrics.unlink()
    (place / "calque-run.json").write_text(json.dumps(plain))
    with pytest.raises(InputError, match=r"calque-run\.json: scores/3 has no value"):
        html(place)
