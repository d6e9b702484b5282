"""`calque analyze`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.options import (
    Layer,
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
from calque.errors import SettingError

_ONLY = (
    "pos, rank, subwords, length, position, layers, data-size, correlation, isometry, hubness, anisotropy, language, "
    "examples, points"
)


def analyze(
    encoder: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENCODER...", help="Hub name, folder, mini, or vectors, or NAME=PATH; before alignment first."
        ),
    ] = None,
    test: Annotated[str | None, typer.Option(metavar="FILE", help="Parallel test text.")] = None,
    langs: Annotated[
        list[str] | None, typer.Option("--langs", metavar="SOURCE TARGET", help="Its languages, e.g. en de.")
    ] = None,
    only: Annotated[str | None, typer.Option(help=f"Some of {_ONLY}, with commas; default: all.")] = None,
    train: Annotated[str | None, typer.Option(help="The encoders' training text, to tell seen pairs.")] = None,
    links: Annotated[str | None, typer.Option(help="Word links of --test.")] = None,
    train_links: Annotated[str | None, typer.Option(help="Word links of --train.")] = None,
    upos: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Parts of speech of the test sentences, CoNLL-U or columns; de=FILE says the language.",
        ),
    ] = None,
    treebank: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...", help="Train a tagger on this, with vectors of the first encoder, instead of --upos."
        ),
    ] = None,
    results: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...", help="correlation: scores of retrieval and of zero-shot tasks (evaluate --out)."
        ),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="data-size: fit maps on so many sentence pairs of --train, e.g. 100,1000,10000.")
    ] = None,
    map: Annotated[str, typer.Option("--map", help="data-size: rotation, normalized-rotation or linear.")] = "rotation",
    non_contextual: Annotated[
        bool, typer.Option("--non-contextual", help="Ask only for the first occurrence of each form.")
    ] = False,
    forms: Annotated[int, typer.Option(min=1, help="examples: forms that are shown.")] = 8,
    pairs: Annotated[int, typer.Option(min=2, help="points: word pairs in the picture.")] = 100,
    projection: Annotated[
        str, typer.Option(help="points: pca, tsne, or auto (t-SNE where scikit-learn is installed).")
    ] = "auto",
    bootstrap: Annotated[int, typer.Option(min=0, help="Samples of the intervals.")] = 1000,
    layer: Layer = None,
    pooling: Pooling = None,
    model: Model = "auto",
    symmetrize: Symmetrize = "one-to-one",
    pretokenized: Pretokenized = False,
    max_length: MaxLength = None,
    seed: Seed = 0,
    limit: Limit = None,
    out: Annotated[Path | None, typer.Option(help="Add the findings to this JSON lines file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Look behind the scores: accuracy by kinds of words, layers and data, the shape of the spaces, examples, pictures."""
    from calque.runs.analyze import Options, table
    from calque.runs.analyze import analyze as run
    from calque.runs.texts import Words

    found = run(
        encoder or [], test=test, langs=pairs_of(langs, 1)[0] if langs else None,
        only=None if only is None else [name.strip() for name in only.split(",") if name.strip()],
        links=links, train=train, train_links=train_links, upos=upos or [], treebank=treebank or [], results=results or [],
        words=Words(model, symmetrize, pretokenized, seed, limit), load=loading(layer, pooling, max_length),
        options=Options(not non_contextual, _sizes(sizes), map, forms, pairs, projection, bootstrap),
        progress=not quiet, say=news(quiet),
    )  # fmt: skip
    if out is not None:
        with open(out, "a", encoding="utf-8") as file:
            file.writelines(finding.to_json() + "\n" for finding in found)
    print(table(found))


def _sizes(text: str | None) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in (text or "").replace(",", " ").split())
    except ValueError:
        found = (0,)
    if any(size < 1 for size in found):
        raise SettingError(f"--sizes {text}: expected numbers of sentence pairs with commas between, e.g. 100,1000")
    return found
