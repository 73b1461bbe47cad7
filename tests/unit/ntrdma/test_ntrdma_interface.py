"""Network interfaces over NTRDMA: frames between two processes, connections by their addresses."""

from __future__ import annotations

import hashlib
import ipaddress
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bluebridge.device.layout.net.roce import ipv4_gid
from bluebridge.guest.connections import open_connections
from bluebridge.guest.ntrdma.interface import EthernetOptions, addresses_of, parse, parse6
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.tcp import TcpTransport
from bluebridge.guest.verbs import VerbsError
from bluebridge.images.cache import HOME
from tests.models.ntrdma_port import END, FRAME_BYTES, SocketPort, with_port

SECONDS = 20.0
A_IP, B_IP = (ipv4_gid(bytes((10, 9, 2, number))) for number in (1, 2))
A_IP6, B_IP6 = "fd00:9:2::1", "fd00:9:2::2"
Ends = tuple[NtrdmaDevice, NtrdmaDevice, SocketPort, SocketPort]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Two devices in one process, each with a port."""
    with ExitStack() as owned:
        ports = SocketPort(A_IP), SocketPort(B_IP)
        for port in ports:
            owned.callback(port.user.close)
            port.user.settimeout(SECONDS)
        a = owned.enter_context(with_port("s:127.0.0.1:0", ports[0]))
        back_end = a.service.back_end
        assert isinstance(back_end, TcpTransport)
        b = owned.enter_context(with_port(f"c:127.0.0.1:{back_end.port}", ports[1]))
        for device in (a, b):
            device.wait_ready(SECONDS)
        yield a, b, *ports


def test_frames_to_another_process_and_back() -> None:
    """As many as lap the rings several times, of all lengths, each compared."""
    chance = random.Random(1)
    frames = [chance.randbytes(chance.randrange(14, FRAME_BYTES + 1)) for _ in range(500)]
    with ExitStack() as owned:
        port = SocketPort()
        owned.callback(port.user.close)
        port.user.settimeout(SECONDS)
        device = owned.enter_context(with_port("s:127.0.0.1:0", port))
        back_end = device.service.back_end
        assert isinstance(back_end, TcpTransport)
        words = [sys.executable, "-m", "tests.models.ntrdma_port", f"127.0.0.1:{back_end.port}"]
        peer = owned.enter_context(
            subprocess.Popen(
                words, cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        owned.callback(peer.kill)
        device.wait_ready(SECONDS)

        def send() -> None:
            for frame in (*frames, END):
                port.user.send(frame)

        sender = threading.Thread(target=send)
        sender.start()
        found = [port.user.recv(FRAME_BYTES + 1) for _ in range(len(frames) + 1)]
        sender.join()
        said = peer.communicate(timeout=SECONDS)[0]
    digests = [hashlib.md5(frame).hexdigest() for frame in found]
    assert digests == [hashlib.md5(frame).hexdigest() for frame in (*frames, END)]
    assert f"sent {len(frames) + 1} frames" in said and "received 501" in said
    assert said.count(" 0 dropped") == 2


def test_bursts(ends: Ends) -> None:
    """Frames that are there at once leave at once."""
    a, _, here, there = ends
    with a.service.lock:
        for number in range(64):
            here.user.send(number.to_bytes(14, "big"))
        time.sleep(0.05)
    found = [int.from_bytes(there.user.recv(FRAME_BYTES), "big") for _ in range(64)]
    assert found == list(range(64))
    assert a.network is not None and a.service.engine.ethernet is not None
    assert a.service.engine.ethernet.sender.bursts <= 4
    assert a.network.counters().startswith("test0: sent 64 frames (896 bytes) in ")


def test_a_program_that_polls_does_not_stop_frames(ends: Ends) -> None:
    """The thread leaves the peer to it, and frames cross all the same."""
    a, b, here, there = ends
    stopped = threading.Event()

    def poll(device: NtrdmaDevice) -> None:
        queue = device.create_cq(4)
        while not stopped.is_set():
            queue.poll(1)

    pollers = [threading.Thread(target=poll, args=(device,)) for device in (a, b)]
    for poller in pollers:
        poller.start()
    try:
        for number in range(50):
            here.user.send(number.to_bytes(14, "big"))
            there.user.send(there.user.recv(FRAME_BYTES))
            assert int.from_bytes(here.user.recv(FRAME_BYTES), "big") == number
    finally:
        stopped.set()
        for poller in pollers:
            poller.join()


def test_the_carrier_goes_with_the_peer(ends: Ends) -> None:
    a, b, here, _ = ends
    assert here.carrier == [True]
    b.close()
    deadline = time.monotonic() + SECONDS
    while a.service.engine.ready and time.monotonic() < deadline:
        time.sleep(0.01)
    assert here.carrier == [True, False]


def test_connections_are_by_the_interfaces_addresses(ends: Ends) -> None:
    """One that neither interface has cannot be bound, nor resolved."""
    a, b, here, _ = ends
    with ExitStack() as owned:
        with pytest.raises(VerbsError, match="test0 has no address 10"):
            open_connections(a, "10.9.2.2", owned)
        served = open_connections(a, "10.9.2.1", owned)
        asked = open_connections(b, "10.9.2.2", owned)
        listener = served.create_id()
        listener.bind_addr("10.9.2.1", 9000)
        listener.listen()
        client = asked.create_id()
        client.resolve_addr("10.9.2.1", 9000, 5.0)
        event = client.events.get(SECONDS)
        assert event is not None and event.status == 0
        stranger = asked.create_id()
        stranger.resolve_addr("10.9.2.77", 9000, 0.1)
        event = stranger.events.get(SECONDS)
        assert event is not None and event.status != 0
        another = ipv4_gid(bytes((10, 9, 2, 77)))
        here.addresses = (A_IP, another)  # somebody gives the interface one more
        once_more = asked.create_id()
        once_more.resolve_addr("10.9.2.77", 9000, 5.0)
        event = once_more.events.get(SECONDS)
        assert event is not None and event.status == 0


def test_addresses_of_an_interface() -> None:
    entry = struct.Struct("16sHH4s16x")
    entries = b"".join(
        entry.pack(name, socket.AF_INET, 0, bytes((10, 9, 2, last)))
        for name, last in ((b"ntrdma0", 1), (b"ntrdma01", 2), (b"ntrdma0:x", 3), (b"lo", 4))
    )
    assert parse(entries, "ntrdma0") == {A_IP, ipv4_gid(bytes((10, 9, 2, 3)))}
    assert ipv4_gid(bytes((127, 0, 0, 1))) in addresses_of("lo")
    line = "fd00000900020000000000000000000{} 05 40 00 80 {:>8}\n"
    lines = line.format(1, "ntrdma0") + line.format(2, "lo")
    assert parse6(lines, "ntrdma0") == {ipaddress.ip_address(A_IP6).packed}
    assert addresses_of("none0") == set()


@pytest.mark.parametrize(
    ("mtu", "count"), [(68, 1024), (1500, 1024), (9000, 256), (65510, 64), (65521, 64)]
)
def test_buffers_are_as_many_as_fit(mtu: int, count: int) -> None:
    options = EthernetOptions("10.9.2.1/24", mtu)
    assert options.frame_count == count
    assert options.frame_bytes == mtu + 14
