"""The service around an engine of NTRDMA: its thread, devices that go, all that it gives back."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import ExitStack
from functools import partial
from operator import contains as holds

import pytest

from bluebridge.device.layout.net.roce import ipv4_gid
from bluebridge.device.layout.ntrdma.port import TAG, MessageKind
from bluebridge.guest.cm.interface import Peer, PeersLost, Received
from bluebridge.guest.connections import open_connections
from bluebridge.guest.drivers import dma, ntb
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.ntrdma import open as opening
from bluebridge.guest.ntrdma.connections import MAD_HEAD, MOST_ARRIVED, CommandTransport
from bluebridge.guest.ntrdma.engine.engine import Engine
from bluebridge.guest.ntrdma.engine.transport import CmArrived, Event, Happened
from bluebridge.guest.ntrdma.interface import Interface, Tap, mac_of
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.provider.resources import NtrdmaCq
from bluebridge.guest.ntrdma.transports import ntb as ntb_transports
from bluebridge.guest.ntrdma.transports.tcp import HEADER, TcpTransport
from bluebridge.guest.verbs import SendWr, Sge, VerbsError, WcStatus, WrOpcode
from bluebridge.guest.verbs.enums import WcOpcode
from bluebridge.guest.verbs.values import Wc
from tests.models.ntrdma_port import FRAME_BYTES, FRAME_COUNT, SocketPort, with_port
from tests.models.until import until
from tests.models.verbs.contract.common import join
from tests.models.verbs.player import ALL, Player

HERE = "s:127.0.0.1:0"
GID = ipv4_gid(bytes((10, 9, 2, 9)))
SECONDS = 20.0


class Deleted(SocketPort):
    """An interface that somebody deletes: its descriptor has an event for ever, and no frame."""

    def read_into(self, space: memoryview) -> int:
        raise DeviceError("interface test0 was deleted")


def test_an_interface_that_is_deleted_ends_the_device() -> None:
    port = Deleted()
    server = TcpTransport(HERE)
    network = Interface(port, FRAME_BYTES, FRAME_COUNT)
    other = SocketPort()
    with other.user, port.user, NtrdmaDevice(server, network=network) as device:
        with with_port(f"c:127.0.0.1:{server.port}", other) as peer:
            device.wait_ready(SECONDS)
            port.user.send(bytes(14))
            until(lambda: device.health.lost)
            until(partial(holds, peer.async_events, (Event.PORT_DOWN, 0)))
        with pytest.raises(DeviceError, match="interface test0 was deleted"):
            device.health.check()


def test_what_the_kernel_says_of_a_deleted_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    tap = object.__new__(Tap)
    tap.name, tap.descriptor, tap.beyond = "test0", -1, bytearray(1)
    numbers = [errno.EAGAIN, errno.EBADFD]

    def readv(fd: int, buffers: object) -> int:
        raise OSError(numbers.pop(0), "as the kernel says")

    monkeypatch.setattr(os, "readv", readv)
    assert tap.read_into(memoryview(bytearray(14))) == 0
    with pytest.raises(DeviceError, match="interface test0 was deleted"):
        tap.read_into(memoryview(bytearray(14)))


class Throttled(Interface):
    """Whoever asks what to wait for finds that frames wait for stores, until the next turn."""

    turns = 0

    @property
    def wait_for(self) -> list[tuple[int, int]]:
        assert self._ethernet is not None
        self._ethernet.sender.throttled = True
        return []

    def serve(self, readable: bool) -> None:
        assert self._ethernet is not None
        self._ethernet.sender.throttled = False
        self.turns += 1


def test_frames_that_wait_for_stores_are_looked_at_soon() -> None:
    port = SocketPort()
    network = Throttled(port, FRAME_BYTES, FRAME_COUNT)
    with port.user, NtrdmaDevice(TcpTransport(HERE), network=network):
        begin = time.monotonic()
        until(lambda: network.turns > 20)
        assert time.monotonic() - begin < 10.0  # else one turn takes a second


def test_the_thread_looks_at_the_engine_under_the_lock_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While somebody polls, who changes it."""
    real = Engine.deadline.fget  # type: ignore[attr-defined]
    looks: list[bool] = []
    with NtrdmaDevice(TcpTransport(HERE)) as device:
        lock = device.service.lock

        def deadline(engine: Engine) -> float:
            looks.append(lock._is_owned())  # type: ignore[attr-defined]
            return float(real(engine))

        monkeypatch.setattr(Engine, "deadline", property(deadline))
        cq = device.create_cq(1)
        until(lambda: bool(cq.poll()) or len(looks) > 10)
        assert all(looks)


class Gone(TcpTransport):
    """A device whose registers cannot be touched any more once it is `gone`."""

    gone = False

    def _touch(self) -> None:
        if self.gone:
            raise DeviceError("the bridge is gone")

    def load_spad(self, index: int) -> int:
        self._touch()
        return super().load_spad(index)

    def shut(self) -> None:
        self._touch()
        super().shut()


def test_a_device_that_goes_is_lost() -> None:
    """Whatever finds out; whoever waits is told, and closing gives the rest back."""
    port = SocketPort()
    server = Gone(HERE)
    network = Interface(port, FRAME_BYTES, FRAME_COUNT)
    with NtrdmaDevice(server, network=network) as device:
        with NtrdmaDevice(TcpTransport(f"c:127.0.0.1:{server.port}")) as peer:
            for each in (device, peer):
                each.wait_ready(SECONDS)
            server.gone = True
        until(lambda: device.health.lost)
        with pytest.raises(DeviceError, match="the bridge is gone"):
            device.wait_ready(SECONDS)
    with port.user:
        assert port.user.recv(1) == b""


def test_a_device_that_has_gone_unseen_can_be_closed() -> None:
    server = Gone(HERE)
    device = NtrdmaDevice(server)
    with NtrdmaDevice(TcpTransport(f"c:127.0.0.1:{server.port}")) as peer:
        for each in (device, peer):
            each.wait_ready(SECONDS)
        server.gone = True
        device.close()
    assert device.health.lost
    assert server.wait_for == []


def test_nothing_is_written_to_the_descriptor_of_a_closed_device() -> None:
    with NtrdmaDevice(TcpTransport(HERE)) as device:
        channel = device.create_comp_channel()
        cq = device.create_cq(1, channel)

        def rests() -> bool:
            cq.poll()
            return device.service.rest > 0

        until(rests)
    cq.req_notify()


def arrives(device: NtrdmaDevice, mad: bytes) -> None:
    """The peer sends a CM message."""
    with device.service.lock:
        device.service.engine.actions.append(CmArrived(mad, GID))
        device.service.tell()


def is_lost(device: NtrdmaDevice) -> None:
    """The port ceases to be ready."""
    with device.service.lock:
        device.service.engine.actions.append(Happened(Event.PORT_DOWN, 0))
        device.service.tell()


def received(mad: bytes) -> Received:
    """A CM message as the connection manager gets it."""
    return Received(MAD_HEAD + mad, Peer(GID, mac_of(GID)))


def test_messages_of_connections_that_nobody_receives_are_bounded() -> None:
    with NtrdmaDevice(TcpTransport(HERE)) as device:
        transport = CommandTransport(device, GID)
        for number in range(MOST_ARRIVED + 10):
            arrives(device, number.to_bytes(4, "big"))
        for _ in range(2):
            is_lost(device)
        *found, lost = transport.receive()
        assert len(found) == MOST_ARRIVED and isinstance(lost, PeersLost)
        assert found[-1] == received((MOST_ARRIVED - 1).to_bytes(4, "big"))
        arrives(device, b"next")
        assert transport.receive() == [received(b"next")]
        transport.close()


def test_a_device_has_one_connection_manager_at_a_time() -> None:
    with NtrdmaDevice(TcpTransport(HERE)) as device:
        with ExitStack() as owned:
            open_connections(device, "10.9.2.1", owned)
            with pytest.raises(VerbsError, match="has a connection manager already"):
                open_connections(device, "10.9.2.3", owned)
        with ExitStack() as owned:
            open_connections(device, "10.9.2.3", owned)
            assert device.service.has_address(ipv4_gid(bytes((10, 9, 2, 3))))
            assert not device.service.has_address(ipv4_gid(bytes((10, 9, 2, 1))))


def store(address: int, data: bytes) -> bytes:
    """A store as it travels."""
    return HEADER.pack(TAG, MessageKind.DATA, len(data), address, TAG) + data


@pytest.mark.parametrize("length", [100, 1 << 20])
def test_the_rest_of_a_store_does_not_land_once_memory_is_shut(length: int) -> None:
    """By way of the buffer, and directly into memory; the stream stays in step."""
    transport = TcpTransport(HERE)
    memory = transport.map(length)
    transport.open()
    half = length // 2
    with socket.create_connection(("127.0.0.1", transport.port)) as peer:
        whole = store(memory.address, b"x" * length)
        peer.sendall(whole[:-half])
        until(lambda: bool(transport.serve()) and memory.view[length - half - 1] == ord("x"))
        transport.shut()
        peer.sendall(whole[-half:] + store(8, b"spad"))
        until(lambda: bool(transport.serve()) and transport.load_spad(2) != 0)
        assert bytes(memory.view[length - half :]) == bytes(half)
        transport.open()
        peer.sendall(store(memory.address, b"again"))
        until(lambda: bool(transport.serve()) and bytes(memory.view[:5]) == b"again")
    transport.close()


def test_a_scratchpad_is_written_although_memory_is_shut() -> None:
    transport = TcpTransport(HERE)
    with socket.create_connection(("127.0.0.1", transport.port)) as peer:
        whole = store(8, b"spad")
        peer.sendall(whole[:-2])
        until(lambda: bool(transport.serve()) and transport.load_spad(2) != 0)
        transport.shut()
        peer.sendall(whole[-2:])
        until(
            lambda: (
                bool(transport.serve())
                and transport.load_spad(2) == int.from_bytes(b"spad", "little")
            )
        )
    transport.close()


LARGE = 24 << 20


def test_memory_of_flushed_work_is_its_users_although_the_peer_has_stood_still() -> None:
    """A peer that takes nothing never gets what it has not taken when the port gives up."""
    server = TcpTransport(HERE)
    with (
        NtrdmaDevice(server) as device,
        NtrdmaDevice(TcpTransport(f"c:127.0.0.1:{server.port}")) as peer,
    ):
        for each in (device, peer):
            each.wait_ready(SECONDS)
        x, y = join(Player(device), Player(peer))
        here, there = device.allocate(LARGE), peer.allocate(LARGE)
        source = x.pd.reg_mr(here.address, LARGE)
        target = y.pd.reg_mr(there.address, LARGE, access=ALL)
        request = SendWr(1, WrOpcode.RDMA_WRITE, (Sge(here.address, LARGE, source.lkey),))
        request.remote_addr, request.rkey = there.address, target.rkey
        with peer.service.lock:
            x.qp.post_send(request)
            with device.service.lock:
                device.service.engine.port.quiesce("the test wants it", time.monotonic())
            x.expect(WcStatus.WR_FLUSH_ERR)
            here.view[:] = b"x" * LARGE
        for each in (device, peer):
            until(partial(holds, each.async_events, (Event.PORT_DOWN, 0)))
            each.wait_ready(SECONDS)
        assert b"x" not in bytes(there.view)


class Closing:
    """Something that must be closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def _refuse(*_arguments: object, **_more: object) -> None:
    raise MemoryError("no memory")


def test_what_was_opened_is_closed_when_opening_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge, engine, transport = Closing(), Closing(), Closing()
    monkeypatch.setattr(ntb, "open_bridge", lambda: bridge)
    monkeypatch.setattr(dma, "open_engine", lambda: engine)
    monkeypatch.setattr(ntb_transports, "DmaTransport", _refuse)
    with pytest.raises(MemoryError):
        opening.open_ntrdma()
    assert bridge.closed and engine.closed
    monkeypatch.setattr(opening, "_back_end", lambda word: transport)
    monkeypatch.setattr(opening, "NtrdmaDevice", _refuse)
    with pytest.raises(MemoryError):
        opening.open_ntrdma()
    assert transport.closed


def test_who_awaits_an_event_is_served_although_he_looks_once_more() -> None:
    """A look at the queue after `req_notify` is no polling: the thread brings the event."""
    with NtrdmaDevice(TcpTransport(HERE)) as device:
        cq = device.create_cq(1, device.create_comp_channel())
        until(lambda: not cq.poll() and device.service.rest > 0)
        cq.req_notify()
        with device.service.lock:
            cq.poll()
            assert not device.service.polled(time.monotonic())


class Late:
    """A source whose completion is found by whoever looks at the queue."""

    def __init__(self, cq: NtrdmaCq) -> None:
        self._queue = cq.queue
        self._looks = 0
        self._found: list[Wc] = []

    @property
    def waiting(self) -> bool:
        return bool(self._found)

    def collect(self) -> None:
        self._looks += 1
        if self._looks == 2:  # the first one is that of arming
            self._found = [Wc(7, WcStatus.SUCCESS, WcOpcode.SEND, 1)]
            self._queue.added(solicited=True)

    def take(self) -> Wc | None:
        return self._found.pop() if self._found else None


def test_an_event_that_a_poll_brings_about_comes_at_once() -> None:
    """One thread polls what another awaits: no third one has to look at the engine first."""
    with NtrdmaDevice(TcpTransport(HERE)) as device:
        channel = device.create_comp_channel()
        cq = device.create_cq(1, channel)
        cq.queue.attach(Late(cq))
        with device.service.lock:
            cq.queue.arm(solicited_only=False)
            assert channel.get_event(0) is None
            assert [wc.wr_id for wc in cq.poll()] == [7]
            assert channel.get_event(0) is cq
