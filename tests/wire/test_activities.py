"""A driver brings an HCA up, its cable is pulled, it fails: all of the log is in activities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.fabric.fault_words import DRIVEN, UNDRIVEN
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.eqe import PORT_ACTIVE, PORT_DOWN, EventType
from bluebridge.guest.drivers.hca.context import Context, open_hca
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind, activities
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.server import devices


def _link(ctx: Context, state: int) -> None:
    """Wait until the driver is told that its port has this state."""
    while True:
        event = ctx.async_events.get_event(5)
        assert event is not None
        if (event.type, event.subtype) == (EventType.PORT_CHANGE, state):
            return


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of what this module's docstring says."""
    place = tmp_path_factory.mktemp("bringup")
    control = place / "control"
    with devices(place, names="a"):
        bus = SocketBus(place / "a")
        assert hardware.tell(control, "fault a early") == [UNDRIVEN]
        ctx = open_hca(bus)
        _link(ctx, PORT_ACTIVE)
        hardware.tell(control, "link a down")
        _link(ctx, PORT_DOWN)
        hardware.tell(control, "link a up")
        _link(ctx, PORT_ACTIVE)
        assert hardware.tell(control, "fault a parity") == [DRIVEN]
        bus.write32(0, bar0.RESET_OFFSET, bar0.RESET_VALUE)
        bus.close()
    return place / "log"


@pytest.fixture(scope="module")
def found(folder: Path) -> list[Activity]:
    """Its activities, in the order in which they began."""
    return sorted(activities(folder), key=lambda each: each.number)


@pytest.fixture(scope="module")
def events(folder: Path) -> list[Event]:
    """Its events."""
    return list(LogReader(folder))


@pytest.fixture
def one(found: list[Activity]) -> Callable[[ActivityKind, str], Activity]:
    """The first activity of that kind whose title begins so."""
    return lambda kind, title: next(
        each for each in found if each.kind is kind and each.title.startswith(title)
    )


def test_each_event_is_in_one_activity(found: list[Activity], events: list[Event]) -> None:
    numbers = Counter(part.number for each in found for part in each.transactions)
    assert set(numbers) == {event.number for event in events}
    assert set(numbers.values()) == {1}


def test_commands_say_how_long_they_took(found: list[Activity], events: list[Event]) -> None:
    """Name, status and microseconds of every record; the activity lasts as long at least."""
    commands = [each for each in found if each.kind is ActivityKind.COMMAND]
    records = [event.values for event in events if event.kind is Kind.COMMAND]
    assert len(commands) == len(records) >= 20
    for command, record in zip(commands, records, strict=True):
        assert (command.title.split()[0], command.status) == (record["name"], record["status"])
        assert command.notes[0] == f"carried out in {record['us']} us"
        assert command.duration_us >= record["us"]


def test_a_command_has_its_register_memory_event_and_interrupt(found: list[Activity]) -> None:
    query = next(each for each in found if each.title.startswith("QUERY_PORT"))
    assert "output mailbox of QUERY_PORT" in [part.text for part in query.transactions]
    command = next(each for each in found if each.title.startswith("NOP"))
    assert [part.text for part in command.transactions if "go=1" in part.text]
    assert [part.role.value for part in command.transactions][-2:] == ["EQE", "interrupt"]
    depths = [depth for _, depth in command.tree()]
    assert max(depths) >= 2


def test_every_interrupt_has_what_led_to_it(found: list[Activity]) -> None:
    """It is in the activity of its event entry, or names the doorbell that let it through."""
    for each in found:
        for part in each.transactions:
            if part.role.value == "interrupt":
                assert part.parent is not None or each.cause is not None


def test_the_cable(one: Callable[[ActivityKind, str], Activity]) -> None:
    word = one(ActivityKind.CONTROL, "link a down")
    link = one(ActivityKind.LINK, "port 1: cable out, link down")
    assert link.cause == word.number
    assert [part.role.value for part in link.transactions] == ["link", "EQE", "interrupt"]
    again = one(ActivityKind.LINK, "port 1: cable in, link up")
    assert again.number < word.number
    assert again.cause == one(ActivityKind.COMMAND, "INIT_PORT").number


def test_a_failure_and_the_reset_that_ends_it(
    found: list[Activity], one: Callable[[ActivityKind, str], Activity]
) -> None:
    word = one(ActivityKind.CONTROL, "fault a parity")
    failure = one(ActivityKind.FAULT, "internal error: parity")
    assert failure.cause == word.number
    resets = [each for each in found if each.cause == failure.number]
    assert [(each.kind, each.title) for each in resets] == [(ActivityKind.RESET, "software reset")]
    assert len(resets[0].transactions) == 2
