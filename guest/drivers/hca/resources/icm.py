"""ICM: memory lent to the device for its contexts, laid out and mapped (core/profile.c, icm.c).

All of it is mapped at start; Linux maps pieces on demand.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.commands import MAX_MAP_ENTRIES, Opcode
from bluebridge.device.layout.mlx4.contexts import MAP_ENTRY, MTT_PRESENT
from bluebridge.guest.drivers.bus.dma_memory import RangeAllocator
from bluebridge.guest.drivers.bus.interface import Bus, DmaMemory
from bluebridge.guest.drivers.hca.resources.commands import FirmwareCommands
from bluebridge.guest.drivers.hca.resources.numbers import Profile
from bluebridge.guest.errors import VerbsError

PAGE_SHIFT = 12
PAGE = 1 << PAGE_SHIFT
CHUNK = 1 << 18  # the largest piece one MAP_ICM entry may bring

LOG_READS_PER_QP = 4
LOG_MC_ENTRY = 10
LOG_MC_TABLE = 5
LOG_MC_HASH = 4
_CMPT_SHIFT = 24  # each of the four cMPT tables has room for 2^24 entries
MTT_SIZE = 8


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
