"""The Intel NTB of the fourth generation, one side of a back-to-back pair."""

from __future__ import annotations

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ntb import gen4 as layout
from bluebridge.device.layout.ntb.models import WINDOW_BYTES, BarSizes
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
from bluebridge.device.pci.host import CLOSED, MasterBus, Place
from bluebridge.device.pci.registers import RegisterFile

WIDE_BAR = layout.WINDOW_BARS[1]
SMALL = WINDOW_BYTES[BarSizes.SMALL]
_PEER_SPADS = range(layout.PEER_SPAD.base, layout.PEER_SPAD.base + layout.PEER_SPAD.size)


def shape(wanted: Wanted) -> Shape:
    """Return the shape: registers in BAR0, both windows, vectors for doorbells and link.

    There is one vector for each doorbell and one for the link.
    """
    static = frozenset({WIDE_BAR} if wanted.alias else ())
    windows = zip(layout.WINDOW_BARS, wanted.sizes, strict=True)
    return Shape(
        (
            Bar(0, layout.BAR0_SIZE, prefetchable=True),
            *(Bar(index, size, prefetchable=True) for index, size in windows),
        ),
        capabilities(layout.VECTORS, layout.MSIX_TABLE, layout.MSIX_PENDING, 4),
        layout.VECTORS,
        lambda bus, link: Gen4Bridge(bus, link, wanted.sizes, static),
    )


class Gen4Bridge:
    """A fourth-generation bridge: registers in BAR0, windows to the peer's memory in BAR2 and BAR4.

    The first bridge on a link is the upstream side, the second the downstream one.
    """

    def __init__(
        self,
        bus: MasterBus,
        link: BridgeLink,
        sizes: tuple[int, int] = SMALL,
        static: frozenset[int] = frozenset(),
    ) -> None:
        """`static` are window BARs that always show the owner's bus from address 0 on."""
        self._bus = bus
        self._link = link
        self._sizes = dict(zip(layout.WINDOW_BARS, sizes, strict=True))
        self._registers = RegisterFile(layout.BLOCKS, layout.BAR0_SIZE)
        self.windows = {bar: Window(bus, bar) for bar in layout.WINDOW_BARS}
        self._portals = {bar: Portal(bus, bar) for bar in layout.WINDOW_BARS}
        self._static = static
        self._open_static()
        self._peer: Gen4Bridge | None = None
        pads = range(layout.SPAD.base, layout.SPAD.base + layout.SPAD.size, layout.SPAD.stride)
        self.fault_points = FaultPoints(self._registers, self.windows.values, pads)
        self._number = link.connect(self)
        self._strap()

    def join(self, peer: Gen4Bridge) -> None:
        self._peer, peer._peer = peer, self

    def _strap(self) -> None:
        side = (layout.UPSTREAM, layout.DOWNSTREAM)[self._number]
        self._registers.set("LINK", "ppd1", side)

    def state(self) -> BridgeState:
        return BridgeState(
            link=self._link.up,
            lost=self._link.lost,
            windows=[window_state(bar, window) for bar, window in self.windows.items()],
            lines=self._registers.lines(),
        )

    # -- accesses -----------------------------------------------------------------------------

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Read registers (BAR0), or the peer's memory through a window."""
        if bar:
            return self._portals[bar].read(self._outbound(bar), offset, length)
        if offset in _PEER_SPADS:
            if self._peer is None:
                return bytes(length)
            own = offset - layout.PEER_SPAD.base + layout.SPAD.base
            return self._peer._registers.read(own, length)
        if offset == layout.LINK.at("link_status"):
            self._link.status_read(self._number)
        return self._registers.read(offset, length)

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Write registers (BAR0), or to the peer's memory through a window."""
        if bar:
            self._portals[bar].write(self._outbound(bar), offset, data)
            return
        if offset in _PEER_SPADS:
            if self._peer is not None:
                own = offset - layout.PEER_SPAD.base + layout.SPAD.base
                self._peer._store_spads(own, data)
            return
        # A ring of the peer, the most frequent write, changes no interrupt of this side.
        unmasked = self._unmasked() if offset < layout.DOORBELL.base else 0
        for slot, value in self._registers.write(offset, data):
            if slot.block == "DOORBELL":
                if value & 1:
                    self._link.ring_peer(self._number, 1 << slot.index)
            elif slot.name in ("int_disable", "int_status"):
                self._fire(self._unmasked() & ~unmasked)
            elif slot.name.startswith("window"):
                self._program(slot.name)
            elif slot.name in ("link_control", "ppd0"):
                disabled = self._registers.get("LINK", "link_control") & layout.LINK_DISABLE
                trains = self._registers.get("LINK", "ppd0") & layout.TRAIN
                self._link.ready(self._number, bool(trains and not disabled))

    def store_run(self, bar: int, offset: int, data: bytes, width: int) -> None:
        self._portals[bar].write(self._outbound(bar), offset, data, width)

    def _store_spads(self, offset: int, data: bytes) -> None:
        for _ in self._registers.write(offset, data):
            pass  # storage, and nothing else happens

    def aperture(self, bar: int, offset: int, length: int) -> Place | None:
        if not bar:
            return None
        window = self._outbound(bar)
        if window is None:
            return Place(length, fault=CLOSED)
        return window.place(offset, length)

    def reset(self) -> None:
        """Return to the power-on state after a reset or power loss.

        The link goes down and the windows close.
        """
        for window in self.windows.values():
            window.close()
        self._open_static()
        # The end of the link must not interrupt a guest that starts anew.
        self._registers.set("NTB4", "int_disable", (1 << 64) - 1)
        self._link.ready(self._number, False)
        self._registers.reset()
        self._strap()

    # -- link and interrupts ------------------------------------------------------------------

    def link_changed(self, up: bool) -> None:
        """Set the link status and the event bit.

        The driver compares the status with the one it knew.
        """
        self._registers.set("LINK", "link_status", layout.LINK_UP if up else 0)
        self._registers.set("LINK", "slot_status", layout.LINK_CHANGED)
        self._bus.tell(Fact.BRIDGE_LINK, link=up)
        self._set_doorbells(1 << layout.LINK_BIT)

    def ring(self, bits: int) -> None:
        if not self.fault_points.loses():
            self._set_doorbells(bits)

    def _set_doorbells(self, bits: int) -> None:
        """Set bits of int_status; each unmasked one interrupts, even if it was set already."""
        status = self._registers.get("NTB4", "int_status") | bits
        self._registers.set("NTB4", "int_status", status)
        self._fire(bits & ~self._registers.get("NTB4", "int_disable"))

    def _unmasked(self) -> int:
        pending = self._registers.get("NTB4", "int_status")
        return pending & ~self._registers.get("NTB4", "int_disable")

    def _fire(self, bits: int) -> None:
        bits &= (1 << layout.VECTORS) - 1
        while bits:
            lowest = bits & -bits
            bits ^= lowest
            self._bus.interrupt(self._registers.get("INTVEC", "vector", lowest.bit_length() - 1))

    # -- windows ------------------------------------------------------------------------------

    def _open_static(self) -> None:
        for bar in self._static:
            self.windows[bar].open(0, self._sizes[bar])

    def _outbound(self, bar: int) -> Window | None:
        """Return the peer's window behind BAR `bar`, None while the link is down."""
        if self._peer is None or not self._link.up:
            return None
        return self._peer.windows[bar]

    def _program(self, name: str) -> None:
        """Close a window on a write of its base, open it on that of its limit.

        This is the order of intel_ntb3_mw_set_trans. The limit is an address in this side's own
        BAR: the open length is limit minus base.
        """
        index = int(name[len("window")])
        bar = layout.WINDOW_BARS[index]
        if bar in self._static:
            return
        window = self.windows[bar]
        if name.endswith("base"):
            window.close()
            return
        start = self._bus.bar_base(bar)
        length = self._registers.get("NTB4", name) - start if start is not None else 0
        if 0 < length <= self._sizes[bar]:
            window.open(self._registers.get("NTB4", f"window{index}_base"), length)
        else:
            window.close()
