"""Runs the programs that build an artefact, and tells a user of progress and of errors to mend."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

NO_ROOM = "free some space, or set BLUEBRIDGE_CACHE to a folder on another disk"
ELSEWHERE = "set BLUEBRIDGE_CACHE to a folder of yours"

OTHER_MIRROR = "check the network, or name another mirror in BLUEBRIDGE_MIRROR"

NO_MOUNT_POINT = "cannot change root filesystem propagation"
"""The message of `unshare` where `/` is no mount point: nothing can be mounted there in private."""
_REASONS = (
    (("No space left on device",), "the disk is full", NO_ROOM),
    (
        ("CERTIFICATE_VERIFY_FAILED",),
        "the package index shows a certificate nobody here trusts",
        "name the file of your network's certificates in PIP_CERT",
    ),
    (
        (
            *("NewConnectionError", "ConnectTimeoutError", "ConnectionError", "ReadTimeout"),
            *("ProxyError", "name resolution", "Name or service not known"),
        ),
        "the package index cannot be reached",
        "check the network, or name another index in PIP_INDEX_URL",
    ),
    (
        (
            *("Could not resolve", "Temporary failure resolving", "Could not connect"),
            *("Unable to connect", "Connection timed out", "Connection failed"),
            "Network is unreachable",
        ),
        "the package mirror cannot be reached",
        OTHER_MIRROR,
    ),
    (
        (NO_MOUNT_POINT,),
        "/ is no mount point, as in a plain chroot",
        "run `mount --bind DIR DIR` before `chroot DIR`, or enter it by pivot_root",
    ),
)
"""What programs print (pip before apt), what that means, and what mends it."""


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


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Return the standard output of `command`; `what` names the step in the error.

    Raises `ImageError` with the line of the program's output that gives the reason.
    """
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise ImageError(f"{what}: {command[0]} is not on this machine", "make setup") from error
    if done.returncode != 0:
        raise failure(what, done.stdout + done.stderr, done.returncode)
    return done.stdout


def failure(what: str, output: str, status: int, unreachable: str = OTHER_MIRROR) -> ImageError:
    """Return the error for a program that ended with `status` after printing `output`.

    `unreachable` is the advice for a mirror that cannot be reached.
    """
    for signs, meaning, mend in _REASONS:
        if any(sign in output for sign in signs):
            return ImageError(f"{what}: {meaning}", unreachable if mend is OTHER_MIRROR else mend)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("E:", "ERROR:")) or "error:" in line]
    detail = (telling or lines[-1:] or [f"exit status {status}"])[0]
    return ImageError(f"{what} failed: {detail}", "see that message; `make setup` tries again")
