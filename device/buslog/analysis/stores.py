"""What software writes to post work requests: doorbells, and lines of BlueFlame entries.

Stores of 4 or 8 bytes at ascending places of one 64-byte line are one write, as a processor's
write-combining buffer, or a store block, sends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bluebridge.device.buslog.analysis.transaction import Transaction
from bluebridge.device.buslog.analysis.transfer import Transfer
from bluebridge.device.layout.mlx4.uar import BLUEFLAME_LINE
from bluebridge.device.layout.mlx4.wqe import DS_MASK

HEAD_BYTES = 8
"""Index and QP number stand in the first 8 bytes of an entry."""


@dataclass(slots=True)
class Trigger:
    """A doorbell, or an entry on its way: `index` are the low 16 bits of its work request's.

    `owner` is that work request once it was found.
    """

    device: str
    qpn: int
    index: int | None
    writes: list[Transaction] = field(default_factory=list)
    blueflame: bool = False
    owner: Transfer | None = None


class Stores:
    """Collects the stores into the BlueFlame pages of each device into lines and entries.

    Rings of several processors have registers of one page, and their stores are interleaved: an
    entry goes on where it ended.
    """

    def __init__(self) -> None:
        self._bursts: dict[tuple[str, int], Trigger] = {}  # by where the next store must be

    def add(self, store: Transaction) -> tuple[Trigger, bool, bool]:
        """The entry a store belongs to, whether it began a line, whether the head is now there."""
        burst = self._bursts.pop((store.device, store.address), None)
        if burst is None or not _continues(burst, store):
            burst = Trigger(store.device, 0, None, blueflame=True)
        self._bursts[store.device, store.address + store.length] = burst
        known = burst.index is not None
        begins = _append(burst.writes, store)
        if not known:
            _look(burst)
        return burst, begins, burst.index is not None and not known


def _continues(burst: Trigger, store: Transaction) -> bool:
    """Whether the store is the next of the entry, which has not come to its end."""
    first = burst.writes[0]
    done = store.address - first.address
    if done < HEAD_BYTES or first.length < HEAD_BYTES:
        return True
    return done < -(-(first.data[7] & DS_MASK) * 16 // BLUEFLAME_LINE) * BLUEFLAME_LINE


def _append(lines: list[Transaction], store: Transaction) -> bool:
    """Put a store behind the others; whether it began a line."""
    if lines and lines[-1].address // BLUEFLAME_LINE == store.address // BLUEFLAME_LINE:
        lines[-1].extend(store)
        return False
    lines.append(store)
    return True


def _look(burst: Trigger) -> None:
    head = burst.writes[0].data
    if len(head) >= HEAD_BYTES:
        burst.index = int.from_bytes(head[1:3], "big")
        burst.qpn = int.from_bytes(head[4:7], "big")
