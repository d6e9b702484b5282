"""Long extractions: into files, in windows, stopped by force and continued."""

from __future__ import annotations

import errno
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import forked
from calque.encoders import extraction, load_encoder
from calque.errors import InputError, OutputError
from calque.text import Sentences
from calque.vectors import Embeddings, map_arrays

JOB = """
import sys, time
import torch
torch.set_num_threads(int(sys.argv[3]))
sys.path.append(sys.argv[4])
from calque.encoders import load_encoder, trainable
from test_extraction import PLAN, make_sentences

trainable.Plan = PLAN
encoder = load_encoder(sys.argv[1], precision="highest", device="cpu")
encoder.budget = 64
forward = encoder.model.embeddings.forward
def slowly(*args, **kwargs):
    print("batch", flush=True)
    time.sleep(0.02)
    return forward(*args, **kwargs)
encoder.model.embeddings.forward = slowly
encoder.encode(make_sentences(), out=sys.argv[2])
"""


def PLAN(budget: int) -> extraction.Plan:
    """Windows of few sentences, after each of which a stopped run can go on."""
    return extraction.Plan(budget, window=20)


def make_sentences(seed: int = 0, n: int = 160) -> Sentences:
    rng = np.random.default_rng(seed)
    words = ["the", "cat", "harbour", "und", "wind", "château", "time", "\u200b", "ferry"]
    return Sentences.of([[words[i] for i in rng.integers(0, 9, rng.integers(0, 30))] for _ in range(n)], "en")


@pytest.fixture
def encoder(tiny_folder, monkeypatch):
    monkeypatch.setattr("calque.encoders.trainable.Plan", PLAN)
    encoder = load_encoder(tiny_folder, precision="highest", device="cpu")
    encoder.budget = 64
    return encoder


pytestmark = pytest.mark.filterwarnings("ignore::calque.encoders.extraction.UncoveredWordsWarning")


def same(a: Embeddings, b: Embeddings) -> bool:
    covered = np.array_equal(a.covered, b.covered) if a.covered is not None else b.covered is None
    return np.array_equal(a.data, b.data) and np.array_equal(a.offsets, b.offsets) and covered


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_holds_what_memory_would(encoder, tmp_path):
    sentences = make_sentences()
    expected = encoder.encode(sentences)
    found = encoder.encode(sentences, out=tmp_path / "vectors.safetensors")
    assert isinstance(found.data, np.memmap)
    assert same(found, expected)
    assert same(Embeddings.open(tmp_path / "vectors.safetensors"), expected)
    assert leftovers(tmp_path) == ["vectors.safetensors"]
    from safetensors.numpy import load_file

    assert np.array_equal(load_file(tmp_path / "vectors.safetensors")["data"], expected.data)


def test_windows_give_the_same_vectors(encoder, monkeypatch):
    sentences = make_sentences()
    expected = encoder.encode(sentences)
    for window in (9, 159, 160):
        small = extraction.Plan(encoder.budget, window=window)
        monkeypatch.setattr("calque.encoders.trainable.Plan", lambda *args, small=small, **kwargs: small)
        found = encoder.encode(sentences)
        assert np.allclose(found.data, expected.data, rtol=0, atol=1e-5)
        assert np.array_equal(found.covered, expected.covered)


def test_several_layers_from_one_pass(encoder, tmp_path, monkeypatch):
    sentences = make_sentences(n=40)
    alone = {layer: encoder.encode_layers(sentences, [layer])[layer] for layer in (0, 2, 3)}
    calls = []
    real = encoder.model.embeddings.forward
    monkeypatch.setattr(encoder.model.embeddings, "forward", lambda *a, **k: calls.append(1) or real(*a, **k))
    encoder.encode_layers(sentences, [3])
    once = len(calls)
    found = encoder.encode_layers(sentences, [2, -1, 0, 3], out=tmp_path / "vectors")
    assert len(calls) == 2 * once
    assert list(found) == [2, -1, 0, 3]
    assert leftovers(tmp_path / "vectors") == [f"layer-0{n}.safetensors" for n in (0, 2, 3)]
    for layer, expected in {2: alone[2], -1: alone[3], 0: alone[0], 3: alone[3]}.items():
        assert np.allclose(found[layer].data, expected.data, rtol=0, atol=1e-5)


def test_float16_store(encoder, tmp_path):
    sentences = make_sentences(n=30)
    full = encoder.encode(sentences)
    half = encoder.encode(sentences, out=tmp_path / "half", dtype="float16")
    assert half.data.dtype == np.float16
    assert np.array_equal(half.data, full.data.astype(np.float16))


def test_a_finished_extraction_is_opened_not_repeated(encoder, tmp_path, monkeypatch):
    sentences = make_sentences(n=30)
    path = tmp_path / "vectors"
    expected = encoder.encode(sentences)
    encoder.encode(sentences, out=path)
    stamp = path.stat().st_mtime_ns
    monkeypatch.setattr(encoder.model.embeddings, "forward", lambda *a, **k: 1 / 0)
    assert same(encoder.encode(sentences, out=path), expected)
    assert path.stat().st_mtime_ns == stamp
    for other in (make_sentences(1, n=30), sentences[:29]):  # other text: not that result
        with pytest.raises(ZeroDivisionError):
            encoder.encode(other, out=path)
    with pytest.raises(ZeroDivisionError):
        encoder.encode(sentences, out=path, dtype="float16")
    encoder.pooling = "first"
    with pytest.raises(ZeroDivisionError):
        encoder.encode(sentences, out=path)


def run_and_kill(folder, out, threads: int, after: int) -> None:
    """Encode in a process of its own, and kill it when it has begun so many batches."""
    with tempfile.TemporaryDirectory() as printed:
        program = forked.start("-c", JOB, folder, out, threads, Path(__file__).parent, folder=Path(printed))
        while program.runs and program.printed.count("\n") < after:
            time.sleep(0.001)
        program.kill()
        ended = program.wait()
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def test_killed_and_continued(encoder, tiny_folder, tmp_path, monkeypatch):
    real, calls = encoder.model.embeddings.forward, []
    monkeypatch.setattr(encoder.model.embeddings, "forward", lambda *a, **k: calls.append(1) or real(*a, **k))
    expected, batches = encoder.encode(make_sentences()), len(calls)
    out = tmp_path / "vectors"
    run_and_kill(tiny_folder, out, threads=2, after=25)
    assert leftovers(tmp_path) == [".vectors.calque-journal", ".vectors.calque-part"]
    done = json.loads((tmp_path / ".vectors.calque-journal").read_text())["windows"]
    assert 1 <= done < 8
    partial = map_arrays(tmp_path / ".vectors.calque-part")[0]["data"]
    assert not partial.any(axis=1)[: len(expected.covered)][expected.covered].all()
    calls.clear()
    assert same(encoder.encode(make_sentences(), out=out), expected)
    assert 0 < len(calls) < batches
    assert leftovers(tmp_path) == ["vectors"]


def stopped(encoder, sentences, out, monkeypatch, after: int = 5):
    """Stop an extraction after some batches by an exception."""
    real, calls = encoder.model.embeddings.forward, []

    def forward(*args, **kwargs):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(encoder.model.embeddings, "forward", forward)
        with pytest.raises(KeyboardInterrupt):
            encoder.encode(sentences, out=out)


@pytest.mark.parametrize("damage", ["another job", "journal", "partial", "empty journal", "no partial"])
def test_leftovers_of_another_job_and_damaged_ones_mean_a_new_start(encoder, tmp_path, monkeypatch, damage):
    out, journal, partial = (tmp_path / name for name in ("vectors", ".vectors.calque-journal", ".vectors.calque-part"))
    stopped(encoder, make_sentences(), out, monkeypatch)
    assert leftovers(tmp_path) == [journal.name, partial.name]
    if damage == "no partial":
        partial.unlink()
    elif damage == "partial":
        partial.write_bytes(b"\x00" * 50)
    elif damage != "another job":
        journal.write_text("nonsense\n" if damage == "journal" else "")
    text = make_sentences(damage == "another job")
    assert same(encoder.encode(text, out=out), encoder.encode(text))
    assert leftovers(tmp_path) == ["vectors"]


def test_an_older_file_stays_until_the_new_one_is_whole(encoder, tmp_path, monkeypatch):
    out = tmp_path / "vectors"
    first = encoder.encode(make_sentences(1), out=out)
    stopped(encoder, make_sentences(), out, monkeypatch)
    assert same(Embeddings.open(out), first)


def test_no_words_at_all(encoder, tmp_path):
    for number, nothing in enumerate(([], [[], []], [["\u200b"]])):
        found = encoder.encode(nothing, out=tmp_path / str(number))
        assert (len(found), found.n_words) == (len(nothing), sum(map(len, nothing)))


def test_a_file_that_cannot_be_written(encoder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        encoder.encode([["a"]], out=tmp_path / "file" / "vectors")
    with pytest.raises(InputError, match="is a folder"):
        encoder.encode([["a"]], out=tmp_path)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve room")
def test_a_full_disk_is_met_before_the_work(encoder, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match="vectors: no space left on the disk"):
        encoder.encode([["a"]], out=tmp_path / "vectors")
    assert not list(tmp_path.iterdir())


def test_memory_does_not_grow_with_the_text(encoder, tmp_path):
    """What is held beside the files is one window."""
    import tracemalloc

    peaks = []
    plan = extraction.Plan(encoder.budget, window=64)
    for n in (300, 1200):
        sentences = list(make_sentences(n=n))
        encoder.subwords.split(sentences)
        tracemalloc.start()
        extraction.extract(
            sentences, split=encoder.split, vectors=lambda b: {1: torch.ones(len(b.starts), 64)}, layers=[1], dim=64,
            plan=plan, key="", out={1: tmp_path / f"{n}"},
        )  # fmt: skip
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 200_000  # numbers of sentences; the vectors are 3 MB more
