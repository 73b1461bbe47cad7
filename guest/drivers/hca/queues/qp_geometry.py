"""The layout of a queue pair's two queues in its memory (ib/qp.c: set_kernel_sq_size)."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.guest.drivers.hca.posting.operations import OVERHEAD
from bluebridge.guest.drivers.hca.resources.limits import Limits
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.values import QpInit


def log2(value: int) -> int:
    """Return the exponent of the smallest power of two that is not below `value`."""
    return max(0, value - 1).bit_length()


@dataclass(slots=True, frozen=True)
class Geometry:
    """The two queues of a queue pair: each has `count` entries of `1 << shift` bytes.

    A queue begins `offset` bytes into their memory; its entries have room for `sges` pieces each.
    """

    sq_shift: int
    sq_count: int
    sq_offset: int
    send_sges: int
    rq_shift: int
    rq_count: int
    rq_offset: int
    recv_sges: int

    @classmethod
    def of(cls, init: QpInit, limits: Limits) -> Geometry:
        """Return the sizes that `init` asks for; `VerbsError` when the device cannot have them."""
        if not 1 <= init.max_send_wr <= limits.qp_wqes or init.max_recv_wr > limits.qp_wqes:
            raise VerbsError(f"queues hold 1 to {limits.qp_wqes} requests")
        # Inline data loses four bytes at each 64-byte line and is padded at its end.
        inline = init.max_inline + 4 * (init.max_inline // 60 + 2) + 12 if init.max_inline else 0
        size = OVERHEAD[init.type] + max(16 * max(1, init.max_send_sge), inline)
        if size > limits.send_bytes or init.max_recv_sge * 16 > limits.recv_bytes:
            raise VerbsError("too many pieces or inline bytes for one queue entry")
        sq_shift, sq_count = max(6, log2(size)), 1 << log2(init.max_send_wr)
        has_receives = init.srq is None and init.max_recv_wr > 0
        rq_shift = max(4, log2(16 * max(1, init.max_recv_sge)))
        rq_count = 1 << log2(init.max_recv_wr) if has_receives else 0
        # The queue with the larger entries comes first.
        receives_first = rq_count and rq_shift > sq_shift
        return cls(
            sq_shift=sq_shift,
            sq_count=sq_count,
            sq_offset=rq_count << rq_shift if receives_first else 0,
            send_sges=((1 << sq_shift) - OVERHEAD[init.type]) >> 4,
            rq_shift=rq_shift,
            rq_count=rq_count,
            rq_offset=0 if receives_first else sq_count << sq_shift,
            recv_sges=(1 << rq_shift) // 16,
        )
