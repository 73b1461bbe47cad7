"""A Switchtec switch: control blocks that both guests write, windows, doorbells, messages."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.ntb import switchtec as layout
from bluebridge.device.layout.ntb.switchtec import BlockStatus, LinkMessage, Operation
from bluebridge.device.ntb.shape import HOLD_SECONDS
from bluebridge.device.ntb.switchtec_messages import (
    LONGEST_SECONDS,
    REMINDER_SECONDS,
    REMINDERS,
    SETTLING_SECONDS,
)
from tests.models.switchtec_pair import ALL, BAR2, LUT_BYTES, Guest, Pair


@pytest.fixture
def pair() -> Pair:
    """A pair after its probes."""
    return Pair()


def test_each_guest_finds_itself_and_its_peer(pair: Pair) -> None:
    for partition, guest in enumerate((pair.a, pair.b)):
        assert guest.read(0x2000, 4) == 0x8531 and guest.read(0x2018, 4) == partition
        assert guest.read(0x10000, 2) == 2 | partition << 8
        assert guest.read(0x10004, 8) == 3
        assert guest.read(0x134000, 2) == guest.read(0x135000, 2) == 0x11F8
        assert guest.read(0x136000, 2) == 0
        assert guest.read(0x14000 + 0x2000 * partition + 0x14, 2) == layout.LUTS


def test_a_direct_window_takes_effect_when_configured(pair: Pair) -> None:
    target = pair.b.bus.allocate(1 << 20, 1 << 20)
    pair.b.open_direct(4, target, 1 << 20)
    pair.a.bridge.bar_write(4, 0xFFFF8, b"12345678")
    assert pair.b.bus.peek(target + 0xFFFF8, 8) == b"12345678"
    at = layout.CONTROL.at("bar4_control", 0)
    pair.b.write(at + 8, 8, 1 | 0x70000000)
    assert pair.a.bridge.bar_read(4, 0xFFFF8, 8) == b"12345678"
    pair.b.write(at, 4, 1)
    pair.b.operate(0, Operation.CONFIGURE, BlockStatus.NORMAL)
    assert pair.a.bridge.bar_read(4, 0, 8) == b"\xff" * 8


@pytest.mark.parametrize("address", [0x70000000, BAR2, (1 << 52) - (1 << 20)])
def test_a_window_onto_nothing_aborts(pair: Pair, address: int) -> None:
    pair.b.open_direct(4, address, 1 << 20)
    pair.a.bridge.bar_write(4, 0, b"straggle")
    assert pair.a.bridge.bar_read(4, 0, 8) == b"\xff" * 8
    place = pair.a.bridge.aperture(4, 0, 8)
    assert place is not None and place.fault


def test_a_lock_has_one_owner_and_the_other_waits(pair: Pair) -> None:
    """Both drivers work on the same block in their probes; either fails at a strange status."""
    lock, status = layout.CONTROL.at("operation", 1), layout.CONTROL.at("status", 1)
    pair.a.operate(1, Operation.LOCK, BlockStatus.LOCKED)
    pair.b.operate(1, Operation.LOCK, BlockStatus.LOCKING)
    assert pair.a.read(status, 4) == BlockStatus.LOCKED
    pair.a.write(lock, 4, Operation.CONFIGURE)
    assert [guest.read(status, 4) for guest in (pair.a, pair.b)] == [1, BlockStatus.LOCKED]
    pair.a.operate(1, Operation.LOCK, BlockStatus.LOCKING)
    pair.a.write(lock, 4, Operation.RESET)  # its wait was interrupted
    pair.b.operate(1, Operation.CONFIGURE, BlockStatus.NORMAL)
    assert pair.a.read(status, 4) == BlockStatus.NORMAL


def test_the_lock_of_a_guest_that_dies_goes_to_the_other(pair: Pair) -> None:
    pair.a.operate(0, Operation.LOCK, BlockStatus.LOCKED)
    pair.b.operate(0, Operation.LOCK, BlockStatus.LOCKING)
    pair.a.bridge.reset()
    assert pair.b.read(layout.CONTROL.at("status", 0), 4) == BlockStatus.LOCKED


def test_lookup_windows_lie_before_the_direct_one(pair: Pair) -> None:
    low, high = (pair.b.bus.allocate(layout.LUT_SIZE, layout.LUT_SIZE) for _ in range(2))
    direct = pair.b.bus.allocate(1 << 20, 1 << 20)
    pair.b.open_lut(0, low)
    pair.b.open_lut(15, high)
    pair.b.open_direct(2, direct, 1 << 20)
    pair.a.bridge.bar_write(2, 8, b"lookup 0")
    pair.a.bridge.bar_write(2, LUT_BYTES - 4, b"lastmore")  # over the border
    assert pair.b.bus.peek(low + 8, 8) == b"lookup 0"
    assert pair.b.bus.peek(high + layout.LUT_SIZE - 4, 4) == b"last"
    assert pair.b.bus.peek(direct, 4) == b"more"
    assert pair.a.bridge.bar_read(2, layout.LUT_SIZE, 8) == b"\xff" * 8
    place = pair.a.bus.place(BAR2 + 8, 1 << 20)
    assert place.length == layout.LUT_SIZE - 8 and place.far == (pair.b.bus, low + 8)


def test_a_window_of_ones_own_partition_stays_closed(pair: Pair) -> None:
    pair.b.open_direct(4, 0x100000, 0x1000)
    pair.b.write(layout.CONTROL.at("bar4_translation", 0), 8, 0x100000)
    pair.b.operate(0, Operation.CONFIGURE, BlockStatus.NORMAL)
    assert pair.a.bridge.bar_read(4, 0, 8) == b"\xff" * 8


def test_doorbells_cross_in_their_halves(pair: Pair) -> None:
    pair.know_the_link()
    pair.a.write(pair.a.messaging, 8, 1 << 32 | 1)
    assert pair.b.read(pair.b.messaging + 0x10, 8) == 1 << 32
    assert pair.b.bus.take_interrupts() == []
    pair.b.write(pair.b.messaging + 0x18, 8, ALL)
    assert pair.b.bus.take_interrupts() == [1]
    pair.b.write(pair.b.messaging + 0x10, 8, ALL)
    assert pair.b.read(pair.b.messaging + 0x10, 8) == 0


def _doorbells(guest: Guest) -> int:
    return guest.read(guest.messaging + 0x10, 8)


def test_doorbells_wait_for_a_driver_that_does_not_know_of_the_link(pair: Pair) -> None:
    for guest in (pair.a, pair.b):
        guest.send(LinkMessage.UP)
    pair.a.write(pair.a.messaging, 8, 1 << 33)
    assert _doorbells(pair.b) == 0
    pair.b.send(LinkMessage.CHECK)
    assert _doorbells(pair.b) == 0
    pair.b.bus.run(HOLD_SECONDS)
    assert _doorbells(pair.b) == 1 << 33
    pair.b.send(LinkMessage.CHECK)  # forced down and up again, whatever: it may be rung
    pair.a.write(pair.a.messaging, 8, 1 << 34)
    assert _doorbells(pair.b) == 3 << 33


def test_doorbells_wait_no_longer_than_a_second(pair: Pair) -> None:
    """A driver may have seen the link before its peer said that it wants it."""
    pair.b.send(LinkMessage.CHECK)
    for guest in (pair.a, pair.b):
        guest.send(LinkMessage.UP)
    pair.a.write(pair.a.messaging, 8, 1 << 33)
    pair.b.bus.run(LONGEST_SECONDS)
    assert _doorbells(pair.b) == 1 << 33


def test_drivers_without_messages_are_rung_at_once(pair: Pair) -> None:
    pair.a.write(pair.a.messaging, 8, 1 << 33)
    assert _doorbells(pair.b) == 1 << 33


def test_doorbells_that_wait_die_with_the_guest(pair: Pair) -> None:
    for guest in (pair.a, pair.b):
        guest.send(LinkMessage.UP)
    pair.a.write(pair.a.messaging, 8, 1 << 33)
    pair.b.bridge.reset()
    pair.b.bus.run(LONGEST_SECONDS)
    assert _doorbells(pair.b) == 0
    for guest in (pair.a, pair.b):
        guest.send(LinkMessage.UP)
    pair.b.bus.run(LONGEST_SECONDS)
    assert _doorbells(pair.b) == 0, "nor does the next driver get them"


def test_a_message_interrupts_and_waits_to_be_taken(pair: Pair) -> None:
    pair.a.send(0x1234, slot=1)
    word = pair.b.read(pair.b.messaging + 0x90, 8)
    assert word & 0xFFFFFFFF == 0x1234 and word >> 32 & 1
    assert pair.b.bus.take_interrupts() == [2]
    pair.b.write(pair.b.messaging + 0x94, 1, 1)
    assert not pair.b.read(pair.b.messaging + 0x90, 8) >> 32 & 1
    pair.b.write(pair.b.messaging + 0x95, 1, 0)
    pair.a.send(5, slot=1)
    assert pair.b.bus.take_interrupts() == []


def test_a_message_waits_until_the_one_before_is_taken(pair: Pair) -> None:
    """The driver clears the status after it has read: that of a new message would go, too."""
    for value in (1, 3, 2):
        pair.a.send(value)
    found = []
    while (word := pair.b.read(pair.b.messaging + 0x88, 8)) >> 32 & 1:
        found.append(word & 0xFFFFFFFF)
        pair.b.write(pair.b.messaging + 0x8C, 1, 1)
    assert found == [1, 3, 2] and pair.b.bus.take_interrupts() == [2] * 3
    for value in range(200):
        pair.a.send(value)
    pair.b.bridge.reset()
    assert pair.b.read(pair.b.messaging + 0x88, 8) == 0


def test_a_message_that_nobody_takes_interrupts_again(pair: Pair) -> None:
    """The driver had not requested the vector yet; once it is taken there is silence."""
    pair.a.send(LinkMessage.FORCE_DOWN)
    assert pair.b.bus.take_interrupts() == [2]
    pair.b.bus.run(2.5 * REMINDER_SECONDS)
    assert pair.b.bus.take_interrupts() == [2, 2]
    pair.b.write(pair.b.messaging + 0x8C, 1, 1)
    pair.b.bus.run(2 * REMINDER_SECONDS)
    assert pair.b.bus.take_interrupts() == []
    pair.a.send(LinkMessage.FORCE_DOWN)
    pair.b.bus.run(2 * REMINDERS * REMINDER_SECONDS)
    assert len(pair.b.bus.take_interrupts()) == 1 + REMINDERS


def take(guest: Guest) -> int:
    """switchtec_ntb_message_isr: the link's message, 0 if there is none."""
    word = guest.read(guest.messaging + 0x88, 8)
    guest.write(guest.messaging + 0x8C, 1, 1)
    return word & 0xFFFFFFFF if word >> 32 & 1 else 0


@pytest.mark.parametrize("begins", [True, False])
def test_a_link_that_comes_up_right_after_it_was_forced_down_is_heard_of(
    pair: Pair, begins: bool
) -> None:
    """The driver's work for FORCE_DOWN does not look for an UP that came before it began."""
    for message in (LinkMessage.FORCE_DOWN, LinkMessage.UP, LinkMessage.CHECK):
        pair.a.send(message)
    assert take(pair.b) == LinkMessage.FORCE_DOWN
    pair.b.bus.take_interrupts()
    assert take(pair.b) == 0
    if begins:
        pair.b.operate(1, Operation.LOCK, BlockStatus.LOCKED)
    else:
        pair.b.bus.run(SETTLING_SECONDS)
    assert pair.b.bus.take_interrupts() == [2]
    assert take(pair.b) == LinkMessage.UP
    assert take(pair.b) == LinkMessage.CHECK


def test_the_death_of_the_peer_is_a_link_event(pair: Pair) -> None:
    target = pair.b.bus.allocate(layout.LUT_SIZE, layout.LUT_SIZE)
    pair.b.open_lut(0, target)
    own = pair.a.bus.allocate(layout.LUT_SIZE, layout.LUT_SIZE)
    pair.a.open_lut(0, own)
    pair.b.bridge.reset()
    assert pair.a.bus.take_interrupts() == [layout.EVENT_VECTOR]
    event = pair.a.read(0x135000 + 0xD30, 4)
    assert event & 1 and event >> 5 & 0xFF == 1
    pair.a.write(0x135000 + 0xD30, 4, 1)
    assert pair.a.read(0x135000 + 0xD30, 4) == 1 << 5
    assert pair.a.bridge.bar_read(2, 0, 8) == b"\xff" * 8
    # What a shows stays: its driver does not open it again when b returns.
    pair.b.bridge.bar_write(2, 0, b"returned")
    assert pair.a.bus.peek(own, 8) == b"returned"


def test_a_management_command_ends_with_an_error(pair: Pair) -> None:
    pair.a.write(0x800, 4, 1)
    assert pair.a.read(0x804, 4) == 0xFF
    assert pair.a.read(0x4000 + 0x13C, 4) == 1
    pair.a.write(0x4000 + 0x13C, 4, 1 | 1 << 3)
    assert pair.a.read(0x4000 + 0x13C, 4) == 1 << 3
