"""Interfaces of engines to a face: queues of work requests in guest memory, and completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.layout.net.roce import Op
from bluebridge.device.rdma.ports.counters import Diagnostics
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

NO_TAG, CUSTOMER_TAG, SERVICE_TAG = range(3)


class Received:
    """One or more frames of a flow, as a face needs them for the words of their completions.

    `frame` is the first one as it came, with its `headers`; `good` says that the sending adapter
    computed the checksums itself. `tag_kind` (`NO_TAG`, `CUSTOMER_TAG`, `SERVICE_TAG`) and `tag`
    are those of the outermost VLAN tag, which was `stripped` or stays. `hash`, `hash_type` and
    `mark` are those of the steering's `Delivery`, `arrived` is the monotonic time in ns. A face
    keeps in `words` its findings and a checksum, once it has made them.
    """

    __slots__ = (
        "arrived", "frame", "good", "hash", "hash_type", "headers", "mark", "stripped", "tag",
        "tag_kind", "words",
    )  # fmt: skip

    def __init__(
        self,
        frame: bytes,
        headers: FrameHeaders,
        good: bool,
        tag_kind: int,
        tag: int,
        stripped: bool,
        hashed: int,
        hash_type: int,
        mark: int,
        arrived: int,
    ) -> None:
        self.frame = frame
        self.headers = headers
        self.good = good
        self.tag_kind = tag_kind
        self.tag = tag
        self.stripped = stripped
        self.hash = hashed
        self.hash_type = hash_type
        self.mark = mark
        self.arrived = arrived
        self.words: tuple[int, int] | None = None


class SendQueue(ABC):
    """The send queue of a queue pair, which hands its entries to the engine one by one."""

    @abstractmethod
    def run(self) -> None:
        """Carry out posted entries up to a budget; the rest follows soon."""

    @abstractmethod
    def go_on(self) -> None:
        """Carry out or flush posted entries, if a doorbell ever rang for this queue."""


class ReceiveQueue(ABC):
    """A queue that receives are taken from."""

    @abstractmethod
    def waiting(self) -> bool:
        """Return True if a receive is posted."""

    @abstractmethod
    def take(self) -> ReceiveWork | None:
        """Consume and return the next receive; None when there is none. Raises `DmaError`."""

    @abstractmethod
    def take_many(self, count: int) -> list[ReceiveWork]:
        """Consume and return the next receives, at most `count`. Raises `DmaError`."""


class OwnReceiveQueue(ReceiveQueue):
    """The receive queue of one queue pair."""

    @abstractmethod
    def drop(self) -> int:
        """Consume the next receive without reading it, to flush it; returns its index."""


class SharedReceiveQueue(ReceiveQueue):
    """A receive queue of several queue pairs; XRC receives complete in the CQ number `cqn`."""

    srqn: int
    pd: int
    xrcd: int
    cqn: int


class SharedReceiveQueues(ABC):
    """The shared receive queues of one adapter."""

    @abstractmethod
    def get(self, srqn: int) -> SharedReceiveQueue | None:
        """Return the shared receive queue `srqn`; None unless hardware owns it."""


class Completions(ABC):
    """The reporter of completions and asynchronous events of one queue pair.

    `lost` is called, later, when a completion queue takes no more entries; `diagnostics` are the
    counters of the queue pair's port. `left` is the monotonic time in ns at which a send that
    awaits no answer left the port: before its peer can have it. Without it a send is over now.
    `inspects`: completions of datagrams tell of IP packets in them.
    """

    inspects = False
    lost: Callable[[], None]
    diagnostics: Diagnostics

    # -- sends --------------------------------------------------------------------------------

    @abstractmethod
    def complete_send(self, index: int, operation: int, length: int, left: int = 0) -> None:
        """Complete a send work request successfully; `index` is its free-running number."""

    @abstractmethod
    def fail_send(self, index: int, status: CompletionStatus) -> None:
        """Complete a send work request in error or as flushed, even one that is not signalled."""

    @abstractmethod
    def collect_send(self, index: int, operation: int, length: int) -> None:
        """Note a successful send work request, which `post_collected` will complete."""

    @abstractmethod
    def post_collected(self, left: int = 0) -> None:
        """Complete the sends that were collected, with one event for all of them."""

    @abstractmethod
    def forget_collected(self) -> None:
        """Forget the sends that were collected, without completing them."""

    # -- receives -----------------------------------------------------------------------------

    @abstractmethod
    def complete_receive(
        self,
        index: int,
        op: Op,
        length: int,
        source: int,
        immediate: int,
        solicited: bool,
        cqn: int = -1,
    ) -> None:
        """Complete a receive of a connected queue pair; `immediate` may be an invalidated rkey.

        `source` is the peer's number, or that of the XRC SRQ whose completion queue is `cqn`.
        """

    @abstractmethod
    def complete_datagram(
        self,
        index: int,
        message: Datagram,
        link: LinkLayer,
        path_bits: int,
        pkey_index: int,
        found: tuple[int, int] | None,
    ) -> None:
        """Complete the receive of a datagram that came by a port with this `link`.

        `path_bits` are those of the LID it was sent to, `pkey_index` is the place of its P_Key in
        the table, and `found` are the findings on its IPoIB packet and its checksum
        (`frames.receiving`), None where software does not want them.
        """

    @abstractmethod
    def complete_frames(
        self, receives: Sequence[tuple[ReceiveWork, bytes]], received: Sequence[Received]
    ) -> None:
        """Complete the receives of Ethernet frames, in order, with at most one event for all."""

    @abstractmethod
    def fail_receive(
        self, index: int, status: CompletionStatus, cqn: int = -1, source: int = 0
    ) -> None:
        """Complete a receive in error or as flushed; `cqn` is that of an XRC SRQ `source`."""

    # -- both ---------------------------------------------------------------------------------

    @abstractmethod
    def event(self, event: AsyncEvent) -> None:
        """Report an asynchronous event about the queue pair."""
