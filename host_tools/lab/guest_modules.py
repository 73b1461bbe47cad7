"""Sets of kernel modules that the guest's image is without, put where modprobe finds them."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from bluebridge.host_tools.machine.vm import Vm

_SECONDS = 120.0


def install(machine: Vm, name: str, folder: Path) -> None:
    """Put the modules of `folder` into a folder `name` among the guest's own; mount debugfs.

    Raises `LabError`.
    """
    archive = f"/tmp/{name}.tar"
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as modules:
            for path in sorted(folder.glob("*.ko")):
                modules.add(path, path.name)
        file.flush()
        machine.agent.put(Path(file.name), archive)
    machine.run(
        f"T=/lib/modules/$(uname -r)/{name}; mkdir -p $T && tar -x -C $T -f {archive} && "
        f"rm {archive} && depmod -a && "
        "{ grep -q /sys/kernel/debug /proc/mounts || mount -t debugfs none /sys/kernel/debug; }",
        timeout=_SECONDS,
    )
