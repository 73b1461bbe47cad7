"""Networks that are joined over UDP on the loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Frames, Message, Train
from bluebridge.device.layout.net.ethernet import BROADCAST
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.server.networks import Underlay, UnderlaySpec
from bluebridge.device.server.options import Hosts
from bluebridge.device.underlay.tunnel import Endpoint

MACS = [bytes.fromhex(f"0002c9bb00{number:02x}") for number in range(4)]
VNI = 77


class Station:
    """A port that keeps the frames it gets."""

    def __init__(self, fabric: LocalFabric, mac: bytes) -> None:
        self.fabric = fabric
        self.mac = mac
        self.got: list[bytes] = []
        fabric.attach(self)
        fabric.announce(self, {mac}, up=True)

    def receive(self, message: Message) -> int:
        """Keep its frames."""
        assert isinstance(message, Frames)
        self.got += [bytes(frame) for train in message.trains for frame in train.frames]
        return 0

    def frame(self, destination: bytes, payload: bytes = bytes(46)) -> bytes:
        """A frame of its own."""
        return destination + self.mac + b"\x08\x00" + payload

    def send(self, destination: bytes, *payloads: bytes) -> None:
        """Send a frame for each payload, as one burst."""
        frames = [self.frame(destination, payload) for payload in payloads]
        self.fabric.send(self, Frames(destination, [Train(frames)]))


class Network:
    """A network with one station, on the wire between hosts."""

    def __init__(
        self, loop: EventLoop, number: int, own: Endpoint, peers: Sequence[Endpoint]
    ) -> None:
        self.fabric = LocalFabric()
        self.station = Station(self.fabric, MACS[number])
        spec = UnderlaySpec(Hosts(own, tuple(peers)), VNI)
        self.underlay = Underlay(spec, self.fabric, self.fabric, loop)

    def report(self) -> list[str]:
        """What the control socket says of the wire."""
        return self.underlay.report()


def free_ports(count: int) -> list[Endpoint]:
    """Addresses that nobody has."""
    taken = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for each in taken:
        each.bind(("127.0.0.1", 0))
    found = [Endpoint(*each.getsockname()) for each in taken]
    for each in taken:
        each.close()
    return found


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    """The loop of all networks."""
    loop = EventLoop()
    yield loop
    loop.close()


@pytest.fixture
def joined(loop: EventLoop) -> Iterator[list[Network]]:
    """Three networks, each of which names the two others."""
    ends = free_ports(3)
    found = [
        Network(loop, number, own, [end for end in ends if end != own])
        for number, own in enumerate(ends)
    ]
    yield found
    for each in found:
        each.underlay.close()


def settle(loop: EventLoop) -> None:
    """Run the loop until nothing comes any more."""
    for _ in range(50):
        loop.step(0.002)


def test_broadcast_reaches_each_once_and_the_answer_only_its_asker(
    loop: EventLoop, joined: list[Network]
) -> None:
    a, b, c = (network.station for network in joined)
    a.send(BROADCAST, bytes(46))
    settle(loop)
    assert (a.got, len(b.got), len(c.got)) == ([], 1, 1), "nothing comes back or goes round"
    b.send(a.mac, b"answer".ljust(46))
    settle(loop)
    assert a.got == [b.frame(a.mac, b"answer".ljust(46))]
    assert len(c.got) == 1
    assert joined[2].report()[1].endswith("sent 0, nothing received yet")


def test_bursts_arrive_byte_for_byte_and_in_order(loop: EventLoop, joined: list[Network]) -> None:
    a, b = joined[0].station, joined[1].station
    b.send(BROADCAST, bytes(46))
    settle(loop)
    sizes = [46] + [1024 + 60] * 90 + [300, 46, 9000] + [4096 + 60] * 40 + [1]
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    a.send(b.mac, *payloads)
    settle(loop)
    assert b.got == [a.frame(b.mac, payload) for payload in payloads]


def test_a_burst_of_small_frames_of_several_sizes(loop: EventLoop, joined: list[Network]) -> None:
    """Together they fit into one call of the kernel, which cuts to one size only."""
    a, b = joined[0].station, joined[1].station
    b.send(BROADCAST, bytes(46))
    settle(loop)
    payloads = [bytes([size]) * size for size in (200, 200, 250, 250, 60, 60, 250)]
    a.send(b.mac, *payloads)
    settle(loop)
    assert b.got == [a.frame(b.mac, payload) for payload in payloads]


def test_frames_for_another_host_are_kept_from_ports_here(
    loop: EventLoop, joined: list[Network]
) -> None:
    neighbour = Station(joined[0].fabric, MACS[3])
    a, b = joined[0].station, joined[1].station
    b.send(a.mac, bytes(46))
    settle(loop)
    neighbour.got.clear()
    a.send(b.mac, b"for b".ljust(46))
    settle(loop)
    assert b.got == [a.frame(b.mac, b"for b".ljust(46))]
    assert neighbour.got == []


def test_what_strangers_and_other_networks_send_is_counted(
    loop: EventLoop, joined: list[Network]
) -> None:
    target = joined[0]
    own = target.underlay
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        address = ("127.0.0.1", own.port)
        frame = target.station.mac + MACS[3] + bytes(48)
        for header in ("08000000 00004e00", "00000000 00004d00"):
            sender.sendto(bytes.fromhex(header) + frame, address)
        sender.sendto(b"\x08", address)
    settle(loop)
    assert target.station.got == []
    assert target.report()[-1] == "refused: truncated 1, no VXLAN 1, other network 1"


def test_a_lab_with_our_addresses_is_not_heard(loop: EventLoop, joined: list[Network]) -> None:
    """A frame that went round, or a lab that takes itself for this one."""
    a, c = joined[0].station, joined[2].station
    joined[1].fabric.send(joined[1].station, Frames(c.mac, [Train([c.mac + c.mac + bytes(48)])]))
    settle(loop)
    assert c.got == []
    assert joined[2].report()[-1] == "dropped from addresses of this lab: 1"
    a.got.clear()
    c.send(BROADCAST, bytes(46))
    settle(loop)
    assert len(a.got) == 1


def test_a_wire_whose_address_is_taken_is_one_line(loop: EventLoop) -> None:
    own, peer = free_ports(2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(own)
        with pytest.raises(OSError, match=f"underlay {own}: .*in use; name another"):
            Network(loop, 0, own, [peer])


def test_a_flood_is_taken_in_turns_and_the_loop_goes_on(
    loop: EventLoop, joined: list[Network]
) -> None:
    target = joined[0]
    beats = 0

    def beat() -> None:
        nonlocal beats
        beats += 1
        loop.call_later(0.001, beat)

    beat()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        datagram = bytes.fromhex("08000000 00004d00") + target.station.mac + MACS[3] + bytes(1000)
        for _ in range(20):
            for _ in range(1000):
                sender.sendto(datagram, ("127.0.0.1", target.underlay.port))
            loop.step(0.0)
    settle(loop)
    assert beats > 10
    assert 0 < len(target.station.got) <= 20_000
