"""The fabric inside one process: who gets what, in which order, and whose failure it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Datagram, Frames, Message, Response, Route, Train


class Port:
    """A port that remembers what came, and may react."""

    def __init__(self, fabric: LocalFabric, *macs: bytes) -> None:
        self.fabric = fabric
        self.macs = frozenset(macs)
        self.got: list[Message] = []
        self.react: Callable[[Message], None] = lambda message: None
        fabric.attach(self)
        self.announce(up=True)

    def announce(self, *, up: bool) -> None:
        """Tell the fabric of the link's state."""
        self.fabric.announce(self, self.macs, up=up)

    def receive(self, message: Message) -> int:
        """Remember, then react; each message makes two copies."""
        self.got.append(message)
        self.react(message)
        return 2


A, B, C = (bytes((2, 0, 0, 0, 0, last)) for last in (1, 2, 3))
GROUP = b"\x33\x33\0\0\0\1"


def response(target: bytes, psn: int = 0) -> Response:
    return Response(Route(A, target, bytes(16), bytes(16)), 1, psn, 0)


def datagram(target: bytes) -> Datagram:
    return Datagram(Route(A, target, bytes(16), bytes(16)), 1, 1, 0, 0, bytes(40), b"12345")


@pytest.fixture
def ports() -> tuple[Port, Port, Port]:
    """Three ports of one fabric, whose messages may name any sender."""
    fabric = LocalFabric(trusting=True)
    return Port(fabric, A), Port(fabric, B), Port(fabric, C)


def test_addresses_and_loopback(ports: tuple[Port, Port, Port]) -> None:
    a, b, c = ports
    a.fabric.send(a, response(B))
    a.fabric.send(a, response(A))
    assert [len(port.got) for port in ports] == [1, 1, 0]
    assert c.got == []
    a.fabric.send(a, response(b"\x02\x09\0\0\0\0"))
    assert (a.fabric.statistics.delivered, a.fabric.statistics.lost) == (2, 1)
    b.announce(up=False)
    a.fabric.send(a, response(B))
    assert len(b.got) == 1


def test_packets_count_each_though_they_travel_in_bursts(ports: tuple[Port, Port, Port]) -> None:
    """The same numbers as where faults take them one by one."""
    a, b, c = ports
    burst = Frames(B, [Train([B + bytes(54)] * 3)], packets=True)
    statistics = a.fabric.statistics
    a.fabric.send(a, burst)
    assert (len(b.got), statistics.delivered, statistics.lost) == (1, 3, 0)
    b.announce(up=False)
    c.announce(up=False)
    a.fabric.send(a, burst)
    assert (len(b.got), statistics.delivered, statistics.lost) == (1, 3, 3)


def test_nested_sends_are_queued_in_order(ports: tuple[Port, Port, Port]) -> None:
    a, b, _ = ports
    depth = 0

    def bounce(message: Message) -> None:
        nonlocal depth
        assert isinstance(message, Response)
        depth += 1
        assert depth == 1  # no delivery runs inside another
        if message.psn < 5000:
            other = A if message.route.dmac == B else B
            a.fabric.send(b, response(other, message.psn + 1))
        depth -= 1

    a.react = b.react = bounce
    a.fabric.send(a, response(B))
    assert len(a.got) + len(b.got) == 5001


def test_frames_never_come_back_and_groups_reach_all(ports: tuple[Port, Port, Port]) -> None:
    a, b, c = ports
    for address in (b"\xff" * 6, B, A):  # its own floods to others, as nobody else has it
        a.fabric.send(a, Frames(address, [Train([address + bytes(54)])]))
    assert [len(port.got) for port in ports] == [0, 3, 2]
    a.fabric.send(a, datagram(GROUP))
    assert [len(port.got) for port in ports] == [1, 4, 3]
    a.fabric.send(a, response(GROUP))  # a connection to a group makes no sense
    assert [len(port.got) for port in ports] == [1, 4, 3]
    assert b.got[-1] is c.got[-1]


def test_detached_ports_get_nothing(ports: tuple[Port, Port, Port]) -> None:
    a, b, _ = ports
    a.fabric.attach(a)
    a.fabric.detach(b)
    a.fabric.send(a, response(B))
    assert b.got == []
    assert a.fabric.statistics.delivered == 0


def test_failures_of_a_port_stay_there_and_are_not_all_logged(
    ports: tuple[Port, Port, Port], caplog: pytest.LogCaptureFixture
) -> None:
    a, b, _ = ports

    def fail(message: Message) -> None:
        raise RuntimeError("boom")

    b.react = fail
    for _ in range(1000):
        a.fabric.send(a, response(B))
    assert len(b.got) == 1000
    assert "boom" in caplog.text
    assert 99 <= len(caplog.records) < 110


def test_a_port_has_the_addresses_that_it_announced_last(ports: tuple[Port, Port, Port]) -> None:
    a, b, c = ports
    b.macs, c.macs = frozenset((C,)), frozenset((B, A))
    for port in (b, c):
        port.announce(up=True)
    for address in (B, C, A):
        a.fabric.send(a, response(address))
    assert [len(port.got) for port in ports] == [1, 1, 1]
    b.announce(up=False)
    a.fabric.send(a, datagram(GROUP))
    assert [len(port.got) for port in ports] == [2, 1, 2]
    a.announce(up=False)
    a.fabric.send(a, datagram(GROUP))
    assert [len(port.got) for port in ports] == [2, 1, 2]


def test_a_detached_port_cannot_come_back_by_an_announcement(
    ports: tuple[Port, Port, Port],
) -> None:
    a, b, _ = ports
    a.fabric.detach(b)
    b.announce(up=True)
    a.fabric.send(a, response(B))
    a.fabric.send(b, response(A))
    assert (a.got, b.got) == ([], [])


def test_what_a_message_cost_is_the_sum_of_all_receivers(ports: tuple[Port, Port, Port]) -> None:
    a, b, _ = ports
    nested: list[int] = []
    b.react = lambda message: nested.append(a.fabric.send(b, response(A)))
    assert a.fabric.send(a, response(C)) == 2
    assert a.fabric.send(a, datagram(GROUP)) == 6
    assert nested == [0]
    assert a.fabric.send(a, response(b"\x02\x09\0\0\0\0")) == 0
