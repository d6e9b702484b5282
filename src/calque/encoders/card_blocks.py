"""Keep the user's text when a model card is rewritten: calque replaces only its own blocks, which
are enclosed in markers.

A card has two blocks: `card` describes the encoder, and `scores` contains its scores. The key
`model-index` of the front matter can contain a third block, with the scores in the form that the
Hugging Face hub reads. Everything outside the blocks belongs to the user, as do keys of the front
matter that calque does not write. Cards of earlier versions have no markers.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from calque.errors import CalqueWarning
from calque.storage import whole

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

CARD_FILE = "README.md"
CARD, SCORES = "card", "scores"
#: key of the front matter from which the hub reads scores
MODEL_INDEX = "model-index"
#: text below the heading of the scores before scores are recorded; earlier versions wrote the same
#: text
NO_SCORES = (
    "No scores are recorded yet. `calque evaluate` computes scores, and its option `--record` adds "
    "them here."
)
SCORES_HEADING = "## Scores"
#: beginning of the header of the table of scores, in this version and in earlier ones
TABLE_START = "| task | metric | data | languages |"
# level-2 headings of the cards of earlier versions, which had no markers
_OUR_HEADINGS = ("## Use", "## Data", "## Settings", "## Training", SCORES_HEADING)
_FRONT = re.compile(r"\A\ufeff?---\r?\n(.*?\r?\n)?---[ \t]*(\r?\n|\Z)", re.DOTALL)
_KEY = re.compile(r"[^\s#:-][^:]*:")  # first line of a key of the front matter
# the block of results in the front matter, whose markers are comments of YAML
_BEGIN_RESULTS = (
    "# calque: results. calque replaces these lines; write your own results outside them."
)
_END_RESULTS = "# end of calque: results"
_RESULTS = re.compile(
    r"^[ ]*# calque: results\b.*?^[ ]*# end of calque: results[ \t]*(?:\r?\n|\Z)",
    re.DOTALL | re.MULTILINE,
)


def block(name: str, content: str) -> str:
    """Return a block with its markers."""
    return f"{_begin(name)}\n{content.strip()}\n{_end(name)}\n"


def _begin(name: str) -> str:
    return f"<!-- calque: {name}. calque replaces this block; write your own text outside it. -->"


def _end(name: str) -> str:
    return f"<!-- end of calque: {name} -->"


def _pattern(name: str) -> re.Pattern[str]:
    begin = rf"^<!-- calque: {name}\b[^\n]*-->[ \t]*\r?\n"
    return re.compile(
        rf"{begin}.*?^<!-- end of calque: {name} -->[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
    )


def read_card(path: Path) -> str:
    """Read a model card without changing line endings; return an empty string if there is none.

    Bytes that are not UTF-8 become lone surrogates, from which `write_card_text` restores them.
    """
    return path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""


def write_card_text(path: Path, text: str) -> None:
    """Write a model card atomically, with the bytes that `read_card` could not decode."""
    with whole(path) as part:
        part.write_bytes(text.encode("utf-8", "surrogateescape"))


def _replaced(text: str, name: str, new: str) -> str:
    """Return a text in which the block with the given name is replaced or, if there is none, added
    at the end.
    """
    pattern = _pattern(name)
    if pattern.search(text):
        return pattern.sub(lambda _: new, text, count=1)  # a function, because `new` is no template
    return _joined(text, new)


# -- scores ----------------------------------------------------------------------------------------
def with_scores(text: str, content: str) -> str:
    """Return a card in which only calque's block of scores is replaced; a card without such a block
    gets one at its end.

    A card of an earlier version has scores without markers: the heading, followed by the table or
    by `NO_SCORES`. A section "Scores" with other content belongs to the user.
    """
    new = _with_endings_of(text, block(SCORES, content.encode("utf-8", "replace").decode()))
    if _pattern(SCORES).search(text):
        return _replaced(text, SCORES, new)
    lines = text.splitlines(keepends=True)
    for start in _headings(lines):
        if lines[start].strip() != SCORES_HEADING:
            continue
        end = _end_of_old_scores(lines, start)
        if end is not None:
            return "".join([*lines[:start], new, *lines[end:]])
    return _joined(text, new)


def _end_of_old_scores(lines: Sequence[str], start: int) -> int | None:
    """Return the index of the line after the scores of an earlier version, whose heading is line
    `start`, or None.
    """
    number = start + 1
    while number < len(lines) and not lines[number].strip():
        number += 1
    if number < len(lines) and lines[number].strip() == NO_SCORES:
        return number + 1
    if number == len(lines) or not lines[number].startswith(TABLE_START):
        return None
    while number < len(lines) and lines[number].startswith("|"):
        number += 1
    return number


# -- results for the hub ---------------------------------------------------------------------------
def with_results(text: str, index: str) -> str:
    """Return a card in which only calque's results in the front matter are replaced; a card without
    front matter gets one.

    Args:
        text: card.
        index: YAML of the key `model-index` with all of calque's results.
    """
    front, body = _split(text)
    if not front:
        front, body = _with_endings_of(text, "---\n---\n"), _with_endings_of(text, "\n") + text
    head, delimiter, rest = front.rpartition("---")
    keys = dict(_keys(front))
    index = _with_endings_of(text, index)
    if MODEL_INDEX not in keys:
        return f"{head}{_marked_index(index)}{delimiter}{rest}{body}"
    old = keys[MODEL_INDEX]
    new = _merged_index(_without_results(old), index)
    return f"{head.replace(old, new, 1)}{delimiter}{rest}{body}"


def _without_results(lines: str) -> str:
    """Return the lines of the key `model-index` without calque's block; empty if nothing is
    left.
    """
    left = _RESULTS.sub("", lines)
    is_empty = left != lines and left.partition(":")[2].strip() == ""
    return "" if is_empty else left


def _merged_index(users: str, index: str) -> str:
    """Return the key `model-index` with the user's lines, and calque's results in a block at their
    end.
    """
    if users:
        users = _without_copies(users, index)
    if not users:
        return _marked_index(index)
    start = re.search(r"^([ ]*)- ", users.partition("\n")[2], re.MULTILINE)
    if start is None:
        fact = f"{MODEL_INDEX} in the front matter of {CARD_FILE} is not a list of lines"
        warnings.warn(
            CalqueWarning(f"{fact} that start with a hyphen, so the scores were not added to it"),
            stacklevel=2,
        )
        return users
    return users + _marked(index.partition("\n")[2], start[1])


def _marked_index(index: str) -> str:
    """Return the key `model-index` with only calque's results."""
    key, ending, results = index.partition("\n")
    return key + ending + _marked(results, "")


def _marked(results: str, indent: str) -> str:
    """Return the lines of calque's results with markers, indented by the given spaces."""
    ending = "\r\n" if "\r\n" in results else "\n"
    # `str.splitlines` would also split at characters that YAML keeps in a line.
    inner = results.replace("\r\n", "\n").removesuffix("\n").split("\n")
    lines = [_BEGIN_RESULTS, *inner, _END_RESULTS]
    return "".join(f"{indent}{line}{ending}" for line in lines)


def _without_copies(users: str, index: str) -> str:
    """Return the key `model-index` without results that calque wrote: a program that rewrites the
    front matter, such as `ModelCard.save`, drops the markers.

    The lines do not change if they contain no such results, or if they are not valid.
    """
    from huggingface_hub import ModelCardData

    stored, written = _results(users), _results(index)
    ours = {_question(result) for result in written}
    kept = [result for result in stored if _question(result) not in ours]
    if len(kept) == len(stored):
        return users
    if not kept:
        return ""
    name = re.search(r"^[ ]*(?:- )?name: *(.+?) *$", users, re.MULTILINE)
    model_name = name[1] if name is not None else CARD_FILE
    return f"{ModelCardData(model_name=model_name, eval_results=kept)}\n"


def _results(index: str) -> list[EvalResult]:
    """Return the results in the key `model-index`; none if it is not valid."""
    from huggingface_hub import ModelCard

    try:
        return ModelCard(f"---\n{index}---\n").data.get("eval_results") or []
    except Exception:  # invalid YAML raises errors of another library
        return []


def _question(result: EvalResult) -> tuple[object, ...]:
    """Return a key that is equal for results of the same metric on the same test set."""
    return (
        result.task_type,
        result.task_name,
        result.dataset_type,
        result.dataset_config,
        result.metric_type,
    )


# -- the whole card --------------------------------------------------------------------------------
def with_user_text(old: str, new: str) -> str:
    """Return the new card with the user's text of an old card.

    Args:
        old: card that is replaced; it may have been written by the user, or by an earlier version
            of calque.
        new: card written by calque, with front matter and both blocks.
    """
    if not old.strip():
        return new
    old_front, old_body = _split(old)
    new_front, new_body = _split(_with_endings_of(old, new))
    front = _merged_front(old_front, new_front)
    if _pattern(CARD).search(old_body):
        for name in (CARD, SCORES):
            content = _pattern(name).search(new_body)
            if content is not None:
                old_body = _replaced(old_body, name, content[0])
        return front + old_body
    if _is_of_earlier_version(old_body):
        return front + _joined(new_body, _own_sections(old_body))
    return front + _joined(old_body, new_body)


def _is_of_earlier_version(body: str) -> bool:
    """Return whether a card without markers was written by calque."""
    lines = body.splitlines(keepends=True)
    headings = {lines[number].strip(): number for number in _headings(lines)}
    scores = headings.get(SCORES_HEADING)
    has_scores = scores is not None and _end_of_old_scores(lines, scores) is not None
    return has_scores and "## Settings" in headings and re.search(r"\bcalque\b", body) is not None


def _own_sections(body: str) -> str:
    """Return the sections of a card of an earlier version that the user added."""
    lines = body.splitlines(keepends=True)
    starts = [*_headings(lines), len(lines)]
    user_lines: list[str] = []
    for start, end in pairwise(starts):
        heading = lines[start].strip()
        if heading == SCORES_HEADING:  # text after the table belongs to the user
            user_lines += lines[_end_of_old_scores(lines, start) or start : end]
        elif heading.startswith("## ") and heading not in _OUR_HEADINGS:
            user_lines += lines[start:end]
    return "".join(user_lines).lstrip("\r\n")


def _headings(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of the lines with headings of level 1 and 2, except in code blocks."""
    fence = ""
    for number, line in enumerate(lines):
        mark = re.match(r"\s{0,3}(```+|~~~+)", line)
        if mark is not None and not fence:
            fence = mark[1]
        elif mark is not None and mark[1].startswith(fence) and not line[mark.end() :].strip():
            fence = ""
        elif not fence and re.match(r"##? ", line):
            yield number


def _split(text: str) -> tuple[str, str]:
    """Return the front matter, with its delimiters, and the rest."""
    front = _FRONT.match(text)
    if front is None:
        return "", text
    return front[0], text[front.end() :]


def _merged_front(old: str, new: str) -> str:
    """Return the new front matter with the keys of the old one that it lacks, such as the
    licence.
    """
    if not new:
        return old
    new_keys = dict(_keys(new))
    user_keys = []
    for name, lines in _keys(old):
        if name == MODEL_INDEX:  # calque's results are those of the former encoder
            lines = _without_results(lines)
        if name not in new_keys:
            user_keys.append(lines)
    head, delimiter, rest = new.rpartition("---")
    return f"{head}{''.join(user_keys)}{delimiter}{rest}"


def _keys(front: str) -> list[tuple[str, str]]:
    """Return the keys of front matter, each with its lines."""
    keys: list[tuple[str, str]] = []
    for line in front.splitlines(keepends=True)[1:-1]:
        if _KEY.match(line):
            keys.append((line.partition(":")[0].strip(), line))
        elif keys:  # a further line of the value
            name, lines = keys[-1]
            keys[-1] = name, lines + line
    return keys


def _joined(first: str, second: str) -> str:
    """Join two parts of a card with an empty line between them."""
    if not first or not second:
        return first + second
    ending = "\r\n" if "\r\n" in first else "\n"
    while not first.endswith(ending * 2):
        first += ending
    return first + second


def _with_endings_of(old: str, new: str) -> str:
    """Return the new text with the line endings of the old one."""
    return new.replace("\n", "\r\n") if "\r\n" in old else new


def whole_card(text: str) -> str:
    """Return a card with markers around its description, and with an empty block of scores.

    Args:
        text: front matter and description.
    """
    front, body = _split(text)
    scores = block(SCORES, f"{SCORES_HEADING}\n\n{NO_SCORES}")
    return f"{front}\n{block(CARD, body)}\n{scores}"


def keep_user_text(old: Path, new: Path) -> None:
    """Add the user's text in the card of the folder `old` to the card in the folder `new`, if both
    folders have a card.
    """
    old_card, new_card = old / CARD_FILE, new / CARD_FILE
    if old_card.is_file() and new_card.is_file():
        write_card_text(new_card, with_user_text(read_card(old_card), read_card(new_card)))
