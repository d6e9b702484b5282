"""Test that every reader of a corrupt file returns a result or raises a one-line error
(`dev/fuzz_readers.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import forked
from calque.encoders import load_encoder
from calque.errors import CalqueError, InputError

SCRIPT = Path(__file__).parents[2] / "dev" / "fuzz_readers.py"


@pytest.mark.skipif(
    not hasattr(os, "fork") or not SCRIPT.exists(), reason="requires os.fork and a checkout"
)
def test_readers_handle_corrupt_files():
    """Use few inputs; `python dev/fuzz_readers.py` runs each reader on 1,000 inputs."""
    done = forked.run(SCRIPT, "--inputs", 15)
    assert len(done.stdout.splitlines()) > 25, done.stderr[-2000:]
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "no failures"), done.stdout


@pytest.mark.skipif(
    not hasattr(os, "fork") or not SCRIPT.exists(), reason="requires os.fork and a checkout"
)
def test_the_fuzzer_reports_failures(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import fuzz_readers as fuzz

    def unready(folder, _):
        content = (folder / "t.txt").read_bytes()
        if content == b"valid":
            return content
        case = len(content) % 3
        if case == 0:
            raise CalqueError("torch advises weights_only=False")
        if case == 1:
            raise KeyError("another exception")
        os.kill(os.getpid(), signal.SIGKILL)

    outcomes = list(
        fuzz.results("made up", fuzz.Reader({"t.txt": "valid"}, unready), list(range(30)), tmp_path)
    )
    assert len(outcomes) == 30
    failed = " ".join(why for _, what, why in outcomes if what == "failed")
    assert "not one plain line" in failed
    assert "KeyError" in failed
    assert "SIGKILL" in failed
    assert {what for _, what, _ in outcomes} <= {"failed", "accepted"}


def test_excessive_sizes_are_rejected_before_the_model_is_built(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "e")
    config = json.loads((tmp_path / "e" / "config.json").read_text())
    for change in (
        {"num_hidden_layers": 100_000},
        {"hidden_size": 10**9},
        {"vocab_size": 10**12},
        {"vocab_size": -1},
        {"num_hidden_layers": 900, "hidden_size": 60_000},
        {"num_hidden_layers": "six"},
    ):
        (tmp_path / "e" / "config.json").write_text(json.dumps(config | change))
        started = time.process_time()
        with pytest.raises(InputError, match=r"config\.json|not an encoder") as caught:
            load_encoder(tmp_path / "e")
        assert time.process_time() - started < 5
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"kind": "later"}',
        b'{"kind": "huggingface", "layer": 1e400}',
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"kind": "mapped", "maps": 3}',
        b'{"kind": "per-language", "langs": ["en", "en"]}',
    ],
)
def test_a_corrupt_calque_json_raises_a_one_line_error(tiny_folder, tmp_path, content):
    shutil.copytree(tiny_folder, tmp_path / "e")
    (tmp_path / "e" / "calque.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_encoder(tmp_path / "e")
    assert "\n" not in str(caught.value)


def test_reading_a_released_map_allocates_little_memory(tmp_path):
    """Check that the reader does not request a fixed maximum size, because Python allocates that
    size before it reads.
    """
    import pickle
    import tracemalloc

    from calque.maps.released import read_released

    path = tmp_path / "xx_best_mapping.pth"
    path.write_bytes(pickle.dumps(np.eye(3)))
    tracemalloc.start()
    try:
        read_released(path)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_messages_have_one_line_and_limited_length():
    assert str(InputError("a\n  b\r\n\x00c", path="p")) == "p: a b c"
    assert len(str(CalqueError("9" * 100_000))) < 1300
    error = InputError("x" * 5000 + " end", path="p", line=3)
    assert str(error).startswith("p line 3: xxx")
    assert str(error).endswith(" end")


# -- bugs found by long runs of the fuzzer ---------------------------------------------------------


def test_a_tokenizer_without_unk_raises_a_one_line_error(tiny_folder, tmp_path):
    """Such a tokenizer raises a bare Exception at its first use."""
    shutil.copytree(tiny_folder, tmp_path / "encoder")
    path = tmp_path / "encoder" / "tokenizer.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    del about["model"]["vocab"]["[UNK]"]
    about["model"]["vocab"] = {
        word: n for word, n in about["model"]["vocab"].items() if not word.startswith("a")
    }
    about["added_tokens"] = [
        token for token in about["added_tokens"] if token["content"] != "[UNK]"
    ]
    path.write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(InputError, match="do not work together|cannot be used"):
        load_encoder(tmp_path / "encoder")
