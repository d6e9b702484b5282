"""Functions shared by the benchmarks: artificial text, random encoders, plain loops over padded batches, and timing."""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calque.encoders import load_encoder
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.pairs import WordPairs
from calque.text import ParallelCorpus


# -- text and encoders -----------------------------------------------------------------------------
def made_up_text(
    n: int, *, langs: tuple[str, str] = ("en", "de"), seed: int = 0
) -> tuple[ParallelCorpus, WordPairs]:
    """Return artificial sentence pairs with word-by-word links, Zipfian word frequencies and
    realistic lengths.
    """
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    types = ["".join(rng.choice(letters, rng.integers(2, 13))) for _ in range(20_000)]
    chance = 1 / np.arange(2, len(types) + 2)
    lengths = np.clip(rng.lognormal(2.6, 0.6, n), 3, 60).astype(int)
    source = [
        [types[i] for i in rng.choice(len(types), k, p=chance / chance.sum())] for k in lengths
    ]
    target = [[word[::-1] for word in words] for words in source]
    sentence = np.repeat(np.arange(n), lengths)
    position = np.concatenate([np.arange(k) for k in lengths])
    keep = (rng.random(len(sentence)) < 0.7) | (position == 0)  # every sentence pair has a link
    pairs = WordPairs(sentence[keep], position[keep], position[keep], n_sentences=n)
    return ParallelCorpus.of(source, target, langs), pairs


def random_encoder(layers: int, dim: int) -> HuggingFaceEncoder:
    """Return a BERT model with random weights and a WordPiece vocabulary; its speed does not depend
    on the weights.
    """
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(0)
    backend = BertWordPieceTokenizer(lowercase=False)
    corpus, _ = made_up_text(3000, seed=1)
    lines = [" ".join(sentence.words) for sentence in [*corpus.source, *corpus.target]]
    backend.train_from_iterator(lines, vocab_size=16_000, show_progress=False)
    tokenizer = BertTokenizerFast(tokenizer_object=backend._tokenizer)
    config = BertConfig(
        vocab_size=16_000,
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=dim // 64,
        intermediate_size=4 * dim,
        max_position_embeddings=256,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return HuggingFaceEncoder(BertModel(config), tokenizer, name="random", max_length=256)


def options_of(about: str | None, *, pairs: int, batch: int) -> argparse.ArgumentParser:
    """Build the argument parser for a benchmark that encodes parallel text."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument(
        "--encoder", help="folder, hub name or mini; default: a model with random weights"
    )
    parser.add_argument(
        "--layers",
        type=int,
        default=6,
        help="number of layers of the random encoder (BERT-base: 12)",
    )
    parser.add_argument(
        "--dim", type=int, default=128, help="hidden size of the random encoder (BERT-base: 768)"
    )
    parser.add_argument("--text", help="parallel text file; default: artificial text")
    parser.add_argument("--langs", nargs=2, default=("en", "de"))
    parser.add_argument(
        "--pairs", type=int, default=pairs, help="number of sentence pairs per round"
    )
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--layer", type=int, help="layer of the hidden states; default: the output layer"
    )
    parser.add_argument("--device", default="cpu", help="device, e.g. cuda for a GPU")
    return parser


def read(options: argparse.Namespace) -> tuple[Any, ParallelCorpus, WordPairs]:
    """Return the encoder, the sentence pairs that have word links, and their links."""
    torch.set_num_threads(options.threads)
    if options.encoder:
        encoder = load_encoder(options.encoder, layer=options.layer, device=options.device)
    else:
        encoder = random_encoder(options.layers, options.dim)
        encoder.model.to(options.device)
    if not options.text:
        return encoder, *made_up_text(options.pairs, langs=tuple(options.langs))
    from calque.corpora import read_parallel
    from calque.wordalign import align_words

    corpus = read_parallel(
        options.text, langs=tuple(options.langs), limit=options.pairs, on_error="skip"
    )
    pairs = align_words(corpus, model="fast-align").one_to_one()
    kept = np.unique(pairs.sentence)
    links = WordPairs(
        np.searchsorted(kept, pairs.sentence), pairs.source, pairs.target, n_sentences=len(kept)
    )
    return encoder, corpus.take(kept), links


# -- plain loops over padded batches ---------------------------------------------------------------
def batches(texts: Sequence[Sequence[str]], size: int, *, by_length: bool) -> list[list[int]]:
    """Split texts into batches, in text order or sorted by number of words."""
    order = (
        sorted(range(len(texts)), key=lambda k: len(texts[k]))
        if by_length
        else list(range(len(texts)))
    )
    return [order[start : start + size] for start in range(0, len(order), size)]


def word_vectors(
    encoder: Any, model: Any, texts: Sequence[Sequence[str]]
) -> Iterator[dict[int, torch.Tensor]]:
    """Yield the vectors of each text's words, computed as in published code: tokenise, pad, take
    all hidden states, and find each word's last subword in Python."""
    how = {
        "is_split_into_words": True,
        "padding": True,
        "truncation": True,
        "max_length": encoder.max_length,
    }
    batch = encoder.tokenizer([list(words) for words in texts], return_tensors="pt", **how).to(
        model.device
    )
    states = model(**batch, output_hidden_states=True).hidden_states[encoder.layer]
    for k in range(len(texts)):
        yield {
            word: states[k, place]
            for place, word in enumerate(batch.word_ids(k))
            if word is not None
        }


def both(loop: Callable[..., object], *given: Any) -> dict[str, Callable[[], object]]:
    """Return two functions that run a plain loop, one with batches in text order and one with
    batches sorted by length.
    """
    return {
        "a plain loop over padded batches in text order": lambda: loop(*given, by_length=False),
        "a plain loop over padded batches sorted by length": lambda: loop(*given, by_length=True),
    }


def linked(pairs: WordPairs) -> dict[int, list[tuple[int, int]]]:
    """Return the links of each sentence pair."""
    links: dict[int, list[tuple[int, int]]] = {}
    for k, i, j in zip(
        pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True
    ):
        links.setdefault(k, []).append((i, j))
    return links


# -- measuring -------------------------------------------------------------------------------------
def timed(work: Callable[[], object]) -> np.ndarray:
    """Return the wall time and processor time of a call, in seconds."""
    start = np.array([time.perf_counter(), time.process_time()])
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return np.array([time.perf_counter(), time.process_time()]) - start


def compare(
    title: str,
    n: int,
    ours: Callable[[], object],
    loops: Mapping[str, Callable[[], object]],
    rounds: int,
):
    """Run calque and the other loops alternately, and print the ratios of their times.

    Args:
        title: name of the benchmark.
        n: number of sentences or sentence pairs per round.
        ours: calque's computation, which is run once before the measurement.
        loops: computations to compare with calque's, by name.
        rounds: number of rounds; the median is printed.
    """
    ours()
    seconds = {name: [] for name in ("calque", *loops)}
    for _ in range(rounds):
        for name, work in {**loops, "calque": ours}.items():
            seconds[name].append(timed(work))
    own = np.stack(seconds["calque"])
    print(f"{title}: calque {n / np.median(own[:, 0]):,.0f} per second; medians of {rounds} rounds")
    for name in loops:
        ratios = np.stack(seconds[name]) / own
        wall, processor = np.median(ratios, axis=0)
        ends = f"{ratios[:, 0].min():.2f} to {ratios[:, 0].max():.2f}"
        print(
            f"  {wall:.2f} times as fast as {name} ({ends}; {processor:.2f} in processor time)",
            flush=True,
        )


def peak_mib(device: str) -> float:
    """Return the peak memory of this process: GPU memory on a GPU, otherwise resident memory
    including mapped files.
    """
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def anonymous_mib(pid: int | str = "self") -> float:
    """Return the current anonymous memory of a process, without pages of mapped files; 0 if
    unknown.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), 0.0)
