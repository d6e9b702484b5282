"""The command line, a thin layer over the library.

Results are printed to standard output, and progress and messages to standard error. After a user
error, the exit status is 2.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from calque import launched
from calque.cli.memory import advice, exhausted, near_limit, watch
from calque.cli.streams import open_closed_streams, prepare_streams
from calque.errors import CalqueError, CalqueWarning, SettingError, Stopped, interruption

# For each command: its options that accept any number of values, and its minimum number of
# positional arguments.
_SEVERAL = {
    "align": (("--dictionary", "--text", "--anchors", "--released"), 0),
    "evaluate": (
        (
            "--test",
            "--train",
            "--dev",
            "--text",
            "--ceiling",
            "--project",
            "--rename",
            "--links",
            "--train-links",
        ),
        2,
    ),
    "distil": (("--text",), 0),
    "analyze": (("--upos",), 1),
    "explore": (("--text", "--test"), 1),
    "senses": (("--text",), 1),
}


def of_program(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the global options (`--on-error`, `--trust-code`), which may follow the command,
    from the other arguments.
    """
    ours, rest, left = [], [], list(arguments)
    while left:
        word = left.pop(0)
        if word == "--on-error" and left:
            ours += [word, left.pop(0)]
        else:
            (ours if word == "--trust-code" else rest).append(word)
    return ours, rest


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat an option before each of its values, because the parser accepts one value per option:
    `--langs en de` becomes `--langs en --langs de`. Arguments that the command needs as positional
    arguments are not used as values."""
    spread, rest = [], list(arguments)
    verb = next((a for a in rest if not a.startswith("-")), "")
    several, needed = _SEVERAL.get(verb, ((), 0))
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            return [*spread, argument, *rest]
        if argument in several:
            count = next(
                (k for k, value in enumerate(rest) if value.startswith("-") and value != "-"),
                len(rest),
            )
            if count == len(rest):  # the values extend to the end, because no option follows
                count = max(min(count, 1), count - _missing(spread, needed))
            spread += [word for value in rest[:count] for word in (argument, value)] or [argument]
            del rest[:count]
        elif argument == "--langs":
            values = rest[:2]
            if len(values) < 2 or any(value.startswith("-") for value in values):
                raise SettingError(
                    "--langs needs two languages, e.g. --langs en de; repeat --langs for each text"
                )
            del rest[:2]
            spread += ["--langs", values[0], "--langs", values[1]]
        else:
            spread.append(argument)
    return spread


def _missing(before: Sequence[str], needed: int) -> int:
    """Return the number of missing positional arguments: 0 if one of them directly follows the
    command, otherwise `needed`.
    """
    return needed if len(before) < 2 or before[1].startswith("-") else 0


def __getattr__(name: str) -> Any:
    if name not in ("app", "COMMANDS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from calque.cli import verbs

    return verbs.parser() if name == "app" else tuple(map(verbs.command_of, verbs.VERBS))


def _parser(verb: str) -> Any:
    from calque.cli import verbs

    return globals().get("app") or verbs.parser(verb)  # tests replace `app`


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with 0 after success, 1 if an unsupervised alignment failed, 2
    after a user error, and 130 or 143 after SIGINT or SIGTERM."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    gc.set_threshold(
        100_000, 50, 50
    )  # collecting garbage during imports takes 1/7 of a short command's time
    warnings.simplefilter("always", CalqueWarning)
    warnings.showwarning = lambda message, *_, **__: _say(f"calque: {message}")
    open_closed_streams()
    prepare_streams()
    if launched.number():  # only the first of several processes prints
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    code: Any = 0
    verb = ""
    try:
        program, given = of_program(
            list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
        )
        verb = given[0] if given else ""
        if arguments is None:  # started from the command line, not called from Python
            watch(verb)
        code = _parser(verb)(args=[*program, *spread(given)], standalone_mode=False)
    except CalqueError as error:
        if interruption(error) is not None:
            _stopped("interrupted")
        _fail(advice(verb) if exhausted(error) else str(error))
    except KeyboardInterrupt:
        _stopped("interrupted")
    except BrokenPipeError:
        _close_stdout()
        sys.exit(1)
    except Exception as error:
        stopped = getattr(error, "stopped", None)  # only `verbs.Ended` has this attribute
        if isinstance(stopped, Stopped):
            _stopped(str(stopped), stopped.signal)
        message = getattr(error, "format_message", None)
        if message is not None:  # an error of the parser, such as a missing option
            _fail(message() or "no command given; calque --help lists the commands")
        # The parser converts an interruption to Abort.
        if type(error).__name__ == "Abort" or interruption(error) is not None:
            _stopped("interrupted")
        _flush()
        if exhausted(error) or near_limit():
            _fail(advice(verb))
        if (reason := _of_the_disk(error)) is not None:
            _fail(reason)
        if launched.count() > 1:
            from calque.distributed import lost_peer

            if lost_peer(error):
                _fail(
                    "another process of this run has ended; repeat the command to resume from the "
                    "last checkpoint"
                )
        raise
    if code == 128 + signal.SIGINT:  # the parser returns this code after an interruption
        _stopped("interrupted")
    _flush()
    sys.exit(code if isinstance(code, int) else 0)


def _of_the_disk(error: Exception) -> str | None:
    """Return a message for an error raised by the operating system, or None for any other error."""
    from calque.storage import failure, finished, unwritten

    named = None
    if isinstance(error, OSError):
        named = error.filename2 or error.filename  # `filename2` is the target of a copy
    if (reason := unwritten(error)) is not None:
        return reason if named is None else str(failure(named, reason))
    if isinstance(error, OSError) and error.errno is not None:
        remedy = (
            "; choose another path, or change its permissions"
            if isinstance(error, PermissionError)
            else ""
        )
        return f"{'' if named is None else f'{finished(Path(named))}: '}{error.strerror or error}{remedy}"
    return None


def _say(line: str) -> None:
    if not launched.number():
        print(line, file=sys.stderr)


def _flush() -> None:
    """Flush standard output; if output is redirected to a file on a full disk, report the error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _close_stdout()
        sys.exit(1)
    except OSError as error:
        from calque.storage import unwritten

        _close_stdout()
        _fail(f"standard output: {unwritten(error) or error.strerror}")


def _close_stdout() -> None:
    with suppress(OSError, ValueError):  # captured streams in tests have no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stopped(message: str, number: int = signal.SIGINT) -> NoReturn:
    """Print a message that a signal stopped the run, and exit with status 128 plus the signal
    number.
    """
    _say(f"calque: {message}")
    sys.exit(128 + number)


def _fail(message: str) -> NoReturn:
    _say(f"calque: error: {' '.join(message.split())}")
    sys.exit(2)
