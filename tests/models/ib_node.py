"""Guests on an InfiniBand subnet for the unit tests: what mlx4_ib does, in little."""

from __future__ import annotations

from bluebridge.device.fabric.subnet.fabric import InfinibandFabric
from bluebridge.device.fabric.subnet.manager import SubnetManager, TrapSender
from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.layout.ib.link import LINK_ACTIVE, LRH, PHYSICAL_POLLING
from bluebridge.device.layout.ib.mad import (
    MAD_SIZE,
    PORT_INFO,
    SMP,
    SMP_SIZE,
    Method,
    MgmtClass,
    SmpAttribute,
)
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.wqe import AV, DATAGRAM, SendOpcode
from bluebridge.device.layout.net.roce import BTH, DETH, GSI_QKEY, BthOpcode
from bluebridge.device.rdma.ports.infiniband_port import InfinibandPort
from tests.models.fake_host import FakeHost
from tests.models.rdma_node import PD, SPECIAL_BASE, Node, TestQp, Wc, data, inline
from tests.models.watched_fabric import WatchedFabric

GRH_BYTES = 40
MAD_BUFFERS = 16  # as many as the receive ring holds
PERMISSIVE = 0xFFFF


class IbNode(Node):
    """A guest whose port is on an InfiniBand subnet; QP0 and QP1 are up."""

    def open_port(self, port: int, mac: bytes, gid: bytes) -> None:
        """QP0 and QP1 with receives, and INIT_PORT in between, as ib_mad starts a port."""
        self._cqn = 0xC0  # the base class starts at 0x80 afterwards
        self._buffers: dict[int, int] = {}  # of received MADs, by queue pair number
        self._taken: dict[int, int] = {}
        self.smi, self.gsi = self._special(0), self._special(2)
        self.command(Opcode.INIT_PORT, modifier=port)

    def _special(self, offset: int) -> TestQp:
        qkey = GSI_QKEY if offset else 0
        qp = self.create_qp(SPECIAL_BASE + offset, ServiceType.MLX, mtu_msgmax=0xAB, qkey=qkey)
        self.modify(qp, Opcode.INIT2RTR_QP, pri_sched_queue=0x3F)
        self.modify(qp, Opcode.RTR2RTS_QP)
        self._buffers[qp.qpn], key = self.memory(MAD_BUFFERS * 512)
        self._taken[qp.qpn] = 0
        for slot in range(MAD_BUFFERS):
            address = self._buffers[qp.qpn] + slot * 512
            self.post_recv(qp, [(key, address, GRH_BYTES + MAD_SIZE)])
        return qp

    @property
    def port(self) -> InfinibandPort:
        """Port 1."""
        port = super().port
        assert isinstance(port, InfinibandPort)
        return port

    @property
    def agent(self) -> PortAgent:
        """Port 1 as subnet management sees it."""
        return self.port.agent

    # -- MADs -----------------------------------------------------------------------------------

    def mad_ifc(self, mad: bytes | bytearray) -> bytes:
        """Ask the port's own agents."""
        return self.query(Opcode.MAD_IFC, 1, 3, bytes(mad))[:MAD_SIZE]

    def send_mad(self, qp: TestQp, dlid: int, mad: bytes | bytearray, target: int) -> None:
        """An MLX work request as `build_mlx_header` writes it, without a GRH."""
        number = 0 if qp is self.smi else 1
        slid = PERMISSIVE if dlid == PERMISSIVE else 0
        lrh = LRH.pack(virtual_lane=0 if number else 15, next_header=2, dlid=dlid, slid=slid)
        bth = BTH.pack(opcode=BthOpcode.UD_SEND_ONLY, pkey=0xFFFF, dest_qpn=target)
        deth = DETH.pack(qkey=GSI_QKEY if number else 0, source_qpn=number)
        address, key = self.memory(4096)
        self.host.poke(address, mad)
        headers = inline(bytes(lrh + bth + deth))
        icrc = inline(bytes(4))
        self.post_send(qp, SendOpcode.SEND, headers + data((key, address, len(mad))) + icrc)

    def mads(self, qp: TestQp) -> list[tuple[Wc, bytes]]:
        """Received MADs with their completions; send completions are passed over."""
        found = []
        for wc in self.completions(qp):
            assert not wc.status
            if wc.send:
                continue
            address = self._buffers[qp.qpn] + self._taken[qp.qpn] * 512
            self._taken[qp.qpn] += 1
            found.append((wc, self.host.peek(address + GRH_BYTES, MAD_SIZE)))
        return found


class Subnet:
    """Two guests on one switch; `managed` says whether the switch has a subnet manager.

    `second` is the class of the second guest, whose driver may have asked for more.
    """

    def __init__(
        self, *, managed: bool = True, settle: bool = True, second: type[IbNode] = IbNode
    ) -> None:
        self.clock = FakeHost("clock", size=4096)
        self.fabric = InfinibandFabric()
        if managed:
            SubnetManager(self.fabric, self.clock.call_later)
        else:
            TrapSender(self.fabric, self.clock.call_later)
        self.watched = WatchedFabric(self.fabric)
        self.a = IbNode("a", 1, self.watched)
        self.b = second("b", 2, self.watched)
        if managed and settle:
            self.clock.run(10)

    def assert_in_service(self) -> None:
        """Links that were told to go down come up and into service again; the switch answers."""
        for agent in (self.a.agent, self.b.agent, *self.fabric.switch.node.ports.values()):
            if agent.peer is not None and not agent.link_up:
                agent.set_info(bytes(PORT_INFO.pack(physical_state=PHYSICAL_POLLING)))
        self.clock.run(1)
        assert (self.a.agent.state, self.b.agent.state) == (LINK_ACTIVE, LINK_ACTIVE)
        assert self.a.mad_ifc(smp(SmpAttribute.NODE_INFO))[3] == Method.GET_RESP


def smp(
    attribute: int,
    modifier: int = 0,
    *,
    method: int = Method.GET,
    payload: bytes | bytearray = b"",
    path: bytes | None = None,
    tid: int = 0x1234,
) -> bytearray:
    """A request: directed along `path` (egress ports) as ib_mad sends it, else by LID."""
    directed = path is not None
    packet = SMP.pack(
        base_version=1,
        mgmt_class=int(MgmtClass.SUBN_DIRECTED if directed else MgmtClass.SUBN_LID),
        class_version=1,
        method=int(method),
        tid=tid,
        attr_id=attribute,
        attr_mod=modifier,
        data=bytes(payload).ljust(64, b"\0"),
    )
    if path is not None:
        SMP.set(packet, "hop_count", len(path))
        SMP.set(packet, "hop_pointer", 1)
        SMP.set(packet, "dr_slid", PERMISSIVE)
        SMP.set(packet, "dr_dlid", PERMISSIVE)
        SMP.set(packet, "initial_path", (b"\0" + path).ljust(64, b"\0"))
    assert len(packet) == SMP_SIZE
    return packet


def datagram_segment(
    dlid: int, target: int, qkey: int, *, dgid: bytes = b"", gid_index: int = 0
) -> bytes:
    """The datagram segment of a UD work request; a GRH when there is a `dgid`."""
    av = AV.pack(
        port=1,
        pd=PD,
        g_slid=0x80 if dgid else 0,
        dlid=dlid,
        gid_index=gid_index,
        hop_limit=1,
        dgid=dgid or bytes(16),
    )
    return bytes(DATAGRAM.pack(av=bytes(av), dqpn=target, qkey=qkey, vlan=0xFFFF))
