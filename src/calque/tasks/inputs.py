"""Input files of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Self, TypeVar

from calque.errors import SettingError

if TYPE_CHECKING:
    from calque.input_texts import Say, Words
    from calque.text import ParallelCorpus

T = TypeVar("T")


def _words() -> Words:
    from calque.input_texts import Words

    return Words()


@dataclass(frozen=True)
class Inputs:
    """Files of a task as given by the user on the command line, in a study, or in Python.

    Args:
        task: name of the task, for classes that implement several tasks.
        test: test files.
        langs: languages of each parallel text or dictionary, source first.
        train: training files; for word retrieval, the text on which the encoder was aligned.
        dev: development text that selects the epoch or the threshold of sentence mining.
        ceiling: annotated text in the test languages, such as a translation of `train` (translate-train).
        links, train_links: word links of parallel texts in Pharaoh format.
        text: plain text, `LANG=FILE`.
        project: parallel texts for label projection; `langs` and `links` then belong to these texts.
        first_senses: path of WordNet's file `index.sense`.
        words: settings of tokenisation and word alignment, and the maximum number of texts: the first texts of a parallel or
            plain text, but evenly spaced texts of a training file.
        test_limit: maximum number of texts of an annotated test or development file, evenly spaced; default: all.
        say: function that prints messages.
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
    first_senses: str | None = None
    words: Words = field(default_factory=_words)
    test_limit: int | None = None
    say: Say = lambda line: None

    @property
    def given(self) -> list[str]:
        """Names of the attributes that contain files."""
        return [name for name in FILES if getattr(self, name)]

    def only(self, kind: str) -> str:
        """Return the file of a kind; raise a `SettingError` unless there is exactly one."""
        files = getattr(self, kind)
        if len(files) != 1:
            raise SettingError(f"--{kind} must be one file, got {len(files)}")
        return files[0]

    def each(self) -> list[Self]:
        """Split the inputs by parallel test text, each with its languages, links, training and development text. A test text in
        several languages (TMX, a common prefix of several files, a folder) is used with each pair of `langs`.

        Raises:
            SettingError: the number of files of an option does not match the number of test texts.
        """
        from calque.input_texts import check_pairs

        if not self.langs:
            raise SettingError(f"{self.task} needs --langs, e.g. --langs en de")
        n = max(len(self.test), len(self.langs))
        tests, langs = _for_each(self.test, n, "--test"), list(self.langs)
        check_pairs(tests, langs)
        if self.links and len(self.links) != n:
            raise SettingError(f"--links must have one file for each of {n} test texts, got {len(self.links)}")
        train = _for_each(self.train, n, "--train") if self.train else []
        dev = _for_each(self.dev, n, "--dev") if self.dev else []
        if self.train_links and len(self.train_links) != len(train):
            fact = f"must be {len(train)} files, got {len(self.train_links)}" if train else "needs --train"
            raise SettingError(f"--train-links {fact}{': give one for each training text' if train else ''}")
        return [
            replace(
                self, test=tests[k : k + 1], langs=langs[k : k + 1], links=self.links[k : k + 1], train=train[k : k + 1],
                train_links=self.train_links[k : k + 1], dev=dev[k : k + 1],
            )
            for k in range(n)
        ]  # fmt: skip

    def corpora(self) -> list[tuple[str, ParallelCorpus]]:
        """Return the name and the content of each parallel test text."""
        return [(one.test[0], self.words.read(one.test[0], one.langs[0])) for one in self.each()]


#: attributes that contain files
FILES = (
    "test", "train", "dev", "ceiling", "links", "train_links", "text", "project", "first_senses",
)  # fmt: skip
#: names that an option of a task cannot have: the attributes of `Inputs` and of `Inputs.words`
FIELDS = (
    *(each.name for each in fields(Inputs)), "model", "symmetrize", "pretokenized", "seed", "limit", "by_layer",
)  # fmt: skip


def _for_each(given: Sequence[T], n: int, option: str) -> list[T]:
    """Return one value for each of `n` test texts; repeat a single value."""
    if len(given) not in (1, n):
        raise SettingError(f"{option} must be given once, or once for each of {n} test texts, got {len(given)}")
    return list(given) * n if len(given) == 1 else list(given)
