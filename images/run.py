"""Runs the programs that build an artefact."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bluebridge.images.report import NO_ROOM, ImageError

NETWORK_SIGNS = (
    *("Could not resolve", "Temporary failure resolving", "Could not connect"),
    *("Unable to connect", "Connection timed out", "Connection failed", "Network is unreachable"),
)
"""The messages of apt when it cannot reach the package mirror."""
OTHER_MIRROR = "check the network, or name another mirror in BLUEBRIDGE_MIRROR"

NO_MOUNT_POINT = "cannot change root filesystem propagation"
"""The message of `unshare` where `/` is no mount point: nothing can be mounted there in private."""


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
    if "No space left on device" in output:
        return ImageError(f"{what}: the disk is full", NO_ROOM)
    if any(sign in output for sign in NETWORK_SIGNS):
        return ImageError(f"{what}: the package mirror cannot be reached", unreachable)
    if NO_MOUNT_POINT in output:
        mend = "run `mount --bind DIR DIR` before `chroot DIR`, or enter it by pivot_root"
        return ImageError(f"{what}: / is no mount point, as in a plain chroot", mend)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("E:") or "error:" in line]
    detail = (telling or lines[-1:] or [f"exit status {status}"])[0]
    return ImageError(f"{what} failed: {detail}", "see that message; `make setup` tries again")
