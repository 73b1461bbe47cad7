"""Callers without a proper introduction, that take no replies or talk nonsense: others go on."""

from __future__ import annotations

import contextlib
import errno
import struct
import time
from pathlib import Path

import pytest

from bluebridge.device.cards import CARDS
from bluebridge.device.pyvfio_user._message_filter import MESSAGE_SECONDS
from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.host_tools.vfio_user.bus import SocketBus
from bluebridge.host_tools.vfio_user.client import Client
from bluebridge.host_tools.vfio_user.connection import CONFIG
from tests.hostile.__main__ import too_late
from tests.hostile.bystander import Report
from tests.hostile.campaign import Campaign, Outcome, Plan, attacks_on
from tests.models.server import ServerProcess, is_dropped

BAR0 = 0


@pytest.mark.parametrize(
    "greeting",
    [
        struct.pack("<HH", 1, 0),
        struct.pack("<HH", 0, 1) + b'{"capabilities":{"max_msg_fds":9999}}\0',
        struct.pack("<HH", 0, 1) + b'{"capabilities":[]}\0',
        struct.pack("<HH", 0, 1) + b'{"capabilities":{"max_msg_fds":"x"}}\0',
        struct.pack("<HH", 0, 1) + b"not json\0",
        struct.pack("<HH", 0, 1) + b"{}",
        struct.pack("<HH", 0, 1) + b"[" * 2000 + b"\0",
        b"\0",
    ],
)
def test_bad_introductions(server: ServerProcess, path: Path, greeting: bytes) -> None:
    with Client(path, negotiate=False) as client:
        client.request(VfioUserCommand.VERSION, greeting, expect=errno.EINVAL)
        assert is_dropped(client)
    with Client(path) as after:
        assert after.alive()


@pytest.mark.parametrize(
    "first", [VfioUserCommand.RESET, VfioUserCommand.GET_INFO, VfioUserCommand.REGION_READ, 999]
)
def test_anything_before_the_introduction(server: ServerProcess, path: Path, first: int) -> None:
    with Client(path, negotiate=False) as client:
        client.send(client.pack(first, bytes(16)))
        with pytest.raises(ConnectionError):
            while True:
                client.receive()
    with Client(path) as after:
        assert after.alive()


@pytest.mark.parametrize("size", [0, 15, 5000, 0xFFFFFFFF])
def test_introduction_of_impossible_size(server: ServerProcess, path: Path, size: int) -> None:
    with Client(path, negotiate=False) as client:
        client.send(client.pack(VfioUserCommand.VERSION, bytes(8), size=size))
        assert is_dropped(client)


REQUESTS = [
    (VfioUserCommand.GET_INFO, struct.pack("<4I", 16, 0, 0, 0)),
    (VfioUserCommand.GET_REGION_INFO, struct.pack("<4IQQ", 32, 0, 0, 0, 0, 0)),
    (VfioUserCommand.REGION_READ, struct.pack("<QII", 0, CONFIG, 256)),
    (VfioUserCommand.RESET, b""),
]
"""Commands whose replies libvfio-user makes."""


@pytest.mark.parametrize(("command", "body"), REQUESTS)
def test_replies_that_nobody_takes_delay_nobody_else(
    hca_server: tuple[ServerProcess, Path], command: VfioUserCommand, body: bytes
) -> None:
    """A full socket ends its client; the server waits for none, as its fixture looks after."""
    greedy, other = Client(hca_server[1] / "a"), SocketBus(hca_server[1] / "b")
    greedy.socket.setblocking(False)
    held = len(hca_server[0].held())
    try:
        with pytest.raises(ConnectionError):
            while True:
                with contextlib.suppress(BlockingIOError):
                    greedy.send(greedy.pack(command, body))
                other.read32(0, 0)
        assert len(hca_server[0].held()) == held
    finally:
        greedy.close()
        other.close()


def test_half_a_message_delays_nobody_else(hca_server: tuple[ServerProcess, Path]) -> None:
    stalled, other = SocketBus(hca_server[1] / "a"), SocketBus(hca_server[1] / "b")
    try:
        other.read32(0, 0)
        stalled.client.send(stalled.client.pack(VfioUserCommand.GET_INFO, bytes(3), size=64))
        begin, reads = time.monotonic(), 0
        while time.monotonic() - begin < MESSAGE_SECONDS:
            other.read32(0, 0)
            reads += 1
        assert reads > 20  # a server that waits for the rest answers one or two
    finally:
        stalled.close()
        other.close()


MIB = 1 << 20


@pytest.mark.parametrize("card", CARDS)
def test_a_bystander_beside_all_attacks(tmp_path: Path, card: str) -> None:
    """Two guests that attack, one after the other; what they held is gone with them."""
    told: list[str] = []
    plan = Plan(4000, rounds=1, part=1 / 8, long=64 * MIB, not_ready=40, card=card)
    outcome = Campaign(plan, tmp_path, told.append).run(quiet_seconds=0.2)
    assert outcome.exceptions == 0, outcome.log
    assert outcome.leaked == 0
    assert outcome.bystander.wrong == 0 and outcome.bystander.operations > 20
    attacks = {attack.__name__ for part in attacks_on(card) for attack in part}
    assert {*outcome.by_attack} == attacks, told
    first, _, last = outcome.memory
    assert last < first + 16 * MIB


def test_late_answers_and_slow_calls_are_told() -> None:
    report = Report.of(0, [0.3] * 1000, [0.001] * 998 + [0.03, 0.09])
    outcome = Outcome(0, {}, 0, 0.0, 0, ["a call held the loop"], 0, (0, 0, 0), report, report, "")
    assert too_late(outcome, 20, 100) == [
        "99.9 % of the answers: 30.0 ms of 20",
        "a call held the loop",
    ]
    assert too_late(outcome, 30, 80) == ["the worst answer: 90.0 ms of 80", "a call held the loop"]
