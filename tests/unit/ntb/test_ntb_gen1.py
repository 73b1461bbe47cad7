"""The gen1 bridge: everything of the peer's is reached over the bus in the middle."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ntb import gen1
from bluebridge.device.layout.ntb.gen1 import CONFIGURATION_ERRATUM, DOORBELL_ERRATUM, ERRATA
from bluebridge.device.ntb.errata import WINDOW_SECONDS, Hazards
from bluebridge.device.pci.host import Host
from tests.models.fake_bus import FakeFunction
from tests.models.gen1_pair import BAR2, BAR4, MIDDLE2, SIZE, Pair


@pytest.fixture
def pair() -> Pair:
    """A pair whose link is up."""
    return Pair()


def test_straps_and_sizes_are_in_config_space(pair: Pair) -> None:
    assert [guest.bus.config[gen1.PPD] for guest in (pair.a, pair.b)] == [0x01, 0x11]
    assert pair.a.bus.config[0xD0:0xD3] == bytes([20, 20, 20])


def test_scratchpads_through_the_register_window(pair: Pair) -> None:
    pair.a.bridge.bar_write(4, 0x80 + 4 * 3, (0x1234).to_bytes(4, "little"))
    assert pair.b.read(0x80 + 4 * 3, 4) == 0x1234
    assert pair.a.bridge.bar_read(4, 0x80 + 4 * 3, 4) == (0x1234).to_bytes(4, "little")
    assert pair.a.read(0x80 + 4 * 3, 4) == 0


def test_doorbells_through_the_register_window(pair: Pair) -> None:
    pair.a.bridge.bar_write(4, 0x60, (1 << 14 | 1 << 6).to_bytes(2, "little"))
    assert pair.b.read(0x60, 2) == 1 << 14 | 1 << 6 and pair.b.bus.take_interrupts() == []
    pair.b.write(0x62, 2, 0)
    assert pair.b.bus.take_interrupts() == [1, 2]
    pair.b.write(0x60, 2, 1 << 6)
    assert pair.b.read(0x60, 2) == 1 << 14


def test_the_other_doorbell_register_loses_bit_14_and_is_dangerous(pair: Pair) -> None:
    pair.b.bridge.bar_read(4, 0x80, 4)
    pair.a.write(0x140, 2, 1 << 14 | 1)
    assert pair.b.read(0x60, 2) == 1
    assert pair.a.bridge.hazards.counts[DOORBELL_ERRATUM] == 1


def test_a_window_opens_with_its_limit_and_closes_with_its_translation(pair: Pair) -> None:
    target = pair.b.bus.allocate(SIZE, SIZE)
    pair.b.write(0x30, 8, target)
    assert pair.a.bridge.bar_read(2, 0, 8) == b"\xff" * 8
    pair.b.write(0x20, 8, MIDDLE2 + 0x1000)
    pair.a.bridge.bar_write(2, 0xFF8, b"12345678")
    assert pair.b.bus.peek(target + 0xFF8, 8) == b"12345678"
    assert pair.a.bridge.bar_read(2, 0x1000, 8) == b"\xff" * 8
    pair.b.write(0x30, 8, 0)
    assert pair.a.bridge.bar_read(2, 0xFF8, 8) == b"\xff" * 8
    pair.b.write(0x20, 8, MIDDLE2)
    assert pair.a.bridge.bar_read(2, 0, 8) == b"\xff" * 8


@pytest.mark.parametrize(
    ("translation", "limit"), [(0, MIDDLE2 - 0x1000), (0, 1), (0x70000000, MIDDLE2 + 0x1000)]
)
def test_a_limit_below_the_base_and_a_window_onto_nothing(
    pair: Pair, translation: int, limit: int
) -> None:
    pair.b.write(0x30, 8, translation)
    pair.b.write(0x20, 8, limit)
    pair.a.bridge.bar_write(2, 0, b"straggle")
    assert pair.a.bridge.bar_read(2, 0, 8) == b"\xff" * 8
    place = pair.a.bridge.aperture(2, 0, 8)
    assert place is not None and place.fault


def test_a_whole_window_has_no_limit_and_closes_all_the_same(pair: Pair) -> None:
    target = pair.b.bus.allocate(SIZE, SIZE)
    pair.b.write(0x30, 8, target)
    pair.b.write(0x20, 8, 0)
    pair.a.bridge.bar_write(2, SIZE - 8, b"the last")
    assert pair.b.bus.peek(target + SIZE - 8, 8) == b"the last"
    low = pair.b.bus.map(0, 0x1000)
    pair.b.write(0x30, 8, 0)
    pair.a.bridge.bar_write(2, 0, b"straggle")
    assert bytes(low[:8]) == bytes(8)


def test_a_window_without_a_limit_is_open_from_the_start(pair: Pair) -> None:
    """NTRDMA's options: the register window is BAR2, BAR4 lies at 0 and its limit is its base."""
    pair.b.bus.set_config(0xD3, bytes([20]))
    pair.b.write(0x50, 8, 0)
    pair.b.write(0x28, 8, 0)
    pair.b.write(0x38, 8, 0)
    pair.a.write(0x18, 8, 0)
    low = pair.b.bus.map(0, 0x1000)
    pair.a.bridge.bar_write(4, 0x10, b"12345678")
    assert bytes(low[0x10:0x18]) == b"12345678"


def test_the_engine_reaches_window_and_registers(pair: Pair) -> None:
    target = pair.b.bus.allocate(SIZE, SIZE)
    pair.b.write(0x30, 8, target)
    pair.b.write(0x20, 8, MIDDLE2 + SIZE)
    place = pair.a.bus.place(BAR2 + 0x100, 64)
    assert place.view is not None and place.far == (pair.b.bus, target + 0x100)
    place = pair.a.bus.place(BAR4 + 0x60, 2)
    assert place.store is not None and place.length == 2
    place.store(b"\x01\0")
    assert pair.b.read(0x60, 2) == 1


def test_link_down_closes_all(pair: Pair) -> None:
    pair.b.write(0x58, 4, gen1.LINK_DISABLE)
    assert pair.a.hear_link() == 0 == pair.b.hear_link()
    assert pair.a.bridge.bar_read(4, 0x80, 4) == b"\xff" * 4
    pair.a.bridge.bar_write(4, 0x60, b"\x01\0")
    assert pair.b.read(0x60, 2) == 0
    pair.b.bridge.reset()
    assert pair.b.read(0x58, 4) == 3


@pytest.mark.parametrize("erratum", ERRATA)
def test_an_erratum_played_out_is_a_bridge_that_answers_nothing(erratum: str) -> None:
    """Until its reset; the peer sees the link go, and goes on."""
    pair = Pair(hang=(erratum,))
    pair.b.write(0x30, 8, pair.b.bus.allocate(SIZE, SIZE))
    pair.b.write(0x28, 8, 0)
    pair.b.bridge.bar_read(4, 0x80, 4)  # the peer accesses a's registers
    if erratum == CONFIGURATION_ERRATUM:
        pair.a.bridge.hazards.outbound()
        pair.a.bridge.hazards.inbound()
        assert pair.a.read(0x58, 4) == 0xFFFFFFFF
    else:
        pair.a.write(0x140, 2, 1)
        assert not pair.b.read(0x60, 2) & 1
    assert pair.a.bridge.hazards.hung and not pair.b.bridge.hazards.hung
    assert not pair.link.up and pair.b.hear_link() == 0
    assert pair.a.read(0x80, 4) == 0xFFFFFFFF
    pair.a.write(0x80, 4, 1)
    assert pair.a.bridge.bar_read(2, 0, 4) == b"\xff" * 4
    place = pair.a.bridge.aperture(2, 0, 4)
    assert place is not None and place.fault
    assert pair.a.bus.facts(Fact.BRIDGE_HANGS)
    pair.a.bridge.reset()
    assert pair.a.read(0x80, 4) == 0 and not pair.a.bridge.hazards.hung


def test_hazards_count_what_comes_together_and_nothing_else() -> None:
    now = [100.0]
    hazards = Hazards(FakeFunction("a.ntb1", Host()), lambda: now[0])
    hazards.register_access()
    hazards.outbound()
    hazards.register_access()
    hazards.inbound()
    hazards.register_access()
    now[0] += WINDOW_SECONDS / 2
    hazards.register_access()
    now[0] += WINDOW_SECONDS
    hazards.register_access()
    assert hazards.counts == {CONFIGURATION_ERRATUM: 2}
    hazards.doorbell_access()
    hazards.peer_access()
    hazards.doorbell_access()
    assert hazards.counts[DOORBELL_ERRATUM] == 1
