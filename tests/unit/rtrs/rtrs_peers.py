"""One engine of RTRS without network: a test is its surroundings and its peer."""

from __future__ import annotations

import random
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from bluebridge.device.layout.net.rtrs import ImmediateType, immediate
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    AddressPair,
    Destroy,
    Direction,
    Disconnect,
    LinkInfo,
    Open,
    PostSend,
    Received,
    Reject,
    Send,
    WorkRequest,
    WriteImmediate,
)
from bluebridge.guest.protocols.rtrs.engine.client.session import ClientSession
from bluebridge.guest.protocols.rtrs.engine.interface import Engine
from bluebridge.guest.protocols.rtrs.engine.server.server import Server
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings, ServerSettings
from tests.world.rtrs.memory import Chunks, Slots

ADDRESSES = AddressPair("10.9.0.1", "10.9.0.2")
OTHER = AddressPair("10.9.1.1", "10.9.1.2")
LINK = LinkInfo("mlx4_0", 1, "10.9.0.1", "10.9.0.2")
PATH, SESSION = bytes(range(16)), bytes(range(16, 32))
CHUNK = 8192
Kind = TypeVar("Kind", bound=Action)


def conn_req(
    cid: int = 0,
    total: int = 2,
    *,
    path: bytes = PATH,
    session: bytes = SESSION,
    first: bool = True,
    magic: int = 0x1BBD,
    version: int = 0x0200,
) -> bytes:
    """struct rtrs_msg_conn_req, written down from the kernel's header."""
    head = struct.pack("<BBHHHHH", 0, 0, magic, version, cid, total, 1)
    return head + path + session + bytes([first]) + bytes(11)


def conn_rsp(
    *,
    magic: int = 0x1BBD,
    version: int = 0x0200,
    errno: int = 0,
    depth: int = 4,
    io: int = 4096,
    header: int = 4096,
    flags: int = 0,
) -> bytes:
    return struct.pack("<HHhHIII36x", magic, version, errno, depth, io, header, flags)


def info_req(name: bytes = b"blk", kind: int = 0) -> bytes:
    return struct.pack("<H255s15x", kind, name)


def info_rsp(pieces: list[tuple[int, int, int]], kind: int = 1, count: int | None = None) -> bytes:
    """struct rtrs_msg_info_rsp with descriptors: address, key, length."""
    head = struct.pack("<HH4x", kind, len(pieces) if count is None else count)
    return head + b"".join(struct.pack("<QII", *piece) for piece in pieces)


def a_send(data: bytes, value: int | None = None) -> Received:
    """A SEND arrives."""
    return Received(data, value, None, False)


def a_write(value: int) -> Received:
    """An RDMA WRITE with immediate arrives."""
    return Received(b"", value, None, True)


def heartbeat() -> Received:
    return a_write(immediate(ImmediateType.HB_MSG, 0))


class Peer(ABC):
    """Collects what an engine asks for."""

    engine: Engine

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.now = 0.0

    @abstractmethod
    def take(self) -> None:
        """Collect actions; what is disconnected drains at once."""

    def tell(self, event: Callable[..., Any], *values: object) -> Any:
        """An event, or an order of the layer above, and what the engine asks for then."""
        told = event(*values, self.now)
        self.take()
        return told

    def receive(self, connection: int, received: Received) -> None:
        self.tell(self.engine.received, connection, received)

    def advance(self, seconds: float) -> None:
        """Let time pass, alarm by alarm."""
        end = self.now + seconds
        while (deadline := self.engine.deadline) is not None and deadline <= end:
            self.now = deadline
            self.engine.expire(self.now)
            self.take()
        self.now = end

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Actions of one kind, since the last `forget`."""
        return [action for action in self.actions if isinstance(action, kind)]

    def forget(self) -> None:
        self.actions.clear()

    def posted(self, connection: int | None = None) -> list[WorkRequest]:
        """All work requests, of one connection or of all."""
        return [
            request
            for post in self.of(PostSend)
            for request in post.requests
            if connection in (None, post.connection)
        ]

    def immediates(self) -> list[int]:
        """Of messages without data of a request."""
        found = [one for one in self.posted() if isinstance(one, WriteImmediate | Send)]
        return [one.immediate for one in found if one.immediate is not None]


class ServerPeer(Peer):
    """A server, and the client that a test plays. Connections are 1, 2, … by default."""

    def __init__(self, settings: ServerSettings | None = None) -> None:
        super().__init__()
        self.chunks = Chunks()
        self.settings = settings or ServerSettings(queue_depth=4, max_chunk_size=CHUNK)
        self.engine = self.server = Server(self.chunks, self.settings)

    def take(self) -> None:
        while actions := self.server.take_actions():
            self.actions += actions
            for action in actions:
                if isinstance(action, Disconnect):
                    self.server.drained(action.connection, self.now)
                elif isinstance(action, PostSend):
                    self._complete(action)

    def ask(self, connection: int, data: bytes, addresses: AddressPair = ADDRESSES) -> int | None:
        """Ask for a connection: None if it is accepted, else the errno of the refusal."""
        before = len(self.of(Reject))
        self.tell(self.server.requested, connection, data, addresses)
        refused = self.of(Reject)[before:]
        if not refused:
            return None
        magic, version, errno = struct.unpack_from("<HHh", refused[0].private_data)
        assert (magic, version, len(refused[0].private_data)) == (0x1BBD, 0x0200, 56)
        return int(-errno)

    def connect(self, name: bytes = b"blk", total: int = 2) -> None:
        """All connections, then INFO_REQ."""
        for cid in range(total):
            assert self.ask(cid + 1, conn_req(cid, total)) is None
            self.server.established(cid + 1, b"", LINK, self.now)
        self.receive(1, a_send(info_req(name)))

    def put(self, chunk: int, offset: int, data: bytes, session: int = 1) -> None:
        """Write into a chunk as an RDMA WRITE would."""
        self.chunks.chunk(session, chunk)[offset : offset + len(data)] = data

    def request(self, chunk: int, offset: int, connection: int = 2) -> None:
        self.receive(connection, a_write(chunk << 26 | offset))

    def ask_for(self, message: bytes) -> None:
        """A request of 512 bytes in chunk 1, whose user message is 4 bytes long."""
        self.put(1, 512, message)
        self.request(1, 516)

    def answer(self, operation: int, errno: int) -> None:
        """The layer above ends an operation; only what is asked for then is kept."""
        self.forget()
        self.tell(self.server.respond, operation, errno)

    @property
    def empty(self) -> bool:
        return not (self.server.sessions or self.chunks.data or self.chunks.keys.count)

    def _complete(self, post: PostSend) -> None:
        for request in post.requests:
            if request.token:
                self.server.sent(post.connection, request.token, self.now)


class ClientPeer(Peer):
    """A client's session that is being opened over `paths`, and the server that a test plays."""

    def __init__(self, settings: ClientSettings | None = None, *paths: AddressPair) -> None:
        super().__init__()
        self.slots = Slots()
        self.settings = settings or ClientSettings(cpus=1, reconnect_delay=2.0)
        self.engine = self.session = ClientSession(
            "blk", self.slots, random.Random(1), self.settings
        )
        self.tell(self.session.open, paths or [ADDRESSES])

    def take(self) -> None:
        while actions := self.session.take_actions():
            self.actions += actions
            for action in actions:
                if isinstance(action, Disconnect):
                    self.session.drained(action.connection, self.now)
                    self.session.disconnected(action.connection, self.now)

    @property
    def opening(self) -> Open:
        """The connection that was asked for last."""
        return self.of(Open)[-1]

    def establish(self, response: bytes | None = None) -> int:
        """The connection that was asked for last is accepted; its number."""
        number = self.opening.connection
        self.tell(self.session.established, number, response or conn_rsp(), LINK)
        return number

    def connect(self, *, flags: int = 0, depth: int = 4) -> list[int]:
        """Connect a path that has asked for connection 0; numbers of its connections."""
        numbers = [self.establish(conn_rsp(flags=flags, depth=depth))]
        while len(numbers) <= self.settings.cpus:
            numbers.append(self.establish(conn_rsp(flags=flags, depth=depth)))
        self.receive(numbers[0], a_send(info_rsp(_pieces(depth))))
        return numbers

    def request(self, direction: Direction, length: int = 512, cpu: int = 0) -> int:
        """Start a request; its slot."""
        permit = self.session.get_permit(cpu=cpu)
        assert permit is not None
        assert self.session.request(direction, permit, b"user", length, self.now) == 0
        self.take()
        return permit.slot

    def gone(self) -> set[int]:
        """Connections that were given back."""
        return {action.connection for action in self.of(Destroy)}


def _pieces(depth: int) -> list[tuple[int, int, int]]:
    return [(0x1000000 + index * CHUNK, 0x100 + index, CHUNK) for index in range(depth)]
