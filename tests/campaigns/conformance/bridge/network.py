"""ntb_transport and ntb_netdev: pings, checked streams, iperf3, large frames, counters."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs import ntb_clients as clients
from bluebridge.host_tools.programs.ntb_clients import (
    ADDRESSES,
    SECONDS,
    STATS,
    Client,
    Guests,
    Unmet,
)
from bluebridge.host_tools.programs.perftest import IPERF_PORT, listening, transfer
from bluebridge.host_tools.programs.running import Ended
from tests.campaigns.conformance.bridge.load import guests_of, passed, refused
from tests.campaigns.conformance.program import FAILED, Verdict, every_second_has_bytes
from tests.campaigns.conformance.session import Session, link_local

MIB = 64
MTU = 65510
IPERF_SECONDS = 60
_OFTEN = "-i 0.1"
_LIMIT = 600.0
_LATE_SECONDS = 20.0


def by_processor(session: Session) -> Sequence[Verdict]:
    """Stores through the window, loads from memory."""
    return _network(guests_of(session), clients.netdev(""))


def by_dma(session: Session) -> Sequence[Verdict]:
    """Whether both sides copy by their engines."""
    guests = guests_of(session)
    client = clients.netdev("use_dma=1")
    return _network(guests, client, counters=("tx_async", "rx_async"))


def messages(session: Session) -> Sequence[Verdict]:
    """use_msi=1: interrupts through the window instead of doorbells, where a bridge can."""
    guests = guests_of(session)
    client = clients.netdev("use_dma=1 use_msi=1")
    # An interrupt at the window's first address is none to ntb_transport_setup_qp_peer_msi: so it
    # is where an interrupt of CPU 0 would be. The queue's has to be one of another CPU.
    affinity = "/proc/irq/default_smp_affinity"
    guests.both(f"echo 2 > {affinity}")
    clients.load_both(guests, client)
    guests.both(f"echo 3 > {affinity}")
    _pings(guests, f"-c 10 -i {pings.SELDOM} -s 20000")
    _streams(guests, 16)
    said = [guests.messages(guest, "MSI interrupt") for guest in guests.machines]
    clients.unload_both(guests, client)
    if any("Unable to allocate" in line for line in said):
        return refused(next(line for line in said if line) + ": doorbells instead")
    if not all("Using MSI interrupts for QP0" in line for line in said):
        if guests.model.register_window:
            return refused("one window: ntb_transport needs it for data, doorbells instead")
        raise Unmet(f"the transport says {said}")
    return [passed("Using MSI interrupts for QP0, 32 MiB by checksum")]


def _network(guests: Guests, client: Client, counters: Sequence[str] = ()) -> list[Verdict]:
    # fq_codel drops what waits long, and behind 64 KiB frames on a slow link everything does.
    guests.both("echo pfifo_fast > /proc/sys/net/core/default_qdisc")
    clients.load_both(guests, client)
    _pings(guests, "-c 20")
    _pings(guests, f"-c 5 -i {pings.SELDOM} -s 20000")
    found = [passed(part="ping"), _six(guests)]
    _streams(guests, MIB)
    found.append(passed(f"{MIB} MiB each way by checksum", "TCP"))
    guests.both(f"ip link set eth0 mtu {MTU}")
    clients.ready(guests, client)
    _pings(guests, f"-c 3 -i {pings.SELDOM} -M do -s {MTU - 28}")
    found.append(passed(part=f"MTU {MTU}"))
    found += [_iperf(guests, backwards) for backwards in ("", "-R")]
    found += [_counter(guests, name) for name in counters]
    found.append(_frames(guests))
    clients.unload_both(guests, client)
    guests.both("echo fq_codel > /proc/sys/net/core/default_qdisc")
    return found


def _pings(guests: Guests, options: str) -> None:
    for here, there in guests.ways:
        address = ADDRESSES[there.name]
        pings.check(here, address, f"{_OFTEN} {options}")


def _six(guests: Guests) -> Verdict:
    a, b = guests.machines
    address = link_local(a, "eth0", SECONDS) + "%eth0"
    pings.check(b, address, f"{_OFTEN} -c 10")
    return passed(part="IPv6")


def _streams(guests: Guests, mib: int) -> None:
    """Random bytes both ways; raises `LabError` if others arrived."""
    for here, there in guests.ways:
        backwards = here is guests.pair.b
        transfer(guests.pair, ADDRESSES[there.name], mib, backwards=backwards, limit=_LIMIT)


def _iperf(guests: Guests, backwards: str) -> Verdict:
    a, b = guests.machines
    limit = IPERF_SECONDS + 120
    server = a.agent.start("iperf3 -s -1 -J", limit)
    guests.until(a, listening(IPERF_PORT))
    line = f"iperf3 -J -t {IPERF_SECONDS} {backwards} -c {ADDRESSES['a']}"
    done = b.run(line, timeout=limit, check=False)
    served = server.wait().text
    # What arrived: a sender only fills its buffers, in bursts.
    (verdict,) = every_second_has_bytes(Ended(0, done.text if backwards else served))
    part = f"iperf3 -t {IPERF_SECONDS} {backwards}".strip()
    if verdict.status == FAILED:
        raise Unmet(f"{part}: {verdict.reason}", transcript=f"{done.text}\n{served}")
    return passed(verdict.reason, part)


def _frames(guests: Guests) -> Verdict:
    """Each frame that one side's transport has sent, the other's has received."""
    deadline, sums = time.monotonic() + _LATE_SECONDS, []
    for here, there in guests.ways:
        while (sent := _stat(guests, here, "tx_pkts")) != (got := _stat(guests, there, "rx_pkts")):
            if time.monotonic() > deadline:
                raise Unmet(f"guest {there.name} got {got} of {sent} frames")
        sums.append(got)
    return passed(f"{sums[0]} and {sums[1]}, none lost", "frames")


def _stat(guests: Guests, guest: Vm, name: str) -> int:
    return int(guests.run(guest, f"grep '^{name} ' {STATS}").split()[-1])


def _counter(guests: Guests, name: str) -> Verdict:
    """A counter of ntb_transport that has risen in both guests."""
    values = [_stat(guests, guest, name) for guest in guests.machines]
    if 0 in values:
        raise Unmet(f"{name} is {values}")
    return passed(f"{values[0]} and {values[1]}", name)
