"""Payloads at which the driver changes its way: lines of BlueFlame, its end, the end of inline.

lib/qp.c: mlx4_post_send. An entry of an RDMA WRITE begins with 16 bytes of control and 16 of remote
address; inline data follow in pieces, each with a head of 4 bytes, none across a line of 64. An
entry goes through BlueFlame if it is not larger than half a register, in whole lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.layout.mlx4.uar import BLUEFLAME_LINE
from bluebridge.host_tools.sweep.request import SweepRequest

_CONTROL = 16
_REMOTE = 16
_HEAD = 4
_UNIT = 16


@dataclass(frozen=True, slots=True)
class Threshold:
    """A size at which the driver changes its way.

    `payload` is the largest one before the step, in bytes.
    """

    payload: int
    text: str


def entry_bytes(payload: int) -> int:
    """Return the length in bytes of an inline RDMA WRITE's entry, a multiple of 16."""
    place = _CONTROL + _REMOTE
    while payload > 0:
        piece = min(payload, BLUEFLAME_LINE - place % BLUEFLAME_LINE - _HEAD)
        place += _HEAD + piece
        payload -= piece
    return -(-place // _UNIT) * _UNIT


def lines(payload: int) -> int:
    """Return the number of lines of 64 bytes that the entry of an inline RDMA WRITE takes."""
    return -(-entry_bytes(payload) // BLUEFLAME_LINE)


def blueflame_end(buffer: int, inline: int) -> int:
    """Return the largest payload that goes through BlueFlame; 0 if none does."""
    return max((each for each in range(inline + 1) if entry_bytes(each) <= buffer), default=0)


def thresholds(request: SweepRequest) -> list[Threshold]:
    """Return all steps within the sweep's range, in ascending order."""
    end = blueflame_end(request.buffer, request.inline)
    found = [
        Threshold(each, f"{lines(each) * BLUEFLAME_LINE} B")
        for each in range(1, end)
        if lines(each) != lines(each + 1)
    ]
    if end < request.inline:
        found += [Threshold(end, "BlueFlame ends"), Threshold(request.inline, "inline ends")]
    else:
        found.append(Threshold(end, "BlueFlame and inline end"))
    return [each for each in found if request.minimum <= each.payload < request.maximum]
