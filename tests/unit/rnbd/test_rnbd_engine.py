"""Client and server of RNBD against each other, in orders that a seed chooses."""

from __future__ import annotations

import errno
import random

import pytest

from bluebridge.device.layout.net import rnbd
from bluebridge.device.layout.net.rnbd import AccessMode, IoFlag, Operation
from bluebridge.guest.protocols.rnbd.backend import RamBackend
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.actions import (
    BlockRequest,
    ClientDevice,
    DeviceState,
    Done,
    Mapped,
    Offline,
    PermitFree,
    Remapped,
    Resized,
    SessionClosed,
    SessionReady,
    Unmapped,
)
from bluebridge.guest.protocols.rnbd.engine.client import RnbdClient
from bluebridge.guest.protocols.rnbd.engine.server import Export
from bluebridge.guest.protocols.rtrs.engine.actions import Direction, Opened
from bluebridge.guest.protocols.rtrs.engine.interface import Permit
from tests.models.rnbd.loopback import Loopback

SECTORS = 64
READ, WRITE = Operation.READ, Operation.WRITE


def disks(*names: str) -> list[Export]:
    """RAM disks of 32 KiB."""
    return [Export(name, RamBackend(SECTORS * 512)) for name in names or ("disk",)]


def ready(
    loopback: Loopback, name: str = "disk", access: AccessMode = AccessMode.RW
) -> ClientDevice:
    loopback.open()
    device = loopback.client.map(name, access, 0.0)
    loopback.pump()
    assert loopback.client.take_actions()[-1] == Mapped(device, 0)
    return device


def mapped() -> tuple[Loopback, ClientDevice]:
    """A session with one disk, which is mapped."""
    loopback = Loopback(disks())
    return loopback, ready(loopback)


def a_permit(client: RnbdClient, device: ClientDevice) -> Permit:
    permit = client.get_permit(device)
    assert permit is not None
    return permit


def transfer(
    loopback: Loopback, device: ClientDevice, request: BlockRequest, data: bytes = b""
) -> tuple[int, bytes]:
    """One request from permit to release: errno, and what was read."""
    client = loopback.client
    permit = a_permit(client, device)
    client.data(permit)[: len(data)] = data
    client.submit(device, permit, request, 1, 0.0)
    loopback.pump()
    (done,) = [action for action in client.take_actions() if isinstance(action, Done)]
    read = bytes(client.data(permit)[: request.length]) if request.operation == READ else b""
    client.release(permit, 0.0)
    return done.errno, read


def test_the_formats_of_io_messages_are_those_of_the_table() -> None:
    packed = messages.pack_io(7, 1 << 40, 0x301, 4096, 9)
    assert len(packed) == rnbd.IO.size
    assert rnbd.IO.unpack(packed) == {
        "type": rnbd.MessageType.IO,
        "device_id": 7,
        "sector": 1 << 40,
        "rw": 0x301,
        "bi_size": 4096,
        "prio": 9,
    }
    assert messages.parse_io(packed) == (7, 1 << 40, 0x301, 4096)
    assert messages.parse_io(packed[:24]) == (7, 1 << 40, 0x301, 4096)


def test_a_device_is_mapped_written_and_read() -> None:
    loopback, device = mapped()
    assert device.geometry.sectors == SECTORS
    assert loopback.client.version == rnbd.VERSION_MAJOR
    data = bytes(range(256)) * 4
    assert transfer(loopback, device, BlockRequest(WRITE, 3, 1024), data) == (0, b"")
    assert transfer(loopback, device, BlockRequest(READ, 3, 1024)) == (0, data)
    assert transfer(loopback, device, BlockRequest(READ, 4, 512)) == (0, data[512:])


def test_devices_wait_for_the_session() -> None:
    loopback = Loopback(disks("one", "two"))
    first = loopback.client.map("one", AccessMode.RW, 0.0)
    second = loopback.client.map("two", AccessMode.RO, 0.0)
    loopback.pump()
    assert not loopback.client.take_actions()
    loopback.open()
    loopback.pump()
    actions = loopback.client.take_actions()
    assert actions[0] == SessionReady(0)
    assert {action.device for action in actions if isinstance(action, Mapped)} == {first, second}
    assert first.number != second.number


def test_a_session_that_does_not_come_up_ends_its_devices() -> None:
    loopback = Loopback(disks())
    device = loopback.client.map("disk", AccessMode.RW, 0.0)
    loopback.client.handle(Opened(None, errno.ECONNREFUSED), 0.0)
    actions = loopback.client.take_actions()
    assert actions == [SessionReady(errno.ECONNREFUSED), Mapped(device, errno.ECONNREFUSED)]
    assert device.state == DeviceState.UNMAPPED and not loopback.client.devices


@pytest.mark.parametrize(
    ("name", "modes", "outcomes"),
    [
        ("disk", [0, 0, 0], [0, 0, 0]),
        ("disk", [1, 1, 0], [0, errno.EPERM, 0]),
        ("disk", [1, 2, 2], [0, 0, errno.EPERM]),
        ("disk", [2, 2, 1], [0, 0, errno.EPERM]),
        ("disk", [3], [errno.EINVAL]),
        ("none", [1], [errno.ENOENT]),
        ("a/../disk", [1], [errno.EINVAL]),
    ],
)
def test_access_modes(name: str, modes: list[int], outcomes: list[int]) -> None:
    """Each opened by a name of its own: one session opens a device once, whatever the mode."""
    loopback = Loopback(disks())
    transport = loopback.transport
    found = []
    for number, mode in enumerate(modes):
        user = bytearray(messages.pack_open("/" * number + name, AccessMode.RO))
        rnbd.OPEN.set(user, "access_mode", mode)
        found.append(transport.serve(loopback.server, 0, Direction.READ, 56, bytes(user)))
    assert found == outcomes


def test_a_writer_makes_room_when_it_closes() -> None:
    loopback, device = mapped()
    export = loopback.server.exports["/disk"]
    assert export.writers == 1
    loopback.client.unmap(device, 0.0)
    loopback.pump()
    assert loopback.client.take_actions() == [Unmapped(device)]
    assert export.writers == 0 and not next(iter(loopback.server.sessions)).opened()
    again = loopback.client.map("disk", AccessMode.RW, 0.0)
    loopback.pump()
    assert loopback.client.take_actions() == [Mapped(again, 0)]


def test_a_device_is_mapped_once_and_unmapped_once() -> None:
    loopback, device = mapped()
    with pytest.raises(FileExistsError):
        loopback.client.map("disk", AccessMode.RW, 0.0)
    loopback.client.unmap(device, 0.0)
    with pytest.raises(OSError, match="unmapped") as caught:
        loopback.client.unmap(device, 0.0)
    assert caught.value.errno == errno.EALREADY
    for name in ("", "x" * 255, "a\0b"):
        with pytest.raises(ValueError, match="name"):
            loopback.client.map(name, AccessMode.RW, 0.0)


def test_what_the_kernel_sends_for_requests_without_data() -> None:
    """Direction, length and flags as rnbd_client_xfer_request makes them."""
    loopback, device = mapped()
    client, waiting = loopback.client, loopback.transport.waiting
    for operation, direction in (
        (Operation.FLUSH, Direction.READ),
        (Operation.DISCARD, Direction.WRITE),
        (Operation.WRITE_ZEROES, Direction.WRITE),
        (Operation.SECURE_ERASE, Direction.WRITE),
    ):
        permit = a_permit(client, device)
        length = 0 if operation == Operation.FLUSH else 8192
        client.submit(device, permit, BlockRequest(operation, 8, length, IoFlag.FUA), 1, 0.0)
        (request,) = waiting
        assert (request.direction, request.length) == (direction, 0)
        message = messages.parse_io(request.user)
        assert message.rw == operation | IoFlag.FUA and message.size == length
        loopback.pump()
        (done,) = client.take_actions()
        assert isinstance(done, Done)
        refused = operation == Operation.SECURE_ERASE
        assert done.errno == (errno.EOPNOTSUPP if refused else 0)
        client.release(permit, 0.0)


def test_discards_beyond_what_a_server_takes_go_in_parts() -> None:
    loopback, device = mapped()
    transfer(loopback, device, BlockRequest(WRITE, 0, SECTORS * 512), b"x" * SECTORS * 512)
    device.geometry = device.geometry._replace(max_discard_sectors=10)
    before = len(loopback.transport.seen)
    assert transfer(loopback, device, BlockRequest(Operation.DISCARD, 1, 35 * 512)) == (0, b"")
    assert len(loopback.transport.seen) - before == 4
    _, left = transfer(loopback, device, BlockRequest(READ, 0, SECTORS * 512))
    assert left == b"x" * 512 + bytes(35 * 512) + b"x" * (SECTORS - 36) * 512


def test_without_a_path_requests_fail_and_a_device_comes_back() -> None:
    loopback, device = mapped()
    client = loopback.client
    permit = a_permit(client, device)
    client.submit(device, permit, BlockRequest(READ, 0, 512), 5, 0.0)
    loopback.link_down()
    assert client.take_actions() == [Done(device, 5, permit, errno.ECONNABORTED), Offline(device)]
    client.release(permit, 0.0)
    assert transfer(loopback, device, BlockRequest(READ, 0, 512))[0] == errno.EIO
    loopback.link_up(same_session=False)
    loopback.pump()
    assert client.take_actions() == [Remapped(device, 0)]
    assert transfer(loopback, device, BlockRequest(READ, 0, 512)) == (0, bytes(512))


def test_a_device_that_the_server_refuses_again_stays_offline_until_it_is_remapped() -> None:
    loopback, device = mapped()
    loopback.link_down()
    export = loopback.server.exports["/disk"]
    export.writers = 5
    loopback.link_up(same_session=False)
    loopback.pump()
    assert Remapped(device, errno.EPERM) in loopback.client.take_actions()
    assert device.state == DeviceState.DISCONNECTED
    export.writers = 0
    loopback.client.remap(device, 0.0)
    loopback.pump()
    assert loopback.client.take_actions() == [Remapped(device, 0)]
    with pytest.raises(OSError, match="open") as caught:
        loopback.client.remap(device, 0.0)
    assert caught.value.errno == errno.EALREADY


def test_a_device_with_another_size_after_a_reconnection() -> None:
    loopback, device = mapped()
    loopback.link_down()
    backend = loopback.server.exports["/disk"].backend
    assert isinstance(backend, RamBackend)
    backend.geometry = backend.geometry._replace(sectors=32)
    loopback.link_up()
    loopback.pump()
    assert Resized(device) in loopback.client.take_actions()
    assert device.geometry.sectors == 32
    loopback.client.resize(device, 40)
    assert loopback.client.take_actions() == [Resized(device)]


def test_a_device_that_is_unmapped_while_it_is_opened_is_closed_again() -> None:
    loopback = Loopback(disks())
    loopback.open()
    loopback.pump()
    device = loopback.client.map("disk", AccessMode.RW, 0.0)
    loopback.client.unmap(device, 0.0)
    loopback.pump()
    assert loopback.server.exports["/disk"].writers == 0
    assert loopback.transport.free == 8


def test_permits_go_round() -> None:
    """A device without one is told when one is there; messages about devices come first."""
    loopback = Loopback(disks("one", "two"), queue_depth=2)
    device = ready(loopback, "one")
    client = loopback.client
    held = [client.get_permit(device), client.get_permit(device)]
    assert client.get_permit(device) is None
    other = client.map("two", AccessMode.RW, 0.0)
    client.release(held[0], 0.0)  # type: ignore[arg-type]
    loopback.pump()
    assert client.take_actions() == [PermitFree(device), Mapped(other, 0)]
    assert client.get_permit(other) is not None
    assert client.get_permit(other) is None
    client.release(held[1], 0.0)  # type: ignore[arg-type]
    assert client.take_actions() == [PermitFree(other)]


def test_what_rtrs_has_no_room_for_is_asked_again() -> None:
    loopback, device = mapped()
    loopback.transport.refuse_next = errno.EAGAIN
    permit = a_permit(loopback.client, device)
    loopback.client.submit(device, permit, BlockRequest(READ, 0, 512), 3, 1.0)
    loopback.pump()
    assert not loopback.client.take_actions()
    assert loopback.client.deadline == pytest.approx(1.01)
    loopback.client.expire(1.02)
    loopback.pump()
    assert loopback.client.take_actions() == [Done(device, 3, permit, 0)]
    assert loopback.client.deadline is None


def test_the_end_of_a_session() -> None:
    loopback, device = mapped()
    loopback.close()
    assert loopback.client.take_actions() == [Offline(device), SessionClosed()]
    loopback.client.unmap(device, 0.0)
    assert loopback.client.take_actions() == [Unmapped(device)]
    assert not loopback.transport.waiting


def test_devices_closed_by_force_keep_their_number() -> None:
    loopback = Loopback(disks("one", "two"))
    device = ready(loopback, "one")
    session = next(iter(loopback.server.sessions))
    loopback.server.force_close(session.opened()[0])
    assert transfer(loopback, device, BlockRequest(READ, 0, 512))[0] == errno.ENOTCONN
    other = loopback.client.map("two", AccessMode.RW, 0.0)
    loopback.pump()
    assert loopback.client.take_actions() == [Mapped(other, 0)]
    assert other.number != device.number
    assert loopback.server.exports["/one"].writers == 0


@pytest.mark.parametrize("seed", range(60))
def test_any_order_leaves_what_a_disk_would_have(seed: int) -> None:
    """Reads and writes of distinct sectors in flight, cut and restored links; no permit is lost."""
    orders = random.Random(seed)
    loopback = Loopback(disks("one", "two"), queue_depth=orders.choice((1, 3, 8)), seed=seed)
    client = loopback.client
    devices = [ready(loopback, "one")]
    devices.append(client.map("two", AccessMode.RW, 0.0))
    loopback.pump()
    client.take_actions()
    flights: dict[int, tuple[ClientDevice, int, bytes | None]] = {}
    known: dict[tuple[str, int], set[bytes]] = {}
    tag = 0

    def collect() -> None:
        for action in client.take_actions():
            if isinstance(action, Done):
                device, sector, data = flights.pop(action.tag)
                key = (device.name, sector)
                if data is not None:
                    known.setdefault(key, {bytes(512)})
                    known[key] = {data} if not action.errno else known[key] | {data}
                elif not action.errno:
                    read = bytes(client.data(action.permit)[:512])
                    assert read in known.get(key, {bytes(512)})
                client.release(action.permit, 0.0)

    for _ in range(300):
        choice = orders.random()
        device = orders.choice(devices)
        sector = orders.randrange(SECTORS)
        busy = {(item.name, where) for item, where, _ in flights.values()}
        if choice < 0.5 and (device.name, sector) not in busy:
            permit = client.get_permit(device)
            if permit is not None:
                tag += 1
                data = orders.randbytes(512) if orders.random() < 0.5 else None
                flights[tag] = device, sector, data
                if data is not None:
                    client.data(permit)[:512] = data
                operation = READ if data is None else WRITE
                client.submit(device, permit, BlockRequest(operation, sector, 512), tag, 0.0)
        elif choice < 0.97:
            loopback.step()
        elif loopback.transport.connected:
            loopback.link_down()
        else:
            loopback.link_up(same_session=orders.random() < 0.5)
        collect()
    if not loopback.transport.connected:
        loopback.link_up()
    loopback.pump(collect)
    assert not flights
    assert loopback.transport.free == loopback.transport.depth
    assert [device.state for device in devices] == [DeviceState.MAPPED] * 2
