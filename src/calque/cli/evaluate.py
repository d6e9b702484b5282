"""`calque evaluate`: measures of vectors, and zero-shot tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.options import (
    Limit,
    MaxLength,
    Model,
    Pooling,
    Quiet,
    Seed,
    Symmetrize,
    loading,
    news,
    pairs_of,
)
from calque.errors import SettingError

VECTORS = ("retrieval", "word-alignment")
TAGGING = ("ner", "slots", "pos")
TRANSFER = (*TAGGING, "nli", "sentiment", "parsing")
MEANING = ("lexicon", "wsd")
ALL = ", ".join((*VECTORS, *TRANSFER, *MEANING))


def evaluate(
    encoder: Annotated[str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini, or vectors.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"{ALL}.")],
    test: Annotated[list[str], typer.Option(metavar="FILE...", help="What to test on; zero-shot tasks: several.")],
    langs: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE TARGET", help="Languages of parallel text or a dictionary.")
    ] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Zero-shot tasks: text to learn from, de=FILE if its name does not say the "
            "language. retrieval: the encoder's training text, to tell seen pairs.",
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...", help="Zero-shot tasks: text that chooses the epoch; default: one in ten training texts."
        ),
    ] = None,
    links: Annotated[
        str | None, typer.Option(help="Word links of --test (gold for word-alignment; default there: third column).")
    ] = None,
    train_links: Annotated[str | None, typer.Option(help="retrieval: word links of --train.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="lexicon: text whose words are averaged, in both languages."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Zero-shot tasks: training runs.")] = 3,
    tune: Annotated[
        bool, typer.Option("--tune", help="Zero-shot tasks: train the encoder too, not only a head on frozen vectors.")
    ] = False,
    select: Annotated[
        str, typer.Option(help="Zero-shot tasks: the epoch best on source text, on target text (a leak), or last.")
    ] = "source",
    head: Annotated[
        str | None,
        typer.Option(help="ner, slots, pos: bilstm-crf, linear, linear-crf; nli, sentiment: mean, bilstm, cls."),
    ] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Zero-shot tasks: hidden size of the head.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Zero-shot tasks: at most.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Zero-shot tasks: texts in an update.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Zero-shot tasks: the highest.")] = None,
    patience: Annotated[int | None, typer.Option(min=1, help="Zero-shot tasks: epochs without a better score.")] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW...", help="ner, slots, pos: other names for labels; OLD= drops one."),
    ] = None,
    project: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="ner, slots, pos: carry tags over the word links of this parallel text (with "
            "--langs) and learn from that instead: label projection.",
        ),
    ] = None,
    unknown: Annotated[
        str,
        typer.Option(help="ner, slots, pos: test labels that the training text has not: raise, miss, drop or skip."),
    ] = "raise",
    on_error: Annotated[str, typer.Option(help="Zero-shot tasks: raise, or skip what cannot be read.")] = "raise",
    candidates: Annotated[str, typer.Option(help="retrieval: all words, or linked ones only.")] = "all",
    similarity: Annotated[str, typer.Option(help="retrieval, lexicon: csls or cosine.")] = "csls",
    non_contextual: Annotated[
        bool, typer.Option("--non-contextual", help="retrieval: only the first occurrence of each word type.")
    ] = False,
    extract: Annotated[str, typer.Option(help="word-alignment: mutual, iterative, softmax or transport.")] = "mutual",
    layer: Annotated[int | None, typer.Option(help="Hidden layer; default: as the folder says, or -1.")] = None,
    pooling: Pooling = None,
    model: Model = "auto",
    symmetrize: Symmetrize = "one-to-one",
    pretokenized: Annotated[
        bool | None,
        typer.Option("--pretokenized/--tokenize", help="Words are separated by white space; so for word-alignment."),
    ] = None,
    max_length: MaxLength = None,
    seed: Seed = 0,
    limit: Limit = None,
    record: Annotated[bool, typer.Option("--record", help="Add the scores to the model card in ENCODER.")] = False,
    out: Annotated[Path | None, typer.Option(help="Add the scores to this JSON lines file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure an encoder: word retrieval, word alignment, or a task learnt in one language and tested in others."""
    load, say = loading(layer, pooling, max_length), news(quiet)
    if task not in (*VECTORS, *TRANSFER, *MEANING):
        raise SettingError(f"task {task!r} is not known, expected one of {ALL}")
    if task in TRANSFER:
        from calque.runs.texts import Words
        from calque.runs.transfer import table, transfer

        for name, value in (("langs", langs), ("links", links), ("train-links", train_links), ("text", text)):
            if value and not (project and name in ("langs", "links")):
                raise SettingError(f"--{name} is not for {task}: the language of a file is in its name, or de=FILE")
        if not train:
            raise SettingError(f"{task} learns from text: --train FILE")
        scores = transfer(
            encoder, task, train=train, test=test, dev=dev or [], seeds=seeds, tune=tune, select=select,
            rename=_renaming(rename or []), project=project or [], project_links=[links] if links and project else [],
            project_langs=pairs_of(langs or [], len(project)) if project else [],
            words=Words(model, symmetrize, False, seed), pretokenized=bool(pretokenized), limit=limit,
            on_error=on_error, load=load,
            options={"epochs": epochs, "batch": batch, "learning_rate": learning_rate, "patience": patience},
            head={"head": head, "hidden": hidden, **({"unknown": unknown} if task in TAGGING else {})},
            progress=not quiet, say=say,
        )  # fmt: skip
    else:
        scores, table = _plain(
            encoder, task, test, langs or [], links, train or [], train_links, text or [], load, say,
            words={"model": model, "symmetrize": symmetrize, "seed": seed, "limit": limit,
                   # Gold links count the words of the text as it stands.
                   "pretokenized": task == "word-alignment" if pretokenized is None else pretokenized},
            options={"candidates": candidates, "similarity": similarity, "contextual": not non_contextual,
                     "method": extract}, progress=not quiet,
        )  # fmt: skip
    if out is not None:
        with open(out, "a", encoding="utf-8") as file:
            file.writelines(score.to_json() + "\n" for score in scores)
    if record:
        from calque.runs.card import add_scores

        add_scores(Path(encoder), [score.to_dict() for score in scores])
    if as_json:
        print(json.dumps({**scores[0].to_dict(), "scores": [score.to_dict() for score in scores]}, default=str))
    else:
        print(table(scores))


def _plain(encoder, task, test, langs, links, train, train_links, text, load, say, *, words, options, progress):
    """Tasks that nothing is trained for."""
    from calque.runs.evaluate import evaluate as run
    from calque.runs.evaluate import table
    from calque.runs.texts import Words

    if task == "wsd":
        from calque.runs.meaning import disambiguate

        if not train:
            raise SettingError("wsd learns its senses from text: --train semcor.data.xml")
        return disambiguate(encoder, train=train[0], test=test, load=load, progress=progress, say=say), table
    if len(langs) != 2:
        raise SettingError(f"{task} needs --langs, e.g. --langs en de")
    pair = pairs_of(langs, 1)[0]
    if task == "lexicon":
        from calque.runs.meaning import lexicon

        return lexicon(
            encoder, test=_one(test, "test"), langs=pair, texts=text, similarity=options["similarity"],
            pretokenized=words["pretokenized"], limit=words["limit"], load=load, progress=progress, say=say,
        ), table  # fmt: skip
    return run(
        encoder, task, test=_one(test, "test"), langs=pair, links=links, train=_one(train, "train") if train else None,
        train_links=train_links, words=Words(**words), load=load, options=options, progress=progress, say=say,
    ), table  # fmt: skip


def _one(files: Sequence[str], option: str) -> str:
    if len(files) != 1:
        raise SettingError(f"--{option} takes one file here, got {len(files)}")
    return files[0]


def _renaming(rename: Sequence[str]) -> dict[str, Any]:
    found = {}
    for item in rename:
        old, equals, new = item.partition("=")
        if not equals or not old:
            raise SettingError(f"--rename {item}: expected OLD=NEW, or OLD= to drop a label")
        found[old] = new
    return found
