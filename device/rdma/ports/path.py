"""The route to a peer as software describes it: addresses by their index in port tables."""

from __future__ import annotations

from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import NO_GID


class Path:
    """The path of messages as the context of a queue pair or an address vector describes it.

    `source` is the index of the source MAC address, or the path bits of the source LID; `mac` or
    `lid` is the destination. `gid_index` is the own GID, `gid` the peer's; InfiniBand has both
    only where there is a `global_route`. `vlan_index` is the place of the VLAN in the port's
    table, or `tag` the tag itself, `NO_VLAN` for none; a VLAN of the table has the `priority`.
    `roce` is the version of RoCE, 0 for that of the own GID.
    """

    __slots__ = (
        "flow_label", "gid", "gid_index", "global_route", "hop_limit", "lid", "mac", "priority",
        "roce", "service_level", "source", "tag", "traffic_class", "vlan_index",
    )  # fmt: skip

    def __init__(self) -> None:
        self.source = 0
        self.mac = bytes(6)
        self.lid = 0
        self.global_route = False
        self.gid_index = 0
        self.gid = NO_GID
        self.traffic_class = 0
        self.hop_limit = 0
        self.flow_label = 0
        self.service_level = 0
        self.priority = 0
        self.vlan_index = -1
        self.tag = NO_VLAN
        self.roce = 0
