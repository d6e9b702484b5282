"""The files that a task is made from, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Self, TypeVar

from calque.errors import SettingError

if TYPE_CHECKING:
    from calque.linking import Say, Words
    from calque.text import ParallelCorpus
    from calque.training.together import Realignment

T = TypeVar("T")


def _words() -> Words:
    from calque.linking import Words

    return Words()


@dataclass(frozen=True)
class Inputs:
    """Files as a user names them: on the command line, in a study, or from Python.

    Args:
        task: its name, which tells a class that serves several tasks which one is meant.
        test: what to measure on.
        langs: languages of parallel texts and dictionaries, source first: one pair for each.
        train: what to learn from; for retrieval, what the encoder was aligned on.
        dev: annotated text to choose the epoch on; of sentences, the text to choose the threshold of mining on.
        ceiling: annotated text in the languages of the tests, such as a translation of `train` (translate-train).
        links, train_links: word links of parallel texts, Pharaoh format.
        text: plain text, `LANG=FILE`.
        project: parallel texts that tags are projected over; `langs` and `links` are theirs then.
        realign: alignment of the encoder on parallel text in the run that trains it; see `calque.runs.realign`.
        first_senses: WordNet's `index.sense`.
        words: how words are found and linked, and how many texts are read: of parallel and plain text so many, of each
            training file so many at even distances.
        test_limit: the same of each annotated test and development file.
        say: takes a line of news.
    """

    task: str
    test: Sequence[str]
    langs: Sequence[tuple[str, str]] = ()
    train: Sequence[str] = ()
    dev: Sequence[str] = ()
    ceiling: Sequence[str] = ()
    links: Sequence[str] = ()
    train_links: Sequence[str] = ()
    text: Sequence[str] = ()
    project: Sequence[str] = ()
    realign: Realignment | None = None
    first_senses: str | None = None
    words: Words = field(default_factory=_words)
    test_limit: int | None = None
    say: Say = lambda line: None

    @property
    def given(self) -> list[str]:
        """Which kinds of files there are."""
        return [name for name in FILES if getattr(self, name)]

    def only(self, kind: str) -> str:
        """The file of a kind of which a task takes one.

        Raises:
            SettingError: there are several, or none.
        """
        files = getattr(self, kind)
        if len(files) != 1:
            raise SettingError(f"--{kind} takes one file here, got {len(files)}")
        return files[0]

    def each(self) -> list[Self]:
        """The same for each parallel test text, with its languages, its links, its training and its development text; one text
        that has several languages (TMX, the prefix of several files, a folder of them) is taken with each pair.

        Raises:
            SettingError: numbers of files that do not fit each other.
        """
        from calque.linking import check_pairs

        if not self.langs:
            raise SettingError(f"{self.task} needs --langs, e.g. --langs en de")
        n = max(len(self.test), len(self.langs))
        tests, langs = _for_each(self.test, n, "--test"), list(self.langs)
        check_pairs(tests, langs)
        if self.links and len(self.links) != n:
            raise SettingError(f"{len(self.links)} files of --links for {n} tests: give one for each")
        train = _for_each(self.train, n, "--train") if self.train else []
        dev = _for_each(self.dev, n, "--dev") if self.dev else []
        if self.train_links and len(self.train_links) != len(train):
            fact = f"{len(self.train_links)} files for {len(train)} training texts" if train else "needs --train"
            raise SettingError(f"--train-links {fact}{': give one for each' if train else ''}")
        return [
            replace(
                self, test=tests[k : k + 1], langs=langs[k : k + 1], links=self.links[k : k + 1], train=train[k : k + 1],
                train_links=self.train_links[k : k + 1], dev=dev[k : k + 1],
            )
            for k in range(n)
        ]  # fmt: skip

    def corpora(self) -> list[tuple[str, ParallelCorpus]]:
        """The parallel test texts, each with its name."""
        return [(one.test[0], self.words.read(one.test[0], one.langs[0])) for one in self.each()]


#: the fields that name files
FILES = (
    "test", "train", "dev", "ceiling", "links", "train_links", "text", "project", "realign", "first_senses",
)  # fmt: skip
#: what `calque.runs.realign` can be told
REALIGN = (
    "realign_when", "realign_method", "realign_towards", "realign_option",
)  # fmt: skip
#: all fields and those of `words` and `realign`, which no option of a task may be called
FIELDS = (
    *(each.name for each in fields(Inputs)), "model", "symmetrize", "pretokenized", "seed", "limit", "by_layer", *REALIGN,
)  # fmt: skip


def _for_each(given: Sequence[T], n: int, option: str) -> list[T]:
    """One for each of `n` tests."""
    if len(given) not in (1, n):
        raise SettingError(f"{len(given)} × {option} for {n} tests: give one for each, or one for all")
    return list(given) * n if len(given) == 1 else list(given)
