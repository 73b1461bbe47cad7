"""A little driver for the unit tests: speaks to an `Hca` through its BARs, as a guest does."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.layout.mlx4 import uar
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import CQC, EQC, MAP_ENTRY, MPT, RING_UNIT
from bluebridge.device.layout.mlx4.cqe import CQE_SIZE
from bluebridge.device.layout.mlx4.eqe import EQE, EQE_SIZE, EventType
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueue
from tests.models.hca_commands import CommandDriver

MTT_BASE = 0x100000000
DMPT_BASE = 0x140000000
TABLE_BYTES = 1 << 18
ASYNC_EQN, COMP_EQN = 4, 5
UAR_PAGE = 128
ALL_RIGHTS = 0x1F


def mac_of(number: int) -> bytes:
    """Return the MAC address of the HCA with this number."""
    return bytes((2, 0, 0, 0, 10, number))


def hardware_key(key: int) -> int:
    """A key as an MPT stores it: rotated so that the index is in the low bits."""
    return key >> 8 | (key & 0xFF) << 24


@dataclass(slots=True)
class Ring:
    """A queue the driver made: entries of 32 bytes at `address`."""

    number: int
    address: int
    size: int
    consumer: int = 0
    record: int = 0


class Driver(CommandDriver):
    """Host, device and the driver's own state.

    Rings begin `page_offset` bytes into their first page: a multiple of 64.
    """

    page_offset = 0
    mtt_next = 0
    keys = 16
    _mtt_table = 0

    # -- bring-up -------------------------------------------------------------------------------

    def map_icm(self, virtual: int, physical: int, log_pages: int) -> None:
        """Lend one run of pages."""
        entry = MAP_ENTRY.pack(virtual=virtual, page=physical >> 12, log_pages=log_pages)
        self.command(Opcode.MAP_ICM, bytes(entry), 1)

    def start(self) -> Driver:
        """ICM for MTT and dMPT, INIT_HCA, an asynchronous EQ with all events, a completion EQ."""
        log_pages = (TABLE_BYTES >> 12).bit_length() - 1
        self._mtt_table = self.host.allocate(TABLE_BYTES)
        self.map_icm(MTT_BASE, self._mtt_table, log_pages)
        self.map_icm(DMPT_BASE, self.host.allocate(TABLE_BYTES), log_pages)
        self.command(Opcode.INIT_HCA, bytes(self.init_mailbox()))
        self.async_eq = self.create_eq(ASYNC_EQN, 0, 6)
        self.comp_eq = self.create_eq(COMP_EQN, 1, 8)
        self.command(Opcode.MAP_EQ, (1 << 64) - 1 & ~1, ASYNC_EQN)
        return self

    def init_mailbox(self) -> bytearray:
        """Return what the stock driver says in INIT_HCA."""
        return INIT_HCA.pack(
            version=2,
            flags=1,
            log_qps=18,
            log_srqs=16,
            log_cqs=16,
            log_eqs=7,
            log_mpts=19,
            log_rd_per_qp=4,
            log_mc_entry_size=10,
            log_mc_hash_size=12,
            log_mc_table_size=13,
            mtt_base=MTT_BASE,
            dmpt_base=DMPT_BASE,
            log_uars=11,
        )

    def mtt(self, pages: list[int], present: bool = True) -> int:
        """Write translation entries; returns their byte offset."""
        offset = self.mtt_next
        for page in pages:
            entry = (page | present).to_bytes(8, "big")
            self.host.poke(self._mtt_table + self.mtt_next, entry)
            self.mtt_next += 8
        return offset

    def buffer(self, length: int) -> tuple[int, int]:
        """Pages for a queue: its address and the MTT offset of its pages."""
        count = -(-(self.page_offset + length) // 4096)
        address = self.host.allocate(count * 4096)
        mtt = self.mtt([address + 4096 * index for index in range(count)])
        return address + self.page_offset, mtt

    # -- event and completion queues ------------------------------------------------------------

    def create_eq(self, eqn: int, vector: int, log_size: int, **more: int) -> Ring:
        """SW2HW_EQ."""
        address, mtt = self.buffer(EQE_SIZE << log_size)
        values = {"state": 9, "page_offset": self.page_offset // RING_UNIT, **more}
        context = EQC.pack(values, log_size=log_size, vector=vector, mtt_addr=mtt)
        self.command(Opcode.SW2HW_EQ, bytes(context), eqn)
        return Ring(eqn, address, 1 << log_size)

    def poll_eq(self, ring: Ring) -> list[dict[str, int | bytes]]:
        """Events that are there, decoded; the consumer index moves in the driver only."""
        events: list[dict[str, int | bytes]] = []
        while True:
            slot = ring.consumer & (ring.size - 1)
            entry = self.host.peek(ring.address + slot * EQE_SIZE, EQE_SIZE)
            if bool(entry[31] & 0x80) != bool(ring.consumer & ring.size):
                return events
            events.append(EQE.unpack(entry))
            ring.consumer += 1

    def eq_doorbell(self, ring: Ring, *, arm: bool = True) -> None:
        """Tell the consumer index."""
        value = ring.consumer & 0xFFFFFF | (uar.EQ_ARM if arm else 0)
        self.write32(uar.eq_doorbell_offset(ring.number), value, 2)

    def events(self, event_type: int = EventType.CMD) -> list[dict[str, int | bytes]]:
        """New asynchronous events of one type; all are consumed and the EQ is armed."""
        found = [event for event in self.poll_eq(self.async_eq) if event["type"] == event_type]
        self.eq_doorbell(self.async_eq)
        return found

    def create_cq(self, cqn: int, log_size: int, *, eqn: int = COMP_EQN, **more: int) -> Ring:
        """SW2HW_CQ."""
        address, mtt = self.buffer(CQE_SIZE << log_size)
        record = self.host.allocate(64, 64)
        values = {"uar": UAR_PAGE, "page_offset": self.page_offset // RING_UNIT, **more}
        context = CQC.pack(values, log_size=log_size, eqn=eqn, mtt_addr=mtt, doorbell_record=record)
        self.command(Opcode.SW2HW_CQ, bytes(context), cqn)
        return Ring(cqn, address, 1 << log_size, record=record)

    def completion_queue(self, cqn: int) -> CompletionQueue:
        """The device's side of a queue that it owns."""
        queue = self.adapter.cqs.get(cqn)
        assert queue is not None
        return queue

    def poll_cq(self, ring: Ring) -> list[bytes]:
        """Entries that are there; the doorbell record follows."""
        entries: list[bytes] = []
        while True:
            slot = ring.consumer & (ring.size - 1)
            entry = self.host.peek(ring.address + slot * CQE_SIZE, CQE_SIZE)
            if bool(entry[31] & 0x80) != bool(ring.consumer & ring.size):
                self.host.poke(ring.record, (ring.consumer & 0xFFFFFF).to_bytes(4, "big"))
                return entries
            entries.append(entry)
            ring.consumer += 1

    def arm_cq(self, ring: Ring, sn: int, command: int = uar.CQ_ARM_NEXT) -> None:
        """The CQ doorbell as one 8-byte store."""
        value = uar.cq_doorbell(sn, command, ring.number, ring.consumer)
        self.hca.bar_write(2, UAR_PAGE * uar.PAGE_SIZE + uar.CQ_DOORBELL, value.to_bytes(8, "big"))

    # -- memory regions -------------------------------------------------------------------------

    def create_mr(
        self,
        start: int,
        length: int,
        pages: list[int],
        *,
        pd: int = 1,
        rights: int = ALL_RIGHTS,
        shift: int = 12,
        low: int = 0,
    ) -> int:
        """SW2HW_MPT of a translated region: its key, with low byte `low`."""
        self.keys += 1
        key = self.keys << 8 | low
        entry = self.mpt(key, start, length, self.mtt(pages), pd=pd, rights=rights, shift=shift)
        self.command(Opcode.SW2HW_MPT, bytes(entry), self.keys)
        return key

    def mpt(
        self,
        key: int,
        start: int,
        length: int,
        mtt: int = 0,
        *,
        pd: int = 1,
        rights: int = ALL_RIGHTS,
        shift: int = 12,
        **more: int,
    ) -> bytearray:
        """An MPT entry."""
        values = {"status": 0xF, "mio": 1, "region": 1, **more}
        entry = MPT.pack(
            values,
            key=hardware_key(key),
            pd=pd,
            start=start,
            length=length,
            mtt_addr=mtt,
            entity_size=shift,
        )
        word = int.from_bytes(entry[:4], "big") | rights << 10
        entry[:4] = word.to_bytes(4, "big")
        return entry

    def create_fast_mr(self, max_pages: int, *, pd: int = 1) -> int:
        """A free fast-registration MR: its key."""
        self.keys += 1
        key = self.keys << 8
        mtt = self.mtt([0] * max_pages, present=False)
        values = {"status": 3, "fast_reg": 1, "en_inv": 3, "mtt_sz": max_pages}
        entry = self.mpt(key, 0, 0, mtt, pd=pd, rights=0, shift=0, **values)
        self.command(Opcode.SW2HW_MPT, bytes(entry), self.keys)
        return key
