"""qperf's RDMA tests over NTRDMA, in qperf's format: `python3 -m` and this module's name.

One side runs with `--serve`, the other with the names of tests. They learn of each other's buffers
when they connect; which test comes is written into the peer's memory.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import time
from contextlib import ExitStack, suppress

from bluebridge.guest.connections import open_connections
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.protocols.cm import EventType
from bluebridge.guest.protocols.ntrdma.back_ends import BACK_END
from bluebridge.guest.protocols.ntrdma.link import (
    CLIENT,
    DEPTH,
    RECEIVED,
    SECONDS,
    SENT,
    SERVER,
    Link,
    Lost,
)
from bluebridge.guest.providers import open_ntrdma
from bluebridge.guest.verbs import Device, SendWr, WrOpcode

TESTS = (
    "rc_bw",
    "rc_rdma_write_bw",
    "rc_rdma_read_bw",
    "rc_lat",
    "rc_rdma_write_lat",
    "rc_rdma_read_lat",
)
ONE_SIDED = ("rc_rdma_write_bw", "rc_rdma_read_bw", "rc_rdma_read_lat")
"""The tests in which the server's program has no part."""
PORT = 19765
LATENCY_BYTES = 8
LOOKS = 64
"""At memory, before the engine looks at what the peer did: its data is there before that."""
_NOTE = struct.Struct("<32s28xI")
"""The format of a note that one side writes into the other's memory: a message, then its number."""
_ORDER = struct.Struct("<20sII")
"""Name of a test (empty: the end), count, bytes."""
_NUMBER = struct.Struct("<I")
_CONTROL = 4096
_LINE = 64
_PARTING_SECONDS = 1.0


class Measured(Link):
    """A link with buffers of `size` bytes to send from, at `source`, and to send to."""

    def __init__(self, device: Device, size: int) -> None:
        super().__init__(device, _CONTROL + 2 * size)
        self.size = size
        self.source, self.target = _CONTROL, _CONTROL + size
        self._told = self._heard = self._receives = 0
        self.batch = 0
        """Requests that are posted at once, and awaited together; 0: one for each that is done."""
        self._requests: dict[tuple[WrOpcode, int, int, int], SendWr] = {}

    def tell(self, data: bytes) -> None:
        """Write a small message into the peer's memory."""
        self._told += 1
        self.view[_LINE : _LINE + _NOTE.size] = _NOTE.pack(data, self._told)
        self.post(WrOpcode.RDMA_WRITE, _LINE, _NOTE.size, there=0)
        self.wait(SENT)

    def hear(self, seconds: float = SECONDS) -> bytes:
        """The peer's next small message."""
        deadline = time.monotonic() + seconds
        while True:
            (number,) = _NUMBER.unpack_from(self.view, _NOTE.size - _NUMBER.size)
            if number != self._heard:
                self._heard = number
                return bytes(_NOTE.unpack_from(self.view)[0])
            self.look()
            time.sleep(0.0005)
            if time.monotonic() > deadline:
                raise Lost("the peer says nothing")

    def post(
        self, opcode: WrOpcode, offset: int, length: int, count: int = 1, there: int = -1
    ) -> None:
        """Post requests that move `length` bytes at `offset`, to or from the peer's target."""
        key = opcode, offset, length, self.target if there < 0 else there
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = self.request(*key)
        self.qp.post_send(request if count == 1 else [request] * count)

    def post_receives(self) -> None:
        """Have twice `DEPTH` receives posted."""
        count = 2 * DEPTH - self._receives
        self.qp.post_recv([self.receive(self.target, self.size)] * count)
        self._receives += count

    def look(self) -> None:
        """Take what has completed, and let the engine look at what the peer did."""
        self.done += self.poll()

    def linger(self) -> None:
        """The peer's last write wants an answer, which the engine gives; then it leaves."""
        end = time.monotonic() + _PARTING_SECONDS
        with suppress(Lost):
            while time.monotonic() < end:
                self.look()
                time.sleep(0.001)

    def wait_received(self) -> None:
        """Wait until a message is in the buffer, and post its receive anew."""
        self.wait(RECEIVED)
        self._receives -= 1
        self.post_receives()


def _window(link: Measured, opcode: WrOpcode, count: int, size: int) -> None:
    """`count` requests with up to `DEPTH` of them under way, or batch by batch."""
    posted = done = 0
    while done < count:
        room = min((link.batch or DEPTH) - (posted - done), count - posted)
        if room > 0 and (not link.batch or posted == done):
            where = link.target if opcode is WrOpcode.RDMA_READ else link.source
            link.post(opcode, where, size, count=room)
            posted += room
        link.wait(SENT)
        done += 1


def _last_byte(link: Measured, offset: int, value: int) -> None:
    """Wait until a byte of the target is `value`."""
    view, looks = link.view, 0
    while view[offset] != value:
        looks += 1
        if looks % LOOKS == 0:
            link.look()


def _run(link: Measured, test: str, count: int, size: int, client: bool) -> list[float]:
    """One side's part of a test; of the client's latencies each, in seconds."""
    times: list[float] = []
    match test:
        case "rc_bw" if client:
            _window(link, WrOpcode.SEND, count, size)
        case "rc_bw":
            for _ in range(count):
                link.wait_received()
        case "rc_rdma_write_bw" | "rc_rdma_read_bw":
            if client:
                reads = test == "rc_rdma_read_bw"
                _window(link, WrOpcode.RDMA_READ if reads else WrOpcode.RDMA_WRITE, count, size)
        case "rc_rdma_read_lat":
            for _ in range(count if client else 0):
                begin = time.perf_counter()
                link.post(WrOpcode.RDMA_READ, link.target, size)
                link.wait(SENT)
                times.append(time.perf_counter() - begin)
        case "rc_lat":
            times = _send_ping_pong(link, count, size, client)
        case "rc_rdma_write_lat":
            times = _write_ping_pong(link, count, size, client)
    return times


def _send_ping_pong(link: Measured, count: int, size: int, client: bool) -> list[float]:
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        if client:
            link.post(WrOpcode.SEND, link.source, size)
        link.wait_received()
        if not client:
            link.post(WrOpcode.SEND, link.source, size)
        link.wait(SENT)
        times.append((time.perf_counter() - begin) / 2)
    return times


def _write_ping_pong(link: Measured, count: int, size: int, client: bool) -> list[float]:
    """WRITEs of up to 64 bytes, each of which the other side sees in its memory."""
    times: list[float] = []
    under_way = 0
    last = link.target + size - 1
    for turn in range(1, count + 1):
        value = turn & 0xFF
        # A source is read when the copy is carried out.
        source = link.source + turn % (2 * DEPTH) * _LINE
        begin = time.perf_counter()
        link.view[source + size - 1] = value
        if client:
            link.post(WrOpcode.RDMA_WRITE, source, size)
        _last_byte(link, last, value)
        if not client:
            link.post(WrOpcode.RDMA_WRITE, source, size)
        times.append((time.perf_counter() - begin) / 2)
        under_way += 1
        if under_way == DEPTH:
            link.wait(SENT)
            under_way -= 1
    for _ in range(under_way):
        link.wait(SENT)
    return times


def _prepare(link: Measured, test: str, size: int) -> None:
    link.view[link.target + size - 1] = 0
    if test in ("rc_bw", "rc_lat"):
        link.post_receives()


def serve(link: Measured) -> None:
    """Take part in the tests that the client asks for."""
    while True:
        name, count, size = _ORDER.unpack_from(link.hear(3600.0))
        test = name.rstrip(b"\0").decode()
        if not test:
            link.linger()
            return
        if size > link.size:
            raise Lost(f"the peer asks for messages of {size} bytes: begin with --size {size}")
        _prepare(link, test, size)
        link.tell(b"ready")
        _run(link, test, count, size, False)
        if test not in ONE_SIDED:
            link.tell(b"done")


def ask(link: Measured, test: str, count: int, size: int) -> dict[str, float]:
    """Run a test with the peer; its figures."""
    _prepare(link, test, size)
    link.tell(_ORDER.pack(test.encode(), count, size))
    link.hear()
    begin = time.perf_counter()
    times = _run(link, test, count, size, True)
    if test not in ONE_SIDED:
        link.hear()
    seconds = time.perf_counter() - begin
    if not times:
        return {"bytes_per_second": count * size / seconds}
    times.sort()
    return {"p50_us": times[len(times) // 2] * 1e6, "min_us": times[0] * 1e6}


def show(test: str, figures: dict[str, float]) -> str:
    """Return the result in the form in which qperf prints it."""
    if "p50_us" in figures:
        return f"{test}:\n    latency  =  {figures['p50_us']:.3g} us"
    return f"{test}:\n    bw  =  {figures['bytes_per_second'] / 1e6:.3g} MB/sec"


def _connect(given: argparse.Namespace, device: Device, owned: ExitStack) -> Measured:
    manager = open_connections(device, SERVER if given.serve else CLIENT, owned)
    link = Measured(device, max(given.size, _CONTROL))
    if not given.serve:
        link.connect(manager, PORT)
        return link
    listener = manager.create_id()
    listener.bind_addr(SERVER, PORT)
    listener.listen()
    print("listening", flush=True)
    request = listener.events.get(3600.0)
    if request is None or request.type is not EventType.CONNECT_REQUEST:
        raise Lost("nobody has connected")
    link.accept(request)
    event = listener.events.get(SECONDS)
    if event is None or event.type is not EventType.ESTABLISHED:
        raise Lost("the connection was not established")
    return link


def positive(text: str) -> int:
    """A number from 1 on, as an argument. Raises `argparse.ArgumentTypeError`."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", metavar="TEST", help=", ".join(TESTS))
    parser.add_argument("--serve", action="store_true", help="be the peer")
    parser.add_argument("--backend", default=BACK_END, help=f"default {BACK_END}")
    parser.add_argument("--size", type=positive, default=1 << 20, help="bytes of bandwidth tests")
    parser.add_argument("--count", type=positive, default=100, help="messages of a test")
    parser.add_argument(
        "--batch",
        type=int,
        default=0,
        help=f"bandwidth tests post so many at once and await them all, at most {DEPTH}",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, and nothing else")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """0 when all tests ended well."""
    given = _parser().parse_args(arguments)
    unknown = set(given.tests) - set(TESTS)
    if unknown:
        print(f"perf: no such test: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    try:
        with ExitStack() as owned:
            device = owned.enter_context(open_ntrdma(given.backend, not given.serve))
            link = _connect(given, device, owned)
            if given.serve:
                serve(link)
            else:
                _ask_all(link, given)
            link.close()
    except (DeviceError, OSError, MemoryError, Lost) as error:
        print(f"perf: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _ask_all(link: Measured, given: argparse.Namespace) -> None:
    found = {}
    link.batch = min(given.batch, DEPTH)
    for test in given.tests or TESTS:
        size = LATENCY_BYTES if test.endswith("_lat") else given.size
        found[test] = ask(link, test, given.count, size)
        if not given.json:
            print(show(test, found[test]), flush=True)
    link.tell(_ORDER.pack(b"", 0, 0))
    if given.json:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    sys.exit(main())
