"""The recipes of archives that are unpacked over `/` of a running guest: what its root lacks."""

from __future__ import annotations

import inspect
import shutil
import tarfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from bluebridge.images import prune
from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache, file_digest
from bluebridge.images.recipes.guest import GuestRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import unpack


class GuestArchiveRecipe(Recipe):
    """A tar file `archive`, of the packages of `requests`: paths are below the guest's root."""

    archive: str
    requests: tuple[tuple[str, ...], ...]
    """Lines for apt-get; the packages of later ones lie over those of earlier ones."""
    opened: tuple[str, ...] = ()
    """The libraries that programs open by name, besides those that they are linked with."""

    def __init__(self, cache: Cache, packages: Packages, guest: GuestRecipe) -> None:
        super().__init__(cache, packages)
        self.guest = guest

    @abstractmethod
    def keep(self, root: Path) -> None:
        """Remove what guests do not need from the unpacked packages."""

    def inputs(self) -> Sequence[object]:
        code = file_digest(Path(__file__), Path(inspect.getfile(prune)))
        found = [self.packages.resolve(request) for request in self.requests]
        return [found, self.guest.key(), code]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        unpack([each for request in self.requests for each in self.packages.fetch(request)], root)
        self.keep(root)
        prune.libraries(root, self.opened)
        base = self.guest.folder() / "root"
        with tarfile.open(folder / self.archive, "w") as archive:
            for path in lacking(root, base):
                archive.add(path, path.relative_to(root).as_posix(), recursive=False)
        shutil.rmtree(root)


def lacking(root: Path, base: Path) -> Iterator[Path]:
    """Yield the files of `root` that `base` does not have."""
    for path in sorted((root / "usr").rglob("*")):
        inside = base / path.relative_to(root)
        if not path.is_dir() and not (inside.exists() or inside.is_symlink()):
            yield path
