"""The explorer's answer for a word, over HTTP, against the one product that it cannot do without, in turns within one run."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import torch

from calque.encoders.base import Encoder
from calque.explore.app import make_app
from calque.explore.explorer import Explorer
from calque.explore.library import Gatherer, Library
from calque.explore.sources import Source
from calque.text import Sentence
from calque.vectors import Embeddings

LANGUAGES = ("en", "de", "es", "fr", "zh", "bg", "tr", "ru")


class Random(Encoder):
    """Vectors like an encoder's: off-centre, of decaying spectrum."""

    def __init__(self, dim: int, seed: int):
        self.dim, self.name, self.seed = dim, "random", seed

    @property
    def fingerprint(self) -> str:
        return f"random {self.dim} {self.seed}"

    def encode(self, sentences, *, progress=False, out=None) -> Embeddings:
        rng = np.random.default_rng(self.seed)
        lengths = [len(sentence) for sentence in sentences]
        spectrum = (np.arange(self.dim, dtype=np.float32) + 1) ** -0.5
        data = rng.standard_normal((sum(lengths), self.dim), dtype=np.float32)
        data += 0.5 * rng.standard_normal(self.dim, dtype=np.float32)
        return Embeddings(data * spectrum, np.cumsum([0, *lengths]))

    def save(self, folder) -> None:
        raise OSError("nothing to save")


def text(n_words: int, seed: int) -> Library:
    """Sentences of 6 to 24 words of a Zipfian vocabulary, as many in each language."""
    rng = np.random.default_rng(seed)
    gatherer = Gatherer()
    for lang in LANGUAGES:
        words = np.minimum(rng.zipf(1.3, n_words // len(LANGUAGES)), 20_000)
        cuts = np.cumsum(rng.integers(6, 25, len(words) // 6))
        sentences = np.split(words, cuts[cuts < len(words)])
        gatherer.add(Sentence(tuple(f"{lang}{k}" for k in sentence), lang) for sentence in sentences)
    return gatherer.library()


def request(app, path: str, **query) -> bytes:
    sent = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": urlencode(query).encode(), "root_path": "",
        "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return b"".join(message.get("body", b"") for message in sent[1:])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--dims", type=int, nargs="*", default=[128, 768])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    library = text(options.words, options.seed)
    for dim in options.dims:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            explorer = Explorer(library, [Source("random", Random(dim, options.seed), True)], Path(folder))
            prepared = time.perf_counter() - start
            app = make_app(explorer)
            data = explorer.views["random"].layers.get("own").embeddings.data
            rng = np.random.default_rng(options.seed)
            times: dict[str, list[float]] = {"product": [], "answer": []}
            for sentence in rng.integers(0, len(library), options.rounds + 3):
                word = int(rng.integers(0, len(library.sentences[sentence])))
                vector = np.array(data[library.offsets[sentence] + word])
                start = time.perf_counter()
                data @ vector
                middle = time.perf_counter()
                body = request(app, "/api/neighbours", encoder="random", id=int(sentence), word=word, n=10)
                end = time.perf_counter()
                assert json.loads(body)["covered"]
                times["product"].append(middle - start)
                times["answer"].append(end - middle)
            product, answer = (1000 * statistics.median(times[name][3:]) for name in ("product", "answer"))
            slow = 1000 * float(np.quantile(times["answer"][3:], 0.95))
        print(
            f"explore, {library.n_words:,} words × {dim} in {len(LANGUAGES)} languages, {options.threads} threads: an answer "
            f"takes {answer / product:.2f} times one product with all vectors; median of {options.rounds} "
            f"{answer:.0f} ms (95% within {slow:.0f} ms, below 100 ms asked), product {product:.0f} ms; "
            f"neighbourhoods computed in {prepared:.0f} s"
        )


if __name__ == "__main__":
    main()
