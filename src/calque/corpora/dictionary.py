"""Lists of words with their translations, as `Dictionary`."""

from __future__ import annotations

from os import PathLike, fspath

from calque.annotated import Dictionary
from calque.corpora.harvest import Losses, OnError
from calque.corpora.lines import Flaw, read_lines
from calque.errors import SettingError


def read_dictionary(path: str | PathLike[str], *, langs: tuple[str, str], on_error: OnError = "raise") -> Dictionary:
    """Read a word and its translation a line, packed (gzip, zstd, xz, bzip2) or not; blank lines are nothing.

    The two are separated by a tab (XLing-Eval, Glavaš et al. 2019), or in a line without one by its first space (MUSE,
    Conneau et al. 2018); spaces around them are no part of them.

    Args:
        path: the file.
        langs: the languages of its two columns.
        on_error: what becomes of a line that is no pair: an error (`raise`), or it is left out, and a `SkippedWarning`
            counts it (`skip`).

    Raises:
        InputError: the file cannot be read or has no entry; or (`raise`), with its line, there are not two words, or
            bytes are not UTF-8.
        SettingError: an argument has no such value.
    """
    if isinstance(langs, str) or len(langs) != 2:
        raise SettingError(f"langs is {langs!r}, expected two languages, as ('en', 'de')")
    losses = Losses(path, on_error, "entries")
    source, target = [], []
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            losses.take(line)
            continue
        if not line.strip():
            continue
        columns = line.split("\t") if "\t" in line else line.strip().split(" ", 1)
        words = [column.strip() for column in columns]
        if len(words) == 2 and all(words):
            source.append(words[0])
            target.append(words[1])
        else:
            columns = f"{len(words)} columns" if len(words) > 2 else "one word"
            fact = f"{columns}, expected a word and its translation, separated by a tab or space"
            losses.take(Flaw(number, "not two words", f"{fact}; correct the line", path))
    losses.settle(len(source))
    return Dictionary(tuple(source), tuple(target), (langs[0], langs[1]), fspath(path))
