"""Faults by name of bridges and DMA engines, as the control socket arms them."""

from __future__ import annotations

import pytest

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout.ioat import ChannelError, State
from bluebridge.device.server.control import ControlCommands
from bluebridge.device.server.named_faults import GuestBridge
from tests.models.ntb_pair import SIZE, WINDOW0, Guest, Pair
from tests.unit.ntb.test_dma_engine import Ring

DOORBELL, HEARD = 0x100 + 4 * 7, 1 << 7
SPAD3, PEER_SPAD3 = 0x80 + 4 * 3, 0x8080 + 4 * 3


@pytest.fixture
def pair() -> Pair:
    """A pair whose link is up, with a window onto b."""
    found = Pair()
    found.bring_up()
    found.b.open_window(0, found.b.bus.allocate(SIZE), SIZE)
    return found


@pytest.fixture
def commands(pair: Pair) -> ControlCommands:
    """The commands of the control socket."""
    bridges = {"a": _guest(pair.a, pair.b), "b": _guest(pair.b, pair.a)}
    rules = FaultRules(pair.a.bus.call_later, EventLog())
    return ControlCommands({}, rules, bridges=bridges)


def _guest(own: Guest, far: Guest) -> GuestBridge:
    points = own.bridge.fault_points, far.bridge.fault_points
    return GuestBridge(own.bus, *points, [own.engine], ArmedFaults(own.bus))


def test_the_nth_doorbell_is_lost(pair: Pair, commands: ControlCommands) -> None:
    assert commands.execute("arm a ntb-doorbell-lost nth=2") == ["1", "ok"]
    rung = []
    for _ in range(3):
        pair.a.write(DOORBELL, 4, 1)
        rung.append(pair.b.read(0x40, 8))
        pair.b.write(0x40, 8, HEARD)
    assert rung == [HEARD, 0, HEARD]
    pair.b.write(DOORBELL, 4, 1)
    assert pair.a.read(0x40, 8) == HEARD
    assert commands.execute("armed a")[0].endswith("ntb-doorbell-lost of 0x0: matched 3, taken 1")


def test_the_links_own_event_is_no_doorbell_that_gets_lost(
    pair: Pair, commands: ControlCommands
) -> None:
    commands.execute("arm a ntb-doorbell-lost count=9")
    pair.a.disable_link()
    assert pair.b.bus.take_interrupts() and pair.b.hear_link() == 0


def test_a_scratchpad_keeps_its_value_until_the_fault_is_cleared(
    pair: Pair, commands: ControlCommands
) -> None:
    pair.b.write(PEER_SPAD3, 4, 1)
    assert commands.execute("arm a ntb-scratchpad-stuck index=3") == ["1", "ok"]
    pair.b.write(PEER_SPAD3, 4, 2)
    pair.a.write(SPAD3, 4, 3)
    pair.b.write(PEER_SPAD3 + 4, 4, 4)
    assert pair.a.read(SPAD3, 8) == 4 << 32 | 1
    assert commands.execute("disarm a 1") == ["ok"]
    pair.b.write(PEER_SPAD3, 4, 2)
    assert pair.a.read(SPAD3, 4) == 2


def test_a_window_that_is_refused_and_then_is_not(pair: Pair, commands: ControlCommands) -> None:
    bridge = pair.a.bridge
    bridge.bar_write(2, 0, b"before..")
    commands.execute("arm a ntb-window-refused nth=2 count=2")
    assert bridge.bar_read(2, 0, 8) == b"before.."
    bridge.bar_write(2, 0, b"lost....")
    assert bridge.bar_read(2, 0, 8) == b"\xff" * 8
    assert bridge.bar_read(2, 0, 8) == b"before.."


def test_the_nth_copy_ends_with_an_error(pair: Pair, commands: ControlCommands) -> None:
    ring = Ring(pair.a)
    source = pair.a.bus.allocate(64)
    assert commands.execute("arm a dma-error nth=2 error=WRITE_DATA") == ["1", "ok"]
    for _ in range(3):
        ring.post(source, WINDOW0, 64)
    ring.ring()
    assert ring.state == State.HALTED
    assert ring.read(0x28, 4) == ChannelError.WRITE_DATA
    assert commands.execute("armed")[0].endswith("matched 2, taken 1")


def test_a_copy_through_a_refused_window_is_an_error(pair: Pair, commands: ControlCommands) -> None:
    ring = Ring(pair.a)
    commands.execute("arm a ntb-window-refused")
    ring.post(pair.a.bus.allocate(64), WINDOW0, 64)
    ring.ring()
    assert (ring.state, ring.read(0x28, 4)) == (State.HALTED, ChannelError.WRITE_DATA)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("arm a ntb-scratchpad-stuck index=16", "error: the bridge has scratchpads 0 to 15"),
        ("arm a ntb-scratchpad-stuck", "error: ntb-scratchpad-stuck needs index"),
        ("arm c dma-error", "error: there is no bridge 'c', but a, b"),
        ("arm a dma-error error=OOPS", "error: error=OOPS: choose from NEXT_ADDRESS, READ_DATA"),
        ("arm a hung-wr qpn=1", "error: there is no HCA"),
    ],
)
def test_bad_input_arms_nothing(commands: ControlCommands, line: str, reason: str) -> None:
    (answer,) = commands.execute(line)
    assert answer.startswith(reason)
    assert commands.execute("armed a") == ["ok"]


def test_a_fault_is_armed_once(pair: Pair, commands: ControlCommands) -> None:
    commands.execute("arm a dma-error nth=9")
    assert commands.execute("arm a dma-error") == [
        "error: dma-error is fault 1 already: `bluebridge fault GUEST clear`"
    ]
    assert commands.execute("arm b dma-error") == ["1", "ok"]
    assert commands.execute("disarm a") == ["ok"]
    assert [channel.refusal.decide for channel in pair.a.engine.channels] == [None] * 4
