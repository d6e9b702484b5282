"""Options shared by several commands, and the parsing of option values.

A frozen dataclass such as `Loading` contains related options. Commands decorated with `@grouped`
accept such dataclasses.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand

from calque import launched
from calque.errors import SettingError, did_you_mean
from calque.runs.settings import Layer, MaxLength, Model, Pooling, Seed, numbers, opt

if TYPE_CHECKING:
    from calque.input_texts import Words


# -- groups of options
# -------------------------------------------------------------------------------------------------
def grouped(command: Callable[..., Any]) -> Any:
    """Decorate a command whose parameters include dataclasses of options.

    Each field of a dataclass becomes an option of the parser, and the command receives an instance
    of the dataclass:

        @grouped
        def encode(text: Annotated[str, typer.Argument()], load: Loading) -> None: ...

    Here, `--layer`, `--pooling` and the other options of `Loading` follow the command's own
    options. Options of a parameter named `how` come first. If a dataclass has a method `around`,
    the command runs in the context manager that `around` returns.
    """
    signature = inspect.signature(command, eval_str=True)
    own = {name: p.replace(kind=p.KEYWORD_ONLY) for name, p in signature.parameters.items()}
    groups = {
        name: own.pop(name).annotation
        for name, p in signature.parameters.items()
        if is_dataclass(p.annotation)
    }
    flat = {name: _flat(group) for name, group in groups.items()}
    options = [*flat.pop("how", ()), *own.values(), *chain(*flat.values())]

    @functools.wraps(command)
    def called(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in names_of(group)})
        with ExitStack() as stack:
            for name, group in groups.items():
                if hasattr(group, "around"):
                    stack.enter_context(given[name].around(given))
            return command(**given)

    found: Any = called
    found.__signature__ = signature.replace(parameters=options)
    found.__annotations__ = {each.name: each.annotation for each in options}
    return found


def _flat(group: type[Any]) -> list[inspect.Parameter]:
    """Return the fields of a dataclass as parameters."""
    hints, parameters = get_type_hints(group, include_extras=True), []
    for field in fields(group):
        hint = (
            Annotated[hints[field.name], field.metadata["option"]]
            if field.metadata
            else hints[field.name]
        )
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parameters.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default
            )
        )
    return parameters


def names_of(group: type[Any]) -> list[str]:
    """Return the names of the parameters of a group."""
    return [each.name for each in fields(group)]


@dataclass(frozen=True)
class Loading:
    """Options for loading an encoder."""

    layer: Layer = None
    pooling: Pooling = None
    max_length: MaxLength = None
    bidirectional: bool | None = opt(
        None,
        "Let a decoder's subwords attend to later subwords; default: as saved, otherwise off.",
        "--bidirectional",
    )
    load: list[str] | None = opt(
        None,
        "Option of one kind of encoder, e.g. steps=transform; repeatable.",
        metavar="NAME=VALUE",
        hidden=True,
    )

    def arguments(self) -> dict[str, Any]:
        """Return the options that were given, as keyword arguments of `load_encoder`."""
        found = {
            name: value
            for name, value in vars(self).items()
            if value is not None and name != "load"
        }
        return found | (by_name(self.load, _of_one_kind(), "--load") if self.load else {})


def _of_one_kind() -> dict[str, Any]:
    """Return the types of the loading options that are specific to one kind of encoder, keyed by
    name.
    """
    from calque.encoders.folder import ENCODERS
    from calque.runs.study.values import of

    return {
        option: of(ENCODERS.load(name).open)[option]
        for name, row in ENCODERS.items()
        for option in row.options
    }


@dataclass(frozen=True)
class Linking:
    """Options for word alignment."""

    model: Model = "auto"
    symmetrize: str = opt(
        "one-to-one",
        "Method for combining the word links of both directions: one-to-one, intersection, union, "
        "grow-diag, grow-diag-final, "
        "grow-diag-final-and.",
    )
    seed: Seed = 0
    one_based: bool | None = opt(
        None,
        "Index of the first word in files of word links: 1 (--one-based) or 0 (--zero-based; "
        "default, with a warning if no "
        "link contains index 0).",
        "--one-based/--zero-based",
    )

    def words(self, pretokenized: bool, limit: int | None) -> Words:
        """Return the settings for tokenisation and word alignment."""
        from calque.input_texts import Words

        return Words(self.model, self.symmetrize, pretokenized, self.seed, limit, self.one_based)


@dataclass(frozen=True)
class Tracking:
    """Options for tracking training."""

    track: list[str] | None = opt(
        None,
        "Tracker that logs losses, learning rates and dev scores during training: tensorboard, "
        "wandb, trackio, mlflow, "
        "comet_ml, aim, clearml, dvclive, swanlab, or package.module:Class; repeatable.",
        metavar="TRACKER",
    )
    track_folder: Path = opt(Path("tracked"), "Folder for the logs of trackers that write files.")

    def around(self, given: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """Return the context manager of the trackers. The tracked run is named after the output
        path or the task.
        """
        if not self.track:
            return nullcontext()
        from calque.training.tracking import tracked

        out = getattr(given.get("how"), "out", given.get("out"))
        run = given.get("task", "calque") if out is None else Path(out).resolve().name
        return tracked(self.track, run=str(run), folder=self.track_folder)


# -- parsing of values
# ------------------------------------------------------------------------------
def news(quiet: bool):
    """Return a function that prints messages, or one that prints nothing if `quiet` is true or this
    is not the first process.
    """
    if quiet or launched.number():
        return lambda line: None
    return lambda line: print(line, file=sys.stderr, flush=True)


def by_name(
    items: Sequence[str], known: Mapping[str, Any], option: str = "--option"
) -> dict[str, Any]:
    """Parse the `NAME=VALUE` items of an option according to the type of each name.

    Raises:
        SettingError: a name is unknown, or a value has the wrong type.
    """
    options = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or name not in known:
            expected = (
                "NAME=VALUE with NAME one of "
                f"{', '.join(known) or 'none'}{did_you_mean(name, known)}"
            )
            raise SettingError(f"{option} {item}: expected {expected}")
        try:
            options[name] = value_of(f"{option} {name}", text, known[name])
        except SettingError as error:
            raise SettingError(
                f"{error}; write {option} {name}=VALUE with a valid value"
            ) from error
    return options


def value_of(option: str, text: str, wanted: Any) -> Any:
    """Parse the value of an option according to its type."""
    from calque.runs.study.values import Layer, parsed

    return numbers(text, option) if wanted == Sequence[Layer] else parsed(option, text, wanted)


# -- options of a method or task
# ---------------------------------------------------------------------------------------
class SubjectCommand(TyperCommand):
    """Command whose options depend on its subject, which is a method or a task.

    These specific options are the arguments of the subject's class, given as `--NAME VALUE` or
    `--option NAME=VALUE`. The general help lists only the most common options; the help for a
    subject, or `--more --help`, lists all options.

    Attributes:
        hides: names of declared options that the general help omits.
        asks_for: command that lists a subject's options; default: the command with `--more --help`.
        spelled: map from alternative spellings of options to the names of the options.
        helps: help text of each option; default: the description in the docstring of the subject's
            class.
    """

    hides: Sequence[str] = ()
    asks_for = ""
    spelled: ClassVar[Mapping[str, str]] = {}
    helps: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        params: Any = self.params
        for param in params:
            param.hidden = param.hidden or param.name in self.hides

    def find_subject(self, words: Sequence[str]) -> Any:
        """Return the subject that the command line selects, or None."""
        return None if "--help" in words and "--more" not in words else self.name

    def subjects(self) -> Mapping[str, Any]:
        """Return all subjects, keyed by their headings in the documentation."""
        return {}

    def types_of(self, subject: Any) -> Mapping[str, Any]:
        """Return the types of a subject's specific options, keyed by name."""
        return {}

    def described_by(self, subject: Any) -> Sequence[Any]:
        """Return the classes and functions whose arguments are the specific options of a
        subject.
        """
        return ()

    def refuse(self, name: str, option: str, subject: Any) -> None:
        """Raise an error if an option belongs to another subject."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        declared = {
            name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)
        }
        subject, left, kept, own = (
            self.find_subject(args),
            [word for word in args if word != "--more"],
            [],
            [],
        )
        ctx.meta.update(subject=subject, own=own)
        while left and left[0] != "--":
            word = left.pop(0)
            option, equals, text = word.partition("=")
            name = self.spelled.get(option, option[2:].replace("-", "_"))
            wanted = None
            if option.startswith("--") and option not in declared and subject is not None:
                wanted = self.types_of(subject).get(name)
                if wanted is None:
                    self.refuse(name, option, subject)
            if wanted is None:
                kept.append(word)
                continue
            if wanted is bool and not equals:
                text = str(not option.startswith(("--non-", "--keep-"))).lower()
            elif not equals:
                if not left:
                    raise SettingError(f"{option} must be followed by a value")
                text = left.pop(0)
            own.append((name, option, text))
        return super().parse_args(ctx, kept + left)

    def applies(self, param: Any, subject: Any) -> bool:
        """Return whether a subject's help lists a declared option."""
        return subject is not None or not param.hidden

    def format_options(self, ctx: Any, formatter: Any) -> None:
        subject = ctx.meta["subject"]
        sections: dict[str, list[Any]] = {
            "Specific options, also as --option NAME=VALUE": [],
            "Arguments": [],
            "Options": [],
        }
        own, arguments, options = sections.values()
        own += [] if subject is None else self.own_rows(subject)
        params: list[Any] = list(map(copy, self.get_params(ctx)))
        for param in params:
            param.hidden = not self.applies(param, subject)
            if (row := param.get_help_record(ctx)) is not None:
                (arguments if param.param_type_name == "argument" else options).append(row)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if subject is None:
            formatter.write_paragraph()
            formatter.write_text(
                f"More options: {self.asks_for or f'{ctx.command_path} --more --help'}."
            )

    def own_rows(self, subject: Any) -> list[tuple[str, str]]:
        """Return a subject's specific options with their descriptions."""
        texts: dict[str, str] = {}
        defaults: dict[str, Any] = {}
        for kind in self.described_by(subject):
            texts = {**described(kind), **texts}
            defaults = {
                name: each.default for name, each in inspect.signature(kind).parameters.items()
            } | defaults
        rows = []
        declared = {option: param.name for param in self.params for option in param.opts}
        for name in self.types_of(subject):
            option = f"--{name.replace('_', '-')}"
            if declared.get(option) == name:
                continue
            text, default = self.helps.get(name) or texts.get(name, ""), defaults.get(name)
            text = in_help(text, {*self.types_of(subject), *declared.values()})
            if (
                isinstance(default, str | int | float)
                and default is not False
                and "default" not in text
            ):
                shown = "true" if default is True else default
                text = f"{text} [default: {shown}]".strip()
            spelled = [each for each, other in self.spelled.items() if other == name]
            rows.append(
                (
                    ", ".join(spelled) or (f"--option {name}=" if option in declared else option),
                    text,
                )
            )
        return rows


def own_options(context: typer.Context, items: Sequence[str] | None) -> dict[str, Any]:
    """Return the specific options that the user gave as `--NAME VALUE` or `--option NAME=VALUE`."""
    command: Any = context.command
    own = context.meta["own"]
    if not (own or items):
        return {}
    types = command.types_of(context.meta["subject"])
    return by_name(items or [], types) | {
        name: value_of(option, text, types[name]) for name, option, text in own
    }


_REFERENCE = r"`[^`]+`(?: and `[^`]+`)*"  # references to classes or functions


def in_help(text: str, options: Container[str]) -> str:
    """Return the description of an argument as help text for the command line, without Python
    terms.

    Names in backticks become options (`max_words` becomes --max-words) or plain words, references
    to classes and functions are left out, and so is the meaning of None, which cannot be given on
    the command line.

    Args:
        options: names of the options of the command.
    """
    text = re.sub(r"[;,] None [^.;]*", "", text)
    text = re.sub(rf" \(see {_REFERENCE}\)", "", text)
    text = re.sub(rf",? see {_REFERENCE}", "", text)
    return re.sub(r"`([^`]+)`", lambda match: _spelled(match[1], options), text)


def _spelled(name: str, options: Container[str]) -> str:
    return f"--{name.replace('_', '-')}" if name in options else name


def described(kind: Any) -> dict[str, str]:
    """Return the descriptions of arguments from the docstring of a function, or of a class and its
    base classes. The description in a class takes precedence. A description "see `X`" is replaced
    by the description in the class X."""
    found: dict[str, str] = {}
    for each in getattr(kind, "__mro__", (kind,)):
        section = inspect.cleandoc(each.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
        for entry in re.split(r"\n(?=    \S)", section):
            names, _, text = " ".join(entry.split()).partition(": ")
            for name in names.split(", "):
                see = re.match(r"see `(\w+)`", text)
                other = None if see is None else vars(sys.modules[each.__module__]).get(see[1])
                if not found.get(name):
                    found[name] = (
                        (described(other).get(name, "") if isinstance(other, type) else "")
                        if see
                        else text
                    )
    return found
