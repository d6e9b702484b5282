"""Text as Parquet and JSON lines, and a cluster's work done in this process."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import asdict

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from calque.encoders import load_encoder
from calque.encoders.base import Encoder
from calque.errors import CalqueError
from calque.integrations.ray.cluster import Actor

WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]


def lines(n, seed=0, longest=7):
    """Sentences of a few words."""
    rng = np.random.default_rng(seed)
    return [" ".join(WORDS[k] for k in rng.integers(0, 10, rng.integers(1, longest))) for _ in range(n)]


def write_parquet(path, text, group=None, **columns):
    """A file with the columns `id`, `text` and others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({"id": range(len(text)), "text": text, **columns}), path, row_group_size=group)
    return path


def write_jsonl(path, text, **columns):
    """The same as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = zip(text, *columns.values(), strict=True)
    path.write_text("".join(json.dumps(dict(zip(("text", *columns), row, strict=True))) + "\n" for row in rows))
    return path


def vectors_of(path):
    """The vectors of a result, one below the other, float32 `[n_words, dim]`."""
    if path.suffix == ".parquet":
        rows = parquet.read_table(path)["vectors"].to_pylist()
    else:
        rows = [json.loads(line)["vectors"] for line in path.read_text().splitlines()]
    return np.array([vector for row in rows for vector in row], dtype=np.float32)


def run_here(work, shards, cluster=None, **_):
    """What `cluster.run` does, without a cluster."""
    actor, total = Actor(work), Counter()
    for shard in shards:
        answer = actor({"shard": [json.dumps(asdict(shard))]})
        if answer["error"][0]:
            raise CalqueError(answer["error"][0])
        total.update(json.loads(answer["counts"][0]))
    return total


class Waiting(Encoder):
    """The encoder of the folder CALQUE_TEST_ENCODER, which encodes once, and again when there is the file CALQUE_TEST_GATE."""

    def __init__(self):
        self._encoder = load_encoder(os.environ["CALQUE_TEST_ENCODER"])
        self.dim, self.name, self._calls = self._encoder.dim, "waiting", 0

    @property
    def fingerprint(self):
        return self._encoder.fingerprint

    def encode(self, sentences, *, progress=False, out=None):
        self._calls += 1
        while self._calls > 1 and not os.path.exists(os.environ["CALQUE_TEST_GATE"]):
            time.sleep(0.05)
        return self._encoder.encode(sentences)
