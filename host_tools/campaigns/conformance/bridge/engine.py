"""ioatdma and dmatest on the DMA engine."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bluebridge.host_tools.campaigns.conformance.bridge.verdicts import guests_of, passed
from bluebridge.host_tools.campaigns.conformance.program import Verdict
from bluebridge.host_tools.campaigns.conformance.session import Session
from bluebridge.host_tools.programs.ntb_guests import Unmet

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
