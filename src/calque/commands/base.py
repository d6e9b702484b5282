"""Base class of commands, and groups of options that several commands share."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from calque import launched
from calque.errors import SettingError, did_you_mean
from calque.runs.settings import Layer, LayerOrAuto, MaxLength, Pooling, PoolingOrAuto, Say
from calque.spec import SeedNumber, option, types_of, value_of

if TYPE_CHECKING:
    from calque.input_texts import Words
    from calque.spec import Declared


@dataclass(frozen=True, kw_only=True)
class Command(ABC):
    """Base class of commands. The fields that `calque.spec.option` declares are the options of the
    command, and the docstring is its help.

    Some commands have a *subject*, a method or a task, which has options of its own. These
    specific options are given as `--NAME VALUE` or `--option NAME=VALUE`. The general help lists
    only the most common options; the help for a subject, or `--more --help`, lists all options.

    Attributes:
        used: spelling of each option that the user gave, keyed by field name.
        specific: values of the subject's options that the user gave.
        rare: fields that the general help leaves out.
        full_help: command that lists a subject's options; default: the command with
            `--more --help`.
    """

    rare: ClassVar[tuple[str, ...]] = ()
    full_help: ClassVar[str] = ""

    used: Mapping[str, str] = field(default_factory=dict, repr=False)
    specific: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @abstractmethod
    def run(self) -> int | None:
        """Run the command, and return the exit code; None stands for 0."""

    def around(self) -> AbstractContextManager[Any]:
        """Return the context manager in which the command runs."""
        return nullcontext()

    def refuse_unused(self, unused: Mapping[str, str]) -> None:
        """Raise an error if the user gave an option that has no effect; `unused` maps field names
        to reasons.
        """
        for name, flag in self.used.items():
            if name in unused:
                raise SettingError(f"{flag} {unused[name]}")

    # -- options of a subject
    @classmethod
    def subject_in(cls, words: Sequence[str]) -> Any:
        """Return the subject that the command line selects, or None. A command without subjects
        returns its name if its complete help is wanted.
        """
        return None if "--help" in words and "--more" not in words else cls.__name__

    @classmethod
    def subjects(cls) -> Mapping[str, Any]:
        """Return all subjects, keyed by their headings in the documentation."""
        return {}

    @classmethod
    def specific_options(cls, subject: Any) -> Mapping[str, Declared]:
        """Return a subject's specific options, keyed by name."""
        return {}

    @classmethod
    def refuse_option(cls, name: str, flag: str, subject: Any) -> None:
        """Raise an error if an unknown option belongs to another subject."""
        return None

    @classmethod
    def applies(cls, name: str, subject: Any) -> bool:
        """Return whether the help for a subject lists an option of the command."""
        return subject is not None or name not in cls.rare

    @classmethod
    def description(cls, subject: Any) -> str:
        """Return the description at the top of the help."""
        return cls.__doc__ or ""

    @classmethod
    def lists(cls, subject: Any) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return further lists in the help, as names with descriptions, keyed by heading."""
        return {}


# -- groups of options -----------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Loading(Command):
    """Options for loading an encoder."""

    layer: Layer = None
    pooling: Pooling = None
    max_length: MaxLength = None
    bidirectional: bool | None = option(
        None,
        "Let a decoder's subwords attend to later subwords; default: as saved, otherwise off.",
    )
    load: list[str] | None = option(
        None,
        "Option of one class of encoders, e.g. steps=transform; repeatable.",
        metavar="NAME=VALUE",
        rare=True,
    )

    def loading(self) -> dict[str, Any]:
        """Return the options that were given, as keyword arguments of `load_encoder`."""
        arguments = {
            name: getattr(self, name)
            for name in ("layer", "pooling", "max_length", "bidirectional")
            if getattr(self, name) is not None
        }
        if self.load:
            arguments |= by_name(self.load, _options_of_encoders(), "--load")
        return arguments


@dataclass(frozen=True, kw_only=True)
class Choosing(Loading):
    """Options for loading an encoder whose layer and pooling can be chosen by parallel text."""

    layer: LayerOrAuto = None  # type: ignore[assignment]
    pooling: PoolingOrAuto = None


def _options_of_encoders() -> dict[str, Any]:
    """Return the types of the loading options that only one class of encoders has, keyed by
    name.
    """
    from calque.encoders.folder import ENCODERS

    types: dict[str, Any] = {}
    for name, row in ENCODERS.items():
        of_class = types_of(ENCODERS.load(name).open)
        types |= {option_name: of_class[option_name] for option_name in row.options}
    return types


@dataclass(frozen=True, kw_only=True)
class Linking(Command):
    """Options for word alignment."""

    model: str = option("auto", "Word aligner: auto, fast-align, hmm or gibbs (most accurate).")
    symmetrize: str = option(
        "one-to-one",
        "Method for combining the word links of both directions: one-to-one, intersection, union, "
        "grow-diag, grow-diag-final, grow-diag-final-and.",
    )
    seed: SeedNumber = option(0, "Random seed.", role="identity")
    one_based: bool | None = option(
        None,
        "Index of the first word in files of word links: 1 (--one-based) or 0 (--zero-based; "
        "default, with a warning if no link contains index 0).",
        "--one-based/--zero-based",
    )

    def words(self, pretokenized: bool, limit: int | None, format: str) -> Words:
        """Return the settings for tokenisation and word alignment."""
        from calque.input_texts import Words

        return Words(
            self.model,
            self.symmetrize,
            pretokenized,
            self.seed,
            limit,
            self.one_based,
            format,
        )


#: names of the options of `Linking`
LINKING = ("model", "symmetrize", "seed", "one_based")
#: names of the options of `Loading`
LOADING = ("layer", "pooling", "max_length", "bidirectional", "load")


@dataclass(frozen=True, kw_only=True)
class Tracking(Command):
    """Options for tracking training."""

    track: list[str] | None = option(
        None,
        "Tracker that logs losses, learning rates and dev scores during training: tensorboard, "
        "wandb, trackio, mlflow, comet_ml, aim, clearml, dvclive, swanlab, or "
        "package.module:Class; repeatable.",
        metavar="TRACKER",
        role="run",
    )
    track_folder: Path = option(
        Path("tracked"), "Folder for the logs of trackers that write files.", role="run"
    )

    def tracked_name(self) -> str:
        """Return the name of the tracked run: that of the output path."""
        return Path(getattr(self, "out", None) or "calque").resolve().name

    def around(self) -> AbstractContextManager[Any]:
        if not self.track:
            return nullcontext()
        from calque.training.tracking import tracked

        return tracked(self.track, run=self.tracked_name(), folder=self.track_folder)


# -- messages and values ---------------------------------------------------------------------------
def say_unless(quiet: bool) -> Say:
    """Return a function that prints messages, or one that prints nothing if `quiet` is true or this
    is not the first process.
    """
    if quiet or launched.number():
        return lambda line: None
    return lambda line: print(line, file=sys.stderr, flush=True)


def by_name(
    items: Sequence[str], known: Mapping[str, Any], flag: str = "--option"
) -> dict[str, Any]:
    """Parse the `NAME=VALUE` items of an option according to the type of each name.

    Raises:
        SettingError: a name is unknown, or a value has the wrong type.
    """
    values = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or name not in known:
            names = ", ".join(known) or "none"
            meant = did_you_mean(name, known)
            raise SettingError(
                f"{flag} {item}: expected NAME=VALUE with NAME one of {names}{meant}"
            )
        try:
            values[name] = value_of(f"{flag} {name}", text, known[name])
        except SettingError as error:
            raise SettingError(f"{error}; write {flag} {name}=VALUE with a valid value") from error
    return values
