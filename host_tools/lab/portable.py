"""What another machine starts a pair from: the artefacts, and a snapshot that serves there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bluebridge.host_tools.errors import Progress
from bluebridge.host_tools.lab import snapshot
from bluebridge.host_tools.lab.artefacts import ensure_artefacts
from bluebridge.host_tools.machine.qemu_arguments import GuestSize
from bluebridge.images import exchange
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import Snapshot


def finished(artefacts: Artefacts, progress: Progress) -> tuple[list[Path], Snapshot]:
    """Return the folders of the cache, built where they are missing, and their snapshot.

    Raises `LabError` or `ImageError`.
    """
    artefacts.build()
    lab = ensure_artefacts(progress)
    # A snapshot under KVM serves one model of processor only.
    everywhere = replace(lab, emulator=replace(lab.emulator, accelerator="tcg"))
    made = snapshot.ensure(everywhere, GuestSize(), progress)
    return exchange.entries(artefacts, [made.folder, everywhere.guest_code().parent]), made
