"""`calque evaluate`: any task of the table, or a class from elsewhere, with the options that it has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.about_task import TaskCommand
from calque.cli.checks import finite, given, output_file, positive
from calque.cli.options import Linking, Loading, Quiet, by_name, grouped, language_pairs, news, numbers
from calque.disk import append_lines
from calque.errors import SettingError
from calque.tasks.inputs import FILES, Inputs
from calque.tasks.table import TASKS, TaskRow, users

#: what a task with projected labels has only for the parallel text
_OF_PROJECTION = ("langs", "links", "model", "symmetrize", "seed")


@dataclass(frozen=True)
class Texts:
    """Files."""

    test: Annotated[list[str], typer.Option(metavar="FILE...", help="Test files, one or more.")]
    train: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Zero-shot tasks: training text, in one or more languages; de=FILE if the file name does not give the "
            "language. wsd: text with senses. retrieval: the text used for alignment, to tell seen from unseen pairs.",
        ),
    ] = None
    dev: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Text to choose the epoch on (see --select); default: every tenth training text.",
        ),
    ] = None
    ceiling: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Training text in the test languages, translated (translate-train) or annotated; its scores are shown for "
            "comparison.",
        ),
    ] = None
    translated: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Test text translated into the language of --train (translate-test); de=FILE is a translation from German.",
        ),
    ] = None
    links: Annotated[
        list[str] | None,
        typer.Option(help="Word links of --test; for word-alignment the gold links (default: third column)."),
    ] = None
    train_links: Annotated[list[str] | None, typer.Option(help="Word links of --train.")] = None
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="Text to average word vectors over, in both languages."),
    ] = None
    project: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Label projection: project tags over the word links of this parallel text (with --langs) and train on the "
            "result.",
        ),
    ] = None
    first_senses: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="WordNet's index.sense, for lemmas missing from --train."),
    ] = None


@dataclass(frozen=True)
class Measuring:
    """What is measured."""

    candidates: Annotated[str, typer.Option(help="Search all words (all) or linked words only (linked).")] = "all"
    similarity: Annotated[str, typer.Option(help="csls or cosine.")] = "csls"
    contextual: Annotated[
        bool, typer.Option(" /--non-contextual", help="Only the first occurrence of each word form.")
    ] = True
    method: Annotated[str, typer.Option("--extract", help="mutual, iterative, softmax or transport.")] = "mutual"
    restrict: Annotated[str, typer.Option(help="Nearest sense of the same lemma (lemma) or of all words (none).")] = (
        "lemma"
    )
    entries: Annotated[
        str | None,
        typer.Option(metavar="FROM-TO", help="Use only these source words of the dictionary, e.g. 0-1500."),
    ] = None
    lower: Annotated[bool, typer.Option("--lower", help="Ignore case.")] = False


@dataclass(frozen=True)
class Reading:
    """How files are read."""

    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW...", help="Rename labels; OLD= drops one."),
    ] = None
    unknown: Annotated[
        str, typer.Option(help="What to do with test labels missing from training: raise, miss, drop or skip.")
    ] = "raise"
    on_error: Annotated[str, typer.Option(help="Raise an error, or skip what cannot be read.")] = "raise"
    format: Annotated[
        str,
        typer.Option(
            help="File format, where it cannot be detected. Tags: columns, numbered, conllu, facebook, snips, hub; labels: "
            "header, pairs, label-text, text-label, jsonl, hub."
        ),
    ] = "auto"
    column: Annotated[
        str | None, typer.Option(help="Number or name of the column with the tags; default: the last.")
    ] = None
    probe: Annotated[
        str | None,
        typer.Option(
            help="What to make spans of: pos, dependencies (CoNLL-U), constituents (bracketed trees), entities (tags of "
            "spans); or the name of the labels in JSON lines."
        ),
    ] = None


@dataclass(frozen=True)
class Training:
    """How the task is learnt."""

    seeds: Annotated[int, typer.Option(min=1, help="Number of training runs, each with its own seed.")] = 3
    tune: Annotated[
        bool, typer.Option("--tune", help="Fine-tune the encoder too, not only a head on frozen vectors.")
    ] = False
    select: Annotated[
        str,
        typer.Option(
            help="Take the epoch that is best on source text (source), best on average over all of --dev, other languages "
            "included (target: a leak, which the table reports), or last."
        ),
    ] = "source"
    head: Annotated[
        str | None,
        typer.Option(
            help="ner, slots, pos: bilstm-crf (default), linear (default with --tune), linear-crf. nli, sentiment: mean "
            "(two dense layers on the mean vector; default for sentiment), bilstm (max-pooled LSTM; default for nli), "
            "esim (words of both texts aligned, then LSTMs; nli only), cls (one layer on [CLS]; only with --tune, and the "
            "default there)."
        ),
    ] = None
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden size of the head.")] = None
    dropout: Annotated[float | None, typer.Option(callback=finite, min=0, max=0.95, help="Dropout of the head.")] = None
    upos: Annotated[
        int | None, typer.Option(min=0, help="Dimensions of part-of-speech embeddings; 0: words alone.")
    ] = None
    mix: Annotated[
        str | None,
        typer.Option(metavar="LAYERS", help="Mix these layers, e.g. 0,4,8 or 0-12; how much each counts is learnt."),
    ] = None
    epochs: Annotated[float | None, typer.Option(callback=positive, help="Maximum number of epochs.")] = None
    batch: Annotated[int | None, typer.Option(min=1, help="Texts per update.")] = None
    learning_rate: Annotated[float | None, typer.Option(callback=positive, help="Peak learning rate.")] = None
    patience: Annotated[int | None, typer.Option(min=1, help="Stop after N epochs without improvement.")] = None
    per_epoch: Annotated[
        int | None,
        typer.Option(min=1, help="Texts per epoch, each batch in one randomly chosen source language."),
    ] = None


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
    loading: Loading,
    linking: Linking,
    output: Output,
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
            help="Use only N texts of each --train file, evenly spaced; of --text and a parallel --test the first N. "
            "retrieval: --train is read whole, to tell seen pairs.",
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

    Word retrieval, word alignment, bilingual lexicon, word senses, or zero-shot transfer: a task learnt in one language
    and tested in others.
    """
    row, named = TASKS[task], given(context)
    _refuse_unused(named, task, row, projected=bool(texts.project))
    if output.against is not None and not output.record:
        raise SettingError("--against is only for --record")
    base = None
    if output.against is not None:
        from calque.runs.compare import read_scores

        base = read_scores(output.against)
    files = {name: value for name, value in vars(texts).items() if value}
    inputs = Inputs(
        task,
        **files,
        langs=language_pairs(langs or []),
        words=linking.words(row.pretokenized if pretokenized is None else pretokenized, limit),
        test_limit=test_limit,
        say=news(output.quiet),
    )
    options = {name: value for group in (measuring, reading, training) for name, value in vars(group).items()
               if name in named}  # fmt: skip
    for name, read in (("entries", _range), ("rename", _renaming), ("mix", _layers)):
        if name in options:
            options[name] = read(options[name])
    if option:
        from calque.runs.study.options import options_of

        options |= by_name(option, options_of(task))
    every = [file for name in FILES if name in files for file in _listed(files[name])]
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


def _refuse_unused(named: Mapping[str, str], task: str, row: TaskRow, *, projected: bool) -> None:
    """An option that the task does not use is an error: who gave it thinks that it counts."""
    for name, option in named.items():
        having = users(name)
        if having and name not in row.takes:
            runs = name == "seed" and "seeds" in row.options
            hint = " (runs use the seeds 0, 1, …; --seeds sets how many)" if runs else ""
            raise SettingError(f"{option} does not apply to {task}{hint}; it is for {', '.join(having)}")
        if "project" in row.files and not projected and name in _OF_PROJECTION:
            hint = "; give the language in the file name, or as de=FILE" if name == "langs" else ""
            raise SettingError(f"{option} does not apply to {task} without the parallel text of --project{hint}")


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
