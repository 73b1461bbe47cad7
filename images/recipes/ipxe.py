"""iPXE of Debian's package `ipxe`, unmodified, in the form that QEMU starts like a kernel."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import unpack

REQUEST = ("download", "ipxe")
PROGRAM = "usr/lib/ipxe/ipxe.lkrn"


class IpxeRecipe(Recipe):
    """One file, `ipxe.lkrn`: with every driver, for a BIOS."""

    name = "ipxe"

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(REQUEST)]

    def build(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as root:
            unpack(self.packages.fetch(REQUEST), Path(root))
            shutil.copyfile(Path(root) / PROGRAM, folder / "ipxe.lkrn")
