"""What a shard costs an actor of a cluster, from the text's file to the result's, on one core: sentences a second.

Reading, splitting, the encoder, and writing Parquet are timed together, as processor time, without Ray: an actor does
nothing else, and moves nothing between nodes.

    python -m benchmarks.shards [--encoder mini] [--layers 12 --dim 768]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import torch
from pyarrow import parquet

from benchmarks.encode import made_up
from benchmarks.stand_in import stand_in_encoder
from calque.integrations.ray.anchors import Summing
from calque.integrations.ray.cluster import Cluster
from calque.integrations.ray.encoding import Encoding, Named, Reading
from calque.integrations.ray.shards import Shard


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--layers", type=int, help="instead of --encoder: random weights, so many layers")
    parser.add_argument("--dim", type=int, default=768, help="of that many dimensions")
    parser.add_argument("--sentences", type=int, default=4_000)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.layers:
            options.encoder = str(folder / "encoder")
            stand_in_encoder(layers=options.layers, dim=options.dim).save(options.encoder)
        text = [" ".join(words) for words in made_up(options.sentences, 0)]
        parquet.write_table(pa.table({"text": text}), folder / "text.parquet")
        shard = Shard(str(folder / "text.parquet"), 0, options.sentences, "text")
        named, encoder = Named.of(options.encoder, {}, Cluster())
        reading = Reading(("text",), "en")
        work = {"encode": Encoding(named, reading, name), "anchors": Summing(named, reading, name)}
        print(f"{encoder.name}, {encoder.dim} dimensions, {options.sentences:,} sentences of {_words(text):.1f} words:")
        for verb, kind in work.items():
            do = kind.open()
            do(replace(shard, rows=min(256, options.sentences), name="warm"))
            started = time.process_time()
            report = do(shard)
            seconds = time.process_time() - started
            rate = report.sentences / seconds
            size = (folder / kind.target(shard)).stat().st_size
            print(
                f"  {verb}: {rate:,.0f} sentences a second of a core, {1e8 / rate / 3600:,.0f} core hours for 100 million; "
                f"{size / report.sentences:,.0f} bytes a sentence"
            )


def _words(text: list[str]) -> float:
    return sum(len(line.split()) for line in text) / len(text)


if __name__ == "__main__":
    main()
