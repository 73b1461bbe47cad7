"""The base class of recipes: a name, the inputs of the key, and the build."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache, file_digest, key_of


class Recipe(ABC):
    """The way to build one artefact; subclasses give `name`, `inputs` and `build`."""

    name: str
    version = 1
    """The version of the build, raised when the build changes without a change of `inputs`."""

    def __init__(self, cache: Cache, packages: Packages) -> None:
        self.cache = cache
        self.packages = packages

    @abstractmethod
    def inputs(self) -> Sequence[object]:
        """Return the JSON values that determine the artefact, besides this recipe's own source."""

    @abstractmethod
    def build(self, folder: Path) -> None:
        """Build the artefact in the empty `folder`; raises `ImageError`."""

    def key(self) -> str:
        """Return the key of the artefact as it would be built now."""
        source = file_digest(Path(inspect.getfile(type(self))))
        return key_of(self.name, self.version, source, *self.inputs())

    def present(self) -> Path | None:
        """Return the finished folder if it is in the cache, else None; builds nothing."""
        folder = self.cache.folder(self.name, self.key())
        return folder if folder.is_dir() else None

    def folder(self) -> Path:
        """Return the finished folder, built now if it is missing. Raises `ImageError`."""
        return self.cache.ensure(self.name, self.key(), self.build)
