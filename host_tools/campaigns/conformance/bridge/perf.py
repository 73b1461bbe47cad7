"""ntb_perf: a hundred runs, loaded anew every few, with a time limit on each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bluebridge.host_tools.campaigns.conformance.bridge.engine import guests_of, passed, refused
from bluebridge.host_tools.campaigns.conformance.program import Verdict
from bluebridge.host_tools.campaigns.conformance.session import Session
from bluebridge.host_tools.programs import ntb_clients as clients
from bluebridge.host_tools.programs.ntb_clients import PERF, RATE, Guests, Unmet

RUNS = 100
BETWEEN_LOADS = 5
RUN_SECONDS = 60


def by_dma(session: Session) -> Sequence[Verdict]:
    """64 MiB by the engine in each run."""
    return _runs(guests_of(session), "use_dma=1 total_order=26")


def by_processor(session: Session) -> Sequence[Verdict]:
    """128 KiB by the processor in each run: stores pile up."""
    return _runs(guests_of(session), "chunk_order=16 total_order=17")


def _runs(guests: Guests, options: str) -> Sequence[Verdict]:
    client = clients.perf(options)
    guests.both(client.load)
    for guest in guests.machines:
        if guests.run(guest, "ls /sys/kernel/debug/ntb_perf 2> /dev/null; true") == "":
            said = guests.messages(guest, "ntb_perf.*probe.*failed\\|probe with driver ntb_perf")
            clients.unload_both(guests, client)
            return refused(f"guest {guest.name}: {said}")
    clients.unload_both(guests, client)
    rates: list[int] = []
    while len(rates) < RUNS:
        clients.load_both(guests, client)
        for number in range(BETWEEN_LOADS):
            rates.append(_run(guests, number % 2, len(rates)))
        clients.unload_both(guests, client)
    low, middle = min(rates), statistics.median(rates)
    return [passed(f"{RUNS} of {RUNS}, {middle:.0f} MB/s in the middle, {low} MB/s at least")]


def _run(guests: Guests, number: int, done: int) -> int:
    """One run in a guest; MB/s. Raises `Unmet` when it does not end."""
    guest = guests.machines[number]
    line = f"{PERF} timeout {RUN_SECONDS} sh -c 'echo 0 > run'"
    if guest.run(line, timeout=2 * RUN_SECONDS, check=False).status:
        raise Unmet(f"run {done + 1} of {RUNS}, in guest {guest.name}, did not end")
    said = guests.run(guest, f"{PERF} cat run")
    found = RATE.search(said)
    if found is None:
        raise Unmet(f"run {done + 1} of {RUNS}, in guest {guest.name}: {said.splitlines()[-1]}")
    return int(found[1])
