"""The parts of pyvfio_user that need no libvfio-user."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.pyvfio_user import ConfigSpace, LibraryError, load
from bluebridge.device.pyvfio_user._files import MOST_WAITING, Closer
from bluebridge.device.pyvfio_user._listener import Listener
from bluebridge.device.pyvfio_user._message_filter import MESSAGE_SECONDS, MessageFilter, Verdict
from bluebridge.device.pyvfio_user.constants import HEADER, Header, Protection, VfioUserCommand
from bluebridge.device.pyvfio_user.memory import DmaRegion, release
from tests.models.lingering import LingeringSockets

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    server, client = socket.socketpair()
    with server, client:
        yield server, client


def message_filter(server: socket.socket) -> MessageFilter:
    """The filter of a device without memory and with two MSI-X vectors."""
    return MessageFilter(
        server,
        lambda address, size: False,
        lambda kind: 2 if kind == 2 else 0,
        lambda text: None,
        Closer(),
    )


def message(command: int, body: bytes, flags: int = 0) -> bytes:
    return HEADER.pack(9, command, HEADER.size + len(body), flags, 0) + body


# Config space -----------------------------------------------------------------------------------


def test_capabilities_form_a_list() -> None:
    space = ConfigSpace()
    assert space.read(6, 1)[0] & 0x10 == 0
    first = space.add_capability(struct.pack("<BBHI", 0x01, 0xFF, 0, 0))
    second = space.add_capability(bytes([0x11, 0xFF]) + bytes(10), writable=b"\0\0\0\xc0")
    assert space.read(6, 1)[0] & 0x10
    assert space.read(0x34, 1)[0] == first == 0x40
    assert space.read(first, 2) == bytes([0x01, second])
    assert space.read(second, 2) == bytes([0x11, 0])
    space.write(second, b"\xff" * 12)
    assert space.read(second, 4) == b"\x11\0\0\xc0"


def test_too_many_capabilities_are_refused() -> None:
    space = ConfigSpace()
    for _ in range(3):
        space.add_capability(bytes(64))
    with pytest.raises(ValueError, match="no room"):
        space.add_capability(bytes(1))


@given(st.integers(0, 255), st.binary(min_size=1, max_size=16))
def test_config_writes_change_nothing_but_writable_bits(offset: int, data: bytes) -> None:
    space = ConfigSpace()
    space.set_identity(0x15B3, 0x1003, 0x020000, 1, pin=1)
    space.set_bar(0, 1 << 20)
    data = data[: 256 - offset]
    before = bytes(space.data)
    space.write(offset, data)
    for place, (old, new, mask) in enumerate(zip(before, space.data, space.writable, strict=True)):
        assert (old ^ new) & ~mask == 0
        if offset <= place < offset + len(data):
            assert new & mask == data[place - offset] & mask


# Messages and the filter --------------------------------------------------------------------------


def test_refusal_respects_no_reply() -> None:
    header = Header(7, VfioUserCommand.DMA_MAP, 48, 0, 0)
    assert HEADER.unpack(header.refusal(errno.EINVAL)) == (7, 2, 16, 0x21, errno.EINVAL)
    assert header._replace(flags=0x10).refusal(errno.EINVAL) == b""


def test_filter_leaves_valid_messages_to_the_library(pair: Pair) -> None:
    server, client = pair
    gate = message_filter(server)
    assert gate.inspect() is Verdict.IDLE
    access = message(VfioUserCommand.REGION_READ, struct.pack("<QII", 0, 0, 4))
    client.send(access * 2)
    for waiting in (True, False):
        assert gate.inspect() is Verdict.PASS
        assert gate.message == access
        assert gate.waiting is waiting
    client.close()
    assert gate.inspect() is Verdict.DROP


@pytest.mark.parametrize("command", [VfioUserCommand.REGION_READ, VfioUserCommand.DMA_UNMAP])
def test_filter_does_not_wait_for_a_message_in_pieces(pair: Pair, command: VfioUserCommand) -> None:
    """Byte by byte; each call returns at once, and each message has a time limit."""
    server, client = pair
    gate = message_filter(server)
    inspect = gate.inspect
    whole = message(command, struct.pack("<QII", 0, 0, 4).ljust(24, b"\0"))
    for _ in range(2):
        begin = time.monotonic()
        for at in range(len(whole) - 1):
            client.send(whole[at : at + 1])
            assert inspect() is Verdict.IDLE
        assert time.monotonic() - begin < MESSAGE_SECONDS
        client.send(whole[-1:])
        assert inspect() is Verdict.PASS
        assert gate.message == whole
        time.sleep(MESSAGE_SECONDS * 0.6)


@pytest.mark.parametrize("length", [3, 20])
def test_filter_drops_an_incomplete_message_after_its_time_or_its_client(
    pair: Pair, length: int
) -> None:
    server, client = pair
    inspect = message_filter(server).inspect
    client.send(message(VfioUserCommand.DMA_UNMAP, bytes(24))[:length])
    begin = time.monotonic()
    while inspect() is Verdict.IDLE:
        assert time.monotonic() - begin < 10 * MESSAGE_SECONDS
        time.sleep(0.01)
    assert time.monotonic() - begin >= MESSAGE_SECONDS
    inspect = message_filter(server).inspect
    assert inspect() is Verdict.IDLE
    client.close()
    assert inspect() is Verdict.DROP


@pytest.mark.parametrize(
    ("start", "count", "verdict"),
    [(0, 2, Verdict.PASS), (1, 2, Verdict.HANDLED), (1, 0xFFFFFFFF, Verdict.HANDLED)],
)
def test_filter_stops_vector_ranges_that_wrap(
    pair: Pair, start: int, count: int, verdict: Verdict
) -> None:
    server, client = pair
    inspect = message_filter(server).inspect
    client.send(message(VfioUserCommand.SET_IRQS, struct.pack("<IIIII", 20, 33, 2, start, count)))
    assert inspect() is verdict
    if verdict is Verdict.HANDLED:
        assert Header._make(HEADER.unpack(client.recv(100))).error == errno.EINVAL
    assert inspect() is Verdict.IDLE


def test_filter_closes_the_descriptors_of_what_it_refuses(pair: Pair) -> None:
    server, client = pair
    body = struct.pack("<IIQQQ", 32, 3, 0, 0, 1 << 20)
    socket.send_fds(client, [message(VfioUserCommand.DMA_MAP, body)], [client.fileno()])
    before = len(os.listdir("/proc/self/fd"))
    assert message_filter(server).inspect() is Verdict.HANDLED
    deadline = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) > before:  # a file that is no memory closes in a thread
        assert time.monotonic() < deadline
    assert client.recv(100)[12] == errno.EINVAL


def test_dma_region_bounds() -> None:
    region = DmaRegion(0x1000, 0x1000, None, Protection.READ)
    assert region.holds(0x1000, 0x1000) and region.holds(0x1FFF, 1)
    assert not region.holds(0xFFF, 2)
    assert not region.holds(0x1FFF, 2)
    assert not region.holds(0x1800, 1 << 64)


@pytest.mark.parametrize("kept", [False, True])
def test_slices_that_outlive_their_memory_are_logged(
    kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    view = memoryview(bytearray(16))
    part = view[4:8]
    if not kept:
        part.release()
    release(view)
    with pytest.raises(ValueError, match="released"):
        len(view)
    assert ("still held" in caplog.text) is kept


# The listener ----------------------------------------------------------------------------------


def test_listener_hands_out_clients_whose_first_message_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    listener = Listener(path, Closer())
    hello = message(VfioUserCommand.VERSION, b"hello")
    with socket.socket(socket.AF_UNIX) as mute, socket.socket(socket.AF_UNIX) as caller:
        assert listener.next_client() is None
        mute.connect(str(path))
        assert listener.next_client() is None
        caller.connect(str(path))
        caller.send(hello[:10])
        assert listener.next_client() is None
        caller.send(hello[10:] + b"and more")
        found = listener.next_client()
        assert found is not None
        client, first_message = found
        with client:
            assert first_message == hello
            assert client.recv(100) == b"and more"
        assert mute.recv(1) == b""
    listener.close()
    assert not path.exists()


def test_listener_leaves_other_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(OSError, match="is not a socket"):
        Listener(path, Closer())
    assert path.read_text() == "data"


def test_clients_are_turned_away_when_no_descriptor_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They would keep the socket readable for ever, and their QEMUs waiting."""
    path = tmp_path / "socket"
    listener, loop = Listener(path, Closer()), select.epoll()
    loop.register(listener, select.EPOLLIN)
    callers = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    try:
        fill = _descriptors_left()
        for caller in callers:
            caller.connect(str(path))
        deadline = time.monotonic() + 10
        while loop.poll(0):
            assert listener.next_client() is None
            assert time.monotonic() < deadline
        # One waits if another thread of this process has closed a file meanwhile.
        waiting = [caller for caller in callers if not _is_turned_away(caller)]
        assert len(waiting) <= 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for each in fill:
        os.close(each)
    assert "turned a client away: Too many open files" in caplog.text
    with socket.socket(socket.AF_UNIX) as later:
        later.connect(str(path))
        later.send(message(VfioUserCommand.VERSION, b"hello"))
        found = listener.next_client()
        assert found is not None
        found[0].close()
    listener.close()
    loop.close()
    for caller in callers:
        caller.close()


def test_clients_are_seen_again_while_a_close_still_hangs(tmp_path: Path) -> None:
    """Few enough descriptors wait, and no thread that ends will say so."""
    path = tmp_path / "socket"
    closer = Closer()
    listener, loop = Listener(path, closer), select.epoll()
    loop.register(listener, select.EPOLLIN)
    with LingeringSockets() as first, LingeringSockets() as second:
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(MOST_WAITING)]
        closer.close([first.make(), *others[::2], second.make(), *others[1::2]])
        assert listener.next_client() is None
        first.release()
        while closer.full():
            pass
        assert listener.next_client() is None
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
            assert loop.poll(10), "a client that nobody sees"
            caller.send(message(VfioUserCommand.VERSION, b"hello"))
            found = listener.next_client()
            assert found is not None
            found[0].close()
    listener.close()
    loop.close()


def _is_turned_away(caller: socket.socket) -> bool:
    """Whether the listener has closed this connection."""
    try:
        return caller.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def _descriptors_left() -> list[int]:
    """All that the process may still open, opened."""
    opened: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            opened.append(os.dup(0))
    return opened


def test_listener_does_not_remove_a_successors_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    first = Listener(path, Closer())
    path.unlink()
    second = Listener(path, Closer())
    first.close()
    assert path.exists()
    second.close()


# The library -----------------------------------------------------------------------------------


def test_a_missing_library_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"cannot load libvfio-user: .*nowhere"):
        load(tmp_path / "nowhere.so")


def test_a_library_that_listens_by_itself_is_refused(tmp_path: Path) -> None:
    """Its connections would need the system call that the sandbox forbids."""
    stock = tmp_path / "libvfio-user.so"
    subprocess.run(["gcc", "-shared", "-xc", "/dev/null", "-o", stock], check=True)
    with pytest.raises(
        LibraryError, match=r"^\S+ opens .*: compile it with `-include \S+adopt\.h`$"
    ):
        load(stock)


def test_the_package_stands_alone(tmp_path: Path) -> None:
    """It can be imported under its own name, without the rest of the repository."""
    package = Path(__file__).resolve().parents[3] / "device" / "pyvfio_user"
    (tmp_path / "pyvfio_user").symlink_to(package)
    code = (
        "import sys, pyvfio_user, pyvfio_user.samples.edu;"
        "sys.exit(any(name.split('.')[0] in ('device', 'guest') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
