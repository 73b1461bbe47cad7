"""The Intel bridges (drivers/ntb/hw/intel/ntb_hw_gen1.c, ntb_hw_gen4.c).

Between two bridges of the first generation lies a bus on which each shows its windows, at addresses
both sides agree on. This driver reaches the peer's scratchpads and doorbells by the registers for
that, as Linux does without its work-around: so both windows stay windows, and doorbell 14, which
these registers lose, is left out. The erratum of the doorbell registers locks up accesses to the
peer's registers through a window; this driver makes none.
"""

from __future__ import annotations

from bluebridge.device.layout.ntb import gen1, gen4
from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.guest.bus.interface import Function
from bluebridge.guest.drivers.ntb.bridge import ENABLED, Bridge, LinkState
from bluebridge.guest.drivers.ntb.window import NtbError, Program
from bluebridge.guest.errors import DeviceError

BARS = (0, *gen4.WINDOW_BARS)
MIDDLE = {2: 0x2000_0000_0000_0000, 4: 0x4000_0000_0000_0000}
"""The bus addresses of either side's windows on the bus between the bridges.

Linux: ntb_hw_intel.c: xeon_b2b_*_addr.
"""
REGISTERS = 1 << 60
COMMAND = 0x6
"""The command register's bits for memory decoding and bus master on the bus in between."""
ALIGN = 4096
_DOORBELL = gen4.DOORBELL.at("ring")
_STATUS, _DISABLE = gen4.CONTROL.at("int_status"), gen4.CONTROL.at("int_disable")


class Gen1Bridge(Bridge):
    """A first-generation bridge: five doorbells share a vector; link status is in config space."""

    doorbells = gen1.LOST_DOORBELL
    spads = gen1.SPADS
    _control_at = gen1.CONTROL.at("control")
    _spads_at, _peer_spads_at = gen1.SPAD.at("spad"), gen1.PEER_SPAD.at("spad")

    def __init__(self, function: Function, model: BridgeModel) -> None:
        strap = function.load_config(gen1.PPD, 1)
        if strap & 0x3 != gen1.PPD_BACK_TO_BACK:
            raise DeviceError(f"the strap {strap:#x} is of no back-to-back bridge")
        self.port = int(bool(strap & gen1.PPD_DOWNSTREAM))
        super().__init__(function, model, gen1.VECTORS)
        self._program()
        self._begin(gen1.WINDOW_BARS)

    def _program(self) -> None:
        self._store("register0_base", 8, REGISTERS)
        for bar, middle in MIDDLE.items():
            self._store(f"secondary{bar}_base", 8, middle)
            self._store(f"primary{bar}_limit", 8, 0)
            self._store(f"primary{bar}_base", 8, middle)
        self.function.store(0, gen1.SECONDARY.at("command"), 2, COMMAND)

    def _store(self, register: str, width: int, value: int) -> None:
        self.function.store(0, gen1.CONTROL.at(register), width, value)

    # -- link ---------------------------------------------------------------------------------

    def enable_link(self) -> None:
        self._store("control", 4, ENABLED)

    def disable_link(self) -> None:
        self._store("control", 4, gen1.LINK_DISABLE)

    def link(self) -> LinkState:
        self._store("doorbell", 2, 1 << gen1.LINK_BIT)
        return LinkState.of(self.function.load_config(gen1.LINK_STATUS, 2))

    @property
    def link_vector(self) -> int:
        return gen1.LINK_BIT // gen1.DOORBELLS_PER_VECTOR

    # -- doorbells ----------------------------------------------------------------------------

    def ring(self, bits: int) -> None:
        self.function.store(0, gen1.CROSSING.at("b2b_doorbell"), 2, self._known(bits))

    def rung(self) -> int:
        return self.function.load(0, gen1.CONTROL.at("doorbell"), 2) & self.every_doorbell

    def _clear_rung(self, bits: int) -> None:
        self._store("doorbell", 2, bits)

    def _set_mask(self, bits: int) -> None:
        self._store("doorbell_mask", 2, bits)

    def vectors_of(self, bits: int) -> tuple[int, ...]:
        each = gen1.DOORBELLS_PER_VECTOR
        return tuple(sorted({n // each for n in range(self.doorbells) if bits >> n & 1}))

    def _rung_by(self, vectors: list[int]) -> int:
        """Return the doorbells that have rung out of the register, since five share a vector."""
        return self.rung()

    # -- windows ------------------------------------------------------------------------------

    def _programmer(self, number: int, bar: int) -> Program:
        middle = MIDDLE[bar]

        def program(address: int, length: int) -> None:
            """Translation, then limit, both read back (intel_ntb_mw_set_trans)."""
            self._store_checked(gen1.CONTROL.at(f"secondary{bar}_translation"), address)
            self._store_checked(gen1.CONTROL.at(f"secondary{bar}_limit"), middle + length)

        return program


class Gen4Bridge(Bridge):
    """A fourth-generation bridge, whose registers are all in BAR0."""

    doorbells = gen4.DOORBELLS
    spads = gen4.SPADS
    _control_at = gen4.CONTROL.at("control")
    _spads_at, _peer_spads_at = gen4.SPAD.at("spad"), gen4.PEER_SPAD.at("spad")

    def __init__(self, function: Function, model: BridgeModel) -> None:
        straps = function.load(0, gen4.LINK.at("ppd1"), 4)
        if straps not in (gen4.UPSTREAM, gen4.DOWNSTREAM):
            raise DeviceError(f"the straps {straps:#x} are of no back-to-back bridge")
        self.port = int(straps == gen4.DOWNSTREAM)
        super().__init__(function, model, gen4.VECTORS)
        self._begin(gen4.WINDOW_BARS, ALIGN)
        self._program()

    def _program(self) -> None:
        for bit in range(gen4.VECTORS):
            self.function.store(0, gen4.INT_VECTORS.at("vector") + bit, 1, bit)

    # -- link ---------------------------------------------------------------------------------

    def enable_link(self) -> None:
        load, store = self.function.load, self.function.store
        store(0, gen4.CONTROL.at("control"), 4, ENABLED)
        where = gen4.LINK.at("link_control")
        store(0, where, 2, load(0, where, 2) & ~gen4.LINK_DISABLE)
        where = gen4.LINK.at("ppd0")
        store(0, where, 4, load(0, where, 4) | gen4.TRAIN)
        if not load(0, where, 4) & gen4.TRAIN:
            raise NtbError("the link does not train")

    def disable_link(self) -> None:
        where = gen4.LINK.at("link_control")
        value = self.function.load(0, where, 2) | gen4.LINK_DISABLE
        self.function.store(0, where, 2, value & 0xFFFF)

    def link(self) -> LinkState:
        # The slot's status goes first, else the interrupt would stay (gen4_poll_link).
        self.function.store(0, gen4.LINK.at("slot_status"), 2, gen4.LINK_CHANGED)
        self.function.store(0, _STATUS, 8, 1 << gen4.LINK_BIT)
        return LinkState.of(self.function.load(0, gen4.LINK.at("link_status"), 2))

    @property
    def link_vector(self) -> int:
        return gen4.LINK_BIT

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
        base = gen4.CONTROL.at(f"window{number}_base")
        limit = gen4.CONTROL.at(f"window{number}_limit")
        start = self.function.bar(bar)[0]

        def program(address: int, length: int) -> None:
            """Base, then limit, both read back (intel_ntb3_mw_set_trans)."""
            self._store_checked(base, address)
            self._store_checked(limit, start + length)

        return program
