"""Sweeps of payloads over a server of their own: logs of the guest's driver, as real as any."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.guest.drivers.common.blueflame import BlueFlameUse
from bluebridge.guest.verbs import SendWr, WcStatus, WrOpcode
from tests.models.players import Player, driven
from tests.models.server import devices

STUDY = range(4, 1025, 10)
"""The sizes of the study's script."""
INLINE = 220


def sweep(
    folder: Path,
    sizes: Iterable[int],
    use: BlueFlameUse | None,
    opcode: WrOpcode = WrOpcode.RDMA_WRITE,
) -> Path:
    """Send each size once from a to b, inline up to 220 bytes; the log of it."""
    folder.mkdir()
    server = devices(folder, "--blueflame", "on")
    with server, driven(folder, blueflame=use) as (first, second):
        a, b = Player(first, inline=INLINE), Player(second)
        a.connect(b)
        b.connect(a)
        for size in sizes:
            _send(a, b, size, opcode)
    return folder / "log"


def _send(a: Player, b: Player, size: int, opcode: WrOpcode) -> None:
    data = bytes((size + at) & 0xFF for at in range(size))
    request = SendWr(1, opcode, remote_addr=b.address, rkey=b.mr.rkey)
    if size <= INLINE:
        request.inline_data = data
    else:
        a.view[:size] = data
        request.sg_list = [a.sge(0, size)]
    if opcode == WrOpcode.SEND:
        b.receive()
    a.qp.post_send(request)
    a.expect(WcStatus.SUCCESS)
    if opcode == WrOpcode.SEND:
        b.expect(WcStatus.SUCCESS)
    assert bytes(b.view[:size]) == data


def rewritten(log: Path, folder: Path, change: Callable[[Event], Iterable[Event]]) -> Path:
    """A copy of a log with other events in place of some."""
    reader = LogReader(log)
    copy = FileLog(folder, capture=1 << 16)
    devices = {name: copy.device(name) for name in reader.meta["devices"]}
    for event in reader:
        for each in change(event):
            if each.told is not None:
                copy.tell(devices[each.device], each.told.fact, **each.told.values)
                continue
            copy.work = each.work
            copy.record(
                devices[each.device], each.kind, each.bar, each.address, each.length, each.data,
                each.what, each.obj,
            )  # fmt: skip
    copy.close()
    return folder
