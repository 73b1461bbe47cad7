"""The state changes of a connection's queue pair, as rdma_cm makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bluebridge.guest.protocols.cm.transport import Peer

MTU_1024 = 3
"""The path MTU code of RoCE over an Ethernet MTU of 1500."""
ACK_TIMEOUT_CODE = 18
"""The ACK timeout code: 4.096 us * 2^18 = 1.07 s.

The kernel's 16 or 17 is short for a peer emulated by software.
"""
HOP_LIMIT = 64
MIN_RNR_TIMER = 12
"""The code of the shortest RNR delay, 0.64 ms, as user programs choose.

core/cm.c sets 0, which means 655 ms.
"""


@dataclass(frozen=True, slots=True)
class Rtr:
    """Attributes for INIT to RTR: peer's QPN, first PSN, peer's address, GID index, MTU code."""

    dest_qpn: int
    rq_psn: int
    peer: Peer
    gid_index: int
    path_mtu: int
    responder_resources: int


@dataclass(frozen=True, slots=True)
class Rts:
    """RTR to RTS attributes: peer's PSN, ACK timeout code, retries, reads and atomics in flight."""

    sq_psn: int
    ack_timeout: int
    retry_count: int
    rnr_retry_count: int
    initiator_depth: int


class PathQp(Protocol):
    """A reliable connected queue pair that a `CmId` can drive; steps raise `VerbsError`."""

    @property
    def qpn(self) -> int:
        """The number of the queue pair."""

    def to_init(self) -> None:
        """Go from RESET to INIT with remote read, write and atomics allowed."""

    def to_rtr(self, rtr: Rtr) -> None:
        """Go from INIT to RTR."""

    def to_rts(self, rts: Rts) -> None:
        """Go from RTR to RTS."""

    def to_error(self) -> None:
        """Go from any state to ERROR, which flushes everything that is posted."""
