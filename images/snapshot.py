"""Snapshots of booted guests in the artefact cache.

The caller makes a snapshot with a running QEMU; this module gives its folder and key and discards
a bad one.
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

    def ensure(self, make: Callable[[Path], None]) -> Path:
        """Return the migration file, made by `make(path)` if it does not exist.

        Raises `ImageError`.
        """

        def build(folder: Path) -> None:
            make(folder / STATE)

        return self.cache.ensure(self._name, key_of(*self.ingredients), build) / STATE

    def discard(self) -> bool:
        """Remove the snapshot; return whether it is gone.

        Guests that are reading it are not affected.
        """
        # Renamed first: a partly removed folder of the final name would count as a snapshot.
        with contextlib.suppress(OSError, ImageError), self.cache.lock(self._name):
            aside = self.folder.with_name(f".{self._name}.discarded.{os.getpid()}")
            self.folder.rename(aside)
            self.cache.remove(aside)
        return not self.folder.exists()
