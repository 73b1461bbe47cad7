"""The Intel NTB of the first generation, one side of a back-to-back pair.

Between two of them lies a bus of its own. A window's BAR shows a stretch of that bus, beginning at
`primary*_base`; the peer answers there with its registers and with its windows, wherever its
driver has put them. So a driver reaches the peer's registers through a window.
"""

from __future__ import annotations

from collections.abc import Collection

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ntb import gen1 as layout
from bluebridge.device.ntb.errata import Hazards
from bluebridge.device.ntb.shape import (
    BridgeLink,
    BridgeState,
    FaultPoints,
    Shape,
    Wanted,
    window_state,
)
from bluebridge.device.ntb.window import Portal, Window
from bluebridge.device.pci.config_space import Bar, capabilities
from bluebridge.device.pci.function import ConfigRegister
from bluebridge.device.pci.host import CLOSED, MasterBus, Place, register_width
from bluebridge.device.pci.registers import RegisterFile

TYPE_BITS = 0xF
EVERYTHING = 1 << 64


def shape(wanted: Wanted) -> Shape:
    """Return the shape: registers in BAR0, both windows, four vectors, straps in config space."""
    windows = zip(layout.WINDOW_BARS, wanted.sizes, strict=True)
    return Shape(
        (
            Bar(0, layout.BAR0_SIZE, prefetchable=True),
            *(Bar(index, size, prefetchable=True) for index, size in windows),
        ),
        capabilities(layout.VECTORS, layout.MSIX_TABLE, layout.MSIX_PENDING),
        layout.VECTORS,
        lambda bus, link: Gen1Bridge(bus, link, wanted.hang),
        (config_registers(wanted.sizes, False), config_registers(wanted.sizes, True)),
    )


def config_registers(sizes: tuple[int, int], downstream: bool) -> tuple[ConfigRegister, ...]:
    """Return the registers for window sizes, strap and link status in config space."""
    found = []
    for bar, size in zip(layout.WINDOW_BARS, sizes, strict=True):
        log2 = size.bit_length() - 1
        found.append(ConfigRegister(layout.PRIMARY_SIZES[bar], "<B", log2))
        found.append(ConfigRegister(layout.SECONDARY_SIZES[bar], "<B", log2, 0xFF))
    strap = layout.PPD_BACK_TO_BACK | (layout.PPD_DOWNSTREAM if downstream else 0)
    found.append(ConfigRegister(layout.PPD, "<B", strap))
    found.append(ConfigRegister(layout.LINK_STATUS, "<H", 0))
    return tuple(found)


class Gen1Bridge:
    """A first-generation bridge: registers in BAR0, windows to the middle bus in BAR2 and BAR4."""

    def __init__(self, bus: MasterBus, link: BridgeLink, hang: Collection[str] = ()) -> None:
        """`hang` are the errata after which the bridge hangs: it then answers no access."""
        self._bus = bus
        self._link = link
        self._registers = RegisterFile(layout.BLOCKS, layout.BAR0_SIZE)
        self.hazards = Hazards(bus, hang=hang, on_hang=self._hang)
        self.windows = {bar: Window(bus, bar) for bar in layout.WINDOW_BARS}
        self._portals = {bar: Portal(bus, bar) for bar in layout.WINDOW_BARS}
        self._crossings = {bar: Crossing(self, bar) for bar in layout.WINDOW_BARS}
        self._peer: Gen1Bridge | None = None
        pads = range(layout.SPAD.base, layout.SPAD.base + layout.SPAD.size, layout.SPAD.stride)
        self.fault_points = FaultPoints(self._registers, self.windows.values, pads)
        self._number = link.connect(self)
        bus.watch_config(self._config_read)

    def join(self, peer: Gen1Bridge) -> None:
        self._peer, peer._peer = peer, self

    @property
    def reachable(self) -> Gen1Bridge | None:
        """The bridge at the other end of the link while the link is up, else None."""
        return self._peer if self._link.up else None

    def state(self) -> BridgeState:
        return BridgeState(
            link=self._link.up,
            lost=self._link.lost,
            windows=[window_state(bar, window) for bar, window in self.windows.items()],
            lines=self._registers.lines(),
            hung=self.hazards.hung,
        )

    # -- accesses -----------------------------------------------------------------------------

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Read registers (BAR0), or what a window shows of the middle bus."""
        if bar:
            shown = None if self.hazards.hung else self._crossings[bar]
            return self._portals[bar].read(shown, offset, length)
        self.hazards.register_access()
        if self.hazards.hung:
            return b"\xff" * length
        block = layout.PEER_SPAD
        if block.base <= offset < block.base + block.size:
            peer = self.reachable
            own = offset - block.base + layout.SPAD.base
            return bytes(length) if peer is None else peer._registers.read(own, length)
        return self._registers.read(offset, length)

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Write registers (BAR0), or to the middle bus through a window."""
        if bar:
            self.store_run(bar, offset, data, len(data))
            return
        self.hazards.register_access()
        if self.hazards.hung:
            return
        unmasked = self._unmasked()
        for slot, value in self._registers.write(offset, data):
            if slot.block == "PEER_SPAD" and self.reachable is not None:
                self.reachable._registers.set("SPAD", "spad", value, slot.index)
            elif slot.name in ("b2b_doorbell", "secondary_doorbell"):
                self.hazards.doorbell_access()
                self._link.ring_peer(self._number, value & ~(1 << layout.LOST_DOORBELL))
            elif slot.name in ("doorbell", "doorbell_mask"):
                self._fire(self._unmasked() & ~unmasked)
            elif slot.name == "control":
                disabled = bool(value & layout.LINK_DISABLE)
                self._link.ready(self._number, not disabled)
            elif slot.name[:10] in ("secondary2", "secondary4"):
                self._program(slot.name)

    def store_run(self, bar: int, offset: int, data: bytes, width: int) -> None:
        shown = None if self.hazards.hung else self._crossings[bar]
        self._portals[bar].write(shown, offset, data, width)

    def aperture(self, bar: int, offset: int, length: int) -> Place | None:
        if bar and self.hazards.hung:
            return Place(length, fault=CLOSED)
        return self._crossings[bar].place(offset, length) if bar else None

    def reset(self) -> None:
        """Return to the power-on state, after a reset or power loss."""
        self.hazards.revive()
        self._registers.set("NTB1", "doorbell_mask", 0xFFFF)
        self._link.ready(self._number, False)
        for window in self.windows.values():
            window.close()
        self._registers.reset()
        self._bus.set_config(layout.LINK_STATUS, (0).to_bytes(2, "little"))

    def _hang(self) -> None:
        """Hang the bridge: the peer sees the link go down, this side gets no more interrupts."""
        self._registers.set("NTB1", "doorbell_mask", 0xFFFF)
        self._link.ready(self._number, False)

    # -- link and interrupts ------------------------------------------------------------------

    def _config_read(self, offset: int, length: int) -> None:
        if offset <= layout.LINK_STATUS < offset + length:
            self._link.status_read(self._number)

    def link_changed(self, up: bool) -> None:
        """Set the link status and ring the link's doorbell bit.

        The driver compares the status with the one it knew.
        """
        status = layout.LINK_UP if up else 0
        self._bus.tell(Fact.BRIDGE_LINK, link=up)
        self._bus.set_config(layout.LINK_STATUS, status.to_bytes(2, "little"))
        self._set_doorbells(1 << layout.LINK_BIT)

    def ring(self, bits: int) -> None:
        if not self.fault_points.loses():
            self._set_doorbells(bits)

    def _set_doorbells(self, bits: int) -> None:
        """Set bits of the doorbell register; each unmasked one interrupts."""
        bits &= 0xFFFF
        self._registers.set("NTB1", "doorbell", self._registers.get("NTB1", "doorbell") | bits)
        self._fire(bits & ~self._registers.get("NTB1", "doorbell_mask"))

    def _unmasked(self) -> int:
        pending = self._registers.get("NTB1", "doorbell")
        return pending & ~self._registers.get("NTB1", "doorbell_mask")

    def _fire(self, bits: int) -> None:
        vectors = {bit // layout.DOORBELLS_PER_VECTOR for bit in range(16) if bits >> bit & 1}
        for vector in sorted(vectors):
            self._bus.interrupt(vector)

    # -- the middle bus -----------------------------------------------------------------------

    def outgoing(self, bar: int, offset: int) -> int | None:
        """Return the middle-bus address of `offset` in a window's BAR, None past its limit."""
        address = self._registers.get("NTB1", f"primary{bar}_base") + offset
        limit = self._registers.get("NTB1", f"primary{bar}_limit")
        return address if not limit or address < limit else None

    def _program(self, name: str) -> None:
        """Open or close a window after a write to its translation, limit or base register.

        A write of the translation closes the window, one of the limit then opens it. A limit of 0
        means no limit: intel_ntb_mw_set_trans writes it for a whole window. A window at address 0
        is never closed, since a limit equal to its base is 0 and so no limit; therefore NTRDMA has
        a window that is open from the driver's probe on.
        """
        bar = int(name[len("secondary")])
        start = self._start(bar)
        if name.endswith("translation") and start:
            self.windows[bar].close()
            return
        limit = self._registers.get("NTB1", f"secondary{bar}_limit") or EVERYTHING
        length = min(limit - start, self._size(bar))
        if length > 0:
            translation = self._registers.get("NTB1", f"secondary{bar}_translation")
            self.windows[bar].open(translation, length)
        else:
            self.windows[bar].close()

    def _start(self, bar: int) -> int:
        return self._registers.get("NTB1", f"secondary{bar}_base") & ~TYPE_BITS

    def _size(self, bar: int) -> int:
        """Return the bytes of a window on the middle bus.

        They are in a size byte of configuration space, which the driver may change.
        """
        log2 = self._bus.get_config(layout.SECONDARY_SIZES[bar], 1)[0]
        return 1 << log2 if 0 < log2 < 64 else 0

    def answer(self, address: int, length: int) -> Place:
        """Return the target of the peer's access to the middle bus: a register, else a window."""
        shown = self._registers.get("NTB1", "register0_base") & ~TYPE_BITS
        if shown <= address < shown + layout.REGISTERS_SHOWN:
            return self._shown_register(address - shown, length)
        for bar, window in self.windows.items():
            offset = address - self._start(bar)
            if window.length and 0 <= offset < min(window.length, self._size(bar)):
                self.hazards.inbound()
                return window.place(offset, length)
        return Place(length, fault=CLOSED)

    def _shown_register(self, offset: int, length: int) -> Place:
        width = register_width(offset, length)

        def load() -> bytes:
            self.hazards.peer_access()
            return self._registers.read(offset, width)

        def store(data: bytes) -> None:
            self.hazards.peer_access()
            if offset == layout.CONTROL.at("doorbell"):
                peer = self._peer
                if peer is not None:
                    self._link.ring_peer(peer._number, int.from_bytes(data[:2], "little"))
            elif layout.SPAD.base <= offset < layout.SPAD.base + layout.SPAD.size:
                for _ in self._registers.write(offset, data):
                    pass  # storage, and nothing else happens

        return Place(width, load=load, store=store)


class Crossing:
    """The middle bus as one window BAR of this bridge shows it."""

    def __init__(self, bridge: Gen1Bridge, bar: int) -> None:
        self._bridge = bridge
        self._bar = bar
        self.counts = bridge.windows[bar].counts

    def place(self, offset: int, length: int) -> Place:
        """Return the target of an access to the window, clipped to what the target holds."""
        peer = self._bridge.reachable
        address = self._bridge.outgoing(self._bar, offset)
        if peer is None or address is None:
            return Place(length, fault=CLOSED)
        found = peer.answer(address, length)
        if found.view is not None:
            self._bridge.hazards.outbound()
        return found
