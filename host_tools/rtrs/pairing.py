"""One pairing of client and server under fio, one of two paths cut and restored all the while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.host_tools.progress import Progress
from bluebridge.host_tools.rtrs.cuts import Cut, Cutter
from bluebridge.host_tools.rtrs.fio import Found, Verification
from bluebridge.host_tools.rtrs.interruption import Interruption
from bluebridge.host_tools.rtrs.session import Mapped

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
    """Whether each cut made the client give the path up."""
    begin = time.monotonic()
    say = _with_time(begin, progress)
    routes = mapped.routes[::-1] if mapped.pair.config.bridge else mapped.routes[-1:]
    done: list[bool] = []
    end, start = begin + seconds, begin + period / 4
    while start + period / 2 < end:
        time.sleep(max(0.0, start - time.monotonic()))
        if not _all_connected(mapped, end):
            break
        cut = Interruption(mapped, cutter, routes[len(done) % len(routes)], say)
        done.append(cut.run(period / 2, time.monotonic() + period))
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


def _with_time(begin: float, progress: Progress) -> Callable[[str], None]:
    return lambda text: progress(f"{time.monotonic() - begin:5.1f} s: {text}")
