"""A Debian root with a C compiler and the headers of libibverbs, for programs of guests."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.recipes.module_build import SETPRIV, UNUSED, prepare
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import unpack

REQUEST = (
    *("install", "gcc", "libc6-dev", "libibverbs-dev", "librdmacm-dev"),
    *("coreutils", "dash", SETPRIV),
)


class CompilerRecipe(Recipe):
    """The root in `root/`, read-only after it was built."""

    name = "compiler"

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(REQUEST)]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        packages = self.packages.fetch(REQUEST)
        unpack(packages, root)
        prepare(root)
        for name in UNUSED:
            shutil.rmtree(root / name, ignore_errors=True)
        for package in packages:
            package.unlink(missing_ok=True)
