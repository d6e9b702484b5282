"""Score every layer and pooling of encoders by word retrieval and by alignment error rate.

    python -m benchmarks.reading e5-small --text en-de=dev.en-de.tsv en-tr=dev.en-tr.tsv --gold en-es=xlwa.dev.en-es.tsv
    python -m benchmarks.reading en=marian-en,fr=marian-fr --text en-fr=train.en-fr.tsv.gz --limit 3000 --rotate

Word retrieval is measured as by `--layer auto` (`calque.choose_reading`): by CSLS, over linked words of different spelling that
are not linked in the rest of the text. Separate encoders for two languages have unrelated spaces, so --rotate fits a rotation of
mean-centred vectors for each layer and pooling on the links of the rest of the text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.aligners import error_rate
from calque.analyses.reading import retrieval_counts, sampled_pairs
from calque.corpora import gold_links, read_parallel
from calque.corpora.languages import pair_and_path
from calque.encoders import load_encoder
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.per_language import PerLanguage
from calque.maps import NormalizedRotation
from calque.nn.pooling import POOLINGS
from calque.pairs import WordPairs
from calque.tasks.overlap import unseen_pairs
from calque.text import ParallelCorpus
from calque.vectors import Embeddings
from calque.wordalign import align_words
from calque.wordalign.similarity import links_from_embeddings

#: layer, pooling, and the word vectors of both sides of a text
Vectors = tuple[int, str, Embeddings, Embeddings]


def sides_of(encoder: Any, langs: tuple[str, str]) -> list[HuggingFaceEncoder]:
    """Return the encoder of each of two languages."""
    if isinstance(encoder, PerLanguage):
        return [encoder.encoders[lang] for lang in langs]  # type: ignore[misc]
    return [encoder, encoder]


def readings(encoder: Any, corpus: ParallelCorpus) -> Iterator[Vectors]:
    """Yield the word vectors of both sides of a text at every layer and pooling."""
    of_source, of_target = sides_of(encoder, corpus.langs)
    layers = range(min(of_source.n_layers, of_target.n_layers) + 1)
    both = zip(
        of_source.encode_readings(corpus.source, layers),
        of_target.encode_readings(corpus.target, layers),
        strict=True,
    )
    for (layer, pooling, source), (_, _, target) in both:
        yield layer, pooling, source, target


def rotated(source: Embeddings, target: Embeddings, links: WordPairs, n: int) -> Embeddings:
    """Return the target vectors, rotated onto the source vectors by the links of all but the first
    `n` sentence pairs.
    """
    chosen = links.sentence >= n
    sentence = links.sentence[chosen]
    x = target.data[target.rows(sentence, links.target[chosen])]
    y = source.data[source.rows(sentence, links.source[chosen])]
    fitted = NormalizedRotation().fit(x, y)
    return Embeddings(fitted.transform(target.data), target.offsets, target.covered)


def retrieval(encoder: Any, corpus: ParallelCorpus, options: argparse.Namespace) -> Iterator[dict]:
    """Yield the accuracy of word retrieval over unseen pairs at every layer and pooling."""
    links = align_words(corpus, model=options.model).one_to_one()
    rows = sampled_pairs(corpus, links, options.sentences)
    rest = np.setdiff1d(np.arange(len(corpus)), rows)
    sample, pairs = corpus.take(rows), links.take(rows)
    unseen = unseen_pairs(sample, pairs, corpus.take(rest), links.take(rest))
    if not unseen.any():
        unseen[:] = True
    n = len(sample)
    encoded, of_encoded = sample, pairs
    if options.rotate:  # the pairs to fit on are encoded with the sample
        order = np.concatenate([rows, rest])
        encoded, of_encoded = corpus.take(order), links.take(order)
    for layer, pooling, source, target in readings(encoder, encoded):
        if options.rotate:
            target = rotated(source, target, of_encoded, n)
        counts = retrieval_counts(first(source, n), first(target, n), pairs, unseen)
        right, queries = counts.sum(axis=0)
        yield {
            "layer": layer,
            "pooling": pooling,
            "value": round(100 * right / queries, 2),
            "n": int(queries),
        }


def first(vectors: Embeddings, n: int) -> Embeddings:
    """Return the vectors of the first `n` sentences."""
    stop = int(vectors.offsets[n])
    covered = None if vectors.covered is None else vectors.covered[:stop]
    return Embeddings(vectors.data[:stop], vectors.offsets[: n + 1], covered)


def alignment(encoder: Any, path: str, langs: tuple[str, str], limit: int) -> Iterator[dict]:
    """Yield the alignment error rate of mutual nearest neighbours at every layer and pooling."""
    corpus = read_parallel(path, langs=langs, pretokenized=True, limit=limit)
    gold = gold_links(corpus, check=False)
    for layer, pooling, source, target in readings(encoder, corpus):
        value = error_rate(links_from_embeddings(source, target, method="mutual"), gold)
        yield {"layer": layer, "pooling": pooling, "value": round(value, 2), "n": len(corpus)}


def table(rows: Sequence[dict]) -> str:
    """Return the mean over texts of each measure as a table with one line per layer."""
    lines = []
    for measure in dict.fromkeys(row["measure"] for row in rows):
        mine = [row for row in rows if row["measure"] == measure]
        texts = ", ".join(dict.fromkeys(row["langs"] for row in mine))
        lines.append(f"{mine[0]['encoder']}: {measure} ({texts})")
        lines.append(f"{'layer':>6} " + " ".join(f"{pooling:>6}" for pooling in POOLINGS))
        for layer in dict.fromkeys(row["layer"] for row in mine):
            values = []
            for pooling in POOLINGS:
                cell = [
                    row["value"]
                    for row in mine
                    if (row["layer"], row["pooling"]) == (layer, pooling)
                ]
                values.append(f"{np.mean(cell):6.1f}")
            lines.append(f"{layer:6} " + " ".join(values))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("encoders", nargs="+", metavar="ENCODER", help="folder, hub name or mini")
    parser.add_argument(
        "--text", nargs="+", default=[], metavar="en-de=FILE", help="parallel texts for retrieval"
    )
    parser.add_argument(
        "--gold", nargs="+", default=[], metavar="en-de=FILE", help="test sets with gold links"
    )
    parser.add_argument(
        "--sentences", type=int, default=300, help="number of sentence pairs that are scored"
    )
    parser.add_argument(
        "--limit", type=int, default=1000, help="number of sentence pairs read of each text"
    )
    parser.add_argument("--model", default="fast-align", help="aligner of the parallel texts")
    parser.add_argument(
        "--rotate", action="store_true", help="fit a rotation for each layer and pooling"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON Lines file to which the scores are appended")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    for name in options.encoders:
        encoder, rows = load_encoder(name, alike=False), []
        for measure, texts in (("word retrieval", options.text), ("error rate", options.gold)):
            for text in texts:
                langs, path = pair_and_path(text)
                if langs is None:
                    parser.error(f"put the languages before the file, e.g. en-de={path}")
                if measure == "word retrieval":
                    corpus = read_parallel(path, langs=langs, on_error="skip", limit=options.limit)
                    scores = retrieval(encoder, corpus, options)
                else:
                    scores = alignment(encoder, path, langs, options.sentences)
                about = {"encoder": name, "measure": measure, "langs": "-".join(langs)}
                found = [{**about, **score} for score in scores]
                rows += found
                if options.out is not None:
                    with options.out.open("a", encoding="utf-8") as file:
                        file.writelines(json.dumps(row) + "\n" for row in found)
        print(table(rows), flush=True)


if __name__ == "__main__":
    main()
