"""The items of what queue pairs see of congestion."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.host_tools.show.item import Item, Kind, Row


def congestion(row: Row) -> Sequence[Item]:
    """Return the item of a queue pair, which the device server tells as it is shown."""
    return [{"function": row["function"], **row}]


ECN = Kind(
    "ecn",
    "queue pairs on a wire of packets",
    "a QPN",
    congestion,
    ("lqpn",),
    (
        "lqpn", "rqpn", "ce-seen", "cnps-sent", "cnps-received", "rate", "target", "alpha",
        "limited",
    ),
    frozenset(("lqpn", "rqpn")),
)  # fmt: skip
