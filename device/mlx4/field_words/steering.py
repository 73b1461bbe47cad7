"""Words on rules of device-managed flow steering."""

from __future__ import annotations

from bluebridge.device.layout.mlx4 import steering
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.field_words.word import TableWords, checked

_RULE = "steering/rule_entry.py"
_HEAD = (
    checked(f"{_RULE}: _match", Status.BAD_PARAM, "the headers there are", by_position=True),
    "size id",
)

STEERING = (
    TableWords(
        steering.RULE_CONTROL,
        ((checked(f"{_RULE}: rule_of", Status.BAD_PARAM, "RuleMode"), "mode"),),
    ),
    *(
        TableWords(rule, (_HEAD,))
        for rule in (
            steering.RULE_ETHERNET,
            steering.RULE_INFINIBAND,
            steering.RULE_IPV4,
            steering.RULE_PORTS,
            steering.RULE_VXLAN,
        )
    ),
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
