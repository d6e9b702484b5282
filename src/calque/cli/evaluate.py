"""`calque evaluate`: measures of vectors, and zero-shot tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.checks import finite, given, output_file, positive
from calque.cli.options import (
    Linking,
    Loading,
    Quiet,
    grouped,
    language_pairs,
    news,
    pairs_of,
)
from calque.disk import append_lines
from calque.errors import SettingError

VECTORS = ("retrieval", "word-alignment")
TAGGING = ("ner", "slots", "pos")
TRANSFER = (*TAGGING, "nli", "sentiment", "parsing")
MEANING = ("lexicon", "wsd")
EVERY = (*VECTORS, *TRANSFER, *MEANING)
ALL = ", ".join(EVERY)
_LINKED = ("retrieval", "word-alignment", *TAGGING)  # the latter with --project alone

#: the tasks that an option is for, where it is not for all
USERS: dict[str, tuple[str, ...]] = {
    "langs": (*_LINKED, "lexicon"), "links": _LINKED, "model": ("retrieval", *TAGGING),
    "symmetrize": ("retrieval", *TAGGING), "seed": _LINKED,
    "train": ("retrieval", *TRANSFER, "wsd"), "train_links": ("retrieval",),
    "candidates": ("retrieval",), "non_contextual": ("retrieval",), "similarity": ("retrieval", "lexicon"),
    "extract": ("word-alignment",),
    **dict.fromkeys(("dev", "ceiling", "seeds", "tune", "select", "hidden", "dropout", "epochs", "batch",
                     "learning_rate", "patience", "per_epoch"), TRANSFER),
    "head": (*TAGGING, "nli", "sentiment"), "rename": (*TAGGING, "nli", "sentiment"),
    "format": (*TAGGING, "nli", "sentiment"), "upos": ("parsing",),
    **dict.fromkeys(("project", "unknown", "column"), TAGGING), "per_type": ("ner", "slots"),
    "on_error": (*TRANSFER, "lexicon"), "test_limit": (*TRANSFER, "wsd"),
    "first_senses": ("wsd",), "restrict": ("wsd",),
    "text": ("lexicon",), "entries": ("lexicon",), "lower": ("lexicon",),
    "pretokenized": (*VECTORS, "nli", "sentiment", "lexicon"),
}  # fmt: skip


@grouped
def evaluate(
    context: typer.Context,
    encoder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini (bundled) or word vectors.")
    ],
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"{ALL}.")],
    test: Annotated[
        list[str],
        typer.Option(metavar="FILE...", help="Test file; zero-shot tasks, retrieval and word-alignment: one or more."),
    ],
    loading: Loading,
    linking: Linking,
    langs: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE TARGET", help="Languages of the parallel text or dictionary.")
    ] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Zero-shot tasks: training text, in one or more languages; de=FILE if the file name does not give the "
            "language. wsd: text with senses. retrieval: the text used for alignment, to tell seen from unseen pairs.",
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Zero-shot tasks: text to choose the epoch on (see --select); default: every tenth training text.",
        ),
    ] = None,
    ceiling: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Zero-shot tasks: training text in the test languages, translated (translate-train) or annotated; its "
            "scores are shown for comparison.",
        ),
    ] = None,
    links: Annotated[
        list[str] | None,
        typer.Option(help="Word links of --test; for word-alignment the gold links (default: third column)."),
    ] = None,
    train_links: Annotated[list[str] | None, typer.Option(help="retrieval: word links of --train.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="lexicon: text to average word vectors over, in both languages."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Zero-shot tasks: number of training runs, each with its own seed.")
    ] = 3,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Zero-shot tasks: fine-tune the encoder too, not only a head on frozen vectors."),
    ] = False,
    select: Annotated[
        str,
        typer.Option(
            help="Zero-shot tasks: take the epoch that is best on source text (source), best on average over all of --dev, "
            "other languages included (target: a leak, which the table reports), or last."
        ),
    ] = "source",
    head: Annotated[
        str | None,
        typer.Option(
            help="ner, slots, pos: bilstm-crf (default), linear (default with --tune), linear-crf. nli, sentiment: mean "
            "(two dense layers on the mean vector; default for sentiment), bilstm (max-pooled LSTM; default for nli), "
            "cls (one layer on [CLS]; only with --tune, and the default there)."
        ),
    ] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Zero-shot tasks: hidden size of the head.")] = None,
    dropout: Annotated[
        float | None, typer.Option(callback=finite, min=0, max=0.95, help="Zero-shot tasks: dropout of the head.")
    ] = None,
    upos: Annotated[
        int | None,
        typer.Option(min=0, help="parsing: dimensions of part-of-speech embeddings; 0: words alone."),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(callback=positive, help="Zero-shot tasks: maximum number of epochs.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Zero-shot tasks: texts per update.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(callback=positive, help="Zero-shot tasks: peak learning rate.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Zero-shot tasks: stop after N epochs without improvement.")
    ] = None,
    per_epoch: Annotated[
        int | None,
        typer.Option(
            min=1, help="Zero-shot tasks: texts per epoch, each batch in one randomly chosen source language."
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW...", help="Zero-shot tasks except parsing: rename labels; OLD= drops one."),
    ] = None,
    project: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="ner, slots, pos: label projection: project tags over the word links of this parallel text (with "
            "--langs) and train on the result.",
        ),
    ] = None,
    unknown: Annotated[
        str,
        typer.Option(
            help="ner, slots, pos: what to do with test labels missing from training: raise, miss, drop or skip."
        ),
    ] = "raise",
    on_error: Annotated[
        str, typer.Option(help="Zero-shot tasks: raise an error, or skip what cannot be read.")
    ] = "raise",
    format: Annotated[
        str,
        typer.Option(
            help="Zero-shot tasks: file format, where it cannot be detected. Tags: columns, numbered, conllu, facebook, "
            "snips, hub; labels: header, pairs, label-text, text-label, jsonl, hub."
        ),
    ] = "auto",
    column: Annotated[
        str | None, typer.Option(help="ner, slots, pos: number or name of the column with the tags; default: the last.")
    ] = None,
    per_type: Annotated[
        bool,
        typer.Option("--per-type", help="ner, slots: also show the F1 of each span type; --json always has it."),
    ] = False,
    first_senses: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="wsd: WordNet's index.sense, for lemmas missing from --train."),
    ] = None,
    restrict: Annotated[
        str, typer.Option(help="wsd: nearest sense of the same lemma (lemma) or of all words (none).")
    ] = "lemma",
    entries: Annotated[
        str | None,
        typer.Option(metavar="FROM-TO", help="lexicon: use only these source words of the dictionary, e.g. 0-1500."),
    ] = None,
    lower: Annotated[bool, typer.Option("--lower", help="lexicon: ignore case.")] = False,
    candidates: Annotated[
        str, typer.Option(help="retrieval: search all words (all) or linked words only (linked).")
    ] = "all",
    similarity: Annotated[str, typer.Option(help="retrieval, lexicon: csls or cosine.")] = "csls",
    non_contextual: Annotated[
        bool, typer.Option("--non-contextual", help="retrieval: only the first occurrence of each word form.")
    ] = False,
    extract: Annotated[str, typer.Option(help="word-alignment: mutual, iterative, softmax or transport.")] = "mutual",
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
        int | None, typer.Option(min=1, help="Zero-shot tasks, wsd: use only N texts of each --test and --dev file.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Add the scores to the model card in ENCODER.")] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --record: JSON lines with the scores of the encoder before alignment (its --out); the card then names "
            "every figure that fell.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Append the scores to this JSON lines file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure an encoder on a task.

    Word retrieval, word alignment, bilingual lexicon, word senses, or zero-shot transfer: a task learnt in one language
    and tested in others.
    """
    load, say = loading.arguments(), news(quiet)
    if task not in (*VECTORS, *TRANSFER, *MEANING):
        raise SettingError(f"unknown task {task!r}, expected one of {ALL}")
    _refuse_unused(context, task, project)
    if against is not None and not record:
        raise SettingError("--against is only for --record")
    base = None
    if against is not None:
        from calque.runs.card import read_scores

        base = read_scores(against)
    files = [*test, *(train or []), *(dev or []), *(ceiling or []), *(links or []), *(train_links or []), *(text or [])]
    output_file("--out", out, [*files, *(project or []), encoder, first_senses], langs or [])
    if task in TRANSFER:
        from calque.runs.transfer import table, transfer

        if not train:
            raise SettingError(f"{task} needs training text: --train FILE")
        scores = transfer(
            encoder, task, train=train, test=test, dev=dev or [], ceiling=ceiling or [], seeds=seeds, tune=tune,
            select=select, test_limit=test_limit,
            rename=_renaming(rename or []), project=project or [], project_links=links or [],
            project_langs=pairs_of(langs or [], len(project)) if project else [],
            words=linking.words(False, None), pretokenized=bool(pretokenized), limit=limit,
            on_error=on_error, format=format, column=column, load=load,
            options={"epochs": epochs, "batch": batch, "learning_rate": learning_rate, "patience": patience,
                     "per_epoch": per_epoch},
            head={"head": head, "hidden": hidden, "dropout": dropout, **({"unknown": unknown} if task in TAGGING else {}),
                  **({"upos": upos} if task == "parsing" else {})},
            progress=not quiet, say=say,
        )  # fmt: skip
        shown = table(scores, kinds=per_type)
    else:
        scores, shown = _plain(
            encoder, task, test, langs or [], links or [], train or [], train_links or [], text or [], load, say,
            words={**vars(linking), "limit": limit,
                   # Gold links count the words of the text as it stands.
                   "pretokenized": task == "word-alignment" if pretokenized is None else pretokenized},
            options={"candidates": candidates, "similarity": similarity, "contextual": not non_contextual,
                     "method": extract, "first_senses": first_senses, "restrict": restrict, "on_error": on_error,
                     "entries": _range(entries), "lower": lower, "test_limit": test_limit}, progress=not quiet,
        )  # fmt: skip
    if out is not None:
        append_lines(out, (score.to_json() + "\n" for score in scores))
    if record:
        from calque.runs.card import add_scores

        add_scores(Path(encoder), [score.to_dict() for score in scores], base)
    if as_json:
        print(json.dumps({**scores[0].to_dict(), "scores": [score.to_dict() for score in scores]}, default=str))
    else:
        print(shown)


def _refuse_unused(context: typer.Context, task: str, project: list[str] | None) -> None:
    """An option that the task does not use is an error: who gave it thinks that it counts."""
    for name, option in given(context).items():
        users = USERS.get(name, EVERY)
        if task not in users:
            runs = name == "seed" and task in TRANSFER
            hint = " (runs use the seeds 0, 1, …; --seeds sets how many)" if runs else ""
            raise SettingError(f"{option} does not apply to {task}{hint}; it is for {', '.join(users)}")
        if task in TAGGING and not project and name in ("langs", "links", "model", "symmetrize", "seed"):
            hint = "; give the language in the file name, or as de=FILE" if name == "langs" else ""
            raise SettingError(f"{option} does not apply to {task} without the parallel text of --project{hint}")


def _plain(encoder, task, test, langs, links, train, train_links, text, load, say, *, words, options, progress):
    """Tasks that nothing is trained for."""
    from calque.linking import Words
    from calque.runs.evaluate import evaluate_all as run
    from calque.runs.evaluate import table

    if task == "wsd":
        from calque.runs.meaning import disambiguate

        if not train:
            raise SettingError("wsd needs text with senses: --train semcor.data.xml")
        scores = disambiguate(
            encoder, train=_one(train, "train"), test=test, limit=words["limit"], load=load, progress=progress, say=say,
            **{name: options[name] for name in ("first_senses", "restrict", "test_limit")},
        )  # fmt: skip
        return scores, table(scores)
    if not langs:
        raise SettingError(f"{task} needs --langs, e.g. --langs en de")
    if task == "lexicon":
        from calque.runs.meaning import lexicon

        scores = lexicon(
            encoder, test=_one(test, "test"), langs=pairs_of(langs, 1)[0], texts=text, pretokenized=words["pretokenized"],
            limit=words["limit"], load=load, progress=progress, say=say,
            **{name: options[name] for name in ("similarity", "entries", "lower", "on_error")},
        )  # fmt: skip
        return scores, table(scores)
    scores = run(
        encoder, task, tests=test, langs=language_pairs(langs), links=links, train=train, train_links=train_links,
        words=Words(**words), load=load, options=options, progress=progress, say=say,
    )  # fmt: skip
    return scores, table(scores)


def _one(files: Sequence[str], option: str) -> str:
    if len(files) != 1:
        raise SettingError(f"--{option} takes one file here, got {len(files)}")
    return files[0]


def _range(entries: str | None) -> tuple[int, int | None]:
    if entries is None:
        return 0, None
    start, dash, stop = entries.partition("-")
    if not dash or not start.isdecimal() or not (stop.isdecimal() or not stop) or (stop and int(stop) <= int(start)):
        raise SettingError(f"--entries {entries}: expected FROM-TO, e.g. 0-1500, or 1500- for the rest")
    return int(start), int(stop) if stop else None


def _renaming(rename: Sequence[str]) -> dict[str, Any]:
    found = {}
    for item in rename:
        old, equals, new = item.partition("=")
        if not equals or not old:
            raise SettingError(f"--rename {item}: expected OLD=NEW, or OLD= to drop a label")
        found[old] = new
    return found
