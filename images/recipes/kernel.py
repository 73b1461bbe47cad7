"""Debian's kernel: the uncompressed image for a fast boot, and all of its modules."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.errors import ImageError
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import decompress, unpack

IMAGE = r"linux-image-6\.12\.\d+\+deb13-amd64"
SETUP_SECTS, PAYLOAD_OFFSET, PAYLOAD_LENGTH = 0x1F1, 0x248, 0x24C
"""Offsets in a bzImage: Linux Documentation/arch/x86/boot.rst, protocol 2.08 and later."""


class KernelRecipe(Recipe):
    """`vmlinux` and the package's tree in `root/`."""

    name = "kernel"

    def image(self) -> str:
        """Name of the kernel's package."""
        return self.packages.newest(IMAGE)

    def release(self) -> str:
        """The kernel's release, as `uname -r` prints it in the guest."""
        return self.image().removeprefix("linux-image-")

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(["download", self.image()])]

    def build(self, folder: Path) -> None:
        unpack(self.packages.fetch(["download", self.image()]), folder / "root")
        image = (folder / "root" / "boot" / f"vmlinuz-{self.release()}").read_bytes()
        (folder / "vmlinux").write_bytes(elf_of(image))


def elf_of(image: bytes) -> bytes:
    """The ELF kernel inside a bzImage.

    QEMU starts it at its PVH entry: no decompression under emulation, two seconds less per boot.
    """
    (offset,) = struct.unpack_from("<I", image, PAYLOAD_OFFSET)
    (length,) = struct.unpack_from("<I", image, PAYLOAD_LENGTH)
    start = (image[SETUP_SECTS] + 1) * 512 + offset
    elf = decompress(image[start : start + length])
    if not elf.startswith(b"\x7fELF"):
        raise ImageError("the kernel package holds no ELF kernel", "report it with its version")
    return elf
