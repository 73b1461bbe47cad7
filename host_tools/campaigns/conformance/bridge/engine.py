"""ioatdma and dmatest on the DMA engine, and the verdicts over a bridge's clients."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bluebridge.host_tools.campaigns.conformance.program import PASSED, SKIPPED, Verdict
from bluebridge.host_tools.campaigns.conformance.session import Session
from bluebridge.host_tools.programs.ntb_clients import Guests, Unmet


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
