"""QEMU with a vfio-user client, unpacked from Debian's backports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import unpack

REQUEST = ("install", "qemu-system-x86", "seabios", "ipxe-qemu")
PROGRAM = "usr/bin/qemu-system-x86_64"


class QemuRecipe(Recipe):
    """A folder with QEMU and the libraries it needs."""

    name = "qemu"

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(REQUEST, backports=True)]

    def build(self, folder: Path) -> None:
        unpack(self.packages.fetch(REQUEST, backports=True), folder)
