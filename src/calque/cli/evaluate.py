"""`calque evaluate`: any task of the table, or a class from elsewhere, with the options that it has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calque.cli.about_task import TaskCommand
from calque.cli.checks import given, output_file
from calque.cli.evaluating import Measuring, Reading, Realigning, Texts, Training
from calque.cli.options import Linking, Loading, Quiet, by_name, grouped, language_pairs, news, numbers
from calque.cli.tracking import Tracking
from calque.errors import SettingError
from calque.storage import append_lines
from calque.tasks.inputs import FILES, REALIGN, Inputs
from calque.tasks.table import TASKS, TaskRow, users

if TYPE_CHECKING:
    from calque.training.realignment import Realignment

#: what a task that is learnt from labels has only for parallel text
_OF_PARALLEL = ("langs", "model", "symmetrize", "seed")


@dataclass(frozen=True)
class Output:
    """Results."""

    per_type: Annotated[
        bool, typer.Option("--per-type", help="Also show the F1 of each span type; --json always has it.")
    ] = False
    record: Annotated[bool, typer.Option("--record", help="Add the scores to the model card in ENCODER.")] = False
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --record: JSON lines with the scores of the encoder before alignment (its --out); the card then names "
            "every figure that fell.",
        ),
    ] = None
    out: Annotated[Path | None, typer.Option(help="Append the scores to this JSON lines file.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False
    quiet: Quiet = False


@grouped
def evaluate(
    context: typer.Context,
    encoder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini (bundled) or word vectors.")
    ],
    task: Annotated[str, typer.Argument(metavar="TASK", help="One of those below, or package.module:Class.")],
    texts: Texts,
    measuring: Measuring,
    reading: Reading,
    training: Training,
    realigning: Realigning,
    loading: Loading,
    linking: Linking,
    output: Output,
    tracking: Tracking,
    langs: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE TARGET", help="Languages of the parallel text or dictionary.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the task that has no name of its own here; repeatable."),
    ] = None,
    pretokenized: Annotated[
        bool | None,
        typer.Option(
            "--pretokenized/--tokenize", help="Words are already separated by spaces (default for word-alignment)."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Use only N texts of each --train file, evenly spaced; of --text, and of a --test that is parallel or plain, "
            "the first N. retrieval: --train is read whole, to tell seen pairs. sentences: also the first N of --dev.",
        ),
    ] = None,
    test_limit: Annotated[
        int | None, typer.Option(min=1, help="Use only N texts of each --test and --dev file.")
    ] = None,
    translations: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LANG=FILE,FILE...",
            help="Key points by pivots (--steps pivots): the test file in the pivot language and the one in LANG.",
        ),
    ] = None,
) -> None:
    """Measure an encoder on a task.

    Retrieval of words or sentences, word alignment, bilingual lexicon, word senses, or zero-shot transfer: a task learnt in
    one language and tested in others.
    """
    row, named = TASKS[task], given(context)
    _refuse_unused(named, task, row, projected=bool(texts.project), realigned=bool(realigning.realign))
    if output.against is not None and not output.record:
        raise SettingError("--against is only for --record")
    if output.record and realigning.realign:
        raise SettingError("--record is for scores of ENCODER as it is, and --realign measures another one: use --out")
    base = None
    if output.against is not None:
        from calque.runs.compare import read_scores

        base = read_scores(output.against)
    files = {name: value for name, value in vars(texts).items() if value and name in FILES}
    inputs = Inputs(
        task,
        **files,
        langs=language_pairs(langs or []),
        words=linking.words(row.pretokenized if pretokenized is None else pretokenized, limit),
        test_limit=test_limit,
        say=news(output.quiet),
    )
    if realigning.realign:
        inputs = replace(inputs, realign=_realignment(realigning, inputs, named, linking, training))
    options = {name: value for group in (measuring, reading, training)
               for name, value in vars(group).items() if name in named and name not in FILES}  # fmt: skip
    for name, read in (("entries", _range), ("rename", _renaming), ("mix", _layers)):
        if name in options:
            options[name] = read(options[name])
    if option:
        from calque.runs.study.options import options_of

        options |= by_name(option, options_of(task))
    every = [file for name in FILES if name in files for file in _listed(files[name])]
    every += [*(realigning.realign or []), *(realigning.realign_links or [])]
    output_file("--out", output.out, [*every, encoder], langs or [])
    from calque.runs.evaluate import evaluate as run
    from calque.runs.shown import table

    scores = run(
        encoder, inputs, options=options, load=loading.arguments(), translations=translations or [],
        progress=not output.quiet,
    )  # fmt: skip
    if output.out is not None:
        append_lines(output.out, (score.to_json() + "\n" for score in scores))
    if output.record:
        from calque.runs.card import add_scores

        add_scores(Path(encoder), [score.to_dict() for score in scores], base)
    if output.as_json:
        print(json.dumps({**scores[0].to_dict(), "scores": [score.to_dict() for score in scores]}, default=str))
    else:
        print(table(scores, kinds=output.per_type))


def _refuse_unused(named: Mapping[str, str], task: str, row: TaskRow, *, projected: bool, realigned: bool) -> None:
    """An option that the task does not use is an error: who gave it thinks that it counts."""
    parallel = [f"--{name}" for name in ("project", "realign") if name in row.files]
    for name, option in named.items():
        having = users(name)
        if having and name not in row.takes:
            raise SettingError(f"{option} does not apply to {task}; it is for {', '.join(having)}")
        if name in REALIGN and not realigned:
            raise SettingError(f"{option} is for the parallel text of --realign, and there is none")
        if name == "links" and "project" in row.files and not projected:
            raise SettingError(f"--links does not apply to {task} without the parallel text of --project")
        if name in _OF_PARALLEL and parallel and not projected and not realigned:
            runs = " (runs use the seeds 0, 1, …; --seeds sets how many)" if name == "seed" else ""
            hint = "; give the language in the file name, or as de=FILE" if name == "langs" else ""
            raise SettingError(
                f"{option} does not apply to {task} without the parallel text of {' or '.join(parallel)}{runs}{hint}"
            )


def _realignment(
    realigning: Realigning, inputs: Inputs, named: Mapping[str, str], linking: Linking, training: Training
) -> Realignment:
    """What --realign and its options say."""
    from calque.alignment import METHODS
    from calque.runs.realign import realign_on
    from calque.runs.study.options import options_of_method

    method, symmetrize = realigning.realign_method, linking.symmetrize
    if "symmetrize" not in named and method in METHODS:
        symmetrize = METHODS[method].symmetrize
    if realigning.realign_links and "model" in named:
        raise SettingError("--model has no effect with --realign-links: the words are linked already")
    items = realigning.realign_option or []
    options = by_name(items, options_of_method(method), "--realign-option") if items else {}
    options |= {"seed": linking.seed} if "seed" in named and "seed" not in options else {}
    if not training.tune:
        raise SettingError("--realign aligns an encoder in the run that trains it: add --tune")
    return realign_on(
        realigning.realign or [], langs=inputs.langs, links=realigning.realign_links or [],
        words=replace(linking, symmetrize=symmetrize).words(False, None), say=inputs.say,
        when=realigning.realign_when, how=realigning.realign_how, method=method, towards=realigning.realign_towards,
        weight=realigning.realign_weight, options=options,
    )  # fmt: skip


def _listed(files: str | Sequence[str]) -> Sequence[str]:
    return [files] if isinstance(files, str) else files


def _range(entries: str) -> tuple[int, ...]:
    start, dash, stop = entries.partition("-")
    if not dash or not start.isdecimal() or not (stop.isdecimal() or not stop) or (stop and int(stop) <= int(start)):
        raise SettingError(f"--entries {entries}: expected FROM-TO, e.g. 0-1500, or 1500- for the rest")
    return (int(start), int(stop)) if stop else (int(start),)


def _layers(mix: str) -> list[int]:
    start, _, stop = mix.partition("-")
    if start.isdecimal() and stop.isdecimal():
        return list(range(int(start), int(stop) + 1))
    return numbers(mix, "--mix") or []


def _renaming(rename: Sequence[str]) -> dict[str, Any]:
    labels = {}
    for item in rename:
        old, equals, new = item.partition("=")
        if not equals or not old:
            raise SettingError(f"--rename {item}: expected OLD=NEW, or OLD= to drop a label")
        labels[old] = new
    return labels


class _Command(TaskCommand):
    groups = tuple(evaluate.groups.values())


evaluate.command_class = _Command
