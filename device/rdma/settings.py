"""The choices that software made when it started an adapter, as far as engines use them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Settings:
    """The features that are in use.

    The parts of an adapter share one object, which its face fills. `unicast_steering`: groups name
    the queue pairs of unicast addresses, too; `flow_steering`: rules name queue pairs in place of
    groups, for the queue pairs of UD in `datagram_range` of unicast messages, too;
    `ipoib_checksums`: completions of datagrams tell of IP packets in them.
    """

    unicast_steering: bool = False
    flow_steering: bool = False
    ipoib_checksums: bool = False
    datagram_range: range = range(0)
