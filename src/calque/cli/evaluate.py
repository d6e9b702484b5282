"""The command `calque evaluate`, which runs a task from `TASKS` or from another package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import typer

from calque.cli.checks import given, output_file, refuse_unused
from calque.cli.options import (
    Linking,
    Loading,
    SubjectCommand,
    Tracking,
    grouped,
    news,
    own_options,
)
from calque.errors import SettingError
from calque.named import is_path
from calque.runs.settings import (
    OwnOption,
    PairLangs,
    Quiet,
    Several,
    files,
    numbers,
    opt,
    out_file,
    pairs_of,
    warn_of_languages,
)
from calque.storage import append_lines, json_text
from calque.tasks.inputs import FIELDS, Inputs
from calque.tasks.table import TASKS, TaskRow, users

#: options that tasks with a trained head accept only with parallel text
_OF_PARALLEL = ("links", "langs", "model", "symmetrize", "seed", "one_based")


@dataclass(frozen=True)
class Texts:
    """Input files of a task."""

    test: list[str] = opt(..., "One or more test files.", metavar="FILE...")
    train: Several = files(
        "Training text; write de=FILE if the file name does not contain the language. For wsd, give sense-annotated text. For "
        "retrieval, give the text that the encoder was aligned on, so that unseen word pairs are also scored separately."
    )
    dev: Several = files(
        "Development text for choosing the epoch (see --select; default: every tenth training text is held out), or for "
        "choosing the mining threshold of the task sentences."
    )
    ceiling: Several = files(
        "Training text in the test languages, used to measure an upper bound of the scores."
    )
    links: Several = files(
        "Word alignments of --test; for word-alignment, gold alignments (default: column 3)."
    )
    train_links: Several = files("Word alignments of the --train text.")
    text: Several = files(
        "Plain text in both languages, over which the vectors of each word are averaged."
    )
    project: Several = files(
        "Parallel text (with --langs) for label projection: tags predicted for its source side are copied along word links."
    )
    first_senses: str | None = opt(
        None, "WordNet's index.sense, used for lemmas missing from --train.", metavar="FILE"
    )


#: help texts of options, which are shown instead of the descriptions in docstrings
_HELPS = {
    "candidates": "Words among which translations are searched: all words (all; default), only linked words (linked; for "
    "retrieval) or only the words of the dictionary (dictionary; for lexicon).",
    "similarity": "Similarity measure: csls (default) or cosine (default for the task sentences).",
    "sentence_pooling": "Sentence pooling: own (the saved pooling of a sentence-transformers folder; default there), words "
    "(mean of word vectors; default otherwise), subwords (mean of subword vectors) or cls (vector of the [CLS] token).",
    "prompt": "Prompt to put before each text, e.g. 'query: ' for e5, or the name of a prompt saved in the folder, e.g. query; "
    "default: the folder's default prompt, if it has one.",
    "contextual": "Use only the first occurrence of each word type; by default, all occurrences are used.",
    "on_error": "Handling of text that cannot be read: stop with an error (raise; default) or skip the text (skip).",
    "format": "File format, if it cannot be detected. For tagged words: columns, numbered, conllu, facebook or hub. For "
    "labelled texts: header, pairs, label-text, text-label, jsonl or hub.",
    "seeds": "Number of training runs, each with a different seed; default: 5, or 3 with --tune.",
    "tune": "Train the encoder together with the task head; otherwise, the encoder is frozen.",
    "select": "Epoch to use: the best on source-language text (source; default), the best on average over all languages of "
    "--dev (target; the table then states that target-language labels were used), or the last epoch (last).",
    "head": "Task head. For ner, slots and pos: bilstm-crf (default), linear (default with --tune) or "
    "linear-crf. For nli and sentiment: mean (two dense layers on the mean vector; default for sentiment), bilstm "
    "(max-pooled LSTM; default for nli), esim (attention between both texts, then LSTMs; only for nli) or cls (one layer on "
    "[CLS]; only with --tune, where it is the default).",
    "epochs": "Maximum number of epochs; the default depends on the task.",
    "learning_rate": "Maximum learning rate; the default depends on the task, and with --tune on the encoder's size.",
    "warmup": "Fraction of updates during which the learning rate rises from 0; default: 0, or 0.1 for most tasks with --tune.",
    "decay": "Learning-rate schedule after the warm-up: constant (default), linear (default with --tune) or cosine.",
    "clip": "Maximum gradient norm; default: 5, or 1 for most tasks with --tune.",
}


@dataclass(frozen=True)
class Output:
    """Options for the output of the scores."""

    record: bool = opt(False, "Add the scores to the model card in the folder ENCODER.", "--record")
    out: Path | None = out_file(None, "JSON Lines file to which the scores are appended.")
    as_json: bool = opt(False, "Print the scores as one JSON object instead of a table.", "--json")
    quiet: Quiet = False


class TaskCommand(SubjectCommand):
    """The command `calque evaluate`, whose options depend on the task."""

    hides = tuple(name for name in (*FIELDS, "rename") if users(name))
    asks_for = "calque evaluate ENCODER TASK --help lists the options of a task"
    spelled: ClassVar[Mapping[str, str]] = {"--non-contextual": "contextual", "--extract": "method"}
    helps: ClassVar[Mapping[str, str]] = _HELPS

    def find_subject(self, words: Sequence[str]) -> str | None:
        first = self._positional(words)
        if len(first) > 1 and (
            first[-1] in TASKS or is_path(first[-1])
        ):  # an encoder can also have the name of a task
            return first[-1]
        named = [word for word in words if not word.startswith("-")][1:]
        return next((word for word in named if word in TASKS), None) or next(
            filter(is_path, named), None
        )

    def subjects(self) -> Mapping[str, str]:
        return {f"calque evaluate ENCODER {name}": name for name in TASKS}

    def _positional(self, words: Sequence[str]) -> list[str]:
        """Return the arguments before the first option."""
        first_option = next((k for k, word in enumerate(words) if word.startswith("-")), len(words))
        return list(words[:first_option])

    def types_of(self, subject: str) -> Mapping[str, Any]:
        from calque.runs.study.values import Few, options_of

        seeds = {"seeds": Few} if "seeds" in TASKS[subject].takes else {}
        return {**options_of(subject), **seeds}

    def described_by(self, subject: str) -> list[Any]:
        return list(TASKS.load(subject).takes())

    def refuse(self, name: str, option: str, subject: str) -> None:
        if having := users(name):
            raise SettingError(
                f"{option} does not apply to {subject}; it is for {', '.join(having)}"
            )

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
    encoders: list[str] = typer.Argument(
        ...,
        metavar="ENCODER",
        help="One or more encoders: Hugging Face names, folders, mini (bundled) or word vectors.",
    ),
    task: str = typer.Argument(
        ..., metavar="TASK", help="Name of a task, e.g. retrieval, or package.module:Class."
    ),
    texts: Texts,
    loading: Loading,
    linking: Linking,
    output: Output,
    tracking: Tracking,
    langs: PairLangs = None,
    by_layer: str | None = typer.Option(
        None,
        "--layers",
        help="Layers to compare (all, 4,8,12 or 0-12); the layer that is best on half of the pairs is scored on the rest.",
    ),
    option: OwnOption = None,
    rename: list[str] | None = typer.Option(
        None, metavar="OLD=NEW...", help="Rename label OLD to NEW; OLD= drops it."
    ),
    pretokenized: bool | None = typer.Option(
        None,
        "--pretokenized/--tokenize",
        help="Split text only at spaces (default for word-alignment) or tokenise it.",
    ),
    limit: int | None = typer.Option(
        None,
        min=1,
        help="Use only N evenly spaced texts of --text, of parallel or plain --test files, and of each --train file (retrieval "
        "uses the whole file). With the task sentences, also use only N of --dev.",
    ),
    test_limit: int | None = typer.Option(
        None, min=1, help="Use only N evenly spaced texts per --test or --dev file."
    ),
) -> None:
    """Measure encoders on a task.

    Tasks include word and sentence retrieval, word alignment, bilingual lexicon induction,
    word-sense disambiguation, and zero-shot transfer, in which a task head is trained in one
    language and tested in others.
    """
    from calque.input_texts import SKIP_UNUSABLE

    row = TASKS[task]
    _refuse_unused(given(context), task, row, projected=bool(texts.project))
    _check_encoders(encoders, record=output.record)
    given_files = {name: value for name, value in vars(texts).items() if value}
    computes_links = "train_links" in row.files or "project" in row.files
    if computes_links and linking.one_based is not None and not (texts.links or texts.train_links):
        raise SettingError(
            "--one-based and --zero-based are only for files of word links; add --links FILE"
        )
    words = linking.words(row.pretokenized if pretokenized is None else pretokenized, limit)
    say, has_pairs = news(output.quiet), row.languages == "pairs" or bool(texts.project)
    pairs = pairs_of(texts.project or texts.test if has_pairs else [], langs or [])
    warn_of_languages(chain(*pairs))
    inputs = Inputs(task, **given_files, langs=pairs, words=words, test_limit=test_limit, say=say)
    options = own_options(context, option) | ({"rename": _renaming(rename)} if rename else {})
    command: Any = context.command
    if SKIP_UNUSABLE and "on_error" in command.types_of(task):
        options["on_error"] = "skip"
    layers = by_layer if by_layer == "all" else numbers(by_layer)
    if layers is not None:
        refuse_unused(
            context, dict.fromkeys(("layer", "record"), "cannot be combined with --layers")
        )
    lists = [[each] if isinstance(each, str) else each for each in given_files.values()]
    output_file("--out", output.out, [*chain(*lists), *encoders], langs or [], adds=True)
    from calque.runs.evaluate import evaluate_each as run

    def finish(several: Sequence[Sequence[Any]]) -> None:
        """Write the scores to the files, and then print them, even if writing failed."""
        try:
            if output.out is not None:
                append_lines(
                    output.out, (score.to_json() + "\n" for scores in several for score in scores)
                )
            if output.record:
                _record(encoders, several)
        finally:
            show(several)

    def show(several: Sequence[Sequence[Any]]) -> None:
        if output.as_json:
            print(json_text(_as_json(encoders, several), default=str), flush=True)
        else:
            print(_shown(encoders, several, by_layer=by_layer is not None), flush=True)

    progress, load = not output.quiet, loading.arguments()
    run(
        encoders,
        inputs,
        options=options,
        load=load,
        layers=layers,
        out=output.out,
        then=finish,
        progress=progress,
    )


def _record(encoders: Sequence[str], several: Sequence[Sequence[Any]]) -> None:
    """Add the scores to the model card in the folder of each encoder."""
    from calque.runs.card import add_scores

    for encoder, scores in zip(encoders, several, strict=True):
        add_scores(Path(encoder), [score.to_dict() for score in scores])


def _check_encoders(encoders: Sequence[str], *, record: bool) -> None:
    """Check the names of all encoders first, because evaluating one encoder can take long.

    Raises:
        SettingError: an encoder is given twice, or scores cannot be recorded in its folder.
        InputError: there are several encoders, and one of them does not exist.
    """
    places: dict[str, str] = {}
    for encoder in encoders:
        place = os.path.realpath(encoder) if os.path.exists(encoder) else encoder
        if (first := places.setdefault(place, encoder)) is not encoder:
            raise SettingError(
                f"each encoder must be given once, got {first} and {encoder}; remove one of them"
            )
        if record and not (Path(encoder) / "calque.json").is_file():
            fact = f"--record adds scores to the model card in a folder written by calque, but {encoder} has no calque.json"
            raise SettingError(
                f"{fact}; pass a folder that has one, or save the scores with --out FILE"
            )
    if len(encoders) > 1:
        from calque.encoders.names import check_encoder

        for encoder in encoders:
            check_encoder(encoder)


def _shown(encoders: Sequence[str], several: Sequence[Sequence[Any]], *, by_layer: bool) -> str:
    """Return the scores of the encoders as text."""
    from calque.runs.score_table import layer_table, table, table_of_encoders

    if by_layer and len(encoders) > 1:
        return "\n\n".join(
            f"{name}\n{layer_table(one)}" for name, one in zip(encoders, several, strict=True)
        )
    if by_layer:
        return layer_table(several[0])
    if len(encoders) > 1:
        return table_of_encoders(dict(zip(encoders, several, strict=True)))
    return table(several[0])


def _as_json(encoders: Sequence[str], several: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the scores as a JSON object: the main score with the list of all scores, or one such
    object for each encoder.
    """
    found = []
    for scores in several:
        every = [score.to_dict() for score in scores]
        headline = next(
            (score for score in every if score["metric"].endswith(".test-half")), every[0]
        )
        found.append({**headline, "scores": every})
    if len(encoders) == 1:
        return found[0]
    return {"encoders": [{"name": name, **one} for name, one in zip(encoders, found, strict=True)]}


def _refuse_unused(named: Mapping[str, str], task: str, row: TaskRow, *, projected: bool) -> None:
    """Raise an error if the user gave an option that the task does not use."""
    for name, option in named.items():
        having = users(name)
        if having and name not in row.takes:
            raise SettingError(f"{option} does not apply to {task}; it is for {', '.join(having)}")
        if name in _OF_PARALLEL and "project" in row.files and not projected:
            hint = "; --seeds sets the number of runs" if name == "seed" else ""
            raise SettingError(
                f"{option} does not apply to {task} without the parallel text of --project{hint}"
            )


def _renaming(rename: Sequence[str]) -> dict[str, Any]:
    labels = {}
    for item in rename:
        old, equals, new = item.partition("=")
        if not equals or not old:
            raise SettingError(f"--rename must be OLD=NEW, or OLD= to drop a label, got {item}")
        labels[old] = new
    return labels


evaluate.command_class = TaskCommand
