"""Contextual word retrieval by every method side by side: the tables of docs/results.md.

Needs a folder with `train.en-XX.tsv[.gz]` and `dev.en-XX.tsv`, and an encoder. Prints one JSON line for each figure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from calque.alignment import METHODS, methods_for
from calque.alignment.maps import LinkedMaps
from calque.corpora import read_parallel
from calque.encoders import load_encoder
from calque.encoders.static import SentencePart, load_static
from calque.tasks import WordRetrieval
from calque.wordalign import align_words


def aligned(method: str, base, corpora, pairs, vectors: str | None, options: dict):
    """The encoder after `method`, and the seconds it took."""
    started = time.perf_counter()
    if method == "base":
        found = base
    elif method == "static":
        langs = ["en", *[corpus.langs[1] for corpus in corpora]]
        static = load_static({lang: f"{vectors}/{lang}.bin" for lang in langs})
        found = LinkedMaps("rotation", towards="en").align(static.replace(sentence=SentencePart()), corpora, pairs)
    else:
        row = METHODS[method]
        found = METHODS.load(method)(towards="en", **row.settings, **options).align(base, corpora, pairs)
    return found, time.perf_counter() - started


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder")
    parser.add_argument("--langs", nargs="+", required=True, help="the languages beside English")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["base", "rotation", "finetune", "contrastive"],
        choices=["base", *methods_for("parallel"), "static"],
    )
    parser.add_argument("--together", action="store_true", help="one model for all languages")
    parser.add_argument("--limit", type=int, help="training pairs of each language")
    parser.add_argument("--vectors", help="folder with fastText XX.bin, for the static baseline")
    parser.add_argument("--options", type=json.loads, default={}, help='JSON for the method: {"epochs": 2}')
    parser.add_argument("--non-contextual", action="store_true", help="also measure that")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    base = load_encoder(options.encoder)
    texts = {}
    for lang in options.langs:
        names = [options.data / f"train.en-{lang}.tsv{end}" for end in ("", ".gz")]
        path = next(name for name in names if name.exists())
        train = read_parallel(path, langs=("en", lang), limit=options.limit, on_error="skip")
        test = read_parallel(options.data / f"dev.en-{lang}.tsv", langs=("en", lang), on_error="skip")
        started = time.perf_counter()
        links = align_words(test + train).one_to_one()
        print(f"en-{lang}: {len(train):,} pairs linked in {time.perf_counter() - started:.1f} s", file=sys.stderr)
        texts[lang] = (train, links.slice(len(test), len(test) + len(train)), test, links.slice(0, len(test)))
    groups = [options.langs] if options.together else [[lang] for lang in options.langs]
    for group in groups:
        corpora, pairs = [texts[lang][0] for lang in group], [texts[lang][1] for lang in group]
        for method in options.methods:
            encoder, seconds = aligned(method, base, corpora, pairs, options.vectors, options.options)
            for lang in group:
                train, train_pairs, test, test_pairs = texts[lang]
                for contextual in (True, False) if options.non_contextual else (True,):
                    task = WordRetrieval(
                        test, test_pairs, train=train, train_pairs=train_pairs, contextual=contextual, data=f"en-{lang}"
                    )
                    for score in task.evaluate(encoder):
                        if score.metric.count(".") == 1:  # the mean of both directions
                            print(json.dumps({
                                "method": method, "lang": lang, "together": options.together, "pairs": len(train),
                                "contextual": contextual, "metric": score.metric, "value": round(score.value, 4),
                                "low": round(score.low, 4), "high": round(score.high, 4), "n": score.n,
                                "seconds": round(seconds, 1), "options": options.options,
                            }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
