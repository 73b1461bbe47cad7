"""The actions that an engine asks of its surroundings, and the memory that it is given.

A connection is named by a number: a client's engine chooses it in `Open`, a server's surroundings
choose it when they tell of a request. It is not used again within the life of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol


class Direction(IntEnum):
    """Which way the data of a request goes: READ from the server, WRITE to it."""

    READ = 0
    WRITE = 1


class AddressPair(NamedTuple):
    """Source and destination of a path, as addresses in text (10.9.0.1); source "" means any."""

    source: str
    destination: str


class Limits(NamedTuple):
    """Sizes of a queue pair: work requests it can hold, pieces of memory of one send."""

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
    """SEND of `data`, which is copied; with an immediate unless that is None."""

    data: bytes
    immediate: int | None = None
    token: int = 0


@dataclass(slots=True)
class SendInvalidate:
    """SEND with invalidate, without data: the peer's registration of `rkey` ends."""

    rkey: int
    token: int = 0


@dataclass(slots=True)
class Register:
    """REG_MR: region `region` (an index) of the path gets `key`, for its first `length` bytes."""

    path: int
    region: int
    key: int
    length: int
    remote_write: bool
    token: int = 0


@dataclass(slots=True)
class Invalidate:
    """LOCAL_INV: the registration of `key` ends."""

    key: int
    token: int = 0


WorkRequest = (
    WriteRequest | WriteChunk | WriteImmediate | Send | SendInvalidate | Register | Invalidate
)


# Actions on connections.


@dataclass(slots=True)
class Open:
    """Client: resolve the destination, make a queue pair, connect with `private_data`.

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
    """Server: make a queue pair for a connection that was asked for, so receives can be posted.

    A failure is answered by `connect_failed`; `Accept` then does nothing.
    """

    connection: int
    limits: Limits


@dataclass(slots=True)
class Accept:
    """Server: accept; answered by `established` or `connect_failed`."""

    connection: int
    private_data: bytes


@dataclass(slots=True)
class Reject:
    """Server: refuse. The connection does not exist any more."""

    connection: int
    private_data: bytes


@dataclass(slots=True)
class PostReceive:
    """`count` receives of `length` bytes each; `length` 0 takes immediates only."""

    connection: int
    count: int
    length: int = 0


@dataclass(slots=True)
class PostSend:
    """A chain of work requests, posted together."""

    connection: int
    requests: Sequence[WorkRequest]


@dataclass(slots=True)
class Disconnect:
    """Tell the peer, put the queue pair into error and take what completes.

    Answered by `drained` once nothing of the connection uses memory any more. It may be asked for
    at any time after `Open` or `Prepare`, `established` or not. `disconnected` may still follow.
    """

    connection: int


@dataclass(slots=True)
class Destroy:
    """Give queue pair and identifier back; comes after `drained`, no event follows."""

    connection: int


# What an engine tells the layer above.


@dataclass(slots=True)
class Finished:
    """Client: the request in `slot` is over; `errno` is 0 or positive, data of a read is there."""

    slot: int
    errno: int


@dataclass(slots=True)
class LinkChanged:
    """Client: the session has a connected path again, or the last one is gone."""

    up: bool


@dataclass(slots=True)
class Opened:
    """Client: `open` or `add_path` is over; `errno` 0 or positive. `path` is None for `open`."""

    path: int | None
    errno: int


@dataclass(slots=True)
class Closed:
    """The engine has nothing any more: after `close`."""


@dataclass(slots=True)
class PathChanged:
    """A path entered another state, for logs; `reason` may be empty."""

    path: int
    state: str
    reason: str


@dataclass(slots=True)
class SessionUp:
    """Server: the first path of a session is connected; `name` as the client gave it."""

    session: int
    name: str


@dataclass(slots=True)
class SessionDown:
    """Server: the last path of a session is gone; `respond` to its operations does nothing."""

    session: int


@dataclass(slots=True)
class Serve:
    """Server: carry out a request, then call `respond(operation, errno)`.

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


class ClientMemory(Protocol):
    """Slots: memory for the data of each request, and for its header."""

    def create_slots(self, count: int, data_size: int, header_size: int) -> None:
        """Once for a session; raises `MemoryError`."""

    def free_slots(self) -> None:
        """Give them back; a second call does nothing."""

    def map_slots(self, path: int, connection: int) -> list[Region]:
        """A fast registration over each slot's data, on the device of `connection`.

        Raises `MemoryError`.
        """

    def unmap_slots(self, path: int) -> None:
        """Give them back; nothing uses them any more."""


class ServerMemory(Protocol):
    """Chunks: memory that clients write to, shared by the paths of a session."""

    def create_chunks(self, session: int, count: int, size: int) -> None:
        """Make the memory of a server's chunks. Raises `MemoryError`."""

    def free_chunks(self, session: int) -> None:
        """Give the chunks back."""

    def read(self, session: int, chunk: int, offset: int, length: int) -> bytes:
        """Copy bytes out of a chunk; the range is inside of it."""

    def map_chunks(self, path: int, connection: int, session: int, per_region: int) -> list[Region]:
        """Fast registrations of `per_region` chunks each, on the device of `connection`.

        Chunks of one region are contiguous. Raises `MemoryError`.
        """

    def unmap_chunks(self, path: int) -> None:
        """Give them back; nothing uses them any more."""
