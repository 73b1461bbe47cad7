"""A flow steering rule: the packets that it matches and the queue pair that gets them."""

from __future__ import annotations

from enum import IntEnum


class RuleMode(IntEnum):
    """The kind of packets that a rule is for."""

    REGULAR = 0
    ALL_DEFAULT = 1
    MULTICAST_DEFAULT = 2
    MIRROR_RECEIVED = 3
    MIRROR_SENT = 4
    UNICAST_SNIFFER = 5
    MULTICAST_SNIFFER = 6


class Rule:
    """A rule by which queue pair `qpn` gets the packets that match it in this `mode`.

    A regular one is for packets whose number (`rules.fields`) has `value` where `mask` is set. The
    lowest `priority` counts, of equal ones the oldest rule or (`last_first`) the newest.
    `exclusive`: no other queue pair may have the same rule; `allow_loopback`: what the queue pair
    sent itself is for it, too.
    """

    __slots__ = (
        "allow_loopback", "exclusive", "last_first", "mask", "mode", "port", "priority", "qpn",
        "value",
    )  # fmt: skip

    def __init__(
        self,
        mode: RuleMode,
        mask: int,
        value: int,
        *,
        port: int,
        qpn: int,
        priority: int,
        allow_loopback: bool,
        exclusive: bool,
        last_first: bool,
    ) -> None:
        self.mode = mode
        self.mask = mask
        self.value = value
        self.port = port
        self.qpn = qpn
        self.priority = priority
        self.allow_loopback = allow_loopback
        self.exclusive = exclusive
        self.last_first = last_first
