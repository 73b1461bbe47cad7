"""A bridge's guests in a session, and the verdicts over its clients."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.host_tools.campaigns.conformance.program import PASSED, SKIPPED, Verdict
from bluebridge.host_tools.campaigns.conformance.session import Session
from bluebridge.host_tools.programs.ntb_guests import Guests


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
