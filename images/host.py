"""The Debian packages that the host needs, and their installation by apt.

Run by `make setup` before the virtual environment exists: standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from bluebridge.images.report import ImageError, exit_status, failure, step


class Use(IntEnum):
    """The purposes that a machine is set up for; each includes those before it."""

    HOSTS = 1
    """Pairs without a guest: the device server."""
    GUESTS = 2
    WORK = 3
    """Tests, documents and the compiler as well."""


@dataclass(frozen=True)
class Need:
    """A Debian package, its purpose, and a check whether this machine has what it provides."""

    package: str
    purpose: str
    present: Callable[[], bool]
    use: Use = Use.HOSTS
    """The least use that needs it."""


def _program(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _file(path: str) -> Callable[[], bool]:
    return lambda: Path(path).exists()


def _modules(*names: str) -> Callable[[], bool]:
    return lambda: all(importlib.util.find_spec(name) is not None for name in names)


NEEDS = (
    Need("python3-venv", "the virtual environment", _modules("venv", "ensurepip")),
    Need("gcc", "libvfio-user", _program("gcc")),
    Need("libc6-dev", "libvfio-user", _file("/usr/include/linux/vfio.h")),
    Need(
        "python3-dev",
        "compiling the device",
        _file(f"{sysconfig.get_path('include')}/Python.h"),
        Use.WORK,
    ),
    Need("libjson-c-dev", "libvfio-user", _file("/usr/include/json-c/json.h")),
    Need(
        "chromium-headless-shell",
        "the tests of `bluebridge web`",
        _program("chromium-headless-shell"),
        Use.WORK,
    ),
    Need("tshark", "the tests of captures", _program("tshark"), Use.WORK),
    Need("zstd", "unpacking the kernel, exported caches", _program("zstd"), Use.GUESTS),
    Need(
        "debian-archive-keyring",
        "package signatures",
        _file("/usr/share/keyrings/debian-archive-keyring.gpg"),
    ),
)


def missing(use: Use = Use.WORK) -> list[Need]:
    """Return the needs of a use that this machine does not meet."""
    return [need for need in NEEDS if need.use <= use and not need.present()]


def install_words(needs: list[Need]) -> list[str]:
    """Return the command that installs `needs`, for root."""
    packages = [need.package for need in needs]
    return ["apt-get", "install", "-y", "--no-install-recommends", *packages]


def as_root(*words: str) -> str:
    """The command line with which this user runs the command `words` as root."""
    if os.geteuid() == 0:
        return shlex.join(words)
    if shutil.which("sudo"):
        return shlex.join(["sudo", *words])
    return shlex.join(["su", "-c", shlex.join(words)])


def install(use: Use = Use.WORK) -> None:
    """Install what is `missing`; raises `ImageError` with the command that would mend it."""
    needs = missing(use)
    if not needs:
        return
    command = install_words(needs)
    mend = as_root(*command)
    if shutil.which("apt-get") is None:
        raise ImageError(
            f"missing: {', '.join(need.package for need in needs)}, and there is no apt-get",
            "use Debian 12 or 13, or install their equivalents",
        )
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise ImageError("packages are missing, and we are neither root nor have sudo", mend)
        command = ["sudo", *command]
    with step(f"install {' '.join(need.package for need in needs)}"):
        _apt_get(command)
    if still := missing(use):
        raise ImageError(f"{still[0].package} did not install", mend)


def _apt_get(command: list[str]) -> None:
    """Install, after fetching the package lists if the first try does not know a package."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    update = [*command[: command.index("apt-get") + 1], "update"]
    said = ""
    for attempt in (command, update, command):
        done = subprocess.run(
            attempt,
            env=environment,
            stdin=None if attempt[0] == "sudo" else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if attempt is command and done.returncode == 0:
            return
        # apt-get update succeeds even if it reaches no mirror, so its output is kept for the error;
        # the latest output comes first, since the first line with a reason is shown.
        said = done.stdout + said
    unreachable = "check the network and the mirror in /etc/apt, then `make setup`"
    raise failure("installing packages", said, done.returncode, unreachable)


def main() -> int:
    """`python3 -m bluebridge.images.host [hosts|guests]`: check Python, install what is missing."""
    if sys.version_info < (3, 11):  # noqa: UP036 (this runs before anything checked it)
        print("images: Python is older than 3.11; to mend it: use Debian 12 or 13", file=sys.stderr)
        return 1
    use = Use[sys.argv[1].upper()] if sys.argv[1:] else Use.WORK
    return exit_status(lambda: install(use))


if __name__ == "__main__":
    sys.exit(main())
