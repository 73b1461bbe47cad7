"""The PCI function of an HCA, as QEMU meets it over the socket."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout import pci as layout
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4 import bar0, uar
from bluebridge.device.layout.mlx4.flash import CHIP_CONNECTX3, CHIP_OFFSET
from bluebridge.host_tools.vfio_user.client import Client
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX
from tests.models.server import ROOT, ServerProcess, serving
from tests.wire.conftest import StartServer

CONTROL = bar0.HCR_BASE + 0x18


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("endpoint") / "a.sock"


@pytest.fixture(scope="module")
def server(socket: Path) -> Iterator[ServerProcess]:
    words = ("--hca", f"name=a,socket={socket}")
    with serving("bluebridge.device", words, socket.with_suffix(".log")) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess, socket: Path) -> Iterator[Client]:
    with Client(socket) as made:
        yield made


def test_bars_and_vectors(client: Client) -> None:
    assert client.region_info(0).size == bar0.BAR0_SIZE
    assert client.region_info(2).size == uar.BAR2_SIZE
    assert client.region_info(1).size == 0
    assert client.irq_count(MSIX) == bar0.MSIX_VECTORS


def test_the_capability_chain_in_config_space(client: Client) -> None:
    header = client.read(CONFIG, 0, 64)
    assert layout.HEADER.get(header, "vendor") == 0x15B3
    assert layout.HEADER.get(header, "device") == 0x1003
    found = []
    offset = layout.HEADER.get(header, "capabilities")
    while offset:
        identifier, offset = client.read(CONFIG, offset, 2)
        found.append(identifier)
    expected = [layout.CAP_ID_PM, layout.CAP_ID_EXPRESS, layout.CAP_ID_MSIX, layout.CAP_ID_VPD]
    assert found == expected
    assert client.read(CONFIG, layout.EXTENDED_CAPABILITIES, 2) == b"\3\0"


def product_word(client: Client, offset: int) -> bytes:
    """Four bytes of the vital product data, read as Linux does (`drivers/pci/vpd.c`)."""
    client.write(CONFIG, layout.VPD_OFFSET + 2, offset.to_bytes(2, "little"))
    assert client.read(CONFIG, layout.VPD_OFFSET + 3, 1)[0] & 0x80
    return client.read(CONFIG, layout.VPD_OFFSET + 4, 4)


def test_the_product_data_say_what_it_is_and_cannot_be_written(client: Client) -> None:
    before = b"".join(product_word(client, offset) for offset in range(0, 0x200, 4))
    end = before.index(b"RV\1") + 4
    assert sum(before[:end]) & 0xFF == 0
    assert b"PN\x0ebluebridge-CX3" in before
    assert b"SN\x17bluebridge-" in before
    client.write(CONFIG, layout.VPD_OFFSET + 4, b"evil")
    client.write(CONFIG, layout.VPD_OFFSET + 2, b"\0\x80")
    assert client.read(CONFIG, layout.VPD_OFFSET + 3, 1)[0] & 0x80 == 0
    assert product_word(client, 0) == before[:4]
    assert product_word(client, 0x7FFC) == bytes(4)


def test_tools_reach_bar0_through_config_space(client: Client) -> None:
    def through(offset: int) -> bytes:
        client.write(CONFIG, layout.GATEWAY_ADDRESS, offset.to_bytes(4, "little"))
        return client.read(CONFIG, layout.GATEWAY_DATA, 4)

    assert through(CHIP_OFFSET) == CHIP_CONNECTX3.to_bytes(4, "little")
    assert through(bar0.BAR0_SIZE) == b"\xff" * 4
    client.write(CONFIG, layout.GATEWAY_DATA, bytes(4))  # beyond BAR0, where nothing is
    assert through(bar0.SEMAPHORE_OFFSET) == bytes(4)
    assert client.read(0, bar0.SEMAPHORE_OFFSET, 4) == b"\0\0\0\1"
    client.write(CONFIG, layout.GATEWAY_DATA, bytes(4))
    assert client.read(0, bar0.SEMAPHORE_OFFSET, 4) == bytes(4)


def test_read_only_config_registers_take_writes(client: Client) -> None:
    before = client.read(CONFIG, 0, 64)
    for offset in (0x00, 0x0E, 0x28, 0x2C, 0x34, 0x38):
        client.write(CONFIG, offset, b"\0\0")
    assert client.read(CONFIG, 0, 64) == before


def test_reset_brings_the_command_register_back(client: Client) -> None:
    client.write(0, CONTROL, (bar0.HCR_GO | bar0.HCR_TOGGLE | 0x31).to_bytes(4, "big"))
    assert int.from_bytes(client.read(0, CONTROL, 4), "big") & bar0.HCR_TOGGLE
    client.reset()
    assert client.read(0, CONTROL, 4) == bytes(4)


def test_a_client_that_vanishes_leaves_a_fresh_device(
    server: ServerProcess, socket: Path, client: Client
) -> None:
    client.write(0, CONTROL, (bar0.HCR_GO | bar0.HCR_TOGGLE | 0x31).to_bytes(4, "big"))
    client.close()
    for _ in range(3):
        with Client(socket) as again:
            assert again.read(0, CONTROL, 4) == bytes(4)
    assert server.running()


@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_every_register_can_be_read_in_every_width(client: Client, length: int) -> None:
    for offset in (0, bar0.CATAS_OFFSET, bar0.HCR_BASE, bar0.OWNERSHIP_OFFSET, 0xFFFF8):
        assert len(client.read(0, offset - offset % length, length)) == length
    assert client.read(2, 0x14, 4) == bytes(4)


def test_a_mailbox_in_no_memory_fails_the_command_not_the_server(client: Client) -> None:
    """QUERY_FW with an output mailbox where no DMA region is."""
    client.write(0, bar0.HCR_BASE + 0x0C, (0xDEAD0000).to_bytes(8, "big"))
    client.write(0, CONTROL, (bar0.HCR_GO | 0x04).to_bytes(4, "big"))
    control = int.from_bytes(client.read(0, CONTROL, 4), "big")
    assert not control & bar0.HCR_GO
    assert control >> 24 == 0x03  # BAD_PARAM


def test_the_log_tells_each_access_and_the_socket_goes_with_the_server(
    start_server: StartServer, tmp_path: Path
) -> None:
    socket = tmp_path / "a.sock"
    words = ("--hca", f"name=a,socket={socket}", "--log", str(tmp_path / "bus"))
    server = start_server("bluebridge.device", *words)
    assert stat.S_IMODE(os.stat(socket).st_mode) == 0o600
    with Client(socket) as client:
        client.write(2, 0x80014, uar.send_doorbell(0x41).to_bytes(4, "big"))
        client.read(0, bar0.OWNERSHIP_OFFSET, 4)
    assert server.terminate() == 0
    assert not socket.exists()
    events = [event for event in LogReader(tmp_path / "bus") if event.kind <= Kind.MMIO_WRITE]
    assert [(event.kind, event.bar, event.address) for event in events] == [
        (Kind.MMIO_WRITE, 2, 0x80014),
        (Kind.MMIO_READ, 0, bar0.OWNERSHIP_OFFSET),
    ]
    assert events[0].data == bytes((0, 0, 0x41, 0))


def test_the_socket_of_a_dead_server_is_replaced(start_server: StartServer, tmp_path: Path) -> None:
    socket = tmp_path / "a.sock"
    words = ("bluebridge.device", "--hca", f"name=a,socket={socket}")
    start_server(*words).kill()
    assert socket.exists()
    start_server(*words)
    with Client(socket) as client:
        assert client.alive()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--hca", "name=a,socket={taken}"], "is in use by another server"),
        (["--hca", "name=a"], "socket="),
        (["--hca", "nonsense"], "nonsense"),
        (["--hca", "name=a,socket={free},mac=01:00:00:00:00:00"], "unicast"),
        (
            [
                "--hca",
                "name=a,socket={free}",
                "--hca",
                "name=b,socket={free},mac=00:02:c9:bb:00:01",
            ],
            "HCAs a and b both have MAC address 00:02:c9:bb:00:01",
        ),
        (["--hca", "name=a,socket={free}", "--log", "/proc/nowhere/log"], "/proc/nowhere"),
    ],
)
def test_bad_arguments_are_one_line(
    server: ServerProcess, socket: Path, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    words = [word.format(taken=socket, free=tmp_path / "free.sock") for word in arguments]
    ended = subprocess.run(
        [sys.executable, "-m", "bluebridge.device", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert expected in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert server.running()
