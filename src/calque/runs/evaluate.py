"""Evaluate an encoder on a task."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from calque.analyses.groups import compare_layers
from calque.analyses.reading import why_fixed
from calque.distributed import is_first
from calque.encoders.folder import read_run
from calque.errors import SettingError
from calque.named import is_path
from calque.runs.reading import Wish, read_encoder
from calque.storage import json_text, part_of, remove, temporary_folder
from calque.tasks.reading import chooses_layers
from calque.tasks.table import TASKS, trains_head

if TYPE_CHECKING:
    from calque.analyses.questions import Finding
    from calque.analyses.reading import Reading
    from calque.encoders import Encoder
    from calque.input_texts import Say
    from calque.tasks import Score
    from calque.tasks.inputs import Inputs


def alignment_of(encoder: str, load: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the method, seed and base encoder of an alignment from the record in the encoder's
    folder, or None if there is no record. The seed of a deterministic method is None. `setting` is
    equal for alignments that differ only in their seeds.

    Args:
        load: keyword arguments of `load_encoder`, which are part of the setting.
    """
    record = read_run(encoder)
    if not {"method", "encoder", "encoder_fingerprint"} <= record.keys():
        return None
    training = record.get("schedule") or record.get("settings") or {}
    return {
        "method": record["method"],
        "seed": training.get("seed"),
        "setting": _hash_of_setting(record, load or {}),
        "base": record["encoder"],
        "base_fingerprint": record["encoder_fingerprint"],
    }


#: keys of the record of an alignment that determine the result, together with the seeds
_OF_SETTING = (
    "method",
    "towards",
    "langs",
    "settings",
    "schedule",
    "words",
    "encoder_fingerprint",
    "teacher_fingerprint",
)


def _hash_of_setting(record: Mapping[str, Any], load: Mapping[str, Any]) -> str:
    """Return a hash of the settings of an alignment without its seeds and without results of the
    training.
    """
    settings: dict[str, Any] = {name: _without_results(record.get(name)) for name in _OF_SETTING}
    settings["texts"] = []
    for text in record.get("texts", ()):
        names = ("path", "langs", "sentence_pairs", "sentences", "entries")
        settings["texts"].append({name: text.get(name) for name in names})
    # The device does not change the vectors.
    settings["load"] = {name: value for name, value in load.items() if name != "device"}
    text = json_text(settings, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _without_results(value: Any) -> Any:
    """Return settings without seeds and without the fits of maps, which depend on the seed."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: _without_results(inner)
        for name, inner in value.items()
        if name not in ("seed", "fits")
    }


def evaluate(
    encoder: str,
    inputs: Inputs,
    *,
    options: Mapping[str, Any] | None = None,
    load: Mapping[str, Any] | None = None,
    layers: Sequence[int] | Literal["all"] | None = None,
    choose: bool = False,
    out: Path | None = None,
    then: Callable[[list[Any]], object] = lambda scores: None,
    progress: bool = False,
) -> list[Score]:
    """Return the scores of one encoder on one task, ordered by test set. The first score is the
    main score.

    Arguments not listed here are those of `evaluate_each`.

    Args:
        encoder: Hugging Face name, folder, `mini`, or file of static vectors.
        then: function that is called with all scores.

    Raises:
        SettingError: the task is unknown, or does not use one of the given files.
    """
    (scores,) = evaluate_each(
        [encoder],
        inputs,
        options=options,
        load=load,
        layers=layers,
        choose=choose,
        out=out,
        then=lambda found: then(found[0]),
        progress=progress,
    )
    return scores


def evaluate_each(
    encoders: Sequence[str],
    inputs: Inputs,
    *,
    options: Mapping[str, Any] | None = None,
    load: Mapping[str, Any] | None = None,
    layers: Sequence[int] | Literal["all"] | None = None,
    choose: bool = False,
    out: Path | None = None,
    then: Callable[[list[list[Any]]], object] = lambda scores: None,
    progress: bool = False,
) -> list[list[Score]]:
    """Return the scores of each encoder on one task, whose files are read only once. One encoder is
    loaded at a time.

    Args:
        inputs: name of the task (a key of `TASKS` or `package.module:Class`) and its files.
        options: keyword arguments of the task's `from_files`.
        load: keyword arguments of `load_encoder`. `layer` and `pooling` can be "auto" if the task
            reads parallel text besides its test text, see `choose_reading`.
        choose: whether "auto" is the default of a layer and a pooling that the folder of an encoder
            does not record, if there is such text.
        layers: layers that `compare_layers` compares by word retrieval; `then` is called with its
            findings, not with scores.
        out: file for the scores. Checkpoints of trained task heads are written next to this file,
            so an interrupted command can be resumed; if `out` is None, no checkpoints are written.
        then: function that is called with the scores of all encoders.
        progress: whether to show progress bars on standard error.

    Raises:
        SettingError: the task is unknown, or does not use one of the given files.
    """
    row = TASKS[inputs.task]
    unread = [name for name in inputs.given if name not in row.files]
    if unread:
        raise SettingError(
            f"{inputs.task} does not use {', '.join(unread)}, but only {', '.join(row.files)}"
        )
    wish = Wish.of(load, usual=choose)
    options = _with_pooling(inputs.task, dict(options or {}), wish.load)
    tasks = TASKS.load(inputs.task).from_files(inputs, **options)
    if layers is not None:
        findings = [
            _layers_of(encoder, tasks, layers, load, progress=progress) for encoder in encoders
        ]
        then(findings)
        return [[finding.score for finding in of_encoder] for of_encoder in findings]
    scores = []
    with _resumable(tasks, out):
        for encoder in encoders:
            say = partial(_say_of, encoder, inputs.say) if len(encoders) > 1 else inputs.say
            scores.append(_scores_of(encoder, inputs.task, tasks, wish, say, progress=progress))
    then(scores)
    return scores


def _with_pooling(task: str, options: Mapping[str, Any], load: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task. If the task chooses a layer, a pooling that the user set for
    the encoder is the only pooling to choose from.
    """
    chooses = trains_head(task) and chooses_layers(options)
    if chooses and load.get("pooling") and "poolings" not in options:
        return {**options, "poolings": [load["pooling"]]}
    return dict(options)


def _layers_of(
    encoder: str,
    tasks: Any,
    layers: Sequence[int] | Literal["all"],
    load: Mapping[str, Any] | None,
    *,
    progress: bool,
) -> list[Finding]:
    """Compare the layers of one encoder by word retrieval."""
    loaded = _load_for_layers(encoder, Wish.of(load))
    about = {"aligned": alignment_of(encoder, load)}
    return compare_layers(tasks, loaded, layers, about, progress=progress)


def _load_for_layers(name: str, wish: Wish) -> Encoder:
    """Load an encoder whose layers are read by number.

    Raises:
        SettingError: the user set the layer or the pooling to auto.
    """
    from calque.encoders import load_encoder
    from calque.encoders.layers import DefaultLayerWarning

    with warnings.catch_warnings():
        # irrelevant, because the default layer is not used
        warnings.simplefilter("ignore", DefaultLayerWarning)
        return load_encoder(name, **wish.without_choice().load)


def _say_of(encoder: str, say: Say, line: str) -> None:
    say(f"{encoder}: {line}")


def _scores_of(
    encoder: str, name: str, tasks: Any, wish: Wish, say: Say, *, progress: bool
) -> list[Score]:
    """Return the scores of one encoder on the tasks, and pass the messages about the scores to
    `say`.

    Args:
        name: name of the task, see `Inputs.task`.
        tasks: result of the task's `from_files`.
        wish: how the encoder is to be read.
    """
    loaded, reading = _read(encoder, tasks, wish, say)
    notes: dict[str, Any] = {"aligned": alignment_of(encoder, wish.load)}
    if reading is not None:
        notes["chosen_reading"] = reading.line
    # Reports look up the tasks of the table by name; the declarations of other tasks are stored.
    reporting = TASKS[name].reporting if is_path(name) else None
    scores: list[Score] = []
    for task in tasks:
        of_task = []
        for score in task.evaluate(loaded, progress=progress):
            described = score.about(**task.notes, **notes)
            of_task.append(replace(described, reporting=reporting))
        for line in task.news(of_task):
            say(line)
        scores += of_task
    return scores


def _read(name: str, tasks: Any, wish: Wish, say: Say) -> tuple[Encoder, Reading | None]:
    """Load an encoder, and choose its layer and pooling on the parallel text that all tasks read
    besides their test texts.
    """
    from calque.encoders import load_encoder

    # Heads that read other layers than the encoder's own choose them themselves.
    if all(getattr(task, "reading", None) is not None for task in tasks):
        return _load_for_layers(name, wish), None
    with wish.loading():
        encoder = load_encoder(name, **wish.load)
    if not wish.free(encoder) or why_fixed(encoder):
        return read_encoder(encoder, wish, lambda: ((), ()), unit="words", say=say)
    found = [task.evidence(encoder) for task in tasks if hasattr(task, "evidence")]
    evidence = [each for each in found if each is not None]
    if not evidence:
        wish.without_choice()  # raises an error if the user asked for a choice
        return wish.keep(encoder), None
    corpora = [corpus for each in evidence for corpus in each.corpora]
    links = [pairs for each in evidence for pairs in each.links]
    return read_encoder(encoder, wish, lambda: (corpora, links), unit=evidence[0].unit, say=say)


@contextmanager
def _resumable(tasks: Sequence[Any], out: Path | None) -> Iterator[None]:
    """Keep checkpoints of trained task heads in the folder of `out` until all scores are
    computed.
    """
    heads = [getattr(task, "task", task) for task in tasks]
    trained = [head for head in heads if hasattr(head, "checkpoints")]
    if out is None or not trained or not is_first():
        yield
        return
    place = part_of(Path(out), "training")
    folder = temporary_folder(place, Path(out))
    for head in trained:
        head.checkpoints = folder
    try:
        yield
    except BaseException:
        if not any(place.rglob("checkpoint.pt")):  # there is nothing to resume from
            remove(place)
        raise
    remove(place)
