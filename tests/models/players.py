"""The two ends of a connection for traffic tests on HCAs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from bluebridge.guest.drivers.hca.context import Context, PortContext, open_hca
from bluebridge.guest.drivers.hca.queues.qp import Qp
from bluebridge.guest.drivers.hca.queues.work_queues import Srq
from bluebridge.guest.verbs import QpType, SendWr, WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.verbs import player
from tests.models.verbs.player import ALL, PATTERN, PSN, SIZE, TIMEOUT, fill, settle, untouched

__all__ = [
    "ALL",
    "ATOMICS",
    "ONE_SIDED",
    "PATTERN",
    "PSN",
    "QKEY",
    "SIZE",
    "TIMEOUT",
    "Player",
    "connected",
    "driven",
    "fill",
    "request_for",
    "settle",
    "untouched",
]

QKEY = 0x1234567
ATOMICS = (
    WrOpcode.ATOMIC_CMP_AND_SWP,
    WrOpcode.ATOMIC_FETCH_AND_ADD,
    WrOpcode.MASKED_ATOMIC_CMP_AND_SWP,
    WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD,
)
ONE_SIDED = (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, *ATOMICS)


class Player(player.Player):
    """A player on an HCA: `ctx` has what is beyond the interface of verbs."""

    def __init__(self, ctx: PortContext, kind: QpType = QpType.RC, **how: Any) -> None:
        super().__init__(ctx, kind, **how)
        self.ctx = ctx

    @property
    def hca_qp(self) -> Qp:
        """The queue pair as the HCA's driver has it."""
        assert isinstance(self.qp, Qp)
        return self.qp

    @property
    def hca_srq(self) -> Srq:
        """The shared receive queue as the HCA's driver has it."""
        assert isinstance(self.srq, Srq)
        return self.srq

    def start_datagrams(self) -> None:
        """RESET to RTS of a datagram queue pair."""
        self.qp.modify_init(qkey=QKEY)
        self.qp.modify_rtr()
        self.qp.modify_rts()


@contextmanager
def driven(folder: Path, names: Iterable[str] = "ab", **how: Any) -> Iterator[list[Context]]:
    """The HCAs with these sockets, each brought up by the guest driver on a bus of its own."""
    with ExitStack() as stack:
        buses = [stack.enter_context(closing(SocketBus(folder / name))) for name in names]
        yield [stack.enter_context(open_hca(bus, **how)) for bus in buses]


def connected(
    a: PortContext, b: PortContext, kind: QpType = QpType.RC, *, signal_all: bool = False
) -> tuple[Player, Player]:
    """Two players, connected; b may be a: loopback."""
    first, second = (Player(ctx, kind, signal_all=signal_all) for ctx in (a, b))
    first.connect(second)
    second.connect(first)
    return first, second


def request_for(opcode: WrOpcode, a: Player, b: Player) -> SendWr:
    """A correct one-sided request of 8 bytes."""
    return SendWr(
        1, opcode, [a.sge(256, 8)], remote_addr=b.address, rkey=b.mr.rkey,
        compare_add=1, swap=2,
    )  # fmt: skip
