"""What a queue pair is for."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Role(Enum):
    """What a queue pair is for."""

    RC = "RC"
    UC = "UC"
    UD = "UD"
    XRC = "XRC"
    GSI = "GSI"
    SMI = "SMI"
    ETHERNET = "ETH"
    RSS = "RSS"


CONNECTED: Final = frozenset((Role.RC, Role.UC, Role.XRC))
RELIABLE: Final = frozenset((Role.RC, Role.XRC))
DATAGRAMS: Final = frozenset((Role.UD, Role.GSI, Role.SMI))
