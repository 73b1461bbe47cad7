"""Counters of a port: of errors, of Ethernet frames, and of what queue pairs sent and received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.net.ethernet import BROADCAST, VLAN_TAG_TYPES
from bluebridge.device.layout.net.roce import Syndrome
from bluebridge.device.rdma.vocabulary import CompletionStatus

_KIND_OF_SYNDROME: Final = 0x60
_SENDS: Final = {
    int(CompletionStatus.LOCAL_LENGTH_ERR): "sq_num_lle",
    int(CompletionStatus.LOCAL_QP_OP_ERR): "sq_num_lqpoe",
    int(CompletionStatus.LOCAL_PROT_ERR): "sq_num_lpe",
    int(CompletionStatus.WR_FLUSH_ERR): "sq_num_wrfe",
    int(CompletionStatus.MW_BIND_ERR): "sq_num_mwbe",
    int(CompletionStatus.BAD_RESP_ERR): "sq_num_bre",
    int(CompletionStatus.REMOTE_INVAL_REQ_ERR): "sq_num_rire",
    int(CompletionStatus.REMOTE_ACCESS_ERR): "sq_num_rae",
    int(CompletionStatus.REMOTE_OP_ERR): "sq_num_roe",
    int(CompletionStatus.TRANSPORT_RETRY_EXC_ERR): "sq_num_tree",
    int(CompletionStatus.RNR_RETRY_EXC_ERR): "sq_num_rree",
}
_RECEIVES: Final = {
    int(CompletionStatus.LOCAL_LENGTH_ERR): "rq_num_lle",
    int(CompletionStatus.LOCAL_QP_OP_ERR): "rq_num_lqpoe",
    int(CompletionStatus.LOCAL_PROT_ERR): "rq_num_lpe",
    int(CompletionStatus.WR_FLUSH_ERR): "rq_num_wrfe",
}
_REFUSALS: Final = {
    int(Syndrome.NAK_PSN): "rq_num_oos",
    int(Syndrome.NAK_INVALID_REQUEST): "rq_num_rire",
    int(Syndrome.NAK_REMOTE_ACCESS): "rq_num_rae",
}

_TYPE_OFFSET: Final = 12
_TAG_OFFSET: Final = 14
_PRIORITY_SHIFT: Final = 5
NO_VLAN_CLASS: Final = 8
STAT_CLASSES: Final = 9
"""Number of classes that frames are counted in: priorities, and frames without a VLAN tag."""


class Diagnostics:
    """Counts of what went wrong on a port's queue pairs since a reset; those at zero are left out.

    They are called as Linux's mlx4 driver calls them (`ib/main.c: diag_basic, diag_ext`), which
    has them in `/sys/class/infiniband/mlx4_0/ports/1/hw_counters`: `rq_` are of the side that is
    sent to, `sq_` of the side that sends.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, name: str, count: int = 1) -> None:
        """Count one or more of this name."""
        self.counts[name] = self.counts.get(name, 0) + count

    def send_failed(self, status: CompletionStatus) -> None:
        """Count a send work request that completed in error or flushed."""
        self.add(_SENDS.get(status, "sq_num_lpe"))

    def receive_failed(self, status: CompletionStatus) -> None:
        """Count a receive that completed in error or flushed."""
        self.add(_RECEIVES.get(status, "rq_num_lpe"))

    def refused(self, syndrome: int) -> None:
        """Count a NAK or RNR NAK that was sent."""
        name = _REFUSALS.get(syndrome)
        if name is None and syndrome & _KIND_OF_SYNDROME == Syndrome.RNR_NAK:
            name = "rq_num_rnr"
        if name is not None:
            self.add(name)

    def was_refused(self, syndrome: int) -> None:
        """Count a sequence NAK or RNR NAK that came; others end in a completion."""
        if syndrome == Syndrome.NAK_PSN:
            self.add("sq_num_oos")
        elif syndrome & _KIND_OF_SYNDROME == Syndrome.RNR_NAK:
            self.add("sq_num_rnr")


def priority_of(frame: bytes) -> int:
    """Return a frame's counting class: the priority of its outermost VLAN tag, or "no VLAN"."""
    if frame[_TYPE_OFFSET:_TAG_OFFSET] in VLAN_TAG_TYPES and len(frame) > _TAG_OFFSET:
        return frame[_TAG_OFFSET] >> _PRIORITY_SHIFT
    return NO_VLAN_CLASS


class Direction:
    """The counters of one direction of a port: a list per quantity, indexed by class."""

    def __init__(self) -> None:
        self.frames = [0] * STAT_CLASSES
        self.octets = [0] * STAT_CLASSES
        self.unicast = [0] * STAT_CLASSES
        self.multicast = [0] * STAT_CLASSES
        self.broadcast = [0] * STAT_CLASSES
        self.dropped = 0

    def count(self, frames: Sequence[bytes]) -> None:
        """Count frames to the same address with the same tag, given without FCS."""
        first = frames[0]
        number, where = len(frames), priority_of(first)
        self.frames[where] += number
        self.octets[where] += sum(map(len, frames))
        if not first[0] & 1:
            self.unicast[where] += number
        elif first[:6] == BROADCAST:
            self.broadcast[where] += number
        else:
            self.multicast[where] += number


class FrameCounters:
    """The counters of both directions; `filtered` counts frames that the filters rejected."""

    def __init__(self) -> None:
        self.rx = Direction()
        self.tx = Direction()
        self.filtered = 0

    def receive(self, frames: Sequence[bytes], *, wanted: bool) -> None:
        """Count frames from the wire; those not `wanted` count as filtered."""
        if wanted:
            self.rx.count(frames)
        else:
            self.filtered += len(frames)


@dataclass(slots=True)
class InterfaceCounter:
    """The packets sent and received by queue pairs of one counter, and their bytes."""

    rx_packets: int = 0
    rx_bytes: int = 0
    tx_packets: int = 0
    tx_bytes: int = 0

    def sent(self, packets: int, length: int) -> None:
        """Count a message that was sent."""
        self.tx_packets += packets
        self.tx_bytes += length

    def clear(self) -> None:
        """Set all values to zero."""
        self.rx_packets = self.rx_bytes = self.tx_packets = self.tx_bytes = 0

    def received(self, packets: int, length: int) -> None:
        """Count a message that was received."""
        self.rx_packets += packets
        self.rx_bytes += length
