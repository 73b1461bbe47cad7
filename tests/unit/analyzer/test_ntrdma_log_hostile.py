"""Views of a log whose guests wrote anything into blocks, commands, rings and indices."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ntrdma.commands import COMMAND_SIZE, CommandCode
from bluebridge.device.layout.ntrdma.work import WorkCode
from bluebridge.host_tools.analyzer.log_command import VIEWS
from bluebridge.host_tools.analyzer.views.view import Options
from tests.models.ntrdma_log import BLOCK, COMMANDS, RESPONSES, SENDS, Pair

INTERESTING = (0, 1, 15, 16, 31, 32, 0x3FF, 0x400, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)


def valid(folder: Path) -> list[Event]:
    """A log of everything there is."""
    pair = Pair(folder, ethernet=True)
    pair.receive(0)
    pair.frame(98)
    for op in (WorkCode.WRITE, WorkCode.READ, WorkCode.SEND):
        pair.post(op, [8, 5000])
        pair.answer(op, [8, 5000])
    pair.log.close()
    return list(LogReader(folder))


def write(folder: Path, events: list[Event]) -> None:
    """Events as a log."""
    log = FileLog(folder)
    for event in events:
        log.keep(
            log.device(event.device), event.kind, event.bar, event.address & (1 << 64) - 1,
            event.length, event.data, event.what, event.obj,
        )  # fmt: skip
    log.close()


def views(folder: Path) -> None:
    """All views can be shown, and the table has a line for each event.

    That of work requests says instead that there is none, and names another.
    """
    reader = LogReader(folder)
    lines = list(VIEWS["events"].lines(reader, Options(decoded=True)))
    assert len(lines) == sum(1 for _ in reader) + 1
    assert not any("\n" in line for line in lines)
    for name in ("wr", "ntrdma"):
        try:
            assert list(VIEWS[name].lines(reader, Options(tree=name == "wr")))
        except LogError as error:
            assert name == "wr" and "--view bridge" in str(error)


def changed(events: list[Event], chance: random.Random) -> None:
    """Change some stores into another's memory: their data, length or place."""
    stores = [each for each in events if each.what in (What.WINDOW, What.MESSAGE)]
    for event in chance.sample(stores, chance.randrange(1, 12)):
        roll = chance.random()
        if roll < 0.7 and event.data:
            data = bytearray(event.data)
            for _ in range(chance.choice((1, 1, 2, 8))):
                at = chance.randrange(len(data))
                word = chance.choice(INTERESTING).to_bytes(4, "little")
                data[at : at + 4] = word[: len(data[at : at + 4])]
            event.data = bytes(data)
        elif roll < 0.8:
            event.data = event.data[: chance.randrange(len(event.data) + 1)]
        elif roll < 0.9:
            event.length = min(chance.choice(INTERESTING), 1 << 31)
        else:
            other = chance.choice(stores)
            event.address = other.address + chance.randrange(-8, 9)


@given(st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_stores_of_any_content(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = valid(folder / "valid")
        changed(events, chance)
        if chance.random() < 0.3:
            del events[: chance.randrange(len(events))]
        write(folder / "log", events)
        views(folder / "log")


@given(
    st.lists(
        st.tuples(
            st.sampled_from((BLOCK, COMMANDS, RESPONSES, SENDS)),
            st.integers(0, 15),
            st.binary(min_size=COMMAND_SIZE, max_size=COMMAND_SIZE),
            st.sampled_from([*CommandCode, 99]),
        ),
        max_size=12,
    )
)
@settings(max_examples=40, deadline=None)
def test_commands_of_any_content(stores: list[tuple[int, int, bytes, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pair = Pair(folder)
        for place, slot, data, op in stores:
            command = op.to_bytes(4, "little") + data[4:]
            pair.a.store(pair.a.there + place + slot * COMMAND_SIZE, command)
            pair.b.store(pair.b.there + place, command)
        pair.post(WorkCode.WRITE, [8])
        pair.answer(WorkCode.WRITE, [8])
        pair.log.close()
        views(folder)


def test_a_log_of_other_things_has_no_names(tmp_path: Path) -> None:
    """Nothing is named that is not of NTRDMA: blocks without tags, a bridge's other clients."""
    log = FileLog(tmp_path)
    bridge, peer = log.device("a.ntb4"), log.device("b.ntb4")
    chance = random.Random(7)
    for _ in range(2000):
        address, data = chance.randrange(1 << 32), chance.randbytes(64)
        log.record(bridge, Kind.MMIO_WRITE, 4, address, 64, data)
        log.record(peer, Kind.DMA_WRITE, 0, address, 64, data, What.WINDOW)
    log.close()
    lines = VIEWS["events"].lines(LogReader(tmp_path), Options(decoded=True))
    assert not any("NTRDMA" in line for line in lines)
