"""Bridge and DMA engine in the real server, driven over their sockets as QEMU does."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.ioat import DESCRIPTOR, ChannelCommand, State
from bluebridge.device.layout.ntb import gen4
from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.vfio_user.client import Client, eventfds
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX, NO_REPLY
from tests.models.server import ServerProcess, devices

RAM = 0x100000
RAM_SIZE = 1 << 20
BARS = {0: 0xF7_8020_0000, 2: 0xF7_8000_0000, 4: 0xF7_8010_0000}
MASTER = 0x0006  # memory decoding and bus master


class Card(Client):
    """One function of a guest: memory shared, BARs placed, interrupts enabled."""

    def __init__(self, path: Path, bars: dict[int, int], vectors: list[int]) -> None:
        super().__init__(path)
        self.ram = self.share(RAM, RAM_SIZE)
        for index, base in bars.items():
            self.write(CONFIG, 0x10 + 4 * index, (0xFFFFFFFF).to_bytes(4, "little"))
            self.write(CONFIG, 0x10 + 4 * index, (base & 0xFFFFFFFF).to_bytes(4, "little"))
            self.write(CONFIG, 0x14 + 4 * index, (base >> 32).to_bytes(4, "little"))
        self.command(MASTER)
        self.enable_irqs(MSIX, vectors)

    def __enter__(self) -> Card:
        return self

    def command(self, value: int) -> None:
        """The command register."""
        self.write(CONFIG, 4, value.to_bytes(2, "little"))

    def put(self, offset: int, width: int, value: int) -> None:
        """A register."""
        self.write(0, offset, value.to_bytes(width, "little"))

    def get(self, offset: int, width: int) -> int:
        """A register."""
        return int.from_bytes(self.read(0, offset, width), "little")

    def open_window(self, index: int, address: int, length: int) -> None:
        """As intel_ntb4_mw_set_trans."""
        self.put(0x10 + 16 * index, 8, address)
        self.put(0x18 + 16 * index, 8, BARS[2 + 2 * index] + length)


class Setup:
    """Bridges of guests a and b, the engine of a, and their eventfds."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.vectors = stack.enter_context(eventfds(gen4.VECTORS))
        self.a = stack.enter_context(Card(folder / "a", BARS, self.vectors))
        self.b_vectors = stack.enter_context(eventfds(gen4.VECTORS))
        self.b = stack.enter_context(Card(folder / "b", BARS, self.b_vectors))
        fds = stack.enter_context(eventfds(4))
        self.engine = stack.enter_context(Card(folder / "dma", {0: 0xFD000000}, fds))
        for card in (self.a, self.b):
            for vector in range(gen4.VECTORS):
                card.put(0x50 + vector, 1, vector)
            card.put(0xB0D4, 4, gen4.TRAIN)
            card.put(0xB050, 2, 0)
        self.wait_for_link(gen4.LINK_UP)

    def wait_for_link(self, status: int) -> None:
        """Until both sides that are there agree."""
        deadline = time.monotonic() + 10
        while self.a.get(0xB052, 2) != status:
            assert time.monotonic() < deadline
        if status:
            while self.b.get(0xB052, 2) != status:
                assert time.monotonic() < deadline

    def wait_for_doorbells(self, bits: int) -> None:
        """Until b has them: they are held for a moment while a link's news is on its way."""
        deadline = time.monotonic() + 10
        while self.b.get(0x40, 8) & bits != bits:
            assert time.monotonic() < deadline

    def copy(self, source: int, target: int, size: int) -> int:
        """One descriptor on channel 0; the channel's status when it is no longer active."""
        entry = DESCRIPTOR.pack(source=source, destination=target, size=size, completion_write=1)
        self.engine.ram[0:64] = bytes(entry)
        self.engine.put(0x98, 4, RAM + 0x100)
        self.engine.put(0x90, 4, RAM)
        self.engine.put(0x94, 4, 0)
        self.engine.put(0x86, 2, 1)
        deadline = time.monotonic() + 10
        while not (status := self.engine.get(0x88, 8) & 7):
            assert time.monotonic() < deadline
        return status


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    """The device server with two bridges and one engine."""
    folder = tmp_path_factory.mktemp("ntb")
    engine = ("--dma", f"name=a,socket={folder / 'dma'}")
    with devices(folder, *engine, kinds=("ntb",)) as process:
        yield process, folder


@pytest.fixture
def setup(server: tuple[ServerProcess, Path]) -> Iterator[Setup]:
    """Three connected functions, the link up."""
    with ExitStack() as stack:
        yield Setup(server[1], stack)


def _fired(fd: int) -> bool:
    try:
        return bool(struct.unpack("<Q", os.read(fd, 8))[0])
    except BlockingIOError:
        return False


def test_stores_and_copies_reach_the_peer_s_memory(
    setup: Setup, server: tuple[ServerProcess, Path]
) -> None:
    setup.b.open_window(0, RAM + 0x1000, 0x2000)
    setup.a.write(2, 0x10, b"stored!!", posted=True)
    assert setup.a.read(2, 0x10, 8) == b"stored!!"
    assert setup.b.ram[0x1010:0x1018] == b"stored!!"
    setup.engine.ram[0x200:0x300] = bytes(range(256))
    assert setup.copy(RAM + 0x200, BARS[2] + 0x800, 256) == 1
    assert setup.b.ram[0x1800:0x1900] == bytes(range(256))
    setup.b.open_window(0, 0, 0)
    assert setup.a.read(2, 0x10, 8) == b"\xff" * 8
    time.sleep(0.1)  # the log is written every 50 ms
    said = {(event.device, decode(event)) for event in LogReader(server[1] / "log")}
    assert ("a.ntb4", "window BAR2 at 0x10") in said
    assert ("b.ntb4", f"through the peer's window into {RAM + 0x1010:#x}") in said
    assert ("a.dma", "copy channel=0") in said
    assert any("descriptor channel=0 COPY" in text for _, text in said)
    assert ("b.ntb4", "LINK.link_status active=1 width=8 speed=4") in said


def test_a_master_s_descriptors_may_lie_behind_a_window(setup: Setup) -> None:
    """The engine, which reads and writes memory, reaches the peer's by the same addresses."""
    setup.b.open_window(0, RAM, 0x2000)
    entry = DESCRIPTOR.pack(source=RAM, destination=RAM + 0x40, size=8, completion_write=1)
    setup.b.ram[0:64] = bytes(entry)
    setup.engine.ram[0:8] = b"by proxy"
    setup.engine.put(0x98, 4, (BARS[2] + 0x1000) & 0xFFFFFFFF)
    setup.engine.put(0x9C, 4, BARS[2] >> 32)
    setup.engine.put(0x90, 4, BARS[2] & 0xFFFFFFFF)
    setup.engine.put(0x94, 4, BARS[2] >> 32)
    setup.engine.put(0x86, 2, 1)
    assert setup.engine.get(0x88, 8) == BARS[2] | 1
    assert setup.engine.ram[0x40:0x48] == b"by proxy"
    assert struct.unpack_from("<Q", setup.b.ram, 0x1000) == (BARS[2] | 1,)


def test_a_store_becomes_an_interrupt_message(setup: Setup) -> None:
    setup.b.open_window(1, 0xFEE00000, 1 << 20)
    setup.a.write(4, 0x3000, b"\x2a\0\0\0")
    message = setup.b.receive()
    assert (message.command, message.flags & NO_REPLY) == (VfioUserCommand.DMA_WRITE, NO_REPLY)
    assert struct.unpack("<QQ", message.body[:16]) == (0xFEE03000, 4)
    assert message.body[16:] == b"\x2a\0\0\0"
    setup.engine.ram[0x200:0x204] = b"\x2b\0\0\0"
    assert setup.copy(RAM + 0x200, BARS[4] + 0x3000, 4) == 1
    assert setup.b.receive().body[16:] == b"\x2b\0\0\0"


def test_many_messages_to_a_client_that_sleeps_are_kept(setup: Setup) -> None:
    """More than a socket takes at once; the server does not wait for the client."""
    setup.b.open_window(1, 0xFEE00000, 1 << 20)
    for number in range(1000):
        setup.a.write(4, 0x3000, number.to_bytes(4, "little"))
    for number in range(1000):
        assert setup.b.receive().body[16:] == number.to_bytes(4, "little")


def test_doorbells_are_eventfds(setup: Setup) -> None:
    assert _fired(setup.b_vectors[gen4.LINK_BIT])
    setup.a.put(0x100 + 4 * 5, 4, 1)
    setup.wait_for_doorbells(1 << 5)
    assert _fired(setup.b_vectors[5]) and not _fired(setup.b_vectors[6])


def test_a_doorbell_storm_costs_nobody_else(setup: Setup) -> None:
    """A guest rings without end a peer that never looks: bits and eventfds do not grow."""
    setup.a.put(0x100, 4, 1)
    setup.wait_for_doorbells(1)
    for number in range(20_000):
        setup.a.write(0, 0x100 + 4 * (number % 32), b"\1\0\0\0", posted=True)
    assert setup.engine.alive() and setup.copy(RAM + 0x200, RAM + 0x300, 64) == 1
    assert setup.a.get(0xB052, 2) == gen4.LINK_UP
    setup.wait_for_doorbells(0xFFFFFFFF)
    assert all(_fired(fd) for fd in setup.b_vectors[:32])


@pytest.mark.parametrize("source", [BARS[0], RAM + 0x1000])
def test_descriptors_without_end_stop_nobody_else(setup: Setup, source: int) -> None:
    """Each of four channels has one that points at itself: of registers, of memory."""
    size = 0x8000
    for channel in range(4):
        at, base = RAM + 0x40 * channel, 0x80 * (channel + 1)
        entry = DESCRIPTOR.pack(source=source, destination=RAM + 0x20000, size=size, next=at)
        setup.engine.ram[at - RAM : at - RAM + 64] = bytes(entry)
        setup.engine.put(base + 0x10, 4, at)
        setup.engine.put(base + 0x14, 4, 0)
        setup.engine.put(base + 6, 2, 0xFFFF)
    for number in range(200):
        setup.b.put(0x50, 1, number & 0x1F)
        assert setup.b.get(0x50, 1) == number & 0x1F
    assert setup.engine.get(0x88, 8) & 7 == 0, "the copies were over before the test was"
    for channel in range(4):
        setup.engine.put(0x80 * (channel + 1) + 4, 1, ChannelCommand.RESET)
        assert setup.engine.get(0x80 * (channel + 1) + 8, 8) & 7 == State.HALTED


@pytest.mark.parametrize("vector", [32, 33, 0xFF])
def test_an_interrupt_for_a_vector_that_is_not_set_up(setup: Setup, vector: int) -> None:
    """It is pending, and nothing else happens; a vector of the wrong number is none."""
    if vector == gen4.LINK_BIT:
        setup.b.disable_irqs(MSIX)
    setup.b.put(0x50 + 7, 1, vector)
    setup.a.put(0x100 + 4 * 7, 4, 1)
    setup.wait_for_doorbells(1 << 7)
    assert not _fired(setup.b_vectors[7]) and setup.b.alive()


def test_the_death_of_the_peer_takes_the_link_down(setup: Setup) -> None:
    setup.b.open_window(0, RAM, 0x1000)
    assert _fired(setup.vectors[gen4.LINK_BIT])
    setup.b.close()
    setup.wait_for_link(0)
    assert _fired(setup.vectors[gen4.LINK_BIT])
    assert setup.a.read(2, 0, 8) == b"\xff" * 8
    setup.a.write(2, 0, bytes(8), posted=True)
    assert setup.a.alive()


def test_without_bus_master_nothing_comes_in_or_goes_out(setup: Setup) -> None:
    setup.b.open_window(0, RAM, 0x1000)
    setup.b.ram[0:8] = b"original"
    setup.b.command(0x0002)
    setup.a.write(2, 0, b"intruder")
    assert setup.a.read(2, 0, 8) == b"\xff" * 8 and setup.b.ram[0:8] == b"original"
    setup.engine.command(0x0002)
    assert setup.copy(RAM, RAM + 0x300, 8) == 3


def test_an_engine_does_not_reach_bars_that_are_switched_off(setup: Setup) -> None:
    setup.b.open_window(0, RAM, 0x1000)
    setup.a.command(0x0004)
    assert setup.copy(RAM, BARS[2], 8) == 3
    setup.a.command(MASTER)
    assert setup.copy(RAM, BARS[2], 8) == 1


@pytest.mark.parametrize("offset", [0x86, 0x90, 0xFF8, 0x40, 0xB050])
def test_any_store_by_the_engine_leaves_all_alive(setup: Setup, offset: int) -> None:
    """Its own registers, those of the bridge, and what lies between."""
    setup.engine.ram[0x200:0x300] = b"\xff" * 256
    for target in (0xFD000000 + offset, BARS[0] + offset):
        setup.copy(RAM + 0x200, target, 64)
    assert setup.engine.alive() and setup.a.alive() and setup.b.alive()
