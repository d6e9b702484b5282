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
from calque.explore.collection import Collection, Gatherer
from calque.explore.explorer import Explorer
from calque.explore.sources import NamedEncoder
from calque.explore.vectors import Neighbourhoods, WordVectors
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


def text(n_words: int, seed: int) -> Collection:
    """Sentences of 6 to 24 words of a Zipfian vocabulary, as many in each language."""
    rng = np.random.default_rng(seed)
    gatherer = Gatherer()
    for lang in LANGUAGES:
        words = np.minimum(rng.zipf(1.3, n_words // len(LANGUAGES)), 20_000)
        cuts = np.cumsum(rng.integers(6, 25, len(words) // 6))
        sentences = np.split(words, cuts[cuts < len(words)])
        gatherer.add(Sentence(tuple(f"{lang}{k}" for k in sentence), lang) for sentence in sentences)
    return gatherer.collection()


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
    parser.add_argument(
        "--neighbourhoods", action="store_true", help="compute them, which takes minutes, and say how long"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    collection = text(options.words, options.seed)
    for dim in options.dims:
        encoder = Random(dim, options.seed)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / f"{collection.fingerprint[:12]}-{encoder.fingerprint[:12]}"
            place.mkdir()
            sums = Neighbourhoods() if options.neighbourhoods else blank
            start = time.perf_counter()
            WordVectors.build(place / "own.safetensors", collection, encoder.encode(collection.sentences), sums)  # type: ignore[arg-type]
            prepared = time.perf_counter() - start
            measure(Explorer(collection, [NamedEncoder("random", encoder, True)], Path(folder)), options)
        if options.neighbourhoods:
            print(f"  its neighbourhoods took {prepared:.0f} s")


def blank(data: np.ndarray, covered: np.ndarray | None, collection: Collection) -> np.ndarray:
    """In place of neighbourhoods: an answer takes as long whatever they are."""
    return np.zeros((len(collection.languages), len(data)), dtype=np.float32)


def measure(explorer: Explorer, options: argparse.Namespace) -> None:
    collection, app = explorer.collection, make_app(explorer)
    data = explorer.views["random"].layer("own").embeddings.data
    rng = np.random.default_rng(options.seed)
    times: dict[str, list[tuple[float, float]]] = {"product": [], "answer": []}
    for sentence in rng.integers(0, len(collection), options.rounds + 3):
        word = int(rng.integers(0, len(collection.sentences[sentence])))
        vector = np.array(data[collection.offsets[sentence] + word])
        start = time.perf_counter(), time.process_time()
        data @ vector
        middle = time.perf_counter(), time.process_time()
        body = request(app, "/api/neighbours", encoder="random", id=int(sentence), word=word, n=10)
        end = time.perf_counter(), time.process_time()
        assert json.loads(body)["covered"]
        times["product"].append((middle[0] - start[0], middle[1] - start[1]))
        times["answer"].append((end[0] - middle[0], end[1] - middle[1]))
    (product, _), (answer, processor) = (
        [1000 * statistics.median(column) for column in zip(*times[name][3:], strict=True)] for name in times
    )
    slow = 1000 * float(np.quantile([wall for wall, _ in times["answer"][3:]], 0.95))
    print(
        f"explore, {collection.n_words:,} words × {data.shape[1]} in {len(LANGUAGES)} languages, {options.threads} threads: an "
        f"answer takes {answer / product:.1f} times one product with all vectors ({product:.1f} ms); median of "
        f"{options.rounds} {answer:.1f} ms (at most 100 asked), 95% within {slow:.1f} ms, {processor:.1f} ms of processor time"
    )


if __name__ == "__main__":
    main()
