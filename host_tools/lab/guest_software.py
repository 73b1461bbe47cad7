"""Artefacts of the software that a user chose for guests: a kernel, archives over their root."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bluebridge.host_tools.errors import UsageError, listed
from bluebridge.host_tools.lab.software import GuestSoftware, debian_kernel, image
from bluebridge.images import guest_overlay, own_kernel
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.kernel_needs import GUEST, Need
from bluebridge.images.recipes import guest_modules
from bluebridge.images.recipes.debian_kernels import USUAL
from bluebridge.images.recipes.guest_archives import ConnectX5Recipe

_OWN = "own"


@dataclass(frozen=True)
class FoundSoftware:
    """A kernel as QEMU starts it, and the archives that lie over the guests' root."""

    kernel: Path
    archives: tuple[Path, ...]
    label: str
    usual: bool
    checked: bool = False
    """Whether the kernel checks itself, as one of `kernel build --debug`, and so boots slowly."""


def find(
    artefacts: Artefacts, software: GuestSoftware, driver: str, cards: Collection[str]
) -> FoundSoftware:
    """Return what `software`, whose kernel is chosen, stands for, made if it is not cached.

    A kernel of the user's must have the drivers of `cards`, if `driver` is the kernel's.
    Raises `UsageError` for what cannot be a guest's, `ImageError` for what cannot be made.
    """
    found = _kernel(artefacts, software, driver, cards)
    archives = [*found.archives]
    if software.packages:
        guest_overlay.check_names(software.packages)
        recipe = artefacts.extra_packages(software.packages)
        archives.append(artefacts.built(recipe) / guest_overlay.ARCHIVE)
    if software.overlay is not None:
        archives.append(guest_overlay.overlay(software.overlay, artefacts.cache, _root(artefacts)))
    return replace(found, archives=tuple(archives))


def _kernel(
    artefacts: Artefacts, software: GuestSoftware, driver: str, cards: Collection[str]
) -> FoundSoftware:
    """Return the kernel, with the archive of its modules as the only one."""
    debian = debian_kernel(software.kernel)
    if debian is not None and software.modules is not None:
        what = f"--modules: {debian.name} has its own modules"
        raise UsageError(what, "leave out --modules, or name an image with --kernel")
    if debian == USUAL:
        return FoundSoftware(artefacts.kernel(), (), "", usual=True)
    if debian is not None:
        folder = artefacts.built(artefacts.guest_modules(debian))
        kernel = artefacts.built(artefacts.debian(debian)) / "vmlinux"
        return FoundSoftware(kernel, (folder / guest_modules.ARCHIVE,), debian.name, usual=True)
    own = own_kernel.find(image(software.kernel), software.modules)
    if lacking := own.lacking(driver, cards):
        raise _refusal(own.image.release, lacking, driver)
    folder = own.artefact(artefacts.cache, _root(artefacts))
    modules = folder / guest_modules.ARCHIVE
    return FoundSoftware(
        folder / own_kernel.IMAGE, (modules,), _OWN, usual=False, checked=own.image.checked
    )


def connectx5(artefacts: Artefacts, software: GuestSoftware) -> Path:
    """Return the archive that guests with a ConnectX-5 get, of the kernel that is chosen."""
    debian = debian_kernel(software.kernel)
    if debian is not None:
        folder = artefacts.built(artefacts.for_kernel(ConnectX5Recipe, debian))
    else:
        own = own_kernel.find(image(software.kernel), software.modules)
        folder = own.connectx5(artefacts.cache)
    return folder / ConnectX5Recipe.archive


def _refusal(release: str, lacking: Sequence[Need], driver: str) -> UsageError:
    reasons: dict[str, list[str]] = {need.purpose: [] for need in lacking}
    for need in lacking:
        reasons[need.purpose].append(f"CONFIG_{need.symbol}")
    told = "; ".join(f"{listed(symbols)} for {why}" for why, symbols in reasons.items())
    mend = "set that as `bluebridge kernel config` has it"
    if driver == GUEST and all(need.driver == GUEST for need in lacking):
        mend += ", or use --driver kernel"
    return UsageError(f"kernel {release} lacks {told}", mend)


def _root(artefacts: Artefacts) -> Path:
    return artefacts.initrd().parent / "root"
