"""The actions that an engine asks of its surroundings, and the memory that it is given.

A connection is named by a number: a client's engine chooses it in `Open`, a server's surroundings
choose it when they tell of a request. It is not used again within the life of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

SLOTS: Final = 0
"""The number of a client's one session, by which its memory is asked for."""


class Direction(IntEnum):
    """The way that the data of a request goes: READ from the server, WRITE to it."""

    READ = 0
    WRITE = 1


class AddressPair(NamedTuple):
    """Source and destination of a path, as addresses in text (10.9.0.1); source "" means any."""

    source: str
    destination: str


class Limits(NamedTuple):
    """The sizes of a queue pair: its work requests, and the pieces of memory of one send."""

    send: int
    receive: int
    send_pieces: int


class Region(NamedTuple):
    """Memory for a fast registration: DMA address, bytes, and the key that it has at first."""

    address: int
    length: int
    key: int


# Work requests of `PostSend`. One with a `token` other than 0 is signaled, and when it is done the
# engine's `sent` is called with the token; the others complete without a word, unless they fail.


@dataclass(slots=True)
class WriteRequest:
    """RDMA WRITE with immediate from a slot: `length` bytes of its data, then `header`.

    `header` is copied into the slot's memory for headers, which belongs to one request at a time.
    """

    slot: int
    length: int
    header: bytes
    remote_address: int
    rkey: int
    immediate: int
    token: int = 0


@dataclass(slots=True)
class WriteChunk:
    """RDMA WRITE of the first `length` bytes of a chunk of the server's session."""

    session: int
    chunk: int
    length: int
    remote_address: int
    rkey: int
    token: int = 0


@dataclass(slots=True)
class WriteImmediate:
    """RDMA WRITE with immediate and without data."""

    immediate: int
    token: int = 0


@dataclass(slots=True)
class Send:
    """SEND of `data`, which is copied, with immediate unless `immediate` is None."""

    data: bytes
    immediate: int | None = None
    token: int = 0


@dataclass(slots=True)
class SendInvalidate:
    """SEND with invalidate, without data: ends the peer's registration of `rkey`."""

    rkey: int
    token: int = 0


@dataclass(slots=True)
class Register:
    """REG_MR: gives `key` to the path's region of index `region`, for its first `length` bytes."""

    path: int
    region: int
    key: int
    length: int
    remote_write: bool
    token: int = 0


@dataclass(slots=True)
class Invalidate:
    """LOCAL_INV: ends the registration of `key`."""

    key: int
    token: int = 0


WorkRequest = (
    WriteRequest | WriteChunk | WriteImmediate | Send | SendInvalidate | Register | Invalidate
)


# Actions on connections.


@dataclass(slots=True)
class Open:
    """The client resolves the destination, makes a queue pair and connects with `private_data`.

    Answered by one call of `established`, `rejected` or `connect_failed`. Whatever the answer, the
    connection is there until `Destroy`, and `Disconnect` comes in front of that.
    """

    connection: int
    addresses: AddressPair
    port: int
    private_data: bytes
    limits: Limits


@dataclass(slots=True)
class Prepare:
    """The server makes a queue pair for a requested connection, so that receives can be posted.

    A failure is answered by `connect_failed`; `Accept` then does nothing.
    """

    connection: int
    limits: Limits


@dataclass(slots=True)
class Accept:
    """The server accepts the connection; answered by `established` or `connect_failed`."""

    connection: int
    private_data: bytes


@dataclass(slots=True)
class Reject:
    """The server refuses the connection, which does not exist any more."""

    connection: int
    private_data: bytes


@dataclass(slots=True)
class PostReceive:
    """Posts `count` receives of `length` bytes each; with `length` 0 they take immediates only."""

    connection: int
    count: int
    length: int = 0


@dataclass(slots=True)
class PostSend:
    """Posts a chain of work requests together."""

    connection: int
    requests: Sequence[WorkRequest]


@dataclass(slots=True)
class Disconnect:
    """Tells the peer, puts the queue pair into error and takes what completes.

    Answered by `drained` once nothing of the connection uses memory any more. It may be asked for
    at any time after `Open` or `Prepare`, `established` or not. `disconnected` may still follow.
    """

    connection: int


@dataclass(slots=True)
class Destroy:
    """Frees queue pair and identifier after `drained`; no event follows."""

    connection: int


# What an engine tells the layer above.


@dataclass(slots=True)
class Finished:
    """The client's request in `slot` is over; `errno` is 0 or positive.

    After `errno` 0 the data of a read is in the slot.
    """

    slot: int
    errno: int


@dataclass(slots=True)
class LinkChanged:
    """The client's session has a connected path again, or has lost its last one."""

    up: bool


@dataclass(slots=True)
class Opened:
    """`open`, or the `add_path` of `path`, is over; `errno` is 0 or positive."""

    path: int | None
    errno: int


@dataclass(slots=True)
class Closed:
    """The engine is closed and holds nothing any more."""


@dataclass(slots=True)
class PathChanged:
    """A path entered another state; `reason`, for logs, may be empty."""

    path: int
    state: str
    reason: str


@dataclass(slots=True)
class SessionUp:
    """The first path of a server's session is connected; `name` is what the client calls it."""

    session: int
    name: str


@dataclass(slots=True)
class SessionDown:
    """A server's session lost its last path; `respond` to its operations does nothing."""

    session: int


@dataclass(slots=True)
class Serve:
    """The server's upper layer carries out a request, then calls `respond(operation, errno)`.

    WRITE: the first `length` bytes of the chunk are the data. READ: the first `length` bytes are
    to be filled. `user` is the user message, copied.
    """

    operation: int
    session: int
    chunk: int
    direction: Direction
    length: int
    user: bytes


Action = (
    Open
    | Prepare
    | Accept
    | Reject
    | PostReceive
    | PostSend
    | Disconnect
    | Destroy
    | Finished
    | LinkChanged
    | Opened
    | Closed
    | PathChanged
    | SessionUp
    | SessionDown
    | Serve
)


# Events that carry more than numbers.


class Received(NamedTuple):
    """A receive that completed: `data` is what a SEND brought (read once from memory).

    `write`: it was an RDMA WRITE with immediate. `invalidated`: the rkey that a SEND with
    invalidate ended, else None.
    """

    data: bytes
    immediate: int | None
    invalidated: int | None
    write: bool


class LinkInfo(NamedTuple):
    """The link of a connection: name of the HCA, its port from 1, the addresses in text."""

    hca: str
    port: int
    source: str
    destination: str


class Memory(Protocol):
    """The pieces of memory of each session, which its paths share: slots of a client, chunks.

    A client's slot has the data of a request, then its header.
    """

    def create(self, session: int, count: int, size: int, header_size: int = 0) -> None:
        """Make the pieces of a session, once; raises `MemoryError`."""

    def free(self, session: int) -> None:
        """Free the pieces of a session."""

    def read(self, session: int, piece: int, offset: int, length: int) -> bytes:
        """Return a copy of bytes of a piece; the range must lie inside it."""

    def map(self, path: int, connection: int, session: int, per_region: int) -> list[Region]:
        """Make fast registrations of `per_region` pieces each, on the device of `connection`.

        Pieces of one region are contiguous. Raises `MemoryError`.
        """

    def unmap(self, path: int) -> None:
        """Free the registrations of a path, which nothing uses any more."""
