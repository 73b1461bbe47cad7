"""The Intel bridge of the fourth generation (drivers/ntb/hw/intel/ntb_hw_gen4.c)."""

from __future__ import annotations

from bluebridge.device.layout.ntb import gen4 as layout
from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.guest.drivers.bus.interface import Function
from bluebridge.guest.drivers.ntb.bridge import ENABLED, Bridge, LinkState
from bluebridge.guest.drivers.ntb.window import NtbError, Program, Window
from bluebridge.guest.errors import DeviceError

BARS = (0, *layout.WINDOW_BARS)
ALIGN = 4096
_CONTROL, _LINK = layout.CONTROL, layout.LINK
_DOORBELL = layout.DOORBELL.at("ring")
_STATUS, _DISABLE = _CONTROL.at("int_status"), _CONTROL.at("int_disable")


class Gen4Bridge(Bridge):
    """A fourth-generation bridge, whose registers are all in BAR0."""

    doorbells = layout.DOORBELLS
    spads = layout.SPADS
    _spads_at, _peer_spads_at = layout.SPAD.at("spad"), layout.PEER_SPAD.at("spad")

    def __init__(self, function: Function, model: BridgeModel) -> None:
        straps = function.load(0, _LINK.at("ppd1"), 4)
        if straps not in (layout.UPSTREAM, layout.DOWNSTREAM):
            raise DeviceError(f"the straps {straps:#x} are of no back-to-back bridge")
        self.port = int(straps == layout.DOWNSTREAM)
        super().__init__(function, model, layout.VECTORS)
        self.windows = tuple(
            Window(function, number, bar, ALIGN, self._programmer(number, bar))
            for number, bar in enumerate(layout.WINDOW_BARS)
        )
        for window in self.windows:
            window.clear_translation()
        self._set_mask(self.every_doorbell)
        self._program()

    def _program(self) -> None:
        for bit in range(layout.VECTORS):
            self.function.store(0, layout.INT_VECTORS.at("vector") + bit, 1, bit)

    def _control(self) -> int:
        return self.function.load(0, _CONTROL.at("control"), 4)

    # -- link ---------------------------------------------------------------------------------

    def enable_link(self) -> None:
        load, store = self.function.load, self.function.store
        store(0, _CONTROL.at("control"), 4, ENABLED)
        where = _LINK.at("link_control")
        store(0, where, 2, load(0, where, 2) & ~layout.LINK_DISABLE)
        where = _LINK.at("ppd0")
        store(0, where, 4, load(0, where, 4) | layout.TRAIN)
        if not load(0, where, 4) & layout.TRAIN:
            raise NtbError("the link does not train")

    def disable_link(self) -> None:
        where = _LINK.at("link_control")
        value = self.function.load(0, where, 2) | layout.LINK_DISABLE
        self.function.store(0, where, 2, value & 0xFFFF)

    def link(self) -> LinkState:
        # The slot's status goes first, else the interrupt would stay (gen4_poll_link).
        self.function.store(0, _LINK.at("slot_status"), 2, layout.LINK_CHANGED)
        self.function.store(0, _STATUS, 8, 1 << layout.LINK_BIT)
        return LinkState.of(self.function.load(0, _LINK.at("link_status"), 2))

    @property
    def link_vector(self) -> int:
        return layout.LINK_BIT

    # -- doorbells ----------------------------------------------------------------------------

    def ring(self, bits: int) -> None:
        store, bits = self.function.store, self._known(bits)
        while bits:
            highest = bits.bit_length() - 1
            bits ^= 1 << highest
            store(0, _DOORBELL + 4 * highest, 4, 1)

    def rung(self) -> int:
        return self.function.load(0, _STATUS, 8) & self.every_doorbell

    def _clear_rung(self, bits: int) -> None:
        self.function.store(0, _STATUS, 8, bits)

    def _set_mask(self, bits: int) -> None:
        self.function.store(0, _DISABLE, 8, bits)

    def vectors_of(self, bits: int) -> tuple[int, ...]:
        return tuple(bit for bit in range(self.doorbells) if bits >> bit & 1)

    def _rung_by(self, vectors: list[int]) -> int:
        bits = 0
        for vector in vectors:
            bits |= 1 << vector
        return bits

    # -- windows ------------------------------------------------------------------------------

    def _programmer(self, number: int, bar: int) -> Program:
        base = _CONTROL.at(f"window{number}_base")
        limit = _CONTROL.at(f"window{number}_limit")
        start = self.function.bar(bar)[0]

        def program(address: int, length: int) -> None:
            """Base, then limit, both read back (intel_ntb3_mw_set_trans)."""
            self._store_checked(base, address)
            self._store_checked(limit, start + length)

        return program
