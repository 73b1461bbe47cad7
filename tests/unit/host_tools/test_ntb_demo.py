"""`bluebridge ntb demo`: which lines of a log are one packet, and its command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.arguments import parse
from bluebridge.host_tools.ntb_demo.packet import bounds

SIZE = 3042


def _event(
    device: str,
    kind: Kind,
    length: int,
    *,
    what: What = What.OTHER,
    bar: int = 0,
    data: bytes = b"",
) -> Event:
    return Event(0, 0.0, device, kind, bar, what, 0, 0, length, data)


def _log() -> list[Event]:
    header = SIZE.to_bytes(4, "little")
    return [
        _event("b.ntb4", Kind.MMIO_WRITE, 4, bar=2, data=header),  # the peer's own, another frame
        _event("a.ntb4", Kind.MMIO_WRITE, 4, bar=2, data=header),
        _event("a.dma", Kind.DMA_READ, SIZE, what=What.COPY),
        _event("a.dma", Kind.DMA_WRITE, SIZE, what=What.COPY),
        _event("b.ntb4", Kind.DMA_WRITE, SIZE, what=What.WINDOW),
        _event("a.dma", Kind.IRQ, 0),
        _event("b.dma", Kind.DMA_WRITE, 64, what=What.COPY),
        _event("b.dma", Kind.DMA_WRITE, SIZE, what=What.COPY),
        _event("b.dma", Kind.IRQ, 0),
        _event("b.dma", Kind.IRQ, 0),
    ]


def test_a_packet_goes_from_the_sender_s_header_to_the_receiver_s_interrupt() -> None:
    assert bounds(_log(), SIZE, "a", "b") == (1, 9)
    assert bounds(_log()[2:], SIZE, "a", "b") == (0, 7)  # its header is not in the log


@pytest.mark.parametrize("left", [0, 3, 6, 8])
def test_a_packet_that_is_not_whole_is_none(left: int) -> None:
    assert bounds(_log()[:left], SIZE, "a", "b") is None


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    options = parse(["ntb", "demo", "--model", "switchtec", "--log", "x"])
    assert (options.command, options.action) == ("ntb", "demo")
    assert (options.model, options.log, options.quiet) == ("switchtec", Path("x"), False)
    assert parse(["ntb", "demo"]).model == "intel-gen4"
    with pytest.raises(SystemExit):
        parse(["ntb", "demo", "--model", "idt"])
    assert "there is no 'idt'" in capsys.readouterr().err
