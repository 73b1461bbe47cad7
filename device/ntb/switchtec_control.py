"""Control blocks of a Switchtec switch: one for each partition, written by both guests' drivers."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout.ntb import switchtec as layout
from bluebridge.device.layout.ntb.switchtec import BlockStatus, Operation
from bluebridge.device.ntb.shape import WindowState, window_state
from bluebridge.device.ntb.window import Window
from bluebridge.device.pci.host import CLOSED, MasterBus, Place
from bluebridge.device.pci.registers import RegisterFile

PARTITION_BITS = 0xFFF
STATUS = layout.CONTROL.at("status")
"""Offset of the status of the first block, at which a line of registers begins.

That line is never all zero.
"""


class ControlBlocks:
    """The registers of both control blocks, and the windows that they configure.

    The block of a partition defines the targets of its guest's windows. The peer's driver writes
    it, so it outlives a reset of that guest, while a reset of the peer empties it.

    Both drivers work on both blocks: each lists its requesters in its own block and its shared
    memory in the peer's (switchtec_ntb_init_req_id_table, _init_shared_mw). So a block has a lock
    with an owner for which the other driver waits, and each driver reads the state of its own
    request: a driver that reads an unexpected state 50 ms after a request gives up
    (switchtec_ntb_part_op).
    """

    def __init__(self) -> None:
        self.registers = RegisterFile(layout.SHARED, layout.BAR0_SIZE)
        self._locks = [Lock() for _ in range(layout.PARTITIONS)]
        self._buses: list[MasterBus] = []
        self.shown: list[dict[int, Shown]] = []
        """For each partition, the contents of its window BARs by BAR number."""

    def add(self, bus: MasterBus) -> int:
        """Add the function of a guest and return the number of its partition."""
        self._buses.append(bus)
        if len(self._buses) == layout.PARTITIONS:
            self.shown = [
                {bar: Shown(self._buses[1 - own], bar) for bar in layout.WINDOW_BARS}
                for own in range(layout.PARTITIONS)
            ]
        return len(self._buses) - 1

    @staticmethod
    def holds(offset: int) -> bool:
        """Whether `offset` of BAR0 lies in the control blocks."""
        start = layout.CONTROL_START
        return start <= offset < start + layout.PARTITIONS * layout.CONTROL_STRIDE

    def read(self, reader: int, offset: int, length: int) -> bytes:
        """Return `length` bytes of registers from `offset` on, as partition `reader` sees them."""
        for block, lock in enumerate(self._locks):
            self.registers.set("CONTROL", "status", lock.status(reader), block)
        return self.registers.read(offset, length)

    def lines(self, reader: int) -> dict[int, bytes]:
        """Return the lines of registers that are not all zero, by offset, as `reader` sees them."""
        lines = self.registers.lines()
        for block, lock in enumerate(self._locks):
            at = STATUS + block * layout.CONTROL_STRIDE
            lines[at] = lock.status(reader).to_bytes(4, "little") + lines[at][4:]
        return lines

    def windows_onto(self, partition: int) -> list[Window]:
        """Return the windows, open or closed, that show the memory of `partition`'s guest."""
        shown = self.shown[1 - partition].values() if self.shown else ()
        return [window for each in shown for window in (*each.luts, each.direct)]

    def windows_of(self, partition: int) -> list[WindowState]:
        """Return the windows, open or closed, that show the memory of `partition`'s guest."""
        if not self.shown:
            return []
        found = []
        for bar, shown in self.shown[1 - partition].items():
            found += [window_state(bar, window, lut) for lut, window in enumerate(shown.luts)]
            found.append(window_state(bar, shown.direct))
        return found

    def write(self, writer: int, offset: int, data: bytes) -> bool:
        """Store `data`, and carry out an operation at once unless it waits for a lock.

        Returns whether the writer asks for a lock.
        """
        locks = False
        for slot, value in self.registers.write(offset, data):
            if slot.name == "operation":
                self._operate(writer, slot.index, value)
                locks = locks or value == Operation.LOCK
        return locks

    def _operate(self, writer: int, block: int, operation: int) -> None:
        if operation == Operation.LOCK:
            self._locks[block].take(writer)
            return
        if operation == Operation.CONFIGURE:
            self._configure(block)
        self._locks[block].drop(writer)

    def _configure(self, partition: int) -> None:
        if not self.shown:
            return
        for bar, shown in self.shown[partition].items():
            shown.direct_window(*self._direct(partition, bar))
        shown = self.shown[partition][layout.WINDOW_BARS[0]]
        for index in range(layout.LUTS):
            entry = self.registers.get(f"LUT{partition}", "entry", index)
            target = entry >> 1 & 0x3F
            enabled = entry & layout.LUT_ENABLE and target == 1 - partition
            shown.lut_window(index, entry & -layout.LUT_SIZE if enabled else None)

    def _direct(self, partition: int, bar: int) -> tuple[int, int]:
        """Return address and length of a direct window.

        The length is 0 if it is closed or does not lead to the other partition.
        """

        def get(name: str) -> int:
            return self.registers.get("CONTROL", f"bar{bar}_{name}", partition)

        translation = get("translation")
        if not get("control") & layout.DIRECT_ENABLE:
            return 0, 0
        if translation & PARTITION_BITS != 1 - partition:
            return 0, 0
        length = get("size_high") << 32 | get("size") & ~PARTITION_BITS
        return translation & ~PARTITION_BITS, length

    def leave(self, partition: int) -> bool:
        """Close the windows onto the guest of `partition`, which was reset.

        Return whether any was open.
        """
        other = 1 - partition
        for lock in self._locks:
            lock.drop(partition)
        seen = bool(self.shown) and any(each.close() for each in self.shown[other].values())
        for bar in layout.WINDOW_BARS:
            valid = layout.BAR_VALID
            self.registers.set("CONTROL", f"bar{bar}_control", valid, other)
            for name in ("size", "translation", "size_high"):
                self.registers.set("CONTROL", f"bar{bar}_{name}", 0, other)
        for index in range(layout.LUTS):
            self.registers.set(f"LUT{other}", "entry", 0, index)
        return seen


class Lock:
    """The lock of a control block, owned by the first partition to ask, then by the other."""

    def __init__(self) -> None:
        self._queue: list[int] = []

    def take(self, partition: int) -> None:
        """Ask for the lock: own it if it is free, else wait for it."""
        if partition not in self._queue:
            self._queue.append(partition)

    def drop(self, partition: int) -> None:
        """Give the lock back, or stop waiting for it."""
        if partition in self._queue:
            self._queue.remove(partition)

    def status(self, partition: int) -> BlockStatus:
        """Return the status of the control block that `partition` reads."""
        if partition not in self._queue:
            return BlockStatus.NORMAL
        return BlockStatus.LOCKED if self._queue[0] == partition else BlockStatus.LOCKING


class Shown:
    """The windows in one BAR, which show the peer's memory.

    In BAR2 the look-up windows come first, then the direct window.
    """

    def __init__(self, far: MasterBus, bar: int) -> None:
        self.direct = Window(far, bar)
        self.luts: Sequence[Window] = ()
        if bar == layout.WINDOW_BARS[0]:
            self.luts = tuple(Window(far, bar) for _ in range(layout.LUTS))
        self.counts = self.direct.counts

    def direct_window(self, address: int, length: int) -> None:
        """Open the direct window onto `length` bytes at `address`; length 0 closes it."""
        if length:
            self.direct.open(address, length)
        else:
            self.direct.close()

    def lut_window(self, index: int, address: int | None) -> None:
        """Open look-up window `index` onto `address`; None closes it."""
        if address is None:
            self.luts[index].close()
        else:
            self.luts[index].open(address, layout.LUT_SIZE)

    def close(self) -> bool:
        """Close all windows; return whether any was open."""
        windows = [self.direct, *self.luts]
        seen = any(window.length for window in windows)
        for window in windows:
            window.close()
        return seen

    def place(self, offset: int, length: int) -> Place:
        """Return the target of an access at `offset` of the BAR."""
        if not self.luts:
            return self.direct.place(offset, length)
        index, within = divmod(offset, layout.LUT_SIZE)
        if index >= layout.LUTS:
            return self.direct.place(offset - layout.LUTS * layout.LUT_SIZE, length)
        length = min(length, layout.LUT_SIZE - within)
        if not self.luts[index].length:
            self.counts["closed"] += 1
            return Place(length, fault=CLOSED)
        return self.luts[index].place(within, length)
