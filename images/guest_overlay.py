"""What a user lays over the guests' root: a folder of files, and more packages of Debian."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from bluebridge.images.cache import Cache, key_of
from bluebridge.images.initramfs import CpioWriter, archive_of
from bluebridge.images.recipes.guest import GuestRecipe
from bluebridge.images.recipes.guest_archives import lacking
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import ImageError
from bluebridge.images.unpack import prune, unpack

ARCHIVE = "files.cpio"
AGENT = (
    *("init", "opt/bluebridge", "usr/bin/dash", "usr/bin/sh"),
    *("usr/bin/python3", "usr/bin/python3.13", "usr/lib/python3.13"),
)
"""What the guest's first process and the agent are: the host reaches no guest without them."""
MOST_BYTES = 512 << 20
_LINKS = 8
"""The most links that one path of the guest's root goes through."""
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_DOCUMENTS = (
    *("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"),
    *("usr/share/lintian", "usr/share/bug"),
)


def overlay(folder: Path, cache: Cache, guest_root: Path) -> Path:
    """Return the archive that lays the files of `folder` over the root of guests.

    A path goes through links of the root as it would in a guest: `lib/x` becomes `usr/lib/x`.
    Raises `ImageError` for a folder that is not there, that would hide the agent, or that has a
    file where the root has a folder.
    """
    if not folder.is_dir():
        raise ImageError(f"--overlay {folder}: there is no such folder", "name one that exists")
    archive = _archive(folder, guest_root)

    def make(to: Path) -> None:
        (to / ARCHIVE).write_bytes(archive)

    key = key_of(hashlib.sha256(archive).hexdigest())
    return cache.ensure("overlay-of-user", key, make) / ARCHIVE


def _archive(folder: Path, guest_root: Path) -> bytes:
    stream = io.BytesIO()
    writer = CpioWriter(stream)
    made: set[str] = set()
    for path, name in _paths(folder, guest_root):
        for parent in reversed(PurePosixPath(name).parents):
            if parent.name and str(parent) not in made and not (guest_root / parent).is_dir():
                writer.folder(str(parent))
            made.add(str(parent))
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            writer.link(name, os.readlink(path))
        elif stat.S_ISREG(status.st_mode):
            writer.file(name, path.read_bytes(), stat.S_IMODE(status.st_mode))
        if stream.tell() > MOST_BYTES:
            raise ImageError(f"{folder} has more than {MOST_BYTES >> 20} MiB", "lay over less")
    writer.close()
    return stream.getvalue()


def _paths(folder: Path, guest_root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of `folder`, each with its path in the guest. Raises `ImageError`."""
    for path in sorted(folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        wanted = path.relative_to(folder)
        name = _through_links(guest_root, wanted)
        hidden = next((each for each in AGENT if name == each or name.startswith(f"{each}/")), None)
        if hidden is not None:
            what = f"{folder} has /{wanted}, which guests are reached by"
            raise ImageError(what, "take it out of the folder")
        if (guest_root / name).is_dir() and not (guest_root / name).is_symlink():
            raise ImageError(f"{folder}: /{wanted} is a folder in the guest", "rename that file")
        yield path, name


def _through_links(guest_root: Path, path: Path) -> str:
    """Return where the folder of `path` is in the guest's root, its links followed."""
    done, waiting, left = PurePosixPath(), list(path.parts), _LINKS
    while len(waiting) > 1:
        part = waiting.pop(0)
        here = guest_root / done / part
        if here.is_symlink() and left:
            left -= 1
            target = PurePosixPath(os.readlink(here))
            waiting[:0] = [each for each in target.parts if each not in ("/", ".")]
            done = PurePosixPath() if target.is_absolute() else done
        elif part == "..":
            done = done.parent
        elif here.is_file():
            raise ImageError(f"/{done / part} is a file in the guest", "rename that folder")
        else:
            done /= part
    return str(done / waiting[0])


class ExtraPackagesRecipe(Recipe):
    """`files.cpio`: packages of Debian with what they depend on, without what guests have."""

    name = "guest-packages"

    def __init__(self, guest: GuestRecipe, names: Sequence[str]) -> None:
        super().__init__(guest.cache, guest.packages)
        self.guest = guest
        self.names = tuple(sorted(set(names)))

    def request(self) -> tuple[str, ...]:
        """Return the apt request."""
        return "install", *self.names

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(self.request()), self.guest.key()]

    def build(self, folder: Path) -> None:
        root, kept = folder / "root", folder / "kept"
        unpack(self.packages.fetch(self.request()), root)
        prune(root, _DOCUMENTS)
        for path in lacking(root, self.guest.folder() / "root"):
            target = kept / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
        shutil.rmtree(root)
        (folder / ARCHIVE).write_bytes(archive_of(kept) if kept.is_dir() else archive_of(folder))
        shutil.rmtree(kept, ignore_errors=True)


def check_names(names: Sequence[str]) -> None:
    """Raise `ImageError` for a word that is no name of a package."""
    for name in names:
        if not PACKAGE.fullmatch(name):
            raise ImageError(f"--with {name}: that is no name of a package", "name one of Debian's")
