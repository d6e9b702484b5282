"""Test that training runs of one setting can be recognised from their scores."""

import json

import pytest

from calque.corpora.sample import sample_text
from calque.report.content import compose
from calque.report.reading import read_results
from command import works


@pytest.fixture
def train(tmp_path):
    pairs = [(list(s.words), list(t.words)) for s, t in sample_text("de", "train")[:16]]
    text = "".join(f"{' '.join(s)}\t{' '.join(t)}\n" for s, t in pairs)
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    return tmp_path / "train.tsv"


def test_alignments_with_three_seeds_are_one_method_with_three_training_runs(
    train, tiny_folder, tmp_path, capsys
):
    langs, results = ("--langs", "en", "de", "-q"), tmp_path / "results.jsonl"
    job = ("align", train, *langs, "--encoder", tiny_folder, "--towards", "en", "--batch", 4)
    runs = {f"run-{seed}": ("--epochs", 0.5, "--seed", seed) for seed in range(3)} | {
        "longer": ("--epochs", 1)
    }
    for name, options in runs.items():
        works(capsys, *job, *options, "--out", tmp_path / name)
    for encoder in (tiny_folder, *(tmp_path / name for name in runs)):
        works(capsys, "evaluate", encoder, "retrieval", "--test", train, *langs, "--out", results)
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    aligned = {line["settings"]["encoder"]: line["settings"]["aligned"] for line in lines}
    assert [aligned[f"run-{seed}"]["seed"] for seed in range(3)] == [0, 1, 2]
    assert len({aligned[f"run-{seed}"]["setting"] for seed in range(3)}) == 1
    assert aligned["longer"]["setting"] != aligned["run-0"]["setting"]
    assert len({line["settings"]["encoder_fingerprint"] for line in lines}) == 5
    _, table = compose(read_results([results]), title="x").sections[0].blocks[:2]
    assert [(line.label, line.detail) for line in table.lines] == [
        (tiny_folder.name, ""),
        ("run", "3 training runs"),
        ("longer", ""),
    ]
    figure = table.lines[1].cells[0].figure
    assert (figure.known.trainings, len(figure.known.runs)) == (3, 3)


@pytest.mark.parametrize("task", [("retrieval",), ("retrieval", "--layers", "1,2")])
def test_options_for_loading_an_encoder_are_part_of_the_setting_of_its_alignment(
    task, train, tiny_folder, tmp_path, capsys
):
    """Otherwise a report could take scores of different layers for training runs of one method."""
    langs, out = ("--langs", "en", "de", "-q"), tmp_path / "aligned"
    job = (
        "align",
        train,
        *langs,
        "--encoder",
        tiny_folder,
        "--towards",
        "en",
        "--batch",
        8,
        "--epochs",
        0.5,
    )
    works(capsys, *job, "--out", out)

    def setting(*options):
        printed, _ = works(
            capsys, "evaluate", out, *task, "--test", train, *langs, "--json", *options
        )
        return json.loads(printed)["settings"]["aligned"]["setting"]

    assert setting() != setting("--max-length", 60)
