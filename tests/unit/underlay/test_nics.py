"""A NIC at QEMU's stream, and what a QEMU that has been taken over may send on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import thread_time

import pytest

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.net.ethernet import BROADCAST, HEADER_SIZE
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.server.control import ControlCommands
from bluebridge.device.server.nic import LENGTH, MOST_LENGTH, Nic
from bluebridge.device.server.settings import HcaSpec
from tests.unit.underlay.test_joined_networks import MACS, Station, loop, settle

__all__ = ["loop"]
MAC, OTHER = MACS[1], MACS[2]
FRAME = MACS[0] + MAC + b"\x08\x06" + bytes(46)


def packed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


class Wire:
    """A network with a NIC and a station, which stands for an HCA."""

    def __init__(self, loop: EventLoop, path: Path) -> None:
        self.loop = loop
        self.path = path
        self.fabric = LocalFabric()
        self.nic = Nic(HcaSpec("b", path, MAC), self.fabric, self.fabric, loop)
        self.station = Station(self.fabric, MACS[0])

    def plug(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(str(self.path))
        client.settimeout(0.05)
        settle(self.loop)
        return client

    def report(self) -> str:
        """Return what the control socket says of the NIC."""
        return self.nic.report()


@pytest.fixture
def wire(loop: EventLoop, tmp_path: Path) -> Iterator[Wire]:
    """A NIC that nobody has connected to."""
    found = Wire(loop, tmp_path / "nic.sock")
    yield found
    found.nic.close()
    assert not found.path.exists()


def test_frames_pass_both_ways_byte_for_byte(wire: Wire) -> None:
    with wire.plug() as guest:
        guest.sendall(packed(FRAME) * 3)
        settle(wire.loop)
        assert wire.station.got == [FRAME] * 3
        wire.station.send(MAC, bytes(46), b"second".ljust(1500))
        wire.station.send(BROADCAST, b"who has".ljust(46))
        settle(wire.loop)
        expected = [
            wire.station.frame(MAC),
            wire.station.frame(MAC, b"second".ljust(1500)),
            wire.station.frame(BROADCAST, b"who has".ljust(46)),
        ]
        assert guest.recv(1 << 16) == b"".join(map(packed, expected))
        assert wire.report() == "NIC b: sent 3, received 3"


def test_a_frame_may_come_a_byte_at_a_time(wire: Wire) -> None:
    with wire.plug() as guest:
        for byte in packed(FRAME) * 2:
            guest.sendall(bytes([byte]))
            wire.loop.step(0.0)
        settle(wire.loop)
    assert wire.station.got == [FRAME] * 2


def test_frames_for_others_do_not_reach_the_guest(wire: Wire) -> None:
    other = Station(wire.fabric, OTHER)
    with wire.plug() as guest:
        wire.station.send(OTHER, bytes(46))
        wire.station.send(MAC, b"mine".ljust(46))
        settle(wire.loop)
        assert guest.recv(1 << 16) == packed(wire.station.frame(MAC, b"mine".ljust(46)))
    assert other.got == [wire.station.frame(OTHER)]


@pytest.mark.parametrize("size", [0, 13, MOST_LENGTH])
def test_what_is_no_frame_is_counted_and_the_next_one_arrives(wire: Wire, size: int) -> None:
    with wire.plug() as guest:
        guest.sendall(packed(bytes(size)) + packed(FRAME))
        settle(wire.loop)
        assert wire.station.got == [FRAME]
        assert wire.report() == "NIC b: sent 0, received 1, refused 1"


def test_a_stream_out_of_step_ends_and_qemu_may_come_again(wire: Wire) -> None:
    with wire.plug() as guest:
        guest.sendall(LENGTH.pack(MOST_LENGTH + 1))
        settle(wire.loop)
        assert guest.recv(1) == b""
    assert wire.report().endswith("not connected")
    with wire.plug() as guest:
        guest.sendall(packed(FRAME))
        settle(wire.loop)
    assert wire.station.got == [FRAME]


def test_the_newest_qemu_has_the_nic(wire: Wire) -> None:
    with wire.plug() as old, wire.plug() as new:
        assert old.recv(1) == b""
        wire.station.send(MAC, bytes(46))
        settle(wire.loop)
        assert new.recv(1 << 16) == packed(wire.station.frame(MAC))


def test_descriptors_on_the_stream_end_it_and_are_closed(wire: Wire) -> None:
    with wire.plug() as guest:
        reader, writer = os.pipe()
        socket.send_fds(guest, [packed(FRAME)], [writer] * 200)
        os.close(writer)
        settle(wire.loop)
        assert guest.recv(1) == b""
        assert os.read(reader, 1) == b"", "no end for writing is left"
        os.close(reader)
    assert wire.station.got == []


def test_a_guest_that_reads_nothing_loses_frames_and_holds_up_nobody(wire: Wire) -> None:
    with wire.plug() as guest:
        for number in range(8000):
            wire.station.send(MAC, number.to_bytes(4, "big").ljust(1400))
            wire.loop.step(0.0)
        guest.sendall(packed(FRAME))
        settle(wire.loop)
        assert wire.station.got == [FRAME]
        assert ", no room for " in wire.report()
        stream = b""
        while part := _received(guest):
            stream += part
            settle(wire.loop)
    numbers = []
    while stream:
        (length,) = LENGTH.unpack_from(stream)
        frame, stream = stream[LENGTH.size : LENGTH.size + length], stream[LENGTH.size + length :]
        assert len(frame) == length
        numbers.append(int.from_bytes(frame[14:18], "big"))
    assert numbers == list(range(len(numbers))), "frames that were taken arrive whole, in order"
    assert 1000 < len(numbers) < 8000


def _received(guest: socket.socket) -> bytes:
    try:
        return guest.recv(1 << 20)
    except TimeoutError:
        return b""


@pytest.mark.parametrize("size", [HEADER_SIZE, 0])
def test_many_small_frames_at_once_are_taken_in_turns(wire: Wire, size: int) -> None:
    """Each goes to eight ports: those who wait for their turn do not wait for all of them."""
    for number in range(7):
        Station(wire.fabric, bytes((2, 0, 0, 0, 0, number)))
    with wire.plug() as guest:
        guest.setblocking(False)
        frame = packed((BROADCAST + MAC + b"\x88\xb5")[:size])
        stream = frame * ((1 << 18) // len(frame))
        count = len(stream) // len(frame)
        whole = f"received {count}" if size else f"received 0, refused {count}"
        sent, longest = guest.send(stream), 0.0
        while not wire.report().endswith(whole):
            before = thread_time()
            wire.loop.step(0.002)
            longest = max(longest, thread_time() - before)
            if sent < len(stream):
                with suppress(BlockingIOError):
                    sent += guest.send(stream[sent:])
    assert len(wire.station.got) == (count if size else 0)
    assert longest < 0.02


def test_a_nic_that_is_gone_takes_nothing(wire: Wire) -> None:
    with wire.plug():
        pass
    settle(wire.loop)
    wire.station.send(BROADCAST, bytes(46))
    settle(wire.loop)
    assert wire.report().startswith("NIC b: sent 0, received 0")


def test_a_guest_cannot_speak_as_the_hca(wire: Wire) -> None:
    with wire.plug() as guest:
        guest.sendall(packed(OTHER + MACS[0] + bytes(48)))
        settle(wire.loop)
        assert "from addresses of others 1" in wire.report()


def test_its_cable_has_rules_and_is_pulled_and_plugged(wire: Wire) -> None:
    """With the words that those of an HCA have."""
    rules = FaultRules(wire.loop.call_later, EventLog())
    rules.add_link("b/1", "b", wire.nic, wire.fabric)
    commands = ControlCommands({}, rules, nics={"b": wire.nic})
    with wire.plug() as guest:

        def passed(frames: int) -> int:
            """Send some; return how many arrive."""
            wire.station.got.clear()
            guest.sendall(packed(FRAME) * frames)
            settle(wire.loop)
            return len(wire.station.got)

        assert commands.execute("drop b kind=frames direction=out count=2") == ["1", "ok"]
        assert passed(3) == 1
        (line, _) = commands.execute("rules b/1")
        assert "matched 3, taken 2" in line
        assert commands.execute("remove b") == ["ok"]
        assert passed(3) == 3
        assert commands.execute("link b down") == ["ok"]
        assert passed(3) == 0
        assert "cable out" in wire.report()
        assert commands.execute("link b up") == ["ok"]
        assert passed(3) == 3
    for line in ("link b/2 down", "drop b/2"):
        assert commands.execute(line) == ["error: 'b' has no port '2', but 1 to 1"]


def test_a_socket_that_cannot_be_served_is_one_line(loop: EventLoop, tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "nic.sock"
    with pytest.raises(OSError, match=f"NIC socket {path}: No such file or directory"):
        Nic(HcaSpec("b", path, MAC), LocalFabric(), LocalFabric(), loop)
