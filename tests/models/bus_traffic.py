"""Accesses of every kind on the buses of a bridge, an HCA and a DMA engine, written to a log."""

from __future__ import annotations

from pathlib import Path

from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.uar import UAR_AREA_SIZE

BAR2 = 0xFB_8000_0000
PAYLOAD = bytes(range(256)) * 4
BUFFER, LOW_BUFFER = 0x1_0002_5003, 0xFFE0
MESSAGE = 0xFEE0_1004


def write_log(folder: Path, *, repeat: int = 1, capture: int = 256) -> None:
    """A log of bring-up, then `repeat` times every other kind of access."""
    log = FileLog(folder, capture=capture)
    bring_up(log)
    for number in range(repeat):
        adapter(log, number)
        bridge(log, number)
        if number % 64 == 63:
            log.flush()
    log.close()


def bring_up(log: FileLog) -> None:
    """Software sizes the BARs of function a, then places BAR2 above 4 GiB."""
    a = log.device("a")
    log.tell(a, Fact.RESET, cause="function level")
    log.record(a, Kind.CONFIG_READ, 0, 0, 2, b"\xb3\x15")
    for bar, value in ((2, 0x8000_000C), (3, 0xFB)):
        for word in (0xFFFF_FFFF, value):
            _config_write(log, a, 0x10 + 4 * bar, word.to_bytes(4, "little"))
    log.record(a, Kind.CONFIG_READ, 0, 0x18, 4, bytes.fromhex("0c000080"))
    _config_write(log, a, 0x06, b"\x10\x02")
    log.record(a, Kind.CONFIG_READ, 0, 0xE0, 64, bytes(range(64)))
    log.tell(a, Fact.LINK, port=1, cable=1, link=1)
    log.tell(a, Fact.CONTROL, line="link a 1")


def _config_write(log: FileLog, device: int, offset: int, data: bytes) -> None:
    log.record(device, Kind.CONFIG_WRITE, 0, offset, len(data), data)


def adapter(log: FileLog, number: int) -> None:
    """Record what crosses the bus of an adapter that sends, receives and interrupts."""
    a = log.device("a")
    log.record(a, Kind.MMIO_READ, 0, 0x80698, 4, b"\0\0\0\1")
    log.record(a, Kind.MMIO_WRITE, 2, 0x2014, 4, bytes.fromhex("00004800"))
    line = UAR_AREA_SIZE + 0x2000
    for offset in range(0, 64, 8):  # a line of BlueFlame is one write
        log.record(a, Kind.MMIO_WRITE, 2, line + offset, 8, bytes((offset,)) * 8)
    log.record(a, Kind.BLUEFLAME, 2, line, 64, bytes(64))
    log.record(a, Kind.DMA_READ, 0, BUFFER, 1024, PAYLOAD, What.PAYLOAD, 0x48)
    log.record(a, Kind.DMA_WRITE, 0, LOW_BUFFER, 100, PAYLOAD[:100], What.PAYLOAD, 0x48)
    log.record(a, Kind.DMA_WRITE, 0, BUFFER + number, 1, b"\x80", What.OWNERSHIP, 0x80)
    log.record(a, Kind.DMA_WRITE, 0, 0x1000, 32, bytes(32), What.CQE, 0x80)
    log.record(a, Kind.IRQ, 0, 3, 0, b"")
    log.tell(a, Fact.COMMAND, name="QUERY_FW", status="OK", us=12)


def bridge(log: FileLog, number: int) -> None:
    bridge, engine = log.device("b.ntb4"), log.device("b.dma")
    log.record(bridge, Kind.MMIO_WRITE, 2, 8 * number, 8, bytes(range(8)))
    log.record(bridge, Kind.MMIO_READ, 0, 0x86, 2, b"\2\0")
    log.record(bridge, Kind.DMA_WRITE, 0, 0x7FFF_FFFE, 8, bytes(range(8)), What.WINDOW, 2)
    log.record(bridge, Kind.DMA_WRITE, 0, MESSAGE, 4, b"\x21\0\0\0", What.MESSAGE)
    log.record(engine, Kind.DMA_READ, 0, 0x2000, 64, bytes(64), What.DESCRIPTOR, 1)
    log.record(engine, Kind.DMA_READ, 0, BUFFER - 3, 4096, PAYLOAD, What.COPY, 1)
    log.record(engine, Kind.DMA_WRITE, 0, 0x3FF0, 600, PAYLOAD[:600], What.COPY, 1)
