"""An InfiniBand port of an HCA: addressed by LID, managed by whoever manages the subnet.

What subnet management sees and sets is `agent`; its changes become the events of Linux
`ib/mad.c: handle_port_mgmt_change_event` and `mlx4/eq.c: mlx4_eq_int`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from bluebridge.device.fabric.addresses import NO_LID, LinkLayer, is_group, lid_bytes, lid_of
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.messages import Datagram, Message, Route
from bluebridge.device.fabric.subnet import pma, sma
from bluebridge.device.fabric.subnet.node import Node
from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.layout.ib.link import LINK_ACTIVE, LINK_DOWN, partitions_match
from bluebridge.device.layout.ib.smp import PortCapability
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import QPC
from bluebridge.device.layout.mlx4.cqe import GRH_PRESENT
from bluebridge.device.layout.mlx4.eqe import PORT_ACTIVE, PORT_DOWN
from bluebridge.device.layout.mlx4.ports import SET_PORT_IB
from bluebridge.device.layout.mlx4.wqe import AV
from bluebridge.device.layout.net.mad import MAD, Method, MgmtClass
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.mlx4.ports.infiniband_events import capability_trap, management_events
from bluebridge.device.mlx4.ports.infiniband_headers import parse_ib_datagram
from bluebridge.device.mlx4.ports.port import Port
from bluebridge.device.mlx4.ports.roce_routes import GRH_FLAG
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.settings.config import HcaConfig
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.pci.bus import HostBus

CAPABILITIES: Final = (
    PortCapability.TRAPS
    | PortCapability.SL_MAPPING
    | PortCapability.SYSTEM_GUID
    | PortCapability.CM
    | PortCapability.CAP_MASK_NOTICE
    | PortCapability.CLIENT_REREGISTER
)
TYPE_INFINIBAND: Final = 1
LOG_GIDS: Final = 3
LOG_PKEYS: Final = 4
MAX_VLS: Final = 8
PATH_BITS: Final = 0x7F
MAX_ROUTES: Final = 1024
ACCEPTED_VLS: Final = {1: 1, 2: 2, 4: 3, 8: 4}
"""Code of VLCap by the number of lanes software asks for."""

_REROUTING: Final = Change.LID | Change.GID_PREFIX | Change.GUIDS | Change.PKEYS


class InfinibandPort(Port):
    """A port on an InfiniBand fabric: an `EndPort`. Addresses are LIDs, as two bytes.

    `node` is the channel adapter whose port this is.
    """

    link: ClassVar[LinkLayer] = LinkLayer.INFINIBAND

    def __init__(
        self,
        number: int,
        fabric: Fabric,
        config: HcaConfig,
        bus: HostBus,
        eqs: EventQueues,
        node: Node,
    ) -> None:
        self.node = node
        self.agent = PortAgent(
            number,
            config.port_guid(number),
            guids=1 << LOG_GIDS,
            pkeys=1 << LOG_PKEYS,
            capabilities=int(CAPABILITIES),
        )
        self.agent.listeners.append(self._changed)
        self._routes: dict[tuple[bytes, int], Route] = {}  # of datagrams, until an address changes
        self.node.ports[number] = self.agent
        super().__init__(number, fabric, config, bus, eqs)

    def reset(self) -> None:
        """As power-on: no LID, link down."""
        super().reset()
        self._routes.clear()
        self.agent.power_on()
        self._announce()

    def properties(self) -> dict[str, int]:
        """What QUERY_PORT says."""
        return {
            "link_up": int(self.agent.link_up),
            "supported_types": TYPE_INFINIBAND,
            "ib_mtu": self.agent.get("mtu_cap"),
            "max_width": self.agent.get("width_supported"),
            "log_max_gids": LOG_GIDS,
            "log_max_pkeys": LOG_PKEYS,
            "log_max_vlans": 7,
            "log_max_macs": 7,
            "max_vl": MAX_VLS,
        }

    # -- traffic ------------------------------------------------------------------------------

    def receive(self, message: Message) -> int:
        """A message from the fabric."""
        return self._deliver(self, message) if self.agent.link_up else 0

    # -- link ---------------------------------------------------------------------------------

    @property
    def link_up(self) -> bool:
        """Whether the cable carries anything; data passes once a subnet manager was here."""
        return self.agent.link_up

    def open(self) -> None:
        """INIT_PORT: the link trains; a port that is in service already says so again."""
        self._tables.open = True
        if self.agent.state == LINK_ACTIVE:
            self._report(PORT_ACTIVE)
        self.agent.open(self._cable)

    def close(self) -> None:
        """CLOSE_PORT."""
        self._tables.open = False
        self.agent.open(False)

    def plug(self, cable: bool) -> None:
        """Put the cable in or pull it out."""
        self._cable = cable
        self.agent.open(self._tables.open and cable)
        self._note_link()

    def set_capabilities(self, mailbox: bytes) -> None:
        """SET_PORT of InfiniBand; raises `CommandError`.

        Linux sends limits when it starts and capabilities whenever they change
        (`mlx4/port.c: mlx4_SET_PORT`, `ib/main.c: mlx4_ib_SET_PORT`).
        """
        get = SET_PORT_IB.get
        if get(mailbox, "change_vl") and get(mailbox, "vl_count") not in ACCEPTED_VLS:
            raise CommandError(Status.BAD_SIZE, f"{get(mailbox, 'vl_count')} virtual lanes")
        if get(mailbox, "change_mtu"):
            if not 1 <= get(mailbox, "mtu") <= 5:
                raise CommandError(Status.BAD_PARAM, f"MTU code {get(mailbox, 'mtu')}")
            self.agent.put("mtu_cap", get(mailbox, "mtu"))
        if get(mailbox, "change_vl"):
            self.agent.put("vl_cap", ACCEPTED_VLS[get(mailbox, "vl_count")])
        if get(mailbox, "reset_qkey_violations"):
            self.agent.put("qkey_violations", 0)
        self.agent.set_capabilities(get(mailbox, "capabilities"))

    # -- management ---------------------------------------------------------------------------

    def answer_mad(self, request: bytes, *, trusted: bool) -> bytes:
        """MAD_IFC: the port's agents; raises `CommandError` (BAD_PKT) where no agent answers.

        A `trusted` request needs no M_Key.
        """
        mgmt_class, method = MAD.get(request, "mgmt_class"), MAD.get(request, "method")
        answer = None
        if mgmt_class in (MgmtClass.SUBN_LID, MgmtClass.SUBN_DIRECTED):
            if method == Method.TRAP_REPRESS:
                return request
            answer = sma.answer(self.node, self.number, request, trusted=trusted)
        elif mgmt_class == MgmtClass.PERF:
            answer = pma.answer(self.node, self.number, request)
        if answer is None:
            raise CommandError(Status.BAD_PKT, f"class {mgmt_class:#x} method {method:#x}")
        return answer

    def _changed(self, agent: PortAgent, change: Change) -> None:
        if change & (Change.LID | Change.STATE):
            self._announce()
        if change & _REROUTING:
            self._routes.clear()
            for rerouted in self.rerouted:
                rerouted(self)
        management_events(self._eqs, agent, change)
        if change & Change.STATE and agent.state in (LINK_ACTIVE, LINK_DOWN):
            self._report(PORT_ACTIVE if agent.state == LINK_ACTIVE else PORT_DOWN)
        if change & Change.CAPABILITIES and agent.state == LINK_ACTIVE:
            self.send(capability_trap(agent))

    # -- addresses and paths ------------------------------------------------------------------

    @property
    def mac_addresses(self) -> frozenset[bytes]:
        """The LIDs the port answers to."""
        return self.agent.lids

    def gid(self, index: int) -> bytes:
        """GID `index`; the first one where that entry is empty."""
        gid = self.agent.gid(index)
        return gid if gid != NO_GID else self.agent.gid(0)

    def _source(self, path_bits: int) -> bytes:
        """The source LID: the path bits count as far as the port has LIDs."""
        own = self.agent
        return lid_bytes(own.lid | path_bits & (1 << own.get("lmc")) - 1)

    def _pkey(self, context: bytes | bytearray) -> int:
        """The P_Key of a queue pair."""
        index = QPC.get(context, "pri_pkey_index")
        return self.agent.pkeys[index] if index < len(self.agent.pkeys) else 0

    def connected_route(self, context: bytes | bytearray) -> Route:
        """The way to the peer that a queue pair context (QPC) describes."""
        get = QPC.get
        grh = get(context, "pri_grh")
        return Route(
            smac=self._source(get(context, "pri_mylmc")),
            dmac=lid_bytes(get(context, "pri_rlid")),
            sgid=self.gid(get(context, "pri_mgid_index")) if grh else NO_GID,
            dgid=QPC.get_raw(context, "pri_rgid") if grh else NO_GID,
            traffic_class=get(context, "pri_tclass") if grh else 0,
            hop_limit=get(context, "pri_hop_limit") if grh else 0,
            flow_label=get(context, "pri_flow_label") if grh else 0,
            service_level=get(context, "pri_sched_queue") >> 2 & 15,
            pkey=self._pkey(context),
        )

    def datagram_route(self, context: bytes | bytearray, av: bytes, vlan: int, mac: bytes) -> Route:
        """The way of one UD message by its address vector; groups are reached with a GRH."""
        key = av, QPC.get(context, "pri_pkey_index")
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            route = self._routes[key] = self._addressed(context, av)
        return route

    def _addressed(self, context: bytes | bytearray, av: bytes) -> Route:
        get = AV.get
        source = get(av, "g_slid")
        grh = source & GRH_FLAG
        return Route(
            smac=self._source(source & PATH_BITS),
            dmac=lid_bytes(get(av, "dlid")),
            sgid=self.gid(get(av, "gid_index")) if grh else NO_GID,
            dgid=AV.get_raw(av, "dgid") if grh else NO_GID,
            traffic_class=get(av, "tclass") if grh else 0,
            hop_limit=get(av, "hop_limit") if grh else 0,
            flow_label=get(av, "flow_label") if grh else 0,
            service_level=get(av, "sl"),
            pkey=self._pkey(context),
        )

    def sender_of(self, message: Datagram) -> tuple[int, int]:
        """Of a completion: GRH flag, path bits and the sender's QP number; the service level."""
        route = message.route
        bits = 0
        if not is_group(route.dmac) and route.dmac != NO_LID:
            bits = lid_of(route.dmac) & (1 << self.agent.get("lmc")) - 1
        word = GRH_PRESENT * bool(message.grh) | bits << 24 | message.source_qpn
        return word, route.service_level << 12

    def pkey_index(self, context: bytes | bytearray, message: Datagram) -> int | None:
        """Where the P_Key stands: a UD queue pair has one, QP1 all, QP0 is in no partition."""
        if message.target_qpn == 0:
            return 0
        if message.target_qpn == 1:
            keys = enumerate(self.agent.pkeys)
            return next((n for n, key in keys if partitions_match(key, message.pkey)), None)
        if partitions_match(self._pkey(context), message.pkey):
            return QPC.get(context, "pri_pkey_index")
        self.agent.put("pkey_violations", min(self.agent.get("pkey_violations") + 1, 0xFFFF))
        return None

    def parse_packet(self, packet: bytes, own_qkey: int) -> Datagram:
        """A packet whose headers software built; raises `HeaderError`."""
        return parse_ib_datagram(packet, own_qkey, self._source)
