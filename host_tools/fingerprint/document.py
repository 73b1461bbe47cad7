"""A fingerprint as text and as sections of keys with values; read with bounds, since it is foreign.

The script for owners writes the format: a first line, `[section]`, then lines of `key = value`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from bluebridge.host_tools.errors import UsageError

FIRST_LINE = "bluebridge fingerprint 1"
MOST_BYTES = 4 << 20
NOT_TAKEN = "not taken"
"""The key of a section whose program was not there; its value says which."""

Sections = dict[str, dict[str, str]]
"""Values by key, by section, in the order of the text."""

_SECTION = re.compile(r"\[([^\[\]]+)\]")
_BYTES = re.compile(r"([0-9a-f]{2}|\*\*)( ([0-9a-f]{2}|\*\*)){15}")
_WORDS = re.compile(r"[0-9a-f]{8}( [0-9a-f]{8}){3}")
_OFFSET = re.compile(r"[0-9a-f]{3}")
_CAPABILITY = re.compile(r"QUERY_HCA_CAP 00[0-9a-f]{2} [0-9a-f]{3,4}")


class FormatError(ValueError):
    """A text is no fingerprint; the text of the error says where and why."""


def parse(text: str) -> Sections:
    """Return the sections of a fingerprint. Raises `FormatError`."""
    first, *lines = text.splitlines() or [""]
    if first != FIRST_LINE:
        raise FormatError(f"its first line is not `{FIRST_LINE}`")
    found: Sections = {}
    section: dict[str, str] | None = None
    for number, line in enumerate(lines, 2):
        if match := _SECTION.fullmatch(line):
            if match[1] in found:
                raise FormatError(f"line {number}: there are two sections [{match[1]}]")
            section = found[match[1]] = {}
            continue
        key, between, value = line.partition(" = ")
        if not between and line.endswith(" ="):
            key, between = line[:-2], "="
        if section is None or not between:
            raise FormatError(f"line {number} is neither [section] nor `key = value`")
        if key in section:
            raise FormatError(f"line {number}: {key} stands twice in its section")
        section[key] = value
    _check(found)
    return found


def _check(sections: Sections) -> None:
    """Raise `FormatError` for rows of bytes that are none."""
    for key, value in sections.get("config", {}).items():
        if key != "bytes" and not (_OFFSET.fullmatch(key) and _BYTES.fullmatch(value)):
            raise FormatError(f"[config] {key} is no row of 16 bytes")
    for key, value in sections.get("capabilities", {}).items():
        if key.startswith("QUERY_HCA_CAP") and not (
            _CAPABILITY.fullmatch(key) and _WORDS.fullmatch(value)
        ):
            raise FormatError(f"[capabilities] {key} is no row of four words")


def load(path: Path) -> Sections:
    """Read a fingerprint from a file. Raises `UsageError`."""
    mend = "give a file that fingerprint.sh or `bluebridge fingerprint` wrote"
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise FormatError(f"it has more than {MOST_BYTES >> 20} MiB")
        return parse(data.decode())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", mend) from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no fingerprint: it is not text", mend) from None
    except FormatError as error:
        raise UsageError(f"{path} is no fingerprint: {error}", mend) from None


def lines(sections: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the lines of a fingerprint."""
    yield FIRST_LINE
    for name, values in sections.items():
        yield f"[{name}]"
        yield from (f"{key} = {value}" for key, value in values.items())
