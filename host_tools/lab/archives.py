"""Archives of programs that a guest's root lacks, unpacked over it while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine.vm import Vm

_SECONDS = 300.0


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
