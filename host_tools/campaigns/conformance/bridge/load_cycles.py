"""Clients loaded and unloaded many times, and a peer that is switched off during traffic."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial

from bluebridge.host_tools.campaigns.conformance.bridge.engine import guests_of, passed, refused
from bluebridge.host_tools.campaigns.conformance.program import Steps, Verdict
from bluebridge.host_tools.campaigns.conformance.session import Session
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import guest_drivers
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs import ntb_clients as clients
from bluebridge.host_tools.programs.ntb_clients import ADDRESSES, Client, Guests
from bluebridge.host_tools.programs.perftest import IPERF_PORT, listening

CYCLES = 50
LOSSES = 20
_RECEIVED = "$(cat /sys/class/net/eth0/statistics/rx_bytes)"
_TRAFFIC = 1 << 20
_SECONDS = 900.0


def cycled(client: Client) -> Steps:
    """Steps that load and unload `client` in both guests, in every order."""
    return partial(_cycles, client)


def _cycles(client: Client, session: Session) -> Sequence[Verdict]:
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
    found = _cycles(whole, session)
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
