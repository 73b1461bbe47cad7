"""The cache of artefacts: each is built once, under a lock, in a temporary folder, then renamed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import bluebridge
from bluebridge.cache_root import cache_root
from bluebridge.images.report import NO_ROOM, ImageError, of_system, run, say, step

LEAST_BYTES = 128 << 20
"""Free space on the disk of the cache with which a build may begin."""

USES = ".uses"
"""Name of the folder of notes which artefacts each checkout used last."""

STATE = "state"
"""Name of the migration file in a snapshot's folder: QEMU's `mapped-ram` format, sparse."""

PACKAGE = Path(bluebridge.__file__).resolve().parent
"""The folder `bluebridge`, with `device`, `guest`, `host_tools` and `images` in it."""
HOME = PACKAGE.parent
"""The folder that contains `bluebridge`: a checkout with `docs` and `build`, or site-packages."""


def default_root() -> Path:
    """Return the folder `bluebridge.cache_root.cache_root` as a path."""
    return Path(cache_root())


def key_of(*inputs: object) -> str:
    """Return a short name that changes with any of `inputs` (JSON values): 16 hex digits."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(*paths: Path) -> str:
    """Return the digest of the contents of files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


class Cache:
    """One cache folder; every method may be called by several processes at once."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()

    def folder(self, name: str, key: str) -> Path:
        """The folder of the artefact `name` with `key`, whether it exists or not."""
        return self.root / f"{name}-{key}"

    def ensure(self, name: str, key: str, build: Callable[[Path], None]) -> Path:
        """Return the artefact's folder, built by `build(empty folder)` if it is not there.

        A second builder waits for the first. A build that fails or is killed leaves no folder under
        the final name. Raises `ImageError`.
        """
        final = self.folder(name, key)
        if not final.is_dir():
            with self.lock(name):
                if not final.is_dir():
                    with step(name), self.build_folder(name) as folder:
                        build(folder)
                        os.utime(folder)
                        os.rename(folder, final)
                    self._drop_older(name, final)
        self.note_use(name, final)
        return final

    def need_room(self) -> None:
        """Raise `ImageError` where the disk has no room for anything: apt would wait there."""
        with _disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            left = shutil.disk_usage(self.root).free
        if left < LEAST_BYTES:
            told = f"{left >> 20} MiB are left of the {LEAST_BYTES >> 20} it takes"
            raise ImageError(f"the disk of {self.root} is full ({told})", NO_ROOM)

    @contextmanager
    def lock(self, name: str, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock `name` of this cache; it is released when its process ends."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        with self._lock_file(name) as handle:
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{name}: waiting for another builder")
                fcntl.flock(handle, kind)
            yield

    @contextmanager
    def lock_if_free(self, name: str) -> Iterator[bool]:
        """Hold the lock `name` unless someone else does, in any way; yields whether it is held."""
        with self._lock_file(name) as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield True
            except BlockingIOError:
                yield False

    def _lock_file(self, name: str) -> IO[str]:
        with _disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            return open(self.root / f".{name}.lock", "w")

    @contextmanager
    def build_folder(self, name: str) -> Iterator[Path]:
        """A temporary folder on the same file system, removed afterwards unless it was renamed."""
        for stale in self.root.glob(f".{name}.build.*"):
            shutil.rmtree(stale, ignore_errors=True)
        with _disk_errors(self.root):
            folder = Path(tempfile.mkdtemp(prefix=f".{name}.build.", dir=self.root))
            folder.chmod(0o755)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def remove(folder: Path) -> None:
        """Remove a folder and its contents; another process may be removing it as well."""
        shutil.rmtree(folder, ignore_errors=True)

    def _drop_older(self, name: str, keep: Path) -> None:
        """Remove artefacts of the same name with other keys, except the latest of them.

        A running guest may still use the previous one. The last one of each other checkout that is
        still there stays as well: they share this cache, and would make theirs anew in turn.
        """
        kept = {keep.name, *self._used_elsewhere(name)}
        others = [
            path for path in self.root.glob(f"{name}-{'[0-9a-f]' * 16}") if path.name not in kept
        ]
        for path in sorted(others, key=lambda path: path.stat().st_mtime)[:-1]:
            shutil.rmtree(path, ignore_errors=True)

    def note_use(self, name: str, folder: Path) -> None:
        """Record that this checkout uses an artefact, where the cache may be written."""
        note = self.root / USES / f"{name}.{key_of(str(HOME))}"
        content = f"{HOME}\n{folder.name}"
        with contextlib.suppress(OSError):
            if note.is_file() and note.read_text() == content:
                return
            note.parent.mkdir(exist_ok=True)
            aside = note.with_name(f".{note.name}.{os.getpid()}")
            aside.write_text(content)
            aside.rename(note)

    def _used_elsewhere(self, name: str) -> Iterator[str]:
        """Yield the folders of `name` that other checkouts used last; forget the gone ones."""
        for note in self.root.glob(f"{USES}/{name}.{'[0-9a-f]' * 16}"):
            try:
                home, _, folder = note.read_text().partition("\n")
            except OSError:  # another process has forgotten it meanwhile, or it is not for us
                continue
            if _gone(Path(home)):
                with contextlib.suppress(OSError):
                    note.unlink()
            elif Path(home) != HOME:
                yield folder


def _gone(folder: Path) -> bool:
    """Whether there is no such folder; one of which that cannot be known is there."""
    try:
        return not folder.is_dir()
    except OSError:  # as in the home of another user
        return False


@contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    """Raise OSErrors of the disk as `ImageError` with one line."""
    try:
        yield
    except OSError as error:
        raise of_system(error, root) from error


@dataclass(frozen=True)
class Snapshot:
    """The snapshot of a variant and its ingredients, whether it exists or not."""

    variant: str
    """The machine's size as part of the folder's name; each variant is replaced separately."""
    ingredients: tuple[object, ...]
    """Everything the guest's state depends on, as JSON values."""
    cache: Cache = field(default_factory=Cache)

    @property
    def folder(self) -> Path:
        """The snapshot's folder, whether it exists or not."""
        return self.cache.folder(self._name, key_of(*self.ingredients))

    @property
    def state(self) -> Path:
        """The path of the migration file, whether it exists or not."""
        return self.folder / STATE

    @property
    def _name(self) -> str:
        return f"snapshot-{self.variant}"

    @property
    def _packed(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.tar.zst")

    def pack(self, place: Path) -> None:
        """Write the snapshot, compressed, into a folder that is to be a cache elsewhere.

        `ensure` unpacks it there. Raises `ImageError`.
        """
        words = [
            "--create",
            "--use-compress-program=zstd -3 -T0",
            "--sparse",
            f"--file={place / self._packed.name}",
        ]
        run(["tar", *words, f"--directory={self.folder}", STATE], what="packing the snapshot")

    def ensure(self, make: Callable[[Path], None]) -> Path:
        """Return the migration file, unpacked, or made by `make(path)`, if it does not exist.

        Raises `ImageError`.
        """

        def build(folder: Path) -> None:
            if not self._packed.exists():
                make(folder / STATE)
                return
            words = [
                "--extract",
                "--use-compress-program=zstd",
                "--no-same-owner",
                f"--file={self._packed}",
            ]
            run(["tar", *words, f"--directory={folder}"], what="unpacking the snapshot")

        return self.cache.ensure(self._name, key_of(*self.ingredients), build) / STATE

    def discard(self) -> bool:
        """Remove the snapshot; return whether it is gone.

        Guests that are reading it are not affected.
        """
        with contextlib.suppress(OSError):
            self._packed.unlink(missing_ok=True)
        # Renamed first: a partly removed folder of the final name would count as a snapshot.
        with contextlib.suppress(OSError, ImageError), self.cache.lock(self._name):
            aside = self.folder.with_name(f".{self._name}.discarded.{os.getpid()}")
            self.folder.rename(aside)
            self.cache.remove(aside)
        return not self.folder.exists()
