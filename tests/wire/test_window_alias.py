"""A window that is the peer's memory: the file that clients are given, and what it shows."""

from __future__ import annotations

import array
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bluebridge.device.pyvfio_user.constants import HEADER, VfioUserCommand
from bluebridge.host_tools.vfio_user.client import Client, sealed_memory
from bluebridge.host_tools.vfio_user.connection import CONFIG
from tests.models.server import devices

START, LENGTH = 0x100000, 4 << 20
"""Of a guest's memory, at the same place in its file; the first MiB of a machine is not all RAM."""
WINDOW = 4
MAPPABLE, WITH_CAPABILITIES = 4, 8
MASTER = 6
BAR4 = 0xFE_0000_0000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server with two bridges and two engines, whose wide windows are aliases."""
    folder = tmp_path_factory.mktemp("alias")
    with devices(folder, "--bar-sizes", "ntrdma", "--window-alias", kinds=("ntb", "dma")):
        yield folder


def _engine(folder: Path, stack: ExitStack, name: str) -> mmap.mmap:
    """Guest `name` plugs its engine in: its memory, in a file that has other things before it."""
    client = stack.enter_context(Client(folder / f"dma-{name}"))
    fd = sealed_memory(START + LENGTH)
    try:
        client.dma_map(START, LENGTH, fd, offset=START)
        client.dma_map(0, 4096, fd)  # a shorter stretch of it
        return mmap.mmap(fd, START + LENGTH)
    finally:
        os.close(fd)


def _window(client: Client) -> tuple[int, int, int, list[int]]:
    """GET_REGION_INFO of the window: its flags, start and length of the one area, descriptors."""
    body = struct.pack("<IIIIQQ", 256, 0, WINDOW, 0, 0, 0)
    client.send(client.pack(VfioUserCommand.GET_REGION_INFO, body))
    data, ancillary, _, _ = client.socket.recvmsg(4096, socket.CMSG_SPACE(64))
    fds = array.array("i")
    for _, _, content in ancillary:
        fds.frombytes(content)
    info = data[HEADER.size :]
    flags = struct.unpack_from("<I", info, 4)[0]
    if not flags & WITH_CAPABILITIES:
        return flags, 0, 0, list(fds)
    capability = struct.unpack_from("<I", info, 12)[0]
    (count,) = struct.unpack_from("<I", info, capability + 8)
    assert count == 1
    start, length = struct.unpack_from("<QQ", info, capability + 16)
    return flags, start, length, list(fds)


def test_a_client_maps_the_peer_s_memory(folder: Path) -> None:
    with ExitStack() as stack:
        ram = {name: _engine(folder, stack, name) for name in "ab"}
        for name, peer in (("a", "b"), ("b", "a")):
            bridge = stack.enter_context(Client(folder / name))
            flags, start, length, fds = _window(bridge)
            assert flags & MAPPABLE
            assert (start, length, len(fds)) == (START, LENGTH, 1)
            with mmap.mmap(fds[0], LENGTH, offset=START) as window:
                window[0x1000:0x1005] = b"alias"
            os.close(fds[0])
            assert ram[peer][START + 0x1000 : START + 0x1005] == b"alias"


def test_engine_and_trapped_accesses_see_the_same(folder: Path) -> None:
    """Once the link is up; the window needs no programming, and takes none."""
    with ExitStack() as stack:
        for name in "ab":
            _engine(folder, stack, name)
        bridges = {name: stack.enter_context(Client(folder / name)) for name in "ab"}
        for client in bridges.values():
            client.share(START, LENGTH)
            client.write32(CONFIG, 0x20, BAR4 & 0xFFFFFFFF)
            client.write32(CONFIG, 0x24, BAR4 >> 32)
            client.write(CONFIG, 4, struct.pack("<H", MASTER))
            client.write(0, 0x20, struct.pack("<Q", 0x5000))  # window1_base: storage
            client.write32(0, 0xB0D4, 8)
            client.write(0, 0xB050, bytes(2))
        while bridges["a"].read(0, 0xB052, 2) != b"\x84\x20":
            pass
        bridges["a"].write(WINDOW, START + 8, b"trapped!")
        assert bridges["a"].read(WINDOW, START + 8, 8) == b"trapped!"
        assert bridges["b"].memory(START)[8:16] == b"trapped!"


def test_a_client_that_comes_after_the_peer_s_death_maps_nothing(folder: Path) -> None:
    with ExitStack() as stack:
        _engine(folder, stack, "b")
        with Client(folder / "a") as bridge:
            flags, *_, fds = _window(bridge)
            assert flags & MAPPABLE
            os.close(fds[0])
    with Client(folder / "dma-b"), Client(folder / "a") as bridge:
        assert _window(bridge) == (3, 0, 0, [])
