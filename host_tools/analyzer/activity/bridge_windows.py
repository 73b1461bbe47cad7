"""Accesses through a bridge's window: a processor's accesses on one side and their arrivals.

In the log a store is before its arrival, and a read behind it, since a read is logged when it is
answered.
"""

from __future__ import annotations

from bluebridge.device.buslog.record import host_of
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.bridge_causes import mark_remote
from bluebridge.host_tools.analyzer.activity.open_activities import MAX_PARTS
from bluebridge.host_tools.analyzer.transaction import OK, Role, Tlp, Transaction

MOST_STORES = 256
"""Stores of one activity at most, since a copy into a window can be endless."""
MOST_READS = 1024
"""Reads at the peer that wait at most for the access that they answer."""
LOST = "nothing arrived"
UNANSWERED = "all ones: the window shows nothing"


class WindowAccess:
    """A run of stores, or of reads, of one processor at ascending addresses of a window."""

    def __init__(self, one: Transaction, arrivals: list[Transaction], words: str = "") -> None:
        """`arrivals` preceded a read; `words` name the peer's register that it meets."""
        self.writes = one.tlp is Tlp.MEMORY_WRITE
        first = arrivals[0] if arrivals else one
        kind = ActivityKind.ACCESS if words else ActivityKind.STORE
        self.activity = Activity(first.number, kind, one.device, words, first.time, one.time)
        self._to_register = bool(words)
        self._place = len(arrivals)
        for each in arrivals:
            self._arrive(each)
        way = "store into" if self.writes else "load from"
        one.text = words or f"{way} BAR{one.bar}+{one.address:#x}"
        self._root = one
        one.role = Role.WINDOW_STORE if self.writes else Role.WINDOW_LOAD
        self.activity.add(one)
        self._last: Transaction | None = arrivals[-1] if arrivals else None

    def continues(self, one: Transaction) -> bool:
        """Return whether an access of the same kind begins where this run ends."""
        root = self._root
        return (
            one.tlp is root.tlp
            and one.device == root.device
            and one.bar == root.bar
            and one.address == root.address + root.length
            and root.stores < MOST_STORES
            and len(self.activity.transactions) < MAX_PARTS
            and not self._to_register
            and not self.activity.status
        )

    def go_on(self, one: Transaction, arrivals: list[Transaction]) -> None:
        """Add the next access of the run, with its arrivals."""
        join(self._root, one)
        self.activity.end = max(self.activity.end, one.time)
        for each in arrivals:
            self.effect(each)

    def effect(self, one: Transaction) -> bool:
        """List an arrival; join it to the one before if it continues that."""
        last = self._last
        if (
            last is not None
            and last.role is Role.WINDOW
            and one.role is Role.WINDOW
            and one.address == last.address + last.length
        ):
            join(last, one)
            self.activity.end = max(self.activity.end, one.time)
            return True
        self._arrive(one)
        self._last = one
        return True

    def _arrive(self, one: Transaction) -> None:
        mark_remote(self.activity, one)
        self.activity.add(one, self._place)

    def end(self) -> Activity:
        """Return the complete activity with its title and status."""
        activity = self.activity
        if not self._to_register:
            activity.title = self._title()
        if not activity.status:
            parts = activity.transactions
            bytes_through = sum(one.length for one in parts if one is not self._root)
            whole = self._to_register or bytes_through >= self._root.length
            activity.status = OK if whole else _missing(bytes_through, self._root)
        return activity

    def _title(self) -> str:
        root, last = self._root, self._last
        way, sign = ("store", ">") if self.writes else ("load", "<")
        found = f"{way} {root.length} bytes BAR{root.bar}+{root.address:#x}"
        if last is None:
            return found
        machine = host_of(last.device)
        if last.role is Role.INTERRUPT:
            return f"{found} {sign} interrupt message of {machine}"
        first = next(one for one in self.activity.transactions if one is not root)
        return f"{found} {sign} {first.address:#x} of {machine}"


def _missing(arrived: int, root: Transaction) -> str:
    if arrived:
        return f"only {arrived} of {root.length} bytes arrived"
    return LOST if root.tlp is Tlp.MEMORY_WRITE else UNANSWERED


def join(first: Transaction, one: Transaction) -> None:
    """Add to an access the one that follows at the next address, as one transaction."""
    if len(first.data) == first.length:
        first.data = bytes(first.data) + bytes(one.data)
    first.length += one.length
    first.stores += one.stores
    first.last = one.number
