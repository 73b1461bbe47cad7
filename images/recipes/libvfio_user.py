"""libvfio-user and its layout check, compiled from Debian's qemu source package."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images import host
from bluebridge.images.cache import PACKAGE, file_digest
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import ImageError, run
from bluebridge.images.unpack import unpack_tar

REQUEST = ("source", "qemu/trixie")
INSIDE = "subprojects/libvfio-user/"
SOURCES = ("dma", "irq", "libvfio-user", "migration", "pci", "pci_caps", "tran", "tran_sock")
BINDING = PACKAGE / "device" / "pyvfio_user"
SHIM = BINDING / "layout_shim.c"
ADOPT = BINDING / "adopt.h"
FLAGS = ("-std=gnu99", "-O2", "-g", "-fPIC", "-shared", "-D_GNU_SOURCE")


class LibvfioUserRecipe(Recipe):
    """`libvfio-user.so`, `libvfio-user-layout.so` and the headers in `include/`.

    The library's own build asks for its test framework; its eight files need only json-c.
    """

    name = "libvfio-user"
    libc: tuple[str, str] | None = None
    """Name and version of the C library that it is linked with; None for this machine's."""

    def linked_with(self, name: str, version: str) -> LibvfioUserRecipe:
        """Return the recipe of another machine's, with that C library."""
        other = LibvfioUserRecipe(self.cache, self.packages)
        other.libc = name, version
        return other

    def inputs(self) -> Sequence[object]:
        # It is linked with the host's libc and runs with no older one: a home may be shared.
        own = file_digest(SHIM, ADOPT)
        return [self.packages.resolve(REQUEST), own, *(self.libc or platform.libc_ver())]

    @classmethod
    def mend(cls) -> str:
        """Return the command that installs what this machine lacks to build it; empty if none."""
        needs = [need for need in host.missing(host.Use.HOSTS) if need.purpose == cls.name]
        return host.as_root(*host.install_words(needs)) if needs else ""

    def build(self, folder: Path) -> None:
        if mend := self.mend():
            raise ImageError("libvfio-user must be built, and there is no compiler for it", mend)
        archives = [path for path in self.packages.fetch(REQUEST) if ".orig.tar" in path.name]
        unpack_tar(archives[0], folder / "source", INSIDE)
        (tree,) = (folder / "source").glob(f"*/{INSIDE}")
        shutil.move(tree / "include", folder / "include")
        include = f"-I{folder / 'include'}"
        sources = [tree / "lib" / f"{name}.c" for name in SOURCES]
        run(
            [
                *("gcc", *FLAGS, "-fvisibility=hidden", "-Wl,-soname,libvfio-user.so.0"),
                *(include, "-include", str(ADOPT), "-I/usr/include/json-c"),
                *("-o", f"{folder}/libvfio-user.so", *map(str, sources), "-ljson-c", "-lpthread"),
            ],
            what="compile libvfio-user",
        )
        check = folder / "libvfio-user-layout.so"
        run(
            ["gcc", *FLAGS, "-Wall", "-Wextra", include, "-o", check, SHIM],
            what="compile its check",
        )
        shutil.rmtree(folder / "source")
