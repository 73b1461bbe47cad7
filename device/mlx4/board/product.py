"""What a board says of itself in configuration space: vital product data, and a serial number."""

from __future__ import annotations

from struct import pack
from typing import Final

from bluebridge.device.mlx4.settings.config import NODE_DESCRIPTION, HcaConfig
from bluebridge.device.pci.config_space import Product

_IDENTIFIER: Final = 0x82
_READ_ONLY: Final = 0x90
_END: Final = b"\x78"
PART: Final = {False: "bluebridge-CX3", True: "bluebridge-CX3PRO"}
"""The part number of a ConnectX-3, and (True) of a ConnectX-3 Pro."""


def product_of(config: HcaConfig) -> Product:
    """Return what an adapter's board says of itself; its serial number is that of the node."""
    return Product(config.node_guid, vital_product_data(config))


def vital_product_data(config: HcaConfig) -> bytes:
    """Return the vital product data of an adapter (PCI Local Bus 3.0, appendix I)."""
    name = NODE_DESCRIPTION.encode()
    entries = b"".join(
        pack("<2sB", keyword.encode(), len(text)) + text.encode()
        for keyword, text in (
            ("PN", PART[config.features.pro]),
            ("EC", "A1"),
            ("SN", f"bluebridge-{config.mac.hex()}"),
            ("V0", "PCIe Gen3 x8"),
        )
    )
    checked = pack("<BH", _IDENTIFIER, len(name)) + name
    checked += pack("<BH", _READ_ONLY, len(entries) + 4) + entries + b"RV\1"
    return checked + bytes((-sum(checked) & 0xFF,)) + _END
