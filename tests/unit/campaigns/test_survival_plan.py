"""The ends of NTRDMA that a survival plans, and what it says has grown."""

from __future__ import annotations

from collections import Counter

from bluebridge.device.layout.ntrdma.port import PortState
from tests.campaigns.survival.__main__ import GROWTH, KILLED, REBOOTED, RELOADED, Stock, plan


def test_a_hundred_ends_are_in_every_state_and_way() -> None:
    ends = [end for ends in plan(105) for end in ends]
    assert len(ends) == 105
    counts = Counter(ends)
    assert all(counts[state, how] == 7 for state in PortState for how in (KILLED, RELOADED))
    assert all(counts[state, REBOOTED] == 1 for state in PortState)


def test_a_reboot_is_the_last_of_its_round() -> None:
    for times in (1, 8, 15, 16, 40):
        rounds = list(plan(times))
        assert sum(map(len, rounds)) == times
        assert all(how != REBOOTED for ends in rounds for _, how in ends[:-1])


def test_what_has_grown_is_named() -> None:
    before = Stock(10, 3, 1000, 2000)
    assert not Stock(9, 3, 1000 + GROWTH, 2000).grown(before)
    said = Stock(11, 4, 1000, 2001 + GROWTH).grown(before)
    assert [each.split(":")[0] for each in said.split("; ")] == ["files", "threads", "server_bytes"]
