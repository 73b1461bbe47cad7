"""A bare Debian root: made by debootstrap, with this machine's network settings and a checkout."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import IO

from bluebridge.host_tools import processes
from bluebridge.images.apt import debian_mirror

HOUSE = Path(__file__).resolve().parents[2]
PACKAGES = ("ca-certificates", "git", "make", "python3", "python3-venv", "sudo")
"""Those that docs/ci.md names, and sudo."""
CHECKOUT = "checkout"
"""Name of the clone in the user's home."""
SETTINGS = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs")
"""What a program needs to reach the package mirrors as this machine does."""
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
        home = "root" if self.user == "root" else f"home/{self.user}"
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

    def _host(self, *words: str) -> None:
        if status := self._status(*words):
            raise subprocess.CalledProcessError(status, words)

    def _status(self, *words: str) -> int:
        child = processes.spawn(words, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            return child.wait()
        finally:
            processes.stop(child)
