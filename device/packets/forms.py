"""Compiled formats of headers whose tables are in `device/layout/net`, for the path of packets."""

from __future__ import annotations

from struct import Struct
from typing import Final

GRH: Final = Struct(">IHBB16s16s")
"""Also of an IPv6 header."""
IPV4: Final = Struct(">BBHHHBBH4s4s")
UDP: Final = Struct(">HHHH")
BTH: Final = Struct(">BBHII")
DETH: Final = Struct(">II")
