"""The DMA engine's clients, ntb_perf, clients loaded many times, a peer switched off in traffic."""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections.abc import Sequence

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import guest_drivers
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs import ntb_clients as clients
from bluebridge.host_tools.programs.ntb_clients import ADDRESSES, PERF, RATE, Client, Guests, Unmet
from bluebridge.host_tools.programs.perftest import IPERF_PORT, listening
from tests.campaigns.conformance.program import PASSED, SKIPPED, Verdict
from tests.campaigns.conformance.session import Session


def guests_of(session: Session) -> Guests:
    """The guests of a session whose setup has a bridge."""
    assert session.setup.bridge is not None, "the setup has no bridge"
    return Guests(session.pair, session.setup.bridge.model)


def passed(reason: str = "", part: str = "") -> Verdict:
    """Return a verdict of success; `reason` is what was seen."""
    return Verdict(PASSED, reason, part)


def refused(reason: str) -> Sequence[Verdict]:
    """The client says itself that it cannot work on this bridge."""
    return [Verdict(SKIPPED, reason)]


ITERATIONS = 1000
_LIMIT = 600.0


def self_test(session: Session) -> Sequence[Verdict]:
    """ioatdma's probe copies and compares (ioat_dma_self_test); it tells only of failures."""
    guests = guests_of(session)
    guests.both("rmmod ioatdma && dmesg -c > /dev/null && modprobe ioatdma")
    wanted = [guests.model.engine] * 4
    for guest in guests.machines:
        found = guests.run(guest, "cat /sys/class/dma/*/quickdata/version").split()
        guests.expect(f"versions of the channels of guest {guest.name}", found, wanted)
        if said := guests.messages(guest, "ioatdma.*self-test"):
            raise Unmet(f"guest {guest.name}: {said}")
    return [passed(f"version {wanted[0]}, 4 channels")]


def dmatest(session: Session) -> Sequence[Verdict]:
    """Copies of random size, each byte compared, on the last channel of both guests at once."""
    guests = guests_of(session)
    guests.both(
        f"modprobe dmatest timeout=60000 iterations={ITERATIONS} channel=dma0chan3 run=1; "
        "until dmesg | grep -q 'dmatest: .*summary'; do sleep 0.2; done; rmmod dmatest",
        _LIMIT,
    )
    rates = []
    for guest in guests.machines:
        said = guests.messages(guest, "dmatest: .*summary")
        if f"summary {ITERATIONS} tests, 0 failures" not in said:
            raise Unmet(f"guest {guest.name}: {said}")
        rates.append(re.sub(r".*failures (\S+) iops.*", r"\1", said))
    return [passed(f"0 failures in {ITERATIONS} on each side, {' and '.join(rates)} a second")]


RUNS = 100
BETWEEN_LOADS = 5
RUN_SECONDS = 60


def perf(options: str, session: Session) -> Sequence[Verdict]:
    """ntb_perf with `options`: a hundred runs, loaded anew every few, a time limit on each."""
    guests = guests_of(session)
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


CYCLES = 50
LOSSES = 20
_RECEIVED = "$(cat /sys/class/net/eth0/statistics/rx_bytes)"
_TRAFFIC = 1 << 20
_SECONDS = 900.0


def cycles(client: Client, session: Session) -> Sequence[Verdict]:
    """Load and unload `client` in both guests, in every order."""
    guests = guests_of(session)
    if guests.model not in client.models:
        return refused("it does not come up on this bridge, as above")
    begin = time.monotonic()
    for number in range(CYCLES):
        try:
            _cycle(guests, client, number)
        except LabError as error:
            error.args = (f"cycle {number + 1} of {CYCLES}: {error}",)
            raise
    return [passed(f"{CYCLES} times, {(time.monotonic() - begin) / CYCLES:.1f} s each")]


def _cycle(guests: Guests, client: Client, number: int) -> None:
    """Guest a loads first in every other cycle, and unloads first in every other two."""
    a, b = guests.machines
    for guest in ((a, b), (b, a))[number % 2]:
        clients.load(guests, guest, client)
    clients.ready(guests, client)
    for guest in ((a, b), (b, a))[number // 2 % 2]:
        guests.run(guest, client.unload)


def drivers(session: Session) -> Sequence[Verdict]:
    """The bridge's and the engine's drivers themselves, with a network on them each time."""
    guests = guests_of(session)
    client = clients.netdev("use_dma=1")
    hardware = guests.model.kernel_driver
    whole = Client(
        hardware,
        f"modprobe ioatdma && modprobe {hardware} && {client.load}",
        client.ready,
        f"{client.unload} && modprobe -r {hardware} && rmmod ioatdma",
    )
    guests.both(f"modprobe -r {hardware} && rmmod ioatdma")
    found = cycles(whole, session)
    guests.pair.probe_bridges()
    return found


def peer_losses(session: Session) -> Sequence[Verdict]:
    """Either guest is switched off while TCP flows to the other, and comes back."""
    guests = guests_of(session)
    client = clients.netdev("use_dma=1")
    clients.load_both(guests, client)
    slowest = 0.0
    for number in range(LOSSES):
        here, lost = guests.ways[number % 2]
        slowest = max(slowest, _peer_loss(guests, client, here, lost))
    clients.unload_both(guests, client)
    return [passed(f"{LOSSES} times, its peer saw it after {slowest:.1f} s at most")]


def _peer_loss(guests: Guests, client: Client, here: Vm, lost: Vm) -> float:
    """Seconds until the guest that stays has noticed."""
    server = here.agent.start("iperf3 -s -1", _SECONDS)
    guests.until(here, listening(IPERF_PORT))
    before = int(guests.run(here, f"echo {_RECEIVED}"))
    lost.agent.start(f"iperf3 -t 600 -c {ADDRESSES[here.name]}", _SECONDS)
    guests.until(here, f"[ {_RECEIVED} -gt {before + _TRAFFIC} ]")
    guests.pair.restart(lost.name)
    begin = time.monotonic()
    guests.until(here, "grep -q 0 /sys/class/net/eth0/carrier")
    seconds = time.monotonic() - begin
    with contextlib.suppress(LabError):
        server.kill()
    guest_drivers.probe(lost, guests.model.name)
    clients.load(guests, lost, client)
    clients.ready(guests, client)
    for one, other in guests.ways:
        guests.until(one, f"ping -c 1 -W 1 {ADDRESSES[other.name]} > /dev/null")
    return seconds
