"""NTRDMA on a back end that is named by a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.ntrdma.back_ends import BACK_END, BRIDGE_BACK_ENDS, NTB_CPU, REGISTERED, WORDS
from bluebridge.guest.ntrdma.interface import EthernetOptions, Interface, Tap
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.back_end import BackEnd

READY_SECONDS = 60.0


def open_ntrdma(
    back_end: str = BACK_END,
    wait: bool = True,
    ethernet: EthernetOptions | None = None,
    watchers: Sequence[Callable[[PortState], None]] = (),
) -> NtrdmaDevice:
    """The device, with its peer there if it waits; bridge and DMA engine are vfio-pci's.

    With `ethernet` it has a network interface as well. `watchers` are told each state of the port,
    under the service's lock. Raises `DeviceError`, `OSError`, `MemoryError`, `ValueError` for an
    address that is none; `VerbsError` when no peer comes within a minute.
    """
    network = None
    with ExitStack() as undo:
        if ethernet is not None:
            tap = Tap(ethernet)
            undo.callback(tap.close)
            network = Interface(tap, ethernet.frame_bytes, ethernet.frame_count)
        opened = _back_end(back_end)
        undo.callback(opened.close)
        device = NtrdmaDevice(opened, watchers, network)
        undo.pop_all()
    try:
        if wait:
            device.wait_ready(READY_SECONDS)
    except BaseException:
        device.close()
        raise
    return device


def _back_end(word: str) -> BackEnd:
    if word[:2] in ("s:", "c:"):
        from bluebridge.guest.ntrdma.transports.tcp import TcpTransport

        return TcpTransport(word)
    way, registered = word.removesuffix(REGISTERED), word.endswith(REGISTERED)
    if way not in BRIDGE_BACK_ENDS:
        raise VerbsError(f"{word} is no back end of NTRDMA: {', '.join(WORDS)}")
    from bluebridge.guest.drivers.ntb import open_bridge
    from bluebridge.guest.ntrdma.transports.ntb import CpuTransport, DmaTransport

    with ExitStack() as undo:
        bridge = open_bridge()
        undo.callback(bridge.close)
        if way == NTB_CPU:
            transport: BackEnd = CpuTransport(bridge, registered=registered)
        else:
            from bluebridge.guest.drivers.dma import open_engine

            engine = open_engine()
            undo.callback(engine.close)
            transport = DmaTransport(bridge, engine, registered=registered)
        undo.pop_all()
        return transport
