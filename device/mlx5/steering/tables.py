"""Flow tables: groups of entries with one mask, and the way that a frame takes through them.

Linux `core/fs_cmd.c`, `core/fs_core.c`.
"""

from __future__ import annotations

from bisect import insort
from typing import Final, NamedTuple

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.steering import (
    MATCH_BYTES,
    OUTER_HEADERS,
    Action,
    Criteria,
    Destination,
    EntryField,
    MissAction,
    TableType,
)
from bluebridge.device.mlx5.numbers import Numbers, Table
from bluebridge.device.mlx5.settings.capabilities import LOG_MAX_FLOWS, LOG_MAX_TABLE
from bluebridge.device.mlx5.settings.refused import Refused

MAX_TABLES: Final = 1 << 12
MAX_GROUPS: Final = 256
"""Most groups of a table: each is looked at for each frame."""
MAX_ALL_GROUPS: Final = 1 << 16
"""Most groups of all tables."""
MAX_ENTRIES = 1 << LOG_MAX_FLOWS
MAX_WAYS = 1 << 18
"""Most destinations and counters of all entries."""
MAX_DESTINATIONS: Final = 256
MAX_COUNTERS: Final = 1 << 16
MAX_STEPS: Final = 1024
"""Most tables, groups, destinations and counters for one frame, whatever leads where.

The last entry on the way is followed whole.
"""
MAX_TARGETS: Final = 256
"""Most TIRs that get one frame."""

_ACTIONS: Final = int(Action.ALLOW | Action.DROP | Action.FORWARD | Action.COUNT)


class Target(NamedTuple):
    """A TIR that gets a frame, and the tag of the entry that said so."""

    tirn: int
    tag: int


class FlowCounter:
    """The frames that entries counted, and their bytes."""

    __slots__ = ("octets", "packets")

    def __init__(self) -> None:
        self.packets = 0
        self.octets = 0


class FlowEntry:
    """An entry: what it matches (`value`, under the mask of its group), and what it does."""

    __slots__ = ("action", "counters", "destinations", "group", "index", "tag", "value")

    def __init__(self, index: int, group: FlowGroup, value: int) -> None:
        self.index = index
        self.group = group
        self.value = value
        self.action = 0
        self.tag = 0
        self.destinations: list[tuple[int, int]] = []
        self.counters: list[int] = []

    def __lt__(self, other: FlowEntry) -> bool:
        return self.index < other.index

    @property
    def ways(self) -> int:
        """The number of destinations and counters."""
        return len(self.destinations) + len(self.counters)


class FlowGroup:
    """Entries from index `first` to `last`, which compare the bits of `mask`."""

    __slots__ = ("entries", "first", "last", "mask", "number")

    def __init__(self, number: int, first: int, last: int, mask: int) -> None:
        self.number = number
        self.first = first
        self.last = last
        self.mask = mask
        self.entries: dict[int, list[FlowEntry]] = {}

    def __lt__(self, other: FlowGroup) -> bool:
        return self.first < other.first


class FlowTable:
    """A table; frames that match nothing go to the table `miss`, or nowhere without one."""

    __slots__ = ("entries", "groups", "level", "log_size", "miss", "number", "type")

    def __init__(
        self, number: int, kind: TableType, level: int, log_size: int, miss: int | None
    ) -> None:
        self.number = number
        self.type = kind
        self.level = level
        self.log_size = log_size
        self.miss = miss
        self.groups: list[FlowGroup] = []
        self.entries: dict[int, FlowEntry] = {}

    def group(self, number: int) -> FlowGroup:
        """Return a group; raises `Refused` (BAD_RES) without it."""
        for group in self.groups:
            if group.number == number:
                return group
        raise Refused(Status.BAD_RES, f"flow group {number:#x} of table {self.number:#x}")

    def find(self, number: int) -> FlowEntry | None:
        """Return the entry with the lowest index that matches a frame's number, or None."""
        for group in self.groups:  # in the order of their indices, which do not overlap
            found = group.entries.get(number & group.mask)
            if found is not None:
                return found[0]
        return None


def outer_mask(criteria: int, match: bytes) -> int:
    """Return the mask of a group over the outer headers.

    Raises `Refused` (BAD_PARAM) where it looks at anything else.
    """
    size = OUTER_HEADERS.size
    if any(match[size:MATCH_BYTES]):
        raise Refused(Status.BAD_PARAM, "entries match nothing but outer headers")
    return outer_value(match) if criteria & Criteria.OUTER_HEADERS else 0


def outer_value(match: bytes) -> int:
    """Return the outer headers of match parameters as the number that frames have, too."""
    return int.from_bytes(match[: OUTER_HEADERS.size], "big")


class FlowTables:
    """The flow tables of one adapter; `root` is the first that received frames take."""

    def __init__(self) -> None:
        self._numbers = Numbers("flow table", 1, MAX_TABLES)
        self._groups = Numbers("flow group", 1, MAX_ALL_GROUPS)
        self.counters: Table[FlowCounter] = Table(
            "flow counter", Numbers("flow counter", 1, MAX_COUNTERS)
        )
        self.reset()

    def reset(self) -> None:
        """Forget all tables and counters."""
        self._tables: dict[int, FlowTable] = {}
        self._entries = 0
        self._ways = 0
        self.root: int | None = None
        self.counters.reset()
        self._groups.reset()
        self._numbers.reset()

    def __len__(self) -> int:
        return len(self._tables)

    def tables(self) -> list[FlowTable]:
        """Return all tables, oldest first."""
        return list(self._tables.values())

    def find(self, number: int) -> FlowTable | None:
        """Return the table with a number, or None."""
        return self._tables.get(number)

    def table(self, number: int, kind: int) -> FlowTable:
        """Return a table of a type; raises `Refused` (BAD_RES) without it."""
        table = self._tables.get(number)
        if table is None or table.type != kind:
            raise Refused(Status.BAD_RES, f"flow table {number:#x} of type {kind}")
        return table

    # -- tables and groups ----------------------------------------------------------------------

    def create(
        self, kind: int, level: int, log_size: int, miss_action: int, miss_table: int
    ) -> int:
        """Make a table (CREATE_FLOW_TABLE); returns its number. Raises `Refused`."""
        if kind != TableType.NIC_RX:
            raise Refused(Status.BAD_PARAM, f"flow tables of type {kind} are not offered")
        if log_size > LOG_MAX_TABLE:
            raise Refused(Status.BAD_PARAM, f"2**{log_size} entries")
        miss = self._miss(miss_action, miss_table)
        number = self._numbers.take()
        self._tables[number] = FlowTable(number, TableType.NIC_RX, level, log_size, miss)
        return number

    def _miss(self, action: int, table: int) -> int | None:
        if action == MissAction.DEFAULT:
            return None
        if action != MissAction.FORWARD:
            raise Refused(Status.BAD_PARAM, f"miss action {action}")
        return self.table(table, TableType.NIC_RX).number

    def modify(self, table: FlowTable, miss_action: int, miss_table: int) -> None:
        """Change where frames go that match nothing (MODIFY_FLOW_TABLE); raises `Refused`."""
        table.miss = self._miss(miss_action, miss_table)

    def destroy(self, table: FlowTable) -> None:
        """Destroy a table with its groups; one that is the root leaves no root.

        What forwards to it loses its frames from now on.
        """
        for group in table.groups:
            self._groups.free(group.number)
        self._entries -= len(table.entries)
        self._ways -= sum(entry.ways for entry in table.entries.values())
        del self._tables[table.number]
        self._numbers.free(table.number)
        if self.root == table.number:
            self.root = None

    def create_group(
        self, table: FlowTable, first: int, last: int, criteria: int, match: bytes
    ) -> int:
        """Make a group (CREATE_FLOW_GROUP); returns its number. Raises `Refused`."""
        if first > last or last >> table.log_size:
            raise Refused(Status.BAD_PARAM, f"entries {first} to {last} of 2**{table.log_size}")
        if len(table.groups) >= MAX_GROUPS:
            raise Refused(Status.LIM_ERR, f"{MAX_GROUPS} groups in table {table.number:#x}")
        if any(first <= other.last and other.first <= last for other in table.groups):
            raise Refused(Status.BAD_PARAM, f"entries {first} to {last} belong to a group already")
        mask = outer_mask(criteria, match)
        group = FlowGroup(self._groups.take(), first, last, mask)
        insort(table.groups, group)
        return group.number

    def destroy_group(self, table: FlowTable, number: int) -> None:
        """Destroy a group; raises `Refused`: BAD_RES, BAD_RES_STATE while it has entries."""
        group = table.group(number)
        if group.entries:
            raise Refused(Status.BAD_RES_STATE, f"flow group {number:#x} has entries")
        table.groups.remove(group)
        self._groups.free(number)

    # -- entries --------------------------------------------------------------------------------

    def set_entry(
        self,
        table: FlowTable,
        index: int,
        group: int,
        match: bytes,
        *,
        action: int,
        tag: int,
        destinations: list[tuple[int, int]],
        counters: list[int],
        fields: int | None,
    ) -> None:
        """Make an entry, or change `fields` of one that there is (SET_FLOW_TABLE_ENTRY).

        Raises `Refused`: BAD_PARAM, BAD_RES, BAD_RES_STATE, LIM_ERR; nothing has changed then.
        """
        self._check_way(action, destinations, counters)
        if self._ways + len(destinations) + len(counters) > MAX_WAYS:
            raise Refused(Status.LIM_ERR, f"{MAX_WAYS} destinations and counters")
        entry = table.entries.get(index)
        if fields is None:
            if entry is not None:
                raise Refused(Status.BAD_RES_STATE, f"flow entry {index} is in use")
            entry = self._add(table, index, group, match)
            fields = -1
        elif entry is None:
            raise Refused(Status.BAD_RES, f"flow entry {index} of table {table.number:#x}")
        self._ways -= entry.ways
        if fields & EntryField.ACTION:
            entry.action = action
        if fields & EntryField.FLOW_TAG:
            entry.tag = tag
        if fields & EntryField.DESTINATIONS:
            entry.destinations = destinations
        if fields & EntryField.COUNTERS:
            entry.counters = counters
        self._ways += entry.ways

    def _check_way(
        self, action: int, destinations: list[tuple[int, int]], counters: list[int]
    ) -> None:
        if action & ~_ACTIONS:
            raise Refused(Status.BAD_PARAM, f"flow action {action:#x}")
        for kind, number in destinations:
            if kind == Destination.FLOW_TABLE:
                self.table(number, TableType.NIC_RX)
            elif kind != Destination.TIR:
                raise Refused(Status.BAD_PARAM, f"a destination of type {kind}")
        for number in counters:
            self.counters.known(number)

    def _add(self, table: FlowTable, index: int, number: int, match: bytes) -> FlowEntry:
        group = table.group(number)
        if not group.first <= index <= group.last:
            raise Refused(Status.BAD_PARAM, f"flow entry {index} is not in group {number:#x}")
        if self._entries >= MAX_ENTRIES:
            raise Refused(Status.LIM_ERR, f"{MAX_ENTRIES} flow entries")
        entry = FlowEntry(index, group, outer_value(match) & group.mask)
        table.entries[index] = entry
        insort(group.entries.setdefault(entry.value, []), entry)
        self._entries += 1
        return entry

    def delete_entry(self, table: FlowTable, index: int) -> None:
        """Delete an entry; raises `Refused` (BAD_RES) without it."""
        entry = table.entries.pop(index, None)
        if entry is None:
            raise Refused(Status.BAD_RES, f"flow entry {index} of table {table.number:#x}")
        same = entry.group.entries[entry.value]
        same.remove(entry)
        if not same:
            del entry.group.entries[entry.value]
        self._entries -= 1
        self._ways -= entry.ways

    # -- frames ---------------------------------------------------------------------------------

    def targets(self, number: int, packets: int, octets: int) -> list[Target]:
        """Return the TIRs that get `packets` frames with this number, `octets` long in all.

        Tables may lead in a circle, or everywhere: the number of steps for one frame is bounded.
        """
        found: list[Target] = []
        ways = [] if self.root is None else [self.root]
        steps = MAX_STEPS
        while ways and steps > 0 and len(found) < MAX_TARGETS:
            table = self._tables.get(ways.pop())
            if table is None:
                continue
            steps -= 1 + len(table.groups)
            entry = table.find(number)
            if entry is None:
                if table.miss is not None:
                    ways.append(table.miss)
                continue
            steps -= entry.ways
            for counted in entry.counters if entry.action & Action.COUNT else ():
                counter = self.counters.get(counted)
                if counter is not None:
                    counter.packets += packets
                    counter.octets += octets
            if entry.action & Action.DROP or not entry.action & Action.FORWARD:
                continue
            for kind, goal in entry.destinations:
                if kind == Destination.TIR:
                    found.append(Target(goal, entry.tag))
                else:
                    ways.append(goal)
        return found[:MAX_TARGETS]
