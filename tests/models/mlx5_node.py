"""A guest with a ConnectX-5 for the unit tests: makes its queues, posts frames, reads completions.

Its commands run by the adapter's table of rules, without the queue of commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack, unpack

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5 import steering
from bluebridge.device.layout.mlx5.commands import INPUT, Opcode, Status
from bluebridge.device.layout.mlx5.contexts import (
    CQC,
    MKC,
    RQC,
    RQTC,
    SQC,
    TIRC,
    TISC,
    WQ,
    Dispatch,
    QueueState,
    QueueType,
)
from bluebridge.device.layout.mlx5.cqe import CQE, CQE_SIZE, ERROR_CQE, CqeOpcode
from bluebridge.device.layout.mlx5.event_queues import CREATE_EQ, EQC, EQE_BYTES, EventType
from bluebridge.device.layout.mlx5.init_segment import CQ_DOORBELL, EQ_ARM, SEND_DOORBELL, UAR_BYTES
from bluebridge.device.layout.mlx5.objects import CONTEXT, ENTRY, LIST
from bluebridge.device.layout.mlx5.port_registers import PAOS, PortAdmin
from bluebridge.device.layout.mlx5.registers import RegisterId
from bluebridge.device.layout.mlx5.wqe import BLOCK_BYTES, CTRL, INVALID_LKEY, SendOpcode
from bluebridge.device.mlx5.adapter import Adapter, Stage
from bluebridge.device.mlx5.commands.table import RULES
from bluebridge.device.mlx5.device import Hca
from bluebridge.device.mlx5.settings.config import Config
from bluebridge.device.mlx5.settings.refused import STATUSES, Refused
from bluebridge.device.refusal import Refusal
from tests.models.fake_host import FakeHost

LOG_CQ, LOG_SQ, LOG_RQ, LOG_EQ = 6, 4, 4, 7
LOG_STRIDE = 6
VECTOR = 1
SIGNALLED = 2 << 2
BROADCAST = b"\xff" * 6


def mac_of(number: int) -> bytes:
    """The address of guest `number`."""
    return bytes((2, 0x77, 0, 0, 0, number))


@dataclass
class Queue:
    """An SQ, RQ or CQ as its driver knows it."""

    number: int
    address: int
    record: int
    cq: Queue | None = None
    posted: int = 0
    read: int = 0
    sn: int = 0


class Mlx5Node:
    """A guest with an adapter that is initialised, an event queue, and a key to all its memory."""

    blueflame = False
    """Whether the adapter offers BlueFlame."""

    def __init__(
        self, number: int, fabric: Fabric | None = None, host: FakeHost | None = None
    ) -> None:
        self.mac = mac_of(number)
        self.uid = 0
        """The user context that its commands are sent for."""
        self.host = host or FakeHost(f"n{number}", size=8 << 20)
        self.fabric = fabric or LocalFabric()
        self.adapter = self.make_adapter(self.host, self.fabric)
        self.portions = 0
        """Turns of the loop that the last command took."""
        self.uar = self.make(Opcode.ALLOC_UAR)
        self.eq, self.eq_address, self.eq_read = 0, 0, 0
        self._make_eq()
        self.pd = self.make(Opcode.ALLOC_PD)
        self.domain = self.make(Opcode.ALLOC_TRANSPORT_DOMAIN)
        self.key = self.make_key()

    def make_adapter(self, host: FakeHost, fabric: Fabric) -> Adapter:
        """Return an adapter that is initialised."""
        config = Config(host.name, self.mac, blueflame=self.blueflame)
        self.hca = Hca(host, [fabric], config)
        self.hca.adapter.stage = Stage.INITIALISED
        return self.hca.adapter

    # -- commands -----------------------------------------------------------------------------

    def command(
        self, opcode: Opcode, data: bytes = b"", *, number: int = 0, op_mod: int = 0
    ) -> bytes:
        """Carry out a command by its input behind the first 16 bytes; raises `Refused`."""
        whole = bytearray(data.ljust(INPUT.size, b"\0"))
        INPUT.set(whole, "opcode", opcode)
        INPUT.set(whole, "uid", self.uid)
        if op_mod:
            INPUT.set(whole, "op_mod", op_mod)
        if number:
            INPUT.set(whole, "number", number)
        return self.carry_out(bytes(whole)).ljust(INPUT.size, b"\0")

    def carry_out(self, data: bytes) -> bytes:
        """Carry out a command by its whole input; raises `Refused`."""
        rule = RULES[INPUT.get(data, "opcode")]
        if len(data) < rule.least:
            raise Refused(Status.BAD_INP_LEN)
        self.adapter.users.admit(data)
        answer = rule.handler(self.adapter, data) or b""
        self.portions = 1
        if not isinstance(answer, bytes):
            steps = list(answer)
            self.portions, answer = len(steps), steps[-1]
        self.adapter.users.note(data, answer)
        return answer

    def make(self, opcode: Opcode, data: bytes = b"") -> int:
        """Make an object; its number."""
        return INPUT.get(self.command(opcode, data), "number")

    def status(self, opcode: Opcode, data: bytes = b"", **more: int) -> Status:
        """How a command ends."""
        try:
            self.command(opcode, data, **more)
        except Refused as refused:
            return refused.status
        except Refusal as refusal:
            return STATUSES[refusal.reason]
        return Status.OK

    def register(self, number: RegisterId, data: bytes, *, write: bool) -> bytes:
        """Read or write a register."""
        head = bytearray(16)
        INPUT.set(head, "op_mod", 0 if write else 1)
        head[10:12] = number.to_bytes(2, "big")
        return self.command(Opcode.ACCESS_REG, bytes(head) + data)[16:]

    def open(self) -> None:
        """Take the link up."""
        self._administer(PortAdmin.UP)

    def close(self) -> None:
        """Take the link down."""
        self._administer(PortAdmin.DOWN)

    def _administer(self, state: PortAdmin) -> None:
        data = bytes(PAOS.pack(port=1, admin=state, set_admin=1))
        self.register(RegisterId.PAOS, data, write=True)

    def _make_eq(self) -> None:
        self.eq_address = self.host.allocate(EQE_BYTES << LOG_EQ)
        self.host.poke(self.eq_address, (bytes(EQE_BYTES - 1) + b"\1") * (1 << LOG_EQ))
        context = bytes(EQC.pack(log_size=LOG_EQ, uar_page=self.uar, vector=VECTOR))
        events = (
            1 << EventType.CQ_ERROR
            | 1 << EventType.PORT_CHANGE
            | 1 << EventType.WQ_CATASTROPHIC
            | 1 << EventType.LAST_WQE
            | 1 << EventType.SRQ_LIMIT
        )
        mask = events.to_bytes(8, "big").ljust(32, b"\0")
        data = CREATE_EQ.pack(context=context, event_bitmask=mask)
        self.eq = self.make(Opcode.CREATE_EQ, bytes(data) + self.pages(self.eq_address, 2))
        self.arm_eq()

    def arm_eq(self) -> None:
        """Ask for an interrupt."""
        self.store(EQ_ARM, pack(">I", self.eq << 24 | self.eq_read))

    def events(self) -> list[bytes]:
        """The events since the last call, which are consumed; interrupts are armed again."""
        found = []
        while True:
            at = self.eq_address + (self.eq_read & (1 << LOG_EQ) - 1) * EQE_BYTES
            raw = self.host.peek(at, EQE_BYTES)
            if raw[-1] & 1 != self.eq_read >> LOG_EQ & 1:
                break
            found.append(raw)
            self.eq_read += 1
        self.arm_eq()
        return found

    def store(self, register: int, data: bytes) -> None:
        """Write to the page of doorbells."""
        self.host.store(0, self.uar * UAR_BYTES + register, data)
        self.adapter.doorbells.write(self.uar * UAR_BYTES + register, data)

    def pages(self, address: int, count: int) -> bytes:
        """A list of pages."""
        return b"".join((address + 4096 * page).to_bytes(8, "big") for page in range(count))

    # -- objects ------------------------------------------------------------------------------

    def make_key(self, pages: Sequence[int] = (), **values: int) -> int:
        """Make a key to all of memory, or to these pages from address 0 on."""
        what: dict[str, Value] = {
            "access_mode": 1 if pages else 0, "length64": 0 if pages else 1, "local_read": 1,
            "local_write": 1, "qpn": 0xFFFFFF, "pd": self.pd, "key": 0x5A, "log_page_size": 12,
            "length": 4096 * len(pages), **values,
        }  # fmt: skip
        data = bytes(ENTRY) + bytes(MKC.pack(what))
        octwords = (len(pages) + 1) // 2
        data = data.ljust(0x60, b"\0") + octwords.to_bytes(4, "big")
        listed = b"".join(page.to_bytes(8, "big") for page in pages)
        return self.make(Opcode.CREATE_MKEY, data.ljust(LIST, b"\0") + listed) << 8 | 0x5A

    def make_cq(self, **values: int) -> Queue:
        """Make a completion queue."""
        address, record = self.host.allocate(CQE_SIZE << LOG_CQ), self.host.allocate(64)
        self.host.poke(address, (bytes(CQE_SIZE - 1) + b"\xf1") * (1 << LOG_CQ))
        what = {"log_size": LOG_CQ, "eqn": self.eq, "doorbell_record": record, **values}
        data = bytes(ENTRY) + bytes(CQC.pack(what))
        number = self.make(Opcode.CREATE_CQ, data.ljust(LIST, b"\0") + self.pages(address, 1))
        return Queue(number, address, record)

    def make_tis(self, domain: int = 0) -> int:
        """Make a TIS in a transport domain, the node's own without one."""
        context = bytes(TISC.pack(transport_domain=domain or self.domain))
        return self.make(Opcode.CREATE_TIS, bytes(CONTEXT) + context)

    def make_sq(self, cq: Queue | None = None, domain: int = 0, tisn: int = 0) -> Queue:
        """Make an SQ that is ready, in a transport domain by a TIS if there is one."""
        if domain:
            tisn = self.make_tis(domain)
        cq = cq or self.make_cq()
        address, record = self.host.allocate(4096), self.host.allocate(64)
        work = WQ.pack(
            type=QueueType.CYCLIC, pd=self.pd, uar=self.uar, doorbell_record=record,
            log_stride=6, log_size=LOG_SQ,
        )  # fmt: skip
        context = bytes(SQC.pack(cqn=cq.number, flush_in_error=1, tisn=tisn))[:0x30] + bytes(work)
        number = self.make(Opcode.CREATE_SQ, bytes(CONTEXT) + context + self.pages(address, 1))
        self.modify_sq(number, QueueState.RST, QueueState.RDY)
        return Queue(number, address, record, cq)

    def modify_sq(self, number: int, known: int, wanted: int) -> None:
        """Change the state of an SQ."""
        self.command(Opcode.MODIFY_SQ, _modify(number, known, bytes(SQC.pack(state=wanted))))

    def make_rq(self, cq: Queue | None = None, *, ready: bool = True, **values: int) -> Queue:
        """Make an RQ that is ready."""
        cq = cq or self.make_cq()
        address, record = self.host.allocate(4096), self.host.allocate(64)
        work = WQ.pack(
            type=QueueType.CYCLIC, pd=self.pd, doorbell_record=record, log_stride=LOG_STRIDE,
            log_size=LOG_RQ,
        )  # fmt: skip
        context = bytes(RQC.pack(cqn=cq.number, **values))[:0x30] + bytes(work)
        number = self.make(Opcode.CREATE_RQ, bytes(CONTEXT) + context + self.pages(address, 1))
        if ready:
            self.modify_rq(number, QueueState.RST, QueueState.RDY)
        return Queue(number, address, record, cq)

    def modify_rq(self, number: int, known: int, wanted: int, fields: int = 0, **more: int) -> None:
        """Change the state of an RQ, and more."""
        context = bytes(RQC.pack(state=wanted, **more))
        self.command(Opcode.MODIFY_RQ, _modify(number, known, context, fields))

    def make_rqt(self, queues: Sequence[Queue]) -> int:
        """Make a table of RQs."""
        context = bytes(RQTC.pack(max_size=len(queues), actual_size=len(queues)))
        listed = b"".join(queue.number.to_bytes(4, "big") for queue in queues)
        return self.make(Opcode.CREATE_RQT, bytes(CONTEXT) + context + listed)

    def make_tir(self, rq: Queue | None = None, rqt: int = 0, **values: Value) -> int:
        """Make a TIR on one RQ or on a table."""
        what: dict[str, Value] = {"transport_domain": self.domain, **values}
        if rq is not None:
            what |= {"dispatch": Dispatch.DIRECT, "rqn": rq.number}
        else:
            what |= {"dispatch": Dispatch.INDIRECT, "rqtn": rqt}
        return self.make(Opcode.CREATE_TIR, bytes(CONTEXT) + bytes(TIRC.pack(what)))

    # -- steering -----------------------------------------------------------------------------

    def make_table(self, log_size: int = 4, level: int = 0, **values: int) -> int:
        """Make a flow table."""
        data = steering.CREATE_FLOW_TABLE.pack(log_size=log_size, level=level, **values)
        return self.make(Opcode.CREATE_FLOW_TABLE, bytes(data))

    def make_group(self, table: int, first: int, last: int, **mask: Value) -> int:
        """Make a group whose entries compare bits of the outer headers."""
        data = steering.CREATE_FLOW_GROUP.pack(
            table=table, first=first, last=last, criteria=1 if mask else 0,
            mask=bytes(steering.OUTER_HEADERS.pack(mask)).ljust(steering.MATCH_BYTES, b"\0"),
        )  # fmt: skip
        return self.make(Opcode.CREATE_FLOW_GROUP, bytes(data))

    def entry(
        self,
        table: int,
        group: int,
        index: int,
        destinations: Sequence[tuple[int, int]] = (),
        counters: Sequence[int] = (),
        action: int = steering.Action.FORWARD,
        tag: int = 0,
        **value: Value,
    ) -> bytes:
        """The input that sets an entry."""
        data = steering.SET_FLOW_ENTRY.pack(
            table=table, index=index, group=group, action=action, tag=tag,
            destinations=len(destinations), counters=len(counters),
            value=bytes(steering.OUTER_HEADERS.pack(value)).ljust(steering.MATCH_BYTES, b"\0"),
        )  # fmt: skip
        listed = b"".join(pack(">II", kind << 24 | number, 0) for kind, number in destinations)
        return bytes(data) + listed + b"".join(pack(">II", number, 0) for number in counters)

    def set_root(self, table: int) -> None:
        """Choose the first table."""
        data = bytes(steering.SET_FLOW_TABLE_ROOT.pack(table=table))
        self.command(Opcode.SET_FLOW_TABLE_ROOT, data)

    def steer(self, tir: int, *macs: bytes) -> int:
        """Have frames to these addresses come to a TIR, all others to nobody; the table."""
        table = self.make_table()
        group = self.make_group(table, 0, 7, dmac=b"\xff" * 6)
        for index, mac in enumerate(macs or (self.mac, BROADCAST)):
            destination = [(steering.Destination.TIR, tir)]
            data = self.entry(table, group, index, destination, dmac=mac)
            self.command(Opcode.SET_FLOW_TABLE_ENTRY, data)
        self.set_root(table)
        return table

    # -- work ---------------------------------------------------------------------------------

    def memory(self, data: bytes | int) -> int:
        """The address of memory with these bytes, or of so many zeros."""
        size = data if isinstance(data, int) else len(data)
        address = self.host.allocate(size)
        if not isinstance(data, int):
            self.host.poke(address, data)
        return address

    def post_receive(self, rq: Queue, size: int = 2048, **more: int) -> int:
        """Post a receive of one buffer; its address. `count` = False leaves the record alone."""
        address = more.get("address") or self.host.allocate(max(size, 64))
        segments = pack(">IIQ", size, more.get("key", self.key), address)
        segments += pack(">IIQ", 0, INVALID_LKEY, 0)
        slot = rq.posted & (1 << LOG_RQ) - 1
        self.host.poke(rq.address + (slot << LOG_STRIDE), segments)
        rq.posted += 1
        self.host.poke(rq.record, (rq.posted & 0xFFFF).to_bytes(4, "big"))
        return address

    def wqe(
        self,
        sq: Queue,
        segments: bytes,
        opcode: int = SendOpcode.SEND,
        flags: int = SIGNALLED,
        size: int | None = None,
    ) -> None:
        """Write an entry behind those that are posted, and count it."""
        count = (CTRL.size + len(segments)) // 16 if size is None else size
        index = sq.posted & 0xFFFF
        head = pack(">IIII", index << 8 | opcode, sq.number << 8 | count, flags, 0)
        entry = head + segments
        for block in range(-(-len(entry) // BLOCK_BYTES)):
            slot = (sq.posted + block) & (1 << LOG_SQ) - 1
            part = entry[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
            self.host.poke(sq.address + slot * BLOCK_BYTES, part)
        sq.posted += -(-len(entry) // BLOCK_BYTES)
        self.host.poke(sq.record + 4, (sq.posted & 0xFFFF).to_bytes(4, "big"))

    def ring(self, sq: Queue) -> None:
        """Ring the doorbell of an SQ."""
        self.store(SEND_DOORBELL, pack(">II", 0, sq.number << 8))
        self.host.run()

    def send(self, sq: Queue, frame: bytes, *, checksums: int = 0, inline: int = 0) -> None:
        """Send a frame, the first `inline` bytes of which stand in the entry."""
        segment = ethernet(frame[:inline], checksums=checksums)
        rest = frame[inline:]
        self.wqe(sq, segment + pack(">IIQ", len(rest), self.key, self.memory(rest)))
        self.ring(sq)

    def arm(self, cq: Queue, *, solicited: bool = False) -> None:
        """Ask for an event."""
        word = cq.sn << 28 | solicited << 24 | cq.read & 0xFFFFFF
        self.store(CQ_DOORBELL, pack(">II", word, cq.number))

    def completions(self, queue: Queue) -> list[bytes]:
        """The completions of a queue since the last call."""
        cq = queue.cq or queue
        found: list[bytes] = []
        while True:
            at = cq.address + (cq.read & (1 << LOG_CQ) - 1) * CQE_SIZE
            raw = self.host.peek(at, CQE_SIZE)
            if raw[-1] >> 4 == CqeOpcode.INVALID or raw[-1] & 1 != cq.read >> LOG_CQ & 1:
                return found
            found.append(raw)
            cq.read += 1
            self.host.poke(cq.record, (cq.read & 0xFFFFFF).to_bytes(4, "big"))


def ethernet(header: bytes = b"", *, checksums: int = 0, mss: int = 0, insert: int = 0) -> bytes:
    """The Ethernet segment with inline headers, or a VLAN tag to insert."""
    if insert:
        return pack(">4xBxH4xHH", checksums, mss, 1 << 15, insert)
    start = pack(">4xBxH4xH", checksums, mss, len(header)) + header
    return start.ljust(16 + -(-max(0, len(header) - 2) // 16) * 16, b"\0")


def _modify(number: int, known: int, context: bytes, fields: int = 0) -> bytes:
    head = bytes(8) + pack(">I", known << 28 | number) + bytes(4) + fields.to_bytes(8, "big")
    return head.ljust(CONTEXT, b"\0") + context


def opcode_of(cqe: bytes) -> CqeOpcode:
    """The opcode of a completion."""
    return CqeOpcode(CQE.get(cqe, "opcode"))


def syndrome_of(cqe: bytes) -> int:
    """Why a completion failed; 0 for success."""
    failed = opcode_of(cqe) in (CqeOpcode.REQUEST_ERROR, CqeOpcode.RESPONSE_ERROR)
    return ERROR_CQE.get(cqe, "syndrome") if failed else 0


def words(raw: bytes) -> tuple[int, ...]:
    """Big-endian words of 32 bits."""
    return unpack(f">{len(raw) // 4}I", raw)
