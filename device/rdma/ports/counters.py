"""Counters of a port: of errors, of Ethernet frames, and of what queue pairs sent and received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from operator import add
from typing import Final

from bluebridge.device.layout.net.ethernet import BROADCAST, VLAN_TAG_TYPES
from bluebridge.device.layout.net.roce import ATOMICS, Op, Syndrome
from bluebridge.device.rdma.vocabulary import CompletionStatus

_KIND_OF_SYNDROME: Final = 0x60
_TYPE_OFFSET: Final = 12
_TAG_OFFSET: Final = 14
_PRIORITY_SHIFT: Final = 5
NO_VLAN_CLASS: Final = 8
STAT_CLASSES: Final = 9
"""Number of classes that frames are counted in: priorities, and frames without a VLAN tag."""


class Trouble(Enum):
    """A thing that went wrong with a work request or a packet; faces have counters for them.

    Those of sends and receives are completions in error.
    """

    SEND_LENGTH = auto()
    SEND_OPERATION = auto()
    SEND_PROTECTION = auto()
    SEND_FLUSHED = auto()
    SEND_BINDING = auto()
    SEND_BAD_ANSWER = auto()
    SEND_INVALID_REQUEST = auto()
    SEND_REMOTE_ACCESS = auto()
    SEND_REMOTE_OPERATION = auto()
    SEND_RETRIES_USED_UP = auto()
    SEND_RNR_RETRIES_USED_UP = auto()
    SEQUENCE_NAK_CAME = auto()
    RNR_NAK_CAME = auto()
    TIMED_OUT = auto()
    RECEIVE_LENGTH = auto()
    RECEIVE_OPERATION = auto()
    RECEIVE_PROTECTION = auto()
    RECEIVE_FLUSHED = auto()
    SEQUENCE_NAK_SENT = auto()
    INVALID_REQUEST_NAK_SENT = auto()
    REMOTE_ACCESS_NAK_SENT = auto()
    RNR_NAK_SENT = auto()
    DUPLICATE_CAME = auto()
    DATAGRAM_WITHOUT_RECEIVE = auto()


_SENDS: Final = {
    int(CompletionStatus.LOCAL_LENGTH_ERR): Trouble.SEND_LENGTH,
    int(CompletionStatus.LOCAL_QP_OP_ERR): Trouble.SEND_OPERATION,
    int(CompletionStatus.LOCAL_PROT_ERR): Trouble.SEND_PROTECTION,
    int(CompletionStatus.WR_FLUSH_ERR): Trouble.SEND_FLUSHED,
    int(CompletionStatus.MW_BIND_ERR): Trouble.SEND_BINDING,
    int(CompletionStatus.BAD_RESP_ERR): Trouble.SEND_BAD_ANSWER,
    int(CompletionStatus.REMOTE_INVAL_REQ_ERR): Trouble.SEND_INVALID_REQUEST,
    int(CompletionStatus.REMOTE_ACCESS_ERR): Trouble.SEND_REMOTE_ACCESS,
    int(CompletionStatus.REMOTE_OP_ERR): Trouble.SEND_REMOTE_OPERATION,
    int(CompletionStatus.TRANSPORT_RETRY_EXC_ERR): Trouble.SEND_RETRIES_USED_UP,
    int(CompletionStatus.RNR_RETRY_EXC_ERR): Trouble.SEND_RNR_RETRIES_USED_UP,
}
_RECEIVES: Final = {
    int(CompletionStatus.LOCAL_LENGTH_ERR): Trouble.RECEIVE_LENGTH,
    int(CompletionStatus.LOCAL_QP_OP_ERR): Trouble.RECEIVE_OPERATION,
    int(CompletionStatus.LOCAL_PROT_ERR): Trouble.RECEIVE_PROTECTION,
    int(CompletionStatus.WR_FLUSH_ERR): Trouble.RECEIVE_FLUSHED,
}
_REFUSALS: Final = {
    int(Syndrome.NAK_PSN): Trouble.SEQUENCE_NAK_SENT,
    int(Syndrome.NAK_INVALID_REQUEST): Trouble.INVALID_REQUEST_NAK_SENT,
    int(Syndrome.NAK_REMOTE_ACCESS): Trouble.REMOTE_ACCESS_NAK_SENT,
}


class Diagnostics:
    """Counts of what went wrong with the queue pairs that name this object, since a reset.

    Those at zero are left out. What is counted here is counted in `whole`, too, if there is one.
    `writes`, `reads` and `atomics` are the requests of peers that were carried out.
    """

    def __init__(self, whole: Diagnostics | None = None) -> None:
        self.counts: dict[Trouble, int] = {}
        self._whole = whole
        self.writes = self.reads = self.atomics = 0

    def clear(self) -> None:
        """Begin anew at zero; the counts of `whole` stay."""
        self.counts.clear()
        self.writes = self.reads = self.atomics = 0

    def carried_out(self, op: Op) -> None:
        """Count a request that a peer made of this side's memory."""
        if op is Op.READ:
            self.reads += 1
        elif op in ATOMICS:
            self.atomics += 1
        else:
            self.writes += 1

    def add(self, trouble: Trouble, count: int = 1) -> None:
        """Count one or more of this kind."""
        self.counts[trouble] = self.counts.get(trouble, 0) + count
        if self._whole is not None:
            self._whole.add(trouble, count)

    def send_failed(self, status: CompletionStatus) -> None:
        """Count a send work request that completed in error or flushed."""
        self.add(_SENDS.get(status, Trouble.SEND_PROTECTION))

    def receive_failed(self, status: CompletionStatus) -> None:
        """Count a receive that completed in error or flushed."""
        self.add(_RECEIVES.get(status, Trouble.RECEIVE_PROTECTION))

    def refused(self, syndrome: int) -> None:
        """Count a NAK or RNR NAK that was sent."""
        trouble = _REFUSALS.get(syndrome)
        if trouble is None and syndrome & _KIND_OF_SYNDROME == Syndrome.RNR_NAK:
            trouble = Trouble.RNR_NAK_SENT
        if trouble is not None:
            self.add(trouble)

    def was_refused(self, syndrome: int) -> None:
        """Count a sequence NAK or RNR NAK that came; others end in a completion."""
        if syndrome == Syndrome.NAK_PSN:
            self.add(Trouble.SEQUENCE_NAK_CAME)
        elif syndrome & _KIND_OF_SYNDROME == Syndrome.RNR_NAK:
            self.add(Trouble.RNR_NAK_CAME)


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
        self.too_long = 0
        """Frames that are longer than the port takes, where an adapter drops those."""

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

    def plus(self, other: Direction) -> Direction:
        """Return the sums of both."""
        both = Direction()
        for name in ("frames", "octets", "unicast", "multicast", "broadcast"):
            setattr(both, name, [*map(add, getattr(self, name), getattr(other, name))])
        both.dropped = self.dropped + other.dropped
        both.too_long = self.too_long + other.too_long
        return both


class FrameCounters:
    """The counters of both directions; `unwanted` are frames that the filters rejected."""

    def __init__(self) -> None:
        self.rx = Direction()
        self.tx = Direction()
        self.unwanted = Direction()

    @property
    def filtered(self) -> int:
        """Frames that the filters rejected."""
        return sum(self.unwanted.frames)

    def arrived(self) -> Direction:
        """Return the counts of all frames from the wire, those among them that filters rejected."""
        return self.rx.plus(self.unwanted)

    def receive(self, frames: Sequence[bytes], *, wanted: bool) -> None:
        """Count frames from the wire; those not `wanted` count as filtered."""
        (self.rx if wanted else self.unwanted).count(frames)


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
