"""A small training run as a program, for tests that kill the process. Not a test itself."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from calque.alignment.contrastive import Contrastive
from calque.encoders import load_encoder
from encoder_copies import with_dropout
from linked_text import make_text


def main(folder: str, out: str) -> None:
    torch.set_num_threads(1)
    Path(out).mkdir(parents=True, exist_ok=True)
    encoder = with_dropout(load_encoder(folder), 0.1)
    corpora, pairs = map(list, zip(make_text("xx", 24, 0), make_text("yy", 10, 1), strict=True))
    method = Contrastive(
        towards="en", learning_rate=1e-3, batch=4, epochs=5, similarity_distillation=0.2
    )
    tuned = method.align(encoder, corpora, pairs, folder=Path(out) / "training", checkpoint_every=2)
    torch.save(tuned.model.state_dict(), Path(out) / "weights.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
