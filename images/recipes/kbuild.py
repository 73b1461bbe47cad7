"""A Debian root that builds modules for the guest kernel: its headers, their compiler, make.

Unlike the one `vfio.ko` is made in, it stays. It is not part of `make setup`: half a gigabyte
that only `bluebridge kmod` needs, made the first time somebody asks.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.buildroot import prepare
from bluebridge.images.cache import Cache
from bluebridge.images.errors import ImageError
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.recipes.vfio import TOOLS
from bluebridge.images.unpack import unpack

UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info")
SETPRIV = "util-linux"
"""Brings `setpriv`, which takes the build's last privileges inside the root."""


class KbuildRecipe(Recipe):
    """The root in `root/`; never written again once it is made."""

    name = "kbuild"

    def __init__(self, cache: Cache, packages: Packages, kernel: KernelRecipe) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel

    def request(self) -> tuple[str, ...]:
        """The packages asked for."""
        return ("install", f"linux-headers-{self.kernel.release()}", *TOOLS, SETPRIV)

    def headers(self) -> str:
        """The kernel's build folder, as a path inside the root."""
        return f"/usr/src/linux-headers-{self.kernel.release()}"

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(self.request())]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        packages = self.packages.fetch(self.request())
        unpack(packages, root)
        prepare(root)
        for name in UNUSED:
            shutil.rmtree(root / name, ignore_errors=True)
        if not (root / self.headers().lstrip("/") / "Makefile").exists():
            raise ImageError(f"{self.headers()} is not in its package", "report it")
        for package in packages:
            package.unlink(missing_ok=True)
