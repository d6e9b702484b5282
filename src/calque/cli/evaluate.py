"""`calque evaluate`: measures of vectors, and zero-shot tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.options import (
    Layer,
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
            help="Zero-shot tasks: text to learn from, in one language or several; de=FILE if its name does not say the "
            "language. wsd: text with senses. retrieval: the encoder's training text, to tell seen pairs.",
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Zero-shot tasks: text that chooses the epoch (see --select); default: one in ten training texts.",
        ),
    ] = None,
    ceiling: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Zero-shot tasks: training text in the tests' own languages, translated (translate-train) or annotated; "
            "what is learnt from it is shown beside.",
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
        str,
        typer.Option(
            help="Zero-shot tasks: take the epoch best on source text, on --dev in other languages (target: a leak, which "
            "the table names), or the last."
        ),
    ] = "source",
    head: Annotated[
        str | None,
        typer.Option(
            help="ner, slots, pos: bilstm-crf (default), linear (default with --tune), linear-crf. nli, sentiment: mean "
            "(two dense layers on the mean vector; default for sentiment), bilstm (maxima of an LSTM; default for nli), "
            "cls (one layer on [CLS]; default with --tune, and only there)."
        ),
    ] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Zero-shot tasks: hidden size of the head.")] = None,
    dropout: Annotated[float | None, typer.Option(min=0, max=0.95, help="Zero-shot tasks: of the head.")] = None,
    upos: Annotated[
        int | None,
        typer.Option(min=0, help="parsing: dimensions for the part of speech that the treebank says; 0: words alone."),
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Zero-shot tasks: at most.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Zero-shot tasks: texts in an update.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Zero-shot tasks: the highest.")] = None,
    patience: Annotated[int | None, typer.Option(min=1, help="Zero-shot tasks: epochs without a better score.")] = None,
    per_epoch: Annotated[
        int | None,
        typer.Option(
            min=1, help="Zero-shot tasks: so many texts in an epoch, each batch in one source language drawn at random."
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OLD=NEW...", help="Zero-shot tasks, not parsing: other names for labels; OLD= drops one."
        ),
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
    format: Annotated[
        str,
        typer.Option(
            help="Zero-shot tasks: of all files, where they do not show it. Tags: columns, numbered, conllu, facebook, snips, "
            "hub; labels: header, pairs, label-text, text-label, jsonl, hub."
        ),
    ] = "auto",
    column: Annotated[
        str | None, typer.Option(help="ner, slots, pos: number or name of the tags' column; default: the last.")
    ] = None,
    per_type: Annotated[
        bool,
        typer.Option("--per-type", help="ner, slots: show the F1 of each kind of span, too; --json always has it."),
    ] = False,
    first_senses: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="wsd: WordNet's index.sense, for words whose lemma --train has not."),
    ] = None,
    restrict: Annotated[str, typer.Option(help="wsd: the nearest sense of the lemma, or of all (none).")] = "lemma",
    entries: Annotated[
        str | None,
        typer.Option(metavar="FROM-TO", help="lexicon: only these source words of the dictionary, as 0-1500."),
    ] = None,
    lower: Annotated[bool, typer.Option("--lower", help="lexicon: capital letters are small ones.")] = False,
    candidates: Annotated[str, typer.Option(help="retrieval: all words, or linked ones only.")] = "all",
    similarity: Annotated[str, typer.Option(help="retrieval, lexicon: csls or cosine.")] = "csls",
    non_contextual: Annotated[
        bool, typer.Option("--non-contextual", help="retrieval: only the first occurrence of each word type.")
    ] = False,
    extract: Annotated[str, typer.Option(help="word-alignment: mutual, iterative, softmax or transport.")] = "mutual",
    layer: Layer = None,
    pooling: Pooling = None,
    model: Model = "auto",
    symmetrize: Symmetrize = "one-to-one",
    pretokenized: Annotated[
        bool | None,
        typer.Option("--pretokenized/--tokenize", help="Words are separated by white space; so for word-alignment."),
    ] = None,
    max_length: MaxLength = None,
    seed: Seed = 0,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Use only so many texts: of each --train file, at even distances; of --text and of parallel text the first.",
        ),
    ] = None,
    test_limit: Annotated[
        int | None, typer.Option(min=1, help="Zero-shot tasks, wsd: the same of --test and --dev.")
    ] = None,
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
            encoder, task, train=train, test=test, dev=dev or [], ceiling=ceiling or [], seeds=seeds, tune=tune,
            select=select, test_limit=test_limit,
            rename=_renaming(rename or []), project=project or [], project_links=[links] if links and project else [],
            project_langs=pairs_of(langs or [], len(project)) if project else [],
            words=Words(model, symmetrize, False, seed), pretokenized=bool(pretokenized), limit=limit,
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
            encoder, task, test, langs or [], links, train or [], train_links, text or [], load, say,
            words={"model": model, "symmetrize": symmetrize, "seed": seed, "limit": limit,
                   # Gold links count the words of the text as it stands.
                   "pretokenized": task == "word-alignment" if pretokenized is None else pretokenized},
            options={"candidates": candidates, "similarity": similarity, "contextual": not non_contextual,
                     "method": extract, "first_senses": first_senses, "restrict": restrict, "on_error": on_error,
                     "entries": _range(entries), "lower": lower, "test_limit": test_limit}, progress=not quiet,
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
        print(shown)


def _plain(encoder, task, test, langs, links, train, train_links, text, load, say, *, words, options, progress):
    """Tasks that nothing is trained for."""
    from calque.runs.evaluate import evaluate as run
    from calque.runs.evaluate import table
    from calque.runs.texts import Words

    if task == "wsd":
        from calque.runs.meaning import disambiguate

        if not train:
            raise SettingError("wsd learns its senses from text: --train semcor.data.xml")
        scores = disambiguate(
            encoder, train=_one(train, "train"), test=test, limit=words["limit"], load=load, progress=progress, say=say,
            **{name: options[name] for name in ("first_senses", "restrict", "test_limit")},
        )  # fmt: skip
        return scores, table(scores)
    if len(langs) != 2:
        raise SettingError(f"{task} needs --langs, e.g. --langs en de")
    pair = pairs_of(langs, 1)[0]
    if task == "lexicon":
        from calque.runs.meaning import lexicon

        scores = lexicon(
            encoder, test=_one(test, "test"), langs=pair, texts=text, pretokenized=words["pretokenized"],
            limit=words["limit"], load=load, progress=progress, say=say,
            **{name: options[name] for name in ("similarity", "entries", "lower", "on_error")},
        )  # fmt: skip
        return scores, table(scores)
    scores = run(
        encoder, task, test=_one(test, "test"), langs=pair, links=links, train=_one(train, "train") if train else None,
        train_links=train_links, words=Words(**words), load=load, options=options, progress=progress, say=say,
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
        raise SettingError(f"--entries {entries}: expected FROM-TO, as 0-1500, or 1500- for the rest")
    return int(start), int(stop) if stop else None


def _renaming(rename: Sequence[str]) -> dict[str, Any]:
    found = {}
    for item in rename:
        old, equals, new = item.partition("=")
        if not equals or not old:
            raise SettingError(f"--rename {item}: expected OLD=NEW, or OLD= to drop a label")
        found[old] = new
    return found
