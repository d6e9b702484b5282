"""`calque data`."""

from __future__ import annotations

from calque.corpora.by_name import NAMED


def data() -> None:
    """List the test sets that have short names.

    Each is read from the Hugging Face hub (pip install 'calque-align[hub]') where a file could stand, in the languages listed.
    """
    rows = [("name", "task", "write", "splits", "licence", "languages")]
    rows += [
        (name, row.task, row.usage(name), " ".join(row.splits), row.licence, " ".join(row.tags))
        for name, row in NAMED.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for each in rows:
        print("  ".join(value.ljust(width) for value, width in zip(each[:-1], widths, strict=False)) + "  " + each[-1])
