"""The configuration of a ConnectX-5: its addresses, its identity, its optional features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bluebridge.device.fabric.addresses import check_unicast, guid_of
from bluebridge.device.fabric.settings import MESSAGES, NetworkSettings

BOARD_ID: Final = "BB_CX5_A1"
FIRMWARE: Final = (16, 35, 4030)
NODE_DESCRIPTION: Final = "bluebridge emulated ConnectX-5"


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of one adapter, with the settings of its network; survives every reset.

    `mac` is the burned-in unicast address (6 bytes); with `blueflame` send entries may be stored
    into the adapter. Raises `ValueError` on nonsense.
    """

    name: str
    mac: bytes
    network: NetworkSettings = MESSAGES
    blueflame: bool = False

    def __post_init__(self) -> None:
        check_unicast(self.mac)

    @property
    def node_guid(self) -> int:
        """The node's GUID."""
        return guid_of(self.mac)
