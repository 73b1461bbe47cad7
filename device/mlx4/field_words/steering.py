"""Words on rules of device-managed flow steering."""

from __future__ import annotations

from bluebridge.device.layout.mlx4 import steering
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.field_words.word import TableWords, checked, used

_RULE = "steering/rule_entry.py"
_HEAD = (
    checked(f"{_RULE}: _match", Status.BAD_PARAM, "the headers there are", by_position=True),
    "size id",
)

STEERING = (
    TableWords(
        steering.RULE_CONTROL,
        (
            (
                used(f"{_RULE}: rule_of"),
                "priority allow_loopback exclusive last_first port qpn",
            ),
            (checked(f"{_RULE}: rule_of", Status.BAD_PARAM, "RuleMode"), "mode"),
        ),
    ),
    TableWords(
        steering.RULE_ETHERNET,
        (
            _HEAD,
            (
                used(f"{_RULE}: Match._ethernet"),
                "dmac dmac_mask smac smac_mask match_type ethertype vlan_mask vlan",
            ),
        ),
    ),
    TableWords(
        steering.RULE_INFINIBAND,
        (_HEAD, (used(f"{_RULE}: Match._infiniband"), "qpn qpn_mask dgid dgid_mask")),
    ),
    TableWords(
        steering.RULE_IPV4,
        (
            _HEAD,
            (used(f"{_RULE}: Match._ipv4"), "destination source"),
            (used(f"{_RULE}: Match._ipv4", by_position=True), "destination_mask source_mask"),
        ),
    ),
    TableWords(
        steering.RULE_PORTS,
        (
            _HEAD,
            (used(f"{_RULE}: Match._ports"), "destination source"),
            (used(f"{_RULE}: Match._ports", by_position=True), "destination_mask source_mask"),
        ),
    ),
    TableWords(steering.RULE_VXLAN, (_HEAD, (used(f"{_RULE}: Match._vxlan"), "vni vni_mask"))),
    TableWords(
        steering.UD_RANGE,
        (
            (
                checked(
                    "commands/steering_commands.py: set_datagram_range",
                    Status.BAD_PARAM,
                    "a range of the table's",
                ),
                "first last",
            ),
        ),
    ),
)
