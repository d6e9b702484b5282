"""Fixtures of several test files: tiny encoders, built once per run."""

from __future__ import annotations

import os
import signal

# Before torch and transformers are imported: small matrices want one thread, and no test may reach for the network.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

# A shell has what it starts in the background ignore this signal, and what a caller has decided, calque leaves alone.
signal.signal(signal.SIGINT, signal.default_int_handler)

FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta", "deberta-v2", "modernbert")
OTHERS = ("electra", "gpt2", "t5")


@pytest.fixture(scope="session")
def family_folders(tmp_path_factory):
    """`family_folders(name)` gives the folder of a tiny model of a family, made when first asked for."""
    made = {}

    def folder(family: str):
        from families import make_family  # loads torch and transformers, which most tests do without

        if family not in made:
            made[family] = make_family(family, tmp_path_factory.mktemp(family))
        return made[family]

    return folder


@pytest.fixture(scope="session", params=FAMILIES)
def family_folder(request, family_folders):
    """A tiny model of each usual family in turn; read only."""
    return family_folders(request.param)


@pytest.fixture(scope="session", params=[*FAMILIES, *OTHERS])
def any_family_folder(request, family_folders):
    """Also of rarer families: ELECTRA, a decoder (GPT-2), an encoder with a decoder (T5); read only."""
    return family_folders(request.param)


@pytest.fixture(scope="session")
def tiny_folder(family_folders):
    """A BERT of 3 layers × 32 with a WordPiece tokenizer; read only."""
    return family_folders("bert")


@pytest.fixture(scope="session")
def tiny_encoder(tiny_folder):
    """That BERT, loaded; do not change its weights, copy it."""
    from calque.encoders import load_encoder

    return load_encoder(tiny_folder)


@pytest.fixture(scope="session")
def multilingual_words() -> list[list[str]]:
    """Sentences of a dozen scripts as words, cut at spaces."""
    from families import TEXT

    return [line.split() for line in TEXT]
