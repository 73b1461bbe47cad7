"""Making the snapshot that guests are restored from: one boot, once per image, machine and QEMU.

python -m bluebridge.host_tools.lab.snapshot          makes the usual one if it is missing
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from bluebridge.host_tools.errors import LabError, Progress, Reporter
from bluebridge.host_tools.lab import folders, roots
from bluebridge.host_tools.lab.artefacts import LabArtefacts, ensure_artefacts, image_errors
from bluebridge.host_tools.machine import qemu_arguments
from bluebridge.host_tools.machine.qemu_arguments import GuestSize
from bluebridge.host_tools.machine.vm import Vm, VmConfig
from bluebridge.images.cache import Snapshot

_NAME = "bluebridge"
_FORMAT = 1  # raise it when what is done to the guest before it is saved changes


def snapshot_of(artefacts: LabArtefacts, size: GuestSize) -> Snapshot:
    """Return the snapshot for these artefacts and size, whether or not it exists yet.

    Its key has everything that the saved state depends on.
    """
    somewhere = Path("/")
    arguments = size.arguments(_NAME, artefacts.emulator, somewhere, somewhere)
    # Not where QEMU lies, so that an imported cache serves wherever it is.
    arguments = arguments[len(artefacts.emulator.argv) :]
    words = qemu_arguments.command_line(_NAME, size, vfio=True, quiet=artefacts.usual)
    ingredients = (
        _FORMAT,
        arguments,
        artefacts.emulator.identity,
        *artefacts.identity(),
        words,
        _processor(artefacts),
    )
    kernel = f"-{artefacts.label}" if artefacts.label else ""
    return Snapshot(f"{size.cpus}c{size.memory_mib}m{kernel}", ingredients)


def _processor(artefacts: LabArtefacts) -> str:
    """Return what a guest has of the host's processor: under KVM all, else its clock.

    TCG's processor is part of QEMU but for the time stamp counter, whose rate the guest measured at
    its boot and counts time by.
    """
    words = ("model", "flags") if artefacts.emulator.accelerator == "kvm" else ("model",)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return "\n".join(sorted({line for line in lines if line.startswith(words)}))


def ensure(artefacts: LabArtefacts, size: GuestSize, progress: Progress) -> Snapshot:
    """Return the snapshot, made by booting a guest if it is missing; main thread only.

    Raises `LabError` when that guest does not come up.
    """
    snapshot = snapshot_of(artefacts, size)

    def make(state: Path) -> None:
        progress("booting a guest once to make the snapshot that others start from")
        _make(artefacts, size, state, snapshot.folder.name)

    if not snapshot.state.exists():
        progress("guests of this size have no snapshot yet; whoever comes first makes it")
        with image_errors():
            snapshot.ensure(make)
    return snapshot


def _make(artefacts: LabArtefacts, size: GuestSize, state: Path, log: str) -> None:
    """Boot a guest without devices, with the modules of the user-space driver, and save it.

    Should it fail, its transcript stays in the folder `log` until the next attempt.
    """
    logs = roots.state_root() / "snapshot" / log
    shutil.rmtree(logs, ignore_errors=True)
    with folders.run_folder() as folder:
        # A name of one letter, as the check of the folder's length for sockets supposes.
        template = Vm(VmConfig("s", size), artefacts.emulator, folder, folders.log_folder(logs))
        try:
            boot = artefacts.boot(folder, _NAME, size, vfio=True)
            template.spawn(boot, saved=state.parent)
            template.attach()
            template.release()
            template.wait_for_boot(artefacts.usual, artefacts.checked)
            template.console.wake()  # the shell is up as well
            template.console.run("stty echo")
            template.forget_agent()
            template.save(state)
        finally:
            template.stop()
    shutil.rmtree(logs, ignore_errors=True)


def main() -> int:
    """Make the snapshot of the usual machine; returns the exit status."""
    try:
        progress = Reporter()
        ensure(ensure_artefacts(progress), GuestSize(), progress)
    except LabError as error:
        print(f"bluebridge: {error}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
