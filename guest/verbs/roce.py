"""The address vector of RoCE: GID and MAC address."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.guest.verbs.values import AddressVector


@dataclass(slots=True, frozen=True)
class RoceAddress(AddressVector):
    """A peer on Ethernet: its GID of 16 bytes, its MAC address of 6, and the header fields.

    `sgid_index` is the place of the source GID in the port's own table.
    """

    dgid: bytes
    dmac: bytes
    sgid_index: int = 0
    traffic_class: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    service_level: int = 0
