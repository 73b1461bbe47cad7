"""A Switchtec switch between two guests, as its NTB driver sees it from one partition.

Link and scratchpads are the drivers' own: words in memory that look-up window 0 shows. The switch
has windows, doorbells, messages and, for a peer that is reset, the link event of a port.
"""

from __future__ import annotations

from bluebridge.device.layout.ntb import switchtec as layout
from bluebridge.device.ntb.shape import BridgeLink, BridgeState, FaultPoints, Shape, Wanted
from bluebridge.device.ntb.switchtec_control import ControlBlocks
from bluebridge.device.ntb.switchtec_messages import DoorbellGate, Inbox
from bluebridge.device.ntb.window import Portal, Window
from bluebridge.device.pci.config_space import Bar, capabilities
from bluebridge.device.pci.host import MasterBus, Place
from bluebridge.device.pci.registers import RegisterFile, Slot

FIRST_MESSAGE = 64 - layout.MESSAGES
"""Index of message 0 in the vector map."""


def shape(wanted: Wanted) -> Shape:
    """Return the shape: registers in BAR0, windows in BAR2 and BAR4.

    Look-up windows and the first direct window are in BAR2, the second direct window is in BAR4.
    """
    first, second = layout.WINDOW_BARS
    return Shape(
        (
            Bar(0, layout.BAR0_SIZE),
            Bar(first, layout.LUTS * layout.LUT_SIZE + wanted.sizes[0], prefetchable=True),
            Bar(second, wanted.sizes[1], prefetchable=True),
        ),
        capabilities(layout.VECTORS, layout.MSIX_TABLE, layout.MSIX_PENDING),
        layout.VECTORS,
        SwitchtecBridge,
    )


class SwitchtecBridge:
    """One partition of a Switchtec switch.

    The first bridge on a link makes the switch, the second joins it.
    """

    def __init__(self, bus: MasterBus, link: BridgeLink) -> None:
        self._bus = bus
        self._peer: SwitchtecBridge | None = None
        self._partition = link.connect(self)
        self._control = ControlBlocks()
        self._registers = RegisterFile(layout.OWN, layout.BAR0_SIZE)
        self._portals = {bar: Portal(bus, bar) for bar in layout.WINDOW_BARS}
        self.windows = self._portals
        self.fault_points = FaultPoints(self._registers, self._windows_here)
        self._gate = DoorbellGate(bus.call_later, self._set_doorbells)
        self._event_count = 0
        self._inbox = Inbox(bus.call_later, self._get, self._set, self._interrupt_for)
        self._describe()

    def join(self, peer: SwitchtecBridge) -> None:
        self._peer, peer._peer = peer, self
        peer._control = self._control
        for bridge in (self, peer):
            self._control.add(bridge._bus)

    def _windows_here(self) -> list[Window]:
        """Return the windows that show the memory of this partition's guest."""
        return self._control.windows_onto(self._partition)

    def _describe(self) -> None:
        own = self._partition
        self._registers.set("SYSTEM", "partition", own)
        self._registers.set("NTB", "partition_id", own)
        self._registers.set("NTB", "requester_id", 0)
        for partition in range(layout.PARTITIONS):
            self._registers.set("PARTITION", "endpoint_port", partition, partition)

    def state(self) -> BridgeState:
        return BridgeState(
            link=None,
            wanted=self._gate.wanted,
            windows=self._control.windows_of(self._partition),
            lines=self._registers.lines() | self._control.lines(self._partition),
            partition=self._partition,
        )

    # -- accesses -----------------------------------------------------------------------------

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Read registers (BAR0), or the peer's memory through a window."""
        if bar:
            return self._portals[bar].read(
                self._control.shown[self._partition][bar], offset, length
            )
        if self._control.holds(offset):
            return self._control.read(self._partition, offset, length)
        return self._registers.read(offset, length)

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Write registers (BAR0), or to the peer's memory through a window."""
        if bar:
            self.store_run(bar, offset, data, len(data))
        elif self._control.holds(offset):
            if self._control.write(self._partition, offset, data):
                self._inbox.began_work()
        else:
            # Doorbells that were set and unmasked before the write have interrupted already.
            unmasked = self._unmasked()
            for slot, value in self._registers.write(offset, data):
                self._written(slot, value, unmasked)

    def _written(self, slot: Slot, value: int, unmasked: int) -> None:
        mine = slot.index == self._partition
        if slot.block == "MESSAGING" and mine:
            if slot.name == "outbound_doorbell":
                bits = value & self._get("outbound_mask")
                if self._peer is not None and bits:
                    self._peer.ring(bits)
            elif slot.name.startswith("outbound") and slot.name[8:].isdigit():
                number = int(slot.name[8:])
                if self._peer is not None:
                    # Drivers tell by it that their link is up (`ntb_hw_switchtec.c: LINK_MESSAGE`).
                    if number == 0:
                        self._gate.sent(value, self._peer._gate)
                    self._peer._inbox.receive(number | self._partition << 2, value)
            elif slot.name in ("inbound_mask", "inbound_doorbell"):
                self._fire(self._unmasked() & ~unmasked)
            elif slot.name == "message_map":
                self._inbox.forget()
            elif slot.name.endswith("_status"):
                self._inbox.taken(int(slot.name[7]))
        elif slot.name == "link_event":
            self._acknowledge("PORT", slot, value)
        elif slot.name == "management_event":
            self._acknowledge("PARTITION", slot, value)
        elif slot.block == "MRPC" and slot.name == "command":
            # End a management command at once with an error, since there is no management.
            self._registers.set("MRPC", "status", layout.MANAGEMENT_ERROR)
            self._registers.set("PARTITION", "management_event", 1, self._partition)
            self._bus.interrupt(layout.EVENT_VECTOR)

    def _acknowledge(self, block: str, slot: Slot, value: int) -> None:
        """Store an event header: writing 1 to bit 0 clears it, the count is read-only."""
        count = self._event_count if block == "PORT" and slot.index != self._partition else 0
        self._registers.set(block, slot.name, value & 0x1E | count << 5, slot.index)

    def store_run(self, bar: int, offset: int, data: bytes, width: int) -> None:
        shown = self._control.shown[self._partition][bar]
        self._portals[bar].write(shown, offset, data, width)

    def aperture(self, bar: int, offset: int, length: int) -> Place | None:
        return self._control.shown[self._partition][bar].place(offset, length) if bar else None

    # -- doorbells and messages ---------------------------------------------------------------

    def _get(self, name: str) -> int:
        return self._registers.get("MESSAGING", name, self._partition)

    def _set(self, name: str, value: int) -> None:
        self._registers.set("MESSAGING", name, value, self._partition)

    def _unmasked(self) -> int:
        return self._get("inbound_doorbell") & self._get("inbound_mask")

    def ring(self, bits: int) -> None:
        if not self.fault_points.loses():
            self._gate.ring(bits)

    def _set_doorbells(self, bits: int) -> None:
        """Set doorbells; each unmasked one interrupts, even if it was already set."""
        self._set("inbound_doorbell", self._get("inbound_doorbell") | bits)
        self._fire(bits & self._get("inbound_mask"))

    def _fire(self, bits: int) -> None:
        vectors = {self._vector(bit) for bit in range(layout.DOORBELLS) if bits >> bit & 1}
        for vector in sorted(vectors):
            self._bus.interrupt(vector)

    def _vector(self, index: int) -> int:
        return self._registers.get(f"VECTOR{self._partition}", "vector", index)

    def _interrupt_for(self, slot: int) -> None:
        self._bus.interrupt(self._vector(FIRST_MESSAGE + slot))

    # -- events -------------------------------------------------------------------------------

    def link_changed(self, up: bool) -> None:
        """Do nothing: the link between the partitions is inside the switch and always up."""

    def peer_lost(self) -> None:
        """Report a link event of the peer's port; the driver then looks for the peer's memory."""
        self._event_count = (self._event_count + 1) & 0xFF
        value = self._event_count << layout.EVENT_COUNT_SHIFT | layout.EVENT_OCCURRED
        self._registers.set("PORT", "link_event", value, 1 - self._partition)
        self._bus.interrupt(layout.EVENT_VECTOR)

    def reset(self) -> None:
        """Reset, after a reset or power loss of the guest.

        The windows onto this guest close, and the peer gets a link event.
        """
        self._registers.reset()
        self._describe()
        self._gate.reset()
        self._inbox.reset()
        if self._control.leave(self._partition) and self._peer is not None:
            self._peer.peer_lost()
