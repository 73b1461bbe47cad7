"""The roles of queue pairs."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Role(Enum):
    """The purpose of a queue pair: a service, QP0 or QP1, Ethernet, or spreading frames."""

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
