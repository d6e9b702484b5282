"""`calque evaluate` and `calque encode`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from calque.cli.options import (
    Langs,
    Limit,
    MaxLength,
    Model,
    Pooling,
    Pretokenized,
    Quiet,
    Seed,
    Symmetrize,
    loading,
    news,
    pairs_of,
)


def evaluate(
    encoder: Annotated[str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini, or vectors.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="retrieval or word-alignment.")],
    test: Annotated[str, typer.Option(help="Parallel text to test on.")],
    langs: Langs,
    links: Annotated[
        str | None, typer.Option(help="Its word links (gold for word-alignment; default there: the third column).")
    ] = None,
    train: Annotated[str | None, typer.Option(help="retrieval: training text, to tell seen pairs.")] = None,
    train_links: Annotated[str | None, typer.Option(help="retrieval: word links of --train.")] = None,
    candidates: Annotated[str, typer.Option(help="retrieval: all words, or linked ones only.")] = "all",
    similarity: Annotated[str, typer.Option(help="retrieval: csls or cosine.")] = "csls",
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure an encoder: contextual word retrieval, or word alignment against gold links."""
    from calque.runs.evaluate import evaluate as run
    from calque.runs.evaluate import table
    from calque.runs.texts import Words

    if pretokenized is None:
        pretokenized = task == "word-alignment"  # gold links count the words of the text as it stands
    scores = run(
        encoder, task, test=test, langs=pairs_of(langs, 1)[0], links=links, train=train, train_links=train_links,
        words=Words(model, symmetrize, pretokenized, seed, limit), load=loading(layer, pooling, max_length),
        options={"candidates": candidates, "similarity": similarity, "contextual": not non_contextual,
                 "method": extract}, progress=not quiet, say=news(quiet),
    )  # fmt: skip
    if record:
        from calque.runs.card import add_scores

        add_scores(Path(encoder), [score.to_dict() for score in scores])
    if as_json:
        print(json.dumps({**scores[0].to_dict(), "scores": [score.to_dict() for score in scores]}, default=str))
    else:
        print(table(scores))


def encode(
    encoder: Annotated[str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini, or vectors.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="One sentence a line; .gz and .zst too.")],
    lang: Annotated[str, typer.Option(help="Its language.")],
    out: Annotated[Path, typer.Option(help="Safetensors file: data [words, dim] and offsets [sentences + 1].")],
    layer: Annotated[int | None, typer.Option(help="Hidden layer; default: as the folder says, or -1.")] = None,
    pooling: Pooling = None,
    pretokenized: Pretokenized = False,
    max_length: MaxLength = None,
    limit: Limit = None,
    quiet: Quiet = False,
) -> None:
    """Write a vector for every word of a text; a stopped run continues."""
    from calque.corpora import read_sentences
    from calque.encoders import load_encoder

    sentences = read_sentences(text, lang=lang, pretokenized=pretokenized, limit=limit)
    loaded = load_encoder(encoder, **loading(layer, pooling, max_length))
    embeddings = loaded.encode(sentences, progress=not quiet, out=out)
    news(quiet)(f"{embeddings.n_words:,} words of {len(embeddings):,} sentences × {embeddings.dim} in {out}")
