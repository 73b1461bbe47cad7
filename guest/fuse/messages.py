"""FUSE: its messages in bytes, and the mount whose descriptor carries them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import subprocess
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

MAJOR, MINOR = 7, 31

IN_HEADER = struct.Struct("=IIQQIIII")
"""len, opcode, unique, nodeid, uid, gid, pid, padding."""
OUT_HEADER = struct.Struct("=IiQ")
"""len, negative errno or 0, unique of the request."""
INIT_IN = struct.Struct("=IIII")
"""major, minor, max_readahead, flags."""
INIT_OUT = struct.Struct("=IIIIHHIIHHI28x")
"""major, minor, max_readahead, flags, max_background, congestion_threshold, max_write, time_gran,
max_pages, map_alignment, flags2."""
ATTR = struct.Struct("=QQQQQQIIIIIIIIII")
"""ino, size, blocks, atime, mtime, ctime, three nanoseconds, mode, nlink, uid, gid, rdev,
blksize, flags."""
ENTRY_OUT = struct.Struct("=QQQQII")
"""nodeid, generation, entry_valid, attr_valid, two nanoseconds; the attributes follow."""
ATTR_OUT = struct.Struct("=QII")
"""attr_valid, nanoseconds, padding; the attributes follow."""
OPEN_OUT = struct.Struct("=QII")
"""file handle, flags, padding."""
RW_IN = struct.Struct("=QQIIQII")
"""file handle, offset, size, flags, lock owner, open flags, padding; of a WRITE data follows."""
WRITE_OUT = struct.Struct("=II")
"""The answer to WRITE: size, padding."""
FORGET_IN = struct.Struct("=Q")
"""The request FORGET: the number of look-ups of the inode that the kernel forgets."""
BATCH_FORGET_IN = struct.Struct("=II")
"""count, padding; so many FORGET_ONE follow."""
FORGET_ONE = struct.Struct("=QQ")
"""One inode of BATCH_FORGET: inode, number of look-ups."""
OPEN_IN = struct.Struct("=II")
"""flags as of open(2), open flags."""
INTERRUPT_IN = struct.Struct("=Q")
"""unique of the request that is interrupted."""
RELEASE_IN = struct.Struct("=QIIQ")
"""file handle, flags, release flags, lock owner."""
STATFS_OUT = struct.Struct("=QQQQQIIII24x")
"""blocks, free, available, files, free files, block size, name length, fragment size, padding."""
DIRENT = struct.Struct("=QQII")
"""inode, offset of the next entry, name length, type; the name follows, padded to 8 bytes."""

OPEN_DIRECT_IO = 1

DEVICE = "/dev/fuse"
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2
_libc = ctypes.CDLL(None, use_errno=True)


class Opcode(IntEnum):
    """enum fuse_opcode, as far as a tree needs it."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    ACCESS = 34
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


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
