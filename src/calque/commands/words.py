"""The command `calque words`."""

from __future__ import annotations

from dataclasses import dataclass

from calque.commands.base import LOADING, Choosing, Linking, say_unless
from calque.commands.checks import output_file
from calque.corpora.languages import pair_and_path
from calque.runs.settings import LinkSettings, warn_of_languages


@dataclass(frozen=True, kw_only=True)
class LinkWords(LinkSettings, Linking, Choosing):
    """Link words that are translations of each other.

    By default, a statistical aligner is trained on the text; --use selects a saved aligner, and
    --encoder links words by the similarity of their vectors. --prior combines the aligner with an
    encoder; the combination makes fewer errors if the encoder was trained on these languages.
    --cross-fit first trains the encoder on the links of the aligner.
    """

    rare = (
        "layer",
        "pooling",
        "max_length",
        "bidirectional",
        "prior_weight",
        "also",
        "posteriors",
        "sample",
    )

    def run(self) -> None:
        from calque.runs.words import link_words

        self._refuse_unused()
        warn_of_languages(self.langs or ())
        also = [pair_and_path(each)[1] for each in self.also or []]
        inputs = [self.train, *(self.extra or []), *also, self.use, self.encoder]
        output_file("--out", self.out, inputs, self.langs or [])
        output_file("--tables", self.tables, [*inputs, self.out], self.langs or [])
        n_links, n_pairs = link_words(
            self,
            words=self.words(self.pretokenized, self.limit, self.format),
            load=self.loading(),
            choose=True,
            progress=not self.quiet,
            say=say_unless(self.quiet),
        )
        say_unless(self.quiet)(f"{n_links:,} links for {n_pairs:,} sentence pairs in {self.out}")

    def _refuse_unused(self) -> None:
        """Raise an error if the user gave an option that has no effect."""
        unused: dict[str, str] = {}

        def add(reason: str, *names: str) -> None:
            unused.update(dict.fromkeys(names, reason))

        if self.use is not None:
            add(
                "cannot be combined with --use, because the saved aligner determines the model",
                "model",
            )
        if not self.prior:
            add("needs an encoder as a prior; add --prior", "prior_weight", "cross_fit")
        if self.cross_fit is None:
            add(
                "needs --cross-fit, which aligns an encoder on this text; add --cross-fit, or "
                "leave out --also",
                "also",
            )
        if self.encoder is None:
            add("needs an encoder; add --encoder", "extract", "prior", *LOADING)
        elif self.prior:
            add(
                "applies only if words are linked by vectors; leave out this option or --prior",
                "extract",
            )
        else:
            add(
                "applies to a statistical aligner, but --encoder links words by vectors; leave "
                "out this option or add --prior",
                *("model", "symmetrize", "extra", "tables", "use", "sample"),
            )
        self.refuse_unused(unused)
