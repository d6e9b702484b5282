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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NoReturn

from calque import __version__, launched
from calque.cli.memory import advice, exhausted, near_limit, watch
from calque.cli.streams import open_closed_streams, prepare_streams
from calque.errors import CalqueError, CalqueWarning, Stopped, interruption


def run(words: Sequence[str]) -> int:
    """Run the command in `words`, or print its help, and return the exit code."""
    from calque.cli.parser import help_page, parse, program_options, program_page
    from calque.named import TRUST_CODE

    options, words = program_options(words)
    if words[:1] == ["--version"]:
        print(f"calque {__version__}")
        return 0
    if not words or words[0] == "--help":
        print(program_page())
        return 0
    name, *words = words
    if "--help" in words:
        print(help_page(name, words))
        return 0
    command = parse(name, words)
    with ExitStack() as stack:
        stack.enter_context(TRUST_CODE.given(options["trust_code"]))
        if options["on_error"] == "skip":
            from calque.input_texts import SKIP_UNUSABLE

            stack.enter_context(SKIP_UNUSABLE.given())
        stack.enter_context(command.around())
        return command.run() or 0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with 0 after success, 1 if an unsupervised alignment failed, 2
    after a user error, and 130 or 143 after SIGINT or SIGTERM."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Collecting garbage during imports takes 1/7 of a short command's time.
    gc.set_threshold(100_000, 50, 50)
    warnings.simplefilter("always", CalqueWarning)
    warnings.showwarning = lambda message, *_, **__: _say(f"calque: {message}")
    open_closed_streams()
    prepare_streams()
    if launched.number():  # only the first of several processes prints
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = next((word for word in words if not word.startswith("-")), "")
    code = 0
    try:
        if arguments is None:  # started from the command line, not called from Python
            watch(name)
        code = run(words)
    except CalqueError as error:
        if interruption(error) is not None:
            _stopped("interrupted")
        _fail(advice(name) if exhausted(error) else str(error))
    except Stopped as stopped:
        _stopped(str(stopped), stopped.signal)
    except KeyboardInterrupt:
        _stopped("interrupted")
    except BrokenPipeError:
        _close_stdout()
        sys.exit(1)
    except Exception as error:
        if interruption(error) is not None:
            _stopped("interrupted")
        _flush()
        _fail_if_known(error, name)
        raise
    _flush()
    sys.exit(code)


def _fail_if_known(error: Exception, name: str) -> None:
    """End the program with a message if the memory, the disk or another process is the cause of an
    error.
    """
    if exhausted(error) or near_limit():
        _fail(advice(name))
    reason = _of_the_disk(error)
    if reason is not None:
        _fail(reason)
    if launched.count() > 1:
        from calque.distributed import lost_peer

        if lost_peer(error):
            _fail(
                "another process of this run has ended; repeat the command to resume from the "
                "last checkpoint"
            )


def _of_the_disk(error: Exception) -> str | None:
    """Return a message for an error raised by the operating system, or None for any other error."""
    from calque.storage import failure, finished, unwritten

    named = None
    if isinstance(error, OSError):
        named = error.filename2 or error.filename  # `filename2` is the target of a copy
    if (reason := unwritten(error)) is not None:
        return reason if named is None else str(failure(named, reason))
    if isinstance(error, OSError) and error.errno is not None:
        remedy = ""
        if isinstance(error, PermissionError):
            remedy = "; choose another path, or change its permissions"
        place = "" if named is None else f"{finished(Path(named))}: "
        return f"{place}{error.strerror or error}{remedy}"
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
