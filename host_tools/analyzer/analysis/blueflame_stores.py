"""Groups stores into BlueFlame pages into lines and work queue entries.

Stores of 4 or 8 bytes at ascending addresses of one 64-byte line count as one write, as a
processor's write-combining buffer, or a store block of System z, sends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bluebridge.host_tools.analyzer.analysis.transfer import Transfer
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.transaction import Transaction


@dataclass(slots=True)
class Trigger:
    """A write that posts a work request: a doorbell, or the stores of a BlueFlame entry.

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
    adapter = adapter_of(store.device)
    if done < adapter.head or first.length < adapter.head:
        return True
    return done < -(-adapter.send_head(first.data).size // adapter.line) * adapter.line


def _append(lines: list[Transaction], store: Transaction) -> bool:
    """Append a store to the lines of an entry; whether it began a line."""
    if lines and same_line(lines[-1], store):
        lines[-1].extend(store)
        return False
    lines.append(store)
    return True


def same_line(one: Transaction, store: Transaction) -> bool:
    """Whether a store goes into the line of an adapter that another one begins or fills."""
    line = adapter_of(store.device).line
    return one.address // line == store.address // line


def _read_head(burst: Trigger) -> None:
    data, adapter = burst.writes[0].data, adapter_of(burst.device)
    if len(data) >= adapter.head:
        _, _, burst.index, burst.qpn = adapter.send_head(data)
