"""Debian's kernel: the image, uncompressed for a fast boot, and modules with their dependencies."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import ImageError
from bluebridge.images.unpack import decompress, unpack

IMAGE = r"linux-image-6\.12\.\d+\+deb13-amd64"
SETUP_SECTS, PAYLOAD_OFFSET, PAYLOAD_LENGTH = 0x1F1, 0x248, 0x24C
"""Offsets in a bzImage: Linux Documentation/arch/x86/boot.rst, protocol 2.08 and later."""

DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


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


class ModuleTree:
    """The modules below `folder` (`lib/modules/RELEASE`), by name with underscores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths = {module_name(path): path for path in folder.rglob("*.ko*")}

    def read(self, name: str) -> bytes:
        """Return the uncompressed module."""
        try:
            path = self._paths[name]
        except KeyError:
            raise ImageError(f"the kernel has no module {name}", "report it") from None
        content = path.read_bytes()
        return decompress(content) if path.suffix == ".xz" else content

    def closure(self, names: Iterable[str]) -> dict[Path, bytes]:
        """Return the named modules and all they depend on: path below `folder` to contents."""
        found: dict[str, bytes] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop().replace("-", "_")
            if name in found:
                continue
            found[name] = self.read(name)
            waiting += depends(found[name])
        return {self._target(name): content for name, content in found.items()}

    def _target(self, name: str) -> Path:
        relative = self._paths[name].relative_to(self.folder)
        return relative.with_name(relative.name.removesuffix(".xz"))


def module_name(path: Path) -> str:
    """Return the module's name from its path: `vfio_pci` for `kernel/x/vfio-pci.ko.xz`."""
    return path.name.partition(".ko")[0].replace("-", "_")


def depends(module: bytes) -> list[str]:
    """Return the names of the modules that `module` depends on, from its `.modinfo` section."""
    match = DEPENDS.search(module)
    names = match[1].decode().split(",") if match else []
    return [name.replace("-", "_") for name in names if name]
