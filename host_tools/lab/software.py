"""The software of guests: which kernel, and what lies over their root; the choice of a kernel."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab import roots
from bluebridge.images.cache import Cache
from bluebridge.images.kernel_build import MY, MY_DEBUG, built
from bluebridge.images.recipes.debian_kernels import DEBIAN_KERNELS, USUAL, DebianKernel

KERNEL_VARIABLE, MODULES_VARIABLE = "BLUEBRIDGE_KERNEL", "BLUEBRIDGE_MODULES"
"""The kernel of guests for which no option names one: a name or a path; the folder of modules."""
OVERLAY_VARIABLE = "BLUEBRIDGE_OVERLAY"
"""The folder that lies over the root of guests for which no option names one."""
BUILT = (MY, MY_DEBUG)
CHOICE = "kernel"
"""The file, among the user's state, with the name that `bluebridge kernel use` was given."""


@dataclass(frozen=True)
class GuestSoftware:
    """The software that a user chose for guests: a kernel, its modules, files over the root."""

    kernel: str = ""
    """The name of a kernel, or the path of an image; empty for the user's choice."""
    modules: Path | None = None
    """The folder of the modules of an image."""
    overlay: Path | None = None
    """The folder whose files lie over the guests' root."""
    packages: tuple[str, ...] = ()
    """Names of more packages of Debian."""

    def chosen(self) -> GuestSoftware:
        """Return it with kernel and overlay of the environment, or the kernel of `kernel use`.

        What is named already stays. Raises `UsageError` for modules without a kernel.
        """
        if self.overlay is None and (folder := os.environ.get(OVERLAY_VARIABLE)):
            return replace(self, overlay=Path(folder).absolute()).chosen()
        if self.kernel:
            return self
        if self.modules is not None:
            raise UsageError("--modules belong to a kernel", "add --kernel IMAGE")
        if named := os.environ.get(KERNEL_VARIABLE):
            modules = os.environ.get(MODULES_VARIABLE)
            return replace(self, kernel=named, modules=Path(modules) if modules else None)
        return replace(self, kernel=choice())


AS_USUAL = GuestSoftware()
"""The software of guests for which nothing else was asked."""


def names() -> list[str]:
    """Return the names of all kernels."""
    return [*(each.name for each in DEBIAN_KERNELS), *BUILT]


def debian_kernel(name: str) -> DebianKernel | None:
    """Return Debian's kernel of that name, or of that version of Linux; None for another one."""
    return next((each for each in DEBIAN_KERNELS if name in (each.name, each.alias or None)), None)


def image(name: str) -> Path:
    """Return the path of the kernel that is no kernel of Debian's: one built here, or an image.

    Raises `UsageError` when there is none.
    """
    if name in BUILT:
        folder = built(Cache(), name == MY_DEBUG)
        if folder is None or not (folder / "bzImage").is_file():
            command = "bluebridge kernel build SOURCE" + (" --debug" if name == MY_DEBUG else "")
            raise UsageError(f"there is no kernel {name} yet", f"`{command}` makes it")
        return folder / "bzImage"
    path = Path(name)
    if not path.is_file():
        known = ", ".join(names())
        raise UsageError(f"there is no kernel {name}", f"name an image, or one of {known}")
    return path.absolute()


def checked(name: str) -> str:
    """Return a kernel's name, or the absolute path of an image. Raises `UsageError`."""
    if (debian := debian_kernel(name)) is not None:
        return debian.name
    return name if name in BUILT else str(image(name))


def choice() -> str:
    """Return the name that `kernel use` was given, or the usual kernel's."""
    try:
        return (roots.state_root() / CHOICE).read_text().strip() or USUAL.name
    except OSError:
        return USUAL.name


def choose(name: str) -> None:
    """Have guests use the kernel of that name until another is chosen; the usual one by default.

    Raises `UsageError`.
    """
    named = checked(name)
    if named in BUILT:
        image(named)
    path = roots.state_root() / CHOICE
    if named == USUAL.name:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{named}\n")
