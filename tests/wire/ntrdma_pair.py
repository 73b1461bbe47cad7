"""NTRDMA between two guests' worth of functions of one device server, without a guest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.drivers.dma import Engine
from bluebridge.guest.drivers.ntb import bridge_of
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.back_end import BackEnd
from bluebridge.guest.ntrdma.transports.ntb import PIECE_BYTES, CpuTransport, DmaTransport
from bluebridge.host_tools.vfio_user.bus import RAM_BASE, RAM_SIZE, Ram
from tests.models.function import WireFunction
from tests.models.server import ServerProcess, devices

BARS = {0: 0xF7_8020_0000, 2: 0xF7_8000_0000, 4: 0x100_0000_0000}
ENGINE_BARS = {0: 0xF7_9000_0000}
SECONDS = 20.0


@contextmanager
def server(folder: Path, *more: str) -> Iterator[ServerProcess]:
    """A device server with a bridge and two DMA engines; their sockets are in `folder`."""
    with devices(folder, "--bar-sizes", "ntrdma", *more, kinds=("ntb", "dma")) as process:
        yield process


@contextmanager
def opened(
    folder: Path,
    name: str,
    dma: bool,
    watchers: Sequence[Callable[[PortState], None]] = (),
    *,
    registered: bool = False,
) -> Iterator[NtrdmaDevice]:
    """One side; `watchers` are told the states of its port."""
    with (
        transport(folder, name, dma, registered) as back_end,
        NtrdmaDevice(back_end, watchers) as device,
    ):
        yield device


@contextmanager
def transport(folder: Path, name: str, dma: bool, registered: bool = False) -> Iterator[BackEnd]:
    """The back end of one side, whose user closes it."""
    with ExitStack() as stack:
        ram = Ram(RAM_SIZE + registered * PIECE_BYTES)
        stack.callback(ram.close)
        engine = Engine(WireFunction(folder / f"dma-{name}", ram, ENGINE_BARS))
        bridge = bridge_of(WireFunction(folder / name, ram, BARS))
        if dma:
            yield DmaTransport(bridge, engine, RAM_BASE, registered=registered)
        else:
            stack.callback(engine.close)
            yield CpuTransport(bridge, RAM_BASE, registered=registered)


@contextmanager
def joined(
    folder: Path, dma: bool, *, registered: bool = False
) -> Iterator[tuple[NtrdmaDevice, NtrdmaDevice]]:
    """Both sides, ready; the first one may show `registered` memory only."""
    with opened(folder, "a", dma, registered=registered) as a, opened(folder, "b", dma) as b:
        for device in (a, b):
            device.wait_ready(SECONDS)
        yield a, b
