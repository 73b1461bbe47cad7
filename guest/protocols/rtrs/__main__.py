"""RTRS between two machines, without a block device: a server of memory, a client that verifies.

python3 -m bluebridge.guest.protocols.rtrs server --interface 10.9.0.1/24
python3 -m bluebridge.guest.protocols.rtrs client --interface 10.9.0.2/24 --path 10.9.0.2@10.9.0.1
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys

from bluebridge.guest.protocols.rtrs.engine.actions import Action, Closed, Finished, Opened, Serve
from bluebridge.guest.protocols.rtrs.program import (
    CLOSE_SECONDS,
    client_settings,
    on_signals,
    paths_of,
    program_parser,
    run_program,
    server_settings,
)
from bluebridge.guest.protocols.rtrs.traffic import Store, Totals, Traffic
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from bluebridge.guest.protocols.rtrs.transport.loop import Loop
from bluebridge.guest.protocols.rtrs.transport.transport import ClientSide, ServerSide


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, 1 for traffic with errors or a session that failed, 2 for a wrong call."""
    return run_program("rtrs", _parser().parse_args(arguments))


def _serve(given: argparse.Namespace, interfaces: Interfaces, loop: Loop) -> int:
    store = Store(given.size << 20)
    closed = False

    def upper(action: Action) -> None:
        nonlocal closed
        if isinstance(action, Serve):
            errno = store.serve(action, side.chunks.view)
            side.engine.respond(action.operation, errno, loop.now())
        elif isinstance(action, Closed):
            closed = True
        else:
            print(f"rtrs: {action}", flush=True)

    side = ServerSide(interfaces, loop, upper, server_settings(given), given.port)
    try:
        with on_signals(loop.stop):
            print("rtrs: serving", flush=True)
            loop.run()
        side.transport.call(side.engine.close)
        loop.run_until(lambda: closed, CLOSE_SECONDS)
    finally:
        side.close()
    return 0


def _client(given: argparse.Namespace, interfaces: Interfaces, loop: Loop) -> int:
    opened: list[int] = []
    closed = False
    traffic: Traffic | None = None

    def upper(action: Action) -> None:
        nonlocal closed
        if isinstance(action, Finished) and traffic is not None:
            traffic.finished(action.slot, action.errno)
        elif isinstance(action, Opened):
            opened.append(action.errno)
        elif isinstance(action, Closed):
            closed = True
        elif not isinstance(action, Finished):
            print(f"rtrs: {action}", flush=True)

    source = random.Random(given.seed)
    side = ClientSide(interfaces, loop, upper, given.session, source, client_settings(given))
    engine = side.engine
    try:
        with on_signals(loop.stop):
            side.transport.call(lambda now: engine.open(paths_of(given), now))
            if not loop.run_until(lambda: bool(opened), CLOSE_SECONDS) or opened[0]:
                print(f"rtrs: the session failed: {opened or 'no answer'}", file=sys.stderr)
                return 1
            traffic = Traffic(side, given.count, given.length, given.depth, loop.stop)
            side.transport.call(traffic.start)
            loop.run()
            _print(traffic.totals)
        side.transport.call(engine.close)
        loop.run_until(lambda: closed, CLOSE_SECONDS)
    finally:
        side.close()
    totals = traffic.totals
    return 1 if totals.errors or totals.mismatches or not totals.seconds else 0


def _print(totals: Totals) -> None:
    latencies = totals.latencies or [0.0]
    rate = totals.moved / totals.seconds / 1e6 if totals.seconds else 0.0
    per_second = totals.requests / totals.seconds if totals.seconds else 0.0
    print(
        f"rtrs: {totals.requests} requests, {totals.errors} errors, {totals.mismatches} wrong, "
        f"{rate:.1f} MB/s, {per_second:.0f} requests/s, "
        f"median {statistics.median(latencies) * 1e6:.0f} us",
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser, server, client = program_parser(
        "rtrs",
        __doc__,
        "serve memory until a signal comes",
        "write blocks, read them back, compare",
    )
    server.add_argument("--size", type=int, default=64, metavar="MIB", help="default 64")
    server.set_defaults(run=_serve)
    client.add_argument("--count", type=int, default=100, help="blocks (default 100)")
    client.add_argument("--length", type=int, default=4096, help="bytes of a block (default 4096)")
    client.add_argument("--depth", type=int, default=8, help="requests in flight (default 8)")
    client.add_argument("--seed", type=int, help="of the session's random numbers")
    client.set_defaults(run=_client)
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    raise SystemExit(main())
