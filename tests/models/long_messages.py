"""Two guests with enough memory for messages that move in parts, and a look between the parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.cqe import RecvOpcode
from bluebridge.device.rdma.pairs.costs import FIRST_PART_BYTES, MOST_GROWTH, WHOLE_BYTES
from tests.models.fake_host import FakeTimer
from tests.models.rdma_node import Node, Pair, SendOpcode, TestQp, data, remote

HIGH = 0x1_0000_0000
PAGE_SHIFT = 18
PAGE = 1 << PAGE_SHIFT
LONG = FIRST_PART_BYTES * (1 + MOST_GROWTH) + WHOLE_BYTES + 4321
"""At least three parts, since each is at most `MOST_GROWTH` times as long as the one before."""

Look = Callable[[int], object]


class LongPair(Pair):
    """`length` bytes at `HIGH` of both guests are keys `a_key` and `b_key`.

    A's are random, none of them is zero.
    """

    def __init__(self, service: int = ServiceType.RC, length: int = LONG, **more: int) -> None:
        super().__init__(service, **more)
        self.length = length
        room = -(-length // PAGE) * PAGE
        self.source, self.target = (node.host.map(HIGH, room) for node in (self.a, self.b))
        noise = Random(length).randbytes(PAGE).replace(b"\0", b"\1").ljust(PAGE, b"\1")
        self.source[:] = noise * (room // PAGE)
        self.a_key, self.b_key = (self.register(node, length) for node in (self.a, self.b))
        self._look: Look | None = None
        self.turns = 0
        self._watch(self.a)

    @staticmethod
    def register(node: Node, length: int) -> int:
        """A key for the first `length` bytes, in pages no two of which are neighbours."""
        pages = [HIGH + at for at in range(0, length, PAGE)]
        return node.create_mr(HIGH, length, pages, shift=PAGE_SHIFT)

    def _watch(self, node: Node) -> None:
        later = node.host.call_later

        def call_later(seconds: float, action: Callable[[], None]) -> FakeTimer:
            def turn() -> None:
                self.turns += 1
                if self._look is not None:
                    self._look(self.turns)
                if not timer.cancelled:
                    action()

            timer = later(seconds, action if seconds else turn)
            return timer

        node.host.call_later = call_later  # type: ignore[method-assign]

    def between(self, look: Look) -> None:
        """Call `look` with the number of the turn before each turn of A in which a part moves."""
        self._look = look

    def at_turn(self, wanted: int, action: Callable[[], object]) -> None:
        """Call `action` before one turn."""
        self._look = lambda turn: action() if turn == wanted else None

    def post(self, opcode: SendOpcode, immediate: int = 0, length: int | None = None) -> None:
        """A message of all of A's memory, or into it if it is a read."""
        length = self.length if length is None else length
        segments = data((self.a_key, HIGH, length))
        if opcode in (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_IMM, SendOpcode.RDMA_READ):
            segments = remote(HIGH, self.b_key) + segments
        self.a.post_send(self.qa, opcode, segments, immediate=immediate)

    def receive(self, length: int | None = None) -> None:
        """A receive that scatters over B's memory, in order but in three uneven pieces."""
        length = self.length if length is None else length
        cuts = [0, 7, length // 3, length]
        pieces = pairwise(cuts)
        self.b.post_recv(self.qb, [(self.b_key, HIGH + at, end - at) for at, end in pieces])

    def arrived(self) -> int:
        """How many bytes of A's are in B's memory; the rest must be zero."""
        low, high = 0, self.length
        while low < high:
            middle = (low + high + 1) // 2
            if self.target[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low

    def same(self, length: int) -> bool:
        """Whether the first `length` bytes have arrived, and no other."""
        rest = self.target[length:]
        return self.target[:length] == self.source[:length] and rest == bytes(len(rest))


RECEIVING = {
    SendOpcode.SEND: RecvOpcode.SEND,
    SendOpcode.SEND_IMM: RecvOpcode.SEND_WITH_IMM,
    SendOpcode.SEND_INVAL: RecvOpcode.SEND_WITH_INVALIDATE,
    SendOpcode.RDMA_WRITE_IMM: RecvOpcode.RDMA_WRITE_WITH_IMM,
}
"""The result of a receive: what took it."""

PUSHES = [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_IMM, SendOpcode.SEND, SendOpcode.SEND_IMM]


def deregister(node: Node, key: int) -> None:
    """HW2SW_MPT."""
    node.command(Opcode.HW2SW_MPT, modifier=key >> 8)


def to_reset(node: Node, qp: TestQp) -> None:
    """2RST."""
    node.command(Opcode.TORST_QP, modifier=qp.qpn)


def to_error(node: Node, qp: TestQp) -> None:
    """2ERR."""
    node.command(Opcode.TOERR_QP, bytes(8), qp.qpn)
