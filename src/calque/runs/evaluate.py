"""From an encoder and files to the scores of a task."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from calque.analyses.groups import compare_layers
from calque.distributed import is_first
from calque.errors import SettingError
from calque.storage import part_of, remove_temporary, temporary_folder
from calque.tasks.table import TASKS

if TYPE_CHECKING:
    from calque.tasks import Score
    from calque.tasks.inputs import Inputs


def alignment_of(encoder: str) -> dict[str, Any] | None:
    """Return what a folder's record says of the alignment that made the encoder, None for one that was not aligned: the method,
    its seed (None for a method that is not random), and the encoder before it."""
    path = Path(encoder, "calque-run.json")
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not {"method", "encoder", "encoder_fingerprint"} <= record.keys():
        return None
    random = record.get("schedule") or record.get("settings") or {}
    before = {"base": record["encoder"], "base_fingerprint": record["encoder_fingerprint"]}
    return {"method": record["method"], "seed": random.get("seed"), **before}


def evaluate(
    encoder: str,
    inputs: Inputs,
    *,
    options: Mapping[str, Any] | None = None,
    load: Mapping[str, Any] | None = None,
    layers: Sequence[int] | Literal["all"] | None = None,
    out: Path | None = None,
    shown: Callable[[list[Any]], None] | None = None,
    progress: bool = False,
) -> list[Score]:
    """Scores of one encoder on one task, those of the first test first, and of each the main one.

    Args:
        encoder: hub name, folder, `mini`, or a file of static vectors.
        inputs: the task's name, one of `TASKS` or `package.module:Class`, and its files.
        options: keyword arguments of the task's `from_files`.
        load: keyword arguments of `load_encoder`.
        layers: of word retrieval, the layers that `compare_layers` compares, whose findings `shown` is then called with.
        out: the file that the scores are for; checkpoints of trained heads lie beside it until all are trained, so that the same
            command goes on where it was stopped. None for no checkpoints.
        shown: called with the scores.
        progress: show bars on standard error.

    Raises:
        SettingError: a task that is not known, or files that it does not read.
    """
    from calque.encoders import load_encoder
    from calque.encoders.layers import DefaultLayerWarning

    row = TASKS[inputs.task]
    unread = [name for name in inputs.given if name not in row.files]
    if unread:
        raise SettingError(f"{inputs.task} does not read {', '.join(unread)}, only {', '.join(row.files)}")
    tasks = TASKS.load(inputs.task).from_files(inputs, **dict(options or {}))
    with warnings.catch_warnings():
        if layers is not None:  # the default layer is one of them
            warnings.simplefilter("ignore", DefaultLayerWarning)
        loaded = load_encoder(encoder, **dict(load or {}))
    scores: list[Score] = []
    aligned = alignment_of(encoder)
    if layers is not None:
        findings = compare_layers(tasks, loaded, layers, {"aligned": aligned}, progress=progress)
        if shown is not None:
            shown(findings)
        return [finding.score for finding in findings]
    with _resumable(tasks, out):
        for task in tasks:
            of_task = [score.about(**task.notes, aligned=aligned) for score in task.evaluate(loaded, progress=progress)]
            for line in task.news(of_task):
                inputs.say(line)
            scores += of_task
    if shown is not None:
        shown(scores)
    return scores


@contextmanager
def _resumable(tasks: Sequence[Any], out: Path | None) -> Iterator[None]:
    """Keep checkpoints of trained heads beside `out` until the scores are there, or until nothing is worth keeping."""
    trained = [each for task in tasks if hasattr(each := getattr(task, "task", task), "checkpoints")]
    if out is None or not trained or not is_first():
        yield
        return
    place = part_of(Path(out), "training")
    folder = temporary_folder(place, Path(out))
    for each in trained:
        each.checkpoints = folder
    try:
        yield
    except BaseException:
        if not any(place.rglob("checkpoint.pt")):
            remove_temporary(place)
        raise
    remove_temporary(place)
