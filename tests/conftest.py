"""Fixtures shared by all tests: tiny encoders, created once per test run."""

from __future__ import annotations

import gc
import os
import signal

# Must be set before torch is imported: small matrices are fastest with one thread, and tests use no
# network.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

# Background jobs of a shell ignore SIGINT, and calque does not change the handling of ignored
# signals.
signal.signal(signal.SIGINT, signal.default_int_handler)

# With the default thresholds, garbage collection takes a tenth of the running time of the tests.
gc.set_threshold(50_000, 20, 50)

FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta", "deberta-v2", "modernbert")
OTHERS = ("electra", "gpt2", "t5")


@pytest.fixture(scope="session")
def family_folders(tmp_path_factory):
    """Return a function that returns the folder of a family's tiny model, which is created when it
    is first requested.
    """
    made = {}

    def folder(family: str):
        from families import (
            make_family,
        )  # imported late because most tests need neither torch nor transformers

        if family not in made:
            made[family] = make_family(family, tmp_path_factory.mktemp(family))
        return made[family]

    return folder


@pytest.fixture(scope="session", params=FAMILIES)
def family_folder(request, family_folders):
    """Return the folder of a tiny model for each common family; tests must not modify it."""
    return family_folders(request.param)


@pytest.fixture(scope="session", params=[*FAMILIES, *OTHERS])
def any_family_folder(request, family_folders):
    """Like `family_folder`, and also for ELECTRA, GPT-2 (decoder) and T5 (encoder-decoder); tests
    must not modify it.
    """
    return family_folders(request.param)


@pytest.fixture(scope="session")
def tiny_folder(family_folders):
    """Return the folder of a 3-layer BERT with 32 dimensions and a WordPiece tokenizer; tests must
    not modify it.
    """
    return family_folders("bert")


@pytest.fixture(scope="session")
def tiny_encoder(tiny_folder):
    """Return the encoder loaded from `tiny_folder`; copy it before you change its weights."""
    from calque.encoders import load_encoder

    return load_encoder(tiny_folder)


@pytest.fixture(scope="session")
def multilingual_words() -> list[list[str]]:
    """Return sentences in a dozen scripts, split at spaces."""
    from families import TEXT

    return [line.split() for line in TEXT]
