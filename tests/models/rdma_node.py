"""A guest with queue pairs for the unit tests: posts work requests, reads completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import pack
from typing import Any, Self

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.settings import MESSAGES, NetworkSettings
from bluebridge.device.layout.mlx4 import uar
from bluebridge.device.layout.mlx4.commands import Opcode, OptPar, SetPort
from bluebridge.device.layout.mlx4.contexts import QPC, SRQC, WORK_RING_UNIT, ServiceType
from bluebridge.device.layout.mlx4.cqe import CQE, ERROR_CQE, OPCODE_ERROR
from bluebridge.device.layout.mlx4.ports import ROCE_ADDRESS
from bluebridge.device.layout.mlx4.wqe import (
    CQE_REQUEST,
    FENCE,
    INLINE,
    INVALID_LKEY,
    SOLICITED,
    SendOpcode,
)
from bluebridge.device.layout.net.roce import ipv4_gid
from bluebridge.device.mlx4.settings.config import PLAIN, Features
from tests.models.fake_host import FakeHost
from tests.models.hca_driver import UAR_PAGE, Driver, Ring, mac_of
from tests.models.watched_fabric import WatchedFabric

SQ_SHIFT, RQ_SHIFT = 7, 5
LOG_SQ, LOG_RQ = 4, 4
LOG_CQ = 8
PD = 1
SPECIAL_BASE = 512
ALL_REMOTE = {"remote_read": 1, "remote_write": 1, "remote_atomic": 1}

Sge = tuple[int, int, int]
"""lkey, address, length."""


@dataclass
class TestQp:
    """A queue pair as its driver knows it."""

    __test__ = False

    qpn: int
    address: int
    record: int
    cq: Ring
    rq_offset: int
    rq_shift: int = RQ_SHIFT
    log_rq: int = LOG_RQ
    log_sq: int = LOG_SQ
    sent: int = 0
    received: int = 0


@dataclass
class Wc:
    """A completion, decoded: `status` is 0 or a syndrome."""

    qpn: int
    send: bool
    opcode: int
    status: int
    index: int
    length: int
    immediate: int
    remote_qpn: int
    raw: bytes = field(repr=False)


def decode(raw: bytes) -> Wc:
    """A CQE as a `Wc`."""
    opcode = CQE.get(raw, "opcode")
    status = ERROR_CQE.get(raw, "syndrome") if opcode == OPCODE_ERROR else 0
    return Wc(
        CQE.get(raw, "qpn"),
        bool(CQE.get(raw, "is_send")),
        opcode,
        status,
        CQE.get(raw, "wqe_index"),
        CQE.get(raw, "byte_count"),
        CQE.get(raw, "immediate"),
        CQE.get(raw, "remote_qpn"),
        raw,
    )


class Node(Driver):
    """A guest with an HCA whose port is up; its completions have time stamps if `stamps` is 1."""

    stamps = 0

    def __init__(
        self,
        name: str,
        number: int,
        fabric: Fabric,
        memory: int = 8 << 20,
        features: Features = PLAIN,
        network: NetworkSettings = MESSAGES,
        more_fabrics: Sequence[Fabric] = (),
        host: FakeHost | None = None,
    ) -> None:
        self.mac = mac_of(number)
        self.gid = ipv4_gid(bytes((192, 168, 69, number)))
        super().__init__(
            name,
            fabric=fabric,
            mac=self.mac,
            memory=memory,
            features=features,
            network=network,
            more_fabrics=more_fabrics,
            host=host,
        )
        self.start()
        self.command(Opcode.CONF_SPECIAL_QP, modifier=SPECIAL_BASE)
        self.open_port(1, self.mac, self.gid)
        self._cqn = 0x80

    def open_port(self, port: int, mac: bytes, gid: bytes) -> None:
        """One address of each kind, and the link up."""
        self.set_port(SetPort.GID_TABLE, gid.ljust(2048, b"\0"), port)
        entry = (1 << 63 | int.from_bytes(mac, "big")).to_bytes(8, "big")
        self.set_port(SetPort.MAC_TABLE, entry.ljust(1024, b"\0"), port)
        self.command(Opcode.INIT_PORT, modifier=port)

    def set_port(self, form: SetPort, data: bytes, port: int = 1) -> None:
        """SET_PORT of one table."""
        self.command(Opcode.SET_PORT, data, form << 8 | port, 1)

    def memory(self, length: int, rights: int | None = None, **more: int) -> tuple[int, int]:
        """Fresh pages and the key of an MR over them whose IOVA is their address."""
        address = self.host.allocate(length)
        pages = [address + offset for offset in range(0, length, 4096)]
        extra = {} if rights is None else {"rights": rights}
        return address, self.create_mr(address, length, pages, **extra, **more)

    def cq(self, log_size: int = LOG_CQ) -> Ring:
        """A fresh completion queue."""
        self._cqn += 1
        return self.create_cq(self._cqn, log_size, timestamps=self.stamps)

    # -- queue pairs --------------------------------------------------------------------------

    def create_qp(
        self,
        qpn: int,
        service: int = ServiceType.RC,
        *,
        rq_shift: int = RQ_SHIFT,
        log_cq: int = LOG_CQ,
        log_sq: int = LOG_SQ,
        **more: int,
    ) -> TestQp:
        """RST2INIT with fresh queues."""
        cq = self.cq(log_cq)
        sq_bytes, rq_bytes = 1 << (log_sq + SQ_SHIFT), 1 << (LOG_RQ + rq_shift)
        address, mtt = self.buffer(sq_bytes + rq_bytes)
        record = self.host.allocate(64, 64)
        values = {
            "service": service, "pd": PD, "uar": UAR_PAGE, "log_sq_size": log_sq,
            "log_sq_stride": SQ_SHIFT - 4, "log_rq_size": LOG_RQ, "log_rq_stride": rq_shift - 4,
            "cqn_send": cq.number, "cqn_recv": cq.number, "doorbell_record": record,
            "mtt_addr": mtt, "page_offset": self.page_offset // WORK_RING_UNIT,
            "fast_reg_enable": 1, **more,
        }  # fmt: skip
        context = QPC.pack(values)
        self.command(Opcode.RST2INIT_QP, bytes(8) + bytes(context), qpn)
        for slot in range(1 << log_sq):
            self.host.poke(address + (slot << SQ_SHIFT), pack(">I", 1 << 31))
        return TestQp(qpn, address, record, cq, sq_bytes, rq_shift, log_sq=log_sq)

    def modify(self, qp: TestQp, opcode: int, mask: int = 0, **values: int | bytes) -> None:
        """A transition whose mailbox holds `values` only."""
        data = pack(">II", mask, 0) + bytes(QPC.pack(values))
        self.command(opcode, data, qp.qpn)

    def to_rtr(self, qp: TestQp, peer: Node, peer_qpn: int, **more: int | bytes) -> None:
        """INIT2RTR towards a peer, everything permitted unless `more` says otherwise."""
        values: dict[str, int | bytes] = {
            "remote_qpn": peer_qpn, "next_recv_psn": 100, "mtu": 3, "msg_max": 30,
            "min_rnr_timer": 1, "rra_max": 4, "pri_grh": 1, "pri_rgid": peer.gid,
            "pri_dmac": peer.mac, "pri_link_type": 1, "pri_hop_limit": 64, **ALL_REMOTE, **more,
        }  # fmt: skip
        mask = 1 << OptPar.RRE | 1 << OptPar.RAE | 1 << OptPar.RWE
        self.modify(qp, Opcode.INIT2RTR_QP, mask, **values)

    def to_rts(self, qp: TestQp, **more: int) -> None:
        """RTR2RTS: 67 ms timeout, 2 retries, RNR retried for ever, unless `more` says otherwise."""
        values: dict[str, int | bytes] = {
            "next_send_psn": 100, "pri_ack_timeout": 14, "retry_count": 2, "rnr_retry": 7,
            "sra_max": 4, **more,
        }  # fmt: skip
        self.modify(qp, Opcode.RTR2RTS_QP, 0, **values)

    def create_srq(self, srqn: int, log_size: int = 4, shift: int = 6, **more: int) -> TestQp:
        """SW2HW_SRQ with the free list linked as drivers do."""
        address, mtt = self.buffer(1 << (log_size + shift))
        record = self.host.allocate(64, 64)
        values = {
            "log_size": log_size, "srqn": srqn, "log_stride": shift - 4, "pd": PD, "mtt_addr": mtt,
            "page_offset": self.page_offset // WORK_RING_UNIT, "doorbell_record": record, **more,
        }  # fmt: skip
        context = SRQC.pack(values)
        self.command(Opcode.SW2HW_SRQ, bytes(context), srqn)
        for slot in range(1 << log_size):
            following = (slot + 1) % (1 << log_size)
            self.host.poke(address + (slot << shift), pack(">HH", 0, following))
        return TestQp(srqn, address, record, Ring(0, 0, 0), 0, shift)

    def post_srq(self, srq: TestQp, slot: int, sges: list[Sge]) -> None:
        """Fill one entry and count it."""
        raw = _sges(sges).ljust((1 << srq.rq_shift) - 16, b"\0")
        self.host.poke(srq.address + (slot << srq.rq_shift) + 16, raw)
        srq.received += 1
        self.host.poke(srq.record, pack(">I", srq.received))

    # -- work requests ------------------------------------------------------------------------

    def post_recv(self, qp: TestQp, sges: list[Sge]) -> None:
        """Post a receive; nobody is told but the doorbell record."""
        raw = _sges(sges)
        if len(raw) < 1 << qp.rq_shift:
            raw += pack(">IIQ", 0, INVALID_LKEY, 0)
        slot = qp.received & (1 << qp.log_rq) - 1
        self.host.poke(qp.address + qp.rq_offset + (slot << qp.rq_shift), raw)
        qp.received += 1
        self.host.poke(qp.record, pack(">I", qp.received & 0xFFFF))

    def post_send(
        self,
        qp: TestQp,
        opcode: int,
        segments: bytes = b"",
        *,
        signalled: bool = True,
        fence: bool = False,
        solicited: bool = False,
        immediate: int = 0,
        ring: bool = True,
        srqn: int = 0,
        flags: int = 0,
    ) -> None:
        """Write an entry, its ownership dword last, and ring."""
        slot, lap = qp.sent & (1 << qp.log_sq) - 1, qp.sent >> qp.log_sq & 1
        ds = (16 + len(segments) + 15) // 16
        flags |= CQE_REQUEST * signalled | SOLICITED * solicited | srqn << 8
        raw = pack(">IIII", lap << 31 | opcode, FENCE * fence | ds, flags, immediate) + segments
        assert len(raw) <= 1 << SQ_SHIFT
        self.host.poke(qp.address + (slot << SQ_SHIFT), raw)
        qp.sent += 1
        if ring:
            self.doorbell(qp.qpn)

    def doorbell(self, qpn: int) -> None:
        """Ring the send doorbell."""
        self.write32(UAR_PAGE * uar.PAGE_SIZE + uar.SEND_DOORBELL, uar.send_doorbell(qpn), 2)

    def completions(self, qp: TestQp) -> list[Wc]:
        """New completions of the queue pair's CQ."""
        return [decode(raw) for raw in self.poll_cq(qp.cq)]

    def statuses(self, qp: TestQp) -> list[int]:
        """Statuses of new completions."""
        return [wc.status for wc in self.completions(qp)]

    def state(self, qp: TestQp) -> int:
        """The state QUERY_QP shows."""
        return QPC.get(self.query(Opcode.QUERY_QP, qp.qpn)[8:], "state")


def _sges(sges: list[Sge]) -> bytes:
    return b"".join(pack(">IIQ", length, key, address) for key, address, length in sges)


def data(*sges: Sge) -> bytes:
    """Data segments."""
    return _sges(list(sges))


def inline(payload: bytes) -> bytes:
    """An inline segment, padded to 16 bytes."""
    raw = pack(">I", INLINE | len(payload)) + payload
    return raw.ljust(-(-len(raw) // 16) * 16, b"\0")


def gid_table(*entries: tuple[bytes, int]) -> bytes:
    """SET_PORT ROCE_ADDR as `mlx4_ib_update_gids_v1_v2` builds it."""
    return b"".join(
        bytes(ROCE_ADDRESS.pack(gid=gid, version=version)) for gid, version in entries
    ).ljust(4096, b"\0")


def remote(address: int, rkey: int) -> bytes:
    """A remote address segment."""
    return pack(">QI4x", address, rkey)


class Pair:
    """Two guests on one fabric with a connected queue pair each; `network` says what it carries."""

    network: NetworkSettings = MESSAGES

    def __init__(self, service: int = ServiceType.RC, **more: int) -> None:
        self.fabric = self.make_fabric()
        self.watched = WatchedFabric(self.fabric)
        self.a = Node("a", 1, self.watched, network=self.network)
        self.b = Node("b", 2, self.watched, network=self.network)
        self.qa = self.a.create_qp(0x800240, service, **more)
        self.qb = self.b.create_qp(0x250, service, **more)

    def make_fabric(self) -> LocalFabric:
        """Return what connects them."""
        return LocalFabric()

    def connect(self, rtr: dict[str, int] | None = None, rts: dict[str, int] | None = None) -> Self:
        """Both to RTS; `rtr` and `rts` change what B's and A's transitions say."""
        self.join(self.qa, self.qb, rtr, rts)
        return self

    def join(
        self,
        qa: TestQp,
        qb: TestQp,
        rtr: Mapping[str, int] | None = None,
        rts: Mapping[str, int] | None = None,
    ) -> None:
        """As `connect`, with a queue pair of A and one of B."""
        self.a.to_rtr(qa, self.b, qb.qpn)
        self.b.to_rtr(qb, self.a, qa.qpn, **(rtr or {}))
        self.a.to_rts(qa, **(rts or {}))
        self.b.to_rts(qb)

    def post_send(self, opcode: int, segments: bytes = b"", **how: Any) -> None:
        """Post a work request of A."""
        self.a.post_send(self.qa, opcode, segments, **how)

    def post_recv(self, sges: list[Sge]) -> None:
        """Post a receive of B."""
        self.b.post_recv(self.qb, sges)

    def sent(self) -> list[int]:
        """Statuses of A's new completions."""
        return self.a.statuses(self.qa)

    def run(self, seconds: float = 0.0) -> None:
        """Move both clocks in small steps."""
        step = 0.0005
        while seconds > 0:
            self.a.host.run(step)
            self.b.host.run(step)
            seconds -= step
        self.a.host.run()
        self.b.host.run()


__all__ = ["Node", "Pair", "SendOpcode", "TestQp", "Wc", "data", "gid_table", "inline", "remote"]
