"""The command `calque analyze`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calque.analyses.table import ANALYSES, users
from calque.commands.base import Linking, Loading, say_unless
from calque.commands.checks import output_file
from calque.runs.settings import AnalysisSettings, warn_of_languages
from calque.storage import append_lines


@dataclass(frozen=True, kw_only=True)
class Analyze(AnalysisSettings, Linking, Loading):
    """Analyse what the accuracy of word retrieval depends on.

    The analyses cover accuracy by kind of word and by layer, properties of the vector space,
    examples and plots.
    """

    rare = (
        "pooling",
        "max_length",
        "bidirectional",
        "one_based",
        "non_contextual",
        "forms",
        "pairs",
        "projection",
        "bootstrap",
    )

    @classmethod
    def lists(cls, subject: Any) -> Mapping[str, Sequence[tuple[str, str]]]:
        return {"Analyses": [(name, row.help) for name, row in ANALYSES.items()]}

    def run(self) -> None:
        from calque.runs.analyze import analyze, table

        self._refuse_unused()
        warn_of_languages(self.langs or ())
        inputs = [self.test, self.train, self.links, self.train_links, *(self.upos or [])]
        output_file("--out", self.out, inputs, self.langs or [], adds=True)
        findings = analyze(
            self,
            words=self.words(self.pretokenized, self.limit, self.format),
            load=self.loading(),
            progress=not self.quiet,
            say=say_unless(self.quiet),
        )
        try:
            if self.out is not None:
                append_lines(self.out, (finding.to_json() + "\n" for finding in findings))
        finally:
            print(table(findings), flush=True)

    def _refuse_unused(self) -> None:
        """Raise an error if the user gave an option that has no effect."""
        unused: dict[str, str] = {}
        if self.only is not None:
            unused |= _not_selected([name.strip() for name in self.only.split(",")])
        if self.test is None:
            reason = "needs --test FILE (parallel text)"
            unused |= dict.fromkeys(("langs", "links", "train", "upos"), reason)
        if self.train is None:
            unused["train_links"] = "needs a training text; add --train FILE"
        if self.links is None and self.train_links is None:
            unused["one_based"] = "is only for files of word links; add --links FILE"
        self.refuse_unused(unused)


def _not_selected(selected: Sequence[str]) -> dict[str, str]:
    """Return the options that none of the selected analyses uses, with the reason."""
    unused = {}
    for row in ANALYSES.values():
        for name in row.options:
            analyses = users(name)
            if not set(analyses) & set(selected):
                noun = "an option of" if len(analyses) == 1 else "an option of the analyses"
                unused[name] = (
                    f"is {noun} {', '.join(analyses)}, but --only selects {', '.join(selected)}"
                )
    return unused
