"""The base of recipes that build kernel modules: a Debian root with a toolchain.

Modules are built unchanged from Debian's kernel source against the headers of the same version, so
that they work with the kernel's own modules. The build runs in an unpacked Debian root, since the
kernel requires the compiler that it was built with.
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.buildroot import inside, prepare
from bluebridge.images.cache import Cache, file_digest
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import unpack, unpack_tar

SOURCE = ("download", "linux-source-6.12")
TOOLS = (
    "bash",
    "binutils",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "grep",
    "make",
    "mawk",
    "sed",
)


def headers_folder(kernel: KernelRecipe) -> str:
    """Return the folder of the kernel's headers and Makefile, as a path inside the root."""
    return f"/usr/src/linux-headers-{kernel.release()}"


def toolchain_request(kernel: KernelRecipe) -> tuple[str, ...]:
    """Return the apt request for the kernel's headers, their compiler and the build tools."""
    return ("install", f"linux-headers-{kernel.release()}", *TOOLS)


@dataclass(frozen=True)
class Toolchain:
    """A root with headers and compiler, and the kernel's source as a tar archive."""

    root: Path
    archive: Path
    headers: str

    def source(self, prefix: str) -> Path:
        """Return the folder of the plain files whose kernel tree path begins with `prefix`."""
        work = self.root / "work"
        unpack_tar(self.archive, work, prefix)
        (tree,) = work.glob(f"*/{prefix.rpartition('/')[0]}")
        return tree

    def make(self, tree: Path, arguments: Sequence[str], what: str) -> None:
        """Build the modules of the external tree `tree`; raises `ImageError`."""
        command = ["make", "-C", self.headers, f"M={self.path(tree)}", *arguments, "modules"]
        inside(self.root, command, what=what)

    def deliver(self, module: Path, folder: Path) -> None:
        """Strip debug information from the file `module` and move it to `folder`."""
        command = ["objcopy", "--strip-debug", self.path(module)]
        inside(self.root, command, what=f"strip {module.name}")
        shutil.move(module, folder / module.name)

    def path(self, file: Path) -> str:
        """Return the path inside the root of `file`, which is below `root`."""
        return f"/{file.relative_to(self.root)}"


class ModuleRecipe(Recipe):
    """A recipe for a folder of kernel modules; subclasses give `name` and `build_modules`."""

    def __init__(self, cache: Cache, packages: Packages, kernel: KernelRecipe) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel

    @abstractmethod
    def build_modules(self, toolchain: Toolchain, folder: Path) -> None:
        """Put the modules into `folder`; raises `ImageError`."""

    def inputs(self) -> Sequence[object]:
        return [
            self.packages.resolve(SOURCE),
            self.packages.resolve(toolchain_request(self.kernel)),
            self.kernel.key(),
            file_digest(Path(__file__)),
        ]

    def build(self, folder: Path) -> None:
        root, source = folder / "root", folder / "source"
        unpack(self.packages.fetch(toolchain_request(self.kernel)), root)
        prepare(root)
        unpack(self.packages.fetch(SOURCE), source)
        (archive,) = (source / "usr/src").glob("linux-source-*.tar.xz")
        self.build_modules(Toolchain(root, archive, headers_folder(self.kernel)), folder)
        shutil.rmtree(source)
        shutil.rmtree(root)
