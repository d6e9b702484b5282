"""`calque words`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import output_file
from calque.cli.options import Langs, Limit, Linking, Loading, Pretokenized, Quiet, grouped, news, pairs_of
from calque.corpora.languages import pair_and_path
from calque.errors import SettingError


@grouped
def words(
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
    if use is not None and linking.model != "auto":
        raise SettingError("--model is part of --use: leave it out")
    say = news(quiet)
    _parts_of_a_prior(prior, prior_weight, cross_fit, also)
    inputs = [train, *(extra or []), *(pair_and_path(each)[1] for each in also or []), use, encoder]
    output_file("--out", out, inputs, langs)
    output_file("--tables", tables, [*inputs, out], langs)
    if encoder is not None and not prior:
        _learns_nothing(
            {"--model": linking.model != "auto", "--symmetrize": linking.symmetrize != "one-to-one", "--extra": extra,
             "--tables": tables, "--use": use, "--sample": sample}
        )  # fmt: skip
        from calque.runs.words import link_by_encoder

        n_links, n_pairs = link_by_encoder(
            train, langs=pairs_of(langs, 1)[0], out=out, words=linking.words(pretokenized, limit),
            encoder=encoder, method=extract or "mutual", load=loading.arguments(), posteriors=posteriors,
            progress=not quiet,
        )  # fmt: skip
        say(f"{n_links:,} links for {n_pairs:,} sentence pairs in {out}")
        return
    if encoder is None:
        _only_with_an_encoder({"extract": extract, "prior": prior or None, **loading.arguments()})
    elif extract is not None:
        raise SettingError("--extract is of links by vectors alone: leave it out, or --prior")
    from calque.runs.words import link_words

    n_links, n_pairs = link_words(
        train, langs=pairs_of(langs, 1)[0], out=out, words=linking.words(pretokenized, limit), extra=extra or [],
        posteriors=posteriors, tables=tables, use=use, sample=sample,
        prior=encoder, weight=prior_weight, cross_fit=cross_fit, also=also or [],
        load=loading.arguments(), progress=not quiet, say=say,
    )  # fmt: skip
    say(f"{n_links:,} links for {n_pairs:,} sentence pairs in {out}")


def _learns_nothing(given: Mapping[str, object]) -> None:
    """An encoder links each sentence pair by itself: refuse what training would take."""
    if named := [name for name, value in given.items() if value]:
        raise SettingError(
            f"{', '.join(named)}: of a statistical aligner, and --encoder links by vectors: leave it out, or add --prior"
        )


def _parts_of_a_prior(prior: bool, weight: float | None, cross_fit: int | None, also: list[str] | None) -> None:
    """Refuse options of a prior where there is none."""
    given = {"--prior-weight": weight, "--cross-fit": cross_fit}
    if not prior and (named := [name for name, value in given.items() if value is not None]):
        raise SettingError(f"{', '.join(named)}: of an encoder as a prior; add --prior")
    if also and cross_fit is None:
        raise SettingError("--also is text that an encoder is aligned on: add --cross-fit, or leave it out")


def _only_with_an_encoder(given: Mapping[str, object]) -> None:
    """Refuse options that say how an encoder links where there is none."""
    if named := [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]:
        raise SettingError(f"{', '.join(named)}: how an encoder links; name one with --encoder")
