"""Test that the explorer answers requests while it computes word vectors."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from urllib.request import urlopen

import pytest

pytest.importorskip("uvicorn", reason="the extra explore is not installed")

import forked
from calque.errors import InputError, SettingError
from calque.explore.background import Background
from calque.explore.explorer import Explorer
from serving import Gate, served


@pytest.fixture
def slow(collection, sources, tmp_path, monkeypatch):
    """Return an explorer whose vectors are not computed yet, and the gate that holds up the
    computation.
    """
    return Explorer(collection, sources, tmp_path), Gate(monkeypatch)


def ask(url, path):
    with urlopen(f"{url}api/{path}") as answer:
        return answer.status, json.load(answer)


def wait_for(url, path):
    for _ in range(600):
        status, answer = ask(url, path)
        if status == 200:
            return answer
        time.sleep(0.05)
    raise AssertionError("the answer is still pending")


PATIENCE = 60  # seconds after which a test fails instead of hanging
WORD = "neighbours?encoder=tiny&id=2&word=4"


def test_the_page_and_the_text_are_served_while_the_vectors_are_computed(slow, tmp_path):
    explorer, gate = slow
    assert not list(tmp_path.rglob("*.safetensors"))
    with served(explorer, Background(explorer)) as url:
        assert gate.started.wait(PATIENCE)
        assert urlopen(url).status == 200
        assert ask(url, "about") == (200, explorer.about())
        assert ask(url, "sentence?id=2")[0] == ask(url, "search?q=bank")[0] == 200
        status, answer = ask(url, WORD)
        assert status == 202
        assert answer == {
            "pending": {
                "text": "Encoding the text with tiny, layer 3",
                "fraction": 0.125,
                "layers": 2,
            }
        }
        assert ask(url, "links?encoder=rotated&id=2&to=8")[0] == 202
        gate.open()
        assert wait_for(url, WORD) == explorer.neighbours("tiny", None, 2, 4)
        assert wait_for(url, "links?encoder=rotated&id=2&to=8") == explorer.links(
            "rotated", None, 2, 8
        )


def test_other_layers_are_computed_when_they_are_requested(slow):
    explorer, gate = slow
    with served(explorer, Background(explorer)) as url:
        status, answer = ask(url, f"{WORD}&layer=1")
        assert (status, answer["pending"]["layers"]) == (202, 3)
        assert (
            ask(url, f"{WORD}&layer=1")[1]["pending"]["layers"] == 3
        )  # a repeated request adds no work
        gate.open()
        assert wait_for(url, f"{WORD}&layer=1") == explorer.neighbours("tiny", "1", 2, 4)
        assert (
            wait_for(url, "neighbours?encoder=rotated&text=the+bank&lang=en&word=1")["word"]
            == "bank"
        )


def test_a_request_that_cannot_be_answered_fails_at_once(slow):
    explorer, gate = slow
    background = Background(explorer)
    background.start()
    assert gate.started.wait(PATIENCE)
    assert background.pending("nobody", None) is None  # the explorer then raises the error
    assert background.pending("tiny", "77") is None
    gate.open()
    background.stop()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("the model\nis corrupt", path="x"), "x: the model is corrupt"),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
def test_an_error_of_the_computation_is_the_answer_to_every_request(
    collection, sources, tmp_path, monkeypatch, error, message
):
    gate, said = Gate(monkeypatch, error), []
    explorer = Explorer(collection, sources, tmp_path)
    background = Background(explorer, say=said.append)
    background.start()
    gate.open()
    for _ in range(600):
        if len(said) == 2:  # both encoders are tried
            break
        time.sleep(0.05)
    expected = f"the word vectors of tiny, layer 3 could not be computed: {message}"
    assert said[0] == expected
    for _ in range(2):
        with pytest.raises(SettingError) as raised:
            background.pending("tiny", None)
        assert str(raised.value) == expected
    background.stop()


PROGRAM = """
import sys, time
from calque.cli import main
from calque.explore.explorer import CollectionView
from calque.progress import bar

def encode_forever(view, sentences, layer):
    for _ in bar(range(10**9), unit="word", show=False):
        time.sleep(0.01)

CollectionView._encode = encode_forever
main(sys.argv[1:])
"""


def test_the_command_serves_the_page_before_the_vectors_and_stops_at_an_interrupt(
    tiny_folder, tmp_path
):
    job = (
        "explore",
        tiny_folder,
        "--no-browser",
        "--port",
        0,
        "--cache",
        tmp_path / "cache",
        "--limit",
        4,
        "-q",
    )
    program = forked.start("-c", PROGRAM, *job, folder=tmp_path / "output")
    while program.runs and not program.printed.endswith("\n"):
        time.sleep(0.05)
    url = program.printed.strip()
    assert ask(url, "search?q=the")[0] == 200
    assert ask(url, f"neighbours?encoder={tiny_folder.name}&id=0&word=0")[0] == 202
    os.kill(program.process.pid, signal.SIGINT)
    ended = program.wait(60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


@pytest.mark.parametrize("moment", ["before it starts", "while it encodes", "when it is idle"])
def test_the_computation_can_be_stopped_at_any_time_and_leaves_no_file(slow, tmp_path, moment):
    explorer, gate = slow
    background = Background(explorer)
    if moment == "when it is idle":
        gate.open()
    if moment != "before it starts":
        background.start()
        assert gate.started.wait(PATIENCE)
    if moment == "when it is idle":
        begun = time.monotonic()
        while background.pending("tiny", None) or background.pending("rotated", None):
            assert time.monotonic() - begun < PATIENCE
            time.sleep(0.02)
    begun = time.monotonic()
    background.stop()
    assert time.monotonic() - begun < 20
    assert not [thread for thread in threading.enumerate() if thread.name == "calque explore"]
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert left == (["3.safetensors"] * 2 if moment == "when it is idle" else [])
