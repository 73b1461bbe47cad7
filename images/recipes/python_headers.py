"""The C headers of the guest's Python, which its compiled modules are built with."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import unpack

VERSION = (3, 13)
"""The version of Debian 13's Python, which the guests have."""
REQUEST = ("download", f"libpython{VERSION[0]}.{VERSION[1]}-dev")
FOLDERS = ("include", f"include/python{VERSION[0]}.{VERSION[1]}")
"""The folders in which the compiler looks:

Debian's pyconfig.h includes one below the architecture's name.
"""


class PythonHeadersRecipe(Recipe):
    """`include/`: no more of the package, which has static libraries, too."""

    name = "python-headers"

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(REQUEST)]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        unpack(self.packages.fetch(REQUEST), root)
        shutil.move(root / "usr/include", folder / "include")
        shutil.rmtree(root)
