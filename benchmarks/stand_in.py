"""An encoder and text made up on the spot: random weights compute as fast as trained ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from calque.encoders.huggingface import HuggingFaceEncoder
from calque.pairs import WordPairs
from calque.text import ParallelCorpus


def _words(rng, n: int) -> list[str]:
    """Made-up word types of 2 to 12 letters."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return ["".join(rng.choice(letters, rng.integers(2, 13))) for _ in range(n)]


def stand_in_text(n: int, *, langs: tuple[str, str] = ("en", "de"), seed: int = 0) -> tuple[ParallelCorpus, WordPairs]:
    """Sentence pairs with Zipf word frequencies and lengths as in mixed parallel text, linked word by word."""
    rng = np.random.default_rng(seed)
    types = _words(rng, 20_000)
    chance = 1 / np.arange(2, len(types) + 2)
    lengths = np.clip(rng.lognormal(2.6, 0.6, n), 3, 60).astype(int)
    source = [[types[i] for i in rng.choice(len(types), k, p=chance / chance.sum())] for k in lengths]
    target = [[word[::-1] for word in words] for words in source]
    sentence = np.repeat(np.arange(n), lengths)
    position = np.concatenate([np.arange(k) for k in lengths])
    keep = rng.random(len(sentence)) < 0.7
    return (
        ParallelCorpus.of(source, target, langs),
        WordPairs(sentence[keep], position[keep], position[keep], n_sentences=n),
    )


def stand_in_encoder(*, layers: int = 6, dim: int = 128) -> HuggingFaceEncoder:
    """BERT with random weights and a WordPiece vocabulary of made-up text."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(0)
    backend = BertWordPieceTokenizer(lowercase=False)
    corpus, _ = stand_in_text(3000, seed=1)
    lines = [" ".join(words.words) for words in [*corpus.source, *corpus.target]]
    backend.train_from_iterator(lines, vocab_size=16_000, show_progress=False)
    tokenizer = BertTokenizerFast(tokenizer_object=backend._tokenizer)
    config = BertConfig(
        vocab_size=16_000, hidden_size=dim, num_hidden_layers=layers, num_attention_heads=dim // 64,
        intermediate_size=4 * dim, max_position_embeddings=256, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return HuggingFaceEncoder(BertModel(config), tokenizer, name="stand-in", max_length=256)


def scaling(work: Callable[[], object], threads: int, rounds: int) -> None:
    """Print how much sooner some work is done with several threads than with one, by turns."""
    ratios = []
    for turn in range(rounds + 1):
        seconds = []
        for count in (1, threads):
            torch.set_num_threads(count)
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        if turn:  # the first one prepares
            ratios.append(seconds[0] / seconds[1])
    print(
        f"{threads} threads against one: {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f}, "
        f"{rounds} turns; at least 1.7 asked of two)"
    )
