"""The other half: two HCAs in this process, told the same as the model."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Message, Response
from bluebridge.device.layout.mlx4.commands import Opcode, OptPar, Status
from bluebridge.device.layout.mlx4.contexts import MPT, QPC, QPC_SIZE, ServiceType
from bluebridge.device.layout.mlx4.cqe import RecvOpcode
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.wqe import BindFlag, SendOpcode
from bluebridge.device.rdma.memory.region import Rights
from tests.models.hca_driver import hardware_key
from tests.models.rdma_node import ALL_REMOTE, SPECIAL_BASE, Node, Wc, data, inline, remote
from tests.models.rdma_node import TestQp as Queues
from tests.models.verbs_model.values import (
    ATOMICS,
    RETURNING,
    WRITES,
    Bind,
    Completion,
    Invalidate,
    Place,
    Register,
    Sge,
    Work,
)
from tests.models.verbs_model.world import ENTRIES, PD

PLAIN = (RecvOpcode.SEND,)
"""Receives whose immediate says nothing."""
_BIND = (
    (Rights.REMOTE_READ, BindFlag.REMOTE_READ),
    (Rights.REMOTE_WRITE, BindFlag.REMOTE_WRITE),
    (Rights.REMOTE_ATOMIC, BindFlag.REMOTE_ATOMIC),
)
_FAST_REGISTER_SHIFT = 17


def segments_of(work: Work, page_list: int) -> bytes:
    """The segments behind the control segment; a registration's pages are at `page_list`."""
    raw = _action(work, page_list) if work.action else b""
    if work.opcode in WRITES or work.opcode in RETURNING:
        raw += remote(work.remote, work.rkey)
    if work.opcode in ATOMICS:
        raw += _operands(work)
    return raw + (data(*work.sges) if work.inline is None else inline(work.inline))


def _action(work: Work, page_list: int) -> bytes:
    action = work.action
    if isinstance(action, Register):
        flags = action.rights << _FAST_REGISTER_SHIFT & 0xFFFFFFFF
        return pack(">IIQQQII", flags, action.key, page_list, action.start, action.length, 0, 12)
    if isinstance(action, Bind):
        access = sum(int(flag) for right, flag in _BIND if action.rights & right)
        kind = BindFlag.TYPE_2 * action.second_type | BindFlag.ZERO_BASED * action.zero_based
        return pack(">IIIIQQ", access, kind, action.key, action.lkey, action.va, action.length)
    assert isinstance(action, Invalidate)
    return pack(">8xI20x", action.key)


def _operands(work: Work) -> bytes:
    first, compare, mask, compare_mask = work.operands
    if work.opcode is SendOpcode.MASKED_ATOMIC_CS:
        return pack(">QQQQ", first, compare, mask, compare_mask)
    if work.opcode is SendOpcode.MASKED_ATOMIC_FA:
        return pack(">QQ", first, mask)
    return pack(">QQ", first, compare)


def plain(wc: Wc) -> Completion:
    """A completion without what says nothing."""
    if wc.status:
        return Completion(wc.send, wc.index, wc.status)
    if wc.send:
        return Completion(True, wc.index, 0, wc.opcode, wc.length)
    immediate = 0 if wc.opcode in PLAIN else wc.immediate
    return Completion(False, wc.index, 0, wc.opcode, wc.length, immediate, wc.remote_qpn)


SRQN = 0x60
MEMORY = 24 << 20
EVENTS = (
    EventType.COMM_EST,
    EventType.SQ_DRAINED,
    EventType.WQ_CATAS_ERROR,
    EventType.WQ_INVALID_REQUEST,
    EventType.WQ_ACCESS_ERROR,
    EventType.SRQ_QP_LAST_WQE,
)
"""Those about queue pairs."""


class Machine:
    """One guest with its HCA."""

    peer: Machine

    def __init__(self, name: str, number: int, fabric: LocalFabric, base: int) -> None:
        self.node = Node(name, number, fabric, MEMORY)
        self._base = base
        self.blocks: dict[int, bytearray] = {}
        self.list_page = self.node.host.allocate(4096)
        self.queues: dict[int, Queues] = {}
        self.shared = self.node.create_srq(SRQN)

    # -- life -----------------------------------------------------------------------------------

    def map(self, base: int, content: bytes) -> None:
        block = self.blocks[base] = self.node.host.map(base, len(content))
        block[:] = content

    def unmap(self, base: int) -> None:
        """Memory that goes."""
        self.node.host.unmap(base)
        del self.blocks[base]

    def die(self) -> None:
        self.node.hca.reset()
        self.queues.clear()

    def start(self) -> None:
        node = self.node
        node.toggle, node.mtt_next = 1, 0
        node.start()
        node.command(Opcode.CONF_SPECIAL_QP, modifier=SPECIAL_BASE)
        node.open_port(1, node.mac, node.gid)
        self.shared = node.create_srq(SRQN)

    def link(self, *, up: bool) -> None:
        """INIT_PORT or CLOSE_PORT."""
        self.node.command(Opcode.INIT_PORT if up else Opcode.CLOSE_PORT, modifier=1)

    # -- queue pairs ----------------------------------------------------------------------------

    def qpn(self, slot: int) -> int:
        """Number of the queue pair in a slot."""
        return self._base + slot

    def open(self, slot: int) -> None:
        """RST2INIT."""
        service = ServiceType.UC if slot == 2 else ServiceType.RC
        more = {"use_srq": 1, "srqn": SRQN} if slot == 1 else {}
        self.queues[slot] = self.node.create_qp(self.qpn(slot), service, **more)

    def close(self, slot: int) -> None:
        """2RST."""
        self.node.command(Opcode.TORST_QP, modifier=self.qpn(slot), op_modifier=2)
        self.queues.pop(slot, None)

    def transit(self, slot: int, opcode: Opcode, values: dict[str, int], event: bool) -> Status:
        """Another transition; what the command says of it."""
        path = self._path(slot) if opcode is Opcode.INIT2RTR_QP else {}
        mask = 0
        if values.keys() & ALL_REMOTE.keys():
            mask = 1 << OptPar.RRE | 1 << OptPar.RAE | 1 << OptPar.RWE
        raw = pack(">II", mask, 0) + bytes(QPC.pack({**values, **path}))
        assert len(raw) == 8 + QPC_SIZE
        modifier = self.qpn(slot) | event << 31
        return self.node.try_command(opcode, raw, modifier)[0]

    def _path(self, slot: int) -> dict[str, int | bytes]:
        peer = self.peer.node
        return {
            "remote_qpn": self.peer.qpn(slot),
            "pri_grh": 1,
            "pri_rgid": peer.gid,
            "pri_dmac": peer.mac,
            "pri_link_type": 1,
            "pri_hop_limit": 64,
        }

    # -- work requests --------------------------------------------------------------------------

    def post_receive(self, slot: int, sges: Sequence[Sge]) -> None:
        """A receive of the queue pair's own queue."""
        self.node.post_recv(self.queues[slot], list(sges))

    def post_shared(self, sges: Sequence[Sge]) -> None:
        self.node.post_srq(self.shared, self.shared.received % ENTRIES, list(sges))

    def post_send(self, slot: int, work: Work) -> None:
        self.node.post_send(
            self.queues[slot],
            work.opcode,
            segments_of(work, self._list_of(work)),
            signalled=work.signalled,
            fence=work.fence,
            solicited=work.solicited,
            immediate=work.immediate,
        )

    def _list_of(self, work: Work) -> int:
        """Address of the page list of a registration, which is written there."""
        if isinstance(work.action, Register):
            pages = b"".join(pack(">Q", page | 1) for page in work.action.pages)
            self.node.host.poke(self.list_page, pages)
        return self.list_page

    # -- memory ---------------------------------------------------------------------------------

    def region(self, place: Place) -> int:
        """SW2HW_MPT of what a model's region says; its key."""
        node = self.node
        if place.window:
            return self._window(place)
        if place.fast:
            return node.create_fast_mr(place.room, pd=place.pd)
        return node.create_mr(
            place.start, place.length, place.pages, pd=place.pd, rights=place.rights
        )

    def _window(self, place: Place) -> int:
        node = self.node
        node.keys += 1
        key = node.keys << 8
        values = {"status": 3, "bound_to_qp": 1, "en_inv": 3} if place.second_type else {}
        entry = MPT.pack(values, key=hardware_key(key), pd=place.pd)
        node.command(Opcode.SW2HW_MPT, bytes(entry), node.keys)
        return key

    def destroy(self, key: int) -> Status:
        """HW2SW_MPT."""
        return self.node.try_command(Opcode.HW2SW_MPT, modifier=key >> 8, op_modifier=1)[0]

    # -- what it tells --------------------------------------------------------------------------

    def completions(self, slot: int) -> list[Completion]:
        queues = self.queues[slot]
        found = self.node.completions(queues)
        assert all(wc.qpn == queues.qpn for wc in found)
        return [plain(wc) for wc in found]

    def events(self) -> list[tuple[EventType, int]]:
        found = self.node.poll_eq(self.node.async_eq)
        self.node.eq_doorbell(self.node.async_eq)
        told = [(event["type"], event["data"]) for event in found]
        return [
            (EventType(kind), int.from_bytes(raw[:4], "big"))
            for kind, raw in told
            if kind in EVENTS and isinstance(raw, bytes)
        ]


class Loss:
    """In front of delivery: drops the next `answers`."""

    def __init__(self) -> None:
        self.answers = 0

    def admit(
        self, source: FabricPort, targets: Sequence[FabricPort], message: Message
    ) -> tuple[Sequence[FabricPort], int]:
        if self.answers and targets and isinstance(message, Response):
            self.answers -= 1
            return (), 0
        return targets, 0


class Hardware:
    """Both machines, their cable and their clock."""

    def __init__(self) -> None:
        fabric = LocalFabric()
        self.loss = fabric.stage = Loss()
        self.a = Machine("a", 1, fabric, 0x800240)
        self.b = Machine("b", 2, fabric, 0x250)
        self.a.peer, self.b.peer = self.b, self.a
        self.machines = (self.a, self.b)
        self.now = 0.0

    def advance(self, seconds: float) -> None:
        """Move both clocks: what is due runs in the order of time, A's before B's."""
        end = self.now + seconds
        hosts = [machine.node.host for machine in self.machines]
        due = self.now
        while due <= end:
            self.now = max(self.now, due)
            for host in hosts:
                host.now = self.now
            for host in hosts:
                host.run()
            due = min(host.next_due for host in hosts)
        self.now = end
        for host in hosts:
            host.now = end


__all__ = ["PD", "Hardware", "Machine"]
