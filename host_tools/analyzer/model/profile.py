"""Profiles: six time constants of one kind of machine, read from a TOML file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "profiles"
_TABLE = "microseconds"
_KEYS = ("name", "stores", _TABLE)
_MOST = 1e6
"""Upper limit of a constant, in microseconds: a second."""


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
