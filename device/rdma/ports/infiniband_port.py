"""An InfiniBand port of an HCA: addressed by LID, managed by whoever manages the subnet.

What subnet management sees and sets is `agent`; its changes become the events of Linux
`ib/mad.c: handle_port_mgmt_change_event` and `mlx4/eq.c: mlx4_eq_int`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from bluebridge.device.fabric.addresses import NO_LID, LinkLayer, is_group, lid_bytes, lid_of
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.messages import Datagram, Message, Route
from bluebridge.device.fabric.subnet import agents
from bluebridge.device.fabric.subnet.packets import trap
from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.fabric.subnet.topology import Node
from bluebridge.device.layout.ib.link import LINK_ACTIVE, LINK_DOWN, partitions_match
from bluebridge.device.layout.ib.mad import (
    MAD,
    NOTICE_144_CAPABILITIES,
    NOTICE_144_LID,
    NOTICE_INFO,
    TRAP_CAPABILITY,
    Method,
    MgmtClass,
    PortCapability,
)
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.ports.datagram_headers import parse_ib_datagram
from bluebridge.device.rdma.ports.face import PortEvents
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.port_tables import Path, Sources
from bluebridge.device.refusal import Reason, Refusal

PRODUCER_ADAPTER: Final = 1

CAPABILITIES: Final = (
    PortCapability.TRAPS
    | PortCapability.SL_MAPPING
    | PortCapability.SYSTEM_GUID
    | PortCapability.CM
    | PortCapability.CAP_MASK_NOTICE
    | PortCapability.CLIENT_REREGISTER
)
LOG_GIDS: Final = 3
LOG_PKEYS: Final = 7
_REROUTING: Final = Change.LID | Change.GID_PREFIX | Change.GUIDS | Change.PKEYS


def capability_trap(agent: PortAgent) -> Datagram:
    """Return trap 144, which tells the subnet manager of a changed capability mask."""
    details = {
        NOTICE_144_LID: lid_bytes(agent.lid),
        NOTICE_144_CAPABILITIES: agent.capabilities.to_bytes(4, "big"),
    }
    what = {"type": NOTICE_INFO, "producer": PRODUCER_ADAPTER, "trap": TRAP_CAPABILITY}
    return trap(agent.lid, agent.get("sm_lid"), 0, details, **what)


class InfinibandPort(Port):
    """A port on an InfiniBand fabric: an `EndPort`. Addresses are LIDs, as two bytes.

    `node` is the channel adapter whose port this is, `guid` the port's.
    """

    link: ClassVar[LinkLayer] = LinkLayer.INFINIBAND

    def __init__(
        self,
        number: int,
        fabric: Fabric,
        burned_in: bytes,
        bus: HostBus,
        events: PortEvents,
        sources: Sources,
        *,
        node: Node,
        guid: int,
    ) -> None:
        self.node = node
        self.agent = PortAgent(
            number, guid, guids=1 << LOG_GIDS, pkeys=1 << LOG_PKEYS, capabilities=int(CAPABILITIES)
        )
        self.agent.listeners.append(self._changed)
        self.node.ports[number] = self.agent
        super().__init__(number, fabric, burned_in, bus, events, sources)

    def reset(self) -> None:
        """Return to the state after power-on: no LID, link down."""
        super().reset()
        self.agent.power_on()
        self._announce()

    # -- traffic ------------------------------------------------------------------------------

    def receive(self, message: Message) -> int:
        """Deliver a message from the fabric; returns 0 while the link is down."""
        return self._deliver(self, message) if self.agent.link_up else 0

    # -- link ---------------------------------------------------------------------------------

    @property
    def link_up(self) -> bool:
        """True while the link is up; data passes only once a subnet manager was here."""
        return self.agent.link_up

    def open(self) -> None:
        """Let the link train; a port that is active already reports that again."""
        self.tables.open = True
        if self.agent.state == LINK_ACTIVE:
            self._events.link_changed(self.number, active=True)
        self.agent.open(self.cable)

    def close(self) -> None:
        self.tables.open = False
        self.agent.open(False)

    def plug(self, cable: bool) -> None:
        self.cable = cable
        self.agent.open(self.tables.open and cable)
        self._note_link()

    # -- management ---------------------------------------------------------------------------

    def answer_mad(self, request: bytes, *, trusted: bool) -> bytes:
        """Return the answer of the port's agents; raises `Refusal` (UNANSWERED) where none answers.

        A `trusted` request needs no M_Key.
        """
        mgmt_class, method = MAD.get(request, "mgmt_class"), MAD.get(request, "method")
        answer = None
        if mgmt_class in (MgmtClass.SUBN_LID, MgmtClass.SUBN_DIRECTED):
            if method == Method.TRAP_REPRESS:
                return request
            answer = agents.answer_smp(self.node, self.number, request, trusted=trusted)
        elif mgmt_class == MgmtClass.PERF:
            answer = agents.answer_perf(self.node, self.number, request)
        if answer is None:
            raise Refusal(Reason.UNANSWERED, f"class {mgmt_class:#x} method {method:#x}")
        return answer

    def _changed(self, agent: PortAgent, change: Change) -> None:
        if change & (Change.LID | Change.STATE):
            self._announce()
        if change & _REROUTING:
            self._routes.clear()
            for rerouted in self.rerouted:
                rerouted(self)
        self._events.management_changed(agent, change)
        if change & Change.STATE and agent.state in (LINK_ACTIVE, LINK_DOWN):
            self._events.link_changed(self.number, active=agent.state == LINK_ACTIVE)
        if change & Change.CAPABILITIES and agent.state == LINK_ACTIVE:
            self.send(capability_trap(agent))

    # -- addresses and paths ------------------------------------------------------------------

    @property
    def mac_addresses(self) -> frozenset[bytes]:
        """The LIDs the port answers to."""
        return self.agent.lids

    def gid(self, index: int) -> bytes:
        """Return GID `index`; the first one where that entry is empty."""
        gid = self.agent.gid(index)
        return gid if gid != NO_GID else self.agent.gid(0)

    def _source(self, path_bits: int) -> bytes:
        """Return the source LID: path bits beyond the port's LID mask count as zero."""
        own = self.agent
        return lid_bytes(own.lid | path_bits & ((1 << own.get("lmc")) - 1))

    def _pkey(self, index: int) -> int:
        return self.agent.pkeys[index] if index < len(self.agent.pkeys) else 0

    def connected_route(self, path: Path, pkey_index: int) -> Route:
        return self._datagram_route(path, pkey_index)

    def _datagram_route(self, path: Path, pkey_index: int) -> Route:
        grh = path.global_route
        return Route(
            smac=self._source(path.source),
            dmac=lid_bytes(path.lid),
            sgid=self.gid(path.gid_index) if grh else NO_GID,
            dgid=path.gid if grh else NO_GID,
            traffic_class=path.traffic_class if grh else 0,
            hop_limit=path.hop_limit if grh else 0,
            flow_label=path.flow_label if grh else 0,
            service_level=path.service_level,
            pkey=self._pkey(pkey_index),
        )

    def path_bits(self, message: Datagram) -> int:
        """Return the path bits of the own LID that a datagram was sent to; 0 for groups."""
        lid = message.route.dmac
        if is_group(lid) or lid == NO_LID:
            return 0
        return lid_of(lid) & ((1 << self.agent.get("lmc")) - 1)

    def pkey_index(self, own: int, message: Datagram) -> int | None:
        """Return the place of a datagram's P_Key in the table; None when it is not that of `own`.

        QP1 takes every P_Key of the table, and QP0 takes any datagram.
        """
        if message.target_qpn == 0:
            return 0
        if message.target_qpn == 1:
            keys = enumerate(self.agent.pkeys)
            return next((n for n, key in keys if partitions_match(key, message.pkey)), None)
        if partitions_match(self._pkey(own), message.pkey):
            return own
        self.agent.put("pkey_violations", min(self.agent.get("pkey_violations") + 1, 0xFFFF))
        return None

    def parse_packet(self, packet: bytes, own_qkey: int) -> Datagram:
        return parse_ib_datagram(packet, own_qkey, self._source)
