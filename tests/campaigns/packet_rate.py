"""Measures packets per second of processor time: `python -m tests.campaigns.packet_rate`.

Two adapters of the unit tests send each other RDMA WRITEs of 1 MiB in packets, path MTU 4096, with
ICRC, through the fabric of one process. One thread does the work of both, without a log. Of nine
rounds the best and the median are printed.
"""

from __future__ import annotations

import time
from typing import Any

from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.rdma.connected import packet_wire
from tests.models import fake_host
from tests.models.packet_pair import PacketPair
from tests.models.rdma_node import TestQp, data, remote

_SIZE, _MTU, _CODE = 1 << 20, 4096, 5
_WRITES, _ROUNDS = 100, 9


class Pair(PacketPair):
    """A pair with the longest path MTU, whose packets nobody watches."""

    def _connect(self, qa: TestQp, qb: TestQp, **more: int) -> None:
        super()._connect(qa, qb, mtu=_CODE, **more)


def write(pair: Pair, segments: bytes) -> None:
    """Carry out one WRITE."""
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, segments)
    while not (found := pair.a.statuses(pair.qa)):
        pair.a.host.run()
        pair.b.host.run()
    assert found == [0]


def main() -> None:
    """Print the figure."""
    host: Any = fake_host.FakeHost
    host.note_dma = host.note_transfers = lambda *values, **more: None
    pair = Pair()
    pair.watched.watch = lambda source, message: True
    (source, lkey), (target, rkey) = pair.a.memory(_SIZE), pair.b.memory(_SIZE)
    segments = remote(target, rkey) + data((lkey, source, _SIZE))
    write(pair, segments)
    rates = []
    for _ in range(_ROUNDS):
        begin = time.process_time()
        for _ in range(_WRITES):
            write(pair, segments)
        rates.append(_WRITES * _SIZE // _MTU / (time.process_time() - begin))
    way = "interpreted" if packet_wire.__file__.endswith(".py") else "compiled"
    rates.sort()
    print(f"{way}: {rates[-1]:,.0f} packets/s at best, median {rates[_ROUNDS // 2]:,.0f}")


if __name__ == "__main__":
    main()
