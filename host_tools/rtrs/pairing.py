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
    """What happened in `seconds`."""

    seconds: float
    cuts: int
    given_up: int
    """Cuts during which the client gave the path up."""
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
    while (start := begin + period / 4 + len(done) * period) + period / 2 < begin + seconds:
        time.sleep(max(0.0, start - time.monotonic()))
        _wait_for_all_paths(mapped, begin + seconds)
        cut = Interruption(mapped, cutter, routes[len(done) % len(routes)], say)
        done.append(cut.run(period / 2, start + period))
    time.sleep(max(0.0, begin + seconds - time.monotonic()))
    return done


def _wait_for_all_paths(mapped: Mapped, deadline: float) -> None:
    """Requests on the path that is cut go on over another one."""
    while time.monotonic() < deadline:
        if all(path.connected for path in mapped.client.statistics()):
            return
        time.sleep(_LOOK_SECONDS)


def _with_time(begin: float, progress: Progress) -> Callable[[str], None]:
    return lambda text: progress(f"{time.monotonic() - begin:5.1f} s: {text}")
