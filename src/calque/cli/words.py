"""`calque words`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import output_file, refuse_unused
from calque.cli.options import (
    Langs,
    Limit,
    Linking,
    Loading,
    Pretokenized,
    Quiet,
    SubjectCommand,
    grouped,
    names_of,
    news,
    pairs_of,
)  # fmt: skip
from calque.corpora.languages import pair_and_path


class WordsCommand(SubjectCommand):
    hides = ("layer", "pooling", "max_length", "bidirectional", "prior_weight", "also", "posteriors", "sample")


@grouped
def words(
    context: typer.Context,
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="Parallel text: TSV, a ||| b, Moses, TMX, …")],
    langs: Langs,
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="Pharaoh file to write: a line of i-j links per sentence pair.")
    ],
    linking: Linking,
    loading: Loading,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="ENCODER", help="Link by the vectors of an encoder (hub name, folder, mini), without training."
        ),
    ] = None,
    extract: Annotated[str | None, typer.Option(help="--encoder: mutual (default) or softmax.")] = None,
    prior: Annotated[
        bool,
        typer.Option(
            "--prior", help="--encoder: do train (or --use), with the encoder's similarities as a prior (hmm, gibbs)."
        ),
    ] = False,
    prior_weight: Annotated[
        float | None, typer.Option(min=0, help="--prior: how much similarities count; default: 2.")
    ] = None,
    cross_fit: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="--prior: first align the encoder on this text; each of N parts of it gets the similarities of a copy that was "
            "aligned on the others.",
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="en-nl=FILE...", help="--cross-fit: more texts to align it on, of any languages."),
    ] = None,
    pretokenized: Pretokenized = False,
    extra: Annotated[
        list[str] | None,
        typer.Option(help="More text in the same languages to train the aligner on; not in the output."),
    ] = None,
    posteriors: Annotated[
        bool, typer.Option("--posteriors", "--scores", help="Write each link with its probability or score, i-j:p.")
    ] = False,
    tables: Annotated[
        Path | None, typer.Option(help="Save the trained aligner here, to link new text with --use.")
    ] = None,
    use: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Link with an aligner saved by --tables, without training.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Train on N sentence pairs drawn from the text, and link all of it.")
    ] = None,
    limit: Limit = None,
    quiet: Quiet = False,
) -> None:
    """Link words that are translations of each other.

    Trains a statistical aligner on the text itself, unless --use names one that was saved or --encoder an encoder whose vectors
    are compared. With --prior both decide, which makes fewer errors than either if the encoder knows the languages; --cross-fit
    first teaches it these languages by the links that statistics find.
    """
    unused: dict[str, str] = {}
    if use is not None:
        unused["model"] = "is part of --use: leave it out"
    if not prior:
        unused |= dict.fromkeys(("prior_weight", "cross_fit"), "is for an encoder as a prior: add --prior")
    if cross_fit is None:
        unused["also"] = "is text that an encoder is aligned on: add --cross-fit, or leave it out"
    if encoder is None:
        unused |= dict.fromkeys(
            ("extract", "prior", *names_of(Loading)), "says how an encoder links: name one with --encoder"
        )
    elif prior:
        unused["extract"] = "is for links by vectors alone: leave it out, or --prior"
    else:
        why = "is for a statistical aligner, and --encoder links by vectors: leave it out, or add --prior"
        unused |= dict.fromkeys(("model", "symmetrize", "extra", "tables", "use", "sample"), why)
    refuse_unused(context, unused)
    inputs = [train, *(extra or []), *(pair_and_path(each)[1] for each in also or []), use, encoder]
    output_file("--out", out, inputs, langs)
    output_file("--tables", tables, [*inputs, out], langs)
    from calque.runs.words import link_by_encoder, link_words

    (pair,), say = pairs_of(langs, 1), news(quiet)
    how = {"langs": pair, "out": out, "words": linking.words(pretokenized, limit), "load": loading.arguments(),
           "posteriors": posteriors, "progress": not quiet}  # fmt: skip
    if encoder is not None and not prior:
        done = link_by_encoder(train, encoder=encoder, method=extract, **how)
    else:
        done = link_words(
            train, extra=extra or [], tables=tables, use=use, sample=sample, prior=encoder, weight=prior_weight,
            cross_fit=cross_fit, also=also or [], say=say, **how,
        )  # fmt: skip
    say(f"{done[0]:,} links for {done[1]:,} sentence pairs in {out}")


words.command_class = WordsCommand
