"""The places of a queue pair's rings in its buffer."""

from __future__ import annotations

from typing import NamedTuple

from bluebridge.device.layout.mlx4.contexts import QPC
from bluebridge.device.rdma.vocabulary import Role


class Ring(NamedTuple):
    """One ring: byte offset in the buffer, logarithms of its entries and of their stride."""

    base: int
    log_size: int
    shift: int


class RingGeometry(NamedTuple):
    """Both rings of a queue pair; `receives` is None without one, `length` is in bytes."""

    sends: Ring
    receives: Ring | None
    length: int


def ring_geometry(context: bytes | bytearray, role: Role) -> RingGeometry:
    """Return the places of both rings in one buffer: the one with longer entries is first."""
    get = QPC.get
    log_sq, sq_shift = get(context, "log_sq_size"), get(context, "log_sq_stride") + 4
    sq_bytes = 1 << (log_sq + sq_shift)
    if not _has_receive_queue(context, role):
        return RingGeometry(Ring(0, log_sq, sq_shift), None, sq_bytes)
    log_rq, rq_shift = get(context, "log_rq_size"), get(context, "log_rq_stride") + 4
    rq_bytes = 1 << (log_rq + rq_shift)
    sq_base, rq_base = (rq_bytes, 0) if rq_shift > sq_shift else (0, sq_bytes)
    return RingGeometry(
        Ring(sq_base, log_sq, sq_shift), Ring(rq_base, log_rq, rq_shift), sq_bytes + rq_bytes
    )


def _has_receive_queue(context: bytes | bytearray, role: Role) -> bool:
    """Return True if the context describes a receive queue.

    Without one its size byte and doorbell record may be anything: drivers leave garbage. A size
    byte of zero is one entry of 16 bytes where the send queue has one entry, too, as receive work
    queues have (Linux `ib/qp.c: create_rq`), and no queue else.
    """
    get = QPC.get
    if get(context, "use_srq") or not get(context, "doorbell_record"):
        return False
    sized = get(context, "log_rq_size") or get(context, "log_rq_stride")
    return role is not Role.ETHERNET or bool(sized) or not get(context, "log_sq_size")
