"""Fixtures of several test files: tiny encoders, made once for each run."""

from __future__ import annotations

import os
import signal

# Set before torch and transformers are imported: small matrices are fastest with one thread, and tests use no network.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

# Shells start background jobs with this signal ignored, and calque does not change ignored signals.
signal.signal(signal.SIGINT, signal.default_int_handler)

FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta", "deberta-v2", "modernbert")
OTHERS = ("electra", "gpt2", "t5")


@pytest.fixture(scope="session")
def family_folders(tmp_path_factory):
    """Return a function that makes the folder of a tiny model of a family on its first call."""
    made = {}

    def folder(family: str):
        from families import make_family  # imports torch and transformers, which most tests do not need

        if family not in made:
            made[family] = make_family(family, tmp_path_factory.mktemp(family))
        return made[family]

    return folder


@pytest.fixture(scope="session", params=FAMILIES)
def family_folder(request, family_folders):
    """Return the folder of a tiny model of each common family in turn; read only."""
    return family_folders(request.param)


@pytest.fixture(scope="session", params=[*FAMILIES, *OTHERS])
def any_family_folder(request, family_folders):
    """Return such folders also for ELECTRA, GPT-2 (decoder) and T5 (encoder and decoder); read only."""
    return family_folders(request.param)


@pytest.fixture(scope="session")
def tiny_folder(family_folders):
    """Return the folder of a BERT of 3 layers × 32 with a WordPiece tokenizer; read only."""
    return family_folders("bert")


@pytest.fixture(scope="session")
def tiny_encoder(tiny_folder):
    """Return the loaded BERT of `tiny_folder`; copy it before changing weights."""
    from calque.encoders import load_encoder

    return load_encoder(tiny_folder)


@pytest.fixture(scope="session")
def multilingual_words() -> list[list[str]]:
    """Return sentences of a dozen scripts as words, divided at spaces."""
    from families import TEXT

    return [line.split() for line in TEXT]
