"""The finished artefacts, built when they are missing."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bluebridge.images.apt import NotRemembered, Packages, StaleVersions
from bluebridge.images.cache import Cache
from bluebridge.images.recipes.guest import GuestRecipe
from bluebridge.images.recipes.guest_archives import (
    BootFilesRecipe,
    DebugToolsRecipe,
    DpdkRecipe,
    MessageLibrariesRecipe,
    NfsRecipe,
)
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.kernel_modules import VfioRecipe
from bluebridge.images.recipes.libvfio_user import LibvfioUserRecipe
from bluebridge.images.recipes.module_build import ModuleRecipe
from bluebridge.images.recipes.recipe import (
    PROGRAM,
    IpxeRecipe,
    PythonHeadersRecipe,
    QemuRecipe,
    Recipe,
)
from bluebridge.images.unpack import LIBRARIES, foreign

CLIENT = 'name "vfio-user-pci"'


@dataclass(frozen=True)
class Qemu:
    """The command that starts QEMU: `command` and arguments; `env` is added to the environment."""

    command: list[str]
    version: str
    env: dict[str, str] = field(default_factory=dict)
    build: str = ""
    """Size and time of the program's file, which differ between builds of one version."""


class Artefacts:
    """The files that virtual machines and device server need, in one cache folder.

    Each method builds its artefact if need be and raises `bluebridge.images.report.ImageError`.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self.cache = Cache(cache)
        self.packages = Packages(self.cache)

    @cached_property
    def recipes(self) -> dict[str, Recipe]:
        """Return the recipes of the artefacts that `build` makes, by name and in its order."""
        kernel = KernelRecipe(self.cache, self.packages)
        vfio = VfioRecipe(self.cache, self.packages, kernel)
        guest = GuestRecipe(self.cache, self.packages, kernel, vfio)
        recipes: list[Recipe] = [
            LibvfioUserRecipe(self.cache, self.packages),
            kernel,
            vfio,
            guest,
            QemuRecipe(self.cache, self.packages),
            PythonHeadersRecipe(self.cache, self.packages),
        ]
        return {recipe.name: recipe for recipe in recipes}

    @cached_property
    def on_demand(self) -> dict[str, Recipe]:
        """Return the recipes, by name, of artefacts that are built at their first use."""
        kernel, guest = self.recipes["kernel"], self.recipes["guest"]
        assert isinstance(kernel, KernelRecipe)
        assert isinstance(guest, GuestRecipe)
        recipes: list[Recipe] = [
            DpdkRecipe(self.cache, self.packages, guest),
            DebugToolsRecipe(self.cache, self.packages, guest),
            MessageLibrariesRecipe(self.cache, self.packages, guest),
            NfsRecipe(self.cache, self.packages, guest),
            IpxeRecipe(self.cache, self.packages),
            BootFilesRecipe(self.cache, self.packages, kernel, guest),
        ]
        return {recipe.name: recipe for recipe in recipes}

    def recipe(self, name: str) -> Recipe:
        """Return the recipe of that name, of `recipes` or `on_demand`; raises `KeyError`."""
        return {**self.recipes, **self.on_demand}[name]

    def qemu(self) -> Qemu:
        """Return the host's QEMU when it has a vfio-user client, else the one of the cache."""
        return host_qemu() or unpacked_qemu(self.folder("qemu"))

    def kernel(self) -> Path:
        """Return the path of the guest's uncompressed ELF kernel."""
        return self.folder("kernel") / "vmlinux"

    def kernel_release(self) -> str:
        """The guest kernel's release, as `uname -r` prints it."""
        recipe = self.recipes["kernel"]
        assert isinstance(recipe, KernelRecipe)
        return recipe.release()

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
        recipe = self.recipe(name)
        try:
            return recipe.folder()
        except StaleVersions:
            # The mirror no longer has a remembered version: resolve them anew.
            self.packages.refresh()
            return recipe.folder()

    def present(self, name: str) -> Path | None:
        """The folder of the artefact `name` if it is in the cache; needs no network."""
        try:
            with self.packages.offline():
                return self.recipe(name).present()
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
    return Qemu([program], _version(_output([program, "--version"])), build=_build(Path(program)))


def unpacked_qemu(folder: Path) -> Qemu:
    """Return the QEMU of an unpacked folder, run by the folder's own dynamic linker."""
    command = foreign(folder, PROGRAM)
    for data in ("usr/share/seabios", "usr/share/qemu", "usr/lib/ipxe/qemu"):
        command += ["-L", str(folder / data)]
    env = {"QEMU_MODULE_DIR": str(folder / LIBRARIES / "qemu")}
    version = _version(_output([*command, "--version"]))
    return Qemu(command, version, env, _build(folder / PROGRAM))


def _build(program: Path) -> str:
    status = program.stat()
    return f"{status.st_size}-{status.st_mtime_ns}"


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _version(text: str) -> str:
    """Return `11.1.3` of `QEMU emulator version 11.1.3 (Debian ...)`."""
    words = text.split()
    return words[3] if len(words) > 3 else "unknown"


class ModuleSet:
    """The modules that a recipe of the kind `recipe` builds."""

    def __init__(self, recipe: type[ModuleRecipe], artefacts: Artefacts) -> None:
        self._recipe = recipe
        self._artefacts = artefacts

    def _made(self) -> ModuleRecipe:
        kernel = self._artefacts.recipes["kernel"]
        assert isinstance(kernel, KernelRecipe)
        return self._recipe(self._artefacts.cache, self._artefacts.packages, kernel)

    def folder(self) -> Path:
        """Return the folder with the built modules `NAME.ko`, built now if missing.

        Raises `ImageError`.
        """
        try:
            return self._made().folder()
        except StaleVersions:
            self._artefacts.packages.refresh()
            return self._made().folder()

    def present(self) -> Path | None:
        """Return the folder if it is in the cache, else None; needs no network."""
        try:
            with self._artefacts.packages.offline():
                return self._made().present()
        except NotRemembered:
            return None
