"""Counts the calls and files between a doorbell and the peer's completion.

`python -m tests.campaigns.doorbell` prints both for a SEND and an RDMA WRITE of 8 bytes between two
adapters of the unit tests, the second of its kind; `-v` prints the calls in order. Functions of the
device count; those of the tests' host, which stands for the server's, do not. A WRITE has no
completion at its peer: its own one ends it. The count begins with the write to the register.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

# As it runs interpreted: compiled functions are no calls that Python tells of.
os.environ["BLUEBRIDGE_PURE"] = "1"

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4 import uar
from tests.models.hca_driver import UAR_PAGE
from tests.models.rdma_node import Pair, SendOpcode, data, remote

_DEVICE = "/device/"
_BYTES = 8


def calls(opcode: SendOpcode, whole: bool = False) -> list[tuple[str, str]]:
    """File and name of each function that is called, up to the completion or to the end."""
    pair = Pair().connect()
    (source, lkey), (target, rkey) = pair.a.memory(4096), pair.b.memory(4096)
    segments, waiter = data((lkey, source, _BYTES)), pair.qb
    if opcode == SendOpcode.RDMA_WRITE:
        segments, waiter = remote(target, rkey) + segments, pair.qa
    seen: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and _DEVICE in code.co_filename and code.co_name[0] != "<":
            seen.append((code.co_filename.rsplit(_DEVICE, 1)[1], code.co_qualname))

    host = (pair.a if waiter is pair.qa else pair.b).host
    note_dma = host.note_dma
    done: list[int] = []

    def completes(*values: Any) -> None:
        if What.CQE in values:
            done.append(len(seen))
        note_dma(*values)

    place = UAR_PAGE * uar.PAGE_SIZE + uar.SEND_DOORBELL
    value = uar.send_doorbell(pair.qa.qpn).to_bytes(4, "big")
    host.note_dma = completes  # type: ignore[method-assign, assignment]
    for _ in range(2):
        pair.post_recv([(rkey, target, _BYTES)])
        pair.post_send(opcode, segments, ring=False)
        seen.clear()
        done.clear()
        sys.setprofile(note)
        pair.a.hca.bar_write(2, place, value)
        sys.setprofile(None)
    return seen if whole else seen[: done[0]]


def main() -> None:
    """Print calls and files of both."""
    for opcode in (SendOpcode.SEND, SendOpcode.RDMA_WRITE):
        found = calls(opcode)
        if "-v" in sys.argv:
            print(*(f"{name:45} {file}" for file, name in found), sep="\n")
        print(f"{opcode.name}: {len(found)} calls in {len({file for file, _ in found})} files")
        print(f"to the end: {len(calls(opcode, whole=True))} calls")


if __name__ == "__main__":
    main()
