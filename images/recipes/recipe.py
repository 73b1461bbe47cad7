"""The base class of recipes, and those of artefacts that are packages of Debian, unpacked."""

from __future__ import annotations

import inspect
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache, key_of
from bluebridge.images.code_digest import code_digest
from bluebridge.images.unpack import unpack

PROGRAM = "usr/bin/qemu-system-x86_64"
VERSION = (3, 13)
"""The version of Debian 13's Python, which the guests have."""
FOLDERS = ("include", f"include/python{VERSION[0]}.{VERSION[1]}")
"""The folders in which the compiler looks:

Debian's pyconfig.h includes one below the architecture's name.
"""


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
        source = code_digest(Path(inspect.getfile(type(self))))
        return key_of(self.name, self.version, source, *self.inputs())

    def present(self) -> Path | None:
        """Return the finished folder if it is in the cache, else None; builds nothing."""
        folder = self.cache.folder(self.name, self.key())
        return folder if folder.is_dir() else None

    def folder(self) -> Path:
        """Return the finished folder, built now if it is missing. Raises `ImageError`."""
        return self.cache.ensure(self.name, self.key(), self._build)

    def _build(self, folder: Path) -> None:
        with self.packages.kept():
            self.build(folder)


class UnpackedRecipe(Recipe):
    """The `part` of the packages of `request`, moved into the artefact's folder."""

    request: tuple[str, ...]
    backports = False
    part: str

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(self.request, backports=self.backports)]

    def build(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as root:
            unpack(self.packages.fetch(self.request, backports=self.backports), Path(root))
            shutil.move(Path(root) / self.part, folder)


class QemuRecipe(UnpackedRecipe):
    """QEMU with a vfio-user client, of Debian's backports, and the libraries it needs."""

    name = "qemu"
    request = ("install", "qemu-system-x86", "seabios", "ipxe-qemu")
    backports = True

    def build(self, folder: Path) -> None:
        unpack(self.packages.fetch(self.request, backports=True), folder)


class IpxeRecipe(UnpackedRecipe):
    """`ipxe.lkrn`: unmodified, in the form that QEMU starts like a kernel, with every driver."""

    name = "ipxe"
    request = ("download", "ipxe")
    part = "usr/lib/ipxe/ipxe.lkrn"


class PythonHeadersRecipe(UnpackedRecipe):
    """`include/`, the C headers of the guest's Python, which its compiled modules are built with.

    No more of the package, which has static libraries, too.
    """

    name = "python-headers"
    request = ("download", f"libpython{VERSION[0]}.{VERSION[1]}-dev")
    part = "usr/include"
