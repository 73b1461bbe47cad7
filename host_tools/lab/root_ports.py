"""The root port behind which each device of a guest stands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bluebridge.device.server.options import LINKS
from bluebridge.device.server.settings import FunctionSpec, HcaSpec
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.hosts import functions
from bluebridge.host_tools.hosts.functions import HostFunction
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.machine.qemu_arguments import WIDE_PORT

ENGINE = 1
HCAS = (0, 2)
"""The root ports of the first HCA of a guest and of the second."""
HCA = HCAS[0]
NIC = HCA
"""The root port of a virtio NIC, which a guest has in place of HCAs."""
BRIDGE = WIDE_PORT
"""The root port of the bridge, whose second window may have several GiB."""


def address(port: int) -> str:
    """Return the PCI address of the function behind a root port, as a guest sees it."""
    # Firmware numbers the buses in the order of the ports; nothing else has a bus.
    return f"0000:{port + 1:02x}:00.0"


def hca_name(guest: str, number: int) -> str:
    """Return the device server's name of a guest's HCA with that number, from 0: `a`, `a.1`."""
    return f"{guest}.{number}" if number else guest


def hcas(config: LabConfig, ports: Mapping[str, Mapping[int, Path]]) -> tuple[HcaSpec, ...]:
    """Return the HCAs of all guests; those with one index share a network.

    The first HCAs of all guests come first: hardware addresses follow from that order. Raises
    `UsageError` for ports that speak nothing known.
    """
    try:
        link = config.options.link_layer
    except ValueError as error:
        raise UsageError(str(error), f"write {' or '.join(LINKS)}") from None
    found = [
        (guest, hca_name(guest, number), ports[guest][HCAS[number]], number)
        for number in range(config.hcas if config.hca else 0)
        for guest in config.names
        if config.has_hca(guest)
    ]
    return tuple(
        HcaSpec(name, path, config.hca_mac(index), link, number, config.card(guest).name)
        for index, (guest, name, path, number) in enumerate(found)
    )


def functions_at(port: int, ports: Mapping[str, Mapping[int, Path]]) -> tuple[FunctionSpec, ...]:
    """Return what stands behind a root port of each guest that has something there."""
    return tuple(FunctionSpec(name, paths[port]) for name, paths in ports.items() if port in paths)


def sockets(config: LabConfig, folder: Path, name: str) -> dict[int, Path]:
    """Return the vfio-user sockets of guest `name` by root port."""
    found = {}
    if config.has_hca(name):
        for number in range(config.hcas):
            found[HCAS[number]] = folder / f"hca-{hca_name(name, number)}.sock"
    if config.bridge is not None:
        found[ENGINE] = folder / f"dma-{name}.sock"
        found[BRIDGE] = folder / f"ntb-{name}.sock"
    return found


def host_functions(ports: Mapping[int, Path]) -> list[HostFunction]:
    """Return the functions of a side without a guest, by the sockets of its root ports."""
    kinds = {ENGINE: functions.ENGINE, BRIDGE: functions.BRIDGE}
    return [
        HostFunction(address(port), kinds.get(port, functions.HCA), path)
        for port, path in sorted(ports.items())
    ]
