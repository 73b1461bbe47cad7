"""`python -m tests.campaigns.rtrs_matrix`: kernel and Python as client and as server, under cuts.

fio verifies what it writes over each pairing, while one of two paths is cut and restored all the
time. A table says what happened; exit status 0 if every pairing ran without an error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.guest.providers import HCA, NTRDMA
from bluebridge.host_tools.commands.up_options import sides
from bluebridge.host_tools.errors import LabError, Progress, Reporter
from bluebridge.host_tools.rtrs.fio import Found, Verification
from bluebridge.host_tools.rtrs.rtrs_command import add_common
from bluebridge.host_tools.rtrs.session import Cut, Cutter, Mapped, interrupt, session

PAIRINGS = (("kernel", "kernel"), ("python", "kernel"), ("kernel", "python"), ("python", "python"))
HEADER = (
    "| client | server | fio | cuts | paths given up | I/O errors | verify errors | fail-overs "
    "| reconnects | read | written |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def main(words: Sequence[str]) -> int:
    """Run the pairings of a command line and print the table; 0 if all ran without an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.rtrs_matrix")
    parser.add_argument("--minutes", type=float, default=5, help="of each pairing (default 5)")
    parser.add_argument(
        "--sides", type=sides, action="append", metavar="CLIENT:SERVER", help="only this pairing"
    )
    parser.add_argument(
        "--period", type=float, default=20, help="seconds between cuts, half of it cut (default 20)"
    )
    add_common(parser)
    options = parser.parse_args(words)
    progress = Reporter(quiet=options.quiet)
    rows: list[str] = []
    right = True
    for pairing in options.sides or PAIRINGS[-1 if options.provider == NTRDMA else 0 :]:
        progress(f"client {pairing[0]}, server {pairing[1]}: {options.minutes:g} min")
        log = options.log / "-".join(pairing) if options.log else None
        named = _named(pairing, options)
        try:
            with session(pairing, options, log, progress) as mapped:
                how, seconds = Cut(options.cut), options.minutes * 60
                outcome = run(mapped, seconds, options.period, how, progress)
        except LabError as error:
            rows.append(f"| {' | '.join((*named, f'failed: {error.what}'))} |{' |' * 8}")
            right = False
            continue
        rows.append(row(named, outcome))
        right = right and outcome.found.ok
    print("\n".join([HEADER, *rows]))
    return 0 if right else 1


def row(sides: tuple[str, str], outcome: Outcome) -> str:
    """Return a line of the table."""
    found = outcome.found
    cells = (
        *sides,
        f"{outcome.seconds:.0f} s",
        str(outcome.cuts),
        str(outcome.given_up),
        str(found.io_errors),
        str(found.verify_errors),
        str(outcome.failovers),
        str(outcome.reconnects),
        f"{found.read_rate:.1f} MiB/s",
        f"{found.write_rate:.1f} MiB/s",
    )
    return f"| {' | '.join(cells)} |"


def _named(sides: tuple[str, str], options: argparse.Namespace) -> tuple[str, str]:
    if options.provider == HCA:
        return sides
    client, server = (f"{side}, {options.provider} {options.backend}" for side in sides)
    return client, server


_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """The result of one pairing of client and server, which took `seconds`."""

    seconds: float
    cuts: int
    given_up: int
    """The number of cuts during which the client gave the path up."""
    found: Found
    failovers: int
    reconnects: int


def run(mapped: Mapped, seconds: float, period: float, how: Cut, progress: Progress) -> Outcome:
    """fio for `seconds`; every `period` seconds a route is cut for half of that.

    It is the last one; if one of them is over NTRDMA, each in turn.

    A path that was given up is asked to reconnect when its route is restored. Raises `LabError`.
    """
    fio = Verification(mapped.pair.a, mapped.device, seconds)
    try:
        cuts = _cut_all(mapped, Cutter(mapped.pair.server.tell, how), seconds, period, progress)
    except BaseException:
        fio.kill()
        raise
    found = fio.finish()
    paths = mapped.client.statistics()
    return Outcome(
        seconds,
        len(cuts),
        sum(cuts),
        found,
        sum(path.failovers for path in paths),
        sum(path.reconnected for path in paths),
    )


def _cut_all(
    mapped: Mapped, cutter: Cutter, seconds: float, period: float, progress: Progress
) -> list[bool]:
    begin = time.monotonic()

    def say(text: str) -> None:
        progress(f"{time.monotonic() - begin:5.1f} s: {text}")

    routes = mapped.routes[::-1] if mapped.pair.config.bridge else mapped.routes[-1:]
    done: list[bool] = []
    end, start = begin + seconds, begin + period / 4
    while start + period / 2 < end:
        time.sleep(max(0.0, start - time.monotonic()))
        if not _all_connected(mapped, end):
            break
        route, deadline = routes[len(done) % len(routes)], time.monotonic() + period
        done.append(interrupt(mapped, cutter, route, period / 2, deadline, say))
        # A path whose end nobody has noticed yet is noticed before the other one is cut.
        start = max(start + period, time.monotonic() + period / 4)
    time.sleep(max(0.0, end - time.monotonic()))
    return done


def _all_connected(mapped: Mapped, deadline: float) -> bool:
    """Wait for all paths: requests on the one that is cut go on over another one."""
    while not all(path.connected for path in mapped.client.statistics()):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
