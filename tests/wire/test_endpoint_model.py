"""Tests of what an endpoint does for its model, and what becomes of a model that fails."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from select import select

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout import pci as layout
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.host_tools.vfio_user.client import Client, eventfds
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX
from tests.models.endpoint_device import NOTHING, VECTORS
from tests.models.server import ServerProcess
from tests.wire.conftest import StartServer

ADDRESS, MEMORY, INTERRUPT, FAULT, RESETS, LATER, FOUND = 0x00, 0x08, 0x10, 0x14, 0x18, 0x1C, 0x20
RAM = 0x10_0000
PAGE = 4096
FLR = 0x8000
COMMAND = 4
MASTER = (layout.COMMAND_MEMORY | layout.COMMAND_BUS_MASTER).to_bytes(2, "little")


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    return start_server("tests.models.endpoint_device", str(tmp_path / "p"), str(tmp_path / "bus"))


@pytest.fixture
def client(server: ServerProcess, tmp_path: Path) -> Iterator[Client]:
    with Client(tmp_path / "p") as made:
        made.write(CONFIG, COMMAND, MASTER)
        yield made


def _point(client: Client, address: int) -> None:
    client.write(0, ADDRESS, address.to_bytes(8, "little"))


def test_a_failing_model_fails_the_access_only(server: ServerProcess, client: Client) -> None:
    client.read(0, FAULT, 4, expect=errno.EIO)
    client.write(0, FAULT, bytes(4), expect=errno.EIO)
    assert client.alive()
    assert "a fault of the model" in server.text()
    assert "Traceback" in server.text()


def test_memory_that_goes_while_the_device_uses_it(client: Client) -> None:
    ram = client.share(RAM, PAGE)
    ram[:8] = b"in place"
    _point(client, RAM)
    assert client.read(0, MEMORY, 8) == b"in place"
    client.write32(0, LATER, 1000)
    client.dma_unmap(RAM, PAGE)
    assert client.read(0, MEMORY, 8) == NOTHING
    client.write(0, MEMORY, b"stranded", expect=errno.EIO)
    deadline = time.monotonic() + 10
    while client.read(0, FOUND, 8) == bytes(8) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert client.read(0, FOUND, 8) == NOTHING
    assert ram[:8] == b"in place"


def test_memory_across_adjacent_regions(client: Client) -> None:
    low, high = client.share(RAM, PAGE), client.share(RAM + PAGE, PAGE)
    _point(client, RAM + PAGE - 4)
    client.write(0, MEMORY, b"lowhhigh")
    assert (low[-4:], high[:4]) == (b"lowh", b"high")
    assert client.read(0, MEMORY, 8) == b"lowhhigh"
    _point(client, RAM + 2 * PAGE - 4)  # the second half is nowhere
    before = high[:]
    client.write(0, MEMORY, b"overhang", expect=errno.EIO)
    assert high[:] == before


def test_interrupts_reach_their_eventfd_and_others_are_noted(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    with eventfds(VECTORS) as fds:
        client.enable_irqs(MSIX, fds)
        client.write32(0, INTERRUPT, 2)
        client.write32(0, INTERRUPT, 99)
        assert os.eventfd_read(fds[2]) == 1
        for other in (0, 1, 3):
            with pytest.raises(BlockingIOError):
                os.eventfd_read(fds[other])
        client.disable_irqs(MSIX)
        client.write32(0, INTERRUPT, 2)
    client.close()
    server.terminate()
    events = list(LogReader(tmp_path / "bus"))
    assert [event.address for event in events if event.kind == Kind.IRQ] == [2]
    told = [(event.fact, *event.values.values()) for event in events if event.kind == Kind.NOTE]
    assert told == [
        (Fact.BUS_MASTER, 1),
        (Fact.INTERRUPT_LOST, 99, 1),
        (Fact.INTERRUPT_LOST, 2, 1),
        (Fact.BUS_MASTER, 0),
    ]


def test_an_interrupt_waits_for_its_vector_while_msix_is_on(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """Drivers add vectors one by one; an event that is lost in between costs them a minute."""
    control = _capability(client, layout.CAP_ID_MSIX) + 2
    with eventfds(2) as fds:
        client.write(CONFIG, control, b"\0\x80")
        client.enable_irqs(MSIX, fds[:1])
        for vector in (1, 1, 0):
            client.write32(0, INTERRUPT, vector)
        client.enable_irqs(MSIX, fds[1:], 1)
        assert select([fds[1]], [], [], 10)[0]  # it comes behind the answer
        assert os.eventfd_read(fds[1]) == 1  # once, however often it was raised
        client.disable_irqs(MSIX)
        client.write32(0, INTERRUPT, 1)
        client.write(CONFIG, control, b"\0\0")  # and off: it is forgotten
        client.write(CONFIG, control, b"\0\x80")
        client.enable_irqs(MSIX, fds)
        assert client.alive()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fds[1])
    client.close()
    server.terminate()
    events = list(LogReader(tmp_path / "bus"))
    assert [event.address for event in events if event.kind == Kind.IRQ] == [0, 1]
    told = [event.values for event in events if event.fact is Fact.INTERRUPT_LOST]
    assert told == [{"vector": 1, "lost": 2}] * 2


def _express(client: Client) -> int:
    return _capability(client, layout.CAP_ID_EXPRESS)


def _capability(client: Client, wanted: int) -> int:
    offset = client.read(CONFIG, 0x34, 1)[0]
    while client.read(CONFIG, offset, 1)[0] != wanted:
        offset = client.read(CONFIG, offset + 1, 1)[0]
    return offset


def test_resets_reach_the_model(client: Client) -> None:
    before = client.read32(0, RESETS)
    client.reset()
    assert client.read32(0, RESETS) == before + 1
    control = _express(client) + layout.EXPRESS_CAPABILITY.field("device_control").offset
    client.write(CONFIG, control, FLR.to_bytes(2, "little"))
    assert client.read32(0, RESETS) == before + 2
    assert client.read(CONFIG, control, 2) == (0x2810).to_bytes(2, "little")


def test_a_function_reset_leaves_memory_and_vectors(client: Client) -> None:
    ram = client.share(RAM, PAGE)
    with eventfds(VECTORS) as fds:
        client.enable_irqs(MSIX, fds)
        control = _express(client) + layout.EXPRESS_CAPABILITY.field("device_control").offset
        client.write(CONFIG, control, FLR.to_bytes(2, "little"))
        client.write(CONFIG, COMMAND, MASTER)
        _point(client, RAM)
        client.write(0, MEMORY, b"as ever.")
        client.write32(0, INTERRUPT, 1)
        assert ram[:8] == b"as ever."
        assert os.eventfd_read(fds[1]) == 1


def test_the_next_client_sees_none_of_the_last_ones_memory(client: Client, tmp_path: Path) -> None:
    client.share(RAM, PAGE)[:8] = b"a secret"
    client.close()
    with Client(tmp_path / "p") as again:
        again.write(CONFIG, COMMAND, MASTER)
        _point(again, RAM)
        assert again.read(0, MEMORY, 8) == NOTHING


def test_without_bus_master_nothing_reaches_the_guest(client: Client) -> None:
    """Neither memory nor interrupts, whatever cleared the bit: software or a reset."""
    ram = client.share(RAM, PAGE)
    ram[:8] = b"in place"
    control = _express(client) + layout.EXPRESS_CAPABILITY.field("device_control").offset

    def function_reset() -> None:
        client.write(CONFIG, control, FLR.to_bytes(2, "little"))

    def software() -> None:
        client.write(CONFIG, COMMAND, layout.COMMAND_MEMORY.to_bytes(1, "little"))

    with eventfds(VECTORS) as fds:
        client.enable_irqs(MSIX, fds)
        for clear in (software, function_reset, client.reset):
            clear()
            assert not client.read(CONFIG, COMMAND, 1)[0] & layout.COMMAND_BUS_MASTER
            _point(client, RAM)
            assert client.read(0, MEMORY, 8) == NOTHING
            client.write(0, MEMORY, b"stranded", expect=errno.EIO)
            assert ram[:8] == b"in place"
            client.enable_irqs(MSIX, fds)
            client.write32(0, INTERRUPT, 1)
            with pytest.raises(BlockingIOError):
                os.eventfd_read(fds[1])
            client.write(CONFIG, COMMAND, MASTER)
            assert client.read(0, MEMORY, 8) == b"in place"
            client.write32(0, INTERRUPT, 1)
            assert os.eventfd_read(fds[1]) == 1
