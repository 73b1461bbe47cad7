"""The sample device, driven as QEMU would: each test is a sentence of docs/specs/edu.rst."""

from __future__ import annotations

import errno
import math
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.host_tools.vfio_user.client import Client, eventfds
from bluebridge.host_tools.vfio_user.connection import CONFIG, INTX, MSI, IrqFlag
from tests.models.server import ROOT, ServerProcess, serving
from tests.wire.conftest import StartServer

MODULE = "bluebridge.device.pyvfio_user.samples.edu"
BAR0 = 0
BUFFER = 0x40000
GUEST = 0x100000
SOURCE, DESTINATION, COUNT, COMMAND = 0x80, 0x88, 0x90, 0x98


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("edu") / "edu"


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[ServerProcess]:
    with serving(MODULE, [str(path)], path.with_suffix(".log")) as server:
        yield server


@pytest.fixture
def edu(server: ServerProcess, path: Path) -> Iterator[Client]:
    with Client(path) as client:
        yield client


def dma(edu: Client, source: int, destination: int, count: int, command: int) -> None:
    """Program the engine and start it."""
    for register, value in ((SOURCE, source), (DESTINATION, destination), (COUNT, count)):
        edu.write(BAR0, register, struct.pack("<Q", value))
    edu.write32(BAR0, COMMAND, command)


def test_identification(edu: Client) -> None:
    assert edu.read32(BAR0, 0x00) == 0x010000ED
    edu.write32(BAR0, 0x00, 0)
    assert edu.read32(BAR0, 0x00) == 0x010000ED
    assert edu.read32(CONFIG, 0x00) == 0x11E81234
    assert edu.region_info(BAR0).size == 1 << 20


def test_config_space_keeps_what_is_read_only_and_accepts_the_write(edu: Client) -> None:
    edu.write(CONFIG, 0x00, b"\xff" * 4)
    edu.write(CONFIG, 0x2C, b"\xff" * 4)
    edu.write(CONFIG, 0x10, b"\xff" * 4)
    edu.write(CONFIG, 0x04, b"\x06\x00")
    assert edu.read32(CONFIG, 0x00) == 0x11E81234
    assert edu.read32(CONFIG, 0x10) == 0xFFF00000
    assert edu.read(CONFIG, 0x04, 2) == b"\x06\x00"
    capability = edu.read(CONFIG, 0x34, 1)[0]
    assert edu.read(CONFIG, 0x06, 1)[0] & 0x10
    assert edu.read(CONFIG, capability, 2) == b"\x05\x00"


def test_liveness_inverts(edu: Client) -> None:
    edu.write32(BAR0, 0x04, 0x12345678)
    assert edu.read32(BAR0, 0x04) == 0xEDCBA987


@pytest.mark.parametrize("number", [0, 1, 5, 12, 13, 33, 34, 0xFFFFFFFF])
def test_factorial(edu: Client, number: int) -> None:
    edu.write32(BAR0, 0x08, number)
    assert edu.read32(BAR0, 0x08) == math.factorial(min(number, 34)) & 0xFFFFFFFF


def test_factorial_interrupt(edu: Client) -> None:
    with eventfds(1) as (fd,):
        edu.enable_irqs(MSI, [fd])
        edu.write32(BAR0, 0x08, 5)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)
        edu.write32(BAR0, 0x20, 0x80)
        edu.write32(BAR0, 0x08, 5)
        assert os.eventfd_read(fd) == 1
        assert edu.read32(BAR0, 0x24) == 0x001


def test_raise_and_acknowledge(edu: Client) -> None:
    with eventfds(1) as (fd,):
        edu.enable_irqs(MSI, [fd])
        edu.write32(BAR0, 0x60, 0xF0)
        assert os.eventfd_read(fd) == 1
        edu.write32(BAR0, 0x64, 0x30)
        assert edu.read32(BAR0, 0x24) == 0xC0


def test_intx_fires_again_on_unmask_until_acknowledged(edu: Client) -> None:
    with eventfds(1) as (fd,):
        edu.enable_irqs(INTX, [fd])
        edu.write32(BAR0, 0x60, 1)
        assert os.eventfd_read(fd) == 1
        edu.set_irqs(INTX, IrqFlag.DATA_NONE | IrqFlag.UNMASK, 0, 1)
        assert os.eventfd_read(fd) == 1
        edu.write32(BAR0, 0x64, 1)
        edu.set_irqs(INTX, IrqFlag.DATA_NONE | IrqFlag.UNMASK, 0, 1)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)


def test_dma_there_and_back(edu: Client) -> None:
    memory = edu.share(GUEST, 8192)
    memory[:4096] = os.urandom(4096)
    with eventfds(1) as (fd,):
        edu.enable_irqs(MSI, [fd])
        dma(edu, GUEST, BUFFER, 4096, 1)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)
        dma(edu, BUFFER, GUEST + 4096, 4096, 1 | 2 | 4)
        assert os.eventfd_read(fd) == 1
    assert memory[4096:] == memory[:4096]
    assert edu.read32(BAR0, 0x24) == 0x100
    assert edu.read32(BAR0, COMMAND) & 1 == 0


@pytest.mark.parametrize(
    ("source", "destination", "count"),
    [
        (GUEST, BUFFER, 4097),
        (GUEST, BUFFER - 1, 16),
        (GUEST, BUFFER + 4090, 16),
        (GUEST + 8192 - 8, BUFFER, 16),
        (GUEST - 1, BUFFER, 16),
        (0xFFFFFFFFFFFFFFF8, BUFFER, 16),
        (GUEST, 0xFFFFFFFFFFFFFFF8, 16),
        (GUEST, BUFFER, 0xFFFFFFFFFFFFFFFF),
    ],
)
def test_dma_outside_of_anything_moves_nothing(
    edu: Client, source: int, destination: int, count: int
) -> None:
    edu.share(GUEST, 8192)[:] = b"\xaa" * 8192
    for register, value in ((SOURCE, source), (DESTINATION, destination), (COUNT, count)):
        edu.write(BAR0, register, struct.pack("<Q", value))
    edu.write(BAR0, COMMAND, struct.pack("<I", 1), expect=errno.EFAULT)
    dma(edu, BUFFER, GUEST, 4096, 3)
    assert edu.memory(GUEST)[:4096] == bytes(4096)


def test_odd_sizes_are_refused(edu: Client, server: ServerProcess) -> None:
    for length in (1, 2, 3, 8):
        edu.read(BAR0, 0x00, length, expect=errno.EINVAL)
    assert edu.read(BAR0, SOURCE, 8) == bytes(8)
    assert "Traceback" in server.text()


def test_reset(edu: Client) -> None:
    edu.write32(BAR0, 0x04, 7)
    edu.write32(BAR0, 0x60, 1)
    edu.reset()
    assert edu.read32(BAR0, 0x04) == 0
    assert edu.read32(BAR0, 0x24) == 0


def test_next_client_finds_a_fresh_device(server: ServerProcess, path: Path) -> None:
    for _ in range(5):
        with Client(path) as edu:
            assert edu.read32(BAR0, 0x08) == 0
            edu.write32(BAR0, 0x08, 6)
            edu.share(GUEST, 4096)[:5] = b"hello"
            dma(edu, GUEST, BUFFER, 5, 1)
            assert edu.read32(BAR0, 0x08) == 720


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_and_remove_the_socket(
    start_server: StartServer, tmp_path: Path, number: signal.Signals
) -> None:
    server = start_server(MODULE, str(tmp_path / "edu"))
    with Client(tmp_path / "edu") as edu:
        edu.read32(BAR0, 0)
        server.process.send_signal(number)
        assert server.process.wait(10) == 0
    assert not (tmp_path / "edu").exists()


def test_a_second_server_is_refused_in_one_line(server: ServerProcess, path: Path) -> None:
    second = subprocess.run(
        [sys.executable, "-m", MODULE, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert second.returncode != 0
    assert f"{path} is in use by another server" in second.stderr.splitlines()[-1]
    with Client(path) as edu:
        assert edu.read32(BAR0, 0) == 0x010000ED


def test_the_socket_of_a_killed_server_is_replaced(
    tmp_path: Path, start_server: StartServer
) -> None:
    path = tmp_path / "edu"
    start_server(MODULE, str(path)).kill()
    assert path.exists()
    start_server(MODULE, str(path))
    with Client(path) as edu:
        assert edu.read32(BAR0, 0) == 0x010000ED
    assert path.stat().st_mode & 0o777 == 0o600
