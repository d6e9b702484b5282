"""Parser of the command line, which `argparse` provides and the declarations of commands configure.

`argparse` assigns words to options and arguments, checks that required ones are given, and prints
the help. Values are parsed according to the declared types, see `calque.spec`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

from calque.commands import COMMANDS
from calque.commands.base import Command, by_name
from calque.errors import SettingError, did_you_mean
from calque.spec import Declared, declared, present, value_of

#: prefix of the subject's options in the namespace, because a command can have the same names
_OF_SUBJECT = "subject."
#: prefix of words after `--`, which `argparse` would otherwise read as options
_LITERAL = "\0"


class _Parser(argparse.ArgumentParser):
    """Parser that raises errors instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise SettingError(message.replace(_LITERAL, ""))


class _Keep(argparse.Action):
    """Action that keeps each use of an option: its flag and its values."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        uses = getattr(namespace, self.dest, [])
        setattr(namespace, self.dest, [*uses, (flag or "", values)])


def program_options(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Separate the options of the program (`--on-error`, `--trust-code`), which may follow the
    command, from the other words.

    Raises:
        SettingError: `--on-error` is neither raise nor skip.
    """
    options: dict[str, Any] = {"trust_code": False, "on_error": "raise"}
    others, rest = [], list(words)
    while rest and rest[0] != "--":
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if word == "--trust-code":
            options["trust_code"] = True
        elif flag == "--on-error" and (equals or rest):
            options["on_error"] = value if equals else rest.pop(0)
        else:
            others.append(word)
    if options["on_error"] not in ("raise", "skip"):
        raise SettingError(f"--on-error must be raise or skip, got {options['on_error']}")
    return options, others + rest


def command_class(name: str) -> type[Command]:
    """Import and return the class of a command.

    Raises:
        SettingError: there is no such command.
    """
    if name.startswith("-"):
        raise SettingError(f"no such option: {name}; calque --help lists options and commands")
    return COMMANDS.load(name)


def parse(name: str, words: Sequence[str]) -> Command:
    """Return the command `name` with the options and arguments in `words`.

    Raises:
        SettingError: an option is unknown or missing, or a value is invalid.
    """
    command = command_class(name)
    subject = command.subject_in(words)
    common, specific = common_options(command), specific_options(command, subject)
    arranged = _arranged([word for word in words if word != "--more"], command, subject)
    uses = vars(_parser(name, command, subject).parse_intermixed_args(arranged))
    values, used, of_subject = {}, {}, {}
    for key, each in common.items():
        if key in uses:
            flag, values[key] = _value(each, uses[key])
            if not each.option.positional:
                used[key] = flag
    for key, each in specific.items():
        if _OF_SUBJECT + key in uses:
            of_subject[key] = _value(each, uses[_OF_SUBJECT + key])[1]
    types_by_name = {key: each.type for key, each in command.specific_options(subject).items()}
    by_option = by_name(values.get("options") or [], types_by_name)
    return command(**values, used=used, specific=by_option | of_subject)


def common_options(command: type[Command]) -> dict[str, Declared]:
    """Return the options of a command that do not depend on its subject. Options that the class
    itself declares come before those of its base classes.
    """
    options = declared(command, "used", "specific")
    ordered: dict[str, Declared] = {}
    for base in command.__mro__:
        names = vars(base).get("__annotations__", {})
        ordered |= {name: options[name] for name in names if name in options}
    return ordered


def specific_options(command: type[Command], subject: Any) -> dict[str, Declared]:
    """Return the subject's options that have a flag of their own. An option with the same flag as
    an option of the command can only be given as `--option NAME=VALUE`.
    """
    taken = {flag for each in common_options(command).values() for flag in all_flags(each)}
    return {
        name: each
        for name, each in command.specific_options(subject).items()
        if not taken & set(all_flags(each))
    }


# -- flags and values ------------------------------------------------------------------------------
def all_flags(each: Declared) -> dict[str, bool]:
    """Return the flags of an option, and whether each switches the option on."""
    if each.option.positional:
        return {}
    flags = {}
    for spelling in each.flags:
        on, slash, off = spelling.partition("/")
        flags |= {on: True} if on else {}
        flags |= {off: False} if slash else {}
    return flags


def _is_switch(each: Declared) -> bool:
    return present(each.type) == [bool]


def _is_repeatable(each: Declared) -> bool:
    return present(each.type) == [list[str]]


def _n_values(each: Declared) -> int | str | None:
    """Return the number of words after one flag as `nargs` of `argparse`."""
    if each.option.positional:
        if _is_repeatable(each):
            return "+" if each.is_required else "*"
        return None if each.is_required else "?"
    if each.option.several:
        return "+"
    words = each.option.metavar.split()
    return len(words) if _is_repeatable(each) and len(words) > 1 else None


def _value(each: Declared, uses: Sequence[tuple[str, Any]]) -> tuple[str, Any]:
    """Return the longest spelling of the flag that the user gave, and the value of an option.

    Args:
        uses: flag and values of each use of the option. The last use counts, unless the option
            can be repeated.
    """
    flag, last = uses[-1]
    if _is_switch(each):
        name, equals, text = flag.partition("=")
        switches_on = all_flags(each)[name]
        return name, value_of(name, text, bool) == switches_on if equals else switches_on
    where = flag or each.option.metavar or each.name
    if _is_repeatable(each):
        values = []
        for _, words in uses:
            values += words if isinstance(words, list) else [words]
        return flag, [word.removeprefix(_LITERAL) for word in values]
    text = last.removeprefix(_LITERAL)
    value = value_of(where, text, each.type)
    if each.option.check is not None:
        # A path loses the slash at its end, which the check may need.
        value = each.option.check(where, text if isinstance(value, Path) else value)
    return max([flag, *all_flags(each)], key=len), value


def _arranged(words: Sequence[str], command: type[Command], subject: Any) -> list[str]:
    """Return the words in a form that `argparse` reads as the user meant them.

    A value that starts with a hyphen, such as the layers `-2,-1`, is attached to its option. If
    the values of an option extend to the end, the words that the command needs as arguments are
    not used as values. Words after `--` are arguments.

    Raises:
        SettingError: an option is unknown, or has too few values.
    """
    options = common_options(command)
    flags: dict[str, Declared] = {}
    for each in (*options.values(), *specific_options(command, subject).values()):
        flags |= dict.fromkeys(all_flags(each), each)
    n_missing = 0  # number of required arguments that may follow the options
    if not words or words[0].startswith("-"):
        n_missing = sum(each.option.positional and each.is_required for each in options.values())
    arranged: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*arranged, *(_LITERAL + each for each in rest)]
        if not _is_flag(word):
            arranged.append(word)
            continue
        flag, equals, _ = word.partition("=")
        if flag not in flags:
            _refuse(flag, flags, command, subject)
        each = flags[flag]
        if _is_switch(each) or equals:
            arranged.append(word)
        elif _n_values(each) is None:
            if not rest:
                raise SettingError(f"{flag} must be followed by a value")
            arranged.append(f"{flag}={rest.pop(0)}")
        else:
            values = _values_of(flag, each, rest)
            del rest[: len(values)]
            if not rest and each.option.several:
                n_kept = max(1, len(values) - n_missing)
                # The arguments are moved to the front, where no option precedes them.
                arranged = [*values[n_kept:], *arranged]
                values = values[:n_kept]
            arranged += [flag, *values]
    return arranged


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _values_of(flag: str, each: Declared, words: Sequence[str]) -> list[str]:
    """Return the values of an option with several values: the words up to the next option, or as
    many as the option has.

    Raises:
        SettingError: there are too few words.
    """
    n_values = _n_values(each)
    values: list[str] = []
    for word in words:
        if _is_flag(word) or len(values) == n_values:
            break
        values.append(word)
    n_needed = n_values if isinstance(n_values, int) else 1
    if len(values) < n_needed:
        example = _EXAMPLES.get(each.option.metavar, "FILE")
        raise SettingError(
            f"{flag} must be followed by {each.option.metavar}, e.g. {flag} {example}"
        )
    return values


#: example of the values of an option, keyed by their placeholder
_EXAMPLES = {"SOURCE TARGET": "en de"}


def _refuse(flag: str, flags: Container[str], command: type[Command], subject: Any) -> NoReturn:
    """Raise an error for an unknown option; the error says which subject has the option."""
    command.refuse_option(flag.lstrip("-").replace("-", "_"), flag, subject)
    known = [each for each in flags if each.startswith("--")]  # type: ignore[attr-defined]
    raise SettingError(f"no such option: {flag}{did_you_mean(flag, known)}")


# -- parser and help -------------------------------------------------------------------------------
def _parser(name: str, command: type[Command], subject: Any, *, for_help: bool = False) -> _Parser:
    """Return the parser of a command, or one with the texts of its help."""
    common, specific = common_options(command), specific_options(command, subject)
    # A paragraph of the docstring becomes one paragraph of the help.
    paragraphs = re.split(r"\n\s*\n", command.description(subject).strip())
    texts = [" ".join(paragraph.split()) for paragraph in paragraphs]
    arguments = [each for each in common.values() if each.option.positional]
    parser = _Parser(
        prog=f"calque {name}",
        usage=" ".join(["calque", name, "[OPTIONS]", *map(placeholder, arguments)]),
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for text in texts:
        parser.add_argument_group(None, text)
    of_subject = parser.add_argument_group("Specific options, also as --option NAME=VALUE")
    of_arguments = parser.add_argument_group("Arguments")
    of_command = parser.add_argument_group("Options")
    every = command.specific_options(subject)
    names = {*common, *every}
    for key, each in specific.items():
        _add(of_subject, _OF_SUBJECT + key, each, help_text(each, names))
    if for_help:
        # Options that can only be given as --option NAME=VALUE. An option of the command with the
        # same name, such as --seed, already sets the subject's option.
        for key, each in every.items():
            if key not in specific and key not in common:
                text, metavar = help_text(each, names), placeholder(each)
                of_subject.add_argument(f"--option {key}=", metavar=metavar, dest=key, help=text)
    for key, each in common.items():
        text = argparse.SUPPRESS
        if command.applies(key, subject) and not each.option.rare:
            text = help_text(each, names)
        _add(of_arguments if each.option.positional else of_command, key, each, text)
    return parser


def _add(group: Any, key: str, each: Declared, text: str) -> None:
    """Add an option to a parser."""
    if each.option.positional:
        group.add_argument(
            key, nargs=_n_values(each), metavar=placeholder(each), help=text, action=_Keep
        )
        return
    flags = list(all_flags(each))
    if not _is_switch(each):
        metavar: Any = placeholder(each)
        if isinstance(_n_values(each), int):
            metavar = tuple(metavar.split())
        group.add_argument(
            *flags,
            dest=key,
            nargs=_n_values(each),
            metavar=metavar,
            required=each.is_required and not key.startswith(_OF_SUBJECT),
            help=text,
            action=_Keep,
        )
        return
    group.add_argument(*flags, dest=key, nargs=0, help=text, action=_Keep)
    values = [f"{flag}={value}" for flag in flags for value in ("true", "false")]
    group.add_argument(*values, dest=key, nargs=0, help=argparse.SUPPRESS, action=_Keep)


def placeholder(each: Declared) -> str:
    """Return the name of an option's value in the help."""
    if each.option.several:
        return each.option.metavar.removesuffix("...")
    if each.option.metavar:
        return each.option.metavar
    (first, *_) = present(each.type)
    number = get_args(first)[0] if hasattr(first, "__metadata__") else first
    return {int: "N", float: "X", Path: "PATH"}.get(number, "TEXT")


def help_text(each: Declared, names: Container[str]) -> str:
    """Return the help of an option, with its default. Names in backticks become options if they
    are in `names` (`max_words` becomes --max-words).
    """

    def spelled(match: re.Match[str]) -> str:
        name = match[1]
        return f"--{name.replace('_', '-')}" if name in names else name

    text = re.sub(r"`([^`]+)`", spelled, each.option.help)
    if each.is_required:
        text = f"{text} [required]"
    elif (
        isinstance(each.default, str | int | float | Path)
        and each.default is not False
        and each.default != ""
        and "default" not in text
    ):
        shown = "true" if each.default is True else each.default
        text = f"{text} [default: {shown}]"
    return text.strip().replace("%", "%%")


def help_page(name: str, words: Sequence[str]) -> str:
    """Return the help of a command; `words` select its subject."""
    command = command_class(name)
    return help_of(name, command.subject_in([*words, "--help"]))


def help_of(name: str, subject: Any) -> str:
    """Return the help of a command for one subject; None stands for the general help."""
    command = command_class(name)
    parser = _parser(name, command, subject, for_help=True)
    for heading, rows in command.lists(subject).items():
        group = parser.add_argument_group(heading)
        for row, text in rows:
            group.add_argument(row, help=text.replace("%", "%%"))
    if subject is None:
        more = command.full_help or f"calque {name} --more --help"
        parser.epilog = f"More options: {more}."
    return parser.format_help()


def program_page() -> str:
    """Return the help of the program, which lists all commands."""
    parser = _Parser(
        prog="calque",
        usage="calque [OPTIONS] COMMAND [ARGUMENTS]",
        description="Align the languages of a multilingual encoder, and measure the effect.",
        add_help=False,
    )
    options = parser.add_argument_group("Options")
    options.add_argument("--version", action="store_true", help="Show the version and exit.")
    options.add_argument(
        "--trust-code",
        action="store_true",
        help="Allow the command to import and run custom classes named in an encoder's folder.",
    )
    options.add_argument(
        "--on-error",
        metavar="raise|skip",
        help="If over a tenth of the lines of a parallel text are unusable, stop with an error "
        "(raise), or skip them (skip). [default: raise]",
    )
    options.add_argument("--help", action="store_true", help="Show this message and exit.")
    groups: dict[str, Any] = {}
    for name, row in COMMANDS.items():
        if row.heading not in groups:
            groups[row.heading] = parser.add_argument_group(row.heading)
        first = (COMMANDS.load(name).__doc__ or "").partition("\n\n")[0]
        groups[row.heading].add_argument(name, help=" ".join(first.split()))
    return parser.format_help()
