"""Prints the log of a fixed script, a line an event, so that two revisions can be compared.

    python -m tests.campaigns.fixed_script > one        # in a checkout of each
    diff one other

Two ConnectX-3 in this process, with no thread and a clock that the script moves, so that one
revision always prints the same. Times are left out, and with `--no-values` the values of what a
device tells, whose kind stays: for revisions that tell the same in another form.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.writer import EventLog, FileLog
from bluebridge.device.fabric.capture import CapturedFabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.mlx4.commands import Opcode
from tests.models.logged_host import LoggedHost
from tests.models.rdma_node import Node, Pair, SendOpcode, TestQp, data, inline, remote

_BYTES: Final = 4096
_LONG: Final = 1 << 18
"""Less than what moves in parts, whose size depends on the time that they take."""


class LoggedPair(Pair):
    """Two guests with a connected queue pair each, and all that their devices do in `log`."""

    def __init__(self, log: EventLog) -> None:
        self.fabric = LocalFabric()
        self.a, self.b = (self._node(log, number) for number in (1, 2))
        self.qa, self.qb = self.a.create_qp(0x800240), self.b.create_qp(0x250)

    def _node(self, log: EventLog, number: int) -> Node:
        name = "ab"[number - 1]
        host = LoggedHost(name, log, "connectx3", 32 << 20)
        return Node(name, number, CapturedFabric(self.fabric, log, name), host=host)


def script(pair: LoggedPair) -> None:
    """Move data in all ways, then break what can be broken, and take all down."""
    pair.connect(rtr={"min_rnr_timer": 12})
    (source, lkey), (target, rkey) = pair.a.memory(_LONG), pair.b.memory(_LONG)
    _move(pair, (lkey, source), (rkey, target))
    _break(pair, (lkey, source), (rkey, target))
    for node, qp in ((pair.a, pair.qa), (pair.b, pair.qb)):
        node.query(Opcode.QUERY_QP, qp.qpn)
        node.command(Opcode.CLOSE_PORT, modifier=1)
        node.command(Opcode.CLOSE_HCA)


def _move(pair: LoggedPair, local: tuple[int, int], far: tuple[int, int]) -> None:
    """SEND, WRITE, READ and atomics, short and long, several at once and one with an interrupt."""
    (lkey, source), (rkey, target) = local, far
    pair.a.host.poke(source, bytes(range(256)))
    pair.b.arm_cq(pair.qb.cq, 1)
    for _ in range(3):
        pair.post_recv([(rkey, target, _BYTES)])
    pair.post_send(SendOpcode.SEND, data((lkey, source, 64)))
    pair.post_send(SendOpcode.SEND_IMM, inline(b"at once"), immediate=7, solicited=True)
    there = remote(target, rkey)
    for number in range(4):
        pair.post_send(
            SendOpcode.RDMA_WRITE, there + data((lkey, source, 100 + number)), ring=number == 3
        )
    pair.post_send(SendOpcode.RDMA_WRITE_IMM, there + data((lkey, source, 8)), immediate=9)
    pair.post_send(SendOpcode.RDMA_READ, there + data((lkey, source, _BYTES)))
    pair.post_send(SendOpcode.RDMA_READ, there + data((lkey, source, 8)), fence=True)
    for opcode in (SendOpcode.ATOMIC_CS, SendOpcode.ATOMIC_FA):
        operands = (5).to_bytes(8, "big") + bytes(8)
        pair.post_send(opcode, there + operands + data((lkey, source, 8)))
    pair.post_send(SendOpcode.RDMA_WRITE, there + data((lkey, source, _LONG)), signalled=False)
    pair.post_send(SendOpcode.RDMA_READ, there + data((lkey, source, _LONG)))
    pair.run(0.05)
    pair.sent()
    pair.b.completions(pair.qb)


def _break(pair: LoggedPair, local: tuple[int, int], far: tuple[int, int]) -> None:
    """A receiver that is not ready, a wrong key at either end, a peer without a link."""
    (lkey, source), (rkey, target) = local, far
    pair.post_send(SendOpcode.SEND, inline(b"too early"))
    pair.run(0.01)
    pair.post_recv([(rkey, target, _BYTES)])
    pair.run(0.01)
    failures = (
        remote(target, rkey ^ 0x55) + data((lkey, source, 8)),
        remote(target, rkey) + data((lkey ^ 0x55, source, 8)),
    )
    for number, segments in enumerate(failures):
        qa, qb = _another(pair, number)
        pair.a.post_send(qa, SendOpcode.RDMA_WRITE, segments)
        pair.a.post_send(qa, SendOpcode.RDMA_WRITE, segments)  # flushed
        pair.b.post_recv(qb, [(rkey, target, 8)])
        pair.run(0.01)
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    pair.post_send(SendOpcode.SEND, inline(b"to nobody"))
    pair.run(0.5)
    pair.sent()
    pair.b.completions(pair.qb)


def _another(pair: LoggedPair, number: int) -> tuple[TestQp, TestQp]:
    qa, qb = pair.a.create_qp(0x300 + number), pair.b.create_qp(0x400 + number)
    pair.join(qa, qb)
    return qa, qb


def played(folder: Path, *, values: bool = True) -> list[str]:
    """Play the script with its log in `folder`; returns the log as lines."""
    log = FileLog(folder)
    script(LoggedPair(log))
    log.close()
    return list(_lines(folder, values))


def _lines(folder: Path, values: bool) -> Iterator[str]:
    """Return the events of a log as lines without times."""
    for event in LogReader(folder):
        head = f"{event.device} {event.kind.name}"
        if event.fact is not None:
            told = {name: value for name, value in event.values.items() if name != "us"}
            yield f"{head} {event.fact.name} {told}" if values else head
        else:
            what = f"{event.what.name} {event.obj:#x}"
            yield f"{head} {event.bar} {what} {event.address:#x}+{event.length} {event.data.hex()}"


def main() -> None:
    """Play the script and print the log."""
    with tempfile.TemporaryDirectory() as folder:
        print(*played(Path(folder), values="--no-values" not in sys.argv), sep="\n")


if __name__ == "__main__":
    main()
