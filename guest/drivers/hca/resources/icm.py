"""ICM, the memory of the device's contexts (core/profile.c, icm.c), and numbers of objects.

All of it is mapped at start; Linux maps pieces on demand.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random, SystemRandom

from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.commands import MAX_MAP_ENTRIES, Opcode
from bluebridge.device.layout.mlx4.contexts import MAP_ENTRY, MTT_PRESENT
from bluebridge.guest.bus.dma_memory import RangeAllocator
from bluebridge.guest.bus.interface import Bus, DmaMemory
from bluebridge.guest.drivers.hca.resources.commands import FirmwareCommands
from bluebridge.guest.errors import VerbsError

_SPECIAL_QPS = 8
_GSI_OFFSET = 2
_QPN_BITS = 23
_MPT_BITS = 24
_PD_BITS = 15
_KEY_BITS = 8

PAGE_SHIFT = 12
PAGE = 1 << PAGE_SHIFT
CHUNK = 1 << 18  # the largest piece one MAP_ICM entry may bring

LOG_READS_PER_QP = 4
LOG_MC_ENTRY = 10
LOG_MC_TABLE = 5
LOG_MC_HASH = 4
_CMPT_SHIFT = 24  # each of the four cMPT tables has room for 2^24 entries
MTT_SIZE = 8


@dataclass(slots=True, frozen=True)
class Profile:
    """The sizes of the context tables, as powers of two.

    The default is small (a laboratory needs hundreds of objects, not hundreds of thousands), so all
    of it is mapped at start; Linux maps pieces on demand.
    """

    log_qps: int = 10
    log_srqs: int = 7
    log_cqs: int = 9
    log_eqs: int = 7
    log_mpts: int = 12
    log_mtts: int = 17


DEFAULT = Profile()


class Numbers:
    """Hands out numbers `first … 2^log-1`, with a generation above bit `log` as Linux does.

    The generation, up to `width` bits in all, tells a stale number from one in use again
    (core/alloc.c: mlx4_bitmap_alloc). With `width == log` there is none. Numbers return to the
    end of the queue, so that one is reused as late as possible. With `chance`, number and
    generation of the first one are drawn: peers cannot tell them from those of another device.
    """

    def __init__(
        self,
        what: str,
        first: int,
        log: int,
        width: int | None = None,
        chance: Random | None = None,
    ) -> None:
        self._what = what
        self._log = log
        self._limit = (1 << (log if width is None else width)) - 1
        self._free = deque(range((1 << log) - 1, first - 1, -1))
        if chance is not None:
            generation = chance.randrange(self._limit + 1) >> log << log
            self._free = deque(generation | number for number in self._free)
            self._free.rotate(chance.randrange(len(self._free)))
        self._lock = threading.Lock()

    def allocate(self) -> int:
        """Return a free number; `VerbsError` when all are in use."""
        with self._lock:
            if not self._free:
                raise VerbsError(f"no more {self._what} numbers: all {1 << self._log} are in use")
            return self._free.pop()

    def free(self, number: int) -> None:
        """Give a number back."""
        with self._lock:
            self._free.appendleft((number + (1 << self._log)) & self._limit)


class NumberSpaces:
    """The numbers of one device, without those that it reserves according to QUERY_DEV_CAP.

    `special_qps` is the first of the eight special queue pairs. A memory region's number under
    `mpt_mask` is without its generation: the index of its MPT entry. What peers see, numbers of
    queue pairs and memory keys, is drawn by `chance`.
    """

    def __init__(self, dev_cap: bytes, profile: Profile, chance: Random | None = None) -> None:
        def reserved(name: str) -> int:
            return 1 << QUERY_DEV_CAP.get(dev_cap, f"log_reserved_{name}")

        self._chance = chance = chance or SystemRandom()
        self.special_qps = -(-reserved("qps") // _SPECIAL_QPS) * _SPECIAL_QPS
        first_qpn = self.special_qps + _SPECIAL_QPS
        self.queue_pairs = Numbers("queue pair", first_qpn, profile.log_qps, _QPN_BITS, chance)
        self.completion_queues = Numbers("CQ", reserved("cqs"), profile.log_cqs)
        self.shared_receive_queues = Numbers("SRQ", reserved("srqs"), profile.log_srqs)
        # Event queues share doorbell pages with the UARs that the device keeps for itself.
        first_eqn = max(reserved("eqs"), 4 * QUERY_DEV_CAP.get(dev_cap, "reserved_uars"))
        self.event_queues = Numbers("EQ", first_eqn, profile.log_eqs)
        self.mpt_mask = (1 << profile.log_mpts) - 1
        first_mpt = reserved("mrws")
        self.regions = Numbers("memory region", first_mpt, profile.log_mpts, _MPT_BITS, chance)
        first_pd = max(1, QUERY_DEV_CAP.get(dev_cap, "reserved_pds"))
        self.protection_domains = Numbers("protection domain", first_pd, _PD_BITS)

    def key_byte(self) -> int:
        """Return the low byte of a new memory key."""
        return self._chance.getrandbits(_KEY_BITS)

    def gsi_qpn(self, port: int) -> int:
        """Return the special queue pair number that is QP1 of a port, from 1 on."""
        return self.special_qps + _GSI_OFFSET + port - 1


@dataclass(slots=True)
class Piece:
    """Memory of the guest that is mapped at `virtual` in the HCA's own address space."""

    virtual: int
    memory: DmaMemory
    length: int


@dataclass(slots=True)
class MttRange:
    """The MTT entries `first … first+count-1`; contexts carry their `address`."""

    first: int
    count: int

    @property
    def address(self) -> int:
        """The byte offset of the first entry from the MTT base."""
        return self.first * MTT_SIZE


class Icm:
    """The context memory of one device."""

    def __init__(
        self, bus: Bus, commands: FirmwareCommands, dev_cap: bytes, profile: Profile
    ) -> None:
        self._bus = bus
        self._profile = profile
        self._commands = commands
        self._pieces: list[Piece] = []
        self._aux: DmaMemory | None = None
        self._lock = threading.Lock()
        self.bases, self.size = layout_of(tables_of(dev_cap, profile))
        reserved = 1 << QUERY_DEV_CAP.get(dev_cap, "log_reserved_mtts")
        self._mtts = RangeAllocator(reserved, (1 << profile.log_mtts) - reserved)
        self._cmpt_entry = QUERY_DEV_CAP.get(dev_cap, "cmpt_entry")
        self._lengths = {name: size for name, size in tables_of(dev_cap, profile) if name != "cmpt"}
        self._mtt_view = memoryview(b"")

    def map(self) -> None:
        """Set the ICM's size, lend the auxiliary pages and map every table."""
        aux_pages = self._commands.immediate(Opcode.SET_ICM_SIZE, param=self.size)
        if aux_pages:
            self._map_aux(aux_pages)
        for name, length in self._lengths.items():
            self._add(name, self.bases[name], max(PAGE, length))
        sizes = self._profile
        logs = (sizes.log_qps, sizes.log_srqs, sizes.log_cqs, sizes.log_eqs)
        for kind, log in enumerate(logs):
            virtual = self.bases["cmpt"] + (kind << _CMPT_SHIFT) * self._cmpt_entry
            self._add("cmpt", virtual, max(PAGE, self._cmpt_entry << log))
        entries = [entry for piece in self._pieces for entry in map_entries(piece)]
        for start in range(0, len(entries), MAX_MAP_ENTRIES):
            part = entries[start : start + MAX_MAP_ENTRIES]
            self._commands.run(Opcode.MAP_ICM, len(part), data=b"".join(part))

    def unmap(self) -> None:
        """Take the memory back; the HCA must be closed."""
        for piece in self._pieces:
            for offset in range(0, piece.length, CHUNK):
                pages = min(CHUNK, piece.length - offset) >> PAGE_SHIFT
                self._commands.run(Opcode.UNMAP_ICM, pages, param=piece.virtual + offset)
        self._commands.run(Opcode.UNMAP_ICM_AUX)
        self.free()

    def free(self) -> None:
        """Free the memory; the device must have been reset or the tables unmapped."""
        self._mtt_view = memoryview(b"")
        for piece in self._pieces:
            piece.memory.free()
        self._pieces.clear()
        if self._aux is not None:
            self._aux.free()
            self._aux = None

    def init_hca(self) -> bytearray:
        """Return the INIT_HCA mailbox for this layout, without the UAR fields."""
        bases = {f"{name}_base": address for name, address in self.bases.items()}
        data = INIT_HCA.pack({"version": 2, "cacheline": (6 - 4) << 5 | 0x10, "flags": 1, **bases})
        logs = {
            "log_qps": self._profile.log_qps, "log_srqs": self._profile.log_srqs,
            "log_cqs": self._profile.log_cqs, "log_eqs": self._profile.log_eqs,
            "log_rd_per_qp": LOG_READS_PER_QP, "log_mpts": self._profile.log_mpts,
            "log_mc_entry_size": LOG_MC_ENTRY, "log_mc_hash_size": LOG_MC_HASH,
            "log_mc_table_size": LOG_MC_TABLE,
        }  # fmt: skip
        for name, value in logs.items():  # after the bases: some share their words' low bits
            INIT_HCA.set(data, name, value)
        return data

    def allocate_mtt(self, pages: Sequence[int]) -> MttRange:
        """Allocate and write MTT entries that name the page addresses `pages`."""
        with self._lock:
            first = self._mtts.allocate(len(pages))
        if first is None:
            raise VerbsError(f"no {len(pages)} free MTT entries in a row")
        packed = struct.pack(f">{len(pages)}Q", *(page | MTT_PRESENT for page in pages))
        self._mtt_view[first * MTT_SIZE : first * MTT_SIZE + len(packed)] = packed
        return MttRange(first, len(pages))

    def allocate_mtt_contiguous(self, address: int, length: int) -> MttRange:
        """Allocate MTT entries of 4 KiB pages for a contiguous, page-aligned buffer."""
        return self.allocate_mtt(range(address, address + length, PAGE))

    def free_mtt(self, mtt: MttRange) -> None:
        """Free the MTT entries of a range."""
        with self._lock:
            self._mtts.free(mtt.first, mtt.count)

    def _add(self, name: str, virtual: int, length: int) -> None:
        memory = self._bus.allocate(length, min(length, CHUNK))
        self._pieces.append(Piece(virtual, memory, length))
        if name == "mtt":
            self._mtt_view = memory.view

    def _map_aux(self, pages: int) -> None:
        self._aux = self._bus.allocate(pages << PAGE_SHIFT)
        entries = b"".join(map_entries(Piece(0, self._aux, pages << PAGE_SHIFT)))
        self._commands.run(Opcode.MAP_ICM_AUX, len(entries) // MAP_ENTRY.size, data=entries)


def tables_of(dev_cap: bytes, profile: Profile) -> list[tuple[str, int]]:
    """Return name and size in bytes of every table, the sizes powers of two."""

    def entry(name: str) -> int:
        return QUERY_DEV_CAP.get(dev_cap, name)

    return [
        ("cmpt", 4 * entry("cmpt_entry") << _CMPT_SHIFT),
        ("rdmarc", entry("rdmarc_entry") << (profile.log_qps + LOG_READS_PER_QP)),
        ("qpc", entry("qpc_entry") << profile.log_qps),
        ("dmpt", entry("dmpt_entry") << profile.log_mpts),
        ("altc", entry("altc_entry") << profile.log_qps),
        ("auxc", entry("aux_entry") << profile.log_qps),
        ("mtt", MTT_SIZE << profile.log_mtts),
        ("mc", 1 << (LOG_MC_ENTRY + LOG_MC_TABLE)),
        ("srqc", entry("srqc_entry") << profile.log_srqs),
        ("cqc", entry("cqc_entry") << profile.log_cqs),
        ("eqc", entry("eqc_entry") << profile.log_eqs),
    ]


def layout_of(tables: list[tuple[str, int]]) -> tuple[dict[str, int], int]:
    """Return each table's offset and the total size, the largest table first (core/profile.c).

    In that order each table lies at a multiple of its size.
    """
    bases: dict[str, int] = {}
    position = 0
    for name, size in sorted(tables, key=lambda table: -table[1]):
        bases[name] = position
        position += max(PAGE, 1 << (size - 1).bit_length())
    return bases, position


def map_entries(piece: Piece) -> list[bytes]:
    """Return MAP_ICM entries of at most `CHUNK` bytes; lengths other than 2^n go by pages."""
    power = not piece.length & (piece.length - 1)
    step = min(CHUNK, piece.length) if power else PAGE
    log = (step >> PAGE_SHIFT).bit_length() - 1
    return [
        bytes(
            MAP_ENTRY.pack(
                virtual=piece.virtual + offset,
                page=(piece.memory.address + offset) >> PAGE_SHIFT,
                log_pages=log,
            )
        )
        for offset in range(0, piece.length, step)
    ]
