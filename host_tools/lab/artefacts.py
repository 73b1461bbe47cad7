"""Artefacts of `images` for a lab: emulator, kernel, initrd, libraries, archives for guests."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bluebridge.device import cards
from bluebridge.host_tools.errors import LabError, Progress
from bluebridge.host_tools.lab import guest_software
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.software import AS_USUAL, GuestSoftware, debian_kernel
from bluebridge.host_tools.machine import qemu_arguments
from bluebridge.host_tools.machine.qemu_arguments import Boot, Emulator, GuestSize
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.images import overlay
from bluebridge.images.accelerator import accelerator
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import HOME
from bluebridge.images.recipes.guest_archives import (
    DebugToolsRecipe,
    DpdkRecipe,
    GuestArchiveRecipe,
    MessageLibrariesRecipe,
    NfsRecipe,
    OpenMpiRecipe,
    SrpRecipe,
)
from bluebridge.images.recipes.kernel_modules import NtbRecipe, RtrsRecipe
from bluebridge.images.recipes.module_build import ModuleRecipe
from bluebridge.images.report import ImageError

_SECONDS = 300.0


@dataclass(frozen=True)
class LabArtefacts:
    """The paths of the emulator, kernel, initrd and libvfio-user that a lab runs."""

    emulator: Emulator
    kernel: Path
    initrd: Path
    library: Path
    more: tuple[Path, ...] = ()
    """Archives that lie over the root of `initrd`, in this order; a folder's name has their key."""
    label: str = ""
    """The kernel in the names of snapshots; empty for the usual one."""
    usual: bool = True
    """Whether the kernel is one that the project was tested with, which boots without a word."""
    checked: bool = False
    """Whether the kernel checks itself, and so boots slowly."""

    def guest_code(self) -> Path:
        """Return the archive of the present guest code; its folder's name changes with the code.

        Raises `LabError`.
        """
        with image_errors():
            return overlay.overlay(HOME, self.initrd)

    def boot(self, folder: Path, name: str, size: GuestSize, vfio: bool) -> Boot:
        """Return what guest `name` starts from at power-on; the initrd is written to `folder`."""
        initrd = folder / "initrd"
        if not initrd.exists():
            with image_errors():
                overlay.build(initrd, HOME, self.initrd, self.more)
        words = qemu_arguments.command_line(name, size, vfio, quiet=self.usual)
        return Boot(self.kernel, initrd, words)

    def identity(self) -> tuple[str, ...]:
        """Return what tells the guests' software from any other; raises `LabError`."""
        parts = (self.kernel, self.initrd, self.guest_code(), *self.more)
        return tuple(path.parent.name for path in parts)


def ensure_artefacts(
    progress: Progress,
    software: GuestSoftware = AS_USUAL,
    driver: str = "",
    names: Collection[str] = (),
) -> LabArtefacts:
    """Return all artefacts, built if they are not cached. Raises `LabError` naming the cure.

    A kernel that lacks what guests of that `--driver` with the cards of these names need is
    refused.
    """
    progress("looking for kernel, guest root, QEMU and libvfio-user")
    with image_errors():
        artefacts = Artefacts()
        found = guest_software.find(artefacts, software.chosen(), driver, names)
        qemu = artefacts.qemu()
        kind = accelerator(artefacts)
        return LabArtefacts(
            Emulator(
                tuple(qemu.command),
                qemu.env,
                kind,
                f"{qemu.version} {qemu.build}",
                seccomp=qemu.seccomp,
            ),
            found.kernel,
            artefacts.initrd(),
            artefacts.libvfio_user(),
            found.archives,
            found.label,
            found.usual,
            found.checked,
        )


def device_library(progress: Progress) -> Path:
    """Return libvfio-user, built if it is not cached: all that a pair without guests needs.

    Raises `LabError` naming the cure.
    """
    progress("looking for libvfio-user")
    with image_errors():
        return Artefacts().libvfio_user()


@dataclass(frozen=True)
class NetworkBootFiles:
    """The paths of the files with which a guest is booted over the network."""

    firmware: Path
    kernel: Path
    """The kernel's file in the form that boot loaders start."""
    root: Path
    """The guest's root, compressed."""


def network_boot_files(progress: Progress) -> NetworkBootFiles:
    """Return the files for a network boot, fetched and made if they are not cached.

    Raises `LabError`.
    """
    progress("looking for iPXE and what it is to boot")
    with image_errors():
        artefacts = Artefacts()
        files = artefacts.folder("boot-files")
        firmware = artefacts.folder("ipxe") / "ipxe.lkrn"
        return NetworkBootFiles(firmware, files / "vmlinuz", files / "root.zst")


def _modules(
    kind: type[ModuleRecipe], what: str, progress: Progress, software: GuestSoftware = AS_USUAL
) -> Path | None:
    debian = debian_kernel(software.chosen().kernel)
    if debian is None:
        return None
    with image_errors():
        artefacts = Artefacts()
        recipe = artefacts.for_kernel(kind, debian)
        if artefacts.found(recipe) is None:
            progress(f"building {what}, which Debian leaves out; once, a few minutes")
        return artefacts.built(recipe)


def _archive(recipe: type[GuestArchiveRecipe], what: str, progress: Progress) -> Path:
    progress(f"looking for {what}; fetched once")
    with image_errors():
        return Artefacts().folder(recipe.name) / recipe.archive


ntb_modules = partial(_modules, NtbRecipe, "the NTB drivers")
"""Returns the folder of the NTB drivers and their clients, built if they are not cached.

None for a kernel of the user's, which has its own.
"""
rtrs_modules = partial(_modules, RtrsRecipe, "RTRS and RNBD")
"""Returns the folder of the modules of RTRS and RNBD in the same way."""
dpdk_archive = partial(_archive, DpdkRecipe, "DPDK's testpmd")
message_libraries = partial(_archive, MessageLibrariesRecipe, "UCX and libfabric")
open_mpi = partial(_archive, OpenMpiRecipe, "Open MPI")
srp_modules = partial(_archive, SrpRecipe, "SRP")
nfs_archive = partial(_archive, NfsRecipe, "NFS over RDMA")
debug_archive = partial(_archive, DebugToolsRecipe, "the debugging tools")
"""Return the archive of such programs for guests, fetched if it is not cached."""


def card_archives(
    config: LabConfig, progress: Progress, software: GuestSoftware
) -> dict[str, Path]:
    """Return the archives that guests of some cards need, by the name of the card."""
    if cards.CONNECTX5.name not in config.cards_of_guests:
        return {}
    progress("looking for the modules of the ConnectX-5")
    with image_errors():
        return {cards.CONNECTX5.name: guest_software.connectx5(Artefacts(), software.chosen())}


@contextlib.contextmanager
def image_errors() -> Iterator[None]:
    """Turn each `ImageError` that is raised within the `with` block into a `LabError`."""
    try:
        yield
    except ImageError as error:
        raise LabError(error.what, error.mend) from error


def unpack(machine: Vm, archives: Sequence[Path]) -> None:
    """Unpack archives over the root of a running guest, in their order. Raises `LabError`.

    No copy of an archive is made in the guest.
    """
    for path in archives:
        try:
            with path.open("rb", buffering=0) as stream:
                machine.agent.run("tar -x -C / -f -", _SECONDS, stdin=stream, check=True)
        except OSError as error:
            raise LabError(f"{path}: {error.strerror}", "run `make setup`") from error
