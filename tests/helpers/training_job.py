"""A small training run as a program, for tests that kill it or start it twice. Not a test itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from calque.alignment.contrastive import Contrastive
from calque.alignment.finetune import FineTune
from calque.encoders import load_encoder
from linked_text import make_text

SETTINGS = {"towards": "en", "learning_rate": 1e-3, "batch": 4, "epochs": 5}
METHODS = {
    "finetune": lambda settings: FineTune(**settings, layers=(1, -1)),
    "contrastive": lambda settings: Contrastive(**settings, similarity_distillation=0.2),
}


def main(
    folder: str, out: str, method: str, dropout: float = 0.0, checkpoint_every: int = 2, sizes=(24, 10), **settings
) -> None:
    torch.set_num_threads(1)
    Path(out).mkdir(parents=True, exist_ok=True)
    encoder = load_encoder(folder)
    for module in encoder.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    first, second = make_text("xx", sizes[0], 0), make_text("yy", sizes[1], 1)
    tuned = METHODS[method](SETTINGS | settings).tune(
        encoder, [first[0], second[0]], [first[1], second[1]], folder=Path(out) / "training",
        checkpoint_every=checkpoint_every,
    )  # fmt: skip
    torch.save(tuned.model.state_dict(), Path(out) / "weights.pt")
    print("done", flush=True)


if __name__ == "__main__":
    if sys.argv[3].startswith("{"):  # several runs: folder, method and settings of each
        for place, (method, settings) in json.loads(sys.argv[3]).items():
            main(sys.argv[1], str(Path(sys.argv[2]) / place), method, **settings)
    else:
        main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
