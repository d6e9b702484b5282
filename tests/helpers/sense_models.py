"""Language models with senses: small random networks whose sense tables have known clusters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from calque.senses.sense_table import SenseTable, nearest, save_senses
from calque.text import Sentences

WORDS = ("bank", "river", "boat", "money", "loan", "may", "Ufer", "Fluss", "Geld", "the", "a", "of")


def a_text(n: int, seed: int = 0, lang: str = "en") -> Sentences:
    """Return sentences of up to 20 words from `WORDS` and a few out-of-vocabulary words; some
    sentences are empty.
    """
    rng = np.random.default_rng(seed)
    words = [*WORDS, "zyzzyvas", "outlandishly"]
    return Sentences.of(
        [[words[k] for k in rng.integers(len(words), size=rng.integers(21))] for _ in range(n)],
        lang,
    )


def a_table(n_words: int, dim: int, seed: int, most: int = 4) -> SenseTable:
    """Return a sense table with random clusters, some of them pruned, and counts like those after
    training.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    table = SenseTable(
        rng.integers(1, most + 1, size=n_words), dim, axes=min(4, dim), queue=10, spread=1.0
    )
    table.open(start="kept")
    table.mean.copy_(torch.randn(dim) / 4)
    table.counts.copy_(torch.from_numpy(rng.integers(0, 30, size=len(table))))
    table.live &= torch.from_numpy(rng.random(len(table)) < 0.8)
    table.live[table.index[:, 0]] = True
    table.counts[~table.live] = 7  # senses keep their counts from before pruning
    return table


def select(table: SenseTable, states: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Return the class of the nearest sense of each word `[n]`, or among all senses of the t words
    of each state `[n, t]`.
    """
    return nearest([table.compare(states, words if words.ndim == 2 else words[:, None])])


def an_elmo(folder: Path, seed: int = 0) -> Path:
    """Return an ELMo model that predicts `WORDS` in both directions."""
    from calque.senses.elmo import ElmoEncoder, ElmoNetwork, elmo_options
    from calque.senses.text import FIRST_WORD, Vocabulary

    torch.manual_seed(seed)
    options = elmo_options(
        dim=8,
        hidden=16,
        layers=2,
        filters=((1, 4), (2, 8)),
        character_dim=4,
        highway=1,
        max_characters=12,
    )
    vocabulary = Vocabulary(WORDS, np.arange(len(WORDS) + FIRST_WORD)[::-1].copy())
    network = ElmoNetwork(options)
    with torch.no_grad():  # without this, all hidden states would be similar
        for weights in network.parameters():
            weights.copy_(torch.randn_like(weights) * 0.7)
    ElmoEncoder(network).save(folder)
    vocabulary.save(folder)
    save_senses([a_table(len(vocabulary), 8, seed + 1) for _ in range(2)], folder, {"joint": True})
    return folder


def a_bert(folder: Path, seed: int = 0, texts: Sequence[Sentences] = ()) -> Path:
    """Return a BERT whose tokenizer represents each of `WORDS` by a single subword."""
    from transformers import BertConfig, BertForMaskedLM

    from calque.encoders.checkpoint import save_model
    from calque.encoders.huggingface import HuggingFaceEncoder
    from calque.senses.masked import train_tokenizer

    torch.manual_seed(seed)
    tokenizer = train_tokenizer(
        {"en": Sentences.of([WORDS] * 20, "en"), **{t.lang: t for t in texts}}, size=200
    )
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
        type_vocab_size=1,
        initializer_range=0.5,
    )
    tokenizer.model_max_length = 24
    model = BertForMaskedLM(config).eval()
    HuggingFaceEncoder(model.bert, tokenizer).save(folder)
    save_model(model, folder)
    save_senses([a_table(len(tokenizer), 16, seed + 1)], folder, {})
    return folder
