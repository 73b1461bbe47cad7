"""Debian's kernel: the image, uncompressed for a fast boot, and modules with their dependencies."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache
from bluebridge.images.recipes.debian_kernels import USUAL, DebianKernel
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import ImageError
from bluebridge.images.unpack import decompress, unpack

SETUP_SECTS, PAYLOAD_OFFSET, PAYLOAD_LENGTH = 0x1F1, 0x248, 0x24C
"""Offsets in a bzImage: Linux Documentation/arch/x86/boot.rst, protocol 2.08 and later."""

DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


class KernelRecipe(Recipe):
    """`vmlinux` and the package's tree in `root/`."""

    name = "kernel"

    def __init__(self, cache: Cache, packages: Packages, which: DebianKernel = USUAL) -> None:
        super().__init__(cache, packages)
        self.which = which
        self.name = self.named(type(self).name)

    def named(self, artefact: str) -> str:
        """Return the name of something that is made for this kernel; each has its own in the cache.

        The usual kernel's has no more than its own name.
        """
        return artefact if self.which == USUAL else f"{artefact}-{self.which.name}"

    def source(self) -> str:
        """Name of the package with the kernel's source."""
        return "linux-source-" + ".".join(re.findall(r"\d+", self.image())[:2])

    def modules(self) -> Path:
        """Return the folder of the kernel's modules; builds the artefact if need be."""
        return self.folder() / "root/usr/lib/modules" / self.release()

    def image(self) -> str:
        """Name of the kernel's package."""
        return self.packages.newest(self.which.image)

    def release(self) -> str:
        """The kernel's release, as `uname -r` prints it in the guest."""
        return self.image().removeprefix(f"{self.which.parts[0]}-")

    def request(self) -> list[str]:
        """Return the apt request for the kernel's packages."""
        return ["download", *(f"{part}-{self.release()}" for part in self.which.parts)]

    def config(self) -> str:
        """Return the kernel's configuration; builds the artefact if need be."""
        return self._file(self.folder(), "config").read_text()

    def _file(self, folder: Path, name: str) -> Path:
        """Return a file of the kernel's own; Debian moved them beside the modules with 7.0."""
        beside = folder / "root/usr/lib/modules" / self.release() / name
        return beside if beside.exists() else folder / f"root/boot/{name}-{self.release()}"

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(self.request())]

    def build(self, folder: Path) -> None:
        unpack(self.packages.fetch(self.request()), folder / "root")
        apart = folder / "root/lib/modules"  # of a package from before /lib was a link to usr/lib
        if not (folder / "root/lib").is_symlink() and apart.is_dir():
            (folder / "root/usr/lib").mkdir(parents=True, exist_ok=True)
            apart.rename(folder / "root/usr/lib/modules")
        image = self._file(folder, "vmlinuz").read_bytes()
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

    def __contains__(self, name: str) -> bool:
        return name.replace("-", "_") in self._paths

    def read(self, name: str) -> bytes:
        """Return the uncompressed module."""
        try:
            path = self._paths[name]
        except KeyError:
            raise ImageError(f"the kernel has no module {name}", "report it") from None
        content = path.read_bytes()
        return content if path.suffix == ".ko" else decompress(content)

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
        return relative.with_name(f"{relative.name.partition('.ko')[0]}.ko")


def module_name(path: Path) -> str:
    """Return the module's name from its path: `vfio_pci` for `kernel/x/vfio-pci.ko.xz`."""
    return path.name.partition(".ko")[0].replace("-", "_")


def depends(module: bytes) -> list[str]:
    """Return the names of the modules that `module` depends on, from its `.modinfo` section."""
    match = DEPENDS.search(module)
    names = match[1].decode().split(",") if match else []
    return [name.replace("-", "_") for name in names if name]
