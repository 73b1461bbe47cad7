"""What a user is told: lines of progress on standard error, and errors with what mends them."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NO_ROOM = "free some space, or set BLUEBRIDGE_CACHE to a folder on another disk"
ELSEWHERE = "set BLUEBRIDGE_CACHE to a folder of yours"


class ImageError(Exception):
    """Something that the project uses is missing or failed.

    `what` says what happened, `mend` is the command or step that mends it; each is one line.
    """

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}; to mend it: {mend}")
        self.what = what
        self.mend = mend


def of_system(error: OSError, place: object = "") -> ImageError:
    """Return the `ImageError` for an `OSError`; `place` is named when it has no file name."""
    where = error.filename or place
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ImageError(f"the disk of {where or 'the cache'} is full", NO_ROOM)
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR):
        return ImageError(f"cannot write {where or 'the cache'}: {error.strerror}", ELSEWHERE)
    if error.errno == errno.ENOMEM:
        return ImageError("this machine is out of memory", "end other programs")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ImageError(f"{error.strerror}", "raise the limit with `ulimit -n 4096`")
    told = f"{where}: {error.strerror or error}" if where else f"{error.strerror or error}"
    return ImageError(told, "see that message; `make setup` tries again")


def say(text: str) -> None:
    """One line of progress."""
    print(f"images: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announce a step at its start and its time in seconds at its end."""
    say(f"{text} ...")
    start = time.monotonic()
    yield
    say(f"{text}: {time.monotonic() - start:.1f} s")


def exit_status(action: Callable[[], None]) -> int:
    """Run `action`; return 0, 1 after printing an `ImageError` as a line, or 130 after Ctrl-C."""
    try:
        action()
    except ImageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("images: stopped", file=sys.stderr)
        return 130
    return 0
