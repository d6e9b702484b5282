"""Options of `calque evaluate`, by what they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from calque.cli.checks import finite, language, positive


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
            help="Text to choose the epoch on (see --select); default: every tenth training text. sentences: text to choose the "
            "threshold of mining on.",
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
        typer.Option(
            help="Word links of --test; for word-alignment the gold links (default: third column). sentences: gold pairs, lines "
            "of two ids (default: PREFIX.gold)."
        ),
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
    altered: Annotated[
        str | None,
        typer.Option(
            metavar="LANG=FILE",
            help="xsim++: altered sentences of --test that are candidates, too (LASER's JSON, or original, altered and kind "
            "between tabs); in English if nothing says otherwise.",
        ),
    ] = None


@dataclass(frozen=True)
class Measuring:
    """What is measured."""

    candidates: Annotated[str, typer.Option(help="Search all words (all) or linked words only (linked).")] = "all"
    similarity: Annotated[
        str | None,
        typer.Option(
            help="csls (default) or cosine. sentences: cosine (default), csls, or a margin, ratio or distance."
        ),
    ] = None
    sentence_pooling: Annotated[
        str | None,
        typer.Option(
            help="A sentence's vector: own (what a sentence-transformers folder says; default there), words (mean of word "
            "vectors; default elsewhere), subwords (mean of all subwords) or cls."
        ),
    ] = None
    margin: Annotated[
        str, typer.Option(help="Margin of xsim and mining: ratio, distance or absolute (the cosine as it is).")
    ] = "ratio"
    contextual: Annotated[
        bool, typer.Option(" /--non-contextual", help="Only the first occurrence of each word form.")
    ] = True
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Search with an index, for millions of words; its recall is shown.")
    ] = False
    by_origin: Annotated[
        bool,
        typer.Option("--by-origin", help="Also show each origin of the pairs, named in the third column of --test."),
    ] = False
    base: Annotated[
        str | None,
        typer.Option(metavar="ENCODER", help="The encoder before alignment, to compare similarities of words with."),
    ] = None
    letters: Annotated[int, typer.Option(min=1, help="Ask for words of so many letters or more.")] = 4
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
            help="File format, where it cannot be detected. Tags: columns, numbered, conllu, facebook, hub; labels: "
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
            "default there). qa: match (words of passage and question aligned, then LSTMs), linear (only with --tune, and the "
            "default there). choice: esim (default), mean, bilstm, cls, as for nli. wic: mean (two dense layers on both words; "
            "default), cosine (a threshold on their cosine)."
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
class Realigning:
    """Realignment, with --tune."""

    realign: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Also align the encoder on this parallel text (with --langs) in the run that trains it for the task.",
        ),
    ] = None
    realign_when: Annotated[str, typer.Option(help="Align before, during or after the training for the task.")] = (
        "before"
    )
    realign_how: Annotated[
        str,
        typer.Option(
            help="during: updates of the task and of the alignment take turns (alternating), or their gradients are added "
            "(summed)."
        ),
    ] = "alternating"
    realign_method: Annotated[str, typer.Option(help="contrastive or finetune, or package.module:Class.")] = (
        "contrastive"
    )
    realign_towards: Annotated[
        str | None,
        typer.Option(callback=language, help="Language that the others are aligned with; default: the one of --train."),
    ] = None
    realign_weight: Annotated[
        float, typer.Option(callback=positive, help="summed: weight of the gradient of the alignment.")
    ] = 1.0
    realign_links: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...", help="Word links of --realign, Pharaoh format; default: as calque align makes them."
        ),
    ] = None
    realign_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the method, e.g. epochs=3 or freeze=2; repeatable."),
    ] = None
