"""Which device of a lab stands behind which root port."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bluebridge.device import option_table
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.machine.qemu_arguments import WIDE_PORT

HCA = 0
ENGINE = 1
BRIDGE = WIDE_PORT
"""Its second window may have several GiB."""


def sockets(config: LabConfig, folder: Path, name: str) -> dict[int, Path]:
    """The vfio-user sockets of guest `name` by root port."""
    found = {}
    if config.hca:
        found[HCA] = folder / f"hca-{name}.sock"
    if config.bridge is not None:
        found[ENGINE] = folder / f"dma-{name}.sock"
        found[BRIDGE] = folder / f"ntb-{name}.sock"
    return found


def arguments(config: LabConfig, ports: Mapping[str, Mapping[int, Path]]) -> list[str]:
    """What the device server is told of the bridge."""
    if config.bridge is None:
        return []
    words = option_table.words(config.bridge)
    for option, port in (("--ntb", BRIDGE), ("--dma", ENGINE)):
        for name, paths in ports.items():
            words += [option, f"name={name},socket={paths[port]}"]
    return words
