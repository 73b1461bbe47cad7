"""A queue pair of a ConnectX-5 as its driver has it, for tests with `Mlx5Node`."""

from __future__ import annotations

from struct import pack
from typing import Final

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import NIC_VPORT, RMPC, WQ, WQ_OFFSET, QueueType
from bluebridge.device.layout.mlx5.cqe import CQE, CqeOpcode
from bluebridge.device.layout.mlx5.objects import (
    CONTEXT,
    ENTRY,
    LIST,
    ROCE_ADDRESS,
    ROCE_V2,
    SET_ROCE_ADDRESS,
    VPORT_IN,
    VportField,
)
from bluebridge.device.layout.mlx5.queue_pairs import (
    QP_CONTEXT,
    QP_IN,
    QPC,
    XRC_SRQC,
    QpState,
    Receives,
    Service,
)
from bluebridge.device.layout.mlx5.wqe import DATAGRAM, INVALID_LKEY, SendOpcode
from bluebridge.device.layout.net.roce import ipv4_gid
from tests.models.fake_host import FakeHost
from tests.models.mlx5_node import SIGNALLED, Mlx5Node, Queue, mac_of

LOG_SQ, LOG_RQ = 4, 4
RECEIVE_SHIFT = 6
"""Logarithm of the bytes of a receive entry, of up to four segments."""
USER_INDEX: Final = 0x123
V1_INDEX, V2_INDEX = 2, 3
MTU_1024 = 3
REMOTE_KEY = {"remote_read": 1, "remote_write": 1, "atomic": 1}
CONNECTION: dict[str, Value] = {
    "mtu": MTU_1024, "log_message": 30, "rra_max": 2, "sra_max": 2, "min_rnr_timer": 12,
    "retry_count": 7, "rnr_retry": 7, "pri_ack_timeout": 14, "pri_hop_limit": 64,
}  # fmt: skip


def gid_of(number: int) -> bytes:
    """The GID of guest `number`."""
    return ipv4_gid(bytes((10, 9, 0, number)))


class RoceNode(Mlx5Node):
    """A guest with RoCE switched on and two RoCE addresses, its link up."""

    def __init__(
        self, number: int, fabric: Fabric | None = None, host: FakeHost | None = None
    ) -> None:
        super().__init__(number, fabric, host)
        self.gid = gid_of(number)
        head = bytes(12) + VportField.ROCE.to_bytes(4, "big")
        context = bytes(NIC_VPORT.pack(roce=1))
        self.command(Opcode.MODIFY_NIC_VPORT_CONTEXT, head.ljust(VPORT_IN, b"\0") + context)
        for index, version in ((V1_INDEX, 0), (V2_INDEX, ROCE_V2)):
            self.set_address(index, self.gid, version)
        self.open()
        self.events()

    def set_address(self, index: int, gid: bytes, version: int = ROCE_V2, **more: Value) -> None:
        """Set a RoCE address."""
        address = ROCE_ADDRESS.pack({"gid": gid, "mac": self.mac, "version": version, **more})
        data = SET_ROCE_ADDRESS.pack(index=index, address=bytes(address))
        self.command(Opcode.SET_ROCE_ADDRESS, bytes(data))

    def make_pair(self, service: int = Service.RC, **values: Value) -> Pair:
        """Make a queue pair in RST with queues of its own."""
        return Pair(self, service, **values)

    def make_pool(
        self, count: int = 1 << LOG_RQ, kind: int = QueueType.LINKED_LIST, *, plain: bool = False
    ) -> Shared:
        """Make an RMP; entries of a ring do not say which is the next one, `plain` ones cannot."""
        address, record = self.host.allocate(4096), self.host.allocate(64)
        work = WQ.pack(
            pd=self.pd, doorbell_record=record, log_stride=RECEIVE_SHIFT, log_size=LOG_RQ, type=kind
        )
        context = bytes(RMPC.pack(state=1, plain=plain))[:WQ_OFFSET] + bytes(work)
        number = self.make(Opcode.CREATE_RMP, bytes(CONTEXT) + context + self.pages(address, 1))
        shared = Shared(self, number, address, record, count)
        shared.head = b"" if plain else None if kind == QueueType.LINKED_LIST else bytes(16)
        return shared

    def make_xrc_srq(self, xrcd: int, cq: Queue, user_index: int = USER_INDEX) -> Shared:
        """Make a shared receive queue of XRC."""
        address, record = self.host.allocate(4096), self.host.allocate(64)
        context = XRC_SRQC.pack(
            log_size=LOG_RQ, log_stride=RECEIVE_SHIFT - 4, xrcd=xrcd, cqn=cq.number, pd=self.pd,
            user_index=user_index, doorbell_record=record,
        )  # fmt: skip
        data = (bytes(ENTRY) + bytes(context)).ljust(LIST, b"\0") + self.pages(address, 1)
        return Shared(self, self.make(Opcode.CREATE_XRC_SRQ, data), address, record, 1 << LOG_RQ)


class Shared:
    """A shared receive queue, whose entries are linked in the order of the ring."""

    def __init__(self, node: RoceNode, number: int, address: int, record: int, count: int) -> None:
        self.node, self.number, self.address, self.record = node, number, address, record
        self.count, self.posted = count, 0
        self.head: bytes | None = None
        """The first bytes of entries; None for the index of the next one."""

    def post(self, size: int = 256) -> int:
        """Post a receive; its buffer."""
        buffer = self.node.host.allocate(max(size, 64))
        slot = self.posted % self.count
        entry = self.head
        if entry is None:
            entry = pack(">HHQI", 0, (slot + 1) % self.count, 0, 0)
        entry += pack(">IIQ", size, self.node.key, buffer) + pack(">IIQ", 0, INVALID_LKEY, 0)
        self.node.host.poke(self.address + (slot << RECEIVE_SHIFT), entry)
        self.posted += 1
        self.node.host.poke(self.record, (self.posted & 0xFFFF).to_bytes(4, "big"))
        return buffer


class Pair:
    """A queue pair; `sq` and `rq` are what its node posts to, `scq` and `rcq` its completions."""

    def __init__(self, node: RoceNode, service: int = Service.RC, **values: Value) -> None:
        self.node = node
        self.scq, self.rcq = node.make_cq(), node.make_cq()
        self.address, self.record = node.host.allocate(8192), node.host.allocate(64)
        receives = 1 << (LOG_RQ + RECEIVE_SHIFT)
        what: dict[str, Value] = {
            "service": service, "pd": node.pd, "log_rq_size": LOG_RQ, "migration": 3,
            "log_rq_stride": RECEIVE_SHIFT - 4, "log_sq_size": LOG_SQ, "uar": node.uar,
            "user_index": USER_INDEX, "cqn_send": self.scq.number, "cqn_recv": self.rcq.number,
            "doorbell_record": self.record, "rq_type": Receives.OWN, **values,
        }  # fmt: skip
        if what["rq_type"] != Receives.OWN:
            receives = 0
        data = QP_IN.pack(context=bytes(QPC.pack(what)))
        listed = node.pages(self.address, 2)
        self.number = node.make(Opcode.CREATE_QP, bytes(data) + listed)
        self.sq = Queue(self.number, self.address + receives, self.record, self.scq)
        self.rq = Queue(self.number, self.address, self.record, self.rcq)

    # -- states -----------------------------------------------------------------------------------

    def change(self, opcode: Opcode, mask: int = 0, /, **values: Value) -> Status:
        """Carry out a transition; its status."""
        data = QP_IN.pack(qpn=self.number, mask=mask, context=bytes(QPC.pack(values)))
        return self.node.status(opcode, bytes(data)[: QP_CONTEXT + QPC.size])

    def init(self, **values: Value) -> None:
        """Go from RST to INIT."""
        access = {"remote_read": 1, "remote_write": 1, "remote_atomic": 1, **values}
        assert self.change(Opcode.RST2INIT_QP, **access) is Status.OK

    def connect(self, peer: Pair, version_index: int = V2_INDEX, **values: Value) -> None:
        """Go from RST to RTS, connected with a peer."""
        self.init()
        path: dict[str, Value] = {
            "remote_qpn": peer.number, "next_recv_psn": 100, "pri_source": version_index,
            "pri_rgid": peer.node.gid, "pri_rmac": peer.node.mac, **CONNECTION, **values,
        }  # fmt: skip
        assert self.change(Opcode.INIT2RTR_QP, **path) is Status.OK
        sends: dict[str, Value] = {"next_send_psn": 100, **CONNECTION, **values}
        assert self.change(Opcode.RTR2RTS_QP, **sends) is Status.OK

    def start(self, qkey: int, **values: Value) -> None:
        """Go from RST to RTS without a peer."""
        self.init(qkey=qkey, **values)
        assert self.change(Opcode.INIT2RTR_QP, mtu=5, log_message=12) is Status.OK
        assert self.change(Opcode.RTR2RTS_QP) is Status.OK

    def context(self) -> bytes:
        """The present context (QUERY_QP)."""
        answer = self.node.command(Opcode.QUERY_QP, number=self.number)
        return answer[QP_CONTEXT : QP_CONTEXT + QPC.size]

    @property
    def state(self) -> QpState:
        """The state that QUERY_QP tells."""
        return QpState(QPC.get(self.context(), "state"))

    # -- work -------------------------------------------------------------------------------------

    def receive(self, size: int = 256, key: int | None = None) -> int:
        """Post a receive of one buffer; its address."""
        node, address = self.node, self.node.host.allocate(max(size, 64))
        segments = pack(">IIQ", size, node.key if key is None else key, address)
        segments += pack(">IIQ", 0, INVALID_LKEY, 0)
        slot = self.rq.posted % (1 << LOG_RQ)
        node.host.poke(self.rq.address + (slot << RECEIVE_SHIFT), segments)
        self.rq.posted += 1
        node.host.poke(self.record, (self.rq.posted & 0xFFFF).to_bytes(4, "big"))
        return address

    def data(self, content: bytes, key: int | None = None) -> bytes:
        """A data segment of memory with these bytes."""
        node = self.node
        place = node.memory(content)
        return pack(">IIQ", len(content), node.key if key is None else key, place)

    def post(self, opcode: int, segments: bytes, *, flags: int = SIGNALLED, last: int = 0) -> None:
        """Post an entry, whose control segment ends with the word `last`, and ring."""
        index = self.sq.posted
        self.node.wqe(self.sq, segments, opcode, flags)
        place = self.sq.address + index % (1 << LOG_SQ) * 64
        self.node.host.poke(place + 12, last.to_bytes(4, "big"))
        self.node.ring(self.sq)

    def sent(self) -> list[bytes]:
        """The completions of sends since the last call."""
        return self.node.completions(self.sq)

    def received(self) -> list[bytes]:
        """The completions of receives since the last call."""
        return self.node.completions(self.rq)


def remote(address: int, key: int) -> bytes:
    """The segment with a remote address."""
    return pack(">QI4x", address, key)


def vector(node: Mlx5Node, peer: RoceNode, qpn: int, qkey: int, **more: Value) -> bytes:
    """The address vector of a datagram."""
    what: dict[str, Value] = {
        "qpn": qpn, "qkey": qkey, "source": V2_INDEX, "rmac": peer.mac, "rgid": peer.gid,
        "hop_limit": 64, "udp_port": 0xC123, **more,
    }  # fmt: skip
    return bytes(DATAGRAM.pack(what))


def opcodes(entries: list[bytes]) -> list[CqeOpcode]:
    """The opcodes of completions."""
    return [CqeOpcode(CQE.get(entry, "opcode")) for entry in entries]


__all__ = ["Pair", "RoceNode", "SendOpcode", "Shared", "mac_of", "opcodes", "remote", "vector"]
