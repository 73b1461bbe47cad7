"""Archives of an initramfs, of cpio's format `newc`, and the byte code of Python files in them.

The kernel unpacks them (Linux Documentation/driver-api/early-userspace/buffer-format.rst).
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import BinaryIO

from bluebridge.images.report import run
from bluebridge.images.unpack import foreign

TRAILER = "TRAILER!!!"
ALIGNMENT = 4


class CpioWriter:
    """Appends entries to `stream`; `close` writes the trailer. Owner is always root."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._inode = 0

    def folder(self, name: str, mode: int = 0o755) -> None:
        """A folder; its parents must have been written before."""
        self._entry(name, stat.S_IFDIR | mode, b"", links=2)

    def file(self, name: str, content: bytes, mode: int = 0o644, mtime: int = 0) -> None:
        """A plain file; `mtime` in seconds since 1970."""
        self._entry(name, stat.S_IFREG | mode, content, mtime=mtime)

    def link(self, name: str, target: str) -> None:
        """A symbolic link."""
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, name: str, major: int, minor: int, mode: int = 0o600) -> None:
        """A character device node."""
        self._entry(name, stat.S_IFCHR | mode, b"", device=(major, minor))

    def tree(self, root: Path) -> None:
        """Everything below `root`: folders, plain files and symbolic links, sorted by name."""
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                self.link(name, os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                self.folder(name, mode)
            elif stat.S_ISREG(status.st_mode):
                self.file(name, path.read_bytes(), mode, int(status.st_mtime))

    def close(self) -> None:
        """End the archive."""
        self._inode = 0
        self._entry(TRAILER, 0, b"")

    def _entry(
        self,
        name: str,
        mode: int,
        content: bytes,
        *,
        links: int = 1,
        mtime: int = 0,
        device: tuple[int, int] = (0, 0),
    ) -> None:
        encoded = name.encode() + b"\0"
        self._inode += mode != 0
        numbers = (
            self._inode,
            mode,
            0,
            0,
            links,
            mtime,
            len(content),
            0,
            0,
            *device,
            len(encoded),
            0,
        )
        header = b"070701" + b"".join(b"%08X" % number for number in numbers)
        self._padded(header + encoded)
        self._padded(content)

    def _padded(self, data: bytes) -> None:
        self._stream.write(data)
        self._stream.write(bytes(-len(data) % ALIGNMENT))


def archive_of(tree: Path) -> bytes:
    """Return a cpio archive of everything below `tree`."""
    stream = io.BytesIO()
    writer = CpioWriter(stream)
    writer.tree(tree)
    writer.close()
    return stream.getvalue()


def compile_python(guest_root: Path, strip: Path, *folders: Path) -> None:
    """Compile every Python file in `folders` to byte code, with the Python of `guest_root`.

    `strip` is removed from the paths in tracebacks. The byte code is not checked against its
    source, so the guest neither compiles nor reads the sources.
    """
    command = [
        *foreign(guest_root, "usr/bin/python3"),
        *("-m", "compileall", "-q", "-s", str(strip), "-p", "/"),
        *("--invalidation-mode", "unchecked-hash"),
        *map(str, folders),
    ]
    home = {"PYTHONHOME": str(guest_root / "usr")}
    run(command, env=home, what="compile the guest's Python code")
