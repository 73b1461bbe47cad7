"""Network boot: a guest that iPXE boots over its HCA, with an address and files from its peer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bluebridge.device.layout.pci import DEVICE_CONNECTX2
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.lab import root_ports
from bluebridge.host_tools.lab.artefacts import LabArtefacts, NetworkBootFiles
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.machine import qemu_arguments
from bluebridge.host_tools.machine.qemu_arguments import NetworkBoot
from bluebridge.host_tools.machine.vm import Vm

FOLDER = "/srv/boot"
_STAMP = f"{FOLDER}/stamp"
_NOTHING_TO_BOOT = "No bootable device"
"""The last words of SeaBIOS after firmware that could not boot has given up."""

_SERVE = """\
cd {folder}
I=$(ip -o -4 addr show to {address} | cut -d' ' -f2)
[ -n "$I" ] || {{ echo "no device has {address}"; exit 1; }}
[ -e pid ] && kill $(cat pid) && while [ -e /proc/$(cat pid) ]; do sleep 0.1; done
python3 -SP -m bluebridge.guest.boot_server $I {address} {client} . < /dev/null > log 2>&1 &
echo $! > pid
until grep -q ready log; do [ -e /proc/$! ] || {{ cat log; exit 1; }}; sleep 0.1; done
"""

_SCRIPT = """\
#!ipxe
kernel vmlinuz initrd=root.zst initrd=code.cpio {words}
initrd root.zst
initrd code.cpio
boot
"""


def check(config: LabConfig) -> None:
    """Raise `UsageError` for a pair whose guests cannot boot over the network."""
    if not (config.hca and config.kernel):
        raise UsageError(
            "a guest boots from its peer, whose kernel must drive the HCA for that",
            "bluebridge up --driver kernel",
        )
    if config.bridge is not None:
        raise UsageError(
            "a bridge's windows are above 4 GiB, where iPXE reaches no register",
            "use a pair without --ntb",
        )


def prepare(
    config: LabConfig, name: str, peer: Vm, artefacts: LabArtefacts, files: NetworkBootFiles
) -> NetworkBoot:
    """Have `peer` serve the files that guest `name` boots; return the way that guest starts.

    Raises `LabError`.
    """
    address, client = (config.address(each).partition("/")[0] for each in (peer.name, name))
    code = artefacts.guest_code()  # a second archive of the root
    # The names of these folders change with the archives' contents.
    stamp = f"{files.root.parent.name} {code.parent.name}"
    if peer.run(f"cat {_STAMP}", check=False).text.strip() != stamp:
        peer.run(f"mkdir -p {FOLDER}; rm -f {_STAMP}")
        for source, file in (
            (files.kernel, "vmlinuz"),
            (files.root, "root.zst"),
            (code, "code.cpio"),
        ):
            peer.agent.put(source, f"{FOLDER}/{file}")
        peer.agent.put(stamp.encode(), _STAMP)
    words = qemu_arguments.command_line(name, config.size, vfio=False)
    peer.agent.put(_SCRIPT.format(words=words).encode(), f"{FOLDER}/boot.ipxe")
    peer.run(_SERVE.format(address=address, client=client, folder=FOLDER))
    return start(config, files)


def start(config: LabConfig, files: NetworkBootFiles, script: Path | None = None) -> NetworkBoot:
    """Return the way a guest starts with iPXE, which follows `script` if there is one."""
    ids = {root_ports.HCAS[number]: DEVICE_CONNECTX2 for number in range(config.hcas)}
    return NetworkBoot(files.firmware, ids, script)


@contextlib.contextmanager
def watched(machine: Vm) -> Iterator[None]:
    """Let waits for `machine` fail within the block when its firmware finds nothing to boot."""
    begin = machine.transcript.stat().st_size if machine.transcript.exists() else 0

    def gave_up() -> LabError | None:
        said = machine.transcript.read_bytes()[begin:] if machine.transcript.exists() else b""
        text = said.decode(errors="replace")
        if _NOTHING_TO_BOOT not in text:
            return None
        what = f"guest {machine.name}: iPXE did not boot it"
        return LabError(what, f"read {machine.transcript}", text)

    machine.alarms.append(gave_up)
    try:
        yield
    finally:
        machine.alarms.remove(gave_up)
