"""An InfiniBand port as subnet management sees it: PortInfo, tables, state, cable.

Rules: InfiniBand vol. 1, 14.2.5.6 (PortInfo) and 7.2 (states of a link).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import IntFlag

from bluebridge.device.fabric.addresses import lid_bytes
from bluebridge.device.fabric.subnet import port_info
from bluebridge.device.fabric.subnet.port_info import ManagementKey
from bluebridge.device.layout.ib.link import (
    LINK_ACTIVE,
    LINK_ARMED,
    LINK_DOWN,
    LINK_INIT,
    MTU_4096,
    PHYSICAL_DISABLED,
    PHYSICAL_LINK_UP,
    PHYSICAL_POLLING,
    SPEED_QDR,
    WIDTH_1X,
    WIDTH_4X,
)
from bluebridge.device.layout.ib.mad import PORT_INFO

DEFAULT_PREFIX = 0xFE80 << 48
DEFAULT_TIMEOUT = 18  # 4.096 us * 2^18, a second
ALL_SPEEDS = 7  # 2.5, 5 and 10 Gb/s
VLS_4 = 3  # the code of VL 0 to 3
ARBITRATION_ENTRIES = 8


@dataclass(slots=True)
class PortCounters:
    """The counters of a port: packets, and data in 4-byte words."""

    xmit_data: int = 0
    rcv_data: int = 0
    xmit_packets: int = 0
    rcv_packets: int = 0
    multicast_xmit_packets: int = 0
    multicast_rcv_packets: int = 0
    xmit_discards: int = 0
    vl15_dropped: int = 0
    link_downed: int = 0

    def sent(self, packets: int, words: int, group: bool) -> None:
        """Count a message that the port sent."""
        self.xmit_packets += packets
        self.xmit_data += words
        if group:
            self.multicast_xmit_packets += packets

    def received(self, packets: int, words: int, group: bool) -> None:
        """Count a message that the port received."""
        self.rcv_packets += packets
        self.rcv_data += words
        if group:
            self.multicast_rcv_packets += packets

    def reset(self) -> None:
        """Set all counters to zero."""
        for name in asdict(self):
            setattr(self, name, 0)


class Change(IntFlag):
    """The change made by a Set; the low bits are those of the adapter's `EQE.PORT_MNG_CHG`."""

    SM_LID = 1 << 0
    GID_PREFIX = 1 << 1
    LID = 1 << 2
    CLIENT_REREGISTER = 1 << 3
    SM_SL = 1 << 4
    STATE = 1 << 5
    PKEYS = 1 << 6
    GUIDS = 1 << 7
    SL2VL = 1 << 8
    CAPABILITIES = 1 << 9
    ROUTES = 1 << 10


_CHANGES = {
    "gid_prefix": Change.GID_PREFIX,
    "lid": Change.LID,
    "lmc": Change.LID,
    "sm_lid": Change.SM_LID,
    "sm_sl": Change.SM_SL,
    "client_reregister": Change.CLIENT_REREGISTER,
}

Listener = Callable[["PortAgent", Change], None]


class PortAgent:
    """The agent of port `number` of a node; `end_port` says whether it has LIDs.

    `link_up` says whether the cable carries anything, `carries_data` whether that may be more than
    subnet management. `listeners` are called after every change. `peer` is the port at
    the other end of the cable; the link is up when both ends are open and neither is disabled.
    """

    def __init__(
        self,
        number: int,
        guid: int,
        *,
        end_port: bool = True,
        guids: int = 8,
        pkeys: int = 16,
        capabilities: int = 0,
    ) -> None:
        self.number = number
        self.end_port = end_port
        self.peer: PortAgent | None = None
        self.listeners: list[Listener] = []
        self.counters = PortCounters()
        self.lids: frozenset[bytes] = frozenset()
        self.link_up = self.carries_data = False
        self._guid = guid
        self._guid_count = guids
        self._pkey_count = pkeys
        self._capabilities = capabilities
        self._open = False
        self._disabled = False
        self._always_up = False
        self.power_on()

    def power_on(self) -> None:
        """Return to the state before anybody set anything; the cable stays."""
        self._open = self._disabled = False
        self.guids = [self._guid, *[0] * (self._guid_count - 1)]
        self.pkeys = [0xFFFF, *[0] * (self._pkey_count - 1)]
        self.sl2vl: dict[int, bytes] = {}
        self.arbitration: dict[int, bytes] = {}
        self.info = PORT_INFO.pack(
            gid_prefix=DEFAULT_PREFIX, capabilities=self._capabilities, local_port=self.number,
            width_enabled=WIDTH_1X | WIDTH_4X, width_supported=WIDTH_1X | WIDTH_4X,
            width_active=WIDTH_4X, speed_supported=ALL_SPEEDS, speed_enabled=ALL_SPEEDS,
            speed_active=SPEED_QDR, state=LINK_DOWN, physical_state=PHYSICAL_POLLING,
            link_down_default=PHYSICAL_POLLING, neighbour_mtu=MTU_4096, mtu_cap=MTU_4096,
            vl_cap=VLS_4, operational_vls=1, vl_arb_high_cap=ARBITRATION_ENTRIES,
            vl_arb_low_cap=ARBITRATION_ENTRIES, guid_cap=self._guid_count,
            subnet_timeout=DEFAULT_TIMEOUT, resp_time=DEFAULT_TIMEOUT,
        )  # fmt: skip
        self.management_key = ManagementKey(self.info)
        self._remember()
        self._address()
        self.train()

    def get(self, name: str) -> int:
        """Return a field of PortInfo."""
        return PORT_INFO.get(self.info, name)

    @property
    def guid(self) -> int:
        """The GUID of this port, 8 bytes as an integer."""
        return self.guids[0]

    @property
    def lid(self) -> int:
        """The base LID; 0 until a subnet manager sets it."""
        return self.get("lid")

    @property
    def state(self) -> int:
        """The logical state of the link."""
        return self.get("state")

    @property
    def capabilities(self) -> int:
        """The capability mask of PortInfo."""
        return self.get("capabilities")

    def set_capabilities(self, mask: int) -> None:
        """Set the capability mask, where software says that it is a subnet manager, say."""
        if mask != self.capabilities:
            self.put("capabilities", mask)
            self.tell(Change.CAPABILITIES)

    def gid(self, index: int) -> bytes:
        """Return GID number `index`, zeros where there is none."""
        guid = self.guids[index] if index < len(self.guids) else 0
        return (self.get("gid_prefix") << 64 | guid).to_bytes(16, "big") if guid else bytes(16)

    # -- the cable ----------------------------------------------------------------------------

    def connect(self, peer: PortAgent) -> None:
        """Put a cable between two ports."""
        self.peer, peer.peer = peer, self
        self.train()

    def disconnect(self) -> None:
        """Remove the cable of the port."""
        peer, self.peer = self.peer, None
        self.train()
        if peer is not None:
            peer.peer = None
            peer.train()

    def open(self, value: bool = True) -> None:
        """Switch the transmitter on or off."""
        self._open = value
        self.train()

    def always_up(self) -> None:
        """Keep the link of port 0 of a switch up, whatever is set: it has no cable."""
        self._always_up = True
        self.put("physical_state", PHYSICAL_LINK_UP)
        self.put("state", LINK_INIT)

    def ready(self) -> bool:
        """Return True if this end of the cable is open and not disabled."""
        return self._open and not self._disabled

    def train(self) -> None:
        """Determine whether the link is up now, and update both ends of the cable."""
        for end in (self, self.peer):
            if end is not None:
                end.follow_link()

    def follow_link(self) -> None:
        """Set the state of the cable: INIT when the link came up, DOWN when it went down."""
        if self._always_up:
            return
        up = self.peer is not None and self.ready() and self.peer.ready()
        if up == self.link_up:
            if not up:
                self.put("physical_state", self._down_state())
            return
        self.put("physical_state", PHYSICAL_LINK_UP if up else self._down_state())
        self.put("state", LINK_INIT if up else LINK_DOWN)
        if not up:
            self.counters.link_downed += 1
        self.tell(Change.STATE)

    def _down_state(self) -> int:
        return PHYSICAL_DISABLED if self._disabled else PHYSICAL_POLLING

    # -- PortInfo -----------------------------------------------------------------------------

    def set_info(self, data: bytes) -> None:
        """Carry out Set(PortInfo); raises `BadField`, and then nothing changed."""
        port_info.check(self.info, data, end_port=self.end_port)
        named = port_info.apply(self.info, data, end_port=self.end_port)
        changes = Change(0)
        for name in named:
            changes |= _CHANGES[name]
        if changes & Change.LID:
            self._address()
        if changes:
            self.tell(changes)
        self._set_state(PORT_INFO.get(data, "state"), PORT_INFO.get(data, "physical_state"))

    def _set_state(self, state: int, physical: int) -> None:
        if physical in (PHYSICAL_POLLING, PHYSICAL_DISABLED):
            self._disabled = physical == PHYSICAL_DISABLED
            self.train()
        if state == LINK_DOWN and self.link_up:
            was, self._disabled = self._disabled, True  # down, and up again at once
            self.train()
            self._disabled = was
            self.train()
        elif state in (LINK_ARMED, LINK_ACTIVE) and state != self.state:
            self.put("state", state)
            self.tell(Change.STATE)

    # -- tables -------------------------------------------------------------------------------

    def set_pkeys(self, block: int, values: list[int]) -> None:
        """Carry out Set(P_KeyTable); what lies behind the table's end is ignored."""
        if _set_block(self.pkeys, block, values, 0):
            self.tell(Change.PKEYS)

    def set_guids(self, block: int, values: list[int]) -> None:
        """Carry out Set(GUIDInfo), except for the first GUID, which is burned in."""
        if _set_block(self.guids, block, values, 1):
            self.tell(Change.GUIDS)

    def set_sl2vl(self, entering: int, table: bytes) -> None:
        """Carry out Set(SLtoVLMappingTable) for packets that enter the node at port `entering`."""
        changed = self.sl2vl.get(entering) != table
        self.sl2vl[entering] = table
        if changed:
            self.tell(Change.SL2VL)

    def put(self, name: str, value: int) -> None:
        """Store a field of PortInfo without checks and without telling anybody."""
        PORT_INFO.set(self.info, name, value)
        if name in ("state", "physical_state"):
            self._remember()

    def _remember(self) -> None:
        """Keep as attributes those parts of PortInfo that every message needs."""
        self.link_up = self.get("physical_state") == PHYSICAL_LINK_UP
        self.carries_data = self.state in (LINK_ARMED, LINK_ACTIVE)

    def _address(self) -> None:
        lid = self.lid
        count = (1 << self.get("lmc")) if lid else 0
        self.lids = frozenset(lid_bytes(lid + offset) for offset in range(count))

    def tell(self, change: Change) -> None:
        """Tell listeners of a change, which may be one of the node's forwarding tables."""
        for listener in self.listeners:
            listener(self, change)


def _set_block(table: list[int], block: int, values: list[int], first: int) -> bool:
    """Set a block of a table from index `first` on, and return whether that changed it."""
    before = list(table)
    for index, value in enumerate(values, block * len(values)):
        if first <= index < len(table):
            table[index] = value
    return table != before


def block_bytes(table: Sequence[int], block: int, count: int, size: int) -> bytes:
    """Return a block of `count` numbers of a table, `size` bytes each, to the table's end."""
    values = table[block * count : (block + 1) * count]
    return b"".join(value.to_bytes(size, "big") for value in values)
