"""qperf's tests over verbs: `python3 -m bluebridge.guest.perf`, in qperf's or perftest's form.

One side runs with `--serve`, the other with the names of tests. They learn of each other's buffers
when they connect; which test comes, and that it may begin, small messages say.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from bluebridge.guest.bus.machine import open_bus
from bluebridge.guest.cm import EventType
from bluebridge.guest.connections import open_connections
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.link import CLIENT, DEPTH, SECONDS, SERVER, Lost
from bluebridge.guest.perf.sides import (
    IDLE_SECONDS,
    LATENCY_BYTES,
    PORT,
    TESTS,
    Measured,
    ask,
    part,
    positive,
    serve,
)
from bluebridge.guest.providers import (
    BLUEFLAME_USES,
    NTRDMA,
    add_provider_options,
    open_chosen,
    open_device,
)
from bluebridge.guest.verbs import Device

ASKED = "-"
"""The word in place of tests that are named on the standard input."""


def _connect(given: argparse.Namespace, device: Device, owned: ExitStack) -> Measured:
    manager = open_connections(device, SERVER if given.serve else CLIENT, owned)
    link = Measured(device, given.size, given.inline, answers=given.provider == NTRDMA)
    if not given.serve:
        link.connect(manager, PORT)
        return link
    listener = manager.create_id()
    listener.bind_addr(SERVER, PORT)
    listener.listen()
    print("listening", flush=True)
    request = listener.events.get(IDLE_SECONDS)
    if request is None or request.type is not EventType.CONNECT_REQUEST:
        raise Lost("nobody has connected")
    link.accept(request)
    event = listener.events.get(SECONDS)
    if event is None or event.type is not EventType.ESTABLISHED:
        raise Lost("the connection was not established")
    return link


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "tests",
        nargs="*",
        metavar="TEST",
        help=f"{', '.join(TESTS)}; {ASKED} reads lines TEST COUNT BYTES from the standard input",
    )
    parser.add_argument("--serve", action="store_true", help="be the peer")
    parser.add_argument("--size", type=positive, default=1 << 20, help="bytes of bandwidth tests")
    parser.add_argument("--count", type=positive, default=100, help="messages of a test")
    parser.add_argument(
        "--batch",
        type=int,
        default=0,
        help=f"bandwidth tests post so many at once and await them all, at most {DEPTH}",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, and nothing else")
    parser.add_argument("--perftest", action="store_true", help="a row of perftest's for each test")
    parser.add_argument(
        "--inline", type=int, default=0, metavar="BYTES", help="most to send in the entry (0)"
    )
    parser.add_argument("--blueflame", choices=BLUEFLAME_USES, default="off", help="of an HCA")
    parser.add_argument("--port", type=int, default=1, metavar="N", help="of an HCA's (1)")
    add_provider_options(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all tests ended well."""
    given = _parser().parse_args(arguments)
    unknown = set(given.tests) - set(TESTS)
    if unknown and given.tests != [ASKED]:
        print(f"perf: no such test: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2

    def hca() -> Device:
        return open_device(open_bus(), blueflame=given.blueflame)

    try:
        with ExitStack() as owned:
            device = owned.enter_context(open_chosen(given, hca, not given.serve))
            link = _connect(given, device.port(given.port), owned)
            if given.serve:
                serve(link)
            else:
                _ask_all(link, given)
            link.close()
    except (DeviceError, OSError, MemoryError, ValueError, Lost) as error:
        print(f"perf: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _orders(given: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    """The tests that were asked for, with count and size."""
    if given.tests == [ASKED]:
        for line in sys.stdin:
            test, count, size = line.split()
            yield test, int(count), int(size)
        return
    for test in given.tests or TESTS:
        yield test, given.count, LATENCY_BYTES if test.endswith("_lat") else given.size


def _ask_all(link: Measured, given: argparse.Namespace) -> None:
    found = {}
    link.batch = min(given.batch, DEPTH)
    title = ""
    for order in _orders(given):
        result = ask(link, *order)
        found[result.test] = result.figures()
        if given.perftest:
            if title != result.title:
                title = result.title
                print(title)
            print(result.perftest(), flush=True)
        elif not given.json:
            print(result.qperf(), flush=True)
    part(link)
    if given.json:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    sys.exit(main())
