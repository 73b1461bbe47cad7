"""The header in front of IP packets that UD queue pairs carry (RFC 4391)."""

from __future__ import annotations

from bluebridge.device.layout.fields import Struct, u16

HEADER_SIZE = 4
IPOIB = Struct("IPOIB", HEADER_SIZE, [u16("ethertype", 0, "protocol")], source="RFC 4391, 6")
