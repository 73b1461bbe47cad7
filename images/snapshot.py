"""Snapshots of booted guests in the artefact cache.

What a snapshot is made by (it takes a running QEMU) is the caller's; here is where it is kept,
under which key, and how a bad one goes away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bluebridge.images.cache import Cache, key_of
from bluebridge.images.errors import ImageError

STATE = "state"
"""Name of the migration file in a snapshot's folder: QEMU's `mapped-ram` format, sparse."""


@dataclass(frozen=True)
class Snapshot:
    """One snapshot, there or not."""

    variant: str
    """The size of the machine, in the folder's name: each variant has generations of its own."""
    ingredients: tuple[object, ...]
    """Everything the guest's state depends on, as JSON values."""
    cache: Cache = field(default_factory=Cache)

    @property
    def folder(self) -> Path:
        """Where it is or will be."""
        return self.cache.folder(self._name, key_of(*self.ingredients))

    @property
    def state(self) -> Path:
        """The migration file."""
        return self.folder / STATE

    @property
    def _name(self) -> str:
        return f"snapshot-{self.variant}"

    def ensure(self, make: Callable[[Path], None]) -> Path:
        """The migration file, made by `make(path)` if it is not there. Raises `ImageError`."""

        def build(folder: Path) -> None:
            make(folder / STATE)

        return self.cache.ensure(self._name, key_of(*self.ingredients), build) / STATE

    def discard(self) -> bool:
        """Throw it away; guests that are reading it go on. Returns whether it is gone."""
        # Renamed first: half a folder under the final name would look like a snapshot.
        with contextlib.suppress(OSError, ImageError), self.cache.lock(self._name):
            aside = self.folder.with_name(f".{self._name}.discarded.{os.getpid()}")
            self.folder.rename(aside)
            self.cache.remove(aside)
        return not self.folder.exists()
