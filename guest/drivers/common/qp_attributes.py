"""Attributes of queue pairs as fields of contexts, which mlx4 and mlx5 call by the same names."""

from __future__ import annotations

from typing import TypeVar

from bluebridge.device.layout.fields import Value
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.values import QpAttr

Queue = TypeVar("Queue")


def own(kind: type[Queue], queue: object) -> Queue:
    """Return a queue or channel that is one of this driver's; raises `VerbsError` for another."""
    if not isinstance(queue, kind):
        raise VerbsError("the completion queue, channel or SRQ is not one of this device")
    return queue


def attributes(attr: QpAttr) -> list[tuple[str, dict[str, Value]]]:
    """Return what a transition is to set besides what it always does.

    Each with the name of its bit in the optional parameter mask, and fields of the context.
    """
    parts: list[tuple[str, dict[str, Value]]] = []
    if attr.access is not None:
        flags = AccessFlags(attr.access)
        parts += [
            ("RRE", {"remote_read": int(bool(flags & AccessFlags.REMOTE_READ))}),
            ("RWE", {"remote_write": int(bool(flags & AccessFlags.REMOTE_WRITE))}),
            ("RAE", {"remote_atomic": int(bool(flags & AccessFlags.REMOTE_ATOMIC))}),
        ]
    simple: tuple[tuple[str, str, int | None], ...] = (
        ("QKEY", "qkey", attr.qkey),
        ("RNR_TIMEOUT", "min_rnr_timer", attr.min_rnr_timer),
        ("RETRY_COUNT", "retry_count", attr.retry_count),
        ("RNR_RETRY", "rnr_retry", attr.rnr_retry),
        ("ACK_TIMEOUT", "pri_ack_timeout", attr.timeout),
        ("SRA_MAX", "sra_max", _log(attr.max_rd_atomic)),
        ("RRA_MAX", "rra_max", _log(attr.max_dest_rd_atomic)),
    )
    parts += [(bit, {name: value}) for bit, name, value in simple if value is not None]
    return parts


def _log(depth: int | None) -> int | None:
    if depth is None:
        return None
    return max(0, depth - 1).bit_length()
