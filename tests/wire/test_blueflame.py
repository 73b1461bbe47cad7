"""BlueFlame over the socket: entries in stores of eight bytes, one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from device.layout.mlx4.uar import BLUEFLAME, BLUEFLAME_BUFFER, BLUEFLAME_LINE, PAGE_SIZE
from device.layout.mlx4.wqe import DS_MASK
from guest.verbs import Context, SendFlags, WcStatus, WrOpcode
from tests.wire.players import Player

INLINE = 200
OK = WcStatus.SUCCESS
FLAGS = SendFlags.SIGNALED | SendFlags.INLINE


def through_blueflame(player: Player, page: int) -> Callable[[int, int, int], None]:
    """What to do instead of ringing: store the entry (`mlx4_post_send` for one request)."""
    qp, bus = player.qp, player.ctx.bus
    half = 0

    def store(bar: int, offset: int, value: int) -> None:
        nonlocal half
        index = qp._sq_head - 1
        start = qp._sq_offset + ((index & qp._sq_mask) << qp._sq_shift)
        entry = bytearray(qp._data[start : start + (1 << qp._sq_shift)])
        entry[1:3] = (index & 0xFFFF).to_bytes(2, "big")
        entry[4:7] = qp.qpn.to_bytes(3, "big")
        qp._data[start + 4 : start + 8] = entry[4:8]
        qp._data[start : start + 4] = entry[:4]
        length = -(-(entry[7] & DS_MASK) * 16 // BLUEFLAME_LINE) * BLUEFLAME_LINE
        base = BLUEFLAME.base + page * PAGE_SIZE + half
        for at in range(0, length, 8):
            bus.write64(bar, base + at, int.from_bytes(entry[at : at + 8], "big"))
        half ^= BLUEFLAME_BUFFER

    return store


@pytest.mark.parametrize("own_page", [True, False], ids=["own page", "another page"])
def test_traffic_without_doorbells(contexts: tuple[Context, Context], own_page: bool) -> None:
    """Lap after lap; stores to a page of another index are as good as doorbells."""
    a, b = Player(contexts[0], inline=INLINE), Player(contexts[1])
    a.connect(b)
    b.connect(a)
    page = a.ctx.uar if own_page else a.ctx.uar + 1
    a.qp._ring = through_blueflame(a, page)  # type: ignore[assignment]
    for round_ in range(50):
        data = bytes((round_ + at) & 0xFF for at in range(1 + 4 * round_ % INLINE))
        a.view[: len(data)] = data
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, len(data))], b, flags=FLAGS)
        a.expect(OK)
        assert bytes(b.view[: len(data)]) == data
