"""Activities of bridges and DMA engines, in logs of the real server: all models, to the byte."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ntb.models import GEN1, GEN4, MODELS, SWITCHTEC, BridgeModel
from bluebridge.host_tools.analyzer import log_command as cli
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind, activities
from bluebridge.host_tools.analyzer.transaction import Transaction
from tests.models.server import devices
from tests.wire.bridge_traffic import BARS, COPIED, HEARD, MASKED, RUN, STORED, play

Node = tuple[int, str, str, int]
"""Depth, device, role, bytes."""


@dataclass(frozen=True)
class Recorded:
    """A log of a bridge of one model, and the activities in it."""

    model: BridgeModel
    folder: Path
    activities: list[Activity]

    @property
    def a(self) -> str:
        """Name of a's bridge."""
        return f"a.{self.model.log_suffix}"

    @property
    def b(self) -> str:
        """Name of b's bridge."""
        return f"b.{self.model.log_suffix}"

    @property
    def bar(self) -> int:
        """The window that a stores into."""
        return 4 if self.model is SWITCHTEC else 2

    def of(self, kind: ActivityKind, words: str = "") -> list[Activity]:
        """Activities of a kind with these words in their titles."""
        return [each for each in self.activities if each.kind is kind and words in each.title]


@pytest.fixture(scope="module", params=MODELS, ids=[model.name for model in MODELS])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The log of everything that `play` does."""
    folder = tmp_path_factory.mktemp("bridge")
    words = ("--ntb-model", request.param.name, "--dma", f"name=a,socket={folder / 'dma'}")
    with devices(folder, *words, kinds=("ntb",)):
        play(request.param, folder)
    return Recorded(request.param, folder / "log", list(activities(folder / "log")))


def tree(activity: Activity) -> list[Node]:
    """The tree without times."""
    parts = activity.transactions
    return [
        (depth, parts[place].device, parts[place].role.value, parts[place].length)
        for place, depth in activity.tree()
    ]


def test_no_event_is_lost_or_doubled(recorded: Recorded) -> None:
    """Every event is in one activity, whose number is that of its first one."""
    numbers: Counter[int] = Counter()
    count = 0
    for activity in recorded.activities:
        parts = [one for one in activity.transactions if not one.repeated]
        assert activity.number == min(one.number for one in parts)
        count += sum(one.stores for one in parts)
        numbers.update({one.number for one in parts} | {one.last for one in parts})
    assert count == sum(1 for _ in LogReader(recorded.folder))
    assert set(numbers.values()) == {1}
    assert len({activity.number for activity in recorded.activities}) == len(recorded.activities)


def test_a_store_arrives_in_the_peer_s_memory(recorded: Recorded) -> None:
    store = recorded.of(ActivityKind.STORE, f"store 8 bytes BAR{recorded.bar}+0x10")[0]
    assert tree(store) == [(0, recorded.a, "window store", 8), (1, recorded.b, "window access", 8)]
    sent, arrived = store.transactions
    assert bytes(sent.data) == bytes(arrived.data) == STORED
    assert (sent.remote, arrived.remote) == (False, True)
    assert arrived.address % 0x2000 == 0x10
    assert f"> {arrived.address:#x} of b" in store.title
    assert store.status == "OK"


def test_a_run_of_stores_and_of_loads_is_one(recorded: Recorded) -> None:
    (store,) = recorded.of(ActivityKind.STORE, f"store 32 bytes BAR{recorded.bar}+0x100")
    assert tree(store) == [
        (0, recorded.a, "window store", 32),
        (1, recorded.b, "window access", 32),
    ]
    assert all(bytes(one.data) == RUN for one in store.transactions)
    (load,) = recorded.of(ActivityKind.STORE, f"load 32 bytes BAR{recorded.bar}+0x100")
    assert tree(load) == [(0, recorded.a, "window load", 32), (1, recorded.b, "window access", 32)]
    assert all(bytes(one.data) == RUN and one.stores == 4 for one in load.transactions)
    assert load.status == "OK"


def test_a_store_into_the_interrupt_range(recorded: Recorded) -> None:
    (store,) = recorded.of(ActivityKind.STORE, f"store 4 bytes BAR{recorded.bar}+0x3000")
    assert tree(store) == [(0, recorded.a, "window store", 4), (1, recorded.b, "interrupt", 4)]
    assert "interrupt message of b" in store.title and store.status == "OK"


def test_a_closed_window(recorded: Recorded) -> None:
    (store,) = recorded.of(ActivityKind.STORE, f"store 4 bytes BAR{recorded.bar}+0x40")
    assert tree(store) == [(0, recorded.a, "window store", 4)]
    assert store.status == "nothing arrived"
    (load,) = recorded.of(ActivityKind.STORE, f"load 8 bytes BAR{recorded.bar}+0x48")
    assert load.status == "all ones: the window shows nothing"


def test_a_descriptor_copies_through_the_window(recorded: Recorded) -> None:
    """From the doorbell of the engine to the interrupt that tells of its completion."""
    out, back = recorded.of(ActivityKind.DESCRIPTOR, "copy 256 bytes")
    assert tree(out) == [
        (0, "a.dma", "doorbell", 2),
        (1, "a.dma", "descriptor read", 64),
        (2, "a.dma", "copy read", 256),
        (3, "a.dma", "copy write", 256),
        (4, recorded.b, "window access", 256),
        (4, "a.dma", "completion word", 8),
        (5, "a.dma", "interrupt", 4),
    ]
    write, through = out.transactions[3:5]
    assert write.address == BARS[recorded.bar] + 0x800
    assert through.address % 0x2000 == 0x800
    assert f"to {through.address:#x} of b" in out.title
    assert bytes(through.data) == COPIED
    assert tree(back) == [
        (0, "a.dma", "doorbell", 2),
        (1, "a.dma", "descriptor read", 64),
        (2, "a.dma", "copy read", 256),
        (3, recorded.b, "window access", 256),
        (3, "a.dma", "copy write", 256),
        (4, "a.dma", "completion word", 8),
    ]
    assert (out.status, back.status) == ("OK", "OK")


def test_a_doorbell_interrupts_the_peer(recorded: Recorded) -> None:
    """Until the peer has seen its pending bit and cleared it."""
    held, heard = recorded.of(ActivityKind.DOORBELL, f"doorbell {HEARD.bit_length() - 1} of b")
    for doorbell in (held, heard):
        nodes = tree(doorbell)
        assert [node[:3] for node in nodes[:2]] == [
            (0, recorded.a, "doorbell"),
            (1, recorded.b, "interrupt"),
        ]
        assert {node[:3] for node in nodes[2:-1]} == {(2, recorded.b, "register read")}
        assert nodes[-1][:3] == (2, recorded.b, "register write")
        assert doorbell.status == "OK"
    vector = heard.transactions[1].address
    expected = {GEN4: HEARD.bit_length() - 1, GEN1: 0, SWITCHTEC: 1}[recorded.model]
    assert vector == expected


def test_a_masked_doorbell_interrupts_when_it_is_unmasked(recorded: Recorded) -> None:
    (doorbell,) = recorded.of(ActivityKind.DOORBELL, f"doorbell {MASKED.bit_length() - 1} of b")
    roles = [(node[1], node[2]) for node in tree(doorbell)]
    assert roles[0] == (recorded.a, "doorbell")
    unmask = roles.index((recorded.b, "interrupt")) - 1
    assert roles[unmask] == (recorded.b, "register write")
    assert roles[-1] == (recorded.b, "register write")


def test_scratchpads_and_messages(recorded: Recorded) -> None:
    if recorded.model is SWITCHTEC:
        (message,) = recorded.of(ActivityKind.DOORBELL, "message 0 to b: CHECK")
        roles = [(node[1], node[2]) for node in tree(message)]
        assert roles[0] == (recorded.a, "doorbell")
        assert set(roles[1:-2]) == {(recorded.b, "interrupt")}
        assert roles[-2:] == [(recorded.b, "register read"), (recorded.b, "register write")]
        return
    written = recorded.of(ActivityKind.ACCESS, "scratchpad 5 of b = 0x1234")[0]
    assert written.device == recorded.a
    read = [each for each in recorded.activities if each.cause == written.number]
    assert {each.device for each in read} == {recorded.b}
    assert "SPAD[5].spad=0x1234" in read[-1].title


def told(one: Transaction, fact: Fact, **values: int) -> bool:
    """Whether a transaction is a fact with these values."""
    return (
        one.told is not None and one.told.fact is fact and values.items() <= one.told.values.items()
    )


def test_what_opens_a_window(recorded: Recorded) -> None:
    notes = [
        (activity, one)
        for activity in recorded.activities
        for one in activity.transactions
        if told(one, Fact.WINDOW_OPENED, window=recorded.bar)
    ]
    assert len(notes) >= 2
    for activity, note in notes:
        assert activity.kind is ActivityKind.ACCESS
        assert (activity.device, note.parent) == (note.device, 0)
    assert {activity.device for activity, _ in notes} >= {recorded.b}


def test_the_link_comes_up_and_goes_down(recorded: Recorded) -> None:
    """With an interrupt on both sides; down by the access that takes it down."""
    if recorded.model is SWITCHTEC:
        assert not recorded.of(ActivityKind.LINK)
        return
    ups = recorded.of(ActivityKind.LINK, "link up")
    assert (
        len(
            [
                one
                for each in ups
                for one in each.transactions
                if told(one, Fact.BRIDGE_LINK, link=1)
            ]
        )
        == 2
    )
    assert any(len(each.transactions) > 1 for each in ups)
    down = recorded.of(ActivityKind.LINK, "link down")[0]
    assert down.transactions[0].role.value == "register write"
    assert {one.device for one in down.transactions if told(one, Fact.BRIDGE_LINK, link=0)} == {
        recorded.a,
        recorded.b,
    }


def _log(
    folder: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, list[str], str]:
    """Status, lines and error of `bluebridge log`."""
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    status = cli.main(parser.parse_args([str(folder), *words]))
    printed = capsys.readouterr()
    return status, printed.out.splitlines(), printed.err


Shown = Callable[..., tuple[int, list[str], str]]


def test_the_view(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, _ = _log(recorded.folder, capsys, "--view", "bridge")
    assert status == 0
    store = next(line for line in lines if f"BAR{recorded.bar}+0x10 " in line)
    assert " store " in store and "a > BAR" in store and " > b 0x" in store
    assert any("descriptor to completion" in line and "a.dma" in line for line in lines)
    assert any("doorbell to interrupt" in line for line in lines)
    status, tall, _ = _log(recorded.folder, capsys, "--view", "bridge", "--tree")
    assert len(tall) > len(lines)
    assert any("copy to" in line for line in tall)


def test_the_view_as_json(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = _log(recorded.folder, capsys, "--view", "bridge", "--json", "--tree")
    rows = [json.loads(line) for line in lines]
    copy = next(row for row in rows if row["what"] == "descriptor" and row["bytes"] == 256)
    assert copy["address"] == f"{BARS[recorded.bar] + 0x800:#x}"
    assert copy["translated"].startswith("b 0x")
    assert 0 < copy["answer_us"] <= copy["us"]
    assert [one["role"] for one in copy["transactions"]][:2] == ["doorbell", "descriptor read"]


def test_response_times_by_kind(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = _log(recorded.folder, capsys, "--view", "traffic", "--json")
    rows = {(row["device"], row["kind"]): row for row in map(json.loads, lines)}
    for device, kind in (
        (recorded.a, "store to arrival"),
        (recorded.a, "doorbell to interrupt"),
        ("a.dma", "descriptor to completion"),
    ):
        times = rows[device, kind]["wall_us"]
        assert 0 < times["min"] <= times["avg"] <= times["max"]


def test_work_requests_of_a_log_without_any(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, error = _log(recorded.folder, capsys, "--view", "wr")
    assert (status, lines) == (2, [])
    assert "--view bridge" in error and error.count("\n") == 1
