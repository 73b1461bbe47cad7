"""A driver for property tests, written from the tables and not from Linux's order of commands.

Rings lie where a test wants them: in pages of any size, in any order, from any offset on. What the
device may write is known, so everything else of guest memory must stay as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bluebridge.device.layout.fields import Struct, Value
from bluebridge.device.layout.mlx4 import uar
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, MAC_VALID
from bluebridge.device.layout.mlx4.commands import Opcode, SetPort, Status
from bluebridge.device.layout.mlx4.contexts import CQC, EQC, MAP_ENTRY, MPT, QPC, SRQC, WRITE_MTT
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.mlx4.settings.config import Features
from tests.models.hca_commands import MAC, CommandDriver

PAGE = 4096
MEMORY = 4 << 20
BASE = 0x100000
MTT_AT, DMPT_AT = 5 << 20, 9 << 20
TABLE = 1 << 16
LARGE_ENTRIES = 1 << 30
EQN, CQN, SRQN, QPN, PD, UAR_PAGE = 6, 0x81, 3, 0x55, 9, 131
MPT_INDEX = 20
KEY = MPT_INDEX << 8
_TABLES = {Opcode.SW2HW_EQ: EQC, Opcode.SW2HW_CQ: CQC, Opcode.SW2HW_SRQ: SRQC}
GID = bytes(10) + b"\xff\xff" + bytes((10, 0, 0, 1))


@dataclass(frozen=True)
class Layout:
    """Where a ring is to lie: logarithm of the page size, offset in the first page, order."""

    shift: int
    start: int
    seed: int
    by_command: bool
    """Whether translations go through WRITE_MTT or straight into the table."""


@dataclass(frozen=True)
class Place:
    """The pages of a ring in order, and the place of its translations."""

    pages: list[int]
    layout: Layout
    length: int
    mtt: int

    def address(self, offset: int) -> int:
        """Guest-physical address of a byte of the ring."""
        at = self.layout.start + offset
        return self.pages[at >> self.layout.shift] + (at & (1 << self.layout.shift) - 1)

    def covers(self, address: int) -> bool:
        """Whether an address is one of the ring's bytes."""
        size = 1 << self.layout.shift
        for number, page in enumerate(self.pages):
            if page <= address < page + size:
                at = (number << self.layout.shift) + address - page - self.layout.start
                return 0 <= at < self.length
        return False


def undeclared(table: Struct) -> int:
    """The bits of a structure that no field has, as a number of its whole size."""
    free = (1 << 8 * table.size) - 1
    for item in table:
        end = 8 * (table.size - item.offset - item.width)
        free &= ~(item.mask << item.low + end)
    return free


class TableDriver(CommandDriver):
    """One HCA whose port loops; `allowed` are the places that the device may write.

    `table` is where the MTT is in memory, `records` the doorbell records, the newest one last.
    With `noise` the bits of contexts that no table has are set at random.
    """

    def __init__(self, *, large: bool = False, seed: int = 0, noise: bool = False) -> None:
        super().__init__(memory=MEMORY, features=Features(large_cqes=True))
        self.large = large
        self._noise = Random(seed) if noise else None
        self._next_mtt = 0x100
        self.table = self.host.allocate(TABLE)
        self._dmpt = self.host.allocate(TABLE)
        self.allowed: list[Place] = []
        self.records: list[int] = []
        self._start(Random(seed))

    def _start(self, order: Random) -> None:
        """Memory for the tables in any order, then INIT_HCA, then the port in any order."""
        tables = [(MTT_AT, self.table), (DMPT_AT, self._dmpt)]
        pages = [(at + n, memory + n) for at, memory in tables for n in range(0, TABLE, PAGE)]
        order.shuffle(pages)
        for virtual, physical in pages:
            entry = MAP_ENTRY.pack(virtual=virtual, page=physical >> 12)
            self.command(Opcode.MAP_ICM, bytes(entry), 1)
        sizes: dict[str, Value] = {"log_qps": 8, "log_srqs": 4, "log_cqs": 8, "log_eqs": 4}
        sizes |= {"log_mpts": 6, "log_mc_entry_size": 6, "log_mc_hash_size": 1, "version": 2}
        bases = {"mtt_base": MTT_AT, "dmpt_base": DMPT_AT}
        mailbox = INIT_HCA.pack({**bases, **sizes, "eqe_cqe_size": self.large * LARGE_ENTRIES})
        self.command(Opcode.INIT_HCA, bytes(mailbox))
        steps = [self._open_port, self._tell_mac, self._tell_gid, self._region]
        order.shuffle(steps)
        for step in steps:
            step()

    def _open_port(self) -> None:
        self.command(Opcode.INIT_PORT, 0, 1)

    def _tell_mac(self) -> None:
        table = (MAC_VALID | int.from_bytes(MAC, "big")).to_bytes(8, "big")
        self.command(Opcode.SET_PORT, table.ljust(1024, b"\0"), SetPort.MAC_TABLE << 8 | 1, 1)

    def _tell_gid(self) -> None:
        self.command(Opcode.SET_PORT, GID.ljust(2048, b"\0"), SetPort.GID_TABLE << 8 | 1, 1)

    def _region(self) -> None:
        """All of memory under one key."""
        entry = MPT.pack(region=1, physical=1, local_read=1, local_write=1, key=MPT_INDEX, pd=PD)
        MPT.set(entry, "length", (1 << 64) - 1)
        self.command(Opcode.SW2HW_MPT, bytes(entry), MPT_INDEX)

    # -- rings ----------------------------------------------------------------------------------

    def place(self, length: int, layout: Layout) -> Place:
        """Pages for a ring of so many bytes, and their translations."""
        size = 1 << layout.shift
        count = -(-(layout.start + length) // size)
        first = self.host.allocate(count * size, size)
        pages = [first + size * number for number in range(count)]
        Random(layout.seed).shuffle(pages)
        mtt = self._next_mtt
        entries = b"".join((page | 1).to_bytes(8, "big") for page in pages)
        if layout.by_command:
            mailbox = bytes(WRITE_MTT.pack(offset=mtt)) + entries
            self.command(Opcode.WRITE_MTT, mailbox, count)
        else:
            self.host.poke(self.table + mtt, entries)
        self._next_mtt += 8 * count
        return Place(pages, layout, length, mtt)

    def try_eq(self, log_size: int, layout: Layout, **more: int) -> tuple[Status, Place]:
        """SW2HW_EQ; all events of commands go there."""
        place = self.place(32 << log_size, layout)
        context = EQC.pack(
            {"state": 9, "log_size": log_size, "vector": 1, "mtt_addr": place.mtt, **more},
            log_page_size=layout.shift - 12,
            page_offset=layout.start // 32,
        )
        return self._made(Opcode.SW2HW_EQ, context, EQN, place)

    def try_cq(self, log_size: int, layout: Layout, **more: int) -> tuple[Status, Place]:
        """SW2HW_CQ."""
        place = self.place(self.entry << log_size, layout)
        context = CQC.pack(
            {"log_size": log_size, "uar": UAR_PAGE, "eqn": EQN, "mtt_addr": place.mtt, **more},
            log_page_size=layout.shift - 12,
            page_offset=layout.start // 32,
            doorbell_record=self.record(),
        )
        return self._made(Opcode.SW2HW_CQ, context, CQN, place)

    def try_srq(self, log_size: int, log_stride: int, layout: Layout) -> tuple[Status, Place]:
        """SW2HW_SRQ of entries of 16 << `log_stride` bytes."""
        place = self.place(16 << log_size + log_stride, layout)
        values = {"log_size": log_size, "log_stride": log_stride, "mtt_addr": place.mtt}
        context = SRQC.pack(
            {**values, "pd": PD, "cqn": CQN},
            log_page_size=layout.shift - 12,
            page_offset=layout.start // 64,
            doorbell_record=self.record(),
        )
        return self._made(Opcode.SW2HW_SRQ, context, SRQN, place)

    def _made(
        self, opcode: Opcode, context: bytearray, number: int, place: Place
    ) -> tuple[Status, Place]:
        status, _ = self.try_command(opcode, self._noisy(_TABLES[opcode], context), number)
        self.finish()
        if status is Status.OK and opcode is not Opcode.SW2HW_SRQ:
            self.allowed.append(place)
        return status, place

    def _noisy(self, table: Struct, context: bytes | bytearray) -> bytes:
        """A context with noise in the bits that say nothing."""
        if self._noise is None:
            return bytes(context)
        noise = self._noise.getrandbits(8 * table.size) & undeclared(table)
        return (int.from_bytes(context, "big") | noise).to_bytes(table.size, "big")

    @property
    def entry(self) -> int:
        """Bytes of a completion entry."""
        return 64 if self.large else 32

    def record(self) -> int:
        """A doorbell record."""
        self.records.append(self.host.allocate(8, 8))
        return self.records[-1]

    def tell(self, record: int, value: int) -> None:
        """Store an index into a doorbell record."""
        self.host.poke(record, value.to_bytes(4, "big"))

    def finish(self) -> None:
        """Let the device do what it does in turns of its loop."""
        self.host.run()

    def event_queue(self) -> None:
        """A plain one, which completion queues need."""
        status, _ = self.try_eq(4, Layout(12, 0, 0, True))
        assert status is Status.OK
        self.command(Opcode.MAP_EQ, 1 << EventType.CMD, EQN)

    # -- queue pairs ----------------------------------------------------------------------------

    def connect(self, place: Place, **rings: int) -> None:
        """A queue pair that is its own peer, with the rings that the fields describe."""
        values: dict[str, Value] = {"pd": PD, "uar": UAR_PAGE, "cqn_send": CQN, "cqn_recv": CQN}
        values |= {"mtt_addr": place.mtt, "log_page_size": place.layout.shift - 12}
        values |= {"page_offset": place.layout.start // 64, "mtu": 3, "msg_max": 20}
        values |= {"remote_qpn": QPN, "pri_dmac": MAC, "pri_rgid": GID, "retry_count": 7, **rings}
        mailbox = bytes(8) + self._noisy(QPC, QPC.pack(values))
        for step in (Opcode.RST2INIT_QP, Opcode.INIT2RTR_QP, Opcode.RTR2RTS_QP):
            self.command(step, mailbox, QPN)

    def ring_doorbell(self) -> None:
        """The send doorbell of the queue pair."""
        self.write32(UAR_PAGE * PAGE + uar.SEND_DOORBELL, uar.send_doorbell(QPN), 2)
        self.finish()

    # -- memory ---------------------------------------------------------------------------------

    def image(self) -> bytes:
        """All of guest memory."""
        return self.host.peek(BASE, MEMORY)

    def strays(self, before: bytes, *more: Place) -> list[int]:
        """Addresses that changed since `before` and are none of a ring's that may be written."""
        after, places = self.image(), [*self.allowed, *more]
        answer = range(self.mailbox_in - BASE, self.mailbox_out + PAGE - BASE)
        return [
            BASE + at
            for page in range(0, MEMORY, PAGE)
            if before[page : page + PAGE] != after[page : page + PAGE]
            for at in range(page, page + PAGE)
            if before[at] != after[at] and at not in answer
            if not any(place.covers(BASE + at) for place in places)
        ]
