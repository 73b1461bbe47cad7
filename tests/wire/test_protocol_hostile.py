"""Clients that break the rules: the offence fails, the server and its next client do not."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bluebridge.device.pyvfio_user.constants import HEADER, VfioUserCommand
from bluebridge.host_tools.vfio_user.client import Client, eventfds, sealed_memory
from bluebridge.host_tools.vfio_user.connection import MSIX, NO_REPLY, IrqFlag
from tests.models.probe_device import VECTORS
from tests.models.server import ServerProcess, is_dropped, next_client

BAR0, BAR1 = 0, 1
PAGE = 4096
GUEST = 0x1_0000_0000
TOP = 1 << 64


@pytest.fixture(scope="module")
def files(server: ServerProcess, path: Path) -> int:
    """Descriptors that it has open with one client, before anything strange has come."""
    with Client(path) as idle:
        idle.read32(BAR0, 0)
        return server.open_files()


@pytest.fixture
def probe(server: ServerProcess, path: Path, files: int) -> Iterator[Client]:
    """A client; after the test the server must still serve the next one, without a leak."""
    with next_client(path) as client:
        yield client
    with next_client(path) as after:
        after.read32(BAR0, 0)
        assert server.has_open(files), "the server leaks descriptors"


@pytest.mark.parametrize("length", [1, 8, 15])
def test_truncated_header(probe: Client, length: int) -> None:
    probe.send(probe.pack(VfioUserCommand.GET_INFO)[:length])
    assert is_dropped(probe)


@pytest.mark.parametrize("size", [0, 1, 15, 65537, 0x7FFFFFFF, 0xFFFFFFFF])
def test_impossible_size_in_the_header(probe: Client, size: int) -> None:
    probe.send(probe.pack(VfioUserCommand.GET_INFO, bytes(16), size=size))
    assert is_dropped(probe)


@pytest.mark.parametrize("command", [VfioUserCommand.VERSION, VfioUserCommand.REGION_WRITE])
def test_body_that_never_comes(probe: Client, command: int) -> None:
    probe.send(probe.pack(command, bytes(3), size=64))
    assert is_dropped(probe)


@pytest.mark.parametrize(
    "command", [item for item in VfioUserCommand if item is not VfioUserCommand.RESET]
)
def test_no_body_at_all(probe: Client, command: int) -> None:
    probe.request(command, expect=errno.EINVAL)
    assert probe.alive()


@pytest.mark.parametrize("command", list(VfioUserCommand)[1:-1])
@pytest.mark.parametrize("length", [1, 4, 7])
def test_short_bodies(probe: Client, command: int, length: int) -> None:
    if command != VfioUserCommand.RESET:
        probe.request(command, bytes(length), expect=errno.EINVAL)
    assert probe.alive()


@pytest.mark.parametrize("command", [0, 1, 11, 12, 15, 16, 255, 65535])
def test_unknown_or_misplaced_command(probe: Client, command: int) -> None:
    probe.request(command, bytes(32), expect=errno.EINVAL)
    assert probe.alive()


@pytest.mark.parametrize("kind", [2, 7, 15])
def test_neither_command_nor_reply(probe: Client, kind: int) -> None:
    probe.request(VfioUserCommand.GET_INFO, bytes(16), flags=kind, expect=errno.EINVAL)
    assert probe.alive()


def test_replies_to_nothing_are_ignored(probe: Client) -> None:
    probe.send(HEADER.pack(77, VfioUserCommand.DMA_WRITE, 32, 1, 0) + bytes(16))
    probe.send(HEADER.pack(78, VfioUserCommand.DMA_READ, 16, 1 | 0x20, errno.EFAULT))
    assert probe.alive()


@pytest.mark.parametrize("flags", [0, NO_REPLY])
@pytest.mark.parametrize(
    ("region", "offset", "count"),
    [
        (0, PAGE, 4),
        (0, PAGE - 3, 4),
        (0, TOP - 4, 4),
        (0, TOP - 4, 8),
        (0, TOP - 1, 0xFFFFFFFF),
        (0, 0, PAGE + 1),
        (0, 0, 0x7FFFFFFF),
        (0, 0, 0xFFFFFFFF),
        (3, 0, 4),
        (7, PAGE - 1, 2),
        (9, 0, 4),
        (10, 0, 4),
        (0xFFFFFFFF, 0, 4),
    ],
)
def test_region_out_of_bounds(
    probe: Client, region: int, offset: int, count: int, flags: int
) -> None:
    body = struct.pack("<QII", offset, region, count)
    for command, payload in (
        (VfioUserCommand.REGION_READ, b""),
        (VfioUserCommand.REGION_WRITE, bytes(4)),
    ):
        if flags:
            probe.send(probe.pack(command, body + payload, flags=flags))
        else:
            probe.request(command, body + payload, expect=errno.EINVAL)
    assert probe.alive()


@pytest.mark.parametrize("count", [8193, 1 << 16, 1 << 17, 1 << 18, 1 << 20])
def test_a_read_longer_than_announced_fails(probe: Client, count: int) -> None:
    """libvfio-user writes the reply to a socket that nobody can read meanwhile: it must fit."""
    longest = probe.capabilities["max_data_xfer_size"]
    assert isinstance(longest, int)
    assert probe.read(BAR1, 0, longest) == bytes(longest)
    probe.read(BAR1, 0, count, expect=errno.EINVAL)
    assert probe.alive()


@pytest.mark.parametrize("claimed", [0, 3, 5, 4096])
def test_write_whose_count_differs_from_its_data(probe: Client, claimed: int) -> None:
    body = struct.pack("<QII", 0, BAR0, claimed) + bytes(4)
    probe.request(VfioUserCommand.REGION_WRITE, body, expect=errno.EINVAL)
    assert probe.alive()


@pytest.mark.parametrize(
    ("address", "size", "expected"),
    [
        (GUEST, PAGE, errno.EEXIST),
        (GUEST + PAGE, PAGE, errno.EEXIST),
        (GUEST - PAGE, 2 * PAGE, errno.EEXIST),
        (GUEST - PAGE, 8 * PAGE, errno.EEXIST),
        (GUEST + 4 * PAGE, 0, errno.EINVAL),
        (GUEST + 4 * PAGE + 1, PAGE, errno.EINVAL),
        (GUEST + 4 * PAGE, PAGE + 1, errno.EINVAL),
        (GUEST + 4 * PAGE, 1, errno.EINVAL),
        (TOP - PAGE, 2 * PAGE, errno.EINVAL),
        (0, TOP - PAGE, errno.ENOSPC),
    ],
)
def test_dma_map_of_impossible_ranges(
    probe: Client, address: int, size: int, expected: int
) -> None:
    probe.share(GUEST, 4 * PAGE)
    if expected == errno.ENOSPC:
        probe.dma_unmap(GUEST, 4 * PAGE)
    probe.dma_map(address, size, expect=expected)
    with open("/dev/zero", "rb") as zero:
        # A device file is refused for itself, whatever else is wrong.
        probe.dma_map(address, size, zero.fileno(), expect=errno.EINVAL)
    assert probe.read32(BAR0, 0x0C) == (0 if expected == errno.ENOSPC else 1)


def test_dma_map_beyond_the_end_of_the_file(probe: Client) -> None:
    fd = sealed_memory(PAGE)
    probe.dma_map(GUEST, 2 * PAGE, fd, expect=errno.EINVAL)
    probe.dma_map(GUEST, PAGE, fd, offset=PAGE, expect=errno.EINVAL)
    probe.dma_map(GUEST, PAGE, fd, offset=TOP - PAGE, expect=errno.EINVAL)
    probe.dma_map(GUEST, PAGE, fd, protection=4, expect=errno.EINVAL)
    probe.dma_map(GUEST, PAGE, fd)
    os.close(fd)


def plain_file(folder: Path) -> int:
    fd = os.open(folder / "memory", os.O_RDWR | os.O_CREAT)
    os.truncate(fd, PAGE)
    return fd


def unsealed_memory(folder: Path) -> int:
    fd = os.memfd_create("ram", os.MFD_ALLOW_SEALING)
    os.truncate(fd, PAGE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    return fd


@pytest.mark.parametrize("make", [plain_file, unsealed_memory])
def test_memory_that_can_vanish_is_not_mapped(
    probe: Client, server: ServerProcess, tmp_path: Path, make: Callable[[Path], int]
) -> None:
    """It could be truncated, or the file system be full: touching it would end the server."""
    fd = make(tmp_path)
    probe.dma_map(GUEST, PAGE, fd, expect=errno.EINVAL)
    os.truncate(fd, 0)
    os.close(fd)
    assert probe.read32(BAR0, 0x0C) == 0
    assert "memory-backend-memfd" in server.text().splitlines()[-1]


def test_an_interrupt_is_an_eventfd(probe: Client, server: ServerProcess) -> None:
    """Another file could block the server when it writes to it."""
    flags = IrqFlag.DATA_EVENTFD | IrqFlag.TRIGGER
    read, write = os.pipe()
    with contextlib.suppress(BlockingIOError):
        os.set_blocking(write, False)
        while True:
            os.write(write, bytes(4096))
    os.set_blocking(write, True)
    probe.set_irqs(MSIX, flags, 0, 1, fds=[write], expect=errno.EINVAL)
    probe.write32(BAR0, 0, 0)
    assert probe.read32(BAR0, 0) == 0
    os.close(read)
    os.close(write)


def test_an_eventfd_that_is_full_does_not_block(probe: Client) -> None:
    event = os.eventfd((1 << 32) - 1, os.EFD_CLOEXEC)
    os.write(event, struct.pack("<Q", (1 << 64) - 1 - (1 << 32)))
    probe.enable_irqs(MSIX, [event])
    probe.write32(BAR0, 0, 0)
    assert probe.read32(BAR0, 0) == 1
    os.close(event)


@pytest.mark.parametrize("how", ["device", "client", "bools", "without a reply"])
def test_an_eventfd_made_blocking_costs_its_owner_the_connection(probe: Client, how: str) -> None:
    """Full and blocking: whoever writes to it waits until somebody reads."""
    event = os.eventfd((1 << 32) - 1, os.EFD_CLOEXEC)
    os.write(event, struct.pack("<Q", (1 << 64) - 1 - (1 << 32)))
    probe.enable_irqs(MSIX, [event])
    os.set_blocking(event, True)
    kind, data = (IrqFlag.DATA_BOOL, b"\1") if how == "bools" else (IrqFlag.DATA_NONE, b"")
    body = struct.pack("<IIIII", 20 + len(data), kind | IrqFlag.TRIGGER, MSIX, 0, 1) + data
    if how == "device":
        probe.write(BAR0, 0, bytes(4), posted=True)
    else:
        flags = NO_REPLY if how == "without a reply" else 0
        probe.send(probe.pack(VfioUserCommand.SET_IRQS, body, flags=flags))
    assert is_dropped(probe)
    os.close(event)


@pytest.mark.parametrize("flags", [0, NO_REPLY])
def test_a_client_may_trigger_its_own_interrupts(probe: Client, flags: int) -> None:
    with eventfds(1) as (event,):
        probe.enable_irqs(MSIX, [event])
        body = struct.pack("<IIIII", 20, IrqFlag.DATA_NONE | IrqFlag.TRIGGER, MSIX, 0, 1)
        probe.send(probe.pack(VfioUserCommand.SET_IRQS, body, flags=flags))
        if not flags:
            assert not probe.receive().error
        assert probe.alive()
        assert os.eventfd_read(event) == 1


def test_dma_map_with_too_many_descriptors(probe: Client) -> None:
    fd = sealed_memory(PAGE)
    body = struct.pack("<IIQQQ", 32, 3, 0, GUEST, PAGE)
    for count in (2, 16, 253):
        probe.request(VfioUserCommand.DMA_MAP, body, fds=[fd] * count, expect=errno.EINVAL)
    os.close(fd)
    assert probe.read32(BAR0, 0x0C) == 0


def test_more_regions_than_the_library_holds(probe: Client) -> None:
    for index in range(16):
        probe.dma_map(GUEST + index * PAGE, PAGE)
    probe.dma_map(GUEST + 16 * PAGE, PAGE, expect=errno.EINVAL)
    assert probe.read32(BAR0, 0x0C) == 16


def test_dma_unmap_of_what_is_not_mapped(probe: Client) -> None:
    probe.share(GUEST, 2 * PAGE)
    probe.dma_unmap(GUEST + PAGE, PAGE, expect=errno.ENOENT)
    probe.dma_unmap(GUEST, PAGE, expect=errno.ENOENT)
    probe.dma_unmap(GUEST, 2 * PAGE, flags=2, expect=errno.EINVAL)
    probe.dma_unmap(GUEST, 2 * PAGE, flags=1, expect=errno.ENOTSUP)
    probe.dma_unmap(GUEST, 2 * PAGE, flags=0xFFFFFFF0, expect=errno.EINVAL)
    assert probe.read32(BAR0, 0x0C) == 1


@pytest.mark.parametrize("descriptors", [1, 9, 253])
def test_descriptors_where_none_belong(probe: Client, descriptors: int) -> None:
    fds = [probe.socket.fileno()] * descriptors
    body = struct.pack("<QII", 0x28, BAR0, 4) + bytes(4)
    probe.request(VfioUserCommand.REGION_WRITE, body, fds=fds)
    probe.request(VfioUserCommand.GET_INFO, struct.pack("<IIII", 16, 0, 0, 0), fds=fds)
    probe.request(99, bytes(8), fds=fds, expect=errno.EINVAL)
    assert probe.alive()


def test_a_message_with_descriptors_in_the_middle(probe: Client) -> None:
    """The kernel ends each read behind the piece that they come with."""
    body = struct.pack("<QII", 0x40, BAR0, 4) + b"\1\2\3\4"
    message = probe.pack(VfioUserCommand.REGION_WRITE, body)
    with eventfds(1) as fds:
        for part, files in ((message[:33], []), (message[33:34], fds), (message[34:], [])):
            probe.send(part, files)
    assert not probe.receive().error
    assert probe.read32(BAR0, 0x40) == 0x04030201


@pytest.mark.parametrize(
    ("index", "start", "count"),
    [
        (MSIX, 0, VECTORS + 1),
        (MSIX, VECTORS, 1),
        (MSIX, 1, 0xFFFFFFFF),
        (MSIX, 0xFFFFFFFF, 1),
        (MSIX, 0xFFFFFFFF, 0xFFFFFFFF),
        (MSIX, 1, 0),
        (0, 0, 1),
        (3, 0, 1),
        (4, 0, 1),
        (5, 0, 1),
        (0xFFFFFFFF, 0, 1),
    ],
)
def test_set_irqs_out_of_bounds(probe: Client, index: int, start: int, count: int) -> None:
    for action in (IrqFlag.MASK, IrqFlag.UNMASK, IrqFlag.TRIGGER):
        for data in (IrqFlag.DATA_NONE, IrqFlag.DATA_EVENTFD):
            probe.set_irqs(index, action | data, start, count, expect=errno.EINVAL)
    assert probe.read32(BAR0, 0x20) == 0


@pytest.mark.parametrize("flags", [0, 1, 8, 3 | 32, 1 | 8 | 16, 0xFFFFFFFF])
def test_set_irqs_with_senseless_flags(probe: Client, flags: int) -> None:
    probe.set_irqs(MSIX, flags, 0, 0, expect=errno.EINVAL)


def test_set_irqs_with_the_wrong_number_of_descriptors(probe: Client) -> None:
    flags = IrqFlag.DATA_EVENTFD | IrqFlag.TRIGGER
    with eventfds(3) as fds:
        probe.set_irqs(MSIX, flags, 0, 2, fds=fds, expect=errno.EINVAL)
        probe.set_irqs(
            MSIX, IrqFlag.DATA_BOOL | IrqFlag.TRIGGER, 0, 2, data=b"\1", expect=errno.EINVAL
        )
        probe.set_irqs(
            MSIX, IrqFlag.DATA_NONE | IrqFlag.TRIGGER, 0, 1, fds=fds[:1], expect=errno.EINVAL
        )
