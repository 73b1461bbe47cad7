"""Mounting of a FUSE connection on a directory."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

DEVICE = "/dev/fuse"
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2
_libc = ctypes.CDLL(None, use_errno=True)


def need_fuse() -> None:
    """Load the kernel's FUSE module unless it is there; raises `OSError` with ENODEV."""
    if not os.path.exists(DEVICE):
        subprocess.run(["modprobe", "fuse"], check=False, capture_output=True)
    if not os.path.exists(DEVICE):
        raise OSError(errno.ENODEV, f"{DEVICE} does not exist: load the kernel module fuse")


@contextlib.contextmanager
def mounted(directory: Path, name: str, *, check_modes: bool = False) -> Iterator[int]:
    """Mount a FUSE connection on `directory`, an existing empty one, unmount it at the end.

    Gives the descriptor for a `Connection`, which closes it. `name` is what /proc/mounts shows.
    `check_modes`: the kernel holds everybody but root to the permission bits. Raises `OSError`.
    """
    fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    options = f"fd={fd},rootmode={stat.S_IFDIR | 0o755:o},user_id=0,group_id=0,allow_other"
    if check_modes:
        options += ",default_permissions"
    kind = b"fuse." + name.encode()
    where, flags = os.fsencode(directory), MS_NOSUID | MS_NODEV
    if _libc.mount(name.encode(), where, kind, flags, options.encode()):
        code = ctypes.get_errno()
        os.close(fd)
        raise OSError(code, f"cannot mount on {directory}: {os.strerror(code)}")
    try:
        yield fd
    finally:
        unmount(directory)


@contextlib.contextmanager
def mounted_at(directory: Path, name: str) -> Iterator[int]:
    """Mount as `mounted`, on a directory that is made for it and removed afterwards.

    What a program that was killed has left there is unmounted before. Raises `OSError`, EBUSY if
    another program serves the directory.
    """
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if directory.is_mount():
            raise OSError(errno.EBUSY, f"{directory} is served by another program")
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
        unmount(directory)
    with mounted(directory, name, check_modes=True) as fd:
        yield fd
    with contextlib.suppress(OSError):
        directory.rmdir()


def unmount(directory: Path) -> None:
    """Unmount, at once for new users; nothing happens if nothing is mounted."""
    _libc.umount2(os.fsencode(directory), MNT_DETACH)
