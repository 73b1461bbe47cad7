"""The gen4 bridge: link, doorbells, scratchpads and windows, as the driver uses them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.ntb import gen4
from bluebridge.device.ntb.shape import HOLD_SECONDS, TRAINING_SECONDS
from tests.models.ntb_pair import REGISTERS, SIZE, WINDOW0, WINDOW1, Pair


@pytest.fixture
def pair() -> Pair:
    """A pair whose link is up."""
    found = Pair()
    found.bring_up()
    return found


def test_the_straps_tell_the_sides_apart() -> None:
    pair = Pair()
    assert (pair.a.read(0xB4C0, 4), pair.b.read(0xB4C0, 4)) == (0x0200, 0x4200)
    pair.a.write(0xB4C0, 4, 0)
    assert pair.a.read(0xB4C0, 4) == 0x0200


def test_the_link_trains_before_it_is_up() -> None:
    pair = Pair()
    for guest in (pair.a, pair.b):
        guest.probe()
    pair.a.enable_link()
    pair.wait(1.0)
    assert pair.a.read(0xB052, 2) == 0
    pair.b.enable_link()
    pair.wait(TRAINING_SECONDS / 2)
    assert pair.a.read(0xB052, 2) == 0
    pair.b.disable_link()
    pair.wait(1.0)
    assert not pair.link.up
    pair.b.enable_link()
    pair.wait(TRAINING_SECONDS)
    assert pair.a.read(0xB052, 2) == pair.b.read(0xB052, 2) == gen4.LINK_UP
    assert pair.a.read(0xB05A, 2) == gen4.LINK_CHANGED


def test_the_link_goes_down_at_once_on_both_sides(pair: Pair) -> None:
    pair.b.disable_link()
    for guest in (pair.a, pair.b):
        assert guest.bus.take_interrupts() == [gen4.LINK_BIT]
        assert guest.hear_link() == 0
        assert guest.read(0x40, 8) == 0 and guest.read(0xB05A, 2) == 0


def test_a_reset_of_the_peer_is_its_power_loss(pair: Pair) -> None:
    pair.b.open_window(0, 0x100000, 0x1000)
    pair.b.bridge.reset()
    assert pair.a.hear_link() == 0
    assert pair.a.bridge.bar_read(2, 0, 8) == b"\xff" * 8
    assert pair.b.read(0x40, 8) == 0 and pair.b.read(0xB050, 2) == gen4.LINK_DISABLE


def test_doorbells_ring_masked_ones_wait(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.write(0x100 + 4 * 7, 4, 1)
    a.write(0x100 + 4 * 9, 4, 2)  # bit 0 is the order
    assert b.read(0x40, 8) == 1 << 7 and b.bus.take_interrupts() == []
    b.write(0x48, 8, 0xFFFFFFFF & ~(1 << 7))
    assert b.bus.take_interrupts() == [7]
    a.write(0x100 + 4 * 7, 4, 1)
    assert b.bus.take_interrupts() == [7]  # each ring, though the bit is still set
    b.write(0x40, 8, 1 << 7)
    assert b.read(0x40, 8) == 0
    b.write(0x48, 8, 0xFFFFFFFF)
    b.write(0x48, 8, 0)
    assert b.bus.take_interrupts() == []


@given(st.lists(st.tuples(st.sampled_from(["ring", "mask", "clear"]), st.integers(0, 0xFFFFFFFF))))
def test_an_unmasked_bit_has_told_of_every_ring(orders: list[tuple[str, int]]) -> None:
    """Against a model of sets: who is pending, who interrupts."""
    pair = Pair()
    pair.bring_up()
    pending: set[int] = set()
    masked = set(range(32))
    for order, value in orders:
        bits = {bit for bit in range(32) if value >> bit & 1}
        expected: list[int] = []
        if order == "ring":
            for bit in sorted(bits):
                pair.a.write(0x100 + 4 * bit, 4, 1)
            expected = sorted(bits - masked)
            pending |= bits
        elif order == "mask":
            pair.b.write(0x48, 8, value)
            expected = sorted((pending & masked) - bits)
            masked = bits
        else:
            pair.b.write(0x40, 8, value)
            pending -= bits
        assert pair.b.bus.take_interrupts() == expected
        assert pair.b.read(0x40, 8) == sum(1 << bit for bit in pending)


def test_vectors_go_where_the_map_says(pair: Pair) -> None:
    pair.b.write(0x50 + 3, 1, 20)
    pair.b.write(0x48, 8, 0)
    pair.a.write(0x100 + 4 * 3, 4, 1)
    assert pair.b.bus.take_interrupts() == [20]


def test_a_doorbell_waits_until_the_receiver_knows_of_the_link() -> None:
    pair = Pair()
    for guest in (pair.a, pair.b):
        guest.probe()
        guest.enable_link()
    pair.wait(TRAINING_SECONDS)
    pair.b.write(0x48, 8, 0)
    pair.a.write(0x100, 4, 1)
    pair.wait(1.0)
    assert pair.b.read(0x40, 8) == 1 << gen4.LINK_BIT
    pair.b.hear_link()
    assert pair.b.read(0x40, 8) == 0
    pair.wait(HOLD_SECONDS)
    assert pair.b.read(0x40, 8) == 1
    assert pair.b.bus.take_interrupts() == [gen4.LINK_BIT, 0]


def test_a_held_doorbell_dies_with_the_link() -> None:
    pair = Pair()
    for guest in (pair.a, pair.b):
        guest.probe()
        guest.enable_link()
    pair.wait(TRAINING_SECONDS)
    pair.a.write(0x100, 4, 1)
    pair.a.disable_link()
    pair.b.hear_link()
    pair.wait(1.0)
    assert pair.b.read(0x40, 8) & 1 == 0
    pair.a.write(0x100, 4, 1)
    assert pair.link.lost == 1
    pair.a.enable_link()
    pair.wait(TRAINING_SECONDS)
    pair.b.hear_link()
    pair.wait(HOLD_SECONDS)
    assert pair.link.up and pair.b.read(0x40, 8) & 1 == 0, "nor does it come with the next link"


def test_scratchpads_are_the_peers_of_the_peer(pair: Pair) -> None:
    pair.a.write(0x8080 + 4 * 5, 4, 0x12345678)
    assert pair.b.read(0x80 + 4 * 5, 4) == 0x12345678
    assert pair.a.read(0x8080 + 4 * 5, 4) == 0x12345678
    assert pair.a.read(0x80 + 4 * 5, 4) == 0
    pair.a.disable_link()
    assert pair.a.read(0x8080 + 4 * 5, 4) == 0x12345678
    pair.b.bridge.reset()
    assert pair.a.read(0x8080 + 4 * 5, 4) == 0


def test_a_window_shows_the_peers_memory(pair: Pair) -> None:
    target = pair.b.bus.allocate(0x2000)
    pair.b.open_window(0, target, 0x2000)
    pair.a.bridge.bar_write(2, 0x1FFC, b"abcd")
    assert pair.b.bus.peek(target + 0x1FFC, 4) == b"abcd"
    assert pair.a.bridge.bar_read(2, 0x1FFC, 4) == b"abcd"
    pair.a.bridge.bar_write(2, 0x1FFE, b"wxyz")  # its second half is outside
    assert pair.b.bus.peek(target + 0x1FFC, 4) == b"abwx"
    assert pair.a.bridge.bar_read(2, 0x1FFE, 4) == b"wx\xff\xff"
    assert pair.a.bridge.bar_read(4, 0, 4) == b"\xff" * 4


def test_a_window_closes_with_the_first_register_of_a_change(pair: Pair) -> None:
    target = pair.b.bus.allocate(0x1000)
    pair.b.open_window(0, target, 0x1000)
    pair.b.write(0x10, 8, 0)  # the clear, in the driver's order: translation first
    low = pair.b.bus.map(0, 0x1000)
    pair.a.bridge.bar_write(2, 0, b"stray!!!")
    assert bytes(low[:8]) == bytes(8)
    pair.b.write(0x18, 8, WINDOW0)
    assert pair.a.bridge.bar_read(2, 0, 8) == b"\xff" * 8
    assert pair.b.bridge.windows[2].counts["closed"] == 2


@pytest.mark.parametrize(
    "limit", [0, WINDOW0 - 1, WINDOW0, WINDOW0 + SIZE + 1, WINDOW1 << 8, (1 << 64) - 1]
)
def test_a_limit_that_makes_no_window_keeps_it_closed(pair: Pair, limit: int) -> None:
    pair.b.write(0x10, 8, 0x100000)
    pair.b.write(0x18, 8, limit)
    assert pair.b.read(0x18, 8) == limit and pair.b.read(0x10, 8) == 0x100000
    assert pair.a.bridge.bar_read(2, 0, 1) == b"\xff"


def test_a_window_onto_nothing_aborts(pair: Pair) -> None:
    pair.b.open_window(0, 0x7_0000_0000, SIZE)
    pair.a.bridge.bar_write(2, 0x10, b"12345678")
    assert pair.a.bridge.bar_read(2, 0x10, 8) == b"\xff" * 8
    assert pair.b.host.aborts["nobody answers"] == 2


@pytest.mark.parametrize("target", [WINDOW0, REGISTERS])
def test_a_window_onto_a_bridge_ends_in_a_counted_abort(pair: Pair, target: int) -> None:
    """A to B to A, for ever, if it were let through."""
    pair.b.open_window(0, target, 0x1000)
    pair.a.open_window(0, WINDOW0, 0x1000)
    pair.a.bridge.bar_write(2, 0, b"12345678")
    assert pair.a.bridge.bar_read(2, 0, 8) == b"\xff" * 8
    assert pair.b.host.aborts["a window shows a BAR"] == 2


def test_four_bytes_through_a_window_can_be_an_interrupt(pair: Pair) -> None:
    pair.b.open_window(1, 0xFEE00000, SIZE)
    pair.a.bridge.bar_write(4, 0x1000, b"\x31\0\0\0")
    assert pair.b.bus.messages == [(0xFEE01000, b"\x31\0\0\0")]
    pair.a.bridge.bar_write(4, 0x1000, bytes(8))
    pair.a.bridge.bar_write(4, 0x1000, bytes(2))
    assert len(pair.b.bus.messages) == 1
    assert pair.b.host.aborts["an interrupt message of another length"] == 2


def test_undeclared_registers_read_zero_and_take_anything(pair: Pair) -> None:
    pair.a.write(0x9000, 8, 0x1234)
    assert pair.a.read(0x9000, 8) == 0
    assert pair.a.bridge.bar_read(0, gen4.BAR0_SIZE - 2, 2) == bytes(2)


def test_joined_stores_are_what_single_ones_would_be(pair: Pair) -> None:
    target = pair.b.bus.allocate(0x2000)
    pair.b.open_window(0, target, 0x1004)
    pair.a.bridge.store_run(2, 0xFF8, bytes(range(24)), 8)
    assert pair.b.bus.peek(target + 0xFF8, 24) == bytes(range(12)) + bytes(12)
    pair.b.open_window(1, 0xFEE00000, SIZE)
    pair.a.bridge.store_run(4, 0x10, b"abcdefgh", 4)
    assert pair.b.bus.messages == [(0xFEE00010, b"abcd"), (0xFEE00014, b"efgh")]
    assert not pair.b.host.aborts
    pair.b.open_window(0, 0, 0)
    pair.a.bridge.store_run(2, 0, bytes(800), 8)
    assert pair.b.bridge.windows[2].counts["closed"] == 102  # 100 and two above
