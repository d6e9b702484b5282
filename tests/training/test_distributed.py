"""Tests of training with several processes: equal results, resuming with another number of
processes, and failures.
"""

import json
import os
import re
from pathlib import Path

import pytest
import torch

import forked
import tuner_cases
from calque.distributed import Processes, own_device
from calque.encoders import load_encoder
from calque.errors import SettingError
from linked_text import make_text
from tuner_cases import CASES
from two_processes import free_port, run_group

JOB = str(tuner_cases.__file__)
HELPERS = os.pathsep.join([str(Path(JOB).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
#: cases for four processes: in some updates, some processes have no sentence pair
OF_FOUR = ("contrastive-sentences", "distilled")
OF_TWO = tuple(case for case in CASES if case not in OF_FOUR)
#: maps each interrupted run to its case and the numbers of processes before and after resuming
RESUMED = {
    "two-one": ("contrastive-sentences", 2, 1),
    "one-two": ("contrastive-published", 1, 2),
    "two-one-held-out": ("contrastive-held-out", 2, 1),
}


@pytest.fixture(scope="module")
def outcomes(tiny_folder, tmp_path_factory) -> Path:
    """Train all cases with 1, 2 and 4 processes; return the folder with subfolders for these
    numbers and for `RESUMED`.
    """
    out = tmp_path_factory.mktemp("outcomes")

    def run(world: int, *jobs: tuple[str, str, int | None]) -> None:
        listed = json.dumps([(str(out / place), case, stop) for place, case, stop in jobs])
        for ended in run_group(world, JOB, str(tiny_folder), listed):
            assert ended.returncode == 0, ended.stderr[-3000:]

    stopped = [(world, (place, case, 6)) for place, (case, world, _) in RESUMED.items()]
    going_on = [(world, (place, case, None)) for place, (case, _, world) in RESUMED.items()]
    plain = [
        (n, (str(n), case, None))
        for n, cases in ((1, CASES), (2, OF_TWO), (4, OF_FOUR))
        for case in cases
    ]
    for turn in ([*plain, *stopped], going_on):  # start one process group per number of processes
        for world in (1, 2, 4):
            if jobs := [job for n, job in turn if n == world]:
                run(world, *jobs)
    return out


def assert_equal(out: Path, place: str, case: str) -> None:
    """Compare all losses and final weights, with a tolerance of 1e-5."""
    one, other = (torch.load(out / each / f"{case}.pt", weights_only=True) for each in ("1", place))
    assert len(one["losses"]) > 3
    assert other["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert other["weights"].keys() == one["weights"].keys()
    for name, weight in one["weights"].items():
        torch.testing.assert_close(
            other["weights"][name],
            weight,
            atol=1e-5,
            rtol=1e-5,
            msg=lambda m, name=name: f"{name}: {m}",
        )


@pytest.mark.parametrize(
    ("world", "case"), [*(("4", case) for case in OF_FOUR), *(("2", case) for case in OF_TWO)]
)
def test_several_processes_give_the_results_of_one_process(outcomes, world, case):
    assert_equal(outcomes, world, case)


def test_training_changes_the_weights(outcomes, tiny_encoder):
    start = tiny_encoder.model.state_dict()
    for case in CASES:
        end = torch.load(outcomes / "1" / f"{case}.pt", weights_only=True)["weights"]
        prefix = "en." if case == "clcr" else ""
        moved = max(
            float((end[prefix + name] - value).abs().max()) for name, value in start.items()
        )
        assert moved > 2e-4, case


@pytest.mark.parametrize("place", RESUMED)
def test_a_run_can_be_resumed_with_another_number_of_processes(outcomes, place):
    case = RESUMED[place][0]
    assert_equal(outcomes, place, case)
    lines = (outcomes / place / case / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 11))


def align_command(tiny_folder: Path, tmp_path: Path, out: str) -> list[str]:
    corpus, pairs = make_text("xx", 7, 0)
    text, links = tmp_path / "text.tsv", tmp_path / "links"
    text.write_text(
        "".join(f"{' '.join(s.words)}\t{' '.join(t.words)}\n" for s, t in corpus), encoding="utf-8"
    )
    pairs.save(links)
    return [
        "align",
        str(text),
        "--langs",
        "en",
        "xx",
        "--encoder",
        str(tiny_folder),
        "--towards",
        "en",
        "--links",
        str(links),
        "--pretokenized",
        "--batch",
        "2",
        "--epochs",
        "2",
        "--method",
        "mortal_method:Mortal",
        "--checkpoint-every",
        "2",
        "--out",
        str(tmp_path / out),
    ]


@pytest.mark.parametrize(
    ("how", "said", "update"),
    [
        ("failed", "calque: error: text.tsv: line 7 is no text", 2),
        (
            "stopped",
            "calque: training was stopped after update 3 of 8; the same command resumes it",
            3,
        ),
    ],
)
def test_only_one_process_reports_why_a_run_ends(tiny_folder, tmp_path, how, said, update):
    """Raise an error in one process or send it a signal; check that all processes end and only one
    line is printed.
    """
    command = align_command(tiny_folder, tmp_path, "out")
    ended = run_group(
        2, "-m", "calque", *command, MORTAL=f"{int(how == 'stopped')}:3:{how}", PYTHONPATH=HELPERS
    )
    assert all(each.returncode not in (0, 1) for each in ended)
    written = "\n".join(each.stderr for each in ended)
    assert re.findall("calque: .*", written) == [said]
    assert "Traceback" not in written
    checkpoint = tmp_path / ".out.calque-part" / "new" / "training" / "checkpoint.pt"
    assert torch.load(checkpoint, weights_only=True)["step"] == update


def environment(**given: str) -> dict[str, str]:
    """Return `os.environ` without the variables of accelerate and torchrun, updated with the
    arguments.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCELERATE_", "MASTER_"))
    }
    kept = {
        name: value
        for name, value in kept.items()
        if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    }
    return {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **given}


def test_a_run_that_ends_when_a_process_is_killed_can_be_resumed(tiny_folder, tmp_path):
    """Kill one process, and resume with `accelerate launch`, which starts the processes like
    torchrun.
    """
    command = ["-m", "calque", *align_command(tiny_folder, tmp_path, "out")]
    done, killed = run_group(2, *command, MORTAL="1:4:killed", PYTHONPATH=HELPERS)
    assert (done.returncode, killed.returncode) == (2, -9)
    (line,) = re.findall("calque: .*", done.stderr)
    assert "another process of this run has ended" in line
    assert "calque/training" not in done.stderr  # no traceback from calque
    assert not (tmp_path / "out").exists()
    done = forked.run(
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "--main_process_port",
        free_port(),
        *command,
        environment=environment(PYTHONPATH=HELPERS),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("saved to") == 1
    assert json.loads((tmp_path / "out" / "calque-run.json").read_text())["processes"] == 2
    lines = (tmp_path / "out" / "training" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 9))
    load_encoder(tmp_path / "out")


def test_processes_that_cannot_form_a_group_print_one_line(tiny_folder, tmp_path):
    command = align_command(tiny_folder, tmp_path, "out")
    command[command.index("mortal_method:Mortal")] = "contrastive"
    done = forked.run("-m", "calque", *command, environment=environment(WORLD_SIZE="2"))
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    assert "WORLD_SIZE is 2, but the processes could not form a group" in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "config.json").exists()


def test_each_process_uses_its_own_gpu(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert own_device() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device() == torch.device("cuda")
    for rank, number in (("0", 0), ("1", 1), ("2", 0)):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert own_device() == torch.device("cuda", number)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert own_device() == torch.device("cpu")


def test_fsdp_is_rejected(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingError, match="FSDP is not supported"):
        Processes()
