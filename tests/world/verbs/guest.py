"""One guest with its adapter: the oracle hears first what it asks for, then what it is told."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from struct import pack

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.messages import Request, Response
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4.commands import Opcode, OptPar, Status
from bluebridge.device.layout.mlx4.contexts import MPT, QPC, ServiceType
from bluebridge.device.layout.mlx4.cqe import RecvOpcode
from bluebridge.device.layout.mlx4.eqe import EQE, EventType
from bluebridge.device.layout.mlx4.wqe import BindFlag, SendOpcode
from bluebridge.device.layout.net.roce import ATOMICS, Op
from bluebridge.device.rdma.memory.region import Rights
from tests.models.hca_driver import hardware_key
from tests.models.rdma_node import ALL_REMOTE, Node, data, decode, inline, remote
from tests.models.rdma_node import TestQp as Queues
from tests.oracle.clauses import Broken, holds
from tests.oracle.memory import PAGE, Memory, Place
from tests.oracle.pair import Side
from tests.oracle.requester import Requester
from tests.oracle.work import WRITES, Bind, Completion, Invalidate, Local, Register, Sge, Work

SRQN = 0x60
ENTRIES = 16
"""Of each queue."""
SLOTS = range(3)
"""Queue pairs: RC with a receive queue, RC with the shared one, UC."""
BASE, SIZE = 0x20000000, 6 * PAGE
"""Of the memory that messages move."""
PAGES = tuple(range(BASE, BASE + SIZE, PAGE))
START = 0x7F0000000123
ALL = int(Rights(0x3F))
SENT: dict[SendOpcode, Op | type[Local]] = {
    SendOpcode.SEND: Op.SEND,
    SendOpcode.SEND_IMM: Op.SEND_IMM,
    SendOpcode.SEND_INVAL: Op.SEND_INV,
    SendOpcode.RDMA_WRITE: Op.WRITE,
    SendOpcode.RDMA_WRITE_IMM: Op.WRITE_IMM,
    SendOpcode.RDMA_READ: Op.READ,
    SendOpcode.ATOMIC_CS: Op.COMPARE_SWAP,
    SendOpcode.ATOMIC_FA: Op.FETCH_ADD,
    SendOpcode.MASKED_ATOMIC_CS: Op.MASKED_COMPARE_SWAP,
    SendOpcode.MASKED_ATOMIC_FA: Op.MASKED_FETCH_ADD,
    SendOpcode.FAST_REG_MR: Register,
    SendOpcode.BIND_MW: Bind,
    SendOpcode.LOCAL_INVAL: Invalidate,
}
OPCODES = {what: opcode for opcode, what in SENT.items()}
RECEIVED = {
    RecvOpcode.SEND: Op.SEND,
    RecvOpcode.SEND_WITH_IMM: Op.SEND_IMM,
    RecvOpcode.SEND_WITH_INVALIDATE: Op.SEND_INV,
    RecvOpcode.RDMA_WRITE_WITH_IMM: Op.WRITE_IMM,
}
EVENTS = (
    EventType.COMM_EST,
    EventType.SQ_DRAINED,
    EventType.WQ_CATAS_ERROR,
    EventType.WQ_INVALID_REQUEST,
    EventType.WQ_ACCESS_ERROR,
    EventType.SRQ_QP_LAST_WQE,
)
"""Those about queue pairs."""
_BIND = (
    (Rights.REMOTE_READ, BindFlag.REMOTE_READ),
    (Rights.REMOTE_WRITE, BindFlag.REMOTE_WRITE),
    (Rights.REMOTE_ATOMIC, BindFlag.REMOTE_ATOMIC),
)
_FAST_REGISTER_SHIFT = 27


def segments(work: Work, page_list: int) -> bytes:
    """The segments behind the control segment; a registration's pages are at `page_list`."""
    match work.op:
        case Register(key, start, length, rights):
            flags = rights << _FAST_REGISTER_SHIFT & 0xFFFFFFFF
            return pack(">IIQQQII", flags, key, page_list, start, length, 0, 12)
        case Bind(key, lkey, va, length, rights, zero_based, second_type):
            access = sum(int(flag) for right, flag in _BIND if rights & right)
            kind = BindFlag.TYPE_2 * second_type | BindFlag.ZERO_BASED * zero_based
            return pack(">IIIIQQ", access, kind, key, lkey, va, length)
        case Invalidate(key):
            return pack(">8xI20x", key)
    raw = remote(work.remote, work.rkey) if work.returns or work.op in WRITES else b""
    first, compare, mask, compare_mask = work.operands
    if work.op is Op.MASKED_COMPARE_SWAP:
        raw += pack(">QQQQ", first, compare, mask, compare_mask)
    elif work.op in ATOMICS:
        raw += pack(">QQ", first, mask if work.op is Op.MASKED_FETCH_ADD else compare)
    return raw + (data(*work.sges) if work.inline is None else inline(work.inline))


class Guest(Node):
    """`places` are all regions and windows that ever were, the first one good for everything.

    `pairs` are the oracle's queue pairs by slot, as far as they are not in RESET.
    """

    peer: Guest

    def __init__(
        self, name: str, number: int, fabric: Fabric, now: Callable[[], float], base: int
    ) -> None:
        super().__init__(name, number, fabric, 16 << 20)
        self._base = base
        self._page_list = self.host.allocate(PAGE)
        self.area = self.host.map(BASE, SIZE)
        self.area[:] = random.Random(number).randbytes(SIZE)
        self.side = Side(now, Memory(BASE, bytearray(self.area)))
        self.shared = self.create_srq(SRQN)
        self.queues: dict[int, Queues] = {}
        self.pairs: dict[int, Requester] = {}
        self.places: list[Place] = []
        self.add(Place(0, 1, ALL, START, SIZE - START % PAGE, PAGES))

    # -- regions and windows ----------------------------------------------------------------------

    def add(self, place: Place) -> Place:
        """SW2HW_MPT: the key is the hardware's choice."""
        if place.window:
            self.keys += 1
            place.key = self.keys << 8
            values = {"status": 3, "bound_to_qp": 1, "en_inv": 3} if place.second_type else {}
            entry = MPT.pack(values, key=hardware_key(place.key), pd=place.pd)
            self.command(Opcode.SW2HW_MPT, bytes(entry), self.keys)
        elif place.fast:
            place.key = self.create_fast_mr(place.room, pd=place.pd)
        else:
            pages, rights = list(place.pages), place.rights
            place.key = self.create_mr(place.start, place.length, pages, pd=place.pd, rights=rights)
        place.valid = not place.may_end
        self.places.append(place)
        self.side.memory.places[place.key >> 8] = place
        return place

    def destroy(self, place: Place) -> None:
        """HW2SW_MPT, of what exists."""
        memory, index = self.side.memory, place.key >> 8
        if memory.places.get(index) is not place:
            return
        status = self.try_command(Opcode.HW2SW_MPT, modifier=index, op_modifier=1)[0]
        bound = memory.is_shown(place)
        holds(bound is (status == Status.REG_BOUND), "10.6.7 deregistration", status)
        if not bound:
            place.clear()
            del memory.places[index]

    # -- queue pairs ----------------------------------------------------------------------------

    def qpn(self, slot: int) -> int:
        """Number of the queue pair in a slot."""
        return self._base + slot

    def open(self, slot: int) -> None:
        """RST2INIT, from whatever state."""
        self.close(slot)
        service = ServiceType.UC if slot == 2 else ServiceType.RC
        more = {"use_srq": 1, "srqn": SRQN} if slot == 1 else {}
        own, peer = self.qpn(slot), self.peer.qpn(slot)
        self.queues[slot] = self.create_qp(own, service, **more)
        self.pairs[slot] = Requester(self.side, own, peer, reliable=slot != 2, shared=slot == 1)

    def close(self, slot: int) -> None:
        """2RST: no trace, and no completion of what was posted."""
        self.observe()
        self.command(Opcode.TORST_QP, modifier=self.qpn(slot), op_modifier=2)
        self.pairs.pop(slot, None)
        self.side.memory.leave(self.qpn(slot))

    def transit(
        self, slot: int, opcode: Opcode, values: dict[str, int], *, drains: bool = False
    ) -> None:
        """A transition, permitted or not."""
        self.observe()
        pair = self.pairs.get(slot)
        permitted = pair is not None and pair.transits(opcode, values, drains=drains)
        path: dict[str, int | bytes] = {}
        if opcode is Opcode.INIT2RTR_QP:
            path = {
                "remote_qpn": self.peer.qpn(slot), "pri_grh": 1, "pri_rgid": self.peer.gid,
                "pri_dmac": self.peer.mac, "pri_link_type": 1, "pri_hop_limit": 64,
            }  # fmt: skip
        rights = 1 << OptPar.RRE | 1 << OptPar.RAE | 1 << OptPar.RWE
        mask = rights if values.keys() & ALL_REMOTE.keys() else 0
        raw = pack(">II", mask, 0) + bytes(QPC.pack({**values, **path}))
        status = self.try_command(opcode, raw, self.qpn(slot) | drains << 31)[0]
        expected = Status.OK if permitted else Status.BAD_QP_STATE
        holds(status == expected, "10.3.1 states", f"{opcode.name}: {status}")

    def send(self, slot: int, work: Work) -> None:
        """A work request, if there is room."""
        pair = self.pairs.get(slot)
        if pair is None or len(pair.ring) + len(pair.pending) >= ENTRIES - 1:
            return
        if isinstance(work.op, Register):
            pages = b"".join(pack(">Q", page | 1) for page in work.op.pages)
            self.host.poke(self._page_list, pages)
        self.observe()
        pair.post(self.queues[slot].sent & 0xFFFF, work)
        self.post_send(
            self.queues[slot],
            OPCODES[work.op if isinstance(work.op, Op) else type(work.op)],
            segments(work, self._page_list),
            signalled=work.signalled,
            fence=work.fence,
            immediate=work.immediate,
        )

    def receive(self, slot: int, sges: Sequence[Sge]) -> None:
        """A receive, in the queue that the slot's queue pair takes from, if there is room."""
        pair = self.pairs.get(slot)
        if pair is None or len(pair.receives) >= ENTRIES - 1:
            return
        pieces = [(sge.key, sge.va, sge.length) for sge in sges]
        if pair.shared:
            entry = self.shared.received % ENTRIES
            pair.receive(entry, sges)
            self.post_srq(self.shared, entry, pieces)
        else:
            pair.receive(self.queues[slot].received & 0xFFFF, sges)
            self.post_recv(self.queues[slot], pieces)

    # -- what is seen -----------------------------------------------------------------------------

    def _pair(self, qpn: int) -> Requester:
        pair = self.pairs.get(qpn - self._base)
        if pair is None:
            raise Broken("10.3.1 RESET", f"QP {qpn:#x} is gone")
        return pair

    def leaves(self, message: Request | Response) -> None:
        """A message is on its way."""
        if isinstance(message, Request):
            self._pair(message.source_qpn).sends(message)
        else:
            self._pair(message.source_qpn).answered(message)

    def arrives(self, message: Request | Response) -> None:
        """A message has come."""
        pair = self.pairs.get(message.target_qpn - self._base)
        if pair is not None and isinstance(message, Request):
            pair.arrives(message)
        elif pair is not None and isinstance(message, Response):
            pair.takes(message)

    def observe(self) -> None:
        """Tell the oracle of completions and events, in the order in which they were written."""
        events, self.host.events = self.host.events, []
        for event in events:
            if event.kind is Kind.DMA_WRITE and event.what is What.CQE:
                self._completes(event.data)
            elif event.kind is Kind.DMA_WRITE and event.what is What.EQE:
                entry = EQE.unpack(event.data)
                kind, number = entry["type"], entry["data"]
                if kind in EVENTS and isinstance(number, bytes):
                    told = EventType(kind), int.from_bytes(number[:4], "big")
                    self.side.events.comes(told)

    def _completes(self, raw: bytes) -> None:
        wc = decode(raw)
        pair, found = self._pair(wc.qpn), Completion(wc.index, wc.status)
        if not wc.status and wc.send:
            found = Completion(wc.index, 0, SENT[SendOpcode(wc.opcode)], wc.length)
        elif not wc.status:
            op = RECEIVED[RecvOpcode(wc.opcode)]
            immediate = 0 if op is Op.SEND else wc.immediate
            found = Completion(wc.index, 0, op, wc.length, immediate, wc.remote_qpn)
        if wc.send:
            pair.completes(found)
        else:
            pair.received.comes(found)

    def rest(self) -> None:
        """Nothing is left to happen now: the oracle sees all, and software takes its entries."""
        self.observe()
        for slot, pair in self.pairs.items():
            self.completions(self.queues[slot])
            found = self.adapter.qps.get(pair.qpn)
            pair.rests(found.state.name if found is not None else "")
        self.side.events.is_nothing()
        self.events()
        same = self.area == self.side.memory.data
        holds(same, "9.7 R_Key", "memory has other bytes than messages have brought")
