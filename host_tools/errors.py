"""Words for users: errors with what mends them, and lines of progress."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterable

_MENDS = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some of your quota there",
    errno.ENOMEM: "free some memory, or give the guests less with --memory",
    errno.EACCES: "choose a place you may write to",
    errno.EPERM: "choose a place you may write to",
    errno.EROFS: "choose a place that can be written to",
    errno.EEXIST: "choose another name",
}


class LabError(Exception):
    """An error that the user can do something about.

    `what` says what happened, `mend` what to do about it; `transcript` is the tail of whatever was
    being watched (a guest's console, the server's standard error), for the log rather than the
    one-line message.
    """

    status = 1
    """The exit status of the command that ends with this error."""
    aloud: bool = False
    """Whether the transcript is to be printed, because it is what the user asked for.

    A compiler's output is such a transcript.
    """

    def __init__(self, what: str, mend: str = "", transcript: str = "") -> None:
        super().__init__(f"{what}; {mend}" if mend else what)
        self.what = what
        self.mend = mend
        self.transcript = transcript


class UsageError(LabError):
    """The user asked for something that makes no sense; nothing was started."""

    status = 2


class CommandFailed(LabError):
    """A command in a guest ended with a status other than zero."""

    def __init__(self, guest: str, command: str, status: int, output: str) -> None:
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
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


Progress = Callable[[str], None]


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
