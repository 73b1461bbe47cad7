"""`python -m tests.bare`: what README names first, in bare Debian machines, from nothing.

Clones what is committed here into a new root for each release and user, one after the other, and
prints how long each step took; needs root and 8 GiB of disk for a root. The exit status is 1 when
a command failed. Nothing of a root stays, unless --keep is given.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from bluebridge.host_tools import processes
from bluebridge.host_tools.processes import termination_as_exception
from bluebridge.images.apt import debian_mirror
from bluebridge.images.host import as_root
from bluebridge.images.report import ImageError

HOUSE = Path(__file__).resolve().parents[2]
PACKAGES = ("ca-certificates", "git", "make", "python3", "python3-venv", "sudo")
"""Those that docs/ci.md names, and sudo."""
CHECKOUT = "checkout"
"""Name of the clone in the user's home."""
SETTINGS = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs")
"""Variables that a program needs to reach the package mirrors as this machine does."""
_TRIES = 10
_ENTER = """\
root=$1 user=$2 command=$3
mount --bind "$root" "$root" && cd "$root" &&
mount -t proc proc proc &&
mount --rbind /sys sys && mount --make-rslave sys &&
mount --rbind /dev dev && mount --make-rslave dev && mount -t tmpfs tmpfs dev/shm &&
mkdir -p old && pivot_root . old && umount -l /old && cd / || exit 125
su - "$user" -c "$command"
exit $?
"""
"""Process 1 of the machine: all others are killed when it ends, and its mounts go with it. It
stays, instead of becoming `su`, since a shell reaps the orphans that process 1 inherits."""


class Machine:
    """A root below `folder`, which is made and must be new."""

    def __init__(self, folder: Path, release: str, user: str, log: IO[bytes]) -> None:
        """`release` is a codename; `user` is `root` or one to make; `log` gets all output."""
        self.root = folder / f"{release}-{user}"
        self.release = release
        self.user = user
        self._log = log

    def make(self) -> None:
        """Make the root with its user and a clone of what is committed here."""
        names = ",".join(PACKAGES)
        # What it mounts goes with it, even if it is killed.
        words = ("unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={names}")
        self._host(*words, self.release, str(self.root), debian_mirror())
        self._settings()
        if self.user != "root":
            self._chroot("useradd", "--create-home", "--shell=/bin/bash", self.user)
            self._write("etc/sudoers.d/bare", f"{self.user} ALL=(ALL) NOPASSWD: ALL\n")
        home = self._home
        clone = ("git", "clone", "--quiet", "--no-hardlinks", str(HOUSE))
        self._host(*clone, str(self.root / home / CHECKOUT))
        self._chroot("chown", "-R", f"{self.user}:", f"/{home}/{CHECKOUT}")

    def run(self, command: str) -> int:
        """Exit status of a shell command, run by the user in the clone; nothing of it is left."""
        proxies = (f"{name}={value}" for name, value in os.environ.items() if "_proxy" in name)
        line = f"cd {CHECKOUT} && {shlex.join(['env', *proxies, 'sh', '-c', command])}"
        namespaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
        return self._status(
            *namespaces, "sh", "-c", _ENTER, "bare", str(self.root), self.user, line
        )

    def remove(self) -> None:
        """Remove the root, in which nothing is mounted that others see."""
        for _ in range(_TRIES):  # the last processes of a command that was stopped may still write
            shutil.rmtree(self.root, ignore_errors=True)
            if not self.root.exists():
                return
            time.sleep(1)

    def _settings(self) -> None:
        for path in SETTINGS:
            target = self.root / path.lstrip("/")
            if os.path.isdir(path):  # its links point out of the root
                shutil.rmtree(target)
                shutil.copytree(path, target, ignore_dangling_symlinks=True)
            elif os.path.exists(path):
                target.unlink(missing_ok=True)
                shutil.copy(path, target)
        fetching = subprocess.run(
            ["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True
        ).stdout
        self._write("etc/apt/apt.conf.d/99bare", fetching)
        self._write("etc/hosts", f"127.0.0.1 localhost {socket.gethostname()}\n")

    def _write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def _chroot(self, *words: str) -> None:
        self._host("chroot", str(self.root), *words)

    def give(self, files: Sequence[Path]) -> None:
        """Copy files into the home of the user."""
        for file in files:
            shutil.copy(file, self.root / self._home)

    @property
    def _home(self) -> str:
        return "root" if self.user == "root" else f"home/{self.user}"

    def _host(self, *words: str) -> None:
        if status := self._status(*words):
            raise subprocess.CalledProcessError(status, words)

    def _status(self, *words: str) -> int:
        child = processes.spawn(words, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            return child.wait()
        finally:
            processes.stop(child)


RELEASES = ("bookworm", "trixie")
USERS = ("root", "user")
COMMANDS = ("make krping-hosts", "make krping", "make test")
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
            machine.give(options.file)
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
    parser.add_argument(
        "--file", type=Path, action="append", default=[], help="a file to copy beside the clone"
    )
    parser.add_argument("--keep", action="store_true", help="do not remove the roots")
    parser.add_argument(
        "command", nargs="*", help=f"in the clone, after --; default: {', then '.join(COMMANDS)}"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
