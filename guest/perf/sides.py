"""qperf's tests between two sides of a link: what each side posts and awaits."""

from __future__ import annotations

import argparse
import struct
import time
from contextlib import suppress

from bluebridge.guest.link import DEPTH, RECEIVED, SECONDS, SENT, Link, Lost
from bluebridge.guest.perf.result import Result
from bluebridge.guest.rounds import one_by_one, ping_pong, window
from bluebridge.guest.verbs import Device, SendWr, WrOpcode

SEND_BW, WRITE_BW, READ_BW = "rc_bw", "rc_rdma_write_bw", "rc_rdma_read_bw"
SEND_LAT, WRITE_LAT, READ_LAT = "rc_lat", "rc_rdma_write_lat", "rc_rdma_read_lat"
OPCODES = {
    SEND_BW: WrOpcode.SEND,
    WRITE_BW: WrOpcode.RDMA_WRITE,
    READ_BW: WrOpcode.RDMA_READ,
    SEND_LAT: WrOpcode.SEND,
    WRITE_LAT: WrOpcode.RDMA_WRITE,
    READ_LAT: WrOpcode.RDMA_READ,
}
TESTS = tuple(OPCODES)
LATENCY_BYTES = 8
LOOKS = 64
"""At memory, before the engine looks at what the peer did: its data is there before that."""
_ORDER = struct.Struct("<20sII")
"""The format of an order: name of a test (empty: the end), count, bytes."""
_SMALL = 4096
"""The bytes of the memory in front of both buffers, and the least size of a buffer."""
_LINE = 64
PORT = 19765
IDLE_SECONDS = 3600.0
_PARTING_SECONDS = 1.0


class Measured(Link):
    """A link with buffers of `size` bytes to send from, at `source`, and to send to."""

    def __init__(
        self, device: Device, size: int, inline: int = 0, *, answers: bool = False
    ) -> None:
        """With `answers` this program, and no card, answers READs: it has to look for them."""
        size = max(size, _SMALL)
        super().__init__(device, _SMALL + 2 * size, inline)
        self.size = size
        self.source, self.target = _SMALL, _SMALL + size
        self._receives = 0
        self._answers = answers
        self.batch = 0
        """Requests that are posted at once, and awaited together; 0: one for each that is done."""
        self._requests: dict[tuple[WrOpcode, int, int], SendWr] = {}
        self.post_receives()

    def tell(self, data: bytes) -> None:
        """Send a small message."""
        self.view[: len(data)] = data
        self.post(WrOpcode.SEND, 0, len(data))
        self.wait(SENT)

    def hear(self, seconds: float = SECONDS, test: str = "") -> bytes:
        """Return the start of the peer's next message, the first behind a `test` that it runs.

        Looks for it twice a millisecond, all the time while READs want answers.
        """
        self.pause = 0.0 if self._answers and test == READ_LAT else 0.0005
        self.wait_received(seconds)
        self.pause = 0.0
        return bytes(self.view[self.target : self.target + _ORDER.size])

    def post(self, opcode: WrOpcode, offset: int, length: int, count: int = 1) -> None:
        """Post requests that move `length` bytes at `offset`, to or from the peer's target."""
        key = opcode, offset, length
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = self.request(*key, there=self.target)
        self.qp.post_send(request if count == 1 else [request] * count)

    def post_receives(self) -> None:
        """Have twice `DEPTH` receives posted."""
        count = 2 * DEPTH - self._receives
        self.qp.post_recv([self.receive(self.target, self.size)] * count)
        self._receives += count

    def begin_again(self) -> None:
        super().begin_again()
        self._receives = 0
        self.post_receives()

    def look(self) -> None:
        """Take what has completed, and let the engine look at what the peer did."""
        self.done += self.poll()

    def linger(self) -> None:
        """The peer's last message wants an answer, which the engine gives; then it leaves."""
        end = time.monotonic() + _PARTING_SECONDS
        with suppress(Lost):
            while time.monotonic() < end:
                self.look()
                time.sleep(0.001)

    def wait_received(self, seconds: float = SECONDS) -> None:
        """Wait until a message is in the buffer, and post its receive anew."""
        self.wait(RECEIVED, seconds)
        self._receives -= 1
        self.post_receives()

    def wait_sent(self) -> int:
        """Wait until a request is complete; returns 1."""
        self.wait(SENT)
        return 1

    def wait_written(self, offset: int, value: int) -> None:
        """Wait until the byte at `offset` is `value`. Raises `Lost`."""
        view, looks, deadline = self.view, 0, 0.0
        while view[offset] != value:
            looks += 1
            if looks % LOOKS == 0:
                self.look()
                deadline = deadline or time.monotonic() + SECONDS
                if time.monotonic() > deadline:
                    raise Lost("the peer does not go on")


def _run(link: Measured, test: str, count: int, size: int, client: bool) -> list[float]:
    """One side's part of a test; of the client's latencies each, in microseconds."""
    if test in (SEND_LAT, WRITE_LAT):
        return _ping_pong(link, test, count, size, client)
    if not client:
        for _ in range(count if test == SEND_BW else 0):
            link.wait_received()
        return []
    opcode = OPCODES[test]
    offset = link.target if opcode is WrOpcode.RDMA_READ else link.source
    if test == READ_LAT:

        def read() -> None:
            link.post(opcode, offset, size)
            link.wait(SENT)

        return list(one_by_one(count, read))

    def post(room: int) -> None:
        link.post(opcode, offset, size, room)

    depth = link.batch or DEPTH
    for _ in window(count, depth, post, link.wait_sent, in_batches=bool(link.batch)):
        pass
    return []


def _ping_pong(link: Measured, test: str, count: int, size: int, client: bool) -> list[float]:
    """Messages to and fro; the last byte of a WRITE, which lands last, the peer sees in memory."""
    opcode, writes = OPCODES[test], test == WRITE_LAT
    # A source is read when the copy is carried out: it must not change before its completion.
    depth = DEPTH if size <= _LINE else 1
    sources = 2 * DEPTH if depth > 1 else 1
    under_way = 0

    def send(number: int) -> None:
        nonlocal under_way
        source = link.source + number % sources * _LINE
        link.view[source + size - 1] = number
        link.post(opcode, source, size)
        under_way += 1
        if under_way == depth:
            link.wait(SENT)
            under_way -= 1

    def hear(number: int) -> None:
        if writes:
            link.wait_written(link.target + size - 1, number)
        else:
            link.wait_received()

    times = list(ping_pong(count, client, send, hear))
    for _ in range(under_way):
        link.wait(SENT)
    return times


def serve(link: Measured) -> None:
    """Take part in the tests that the client asks for."""
    test = ""
    while True:
        name, count, size = _ORDER.unpack(link.hear(IDLE_SECONDS, test))
        test = name.rstrip(b"\0").decode()
        if not test:
            link.linger()
            return
        if size > link.size:
            raise Lost(f"the peer asks for messages of {size} bytes: begin with --size {size}")
        link.view[link.target + size - 1] = 0
        link.tell(b"ready")
        _run(link, test, count, size, False)
        if test == SEND_BW:  # in other tests a message may overwrite what the client waits for
            link.tell(b"done")


def ask(link: Measured, test: str, count: int, size: int) -> Result:
    """Run a test with the peer. Raises `Lost`, `ValueError` for what this side is not made for."""
    if test not in TESTS or not 0 < size <= link.size:
        raise ValueError(f"no such test: {test} of {size} bytes (at most {link.size}: --size)")
    link.tell(_ORDER.pack(test.encode(), count, size))
    link.hear()
    link.view[link.target + size - 1] = 0
    begin = time.perf_counter()
    times = _run(link, test, count, size, True)
    if test == SEND_BW:
        link.hear()
    return Result(test, count, size, time.perf_counter() - begin, sorted(times))


def part(link: Measured) -> None:
    """Tell the server that no more tests come."""
    link.tell(_ORDER.pack(b"", 0, 0))


def positive(text: str) -> int:
    """A number from 1 on, as an argument. Raises `argparse.ArgumentTypeError`."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number
