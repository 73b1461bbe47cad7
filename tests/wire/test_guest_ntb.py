"""The user-space drivers of bridge and DMA engine against the real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pytest

from bluebridge.device.layout.ioat import ChannelError
from bluebridge.device.layout.ntb.models import BY_PCI_ID
from bluebridge.guest.drivers.dma import ChannelHalted, DmaError, Engine
from bluebridge.guest.drivers.ntb import DRIVERS, Bridge, NtbError, NtbTimeout, bridge_of
from bluebridge.guest.drivers.ntb.pingpong import PingPong
from bluebridge.guest.errors import DeviceError
from bluebridge.host_tools.vfio_user.bus import Ram
from tests.models.function import WireFunction
from tests.models.server import devices
from tests.models.until import until

BARS = {0: 0xF7_8020_0000, 2: 0xF7_8000_0000, 4: 0xF7_8010_0000}
ENGINE_BARS = {0: 0xF7_9000_0000}
SECONDS = 20.0
MIB = 1 << 20
NOBODY = 0x70_0000_0000


@dataclass
class Side:
    """One guest."""

    bridge: Bridge
    engine: Engine


@pytest.fixture(scope="module", params=[BY_PCI_ID[each].name for each in DRIVERS])
def sides(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Side, Side]]:
    """Both guests, the link up."""
    folder = tmp_path_factory.mktemp("ntb")
    server = devices(folder, "--ntb-model", request.param, kinds=("ntb", "dma"))
    with server, ExitStack() as stack:
        found = []
        for name in "ab":
            ram = Ram()
            stack.callback(ram.close)
            engine = Engine(WireFunction(folder / f"dma-{name}", ram, ENGINE_BARS), entries=8)
            stack.enter_context(engine)
            bridge = bridge_of(WireFunction(folder / name, ram, BARS))
            stack.enter_context(bridge)
            found.append(Side(bridge, engine))
        a, b = found
        assert not a.bridge.link().up
        with pytest.raises(NtbTimeout, match="stays down"):
            a.bridge.wait_link(timeout=0)
        for side in found:
            side.bridge.enable_link()
        for side in found:
            assert side.bridge.wait_link(timeout=SECONDS).up
        yield a, b


def _both_ways(sides: tuple[Side, Side]) -> tuple[tuple[Side, Side], ...]:
    return (sides, (sides[1], sides[0]))


def _has_rung(bridge: Bridge, bits: int) -> bool:
    return bridge.rung() == bits


def test_the_link_as_the_bridges_know_it(sides: tuple[Side, Side]) -> None:
    a, b = sides[0].bridge, sides[1].bridge
    assert (a.port, a.peer_port, b.port, b.peer_port) == (0, 1, 1, 0)
    assert str(a.link()) == "up, 16 GT/s x8"
    b.disable_link()
    assert not a.wait_link(up=False, timeout=SECONDS).up
    b.enable_link()
    assert a.wait_link(timeout=SECONDS).up and b.wait_link(timeout=SECONDS).up


def test_scratchpads(sides: tuple[Side, Side]) -> None:
    for here, there in _both_ways(sides):
        for index in range(here.bridge.spads):
            here.bridge.set_peer_spad(index, 0xABC00000 + index)
            assert here.bridge.peer_spad(index) == 0xABC00000 + index
            assert there.bridge.spad(index) == 0xABC00000 + index
        there.bridge.set_spad(3, 7)
        assert here.bridge.peer_spad(3) == 7
    with pytest.raises(NtbError, match="scratchpads 0 to 15, not 16"):
        sides[0].bridge.spad(16)


def test_doorbells_are_masked_pend_and_interrupt(sides: tuple[Side, Side]) -> None:
    for here, there in _both_ways(sides):
        highest = 1 << here.bridge.doorbells - 1
        with pytest.raises(NtbError, match="masked"):
            there.bridge.wait_rung(highest)
        here.bridge.ring(highest | 1)
        # They wait until the receiver has looked at a link that came up just now.
        until(partial(_has_rung, there.bridge, highest | 1))
        there.bridge.unmask(highest | 1)  # what is pending interrupts now
        assert there.bridge.wait_rung(highest, SECONDS) == highest
        assert there.bridge.rung() == 1
        there.bridge.clear(1)
        assert there.bridge.rung() == 0
        with pytest.raises(NtbTimeout, match="none of the doorbells"):
            there.bridge.wait_rung(1, timeout=0)
        listen = there.bridge.listener(1)
        here.bridge.ring(1)
        listen(SECONDS)
        here.bridge.ring(1)  # pending, and it interrupts all the same
        listen(SECONDS)
        assert there.bridge.rung() == 1
        with pytest.raises(NtbTimeout, match="none of the doorbells"):
            listen(0)
        there.bridge.mask(there.bridge.every_doorbell)
        with pytest.raises(NtbError, match="masked"):
            there.bridge.listener(1)
        assert there.bridge.masked == there.bridge.every_doorbell
    with pytest.raises(NtbError, match="doorbells are bits"):
        sides[0].bridge.ring(1 << 32)


def test_windows_open_show_and_close(sides: tuple[Side, Side]) -> None:
    for here, there in _both_ways(sides):
        for number in (0, 1):
            window = there.bridge.windows[number]
            memory = there.bridge.allocate(2 * window.align, window.align)
            window.set_translation(memory.address, 4096)
            outward = here.bridge.windows[number]
            outward.store(3, b"thirteen here")
            assert outward.load(3, 13) == bytes(memory.view[3:16]) == b"thirteen here"
            assert outward.load(4096, 4) == b"\xff" * 4
            window.clear_translation()
            assert outward.load(3, 5) == b"\xff" * 5
            with pytest.raises(NtbError, match="multiples of"):
                window.set_translation(memory.address + 8, 4096)
            with pytest.raises(NtbError, match="shows 1 to"):
                window.set_translation(memory.address, window.size + 1)
            memory.free()


def test_a_mebibyte_by_dma_through_the_window(sides: tuple[Side, Side]) -> None:
    """Also more descriptors than the ring has, and a copy that several take."""
    for here, there in _both_ways(sides):
        window = there.bridge.windows[0]
        target = there.bridge.allocate(MIB, window.align)
        window.set_translation(target.address, MIB)
        source = here.engine.allocate(2 * MIB)
        pattern = bytes(range(256)) * (MIB // 256)
        source.view[:MIB] = pattern
        channel = here.engine.channels[1]
        for ticket in [channel.copy(source.address, source.address + MIB, 8) for _ in range(20)]:
            channel.wait(ticket, SECONDS)
        channel.longest = MIB // 4
        outward = here.bridge.windows[0].address
        channel.wait(channel.copy(source.address, outward, MIB, interrupt=True), SECONDS)
        assert target.view == pattern
        # And the other way: the engine reads what the peer shows.
        channel.wait(channel.copy(outward, source.address + MIB, MIB), SECONDS)
        assert source.view[MIB:] == pattern
        window.clear_translation()
        for memory in (source, target):
            memory.free()


def test_a_channel_halts_tells_why_and_works_again(sides: tuple[Side, Side]) -> None:
    engine = sides[0].engine
    memory = engine.allocate(8192)
    channel, other = engine.channels[2], engine.channels[3]
    good = channel.copy(memory.address, memory.address + 4096, 64)
    bad = channel.copy(NOBODY, memory.address, 64, interrupt=True)
    channel.wait(good, SECONDS)
    with pytest.raises(ChannelHalted, match=f"READ_DATA.*64 bytes from {NOBODY:#x}") as halted:
        channel.wait(bad, SECONDS)
    assert halted.value.reasons == ChannelError.READ_DATA
    with pytest.raises(ChannelHalted):
        channel.wait(channel.copy(memory.address, memory.address + 4096, 8), SECONDS)
    other.wait(other.copy(memory.address, memory.address + 4096, 8), SECONDS)
    channel.reset()
    memory.view[:4] = b"anew"
    channel.wait(channel.copy(memory.address, memory.address + 4096, 4, interrupt=True), SECONDS)
    assert bytes(memory.view[4096:4100]) == b"anew"
    with pytest.raises(DmaError, match="a copy of 0 bytes"):
        channel.copy(memory.address, memory.address, 0)
    memory.free()


def test_ping_pong_by_doorbell_and_by_dma(sides: tuple[Side, Side]) -> None:
    games = [PingPong(side.bridge, side.engine) for side in sides]
    found: dict[int, tuple[list[float], ...]] = {}

    def play(game: PingPong) -> None:
        game.meet(SECONDS)
        found[game.bridge.port] = (game.by_interrupt(20), game.by_doorbell(20), game.by_dma(20, 64))
        game.close()

    threads = [threading.Thread(target=play, args=(game,)) for game in games]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert [len(times) for port in (0, 1) for times in found[port]] == 3 * [20] + 3 * [19]
    assert all(time > 0 for port in (0, 1) for times in found[port] for time in times)


def test_what_is_no_bridge(sides: tuple[Side, Side]) -> None:
    with pytest.raises(DeviceError, match="no bridge with a driver"):
        bridge_of(sides[0].engine.function)
