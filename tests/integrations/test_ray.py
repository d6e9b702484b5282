"""On a cluster whose nodes are processes of this machine: what one machine computes, also where nodes join and die."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from calque.encoders import load_encoder
from calque.runs.anchors import make_anchors, open_folder
from calque.text import Sentences
from command import fails, works
from shard_text import lines, vectors_of, write_jsonl, write_parquet

pytest.importorskip("ray", reason="Ray is not installed: pip install 'calque-align[ray]'")
PARTS = 4
HELPERS = str(Path(__file__).parents[1] / "helpers")


@pytest.fixture(scope="module")
def nodes(tiny_folder, tmp_path_factory):
    """A head without cores, and a node with one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([HELPERS, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("CALQUE_TEST_ENCODER", str(tiny_folder))
        patch.setenv("CALQUE_TEST_GATE", str(gate := tmp_path_factory.mktemp("gate") / "open"))
        patch.setenv("RAY_worker_niceness", "0")  # beside other work it would wait for minutes
        # A node is started by another thread than the main one, which alone may handle signals.
        patch.setattr("ray._private.utils.set_sigterm_handler", lambda handler: None)
        from ray.cluster_utils import Cluster

        lean = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **lean})
        cluster.first, cluster.gate = cluster.add_node(num_cpus=1), gate
        cluster.ended = threading.Event()
        yield cluster
        cluster.ended.set()
        cluster.shutdown()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for part in range(PARTS):
        (write_parquet if part else write_jsonl)(folder / f"{part}.{'parquet' if part else 'jsonl'}", lines(9, part))
    return folder


def test_a_node_joins_and_one_dies_over_a_shard(capfd, nodes, text, tiny_encoder, tmp_path):
    out, seen = tmp_path / "out", []

    def disturb():
        while not list(out.glob("[0-9].*[tl]")):
            time.sleep(0.02)
        nodes.add_node(num_cpus=1)
        nodes.remove_node(nodes.first, allow_graceful=False)
        seen.extend(out.glob("[0-9].*[tl]"))
        nodes.gate.touch()
        nodes.ended.wait()  # what a thread has started dies with it

    threading.Thread(target=disturb, daemon=True).start()
    command = ["encode", "shard_text:Waiting", text, "--lang", "en", "--out", out, "--engine", "ray", "-q"]
    works(capfd, *command, "--address", nodes.address)
    assert len(seen) == 1  # done by the first node, which waited over its second shard
    assert sorted(path.stem for path in out.glob("[0-9].*")) == [str(part) for part in range(PARTS)]
    for path in out.glob("[0-9].*"):
        part = Sentences.of([line.split() for line in lines(9, int(path.stem))], "en")
        np.testing.assert_array_equal(vectors_of(path), np.asarray(tiny_encoder.encode(part).data))


def test_anchors_and_a_progress_bar(capfd, nodes, text, tiny_folder, tmp_path):
    for part in range(PARTS):
        (tmp_path / f"{part}.txt").write_text("\n".join(lines(9, part)))
    texts = [str(tmp_path / f"{part}.txt") for part in range(PARTS)]
    one = make_anchors(texts, lang="en", encoder=str(tiny_folder), layers=[1], out=tmp_path / "one")[1]
    command = ["anchors", text, "--lang", "en", "--encoder", tiny_folder, "--layers", "1", "--engine", "ray"]
    _, said = works(capfd, *command, "--out", tmp_path / "many", "--address", nodes.address)
    many = open_folder(str(tmp_path / "many"), lang="en", encoder=load_encoder(tiny_folder))[1]
    assert many.words == one.words
    for name in ("vectors", "variances", "norms", "counts"):
        np.testing.assert_allclose(getattr(many, name), getattr(one, name), rtol=1e-6)
    assert f"anchors: 100%|██████████| {PARTS}/{PARTS}" in said
    assert [line for line in said.split("\n") if "ray" in line.lower()] == []


def test_an_address_where_nobody_answers(capfd, text, tiny_folder, tmp_path):
    command = ["encode", tiny_folder, text, "--lang", "en", "--out", tmp_path / "out", "--engine", "ray"]
    said = fails(capfd, *command, "--address", "127.0.0.1:1")
    assert said.startswith("calque: error: --address 127.0.0.1:1: nobody answers (ConnectionRefusedError")
    assert "expected HOST:PORT" in fails(capfd, *command, "--address", "nowhere")
