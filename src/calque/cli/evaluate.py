"""`calque evaluate`: any task of the table or of another package, with its options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import typer

from calque.cli.checks import given, output_file, refuse_unused
from calque.cli.options import Linking, Loading, SubjectCommand, Tracking, grouped, news, own_options
from calque.errors import SettingError
from calque.named import is_path
from calque.runs.settings import (
    EncoderArgument,
    OwnOption,
    PairLangs,
    Quiet,
    Several,
    files,
    language_pairs,
    numbers,
    opt,
)
from calque.storage import append_lines
from calque.tasks.inputs import FIELDS, Inputs
from calque.tasks.table import TASKS, TaskRow, users

#: options of a trained task that apply to parallel text only
_OF_PARALLEL = ("links", "langs", "model", "symmetrize", "seed")


@dataclass(frozen=True)
class Texts:
    """Files."""

    test: list[str] = opt(..., "Test files, one or more.", metavar="FILE...")
    train: Several = files(
        "Zero-shot tasks: training text, in one or more languages; de=FILE if the file name does not give the language. "
        "wsd: text with senses. retrieval: the text used for alignment, to distinguish seen from unseen pairs."
    )
    dev: Several = files(
        "Text to choose the epoch on (see --select); default: every tenth training text. sentences: text to choose the "
        "threshold of mining on."
    )
    ceiling: Several = files("Training text in the test languages, translated (translate-train) or annotated.")
    links: Several = files("Word links of --test; for word-alignment the gold links (default: third column).")
    train_links: Several = files("Word links of --train.")
    text: Several = files("Text to average word vectors over, in both languages.")
    project: Several = files(
        "Label projection: project tags over the word links of this parallel text (with --langs) and train on the result."
    )
    first_senses: str | None = opt(None, "WordNet's index.sense, for lemmas missing from --train.", metavar="FILE")


#: help of options whose docstrings are too short
_HELPS = {
    "candidates": "Search all words (all) or linked words only (linked); default: all.",
    "similarity": "csls (default) or cosine; sentences: cosine by default.",
    "sentence_pooling": "A sentence's vector: own (as saved in a sentence-transformers folder; default there), words (mean of "
    "word vectors; default elsewhere), subwords (mean of all subwords) or cls.",
    "contextual": "Only the first occurrence of each word form.",
    "on_error": "Raise an error (raise, default), or skip what cannot be read (skip).",
    "format": "File format, where it cannot be detected. Tags: columns, numbered, conllu, facebook, hub; labels: "
    "header, pairs, label-text, text-label, jsonl, hub.",
    "seeds": "Number of training runs, each with its own seed; default: 5, with --tune 3.",
    "tune": "Fine-tune the encoder too, not only a head on frozen vectors.",
    "select": "Take the epoch that is best on source text (source, default), best on average over all of --dev, other "
    "languages included (target: a leak, which the table reports), or last.",
    "head": "ner, slots, pos: bilstm-crf (default), linear (default with --tune), linear-crf. nli, sentiment: mean "
    "(two dense layers on the mean vector; default for sentiment), bilstm (max-pooled LSTM; default for nli), "
    "esim (words of both texts aligned, then LSTMs; nli only), cls (one layer on [CLS]; only with --tune, and the "
    "default there).",
    "epochs": "Maximum number of epochs; the default is the task's.",
    "learning_rate": "Peak learning rate; the default is the task's, with --tune one that follows from the encoder's width.",
    "warmup": "Fraction of the updates over which the rate rises linearly from 0; default: 0, with --tune mostly 0.1.",
    "decay": "Learning rate afterwards: constant, linear or cosine; default: constant, with --tune linear.",
    "clip": "Largest norm of the gradient; default: 5, with --tune mostly 1.",
}


@dataclass(frozen=True)
class Output:
    """Results."""

    record: bool = opt(False, "Add the scores to the model card in ENCODER.", "--record")
    out: Path | None = opt(None, "Append the scores to this JSON lines file.")
    as_json: bool = opt(False, "Print one JSON object as the last line.", "--json")
    quiet: Quiet = False


class TaskCommand(SubjectCommand):
    """Command with a task as subject."""

    hides = tuple(name for name in (*FIELDS, "rename") if users(name))
    asks_for = "calque evaluate ENCODER TASK --help lists the options of a task"
    spelled: ClassVar[Mapping[str, str]] = {"--non-contextual": "contextual", "--extract": "method"}
    helps: ClassVar[Mapping[str, str]] = _HELPS

    def find_subject(self, words: Sequence[str]) -> str | None:
        named = [word for word in words if not word.startswith("-")][1:]
        return next((word for word in named if word in TASKS), None) or next(filter(is_path, named), None)

    def subjects(self) -> Mapping[str, str]:
        return {f"calque evaluate ENCODER {name}": name for name in TASKS}

    def types_of(self, subject: str) -> Mapping[str, Any]:
        from calque.runs.study.values import Few, options_of

        seeds = {"seeds": Few} if "seeds" in TASKS[subject].takes else {}
        return {**options_of(subject), **seeds}

    def described_by(self, subject: str) -> list[Any]:
        return list(TASKS.load(subject).takes())

    def refuse(self, name: str, option: str, subject: str) -> None:
        if having := users(name):
            raise SettingError(f"{option} does not apply to {subject}; it is for {', '.join(having)}")

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        task = ctx.meta["subject"]
        if task is None:
            return super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{task}: {TASKS[task].help}")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        if ctx.meta["subject"] is None:
            with formatter.section("Tasks"):
                formatter.write_dl([(name, row.help) for name, row in TASKS.items()])

    def applies(self, param: Any, subject: str | None) -> bool:
        if subject is None:
            return not param.hidden
        return not users(param.name) or param.name in TASKS[subject].takes


@grouped
def evaluate(
    *,
    context: typer.Context,
    encoder: EncoderArgument,
    task: str = typer.Argument(..., metavar="TASK", help="One of those below, or package.module:Class."),
    texts: Texts,
    loading: Loading,
    linking: Linking,
    output: Output,
    tracking: Tracking,
    langs: PairLangs = None,
    by_layer: str | None = typer.Option(
        None,
        "--layers",
        help="all, 4,8,12 or 0-12: choose the best layer on half of the pairs, and score it on the others.",
    ),
    option: OwnOption = None,
    rename: list[str] | None = typer.Option(None, metavar="OLD=NEW...", help="Rename labels; OLD= drops one."),
    pretokenized: bool | None = typer.Option(
        None, "--pretokenized/--tokenize", help="Words are already separated by spaces (default for word-alignment)."
    ),
    limit: int | None = typer.Option(
        None,
        min=1,
        help="Use only N texts of each --train file, evenly spaced (retrieval: all), and the first N of --text, --dev of "
        "sentences, and parallel or plain --test.",
    ),
    test_limit: int | None = typer.Option(None, min=1, help="Use only N texts of each --test and --dev file."),
) -> None:
    """Measure an encoder on a task.

    Retrieval of words or sentences, word alignment, bilingual lexicon, word senses, or zero-shot transfer: a task trained in
    one language and tested in others.
    """
    from calque.input_texts import SKIP_UNUSABLE

    row = TASKS[task]
    _refuse_unused(given(context), task, row, projected=bool(texts.project))
    if output.record and not (Path(encoder) / "calque.json").is_file():
        fact = f"--record adds scores to the model card of a folder that calque wrote, and {encoder} has no calque.json"
        raise SettingError(f"{fact}: name such a folder, or save the scores with --out FILE")
    given_files = {name: value for name, value in vars(texts).items() if value}
    words = linking.words(row.pretokenized if pretokenized is None else pretokenized, limit)
    pairs, say = language_pairs(langs or []), news(output.quiet)
    inputs = Inputs(task, **given_files, langs=pairs, words=words, test_limit=test_limit, say=say)
    options = own_options(context, option) | ({"rename": _renaming(rename)} if rename else {})
    command: Any = context.command
    if SKIP_UNUSABLE and "on_error" in command.types_of(task):
        options["on_error"] = "skip"
    layers = by_layer if by_layer == "all" else numbers(by_layer)
    if layers is not None:
        refuse_unused(context, dict.fromkeys(("layer", "record"), "does not go together with --layers"))
    lists = [[each] if isinstance(each, str) else each for each in given_files.values()]
    output_file("--out", output.out, [*chain(*lists), encoder], langs or [], adds=True)
    from calque.runs.evaluate import evaluate as run
    from calque.runs.score_table import layer_table, table

    def show(scores: Sequence[Any]) -> None:
        """Print scores before they are written, because a file may not be writable."""
        if output.as_json:
            every = [score.to_dict() for score in scores]
            headline = next((score for score in every if score["metric"].endswith(".test-half")), every[0])
            print(json.dumps({**headline, "scores": every}, default=str), flush=True)
        else:
            print(table(scores) if by_layer is None else layer_table(scores), flush=True)
        if output.out is not None:
            append_lines(output.out, (score.to_json() + "\n" for score in scores))

    progress, load = not output.quiet, loading.arguments()
    scores = run(
        encoder, inputs, options=options, load=load, layers=layers, out=output.out, then=show, progress=progress
    )
    if output.record:
        from calque.runs.card import add_scores

        add_scores(Path(encoder), [score.to_dict() for score in scores])


def _refuse_unused(named: Mapping[str, str], task: str, row: TaskRow, *, projected: bool) -> None:
    """Raise an error for an option that the task does not use."""
    for name, option in named.items():
        having = users(name)
        if having and name not in row.takes:
            raise SettingError(f"{option} does not apply to {task}; it is for {', '.join(having)}")
        if name in _OF_PARALLEL and "project" in row.files and not projected:
            hint = "; --seeds sets the number of runs" if name == "seed" else ""
            raise SettingError(f"{option} does not apply to {task} without the parallel text of --project{hint}")


def _renaming(rename: Sequence[str]) -> dict[str, Any]:
    labels = {}
    for item in rename:
        old, equals, new = item.partition("=")
        if not equals or not old:
            raise SettingError(f"--rename {item}: expected OLD=NEW, or OLD= to drop a label")
        labels[old] = new
    return labels


evaluate.command_class = TaskCommand
