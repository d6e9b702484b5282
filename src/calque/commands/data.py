"""The command `calque data`."""

from __future__ import annotations

from dataclasses import dataclass

from calque.commands.base import Command


@dataclass(frozen=True, kw_only=True)
class ListData(Command):
    """List the test sets that have short names.

    A short name can be given instead of a file; the data are read from the Hugging Face Hub (pip
    install 'calque-align[hub]').
    """

    def run(self) -> None:
        from calque.corpora.by_name import NAMED
        from calque.runs.score_table import columns

        rows = [("name", "task", "write", "splits", "licence", "languages")]
        for name, row in NAMED.items():
            splits, languages = " ".join(row.splits), " ".join(row.tags)
            rows.append((name, row.task, row.usage(name), splits, row.licence, languages))
        print("\n".join(columns(rows, range(0))))
