"""Groups stores into BlueFlame pages into lines and work queue entries.

Stores of 4 or 8 bytes at ascending addresses of one 64-byte line count as one write, as a
processor's write-combining buffer, or a store block of System z, sends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bluebridge.device.layout.mlx4.uar import BLUEFLAME_LINE
from bluebridge.device.layout.mlx4.wqe import DS_MASK
from bluebridge.host_tools.analyzer.analysis.transaction import Transaction
from bluebridge.host_tools.analyzer.analysis.transfer import Transfer

HEAD_BYTES = 8
"""Bytes of an entry that hold index and QP number."""


@dataclass(slots=True)
class Trigger:
    """What posts a work request: a doorbell, or the stores of a BlueFlame entry.

    `index` has the low 16 bits of the work request's index, None for a doorbell and while they are
    not stored yet. `owner` is the work request, once found.
    """

    device: str
    qpn: int
    index: int | None
    writes: list[Transaction] = field(default_factory=list)
    blueflame: bool = False
    owner: Transfer | None = None


class BlueFlameStores:
    """Groups the stores into the BlueFlame pages of each device.

    The rings of several processors have registers in one page, and their stores are interleaved:
    a store belongs to the entry whose last store ended at its address.
    """

    def __init__(self) -> None:
        self._bursts: dict[tuple[str, int], Trigger] = {}  # by device and address of the next store

    def add(self, store: Transaction) -> tuple[Trigger, bool, bool]:
        """The entry of a store, whether it began a line, whether it completed the entry's head."""
        burst = self._bursts.pop((store.device, store.address), None)
        if burst is None or not _continues(burst, store):
            burst = Trigger(store.device, 0, None, blueflame=True)
        self._bursts[store.device, store.address + store.length] = burst
        known = burst.index is not None
        begins = _append(burst.writes, store)
        if not known:
            _read_head(burst)
        return burst, begins, burst.index is not None and not known


def _continues(burst: Trigger, store: Transaction) -> bool:
    """Whether the entry of `burst` is not complete yet, so that the store belongs to it."""
    first = burst.writes[0]
    if burst.writes[-1].given or (burst.owner is not None and burst.owner.given):
        return False
    done = store.address - first.address
    if done < HEAD_BYTES or first.length < HEAD_BYTES:
        return True
    return done < -(-(first.data[7] & DS_MASK) * 16 // BLUEFLAME_LINE) * BLUEFLAME_LINE


def _append(lines: list[Transaction], store: Transaction) -> bool:
    """Append a store to the lines of an entry; whether it began a line."""
    if lines and lines[-1].address // BLUEFLAME_LINE == store.address // BLUEFLAME_LINE:
        lines[-1].extend(store)
        return False
    lines.append(store)
    return True


def _read_head(burst: Trigger) -> None:
    head = burst.writes[0].data
    if len(head) >= HEAD_BYTES:
        burst.index = int.from_bytes(head[1:3], "big")
        burst.qpn = int.from_bytes(head[4:7], "big")
