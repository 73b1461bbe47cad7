"""A Debian root that builds modules for the guest kernel: its headers, their compiler, make.

Unlike the root of `module_build`, it stays in the cache. It is not part of `make setup`: half a
gigabyte that only `bluebridge kmod` needs, built at its first use.
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
from bluebridge.images.recipes.module_build import headers_folder, toolchain_request
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import unpack

UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info")
SETPRIV = "util-linux"
"""Package of `setpriv`, which drops the build's privileges inside the root."""


class KbuildRecipe(Recipe):
    """The root in `root/`, read-only after it was built."""

    name = "kbuild"

    def __init__(self, cache: Cache, packages: Packages, kernel: KernelRecipe) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel

    def request(self) -> tuple[str, ...]:
        """The packages asked for."""
        return (*toolchain_request(self.kernel), SETPRIV)

    def headers(self) -> str:
        """The kernel's build folder, as a path inside the root."""
        return headers_folder(self.kernel)

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
