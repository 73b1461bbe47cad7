"""A connection between two programs, each with memory that the other writes and reads."""

from __future__ import annotations

import struct
import time

from bluebridge.guest.cm import CmEvent, CmId, ConnectionManager, ConnParam, EventType
from bluebridge.guest.verbs import (
    AccessFlags,
    Device,
    QpInit,
    QpType,
    RecvWr,
    SendFlags,
    SendWr,
    Sge,
    Wc,
    WcStatus,
    WrOpcode,
)

SERVER, CLIENT = "10.9.2.1", "10.9.2.2"
SECONDS = 30.0
DEPTH = 16
SENT, RECEIVED = 2, 3
"""The numbers of all requests that send, write or read, and of all receives."""
_AGAIN_SECONDS = 0.1
_HELLO = struct.Struct("<QI")
_ALL = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ


class Lost(Exception):
    """The peer has gone, or what it should do has not come."""


class _NotConnectedError(Exception):
    """An attempt to connect that came to nothing; the next may not."""


class Link:
    """A queue pair with `length` bytes of memory; `peer` is the address and key of the peer's."""

    pause = 0.0
    """The time in seconds between two looks for completions."""

    def __init__(self, device: Device, length: int, inline: int = 0) -> None:
        """`inline` is the most bytes of a send or write that go into the queue entry itself."""
        self.pd = device.alloc_pd()
        self.cq = device.create_cq(8 * DEPTH)
        init = QpInit(QpType.RC, self.cq, self.cq, 4 * DEPTH, 4 * DEPTH, max_inline=inline)
        self.qp = self.pd.create_qp(init)
        self.inline = inline
        self.memory = device.allocate(length)
        self.mr = self.pd.reg_mr(self.memory.address, length, access=_ALL)
        self.view = self.memory.view
        self.peer = 0, 0
        self.done: list[Wc] = []
        """Completions that nobody has waited for yet."""

    def request(
        self, opcode: WrOpcode, offset: int, length: int, there: int = 0, *, signaled: bool = True
    ) -> SendWr:
        """Return a request for bytes at `offset` of this memory and `there` in the peer's."""
        piece = Sge(self.memory.address + offset, length, self.mr.lkey)
        flags = SendFlags.SIGNALED if signaled else SendFlags(0)
        request = SendWr(SENT, opcode, (piece,), flags)
        request.remote_addr, request.rkey = self.peer[0] + there, self.peer[1]
        if length <= self.inline and opcode is not WrOpcode.RDMA_READ:
            request.inline_data = self.view[offset : offset + length]
        return request

    def receive(self, offset: int, length: int) -> RecvWr:
        """Return a receive of up to `length` bytes at `offset`."""
        return RecvWr(RECEIVED, (Sge(self.memory.address + offset, length, self.mr.lkey),))

    def poll(self) -> list[Wc]:
        """Return the completions that have come.

        Raises `Lost` for one with an error. A receive that is flushed tells that the peer is lost.
        """
        found = self.cq.poll(DEPTH)
        for wc in found:
            if wc.status is WcStatus.WR_FLUSH_ERR:
                raise Lost("the peer is lost")
            if wc.status is not WcStatus.SUCCESS:
                raise Lost(f"a request ended with {wc.status.name}")
        return found

    def wait(self, kind: int, seconds: float = SECONDS) -> None:
        """Wait for a completion, `SENT` or `RECEIVED`; others are kept. Raises `Lost`."""
        deadline = time.monotonic() + seconds
        while True:
            for index, wc in enumerate(self.done):
                if wc.wr_id == kind:
                    del self.done[index]
                    return
            found = self.poll()
            self.done += found
            if not found:
                if time.monotonic() > deadline:
                    raise Lost("the peer does not go on")
                if self.pause:
                    time.sleep(self.pause)

    # -- connecting -----------------------------------------------------------------------------

    def accept(self, request: CmEvent) -> None:
        """Accept a connection request of the peer."""
        self.peer = _HELLO.unpack_from(request.private_data)
        request.id.attach(self.qp)
        request.id.accept(self._introduction)

    def connect(self, manager: ConnectionManager, port: int) -> CmId:
        """Connect to `SERVER`, which may not listen yet. Raises `Lost`."""
        deadline = time.monotonic() + SECONDS
        while True:
            identifier = manager.create_id()
            try:
                self._ask(identifier, port)
                return identifier
            except _NotConnectedError as error:
                identifier.destroy()
                if time.monotonic() > deadline:
                    raise Lost(f"the peer does not take the connection: {error}") from error
            self.begin_again()
            time.sleep(_AGAIN_SECONDS)

    def begin_again(self) -> None:
        """Make the queue pair as new; who posts receives before it connects posts them again."""
        self.qp.modify_reset()

    def _ask(self, identifier: CmId, port: int) -> None:
        """Ask for a connection once. Raises `_NotConnectedError`."""
        identifier.resolve_addr(SERVER, port, SECONDS)
        self._expect(identifier, EventType.ADDR_RESOLVED)
        identifier.resolve_route()
        self._expect(identifier, EventType.ROUTE_RESOLVED)
        identifier.attach(self.qp)
        identifier.connect(self._introduction)
        self.peer = _HELLO.unpack_from(self._expect(identifier, EventType.ESTABLISHED).private_data)

    def _expect(self, identifier: CmId, wanted: EventType) -> CmEvent:
        event = identifier.events.get(SECONDS)
        if event is None or event.type is not wanted:
            came = "nothing" if event is None else f"{event.type.name} ({event.status})"
            raise _NotConnectedError(f"{came} in place of {wanted.name}")
        return event

    @property
    def _introduction(self) -> ConnParam:
        return ConnParam(private_data=_HELLO.pack(self.memory.address, self.mr.rkey))

    def close(self) -> None:
        """Give everything back."""
        self.qp.destroy()
        self.cq.destroy()
        self.mr.close()
        self.view = memoryview(b"")
        self.memory.free()
        self.pd.close()
