"""Two processes give the weights that one gives."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import forked
import training_job
from calque.distributed import Processes, own_device
from calque.encoders import load_encoder, numerics
from linked_text import WORDS, cancels, make_text
from training_job import main
from two_processes import free_port, run_two

SENTENCES = [WORDS, WORDS[::-1], [word.upper() for word in WORDS[3:8]]]
JOB = Path(training_job.__file__)


UNEVEN = {"sizes": (9, 1), "batch": 2, "epochs": 1}
OPTIONS = {
    "learned": {"sentences": 0.5, "stay_layers": [1, 3], "stay_on": "subwords", "temperature_schedule": "learned"},
    "dropped": {"sentences": 0.5, "subword_dropout": 0.3, "temperature_schedule": "linear", "temperature_end": 0.2},
}  # fmt: skip
JOBS = {f"{method}-{name}": (method, settings) for method in ("finetune", "contrastive")
        for name, settings in (("even", {}), ("uneven", UNEVEN))}  # fmt: skip
JOBS |= {f"contrastive-{name}": ("contrastive", settings | UNEVEN) for name, settings in OPTIONS.items()}


@pytest.fixture(scope="module")
def runs(tiny_folder, tmp_path_factory):
    """Folders with what one process and two have made of the same."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for place, (method, settings) in JOBS.items():
        main(str(tiny_folder), str(one / place), method, **settings)
    run_two(str(JOB), str(tiny_folder), str(two), json.dumps(JOBS))
    return one, two


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "training" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", ["finetune", "contrastive"])
def test_two_processes_equal_one(tiny_folder, runs, method):
    """To a fiftieth of a per cent of the way that training went for a contrast, and half a per cent for a sum of squared
    differences, where the two words of a pair leave little. Weights without a gradient but for rounding are apart by as
    much as they moved, as in any two runs that add in another order; what is computed with them is not."""
    one, two = (folder / f"{method}-even" for folder in runs)
    assert losses(two)[0] == pytest.approx(losses(one)[0], rel=1e-5)
    a, b = (torch.load(folder / "weights.pt", weights_only=True) for folder in (one, two))
    encoder = load_encoder(tiny_folder)
    start = encoder.model.state_dict()
    moved = max(float((a[name] - start[name]).abs().max()) for name in start)
    bound = {"finetune": 5e-3, "contrastive": 2e-4}[method] * moved
    for name in start:
        if not (cancels(name) if method == "finetune" else "key.bias" in name):
            torch.testing.assert_close(b[name], a[name], atol=bound, rtol=0, msg=lambda m, name=name: f"{name}: {m}")
    vectors = [encoder.encode(SENTENCES).data]
    for weights in (a, b):
        encoder.model.load_state_dict(weights)
        vectors.append(encoder.encode(SENTENCES).data)
    way = np.linalg.norm(vectors[1] - vectors[0])
    apart = np.linalg.norm(vectors[2] - vectors[1])
    assert apart < {"finetune": 5e-3, "contrastive": 1e-4}[method] * way


@pytest.mark.parametrize("method", ["finetune", "contrastive"])
def test_a_process_without_a_pair_goes_along(runs, method):
    """Nine pairs and one pair in batches of two: in the last update, and of the small text always, one process has none."""
    one, two = (losses(folder / f"{method}-uneven") for folder in runs)
    assert len(one) == 5
    assert two[0] == pytest.approx(one[0], rel=1e-5)
    assert two == pytest.approx(one, rel=1e-2)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_a_contrast_are_the_same_in_two_processes(runs, name):
    """A learned temperature too, whose gradient every process has whole, and words that are cut at random."""
    lines = [
        [
            json.loads(line)
            for line in (folder / f"contrastive-{name}" / "training" / "metrics.jsonl").read_text().splitlines()
        ]
        for folder in runs
    ]
    for one, two in zip(*lines, strict=True):
        assert two.keys() == one.keys()
        for key in one:
            near = 1e-5 if one["step"] == 1 or key == "temperature" else 1e-2
            assert two[key] == pytest.approx(one[key], rel=near, abs=1e-6), key
    assert len({one["temperature"] for one in lines[0]}) == len(lines[0])
    if name == "learned":  # Adam hides how large a gradient is, but not from its own memory
        place = Path(f"contrastive-{name}", "training", "checkpoint.pt")
        one, two = (torch.load(folder / place, weights_only=True)["optimiser"]["state"] for folder in runs)
        torch.testing.assert_close(two[max(two)]["exp_avg_sq"], one[max(one)]["exp_avg_sq"], rtol=0.05, atol=0)
        assert one[max(one)]["exp_avg_sq"].shape == ()


def environment(**given: str) -> dict[str, str]:
    """With nothing of accelerate's or torchrun's but what is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ACCELERATE_", "MASTER_"))}
    kept = {name: value for name, value in kept.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    return {**kept, "OMP_NUM_THREADS": "1", **given}


def align_command(tiny_folder, tmp_path, out: str) -> list[str]:
    corpus, pairs = make_text("xx", 7, 0)
    text, links = tmp_path / "text.tsv", tmp_path / "links"
    text.write_text("".join(f"{' '.join(s.words)}\t{' '.join(t.words)}\n" for s, t in corpus), encoding="utf-8")
    pairs.save(links)
    return ["calque", "align", str(text), "--langs", "en", "xx", "--encoder", str(tiny_folder), "--towards", "en",
            "--links", str(links), "--pretokenized", "--batch", "4", "--epochs", "1", "--out", str(tmp_path / out)]  # fmt: skip


def test_torchrun_on_a_processor_is_one_run_with_one_folder(tiny_folder, tmp_path):
    command = align_command(tiny_folder, tmp_path, "two")
    done = forked.run(
        "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", free_port(), "-m", *command,
        environment=environment(CUDA_VISIBLE_DEVICES=""),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads((tmp_path / "two" / "calque-run.json").read_text())
    assert (record["processes"], record["threads"], record["settings"]["precision"]) == (2, 1, "float32")
    assert record["encoder_precision"] == "highest"
    lines = (tmp_path / "two" / "training" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    load_encoder(tmp_path / "two")


def test_processes_that_cannot_meet_say_so_in_one_line(tiny_folder, tmp_path):
    command = align_command(tiny_folder, tmp_path, "out")
    done = forked.run("-m", *command, environment=environment(WORLD_SIZE="2", CUDA_VISIBLE_DEVICES=""))
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    assert "WORLD_SIZE is 2, but the processes could not form a group" in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "config.json").exists()


def test_one_process_of_accelerate_where_several_were_asked_for_is_told():
    code = "from calque.distributed import Processes; print(Processes().world)"
    # What accelerate launch --cpu --num_processes 2 gives the one process that it starts.
    launched = {"ACCELERATE_USE_CPU": "true", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    configured = {"ACCELERATE_MIXED_PRECISION": "bf16"}
    done = forked.run("-c", code, environment=environment(**launched, **configured))
    assert done.stdout == "1\n"
    assert "accelerate launch --cpu starts a single process" in done.stderr
    assert "accelerate is configured for bf16, which is not used here" in done.stderr


def test_each_process_has_a_card_of_its_own(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert own_device() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device() == torch.device("cuda")
    found = []
    for rank in range(3):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        found.append(own_device())
    assert found == [torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cuda", 0)]
    asked = []
    monkeypatch.setattr(numerics, "own_device", lambda: asked.append(1) or torch.device("cpu"))
    load_encoder("mini")
    assert asked
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert own_device() == torch.device("cpu")


def test_one_process_is_the_plain_case():
    processes = Processes()
    rows = torch.ones(3, 2, requires_grad=True)
    assert (processes.rank, processes.world, processes.is_first) == (0, 1, True)
    assert processes.gather_rows(rows, [3]) is rows
    assert processes.sum_numbers(rows) is rows
    np.testing.assert_array_equal(processes.share(np.arange(5)), np.arange(5))
