"""The finished artefacts, built when they are missing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TypeVar

from bluebridge.images.apt import NotRemembered, Packages, StaleVersions
from bluebridge.images.cache import Cache
from bluebridge.images.guest_overlay import ExtraPackagesRecipe
from bluebridge.images.recipes.compiler import CompilerRecipe
from bluebridge.images.recipes.debian_kernels import USUAL, DebianKernel
from bluebridge.images.recipes.guest import GuestRecipe
from bluebridge.images.recipes.guest_archives import (
    BootFilesRecipe,
    DebugToolsRecipe,
    DpdkRecipe,
    MessageLibrariesRecipe,
    NfsRecipe,
    OpenMpiRecipe,
    SrpRecipe,
)
from bluebridge.images.recipes.guest_modules import GuestModulesRecipe
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.kernel_modules import VfioRecipe
from bluebridge.images.recipes.libvfio_user import LibvfioUserRecipe
from bluebridge.images.recipes.recipe import (
    PROGRAM,
    IpxeRecipe,
    PythonHeadersRecipe,
    QemuRecipe,
    Recipe,
)
from bluebridge.images.unpack import LIBRARIES, foreign

Made = TypeVar("Made", bound=Recipe)
CLIENT = 'name "vfio-user-pci"'


@dataclass(frozen=True)
class Qemu:
    """The command that starts QEMU: `command` and arguments; `env` is added to the environment."""

    command: list[str]
    version: str
    env: dict[str, str] = field(default_factory=dict)
    build: str = ""
    """Size and time of the program's file, which differ between builds of one version."""
    seccomp: bool = False
    """Whether it filters its own system calls (`-sandbox`)."""


class Artefacts:
    """The files that virtual machines and device server need, in one cache folder.

    Each method builds its artefact if need be and raises `bluebridge.images.report.ImageError`.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self.cache = Cache(cache)
        self.packages = packages = Packages(self.cache)
        here = self.cache, packages
        self._kernel = kernel = KernelRecipe(*here)
        vfio = VfioRecipe(*here, kernel)
        self._guest = guest = GuestRecipe(*here, kernel, vfio)
        self.recipes: dict[str, Recipe] = {
            each.name: each
            for each in (
                LibvfioUserRecipe(*here),
                kernel,
                vfio,
                guest,
                QemuRecipe(*here),
                PythonHeadersRecipe(*here),
            )
        }
        """The recipes of the artefacts that `build` makes, by name and in its order."""
        self.on_demand: dict[str, Recipe] = {
            each.name: each
            for each in (
                DpdkRecipe(*here, guest),
                DebugToolsRecipe(*here, guest),
                MessageLibrariesRecipe(*here, guest),
                OpenMpiRecipe(*here, guest),
                SrpRecipe(*here, guest),
                NfsRecipe(*here, guest),
                IpxeRecipe(*here),
                CompilerRecipe(*here),
                BootFilesRecipe(*here, kernel, guest),
            )
        }
        """The recipes, by name, of artefacts that are built at their first use."""

    def recipe(self, name: str) -> Recipe:
        """Return the recipe of that name, of `recipes` or `on_demand`; raises `KeyError`."""
        return {**self.recipes, **self.on_demand}[name]

    def qemu(self) -> Qemu:
        """Return the host's QEMU when it has a vfio-user client, else the one of the cache."""
        return host_qemu() or unpacked_qemu(self.folder("qemu"))

    def kernel(self) -> Path:
        """Return the path of the guest's uncompressed ELF kernel."""
        return self.folder("kernel") / "vmlinux"

    def for_kernel(
        self, kind: Callable[[Cache, Packages, KernelRecipe], Made], which: DebianKernel = USUAL
    ) -> Made:
        """Return the recipe of that kind, such as a set of modules, for a kernel of Debian's."""
        kernel = self.debian(which)
        return kind(self.cache, kernel.packages, kernel)

    def debian(self, which: DebianKernel) -> KernelRecipe:
        """Return the recipe of one of Debian's kernels."""
        if which == USUAL:
            return self._kernel
        return KernelRecipe(self.cache, Packages(self.cache, which.release), which)

    def guest_modules(self, which: DebianKernel) -> GuestModulesRecipe:
        """Return the recipe of the modules that guests get of one of Debian's other kernels."""
        return GuestModulesRecipe(self.debian(which), self._guest)

    def extra_packages(self, names: Sequence[str]) -> ExtraPackagesRecipe:
        """Return the recipe of more packages for guests."""
        return ExtraPackagesRecipe(self._guest, names)

    def initrd(self) -> Path:
        """Return the archive of the guest's root without this project's code.

        That code is added by `bluebridge.images.overlay`.
        """
        return self.folder("guest") / "initrd.cpio"

    def libvfio_user(self) -> Path:
        """Return the path of the library libvfio-user.

        `libvfio-user-layout.so` and `include/` are in its folder.
        """
        return self.folder("libvfio-user") / "libvfio-user.so"

    def folder(self, name: str) -> Path:
        """The finished folder of the artefact `name`."""
        return self.built(self.recipe(name))

    def built(self, recipe: Recipe) -> Path:
        """Return the finished folder of a recipe's artefact."""
        try:
            return recipe.folder()
        except StaleVersions:
            # The mirror no longer has a remembered version: resolve them anew.
            self.packages.refresh()
            return recipe.folder()

    def present(self, name: str) -> Path | None:
        """The folder of the artefact `name` if it is in the cache; needs no network."""
        return self.found(self.recipe(name))

    def found(self, recipe: Recipe) -> Path | None:
        """The folder of a recipe's artefact if it is in the cache; needs no network."""
        try:
            with self.packages.offline():
                return recipe.present()
        except NotRemembered:
            return None

    def missing(self) -> list[str]:
        """Return the names of the `recipes` that `build` would build."""
        wanted = [name for name in self.recipes if name != "qemu" or host_qemu() is None]
        return [name for name in wanted if not self.present(name)]

    def build(self) -> None:
        """Build the artefacts that are `missing`, then remove the downloads."""
        missing = self.missing()
        for name in missing:
            self.folder(name)
        if missing:
            self.packages.drop_downloads()


def host_qemu() -> Qemu | None:
    """Return the host's own QEMU if it can be a vfio-user client, else None."""
    program = shutil.which("qemu-system-x86_64")
    if program is None or CLIENT not in _output([program, "-device", "help"]):
        return None
    version, path = _version(_output([program, "--version"])), Path(program)
    return Qemu([program], version, build=_build(path), seccomp=_filters(path))


def unpacked_qemu(folder: Path) -> Qemu:
    """Return the QEMU of an unpacked folder, run by the folder's own dynamic linker."""
    command = foreign(folder, PROGRAM)
    for data in ("usr/share/seabios", "usr/share/qemu", "usr/lib/ipxe/qemu"):
        command += ["-L", str(folder / data)]
    env = {"QEMU_MODULE_DIR": str(folder / LIBRARIES / "qemu")}
    version = _version(_output([*command, "--version"]))
    program = folder / PROGRAM
    return Qemu(command, version, env, _build(program), _filters(program))


def _filters(program: Path) -> bool:
    """Return True if a QEMU is linked with libseccomp."""
    with program.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as contents:
        return contents.find(b"libseccomp.so") >= 0


def _build(program: Path) -> str:
    status = program.stat()
    return f"{status.st_size}-{status.st_mtime_ns}"


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _version(text: str) -> str:
    """Return `11.1.3` of `QEMU emulator version 11.1.3 (Debian ...)`."""
    words = text.split()
    return words[3] if len(words) > 3 else "unknown"
