"""Two fingerprints compared: each difference by its name, a field's where a table has one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5 import caps
from bluebridge.host_tools.fingerprint.document import NOT_TAKEN, Sections
from bluebridge.host_tools.show.registers import config_space

ABOUT = "about"
"""The section that says where a fingerprint was taken; another place counts as no difference."""

_ROW = 16
_ABSENT = "absent"
_CAPABILITY = "QUERY_HCA_CAP "
_OUTPUT_BYTES = caps.QUERY_CAP_OFFSET + caps.GROUP_BYTES

Values = Mapping[str, str]
Found = Iterator[tuple[str, str, str]]
"""What differs, our value, theirs."""


@dataclass(frozen=True)
class Difference:
    """Something that two fingerprints say differently: in which section, what, and both values."""

    section: str
    what: str
    ours: str
    theirs: str


@dataclass
class Comparison:
    """All differences, and the sections that only one side has, with why."""

    differences: list[Difference] = field(default_factory=list)
    apart: list[tuple[str, str, str]] = field(default_factory=list)
    """Section, and what each side says of it: `taken`, or why not."""


def compare(ours: Sections, theirs: Sections) -> Comparison:
    """Compare two fingerprints; a section that one side has not taken counts as no difference."""
    found = Comparison()
    for section in [*ours, *(each for each in theirs if each not in ours)]:
        one, other = ours.get(section, {}), theirs.get(section, {})
        state = _about if section == ABOUT else _state
        here, there = state(section, ours), state(section, theirs)
        if here == there != "taken":
            continue
        if here != there:
            found.apart.append((section, here, there))
            continue
        by_name = {"config": _config, "capabilities": _capabilities}.get(section, _values)
        found.differences += (Difference(section, *each) for each in by_name(one, other))
    return found


def _about(section: str, sections: Sections) -> str:
    return ", ".join(f"{key} {value}" for key, value in sections.get(section, {}).items())


def _state(section: str, sections: Sections) -> str:
    if section not in sections:
        return "has none"
    reason = sections[section].get(NOT_TAKEN)
    return "taken" if reason is None else f"{NOT_TAKEN}: {reason}"


def _values(ours: Values, theirs: Values) -> Found:
    for key in [*ours, *(each for each in theirs if each not in ours)]:
        one, other = ours.get(key, _ABSENT), theirs.get(key, _ABSENT)
        if one != other:
            yield key, one, other


def _config(ours: Values, theirs: Values) -> Found:
    """Compare configuration spaces by the names of their registers, else by rows of 16 bytes."""
    yield from _values({"bytes": ours.get("bytes", "")}, {"bytes": theirs.get("bytes", "")})
    registers = [_registers(each) for each in (ours, theirs)]
    named = set()
    for offset, name in sorted(registers[0].keys() | registers[1].keys()):
        one, other = (each.get((offset, name), _ABSENT) for each in registers)
        if one != other:
            named.add(offset // _ROW * _ROW)
            yield f"{offset:#05x} {name}", one, other
    rows = {key for key in ours.keys() | theirs.keys() if key != "bytes"}
    for key in sorted(rows):
        if int(key, 16) not in named:
            one, other = ours.get(key, _zeros()), theirs.get(key, _zeros())
            if one != other:
                yield key, one, other


def _registers(values: Values) -> dict[tuple[int, str], str]:
    space = bytearray(4096)
    for key, row in values.items():
        if key != "bytes":
            masked = row.replace("**", "00")
            space[int(key, 16) : int(key, 16) + _ROW] = bytes.fromhex(masked)
    items = config_space({"config": space.hex(), "bars": {}})
    return {(item["offset"], item["register"]): item["value"] for item in items}


def _zeros() -> str:
    return " ".join(["00"] * _ROW)


def _capabilities(ours: Values, theirs: Values) -> Found:
    """Compare groups of capabilities field by field, all else as values."""
    groups = [_groups(each) for each in (ours, theirs)]
    for mode in sorted(groups[0].keys() | groups[1].keys()):
        name = f"{caps.group_name(mode >> 1)} {'current' if mode & 1 else 'maximal'}"
        one, other = (each.get(mode) for each in groups)
        if one is None or other is None:
            yield name, _asked(one), _asked(other)
        else:
            table = next((caps.BY_GROUP[each] for each in caps.BY_GROUP if each == mode >> 1), None)
            yield from ((f"{name} {each}", *both) for each, both in _fields(table, one, other))
    yield from _values(*(_rest(each) for each in (ours, theirs)))


def _asked(group: bytes | None) -> str:
    return "not asked for" if group is None else "asked for"


def _rest(values: Values) -> Values:
    return {key: value for key, value in values.items() if not key.startswith(_CAPABILITY)}


def _groups(values: Values) -> dict[int, bytes]:
    """Return the bytes of each group by its number and mode, as `op_mod` has them."""
    found: dict[int, bytearray] = {}
    for key, row in values.items():
        if key.startswith(_CAPABILITY):
            _, mode, offset = key.split()
            at = int(offset, 16)
            group = found.setdefault(int(mode, 16), bytearray(_OUTPUT_BYTES))
            if at + _ROW <= _OUTPUT_BYTES:
                group[at : at + _ROW] = bytes.fromhex(row)
    return {mode: bytes(group[caps.QUERY_CAP_OFFSET :]) for mode, group in found.items()}


def _fields(
    table: Struct | None, ours: bytes, theirs: bytes
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the fields that differ, then what differs in words apart from the table's fields."""
    named = bytearray(len(ours))
    for each in table or ():
        bits = (each.mask << each.low).to_bytes(each.width, "big")
        for position, byte in enumerate(bits, each.offset):
            named[position] |= byte
        one, other = (table.get(group, each.name) for group in (ours, theirs) if table)
        if one != other:
            yield each.name, (f"{one:#x}", f"{other:#x}")
    for at in range(0, len(ours), 4):
        rest = ~int.from_bytes(named[at : at + 4], "big") & 0xFFFFFFFF
        one, other = (int.from_bytes(group[at : at + 4], "big") & rest for group in (ours, theirs))
        if one != other:
            what = f"word {at:#05x}, bits {one ^ other:#010x}"
            yield what, (f"{one:#010x}", f"{other:#010x}")
