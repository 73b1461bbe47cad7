"""Artefacts that are packages of Debian, or a part of one, unpacked: QEMU, iPXE, C headers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import unpack

PROGRAM = "usr/bin/qemu-system-x86_64"
VERSION = (3, 13)
"""The version of Debian 13's Python, which the guests have."""
FOLDERS = ("include", f"include/python{VERSION[0]}.{VERSION[1]}")
"""The folders in which the compiler looks:

Debian's pyconfig.h includes one below the architecture's name.
"""


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
