"""The project's guest code as a second archive of the initrd, made at each start of a guest.

Archives are of cpio's format `newc`, which the kernel unpacks as initramfs (Linux
Documentation/driver-api/early-userspace/buffer-format.rst). It unpacks several archives of one
initrd in turn, each starting at a multiple of four bytes; so a change of guest code does not
rebuild the guest's root. Compiled modules are in it if they were built of exactly this code;
building them is left to `make setup`, since it takes longer than a start.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bluebridge.images import guest_build
from bluebridge.images.cache import Cache, file_digest, key_of
from bluebridge.images.report import run, say
from bluebridge.images.unpack import foreign

TRAILER = "TRAILER!!!"
ALIGNMENT = 4

HOME = "opt/bluebridge"
PACKAGES = ("bluebridge/guest", "bluebridge/device/layout")
COMPILED = "bluebridge/compiled_guest"
"""The folder in which `bluebridge.guest.compiled` looks for compiled modules."""
SINGLE = (
    *("bluebridge/__init__.py", "bluebridge/cache_root.py", "bluebridge/compiled.py"),
    *("bluebridge/hot_modules.py", "bluebridge/device/__init__.py"),
)


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


def build(destination: Path, root: Path, initrd: Path) -> Path:
    """Write `initrd` followed by the guest code below `root` to `destination`.

    `initrd` is `Artefacts.initrd()`. Raises `bluebridge.images.report.ImageError`.
    """
    archive = overlay(root, initrd)
    with open(destination, "wb") as out:
        with open(initrd, "rb") as base:
            shutil.copyfileobj(base, out, 1 << 20)
        out.write(bytes(-out.tell() % ALIGNMENT))
        out.write(archive.read_bytes())
    return destination


def overlay(root: Path, initrd: Path) -> Path:
    """Return the archive of the guest code with its byte code, cached by the code's contents."""
    files = sources(root)
    names = [path.relative_to(root).as_posix() for path in files]
    code = code_key(root)
    cache = Cache(initrd.parent.parent)
    compiled = guest_build.present(cache, code)
    key = key_of(code, initrd.parent.name, None if compiled is None else compiled.name)

    def make(folder: Path) -> None:
        tree = folder / "tree"
        for path, name in zip(files, names, strict=True):
            target = tree / HOME / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        compile_python(initrd.parent / "root", tree, tree / HOME)
        if compiled is None:
            say("guest code: runs interpreted; `make setup` compiles it")
        else:
            shutil.copytree(compiled, tree / HOME / COMPILED)
        (folder / "overlay.cpio").write_bytes(archive_of(tree))
        shutil.rmtree(tree)

    return cache.ensure("overlay", key, make) / "overlay.cpio"


def code_key(root: Path) -> str:
    """Return the key of the guest code below `root`, from names and contents of its files."""
    files = sources(root)
    return key_of([path.relative_to(root).as_posix() for path in files], file_digest(*files))


def sources(root: Path) -> list[Path]:
    """Return the Python files that the guest needs, sorted; `root` holds `bluebridge`."""
    return sorted(_sources(root))


def _sources(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from (root / package).rglob("*.py")
    for name in SINGLE:
        yield root / name


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
