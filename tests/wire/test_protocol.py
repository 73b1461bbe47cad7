"""vfio-user as a well-behaved client speaks it, against the probe device."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.host_tools.vfio_user.client import Client, eventfds, sealed_memory
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX, IrqFlag
from tests.models.probe_device import VECTORS
from tests.models.server import ServerProcess
from tests.wire.conftest import StartServer

BAR0, BAR1, BAR2, BAR3 = 0, 1, 2, 3
GUEST = 0x1_0000_0000


@pytest.fixture
def alone(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """A server of this test's own, whose socket is `tmp_path / "probe"`."""
    return start_server("tests.models.probe_device", str(tmp_path / "probe"))


@pytest.fixture
def probe(server: ServerProcess, path: Path) -> Iterator[Client]:
    with Client(path) as client:
        yield client


def peek(probe: Client, address: int, expect: int = 0) -> bytes:
    """Return what the device reads at a bus address."""
    probe.write(BAR0, 0x40, struct.pack("<Q", address))
    return probe.read(BAR0, 0x48, 8, expect=expect)


def poke(probe: Client, address: int, data: bytes, expect: int = 0) -> None:
    """Let the device write eight bytes at a bus address."""
    probe.write(BAR0, 0x40, struct.pack("<Q", address))
    probe.write(BAR0, 0x48, data, expect=expect)


def test_introduction(probe: Client) -> None:
    assert probe.capabilities["max_data_xfer_size"] == 8192
    flags, regions, irqs = probe.info()
    assert flags & 3 == 3  # reset and PCI
    assert (regions, irqs) == (10, 5)
    sizes = [probe.region_info(index).size for index in range(regions)]
    assert sizes == [4096, 1 << 20, 4096, 0, 0, 0, 0, 4096, 0, 0]
    # The error and request interrupts are not offered: the library would mix them up with MSI-X.
    assert [probe.irq_count(index) for index in range(irqs)] == [0, 0, VECTORS, 0, 0]


def _pause(piece: int) -> float:
    """Seconds until the next piece; single bytes would take longer than a server waits for all."""
    return 0.005 if piece > 1 else 0.0


@pytest.mark.parametrize("piece", [1, 7, 16, 20])
def test_introduction_in_pieces(server: ServerProcess, path: Path, piece: int) -> None:
    with Client(path, negotiate=False) as client:
        message = client.pack(1, struct.pack("<HH", 0, 1) + b"{}\0")
        for start in range(0, len(message), piece):
            client.send(message[start : start + piece])
            time.sleep(_pause(piece))
        assert struct.unpack_from("<HH", client.reply_to(1).body) == (0, 1)
        client.info()


@pytest.mark.parametrize("piece", [1, 15, 16, 17, 32])
def test_messages_in_pieces(probe: Client, piece: int) -> None:
    message = probe.pack(10, struct.pack("<QIIQ", 0x40, BAR0, 8, 0x1122334455667788))
    for start in range(0, len(message), piece):
        probe.send(message[start : start + piece])
        time.sleep(_pause(piece))
    assert not probe.reply_to(3 - 1).error
    assert probe.read(BAR0, 0x40, 8) == bytes.fromhex("8877665544332211")


def test_regions_without_access(probe: Client) -> None:
    assert probe.read(BAR1, 0, 4) == bytes(4)
    probe.write(BAR1, 0, bytes(4), expect=errno.EPERM)
    probe.write(BAR2, 0, bytes(4))
    probe.read(BAR2, 0, 4, expect=errno.EPERM)
    probe.read(BAR3, 0, 4, expect=errno.EINVAL)


def test_exceptions_fail_the_access_and_no_more(alone: ServerProcess, tmp_path: Path) -> None:
    with Client(tmp_path / "probe") as probe:
        probe.read(BAR0, 0x14, 4, expect=errno.EIO)
        probe.write(BAR0, 0x14, bytes(4), expect=errno.EIO)
        probe.read(BAR0, 0x18, 4, expect=errno.ENODEV)
        probe.read(BAR0, 0x1C, 4, expect=errno.EIO)
        assert probe.read32(BAR0, 0x10) == 3
    log = alone.text()
    assert log.count("Traceback") == 4
    assert "KeyError: 'as requested'" in log and "in misbehave" in log


def test_a_flood_of_failures_does_not_flood_the_log(alone: ServerProcess, tmp_path: Path) -> None:
    with Client(tmp_path / "probe") as probe:
        for _ in range(1000):
            probe.write(BAR0, 0x14, bytes(4), posted=True)
        assert probe.read32(BAR0, 0x10) == 1000
    assert 90 < alone.text().count("Traceback") < 120


def test_posted_writes_arrive_in_order_and_at_once(probe: Client) -> None:
    count = 500
    for value in range(count):
        probe.write(BAR0, 0x28, struct.pack("<I", value), posted=True)
    expected = sum(place * value for place, value in enumerate(range(count), 1))
    assert probe.read32(BAR0, 0x2C) == expected & 0xFFFFFFFF


def test_dma_memory_is_shared(probe: Client) -> None:
    memory = probe.share(GUEST, 0x10000)
    memory[0xFFF8:] = b"top most"
    assert peek(probe, GUEST + 0xFFF8) == b"top most"
    poke(probe, GUEST + 0x1230, b"12345678")
    assert memory[0x1230:0x1238] == b"12345678"
    peek(probe, GUEST + 0xFFF9, expect=errno.EFAULT)
    peek(probe, GUEST - 1, expect=errno.EFAULT)


def test_dma_offset_into_the_file(probe: Client) -> None:
    fd = sealed_memory(0x4000)
    os.pwrite(fd, b"at 0x2008", 0x2008)
    probe.dma_map(GUEST, 0x1000, fd, offset=0x2000)
    os.close(fd)
    assert peek(probe, GUEST + 8) == b"at 0x200"


def test_dma_unmap_releases_the_view(probe: Client, server: ServerProcess) -> None:
    files = server.open_files()
    for _ in range(20):
        probe.share(GUEST, 0x2000)
        assert probe.read32(BAR0, 0x0C) == 1
        probe.dma_unmap(GUEST, 0x2000)
        assert probe.read32(BAR0, 0x0C) == 0
        assert probe.read32(BAR0, 0x24) == 1
        peek(probe, GUEST, expect=errno.EFAULT)
        files = min(files, server.open_files())  # a thread closes what is unmapped, soon
    assert server.has_open(files)
    assert "still held" not in server.text()


def test_dma_unmap_all(probe: Client) -> None:
    for index in range(4):
        probe.share(GUEST + index * 0x10000, 0x1000)
    assert probe.read32(BAR0, 0x0C) == 4
    probe.dma_unmap(0, 0, flags=2)
    assert probe.read32(BAR0, 0x0C) == 0


def test_dma_protection(probe: Client) -> None:
    fd = sealed_memory(0x1000)
    os.pwrite(fd, b"readable", 0)
    probe.dma_map(GUEST, 0x1000, fd, protection=1)
    assert peek(probe, GUEST) == b"readable"
    assert probe.read32(BAR0, 0x50) == 1
    poke(probe, GUEST, b"87654321", expect=errno.EIO)
    probe.dma_unmap(GUEST, 0x1000)
    probe.dma_map(GUEST, 0x1000, fd, protection=0)
    peek(probe, GUEST, expect=errno.EFAULT)
    assert os.pread(fd, 8, 0) == b"readable"
    os.close(fd)


def test_dma_without_a_file_is_known_but_has_no_view(probe: Client) -> None:
    probe.dma_map(GUEST, 0x1000)
    assert probe.read32(BAR0, 0x0C) == 1
    peek(probe, GUEST, expect=errno.EFAULT)
    probe.dma_unmap(GUEST, 0x1000)


def test_interrupts(probe: Client) -> None:
    with eventfds(VECTORS) as fds:
        probe.write32(BAR0, 0x00, 3)
        assert probe.read32(BAR0, 0x00) == 0
        probe.enable_irqs(MSIX, fds)
        for vector in (0, 3, VECTORS - 1):
            probe.write32(BAR0, 0x00, vector)
            assert probe.read32(BAR0, 0x00) == 1
        probe.write32(BAR0, 0x00, 3)
        counts = [
            os.eventfd_read(fd) if vector in (0, 3, 15) else 0 for vector, fd in enumerate(fds)
        ]
        assert [counts[vector] for vector in (0, 3, 15)] == [1, 2, 1]
        probe.write32(BAR0, 0x00, VECTORS)
        assert probe.read32(BAR0, 0x00) == 0
        probe.disable_irqs(MSIX)
        probe.write32(BAR0, 0x00, 0)
        assert probe.read32(BAR0, 0x00) == 0


def test_interrupt_masking_is_reported(probe: Client) -> None:
    probe.set_irqs(MSIX, IrqFlag.DATA_NONE | IrqFlag.MASK, 2, 3)
    assert probe.read32(BAR0, 0x20) == 0b11100
    probe.set_irqs(MSIX, IrqFlag.DATA_NONE | IrqFlag.UNMASK, 3, 1)
    assert probe.read32(BAR0, 0x20) == 0b10100


def test_reset_and_loss_are_told_apart(server: ServerProcess, path: Path) -> None:
    with Client(path) as probe:
        resets, losses = probe.read32(BAR0, 0x04), probe.read32(BAR0, 0x08)
        probe.reset()
        probe.reset()
        assert (probe.read32(BAR0, 0x04), probe.read32(BAR0, 0x08)) == (resets + 2, losses)
    with Client(path) as probe:
        assert (probe.read32(BAR0, 0x04), probe.read32(BAR0, 0x08)) == (resets + 2, losses + 1)


def test_fifty_clients_one_after_the_other(server: ServerProcess, path: Path) -> None:
    files = 0
    for number in range(50):
        with Client(path) as probe, eventfds(2) as fds:
            probe.share(GUEST, 0x1000)[:8] = b"%8d" % number
            probe.enable_irqs(MSIX, fds)
            assert peek(probe, GUEST) == b"%8d" % number
            assert probe.read32(BAR0, 0x0C) == 1
            files = files or server.open_files()
            assert server.has_open(files)


def test_a_second_client_is_refused_at_once(server: ServerProcess, path: Path) -> None:
    """It must not wait: QEMU's guest stands still until its introduction is answered."""
    greeting = struct.pack("<HH", 0, 1) + b"{}\0"
    with Client(path) as first:
        lost = first.read32(BAR0, 0x08)
        for _ in range(3):
            with Client(path, negotiate=False) as second:
                second.request(1, greeting, expect=errno.EBUSY)
                with pytest.raises(ConnectionError):
                    second.receive()
        assert first.read32(BAR0, 0x08) == lost
    with Client(path) as third:
        assert third.read32(BAR0, 0x08) == lost + 1


def test_clients_are_served_again_after_a_lack_of_descriptors(
    server: ServerProcess, path: Path
) -> None:
    """Wherever in a client's introduction the last descriptor was used."""
    before = len(server.text())
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    files = server.open_files()
    served = []
    for more in range(8):
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (files + more, hard))
        with contextlib.suppress(ConnectionError), Client(path) as probe:
            served.append(probe.alive())
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert served
    assert all(served)
    with Client(path) as probe:
        assert probe.alive()
    assert server.has_open(files)
    said = server.text()[before:]
    assert said.count("turned a client away: Too many open files") >= 8 - len(served)
    assert "Traceback" not in said


def test_the_next_client_need_not_wait_for_the_servers_notice(
    server: ServerProcess, path: Path
) -> None:
    """A killed QEMU's successor may knock before the server has seen the end of the first."""
    for _ in range(50):
        first = Client(path)
        first.send(first.pack(9)[:7])  # killed in the middle of a message
        first.close()
        with Client(path) as successor:
            assert successor.alive()


def test_an_idle_server_does_not_spin(server: ServerProcess, path: Path) -> None:
    for connected in (False, True):
        client = Client(path) if connected else None
        before = server.cpu_seconds()
        time.sleep(0.5)
        assert server.cpu_seconds() - before < 0.1
        if client is not None:
            client.close()


def test_config_space_is_the_devices_own(probe: Client) -> None:
    before = probe.read(CONFIG, 0, 256)
    for offset in range(0, 256, 4):
        probe.write(CONFIG, offset, before[offset : offset + 4])
    for offset in range(256):
        probe.write(CONFIG, offset, b"\xff")
    assert probe.read(CONFIG, 0, 4) == before[:4]
    assert probe.read(CONFIG, 0x0C, 1) == b"\xff"
    assert probe.read(CONFIG, 4092, 4) == bytes(4)
