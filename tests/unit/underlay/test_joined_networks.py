"""Networks that are joined over UDP on the loopback, and the tunnel without its socket."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Frames, Message, Train
from bluebridge.device.layout.net.ethernet import BROADCAST
from bluebridge.device.layout.net.ip import VXLAN
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.server.underlay import Underlay
from bluebridge.device.underlay.tunnel import LONGEST, Endpoint, Refusal, Tunnel
from tests.models.free_ports import free_ports

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
        assert isinstance(message, Frames)
        self.got += [bytes(frame) for train in message.trains for frame in train.frames]
        return 0

    def frame(self, destination: bytes, payload: bytes = bytes(46)) -> bytes:
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
        self.port = own.port
        self.underlay = Underlay(own, Tunnel(VNI, peers), self.fabric, self.fabric, loop)

    def report(self) -> list[str]:
        """Return what the control socket says of the wire."""
        return self.underlay.report()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
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


@contextmanager
def speaking_as(network: Network) -> Iterator[socket.socket]:
    """A socket at the port of a network, which leaves."""
    network.underlay.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", network.port))
        yield sender


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
    frame = target.station.mac + MACS[3] + bytes(48)
    with speaking_as(joined[1]) as sender:
        address = ("127.0.0.1", target.port)
        for header in ("08000000 00004e00", "00000000 00004d00"):
            sender.sendto(bytes.fromhex(header) + frame, address)
        sender.sendto(b"\x08", address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(WIRE + frame, address)
    settle(loop)
    assert target.station.got == []
    expected = "refused: other port 1, truncated 1, no VXLAN 1, other network 1"
    assert target.report()[-1] == expected


def test_a_lab_with_our_addresses_is_not_heard(loop: EventLoop, joined: list[Network]) -> None:
    """A frame that went round, or a lab that takes itself for this one."""
    a, c = joined[0].station, joined[2].station
    with speaking_as(joined[1]) as sender:
        sender.sendto(WIRE + c.mac + c.mac + bytes(48), ("127.0.0.1", joined[2].port))
    settle(loop)
    assert c.got == []
    assert joined[2].report()[1].endswith("from addresses of others 1")
    c.send(BROADCAST, bytes(46))
    settle(loop)
    assert len(a.got) == 1


def test_what_a_host_was_heard_to_send_from_no_other_host_may_use(
    loop: EventLoop, joined: list[Network]
) -> None:
    """Neither its MAC address nor its IP address, nor may a guest here."""
    a, c = joined[0].station, joined[2].station
    packet = bytes.fromhex("45000030") + bytes(8) + b"\x0a\x09\0\x15" + bytes(30)
    c.send(BROADCAST, packet)
    settle(loop)
    assert a.got == [c.frame(BROADCAST, packet)]
    with speaking_as(joined[1]) as sender:
        for mac, payload in ((c.mac, bytes(46)), (MACS[3], packet), (MACS[3], bytes(46))):
            frame = a.mac + mac + b"\x08\0" + payload
            sender.sendto(WIRE + frame, ("127.0.0.1", joined[0].port))
    settle(loop)
    assert a.got[1:] == [a.mac + MACS[3] + b"\x08\0" + bytes(46)]
    assert joined[0].report()[0].endswith("from addresses of others 2")
    a.send(c.mac, packet)
    settle(loop)
    assert c.got == []


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
    with speaking_as(joined[1]) as sender:
        datagram = bytes.fromhex("08000000 00004d00") + target.station.mac + MACS[3] + bytes(1000)
        for _ in range(20):
            for _ in range(1000):
                sender.sendto(datagram, ("127.0.0.1", target.port))
            loop.step(0.0)
    settle(loop)
    assert beats > 10
    assert 0 < len(target.station.got) <= 20_000


ONE, OTHER = Endpoint("10.0.0.2", 4789), Endpoint("10.0.0.3", 4789)
HERE, THERE = bytes.fromhex("0002c9bb0001"), bytes.fromhex("0002c9bf0001")
FRAME = HERE + THERE + b"\x08\x00" + bytes(46)
WIRE = bytes.fromhex("08000000 00004d00")
"""The header of network 77 as RFC 7348 draws it."""


@pytest.fixture
def tunnel() -> Tunnel:
    return Tunnel(77, [ONE, OTHER])


def test_the_header_is_that_of_the_rfc(tunnel: Tunnel) -> None:
    assert tunnel.header == WIRE
    assert VXLAN.get(WIRE, "vni") == 77
    assert tunnel.read(WIRE + FRAME) == FRAME


@pytest.mark.parametrize(
    ("datagram", "why"),
    [
        (b"", Refusal.SHORT), (WIRE, Refusal.SHORT), (WIRE + FRAME[:13], Refusal.SHORT),
        (WIRE + FRAME + bytes(LONGEST), Refusal.LONG), (b"\0" + WIRE[1:] + FRAME, Refusal.FORM),
        (b"\x0c" + WIRE[1:] + FRAME, Refusal.FORM),
        (bytes.fromhex("08000000 00004e00") + FRAME, Refusal.NETWORK),
        (bytes.fromhex("08000000 01004d00") + FRAME, Refusal.NETWORK),
        (WIRE + HERE + b"\1" + FRAME[7:], Refusal.SOURCE),
        (WIRE + HERE + bytes(6) + FRAME[12:], Refusal.SOURCE),
    ],
)  # fmt: skip
def test_what_is_no_frame_of_this_network_is_counted(
    tunnel: Tunnel, datagram: bytes, why: Refusal
) -> None:
    assert tunnel.read(datagram) is None
    assert tunnel.refused == {**dict.fromkeys(Refusal, 0), why: 1}


def test_only_the_port_that_was_named_is_heard(tunnel: Tunnel) -> None:
    """A lab sends from its own port; another user of its host can send from any other."""
    assert tunnel.admits(ONE)
    assert not tunnel.admits(Endpoint("10.0.0.9", 4789))
    assert not tunnel.admits(Endpoint("10.0.0.3", 50000))
    assert (tunnel.refused[Refusal.STRANGER], tunnel.refused[Refusal.PORT]) == (1, 1)


def test_peers_of_one_host_are_told_apart_by_their_ports() -> None:
    first, second = Endpoint("127.0.0.1", 5001), Endpoint("127.0.0.1", 5002)
    tunnel = Tunnel(1, [first])
    assert tunnel.admits(first) and not tunnel.admits(second)


def test_no_bytes_make_it_fail() -> None:
    chance = random.Random(28)
    tunnel = Tunnel(77, [ONE])
    for _ in range(20_000):
        datagram = bytearray(WIRE + FRAME)
        for _ in range(chance.randrange(4)):
            datagram[chance.randrange(len(datagram))] = chance.randrange(256)
        del datagram[chance.randrange(len(datagram) + 1) :]
        found = tunnel.read(bytes(datagram))
        assert found is None or found == datagram[len(WIRE) :]
    assert tunnel.refused[Refusal.SHORT] > 1000
