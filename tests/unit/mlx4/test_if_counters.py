"""Interface counters: packets and bytes by the counter that a path names."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, DevFlag
from bluebridge.device.layout.mlx4.commands import MODIFIER_RESET_COUNTER, Opcode, Status
from bluebridge.device.layout.mlx4.ports import IF_COUNTER
from bluebridge.device.mlx4.ports.statistics import HEADERS
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS
from tests.models.rdma_node import Node, Pair, SendOpcode, data, inline, remote

MINE = 3


def counts(node: Node, index: int = MINE, flags: int = 0) -> tuple[int, ...]:
    """Packets received, bytes, packets sent, bytes; without headers."""
    raw = node.query(Opcode.QUERY_IF_STAT, index | flags)
    values = [IF_COUNTER.get(raw, name) for name in ("rx_frames", "rx_bytes")]
    values += [IF_COUNTER.get(raw, name) for name in ("tx_frames", "tx_bytes")]
    return (
        values[0], values[1] - values[0] * HEADERS, values[2], values[3] - values[2] * HEADERS,
    )  # fmt: skip


def connected() -> Pair:
    """A pair whose queue pairs count in counter 3 of their adapter; the path MTU is 1024."""
    pair = Pair()
    pair.a.to_rtr(pair.qa, pair.b, pair.qb.qpn, pri_counter_index=MINE)
    pair.b.to_rtr(pair.qb, pair.a, pair.qa.qpn, pri_counter_index=MINE)
    pair.a.to_rts(pair.qa)
    pair.b.to_rts(pair.qb)
    return pair


def test_the_driver_is_told_of_the_counters() -> None:
    caps = Pair().a.query(Opcode.QUERY_DEV_CAP)
    assert QUERY_DEV_CAP.get(caps, "flags_hi") << 32 & DevFlag.COUNTERS
    assert QUERY_DEV_CAP.get(caps, "max_counters") == INTERFACE_COUNTERS


def test_messages_count_as_the_packets_they_take() -> None:
    pair = connected()
    target, rkey = pair.b.memory(8192)
    source, lkey = pair.a.memory(8192)
    body = remote(target, rkey) + data((lkey, source, 3000))
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, body)
    assert counts(pair.a) == (1, 0, 3, 3000)
    assert counts(pair.b) == (3, 3000, 1, 0)
    pair.a.post_send(pair.qa, SendOpcode.RDMA_READ, body)
    assert counts(pair.a) == (4, 3000, 4, 3000)
    assert counts(pair.b) == (4, 3000, 4, 3000)
    assert counts(pair.a, 0) == (0, 0, 0, 0)


def test_reading_may_zero_and_other_indices_are_refused() -> None:
    pair = connected()
    target, rkey = pair.b.memory(4096)
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"x"))
    assert counts(pair.a, flags=MODIFIER_RESET_COUNTER) == (1, 0, 1, 1)
    assert counts(pair.a) == (0, 0, 0, 0)
    status, _ = pair.a.try_command(Opcode.QUERY_IF_STAT, modifier=INTERFACE_COUNTERS, out=True)
    assert status == Status.BAD_INDEX
