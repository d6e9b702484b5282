"""Parallel text in two line-aligned files, as distributed by Moses, OPUS, NTREX and FLORES."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from os import PathLike, fspath

from calque.corpora.columns import HEADER, text_lines
from calque.corpora.languages import TWO_LETTERS
from calque.corpora.lines import BLANK, Item, Omission, RawPair
from calque.errors import InputError
from calque.segment import language_parts
from calque.text_files import Flaw, find_packed


def moses_files(prefix: str, langs: tuple[str, str]) -> list[str]:
    """Return the existing files `PREFIX.LANG` of the two languages, plain or compressed. For
    German, LANG can be de, deu or ger.
    """
    files = []
    for lang in langs:
        code = language_parts(lang)[0]
        tags = [lang, code]
        tags += [three for three, two in TWO_LETTERS.items() if two == code]
        for tag in tags:
            file = find_packed(f"{prefix}.{tag}")
            if file is not None:
                files.append(str(file))
                break
    return files


def read_moses(
    source: str | PathLike[str], target: str | PathLike[str], langs: tuple[str, str]
) -> Iterator[Item]:
    """Yield the sentence pair in each line of two line-aligned files.

    Raises:
        InputError: the files have different numbers of lines; blank lines at the end of one file
            are ignored.
    """
    sides = zip_longest(text_lines(source, one_side=True), text_lines(target, one_side=True))
    numbered = enumerate(sides, 1)
    for number, (left, right) in numbered:
        if number == 1 and [left, right] == list(langs):
            yield Omission(number, HEADER)
            continue
        if left is None or right is None:
            last_line = _last_line([(number, (left, right)), *numbered])
            if last_line is None:
                return
            shorter, longer = source, target
            if right is None:
                shorter, longer = target, source
            fact = (
                f"{number - 1} lines, but {fspath(longer)} has {last_line}, expected the same "
                "number; was only one of the files filtered?"
            )
            raise InputError(fact, path=shorter)
        yield _item(number, left, right, source, target)


def _item(
    number: int,
    left: str | Flaw,
    right: str | Flaw,
    source: str | PathLike[str],
    target: str | PathLike[str],
) -> RawPair | Flaw:
    """Return the sentence pair in one line of both files, or a `Flaw` if there is none."""
    if isinstance(left, Flaw):
        return left
    if isinstance(right, Flaw):
        return right
    if right.strip():
        return RawPair(number, left, right)  # an empty source is reported by `read_parallel`
    if left.strip():
        return Flaw(number, "empty target", "the target side is empty, expected text", target)
    return Flaw(number, BLANK, "the line is blank in both files, expected a sentence pair", source)


def _last_line(
    rest: Sequence[tuple[int, tuple[str | Flaw | None, str | Flaw | None]]],
) -> int | None:
    """Return the number of the last line of the longer file, or None if the rest of it is blank.

    Args:
        rest: line number and sides of each line after the end of the shorter file.
    """
    for _, (left, right) in rest:
        line = left or right
        if line and (isinstance(line, Flaw) or not line.isspace()):
            return rest[-1][0]
    return None
