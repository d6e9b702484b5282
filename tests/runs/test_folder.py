"""Test that results appear under their final name only when complete, no matter when the writing
process is killed.
"""

import importlib
import json
import os
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from calque.alignment.update import Alignment
from calque.corpora.sample import sample_text
from calque.encoders import load_encoder
from calque.encoders.folder import saving
from calque.errors import InputError, SettingError
from calque.runs.folder import check, writing
from calque.storage import write_text
from calque.text import Sentence
from command import fails, run, works

# Calls at which a run may be killed while it writes its result.
MOMENTS = [
    ("transformers", "PreTrainedModel.save_pretrained"),
    ("calque.encoders.mapped", "write_arrays"),
    ("calque.encoders.card", "model_card"),
    ("calque.runs.folder", "remove"),
    ("os", "replace"),
    ("os", "rename"),
]


@pytest.fixture(scope="module")
def train(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "train.tsv"
    corpus = sample_text("de", "train")
    path.write_text("".join(f"{' '.join(s.words)}\t{' '.join(t.words)}\n" for s, t in corpus[:24]))
    return path


def command(train: Path, encoder: Path, out: Path, method: str) -> list[str]:
    options = (
        ["--batch", "8", "--epochs", "2", "--precision", "float32"]
        if method == "contrastive"
        else []
    )
    return [
        "align",
        str(train),
        "--langs",
        "en",
        "de",
        "--encoder",
        str(encoder),
        "--towards",
        "en",
        "--method",
        method,
        "--pretokenized",
        "--out",
        str(out),
        *options,
    ]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files, without run times and commands in records."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if path.name == "calque-run.json":
                record = json.loads(data)
                record.pop("seconds", None)
                record.pop("command", None)
                data = json.dumps(record).encode()
            found[str(path.relative_to(folder))] = data
    return found


def photographed(
    monkeypatch, folder: Path, photographs: Path, moments: list[tuple[str, str]]
) -> list[str]:
    """Copy the folder before and after each call, as it would be on disk if the process were killed
    then.
    """
    taken: list[str] = []

    def take(moment: str) -> None:
        shutil.copytree(folder, photographs / str(len(taken)))
        taken.append(moment)

    def watched(original, name: str):
        def wrapped(*args, **kwargs):
            take(f"before {name}")
            found = original(*args, **kwargs)
            take(f"after {name}")
            return found

        return wrapped

    for module, path in moments:
        *owners, name = path.split(".")
        owner = importlib.import_module(module)
        for each in owners:
            owner = getattr(owner, each)
        monkeypatch.setattr(owner, name, watched(getattr(owner, name), path))
    return taken


@pytest.mark.parametrize("method", ["contrastive", "rotation"])
def test_a_run_killed_while_saving_leaves_no_result_or_a_complete_one(
    method, capsys, monkeypatch, train, tiny_folder, tmp_path
):
    """Check that running the same command again gives the same bytes without training again."""
    photographs, desk = tmp_path / "photographs", tmp_path / "desk"
    desk.mkdir()
    arguments = command(train, tiny_folder, desk / "out", method)
    with monkeypatch.context() as patch:
        moments = photographed(patch, desk, photographs, MOMENTS)
        works(capsys, *arguments)
    expected = contents(desk / "out")
    assert [path.name for path in desk.iterdir()] == ["out"]
    assert len(moments) > 20
    trained = []
    forward = Alignment.backward
    monkeypatch.setattr(
        Alignment, "backward", lambda self, chosen: (trained.append(1), forward(self, chosen))[1]
    )
    first_save = next(
        n for n, moment in enumerate(moments) if moment == "before PreTrainedModel.save_pretrained"
    )
    seen: list[dict[str, bytes]] = []
    for number, moment in enumerate(moments):
        left = contents(photographs / str(number))
        if left in seen:
            continue
        seen.append(left)
        shutil.rmtree(desk)
        shutil.copytree(photographs / str(number), desk)
        trained.clear()
        if (desk / "out").exists():
            assert contents(desk / "out") == expected, moment
            assert "already contains an encoder" in fails(capsys, *arguments)
            assert {path.name for path in desk.iterdir()} <= {"out", ".out.calque-lock"}, moment
            continue
        _, err = works(capsys, *arguments)
        assert contents(desk / "out") == expected, moment
        assert [path.name for path in desk.iterdir()] == ["out"], moment
        if number >= first_save and method == "contrastive":
            assert not trained, moment
            assert "linking the words" not in err, moment
    assert len(seen) > 10


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_run_stopped_by_a_signal_can_be_resumed(
    name, capsys, monkeypatch, train, tiny_folder, tmp_path
):
    """Check that the current update is finished and saved, and that the resumed run gives the same
    bytes.
    """
    works(capsys, *command(train, tiny_folder, tmp_path / "whole", "contrastive"))
    number, backward, calls = getattr(signal, name), Alignment.backward, []

    def interrupted(self, chosen):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), number)
        return backward(self, chosen)

    monkeypatch.setattr(Alignment, "backward", interrupted)
    before = signal.getsignal(number)
    arguments = [*command(train, tiny_folder, tmp_path / "out", "contrastive"), "--quiet"]
    code, _, err = run(capsys, *arguments)
    assert code == 128 + number
    assert err.strip().endswith(
        "calque: training was stopped after update 3 of 6; the same command resumes it"
    )
    assert signal.getsignal(number) is before
    kept = torch.load(
        tmp_path / ".out.calque-part" / "new" / "training" / "checkpoint.pt", weights_only=True
    )
    assert kept["step"] == 3
    calls.clear()
    monkeypatch.setattr(
        Alignment, "backward", lambda self, chosen: (calls.append(1), backward(self, chosen))[1]
    )
    works(capsys, *arguments)
    assert len(calls) == 3
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_two_processes_cannot_write_the_same_folder(tmp_path):
    with writing(tmp_path / "out") as part:
        (part / "calque.json").write_text("{}")
        with pytest.raises(SettingError, match="is writing"), writing(tmp_path / "out"):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_results_have_the_usual_permissions(tiny_encoder, train, tiny_folder, capsys, tmp_path):
    """Check all files, because safetensors makes its files readable only by their owner."""
    (tmp_path / "new").write_text("")
    usual = (tmp_path / "new").stat().st_mode
    tiny_encoder.save(tmp_path / "encoder")
    works(capsys, *command(train, tiny_folder, tmp_path / "out", "rotation"))
    works(
        capsys,
        "words",
        train,
        "--langs",
        "en",
        "de",
        "--out",
        tmp_path / "links",
        "--tables",
        tmp_path / "tables",
    )
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name: path.stat().st_mode for path in files} == {
        path.name: usual for path in files
    }


def filled(out: Path, *names: str, text: str = "{}", **how: object) -> None:
    with writing(out, **how) as part:
        for name in names:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_text(text)


def names_in(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize(
    ("ours", "others", "named"),
    [
        ([], ["chapter1.tex"], "(chapter1.tex)"),
        ([], ["config.json", "src/a.py"], "(config.json, src/)"),  # files of an unknown program
        (
            ["calque.json"],
            ["thesis.tex", ".git/HEAD", ".git/refs/x", "src/"],
            "(.git/, src/, thesis.tex)",
        ),
        (["calque.json", "training/metrics.jsonl"], ["training/notes"], "(training/notes)"),
        (
            ["calque-run.json"],
            [f"{n}.txt" for n in range(7)],
            "(0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 2 more)",
        ),
    ],
)
def test_folders_with_foreign_files_are_never_replaced(ours, others, named, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    if ours:
        filled(out, *ours)
    for name in others:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).mkdir() if name.endswith("/") else (out / name).write_text("mine")
    before = names_in(tmp_path)
    for overwrite in (True, False):
        with pytest.raises(
            InputError, match=re.escape(f"contains files that calque did not write {named}")
        ):
            filled(out, "new", overwrite=overwrite)
    assert names_in(tmp_path) == before
    assert (out / "src").exists() == any(name.startswith("src/") for name in others)


def test_what_a_killed_write_left_inside_a_result_does_not_prevent_replacing_it(tmp_path):
    out = tmp_path / "out"
    filled(out, "calque-run.json")
    left = out / ".calque-run.json.calque-part"
    left.mkdir()
    check(out, overwrite=True)
    (left / "new").write_text("half")
    (out / ".calque-run.json.calque-lock").touch()
    check(out, overwrite=True)
    filled(out, "calque-run.json", overwrite=True)
    assert names_in(tmp_path) == ["out/calque-run.json"]
    (out / ".calque-run.json.calque-lock").write_text("mine")
    with pytest.raises(InputError, match="contains files that calque did not write"):
        check(out, overwrite=True)
    (out / ".calque-run.json.calque-lock").unlink()
    left.mkdir()
    (left / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="contains files that calque did not write"):
        check(out, overwrite=True)


def test_a_file_added_while_a_result_is_written_is_preserved(tmp_path):
    filled(tmp_path / "out", "calque.json")
    with (  # noqa: PT012
        pytest.raises(InputError, match="thesis.tex"),
        writing(tmp_path / "out", overwrite=True) as part,
    ):
        (part / "calque.json").write_text("{}")
        (tmp_path / "out" / "thesis.tex").write_text("mine")
    assert names_in(tmp_path) == ["out/calque.json", "out/thesis.tex"]
    with pytest.raises(InputError, match="is a file"):
        check(tmp_path / "out" / "thesis.tex")


def test_files_with_similar_names_are_not_modified(tmp_path):
    others = [
        "out.old",
        "out.part",
        "out.partial",
        "out.lock",
        "links.part",
        "links.journal",
        ".out.saving",
    ]
    for name in others:
        (tmp_path / name).write_text("mine")
    filled(tmp_path / "out", "calque.json")
    filled(tmp_path / "out", "calque.json", overwrite=True)
    write_text(tmp_path / "links", "0-0\n")
    with saving(tmp_path / "encoder") as part:
        (part / "config.json").touch()
    assert names_in(tmp_path) == sorted(
        [*others, "out/calque.json", "links", "encoder/config.json"]
    )
    assert {(tmp_path / name).read_text() for name in others} == {"mine"}


@pytest.mark.parametrize("moment", [*range(8), None])
def test_a_killed_replacement_leaves_the_old_or_the_new_result(moment, monkeypatch, tmp_path):
    """Kill the process at each rename or removal; running the command again replaces the old
    result.
    """
    out = tmp_path / "out"
    filled(out, "calque-run.json", "a/old", text='{"is": "old"}')
    calls = []

    class Killed(BaseException):
        pass

    def mortal(original):
        def wrapped(*args, **how):
            calls.append(1)
            if (
                moment is not None and len(calls) > moment
            ):  # from then on, all calls fail, because the process is dead
                raise Killed
            return original(*args, **how)

        return wrapped

    with monkeypatch.context() as patch, suppress(Killed):
        for name in ("rename", "replace", "unlink", "rmdir"):
            patch.setattr(os, name, mortal(getattr(os, name)))
        filled(
            out,
            "calque-run.json",
            "b/new",
            "training/checkpoint.pt",
            text='{"is": "new"}',
            overwrite=True,
        )
    found = names_in(out)
    if (out / "calque-run.json").exists():
        assert found in (["a/old", "calque-run.json"], ["b/new", "calque-run.json"])
    filled(out, "calque-run.json", "b/new", text='{"is": "new"}', overwrite=True)
    assert names_in(tmp_path) == ["out/b/new", "out/calque-run.json"]


class Broken(Exception):
    pass


def test_a_result_is_replaced_completely_and_only_on_request(tmp_path):
    out = tmp_path / "out"
    filled(out, "calque.json", "maps.safetensors", text='{"is": "old"}')
    with pytest.raises(SettingError, match="already contains an encoder"):
        filled(out)
    with pytest.raises(Broken), writing(out, overwrite=True) as part:  # noqa: PT012
        (part / "calque.json").write_text("{}")
        raise Broken
    assert names_in(tmp_path) == ["out/calque.json", "out/maps.safetensors"]
    assert json.loads((out / "calque.json").read_text()) == {
        "is": "old",
        "files": ["calque.json", "maps.safetensors"],
    }
    with writing(out, overwrite=True) as part:
        assert not any(part.iterdir())
        (part / "calque.json").write_text('{"is": "new"}')
    assert names_in(tmp_path) == ["out/calque.json"]


def test_the_current_folder_is_rejected_as_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="use a subfolder"), writing("."):
        pass
    with writing("out") as part:
        (part / "training").mkdir()
        (part / "training" / "metrics.jsonl").write_text("{}\n")
        (part / "training" / "checkpoint.pt").write_text("")
        (part / "calque.json").write_text("{}")
    assert names_in(tmp_path) == ["out/calque.json", "out/training/metrics.jsonl"]


def test_an_encoder_is_saved_completely_or_not_at_all(tiny_encoder, tmp_path):
    def fail():
        with pytest.raises(Broken), saving(tmp_path / "one") as part:  # noqa: PT012
            (part / "config.json").write_text("{}")
            raise Broken

    fail()
    assert not any(tmp_path.iterdir())
    tiny_encoder.save(tmp_path / "one")
    (tmp_path / "one" / "notes.txt").write_text("mine")
    fail()
    tiny_encoder.save(tmp_path / "one")
    assert load_encoder(tmp_path / "one").fingerprint == tiny_encoder.fingerprint
    assert (tmp_path / "one" / "notes.txt").read_text() == "mine"


TEXT = [Sentence(("the", "old", "house"), "en"), Sentence(("and", "a"), "en")]


def test_layers_above_the_selected_layer_are_not_saved(any_family_folder, tmp_path):
    """Check every family: either the layer is now the last one in transformers, or the folder
    records its number.
    """
    whole = load_encoder(any_family_folder, layer=-1)
    encoder = load_encoder(any_family_folder, layer=1)
    encoder.save(tmp_path / "cut")
    saved = load_encoder(tmp_path / "cut")
    np.testing.assert_allclose(
        saved.encode(TEXT).data, encoder.encode(TEXT).data, rtol=0, atol=1e-5
    )
    assert encoder.n_layers == whole.n_layers == 3  # the encoder itself is unchanged
    assert (saved.n_layers == 1) == (saved.layer == saved.n_layers)
    if saved.n_layers == 1:
        assert AutoModel.from_pretrained(tmp_path / "cut").config.num_hidden_layers == 1


def test_pretraining_with_overwrite_reads_the_new_text(capsys, tmp_path):
    text, vocabularies = tmp_path / "text", []
    job = [
        "pretrain",
        f"en={text}",
        "--pretokenized",
        "--layers",
        1,
        "--dim",
        8,
        "--heads",
        1,
        "--positions",
        32,
        "--length",
        16,
        "--batch",
        4,
        "--updates",
        4,
        "--vocabulary",
        100,
        "--out",
        tmp_path / "out",
        "--overwrite",
    ]
    for line in ("one two three\n", "uno dos tres\n"):
        text.write_text(line * 20)
        works(capsys, *job)
        vocabularies.append(
            json.loads((tmp_path / "out" / "tokenizer.json").read_text())["model"]["vocab"]
        )
    assert ["three" in vocabulary for vocabulary in vocabularies] == [True, False]
