"""Input files and settings of tasks."""

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
    """Input files and settings of a task, from the command line, a study or Python.

    Args:
        task: name of the task, for classes that implement several tasks.
        test: test files.
        langs: languages of each parallel text or dictionary, source first.
        train: training files. For word retrieval, this is the text on which the encoder was
            aligned.
        dev: development text for selecting the epoch, or the threshold for mining sentence pairs.
        ceiling: annotated text in the test languages, such as a translation of `train`
            (translate-train).
        links, train_links: word links of parallel texts in Pharaoh format.
        text: monolingual text files, as `LANG=FILE`.
        project: parallel texts for label projection; `langs` and `links` then refer to these texts.
        first_senses: path of WordNet's file `index.sense`.
        words: settings for tokenisation and word alignment, and the maximum number of texts, evenly
            spaced, to use from a parallel or monolingual file or from an annotated training file.
        test_limit: maximum number of texts, evenly spaced, to use from an annotated test or
            development file; default: all.
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
        """Names of the file attributes that are not empty."""
        return [name for name in FILES if getattr(self, name)]

    def only(self, name: str) -> str:
        """Return the file in the attribute `name`; raise a `SettingError` if there is not exactly
        one file.
        """
        files = getattr(self, name)
        if len(files) != 1:
            raise SettingError(f"--{name} must be exactly one file, got {len(files)}")
        return files[0]

    def per_test_text(self) -> list[Self]:
        """Return separate inputs for each parallel test text, with its languages, links, training
        and development text. A test text in several languages (TMX file, folder or common prefix of
        several files) is used with each pair of `langs`.

        Raises:
            SettingError: the number of files of an option does not match the number of test texts.
        """
        from calque.input_texts import check_pairs

        if not self.langs:
            raise SettingError(
                f"{self.task} requires --langs, e.g. --langs en de, or a file name such as "
                "test.en-de.tsv"
            )
        n = max(len(self.test), len(self.langs))
        # One test file with several pairs of languages is read once for each pair.
        tests = _per_test_text(self.test, n, "--test")
        langs = list(self.langs)
        check_pairs(tests, langs)
        if self.links and len(self.links) != n:
            raise SettingError(
                f"--links must have one file for each of the {n} test texts, got {len(self.links)}"
            )
        train = _per_test_text(self.train, n, "--train") if self.train else []
        dev = _per_test_text(self.dev, n, "--dev") if self.dev else []
        self._check_train_links(len(train))
        return [
            replace(
                self,
                test=tests[k : k + 1],
                langs=langs[k : k + 1],
                links=self.links[k : k + 1],
                train=train[k : k + 1],
                train_links=self.train_links[k : k + 1],
                dev=dev[k : k + 1],
            )
            for k in range(n)
        ]

    def _check_train_links(self, n_texts: int) -> None:
        """Raise a `SettingError` if there is not one file of links for each training text."""
        if not self.train_links:
            return
        if not n_texts:
            raise SettingError("--train-links requires --train")
        if len(self.train_links) != n_texts:
            raise SettingError(
                f"--train-links must be {n_texts} files, got {len(self.train_links)}; set one "
                "for each training text"
            )

    def corpora(self) -> list[tuple[str, ParallelCorpus]]:
        """Return the name and the content of each parallel test text."""
        named_corpora = []
        for inputs in self.per_test_text():
            name = inputs.test[0]
            named_corpora.append((name, self.words.read(name, inputs.langs[0])))
        return named_corpora


#: attributes that contain file paths
FILES = (
    "test",
    "train",
    "dev",
    "ceiling",
    "links",
    "train_links",
    "text",
    "project",
    "first_senses",
)
#: names that the options of a task must not have: the attributes of `Inputs` and of `Inputs.words`
FIELDS = (
    *(field.name for field in fields(Inputs)),
    "model",
    "symmetrize",
    "pretokenized",
    "seed",
    "limit",
    "by_layer",
    "one_based",
)


def _per_test_text(values: Sequence[T], n: int, option: str) -> list[T]:
    """Return one value for each of the `n` test texts, repeating the value if there is only one."""
    if len(values) not in (1, n):
        raise SettingError(
            f"{option} must be set once, or once for each of the {n} test texts, got {len(values)}"
        )
    return list(values) * n if len(values) == 1 else list(values)
