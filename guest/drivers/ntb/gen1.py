"""The Intel bridge of the first generation (drivers/ntb/hw/intel/ntb_hw_gen1.c).

Between two such bridges lies a bus on which each shows its windows, at addresses both sides agree
on. This driver reaches the peer's scratchpads and doorbells by the registers for that, as Linux
does without its work-around: so both windows stay windows, and doorbell 14, which these registers
lose, is left out. The erratum of the doorbell registers locks up accesses to the peer's registers
through a window; this driver makes none.
"""

from __future__ import annotations

from bluebridge.device.layout.ntb import gen1 as layout
from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.guest.drivers.bus.interface import Function
from bluebridge.guest.drivers.ntb.bridge import ENABLED, Bridge, LinkState
from bluebridge.guest.drivers.ntb.window import Program, Window
from bluebridge.guest.errors import DeviceError

BARS = (0, *layout.WINDOW_BARS)
MIDDLE = {2: 0x2000_0000_0000_0000, 4: 0x4000_0000_0000_0000}
"""The bus addresses of either side's windows on the bus between the bridges.

Linux: ntb_hw_intel.c: xeon_b2b_*_addr.
"""
REGISTERS = 1 << 60
COMMAND = 0x6
"""The command register's bits for memory decoding and bus master on the bus in between."""
LINK_BIT = 1 << layout.LINK_BIT
_CONTROL = layout.CONTROL


class Gen1Bridge(Bridge):
    """A first-generation bridge: five doorbells share a vector; link status is in config space."""

    doorbells = layout.LOST_DOORBELL
    spads = layout.SPADS
    _spads_at, _peer_spads_at = layout.SPAD.at("spad"), layout.PEER_SPAD.at("spad")

    def __init__(self, function: Function, model: BridgeModel) -> None:
        strap = function.load_config(layout.PPD, 1)
        if strap & 0x3 != layout.PPD_BACK_TO_BACK:
            raise DeviceError(f"the strap {strap:#x} is of no back-to-back bridge")
        self.port = int(bool(strap & layout.PPD_DOWNSTREAM))
        super().__init__(function, model, layout.VECTORS)
        self._program()
        self.windows = tuple(
            Window(function, number, bar, function.bar(bar)[1], self._programmer(bar))
            for number, bar in enumerate(layout.WINDOW_BARS)
        )
        for window in self.windows:
            window.clear_translation()
        self._set_mask(self.every_doorbell)

    def _program(self) -> None:
        self._store("register0_base", 8, REGISTERS)
        for bar, middle in MIDDLE.items():
            self._store(f"secondary{bar}_base", 8, middle)
            self._store(f"primary{bar}_limit", 8, 0)
            self._store(f"primary{bar}_base", 8, middle)
        self.function.store(0, layout.SECONDARY.at("command"), 2, COMMAND)

    def _control(self) -> int:
        return self.function.load(0, _CONTROL.at("control"), 4)

    def _store(self, register: str, width: int, value: int) -> None:
        self.function.store(0, _CONTROL.at(register), width, value)

    # -- link ---------------------------------------------------------------------------------

    def enable_link(self) -> None:
        self._store("control", 4, ENABLED)

    def disable_link(self) -> None:
        self._store("control", 4, layout.LINK_DISABLE)

    def link(self) -> LinkState:
        self._store("doorbell", 2, LINK_BIT)
        return LinkState.of(self.function.load_config(layout.LINK_STATUS, 2))

    @property
    def link_vector(self) -> int:
        return layout.LINK_BIT // layout.DOORBELLS_PER_VECTOR

    # -- doorbells ----------------------------------------------------------------------------

    def ring(self, bits: int) -> None:
        self.function.store(0, layout.CROSSING.at("b2b_doorbell"), 2, self._known(bits))

    def rung(self) -> int:
        return self.function.load(0, _CONTROL.at("doorbell"), 2) & self.every_doorbell

    def _clear_rung(self, bits: int) -> None:
        self._store("doorbell", 2, bits)

    def _set_mask(self, bits: int) -> None:
        self._store("doorbell_mask", 2, bits)

    def vectors_of(self, bits: int) -> tuple[int, ...]:
        each = layout.DOORBELLS_PER_VECTOR
        return tuple(sorted({n // each for n in range(self.doorbells) if bits >> n & 1}))

    def _rung_by(self, vectors: list[int]) -> int:
        """Return the doorbells that have rung out of the register, since five share a vector."""
        return self.rung()

    # -- windows ------------------------------------------------------------------------------

    def _programmer(self, bar: int) -> Program:
        middle = MIDDLE[bar]

        def program(address: int, length: int) -> None:
            """Translation, then limit, both read back (intel_ntb_mw_set_trans)."""
            self._store_checked(_CONTROL.at(f"secondary{bar}_translation"), address)
            self._store_checked(_CONTROL.at(f"secondary{bar}_limit"), middle + length)

        return program
