"""A kernel of the user's as an artefact: the image and its modules, checked, keyed by contents."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from bluebridge.images import kernel_image, kernel_needs
from bluebridge.images.cache import Cache, file_digest, key_of
from bluebridge.images.code_digest import code_digest
from bluebridge.images.kernel_image import KernelImage
from bluebridge.images.kernel_needs import Need
from bluebridge.images.recipes.guest_archives import (
    LOADER,
    ConnectX5Recipe,
    connectx5_modules,
    write_connectx5,
)
from bluebridge.images.recipes.guest_contents import MODULES
from bluebridge.images.recipes.guest_modules import ARCHIVE, OF_THE_AGENT, listing_of, pack
from bluebridge.images.recipes.kernel import ModuleTree, module_name
from bluebridge.images.report import ImageError

NAME = "own-kernel"
IMAGE = "kernel"
MOST_BYTES = 64 << 20
"""Of a folder with more modules than this, guests get those that they need and what these need."""
VERMAGIC = re.compile(rb"\0vermagic=(\S+) ")
_MEND_MODULES = "`make modules_install INSTALL_MOD_PATH=DIR` in the tree of that kernel makes them"


@dataclass(frozen=True)
class OwnKernel:
    """A kernel image and the folder of its modules, which belong together."""

    image: KernelImage
    modules: Path | None
    """`lib/modules/RELEASE`; None for a kernel with everything built in."""

    def lacking(self, driver: str, cards: Collection[str]) -> list[Need]:
        """Return what guests of that `--driver` with these cards need and this kernel has not."""
        names = _names(self.modules) if self.modules else set()
        if self.image.config is None:
            return kernel_needs.without_config(names, self._listed(), driver, cards)
        symbols = kernel_needs.parse(self.image.config)
        return [
            *kernel_needs.missing(symbols, driver, cards),
            *kernel_needs.must_be_built_in(symbols),
            *kernel_needs.lacking_modules(symbols, names, driver, cards),
        ]

    def _listed(self) -> set[str]:
        """Return the names of the modules that are built in, as kbuild listed them."""
        listing = self.modules / "modules.builtin" if self.modules else None
        if listing is None or not listing.is_file():
            return set()
        return {module_name(Path(line)) for line in listing.read_text().split()}

    def artefact(self, cache: Cache, guest_root: Path) -> Path:
        """Return the folder with `kernel` and `modules.cpio`, made if it is not in the cache."""
        files = [] if self.modules is None else sorted(self.modules.rglob("*.ko*"))
        names = [path.relative_to(self.modules or path).as_posix() for path in files]
        source = code_digest(Path(__file__)), file_digest(self.image.path, *files)
        key = key_of(
            source, names, guest_root.parent.name, self.image.config, self.image.elf is None
        )

        def build(folder: Path) -> None:
            (folder / IMAGE).write_bytes(self.image.bootable)
            (folder / ARCHIVE).write_bytes(self._archive(guest_root))

        return cache.ensure(NAME, key, build)

    def connectx5(self, cache: Cache) -> Path:
        """Return the folder with what guests with a ConnectX-5 get besides, made if need be."""
        files = [] if self.modules is None else sorted(self.modules.rglob("*.ko*"))
        key = key_of(code_digest(Path(__file__)), file_digest(LOADER, *files), self.image.release)

        def build(folder: Path) -> None:
            found = connectx5_modules(ModuleTree(self.modules)) if self.modules else {}
            write_connectx5(folder / ConnectX5Recipe.archive, self.image.release, found)

        return cache.ensure(f"{ConnectX5Recipe.name}-own", key, build)

    def _archive(self, guest_root: Path) -> bytes:
        symbols = kernel_needs.parse(self.image.config or "")
        listings = {"modules.builtin": listing_of(kernel_needs.built_in(symbols))}
        if self.modules is None:
            return pack(self.image.release, {}, listings, guest_root)
        for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
            if (self.modules / name).is_file():
                listings[name] = (self.modules / name).read_bytes()
        tree = ModuleTree(self.modules)
        wanted = sorted(_names(self.modules))
        if sum(path.stat().st_size for path in self.modules.rglob("*.ko*")) > MOST_BYTES:
            wanted = [name for name in (*OF_THE_AGENT, *MODULES) if name in tree]
        return pack(self.image.release, tree.closure(wanted), listings, guest_root)


def find(image: Path, modules: Path | None) -> OwnKernel:
    """Return the kernel at `image` with its modules below `modules`.

    Raises `ImageError` when one of them is not what it should be, or they do not belong together.
    """
    kernel = kernel_image.read(image)
    if modules is None:
        beside = image.parent / "lib/modules" / kernel.release
        return OwnKernel(kernel, beside if beside.is_dir() else None)
    if not modules.is_dir():
        raise ImageError(f"--modules {modules}: there is no such folder", _MEND_MODULES)
    found = _releases(modules)
    if kernel.release not in found:
        there = f"are of {', '.join(sorted(found))}" if found else "are none"
        what = f"the kernel is {kernel.release}, the modules in {modules} {there}"
        raise ImageError(what, _MEND_MODULES)
    folder = found[kernel.release]
    _check_version(folder, kernel.release)
    return OwnKernel(kernel, folder)


def _names(folder: Path) -> set[str]:
    return {module_name(path) for path in folder.rglob("*.ko*")}


def _releases(modules: Path) -> dict[str, Path]:
    """Return the folders of modules by release: `modules` is one, or is what was installed to."""
    if (modules / "modules.order").is_file() or (modules / "kernel").is_dir():
        return {modules.resolve().name: modules}
    parents = (modules / "lib/modules", modules / "usr/lib/modules", modules)
    parent = next((each for each in parents if each.is_dir()), modules)
    return {
        each.name: each
        for each in parent.iterdir()
        if (each / "modules.order").is_file() or (each / "kernel").is_dir()
    }


def _check_version(folder: Path, release: str) -> None:
    """Raise `ImageError` when the modules themselves say that they are of another release."""
    first = next(iter(sorted(folder.rglob("*.ko*"))), None)
    if first is None:
        return
    match = VERMAGIC.search(ModuleTree(folder).read(module_name(first)))
    if match and match[1].decode(errors="replace") != release:
        theirs = match[1].decode(errors="replace")
        what = f"the kernel is {release}, the modules in {folder} were built for {theirs}"
        raise ImageError(what, _MEND_MODULES)
