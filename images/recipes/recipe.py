"""What every recipe has: a name, the inputs its key is made of, and a way to build."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache, file_digest, key_of


class Recipe(ABC):
    """One artefact. Subclasses give `name`, `inputs` and `build`."""

    name: str
    version = 1
    """Raise it when the build changes through something `inputs` does not see."""

    def __init__(self, cache: Cache, packages: Packages) -> None:
        self.cache = cache
        self.packages = packages

    @abstractmethod
    def inputs(self) -> Sequence[object]:
        """JSON values that decide what comes out, besides this recipe's own source."""

    @abstractmethod
    def build(self, folder: Path) -> None:
        """Make the artefact in the empty `folder`; raises `ImageError`."""

    def key(self) -> str:
        """Name of what would be built now."""
        source = file_digest(Path(inspect.getfile(type(self))))
        return key_of(self.name, self.version, source, *self.inputs())

    def present(self) -> Path | None:
        """The finished folder if it is in the cache, without building anything."""
        folder = self.cache.folder(self.name, self.key())
        return folder if folder.is_dir() else None

    def folder(self) -> Path:
        """The finished folder, built now if need be."""
        return self.cache.ensure(self.name, self.key(), self.build)
