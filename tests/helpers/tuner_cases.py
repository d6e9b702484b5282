"""Small training runs of all trainable methods in one or several processes, also run as a program.
Not a test itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import clcr_job
from calque.alignment.base import Run
from calque.alignment.contrastive import Contrastive
from calque.alignment.data import training_data
from calque.alignment.distilled import Distillation
from calque.alignment.finetune import FineTune
from calque.clcr import method as clcr
from calque.clcr.method import KeyPointAlignment
from calque.distributed import processes
from calque.encoders import load_encoder
from calque.encoders.sentence_store import TeacherVectors
from calque.encoders.sentence_vectors import SentencePooling
from encoder_copies import with_dropout
from linked_text import make_text

# Adam normalises gradients. With the larger epsilon of `steady`, a gradient that is 0 except for
# rounding makes a small step, so any difference between weights is due to a difference between
# gradients.
SETTINGS: dict[str, Any] = {"towards": "en", "learning_rate": 1e-3, "batch": 3, "epochs": 2}


def steady(make: type) -> Any:
    """Return the method with a larger Adam epsilon."""
    return type(make.__name__, (make,), {"epsilon": 1e-2})


class Linked(Contrastive):
    """Contrastive alignment that also links special tokens."""

    special = True


LETTERS = {"en": "a e t s", "de": "d r u n"}
#: number of sentence pairs per language; the last batch has only one or two pairs, so some
#: processes have none
SIZES = {"xx": 13, "yy": 5, "zz": 1}

Outcome = tuple[list[dict[str, float]], dict[str, torch.Tensor]]


class Ends(Exception):
    """Exception that ends a training run at a chosen update."""


def run(folder: str, out: str, case: str, stop: int | None = None) -> None:
    """Train, and save losses and weights to `OUT/CASE.pt` and checkpoints to `OUT/CASE`.

    Args:
        folder: folder of a tiny BERT.
        out: output folder.
        case: one of `CASES`.
        stop: update at which all processes end, before the weights change.

    """
    place = Path(out) / case
    place.mkdir(parents=True, exist_ok=True)
    try:
        history, weights = CASES[case](folder, place, stop)
    except Ends:
        return
    torch.save(
        {"losses": [line["loss"] for line in history], "weights": weights}, place.with_suffix(".pt")
    )


def _tune(tuner: Any, folder: str, place: Path, stop: int | None, texts: list) -> Outcome:
    usual, calls = tuner.loss, []

    def loss(batch):
        calls.append(1)
        if stop and len(calls) == (stop - 1) * len(texts) + 1:
            raise Ends
        return usual(batch)

    tuner.loss = loss
    corpora, pairs = map(list, zip(*texts, strict=True))
    fitted = tuner.fit(
        with_dropout(load_encoder(folder)),
        training_data(corpora, pairs),
        Run(place, checkpoint_every=2),
    )
    return fitted.history, fitted.encoder.merged().model.state_dict()


def tuned(kind: type, **settings: Any) -> Callable[[str, Path, int | None], Outcome]:
    def train(folder: str, place: Path, stop: int | None) -> Outcome:
        texts = [make_text(lang, n, k) for k, (lang, n) in enumerate(SIZES.items())]
        return _tune(steady(kind)(**SETTINGS | settings), folder, place, stop, texts)

    return train


def held_out(folder: str, place: Path, stop: int | None) -> Outcome:
    """Train on 35 of 44 sentence pairs, and return the weights of update 5 of 10, which are best on
    the other pairs.
    """
    settings = SETTINGS | {"batch": 8, "learning_rate": 0.01, "seed": 1}
    texts = [make_text("xx", 44, 0)]
    return _tune(steady(Contrastive)(**settings), folder, place, stop, texts)


def key_points(folder: str, place: Path, stop: int | None) -> Outcome:
    """Train all phases of the first step of CLCR, and the classifiers of the second step."""
    clcr.PHASES = clcr_job.EQUAL
    settings: dict[str, Any] = {
        "towards": "en",
        "batch": 3,
        "epochs": (1.0,) * 5,
        "learning_rate": (5e-3, 1e-3, 1e-3),
        "steps": "transform,extract",
        "max_words": None,
    }
    method = KeyPointAlignment(**settings)
    texts = [make_text("xx", 8, 0)[0], make_text("yy", 4, 1)[0]]
    encoders = {lang: with_dropout(load_encoder(folder)) for lang in ("en", "xx", "yy")}
    fitted = method.fit(encoders, training_data(texts), Run(place))
    weights = {
        f"{lang}.{name}": value
        for lang, each in fitted.transformed.encoders.items()
        for name, value in each.model.state_dict().items()
    }  # type: ignore[attr-defined]
    for lang, part in fitted.trained.parts.items():
        for name, module in vars(part).items():
            if isinstance(module, torch.nn.Module):
                weights |= {
                    f"{lang}.{name}.{key}": value for key, value in module.state_dict().items()
                }
    written = sorted(place.rglob("metrics.jsonl"))
    return [json.loads(line) for file in written for line in file.read_text().splitlines()], weights


def distilled(folder: str, place: Path, stop: int | None) -> Outcome:
    """Distil from a teacher whose vectors are computed in parts; in some updates, a process has no
    text.
    """
    student = with_dropout(load_encoder(folder))
    store = TeacherVectors(place / "store", student, SentencePooling.of(student, "cls"))
    method = steady(Distillation)(**SETTINGS, ranking=0.5, negatives=3, source_share=0.5)
    pooling = SentencePooling.of(student, "subwords")
    found = method.distil(
        student, pooling, store, [make_text("xx", 13, 0)[0]], run=Run(place, checkpoint_every=2)
    )
    return found.history, found.encoder.model.state_dict() | found.pooling.state_dict()


CASES: dict[str, Callable[[str, Path, int | None], Outcome]] = {
    "finetune": tuned(FineTune, layers=(1, -1), accumulate=2),
    "finetune-mean": tuned(FineTune, variant="code", freeze=1),
    "contrastive-published": tuned(Linked, same_share=0.0, similarity_distillation=0.0),
    "contrastive-parts": tuned(Contrastive, accumulate=3, layers=(0, 2)),
    "contrastive-held-out": held_out,
    "contrastive-sentences": tuned(
        Contrastive, same_share=1.0, similarity_distillation=0.3, sentences=0.5
    ),
    **(
        {"contrastive-lora": tuned(Contrastive, lora=2, learning_rate=0.1, accumulate=2)}
        if find_spec("peft")
        else {}
    ),
    "distilled": distilled,
    "clcr": key_points,
}


if __name__ == "__main__":  # arguments: FOLDER, and a JSON list with OUT, CASE and STOP of each run
    torch.set_num_threads(1)
    processes.SMALL_GRADIENT = 1500  # some gradients have more elements than this
    for out, case, stop in json.loads(sys.argv[2]):
        run(sys.argv[1], out, case, stop)
