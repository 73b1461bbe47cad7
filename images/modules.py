"""Reads kernel modules and their dependencies from a kernel package's tree."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from bluebridge.images.errors import ImageError
from bluebridge.images.unpack import decompress

DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


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
