"""The time model: the constants of a machine's profile times the counts of each transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import add, attrgetter
from pathlib import Path
from typing import Any

from bluebridge.host_tools.analyzer.analysis import Role, Tlp, Transaction, Transfer

_FOLDER = Path(__file__).parent / "profiles"
_TABLE = "microseconds"
_KEYS = ("name", "stores", _TABLE)
_MOST = 1e6  # Upper limit of a constant, in microseconds: a second

LINE = 64
BLOCK = 128
FRAMING = 24
"""Bytes that PCIe adds to a write: header 16, link CRC 4, sequence number 2, start and end 2."""

ENTRY_READS = 2
"""Round trips of fetching an entry: figure 4.5 shows two, the device logs them as one read."""

POSTS = (Role.BLUEFLAME, Role.DOORBELL)
_COMPLETIONS = (Role.CQE, Role.EQE)
_INTERRUPT_BYTES = 4

AHEAD = (Role.RECEIVE_WQE, Role.DOORBELL_RECORD)


class ProfileError(ValueError):
    """An invalid profile; the text is one line that says how to correct it."""


class Stores(StrEnum):
    """The size of one store operation of the processor."""

    LINES = "lines"  # 64 bytes: a write-combining buffer
    BLOCKS = "blocks"  # up to 128 bytes: a store block of System z


@dataclass(frozen=True, slots=True)
class Constants:
    """The time constants of a machine in microseconds, for sends with BlueFlame and without.

    `base`: the constant part of each message. `store`: processor time of one BlueFlame store
    operation, besides its writes. `write`: a posted write of 64 bytes. `turn`: the adapter's own
    pauses when it fetches an entry. `read`: round trip of a DMA read. `completion`: write of a
    completion or event entry.
    """

    base: float
    store: float
    write: float
    turn: float
    read: float
    completion: float


NAMES = tuple(field.name for field in fields(Constants))


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a machine: `name`, size of a store operation, constants in microseconds."""

    name: str
    stores: Stores
    us: Constants


def built_in() -> list[str]:
    """Return the names of the profiles that come with bluebridge."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def read_profile(place: str) -> Profile:
    """Read a built-in profile, by name, or one in a file; raises `ProfileError`."""
    import tomllib  # here, since every `bluebridge` command loads this module

    path = Path(place)
    if place in built_in():
        path = _FOLDER / f"{place}.toml"
    elif not path.is_file():
        raise ProfileError(
            f"no profile {place}: take {' or '.join(built_in())}, or name a file like them"
        )
    try:
        return _profile(tomllib.loads(path.read_text()), path.stem)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{place} is no readable profile: {error}") from error
    except ProfileError as error:
        raise ProfileError(f"{place}: {error}") from error


def _profile(table: dict[str, Any], stem: str) -> Profile:
    unknown = [key for key in table if key not in _KEYS]
    if unknown:
        raise ProfileError(f"{unknown[0]} is not known; a profile has {', '.join(_KEYS)}")
    name = table.get("name", stem)
    if not isinstance(name, str) or not name.isprintable() or not name:
        raise ProfileError("name must be a word")
    try:
        stores = Stores(str(table.get("stores")))
    except ValueError as error:
        raise ProfileError(f'stores must be "{Stores.LINES}" or "{Stores.BLOCKS}"') from error
    return Profile(name, stores, _constants(table.get(_TABLE)))


def _constants(table: object) -> Constants:
    if not isinstance(table, dict):
        raise ProfileError(f"the table [{_TABLE}] with {', '.join(NAMES)} is missing")
    unknown = [key for key in table if key not in NAMES]
    if unknown:
        raise ProfileError(
            f"{unknown[0]} is not one of the {len(NAMES)} constants {', '.join(NAMES)}"
        )
    for name in NAMES:
        if name not in table:
            raise ProfileError(f"the constant {name} is missing in [{_TABLE}]")
        value = table[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
            raise ProfileError(f"{name} = {value!r} is no number of microseconds, 0 or more")
    return Constants(**{name: float(table[name]) for name in NAMES})


@dataclass(slots=True)
class EventCounts:
    """The counts by which the constants of a profile are multiplied.

    `base` messages, `store` operations, `write` in writes of 64 bytes, `turn` fetched entries,
    `read` round trips, `completion` entries.
    """

    base: int = 0
    store: int = 0
    write: float = 0.0
    turn: int = 0
    read: int = 0
    completion: int = 0

    def __add__(self, other: EventCounts) -> EventCounts:
        return EventCounts(*map(add, _values(self), _values(other)))

    def time(self, profile: Profile) -> float:
        """Return the modelled microseconds of all counts."""
        pairs = zip(_values(self), _values(profile.us), strict=True)
        return sum(count * us for count, us in pairs)


_values: Callable[[object], tuple[float, ...]] = attrgetter(*NAMES)


def link_share(length: int) -> float:
    """Return the link time of a write of `length` bytes, in units of that of 64 bytes."""
    return (-(-length // LINE) * FRAMING + length) / (FRAMING + LINE)


def count(transfer: Transfer, stores: Stores) -> list[EventCounts | None]:
    """Return the counts of each of `transfer.transactions`; None for one that is not timed."""
    begins = set(_operations(transfer, BLOCK if stores is Stores.BLOCKS else LINE))
    return [_of(each, place in begins) for place, each in enumerate(transfer.transactions)]


def _operations(transfer: Transfer, room: int) -> Iterator[int]:
    """Yield the places of lines that begin a store operation, `room` bytes of adjacent lines."""
    end, free = -1, 0
    for place, each in enumerate(transfer.transactions):
        if each.role is not Role.BLUEFLAME:
            continue
        if each.address != end or each.length > free:
            yield place
            free = room
        end = each.address + each.length
        free -= each.length


def _of(each: Transaction, begins: bool) -> EventCounts | None:
    if each.role is Role.BLUEFLAME:
        return EventCounts(store=int(begins), write=link_share(each.length))
    if each.role is Role.WQE:
        return EventCounts(turn=1, read=ENTRY_READS)
    if each.role is Role.REQUEST:
        return EventCounts(base=1)
    if each.role is Role.RESPONSE:
        return EventCounts()  # `base` includes its time
    if each.role in _COMPLETIONS:
        return EventCounts(completion=1)
    if each.role is Role.INTERRUPT:
        return EventCounts(write=link_share(_INTERRUPT_BYTES))
    if each.tlp is Tlp.MEMORY_READ:
        return EventCounts(read=1)
    if each.tlp is Tlp.MEMORY_WRITE:
        return EventCounts(write=link_share(each.length))
    return None


@dataclass(frozen=True, slots=True)
class Model:
    """A `TimeModel` that computes times in microseconds from a profile."""

    profile: Profile

    @property
    def name(self) -> str:
        """Name of the profile."""
        return self.profile.name

    def times(self, transfer: Transfer) -> Sequence[float | None]:
        """Return the modelled microseconds at which each transaction is done, from posting on.

        The transactions of one machine follow one another; the peer begins when the message
        arrives, the sender continues when the response arrives, or at once without one. What comes
        through a bridge's window is done after all that its sender did before. Receive
        entries and doorbell records delay nothing, since adapters read them ahead. None for what is
        not timed.
        """
        return [None if done is None else done.time(self.profile) for done in self._done(transfer)]

    def latency(self, transfer: Transfer) -> float:
        """Return the modelled microseconds from posting to the arrival of the message."""
        return self.latency_counts(transfer).time(self.profile)

    def latency_counts(self, transfer: Transfer) -> EventCounts:
        """Return the counts of all from posting to the arrival of the message.

        It arrives at the peer, which polls its memory or its completion queue; the data of reads
        and atomics arrive at the sender. Nothing for a transfer without a timed transaction.
        """
        done = self._done(transfer)
        for remote in (True, False):
            ends = [
                counts
                for each, counts in zip(transfer.transactions, done, strict=True)
                if counts is not None
                and each.remote == remote
                and each.role in (Role.PAYLOAD_WRITE, Role.CQE)
            ]
            if ends:
                return ends[-1]
        return EventCounts()

    def cpu(self, transfer: Transfer) -> float:
        """Return the modelled microseconds that posting takes the sender's processor."""
        parts = count(transfer, self.profile.stores)
        return sum(
            counts.time(self.profile)
            for each, counts in zip(transfer.transactions, parts, strict=True)
            if counts is not None and each.role in POSTS
        )

    def _done(self, transfer: Transfer) -> list[EventCounts | None]:
        """Return the counts of each transaction and of all before it on its critical path."""
        at = {False: EventCounts(), True: EventCounts()}  # by whether it is the peer's
        done: list[EventCounts | None] = []
        parts = count(transfer, self.profile.stores)
        for each, counts in zip(transfer.transactions, parts, strict=True):
            side = each.remote
            if counts is None:
                done.append(None)
                continue
            if each.role in AHEAD:
                done.append(at[side] + counts)
                continue
            if each.role is Role.REQUEST:
                # Without a response the sender's completion follows the request.
                at[False] = at[True] = at[False] + counts
            elif each.role is Role.RESPONSE:
                side, at[False] = False, at[True]
            else:
                before = not side if _crosses(transfer, each) else side
                at[side] = at[before] + counts
            done.append(at[side])
        return done


def _crosses(transfer: Transfer, each: Transaction) -> bool:
    """Return whether the other machine stored it through a bridge's window."""
    if each.role not in (Role.WINDOW, Role.INTERRUPT) or each.parent is None:
        return False
    return transfer.transactions[each.parent].remote != each.remote


def load(place: str) -> Model:
    """Return the model of a built-in profile, by name, or of a file; raises `ProfileError`."""
    return Model(read_profile(place))
