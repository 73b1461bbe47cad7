"""`python -m tests.bare`: `make krping` and `make test` in bare Debian machines, from nothing.

Clones what is committed here into a new root for each release and user, one after the other, and
prints how long each step took; needs root and 8 GiB of disk for a root. The exit status is 1 when
a command failed. Nothing of a root stays, unless --keep is given.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bluebridge.host_tools.processes import termination_as_exception
from bluebridge.images.host import as_root
from bluebridge.images.report import ImageError
from tests.bare.machine import HOUSE, Machine

RELEASES = ("bookworm", "trixie")
USERS = ("root", "user")
COMMANDS = ("make krping", "make test")
PROGRAMS = {"debootstrap": "debootstrap", "git": "git", "unshare": "util-linux"}
"""Programs of this machine, and their packages."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 passed, 1 failed, 2 could not start, 130 stopped by Ctrl-C."""
    options = _parser().parse_args(argv)
    if os.geteuid() != 0:
        print("bare: only root can make one; run it with sudo", file=sys.stderr)
        return 2
    lacking = [package for name, package in PROGRAMS.items() if shutil.which(name) is None]
    if lacking:
        mend = as_root("apt-get", "install", "-y", *lacking)
        print(f"bare: not installed: {', '.join(lacking)}; to mend it: {mend}", file=sys.stderr)
        return 2
    # A shell starts what goes to the background with Ctrl-C ignored, which the tests would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="bare-", dir=options.folder))
    folder.chmod(0o755)
    try:
        with termination_as_exception():
            return _all(options, folder)
    except KeyboardInterrupt:
        return 130
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            folder.rmdir()


def _all(options: argparse.Namespace, folder: Path) -> int:
    failed = 0
    for release in options.release or RELEASES:
        for user in options.user or USERS:
            failed += not _passed(options, folder, release, user)
    return int(failed > 0)


def _passed(options: argparse.Namespace, folder: Path, release: str, user: str) -> bool:
    """Make one machine and run the commands in it, until one fails; tells of each."""
    commands = [" ".join(options.command)] if options.command else COMMANDS
    options.logs.mkdir(parents=True, exist_ok=True)
    path = options.logs / f"{release}-{user}.log"
    with path.open("wb", buffering=0) as log:
        machine = Machine(folder, release, user, log)
        try:
            began = time.monotonic()
            machine.make()
            _say(machine, "made", began)
            for command in commands:
                began = time.monotonic()
                status = machine.run(command)
                _say(machine, f"{command}: {'passed' if not status else f'status {status}'}", began)
                if status:
                    print(f"see {path}")
                    return False
            return True
        except (ImageError, subprocess.CalledProcessError) as error:
            print(f"bare: {error}; see {path}", file=sys.stderr)
            return False
        finally:
            if not options.keep:
                machine.remove()


def _say(machine: Machine, what: str, began: float) -> None:
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    print(f"{machine.release}, {machine.user}: {what}, {minutes} min {seconds} s", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bare", description=__doc__)
    parser.add_argument(
        "--release", action="append", metavar="NAME", help=f"default: {', '.join(RELEASES)}"
    )
    parser.add_argument(
        "--user",
        action="append",
        metavar="NAME",
        help="`root`, or a name for a user with sudo; default: both",
    )
    parser.add_argument(
        "--folder", default="/var/tmp", help="where the roots are made (default: /var/tmp)"
    )
    parser.add_argument(
        "--logs",
        type=Path,
        default=HOUSE / "build" / "bare",
        help="output goes to RELEASE-USER.log in here (default: build/bare)",
    )
    parser.add_argument("--keep", action="store_true", help="do not remove the roots")
    parser.add_argument(
        "command", nargs="*", help=f"in the clone, after --; default: {', then '.join(COMMANDS)}"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
