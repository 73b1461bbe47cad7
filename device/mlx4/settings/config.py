"""The configuration of an HCA: its addresses, its identity, its optional features."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.fabric.addresses import LinkLayer, check_unicast, guid_of
from bluebridge.device.fabric.settings import MESSAGES, NetworkSettings
from bluebridge.device.layout.mlx4.uar import LOG_BLUEFLAME_REGISTER
from bluebridge.device.layout.pci import DEVICE_CONNECTX3, DEVICE_CONNECTX3_PRO

BOARD_ID = "BB_CX3_A1"
FIRMWARE = (2, 42, 5000)
FIRMWARE_DATE = "5.9.2017"
NODE_DESCRIPTION = "bluebridge emulated ConnectX-3"
MAC_STEP = 0x100
MAX_PORTS = 2
BLUEFLAME_REGISTERS = tuple(1 << log for log in range(7, 13))
"""Possible sizes of a BlueFlame register: at least two buffers of a line, at most a page."""


@dataclass(frozen=True, slots=True)
class Features:
    """The features that a card has or lacks; raises `ValueError` on nonsense.

    `blueflame`: QUERY_DEV_CAP advertises it (stores to its pages count either way), with registers
    of `blueflame_register` bytes, one of `BLUEFLAME_REGISTERS`; adapters have 512. `pro`: a
    ConnectX-3 Pro, which supports RoCE v2 too. `large_cqes`: drivers may choose 64-byte entries.
    """

    ports: int = 1
    blueflame: bool = False
    pro: bool = False
    large_cqes: bool = False
    blueflame_register: int = 1 << LOG_BLUEFLAME_REGISTER

    def __post_init__(self) -> None:
        if not 1 <= self.ports <= MAX_PORTS:
            raise ValueError(f"an HCA has 1 or {MAX_PORTS} ports, not {self.ports}")
        if self.blueflame_register not in BLUEFLAME_REGISTERS:
            sizes = ", ".join(map(str, BLUEFLAME_REGISTERS))
            raise ValueError(
                f"a BlueFlame register has {sizes} bytes, not {self.blueflame_register}"
            )


PLAIN = Features()


@dataclass(frozen=True, slots=True)
class HcaConfig:
    """The configuration of one HCA, with the settings of its network; survives every reset.

    `mac` is the burned-in unicast address (6 bytes). Raises `ValueError` on nonsense.
    """

    name: str
    mac: bytes
    link: LinkLayer = LinkLayer.ETHERNET
    features: Features = PLAIN
    network: NetworkSettings = MESSAGES

    def __post_init__(self) -> None:
        check_unicast(self.mac)

    @property
    def node_guid(self) -> int:
        """The node's GUID."""
        return guid_of(self.mac)

    @property
    def device_id(self) -> int:
        """The device id in NodeInfo, which software shows as MT4099 or MT4103."""
        return DEVICE_CONNECTX3_PRO if self.features.pro else DEVICE_CONNECTX3

    def port_guid(self, number: int = 1) -> int:
        """Return the GUID of a port: the node's plus a multiple of `MAC_STEP`.

        Other HCAs of the lab have the numbers in between.
        """
        return self.node_guid + MAC_STEP * number

    def mac_of(self, number: int) -> bytes:
        """Return the burned-in address of a port, `MAC_STEP` after that of the port before.

        Other HCAs of the lab have the numbers in between.
        """
        return (int.from_bytes(self.mac, "big") + MAC_STEP * (number - 1)).to_bytes(6, "big")
