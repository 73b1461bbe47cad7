"""A client that leaves around the reply to any command, in any manner: nobody else notices.

Each cell ends with counted descriptors, a bystander of another device who is still served, and a
next client of the same device.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.host_tools.vfio_user.client import Client, eventfds, sealed_memory
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX, IrqFlag
from tests.models.server import ServerProcess, serving

BAR0 = 0
PAGE = 4096
GUEST = 0x1_0000_0000
TIMES = 20
PIPELINED = 20


class Lab(NamedTuple):
    """A server with two devices: the one under test, and the bystander's connection to another."""

    server: ServerProcess
    path: Path
    bystander: Client


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("probes")
    paths = [folder / "probe", folder / "other"]
    words = [str(path) for path in paths]
    with (
        serving("tests.models.probe_device", words, folder / "server.log") as server,
        Client(paths[1]) as bystander,
    ):
        yield Lab(server, paths[0], bystander)


def access(region: int) -> bytes:
    return struct.pack("<QII", 0, region, 4)


BODIES = {
    VfioUserCommand.VERSION: struct.pack("<HH", 0, 1) + b"{}\0",
    VfioUserCommand.DMA_MAP: struct.pack("<IIQQQ", 32, 3, 0, GUEST, PAGE),
    VfioUserCommand.DMA_UNMAP: struct.pack("<IIQQ", 24, 0, GUEST, PAGE),
    VfioUserCommand.GET_INFO: struct.pack("<IIII", 16, 0, 0, 0),
    VfioUserCommand.GET_REGION_INFO: struct.pack("<IIIIQQ", 32, 0, BAR0, 0, 0, 0),
    VfioUserCommand.GET_REGION_IO_FDS: struct.pack("<IIII", 16, 0, BAR0, 0),
    VfioUserCommand.GET_IRQ_INFO: struct.pack("<IIII", 16, 0, MSIX, 0),
    VfioUserCommand.SET_IRQS: struct.pack(
        "<IIIII", 20, IrqFlag.DATA_EVENTFD | IrqFlag.TRIGGER, MSIX, 0, 1
    ),
    VfioUserCommand.REGION_READ: access(BAR0),
    VfioUserCommand.REGION_WRITE: access(BAR0) + bytes(4),
    VfioUserCommand.DMA_READ: bytes(16),
    VfioUserCommand.DMA_WRITE: bytes(16),
    VfioUserCommand.RESET: b"",
    VfioUserCommand.DIRTY_PAGES: struct.pack("<II", 8, 1),
}
CELLS = {command.name.lower(): (command, body) for command, body in BODIES.items()}
CELLS["config_read"] = (VfioUserCommand.REGION_READ, access(CONFIG))
CELLS["config_write"] = (VfioUserCommand.REGION_WRITE, access(CONFIG) + bytes(4))
WITH_FILES = (VfioUserCommand.DMA_MAP, VfioUserCommand.SET_IRQS)


@pytest.fixture
def fd(request: pytest.FixtureRequest) -> Iterator[int]:
    """Yield what goes with a command that takes a descriptor."""
    with eventfds(1) as (event,):
        memory = sealed_memory(PAGE)
        yield memory if "dma_map" in request.node.name else event
        os.close(memory)


def leave(client: Client, manner: str) -> None:
    """Go. `reset` is what the kernel makes of a close with unread replies: ECONNRESET."""
    if manner == "stop_reading":
        client.socket.shutdown(socket.SHUT_RD)
    elif manner == "stop_writing":
        client.socket.shutdown(socket.SHUT_WR)
    else:
        client.close()


def wait_for_reply(client: Client) -> None:
    assert select.select([client.socket], [], [], 10)[0], "no reply"


def send_and_leave(
    lab: Lab, client: Client, message: tuple[bytes, list[int]], moment: str, manner: str
) -> None:
    """Send the message and leave before its reply was sent, among several replies, or after it."""
    if manner == "reset":
        client.send(client.pack(VfioUserCommand.GET_INFO, BODIES[VfioUserCommand.GET_INFO]))
        wait_for_reply(client)
    if moment == "before":
        os.kill(lab.server.pid, signal.SIGSTOP)
        try:
            client.send(*message)
            leave(client, manner)
        finally:
            os.kill(lab.server.pid, signal.SIGCONT)
        return
    for _ in range(PIPELINED if moment == "during" else 1):
        client.send(*message)
    wait_for_reply(client)
    if manner != "reset" and moment == "after":
        client.receive()
    leave(client, manner)


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("manner", ["close", "stop_reading", "stop_writing", "reset"])
@pytest.mark.parametrize("cell", CELLS)
def test_leaving_around_a_reply(lab: Lab, fd: int, cell: str, manner: str, moment: str) -> None:
    command, body = CELLS[cell]
    fds = [fd] if command in WITH_FILES else []
    with Client(lab.path) as idle:
        idle.read32(BAR0, 0)
        files = lab.server.open_files()
    for _ in range(TIMES):
        with Client(lab.path) as client:
            send_and_leave(lab, client, (client.pack(command, body), fds), moment, manner)
        with Client(lab.path) as after:
            assert after.read32(BAR0, 0) == 0
            assert lab.server.has_open(files), "the server leaks descriptors"
    assert lab.bystander.alive(), "another device's client was cut off"


def test_the_server_said_little_about_all_of_them(lab: Lab) -> None:
    assert len(lab.server.text().splitlines()) < 200
