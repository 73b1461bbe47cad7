"""Words for users: errors with what mends them, and lines of progress."""

from __future__ import annotations

import contextlib
import errno
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from bluebridge.printable import printable

_MENDS = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some of your quota there",
    errno.ENOMEM: "free some memory, or give the guests less with --memory",
    errno.EACCES: "choose a place you may write to",
    errno.EPERM: "choose a place you may write to",
    errno.EROFS: "choose a place that can be written to",
    errno.EEXIST: "choose another name",
}
_MESSAGE_CHARS = 2000
"""The characters kept at either end of a message that is longer than both."""
_LAST_CHARS = 4000
"""The characters at the end of a command's output among which its last line is looked for."""

Progress = Callable[[str], None]


def _message(text: str) -> str:
    if len(text) > 2 * _MESSAGE_CHARS:
        text = f"{text[:_MESSAGE_CHARS]} ... {text[-_MESSAGE_CHARS:]}"
    return printable(text)


class LabError(Exception):
    """An error that the user can do something about.

    `what` says what happened, `mend` what to do about it; `transcript` is the tail of whatever was
    being watched (a guest's console, the server's standard error), for the log rather than the
    one-line message. The message is printable and of some length, since guests write parts of it.
    """

    status = 1
    """The exit status of the command that ends with this error."""
    aloud: bool = False
    """Whether the transcript is to be printed, because it is what the user asked for.

    A compiler's output is such a transcript.
    """

    def __init__(self, what: str, mend: str = "", transcript: str = "") -> None:
        self.what = _message(what)
        self.mend = _message(mend)
        self.transcript = transcript
        super().__init__(f"{self.what}; {self.mend}" if mend else self.what)


class UsageError(LabError):
    """The user asked for something that makes no sense; nothing was started."""

    status = 2


class CommandFailed(LabError):
    """A command in a guest ended with a status other than zero."""

    def __init__(self, guest: str, command: str, status: int, output: str) -> None:
        end = output[-_LAST_CHARS:].splitlines()
        last = next((line for line in reversed(end) if line.strip()), "")
        said = f": {last.strip()}" if last else ""
        super().__init__(
            f"guest {guest}: `{command}` ended with status {status}{said}", transcript=output
        )
        self.exit_status = status
        self.output = output


def of_system(error: OSError) -> LabError:
    """Return the `LabError` for an operation that the system refused, with its mend."""
    where = f" ({error.filename})" if error.filename else ""
    mend = _MENDS.get(error.errno or 0, "look at that path and at its rights")
    return LabError(f"{error.strerror or error}{where}", mend)


@contextlib.contextmanager
def understood(said_by: str) -> Iterator[None]:
    """Turn an error in reading what a program of a guest printed into a `LabError`."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        what = f"{said_by} printed no result that makes sense: {type(error).__name__}: {error}"
        raise LabError(what, "run it by hand in the guest") from None


class Reporter:
    """Prints messages of progress to standard error; `Reporter(quiet=True)` prints nothing."""

    def __init__(self, quiet: bool = False) -> None:
        """Start the clock for the seconds in each line."""
        self._quiet = quiet
        self._start = time.monotonic()

    def __call__(self, message: str) -> None:
        """Print one line: the seconds since the start, then `message`."""
        if not self._quiet:
            elapsed = time.monotonic() - self._start
            print(f"[{elapsed:6.1f} s] {message}", file=sys.stderr, flush=True)


def listed(names: Iterable[str]) -> str:
    """Write names for people: `a and b`, `a, b, c and d`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
