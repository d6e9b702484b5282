"""`calque words`."""

from __future__ import annotations

import typer

from calque.cli.checks import output_file, refuse_unused
from calque.cli.options import Linking, Loading, SubjectCommand, grouped, names_of, news
from calque.corpora.languages import pair_and_path
from calque.runs.settings import LinkSettings


class WordsCommand(SubjectCommand):
    hides = ("layer", "pooling", "max_length", "bidirectional", "prior_weight", "also", "posteriors", "sample")


@grouped
def words(context: typer.Context, how: LinkSettings, linking: Linking, loading: Loading) -> None:
    """Link words that are translations of each other.

    Trains a statistical aligner on the text, or uses saved tables (--use) or the vectors of an encoder (--encoder). --prior
    combines aligner and encoder, which makes fewer errors if the encoder was trained on the languages; --cross-fit first
    trains the encoder on the links of the aligner.
    """
    unused: dict[str, str] = {}
    if how.use is not None:
        unused["model"] = "is part of --use: leave it out"
    if not how.prior:
        unused |= dict.fromkeys(("prior_weight", "cross_fit"), "is for an encoder as a prior: add --prior")
    if how.cross_fit is None:
        unused["also"] = "is text that an encoder is aligned on: add --cross-fit, or leave it out"
    if how.encoder is None:
        unused |= dict.fromkeys(
            ("extract", "prior", *names_of(Loading)), "says how an encoder links: name one with --encoder"
        )
    elif how.prior:
        unused["extract"] = "is for links by vectors alone: leave it out, or --prior"
    else:
        why = "is for a statistical aligner, and --encoder links by vectors: leave it out, or add --prior"
        unused |= dict.fromkeys(("model", "symmetrize", "extra", "tables", "use", "sample"), why)
    refuse_unused(context, unused)
    also = (pair_and_path(each)[1] for each in how.also or [])
    inputs = [how.train, *(how.extra or []), *also, how.use, how.encoder]
    output_file("--out", how.out, inputs, how.langs)
    output_file("--tables", how.tables, [*inputs, how.out], how.langs)
    from calque.runs.words import link_words

    linked = linking.words(how.pretokenized, how.limit)
    done = link_words(how, words=linked, load=loading.arguments(), progress=not how.quiet, say=news(how.quiet))
    news(how.quiet)(f"{done[0]:,} links for {done[1]:,} sentence pairs in {how.out}")


words.command_class = WordsCommand
