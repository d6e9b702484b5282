"""Damaged files: every reader returns a normal result or raises an error of one line (`dev/fuzz_readers.py`)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import forked
from calque.encoders import load_encoder
from calque.errors import CalqueError, InputError
from calque.text import ParallelCorpus

SCRIPT = Path(__file__).parents[2] / "dev" / "fuzz_readers.py"


@pytest.mark.skipif(not hasattr(os, "fork") or not SCRIPT.exists(), reason="needs fork and a checkout")
def test_readers_survive_damaged_files():
    """Run few inputs; `python dev/fuzz_readers.py` gives each reader 1,000."""
    done = forked.run(SCRIPT, "--inputs", 15)
    assert len(done.stdout.splitlines()) > 25, done.stderr[-2000:]
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "no failure"), done.stdout


@pytest.mark.skipif(not hasattr(os, "fork") or not SCRIPT.exists(), reason="needs fork and a checkout")
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

    outcomes = list(fuzz.results("made up", fuzz.Reader({"t.txt": "valid"}, unready), list(range(30)), tmp_path))
    assert len(outcomes) == 30
    failed = " ".join(why for _, what, why in outcomes if what == "failed")
    assert "not one plain line" in failed
    assert "KeyError" in failed
    assert "SIGKILL" in failed
    assert {what for _, what, _ in outcomes} <= {"failed", "accepted"}


def test_absurd_sizes_are_refused_before_the_model_is_built(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "e")
    config = json.loads((tmp_path / "e" / "config.json").read_text())
    for change in ({"num_hidden_layers": 100_000}, {"hidden_size": 10**9}, {"vocab_size": 10**12}, {"vocab_size": -1},
                   {"num_hidden_layers": 900, "hidden_size": 60_000}, {"num_hidden_layers": "six"}):  # fmt: skip
        (tmp_path / "e" / "config.json").write_text(json.dumps(config | change))
        started = time.process_time()
        with pytest.raises(InputError, match=r"config\.json|not an encoder") as caught:
            load_encoder(tmp_path / "e")
        assert time.process_time() - started < 5
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [
    b"{", b"[]", b'{"kind": "later"}', b'{"kind": "huggingface", "layer": 1e400}', b"[" * 100_000, b"\xff\xfe",
    b'{"kind": "mapped", "maps": 3}', b'{"kind": "per-language", "langs": ["en", "en"]}',
])  # fmt: skip
def test_a_damaged_calque_json_raises_an_error_of_one_line(tiny_folder, tmp_path, content):
    shutil.copytree(tiny_folder, tmp_path / "e")
    (tmp_path / "e" / "calque.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_encoder(tmp_path / "e")
    assert "\n" not in str(caught.value)


def test_weights_that_are_not_finite_and_a_foreign_tokenizer_are_refused(tiny_folder, tmp_path):
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny_folder, tmp_path / "e")
    weights = load_file(tmp_path / "e" / "model.safetensors")
    whole = dict(weights)
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name] = torch.full_like(weights[name], torch.nan)
    save_file(weights, tmp_path / "e" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CalqueError, match="not finite"):
        load_encoder(tmp_path / "e")
    whole[name] = whole[name][:60].clone()
    save_file(whole, tmp_path / "e" / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((tmp_path / "e" / "config.json").read_text())
    config["vocab_size"] = 60
    (tmp_path / "e" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CalqueError, match="use the tokenizer of this model"):
        load_encoder(tmp_path / "e").encode([["ferry", "harbour", "wind", "niño", "château", "गया", "時", "नाव", "ท่า"]])


def test_a_damaged_arrow_file_does_not_end_the_process(tmp_path):
    corpus = ParallelCorpus.of([["the", "cat"]] * 4, [["die", "Katze"]] * 4, ("en", "de"))
    corpus.save(tmp_path / "t.arrow")
    data = (tmp_path / "t.arrow").read_bytes()
    offsets = pa.array([0, 3, 6, 9, 12, 15, 18, 21, 24], pa.int32()).buffers()[1].to_pybytes()[:36]
    assert offsets in data
    wild = np.array([0, 3, 6, 1 << 30, 12, 15, 18, 21, 24], np.int32).tobytes()
    (tmp_path / "t.arrow").write_bytes(data.replace(offsets, wild, 1))
    with pytest.raises(InputError, match="not a saved parallel corpus"):
        ParallelCorpus.open(tmp_path / "t.arrow")
    (tmp_path / "t.arrow").write_bytes(data.replace(b"Katze", b"Ka\xffze", 1))
    with pytest.raises(InputError, match="not a saved parallel corpus"):
        ParallelCorpus.open(tmp_path / "t.arrow")


def test_damaged_tables_of_a_word_aligner_fail_their_checksum(tmp_path):
    from calque.wordalign import WordAligner

    corpus = ParallelCorpus.of(
        [["the", "cat"], ["a", "cat"]] * 5, [["die", "Katze"], ["eine", "Katze"]] * 5, ("en", "de")
    )
    path = tmp_path / "t"
    WordAligner.train(corpus, model="hmm").save(path)
    assert len(WordAligner.open(path).align(corpus))
    data = bytearray(path.read_bytes())
    for place in (len(data) - 1, len(data) - 100, data.index(b"ibm1_iterations") + 3):
        changed = bytes(data[:place]) + bytes([data[place] ^ 2]) + bytes(data[place + 1 :])
        path.write_bytes(changed)
        with pytest.raises(InputError, match="not a word aligner saved by calque"):
            WordAligner.open(path)


def test_reading_a_released_map_allocates_little_memory(tmp_path):
    """Check memory, because Python allocates the requested size before it reads a file."""
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


def test_a_word_count_of_5000_digits_is_refused(tmp_path):
    """Check a header with 5,000 digits; Python refuses to parse integers of more than 4,300."""
    (tmp_path / "v.vec").write_bytes(b"9" * 5000 + b" 3\na 1 2 3\n")
    with pytest.raises(InputError, match="v.vec"):
        load_encoder(tmp_path / "v.vec")


def test_a_lone_surrogate_in_results_is_reported_with_its_line(tmp_path):
    from calque.report.reading import read_results
    from report_results import line

    good = json.dumps(line("retrieval", ("en", "de"), "accuracy", 0.5, 0.1))
    path = tmp_path / "results.jsonl"
    path.write_text(good + "\n" + good.replace('"accuracy"', '"accuracy\\ud800"') + "\n")
    with pytest.raises(InputError, match=r"results\.jsonl line 2: is not JSON"):
        read_results([path])


def test_a_line_of_a_thousand_columns_is_refused_as_sentence_pair(tmp_path):
    from calque.corpora import read_parallel

    path = tmp_path / "t.tsv"
    path.write_text("the cat\tdie Katze\tx\n" + "a\t" * 1000 + "b\n")
    with pytest.raises(InputError, match="t.tsv line 2: more than 100 columns"):
        read_parallel(path, langs=("en", "de"))
    assert read_parallel(path, langs=("en", "de"), on_error="skip").skipped == {"too many columns": 1}


def test_messages_are_one_line_of_bounded_length():
    assert str(InputError("a\n  b\r\n\x00c", path="p")) == "p: a b c"
    assert len(str(CalqueError("9" * 100_000))) < 1300
    error = InputError("x" * 5000 + " end", path="p", line=3)
    assert str(error).startswith("p line 3: xxx")
    assert str(error).endswith(" end")


# -- faults found by long runs of the fuzzer --------------------------------------------------------------------------


def test_a_tokenizer_without_unk_raises_an_error_of_one_line(tiny_folder, tmp_path):
    """Check a tokenizer without [UNK], which raises a bare Exception when it is first used."""
    shutil.copytree(tiny_folder, tmp_path / "encoder")
    path = tmp_path / "encoder" / "tokenizer.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    del about["model"]["vocab"]["[UNK]"]
    about["model"]["vocab"] = {word: n for word, n in about["model"]["vocab"].items() if not word.startswith("a")}
    about["added_tokens"] = [token for token in about["added_tokens"] if token["content"] != "[UNK]"]
    path.write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(InputError, match="do not work together|cannot be used"):
        load_encoder(tmp_path / "encoder")


def test_static_words_without_vectors_raise_an_error_of_one_line(tmp_path):
    from calque.encoders.static import WORDS_FILE

    (tmp_path / "en.vec").write_text("2 3\nhouse 1 0 0\ncat 0 1 0\n")
    load_encoder(f"en={tmp_path / 'en.vec'}").save(tmp_path / "static")
    words = tmp_path / "static" / WORDS_FILE
    words.write_text(json.dumps({"en": ["house", "cat", "dog"]}))
    with pytest.raises(InputError, match="3 words in en, but 2 vectors"):
        load_encoder(tmp_path / "static")
